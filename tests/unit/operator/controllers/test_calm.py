"""Measured loads become plans for hours, in virtual time: noise changes nothing, nor do waves."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pytest

from inferno_operator.controllers.measurement.load import add_planned_load, apply_measurement
from inferno_operator.controllers.measurement.lookahead import Lookahead
from inferno_operator.controllers.planning.memory import Memory
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.resources import Measured, Resource, Server
from inferno_operator.resources.objects import Key
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution
from inferno_optimizer.surplus import with_surplus
from inferno_optimizer.system import Allocation, System
from tests.tiers import extended, sampled
from tests.unit.operator import objects

Counts = npt.NDArray[np.int64]
"""Requests by second."""

CYCLE_S, LONG_S, SHORT_S = 30, 300, 60
NOISE = 4.5
"""Standard deviations of the difference from which a shorter window counts, as in `arrivals`."""


class Loop:
    """Measures one server and plans for it every 30 s, as the operator does."""

    def __init__(self) -> None:
        spec = {"measure": {"source": "vLLM", "labels": {"model_name": "m"}}}
        self._others: list[Resource] = [
            found
            for manifest in (
                objects.accelerator("A"),
                objects.accelerator("B", cost=25),
                objects.model(
                    data=[objects.performance(), objects.performance("B", alpha=400, beta=0)]
                ),
                objects.service_class(),
                objects.capacity(1000),
            )
            if (found := objects.observed(manifest).resource) is not None
        ]
        found = objects.observed(objects.server("S", spec={**spec, "currentAlloc": None})).resource
        assert isinstance(found, Server)
        self._server = found
        self._key = Key("default", "s")
        self._lookahead = Lookahead(CYCLE_S)
        self._measured: Measured | None = None
        self._memory = Memory()
        self._solutions: dict[tuple[str, bool], tuple[System, Solution]] = {}

    def step(self, elapsed: float, rate: float) -> Allocation:
        """Measure a rate [requests/s], plan, and carry the plan out."""
        now = objects.NOW + timedelta(seconds=elapsed)
        newest = Measured(time=now, quality="Fresh", arrival_rate=60 * rate, avg_out_tokens=1)
        ahead = self._lookahead.look_ahead(self._key, self._server, newest, self._measured)
        newest = newest.model_copy(update={"ahead": ahead})
        newest = add_planned_load(newest, self._server, self._measured, None, now)
        self._measured = newest
        servers = [apply_measurement(self._server, newest)]
        self._memory.note_servers(servers, now)
        system, solution = self._solved(servers[0])
        self._memory.note_plan(servers, solution, now)
        calm = with_surplus(system, solution, self._memory.count_fewest_replicas(servers))
        decided = calm.allocations["S"]
        self._carry_out(decided)
        return decided

    def _solved(self, server: Server) -> tuple[System, Solution]:
        """Solve; what was solved before is remembered."""
        key = server.model_dump_json(), self._memory.plans[server.metadata.uid].move_time is None
        if key not in self._solutions:
            system = build_system([*self._others, server]).system
            system = self._memory.set_destinations(system, [server])
            self._solutions[key] = system, optimize(system)
        return self._solutions[key]

    def _carry_out(self, decided: Allocation) -> None:
        part = {"accelerator": decided.accelerator, "numReplicas": decided.replicas}
        before = self._server.spec.desired_alloc
        if before is not None and part.items() <= before.to_json().items():
            return
        manifest = self._server.to_json()
        spec = {**manifest["spec"], "desiredAlloc": part, "currentAlloc": part}
        resource = objects.observed({**manifest, "spec": spec}).resource
        assert isinstance(resource, Server)
        self._server = resource


def measured_rates(arrivals: Counts) -> Iterator[float]:
    """Yield what is measured of the arrivals of each second: at once if more, else later."""
    counted = np.concatenate(([0], np.cumsum(arrivals)))
    for end in range(LONG_S, len(arrivals), CYCLE_S):
        long, short = (
            float(counted[end] - counted[end - window]) / window for window in (LONG_S, SHORT_S)
        )
        noise = NOISE * np.sqrt(max(short, long) / SHORT_S + long / LONG_S)
        yield short if short - long > noise else long


def changes(arrivals: Sequence[int] | Counts) -> list[tuple[float, str, int]]:
    """The decisions that differ from the one before, with their hours."""
    loop, found = Loop(), list[tuple[float, str, int]]()
    for number, rate in enumerate(measured_rates(np.asarray(arrivals))):
        decided = loop.step(CYCLE_S * number, rate)
        if not found or found[-1][1:] != (decided.accelerator, decided.replicas):
            found.append((CYCLE_S * number / 3600, decided.accelerator, decided.replicas))
    return found


@pytest.mark.parametrize("rate", [4.0, *extended(0.5, 30.0)])
@pytest.mark.parametrize("seed", sampled(range(2)))
def test_noise_makes_no_replica_come_or_go_in_a_day(rate: float, seed: int) -> None:
    """After two hours, from when the growth is known; one may turn out not to be needed."""
    arrivals = np.random.default_rng(seed).poisson(rate, 24 * 3600)

    found = changes(arrivals)

    later = [replicas for time, _, replicas in found if time > 2.2]
    assert len(later) <= 1
    assert later == sorted(later, reverse=True)
    assert {accelerator for _, accelerator, _ in found} == {found[0][1]}


def test_a_square_wave_shorter_than_the_window_keeps_the_replicas_of_its_top() -> None:
    found = changes([20 if second // 140 % 2 else 12 for second in range(2 * 3600)])

    assert [change for change in found if change[0] > 0.1] == []
