"""Loads that double where one card is missing: who is more important is served, nobody stops."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.resources import Resource, parse
from inferno_optimizer.explain.rates import rates
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import System
from tests.cluster.motion import (
    MEAN_TOKENS,
    Motion,
    Mover,
    PodTimes,
    manifests,
    moved,
    moving,
)
from tests.cluster.scene import Manifest, Scene
from tests.conftest import StartOperator
from tests.controlplane.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("crds_installed", "deployment_controllers"),
    pytest.mark.extended,
]

BEFORE, AFTER = 6.0, 12.0
"""Rate of each server [requests/s]: one replica takes 8.8/s within the targets."""

SERVERS = 8
CARDS = 2 * SERVERS - 1
"""One fewer than the least plan for the loads after they have doubled."""

TWO_REPLICAS = 0.8 * AFTER
"""A rate [requests/s] that takes a second replica for sure: by it the doubling is seen."""

ENDS_S = 240.0
"""Time in which the plan for what was measured is reached at the latest, on a busy machine."""

APART_S = 3.0
"""Changes that follow each other sooner are of one plan: plans are made each 5 s."""

STILL_S = 30.0
"""Time of about six plans [s]: in each one a card that is swapped goes to another server."""


def movers() -> list[Mover]:
    """Return servers that double at the same time; each second one is less important."""
    rate = moved(BEFORE, AFTER, 20.0)
    return [Mover(f"s{number}", rate, ("A100",), 1) for number in range(SERVERS)]


def fleet(*, exact: bool) -> Iterator[Manifest]:
    """Yield their objects, with a policy for scarce cards."""
    options = {"milpSolver": exact, "saturationPolicy": "PriorityExhaustive"}
    for manifest in manifests(movers(), {"A100": CARDS}, interval=5):
        if manifest["kind"] == "Optimizer":
            manifest["spec"]["data"] = {"optimizer": options}
        yield manifest


def doubled() -> System:
    """Return the fleet as it is to be planned for, with the true loads; greedy."""
    tokens, answers = MEAN_TOKENS
    load = {"arrivalRate": 60 * AFTER, "avgInTokens": tokens, "avgOutTokens": answers}
    current = {"accelerator": "A100", "numReplicas": 1, "load": load}
    found = list[Resource]()
    for manifest in fleet(exact=False):
        if manifest["kind"] in ("Deployment", "ServiceAccount"):
            continue
        if manifest["kind"] == "Server":
            manifest["spec"]["currentAlloc"] = current
        found.append(parse(manifest))
    return build_system(found).system


def served(system: System, replicas: Mapping[str, int]) -> dict[str, float]:
    """Return the load that replicas serve within the targets, by class [requests/min]."""
    replica = rates(system).replica
    totals = dict.fromkeys((server.service_class for server in system.servers), 0.0)
    for server in system.servers:
        carried = replicas[server.name] * replica[server.name, "A100"]
        totals[server.service_class] += min(carried, 60 * AFTER)
    return totals


def decided(motion: Motion) -> dict[str, int]:
    """Return the replicas that are decided now."""
    return {
        name: sum(seen.placements[-1][1].values()) if seen.placements else 0
        for name, seen in motion.seen.items()
    }


@pytest.mark.minutes
def test_one_card_too_few_costs_the_least_important_one_replica_and_nobody_all(
    scene: Scene, operator: StartOperator, prometheus_program: Path
) -> None:
    system = doubled()
    greedy = {name: found.replicas for name, found in optimize(system).allocations.items()}
    least = served(system, greedy)
    assert sum(greedy.values()) == CARDS

    with moving(
        scene, prometheus_program, movers(), scrape_s=2.0, pods=PodTimes(3.0, 1.0)
    ) as motion:
        scene.apply(*fleet(exact=True))
        wait_until(motion.all_serve, bool, "replicas that serve")
        motion.begin()
        operator(environment=motion.environment(3))
        wait_until(motion.all_decided, bool, "first decisions")

        def is_served() -> bool:
            found = served(system, decided(motion))
            return all(found[name] >= least[name] - 1e-6 for name in least)

        wait_until(lambda: _is_seen(motion), bool, "the doubled loads", ENDS_S)
        print(f"doubled loads are seen after {motion.elapsed:.0f} s")
        wait_until(is_served, bool, "as much of each class as greedy serves", ENDS_S)
        served_at = motion.elapsed
        wait_until(
            lambda: _changes_after(motion, served_at),
            lambda _: motion.elapsed - max(served_at, _last_change(motion)) > STILL_S,
            "plans that change nothing, once what has waited is served",
            ENDS_S,
        )
        assert {name: s.idle_s for name, s in motion.seen.items() if s.idle_s} == {}
        assert _falls(motion, range(0, SERVERS, 2)) == {}
        assert _most_cards(motion) <= CARDS


def _is_seen(motion: Motion) -> bool:
    """Whether the doubled load of each server is measured."""
    newest = (list(seen.measured.values()) for seen in motion.seen.values())
    return all(rates and rates[-1] > TWO_REPLICAS for rates in newest)


def _changes_after(motion: Motion, start: float) -> dict[str, list[tuple[float, dict[str, int]]]]:
    """Return the changes of replicas after a time, by server, with their times [s]."""
    return {
        name: [(round(time, 1), dict(placed)) for time, placed in seen.placements if time >= start]
        for name, seen in motion.seen.items()
    }


def _last_change(motion: Motion) -> float:
    """Return when the replicas of any server changed last [s]."""
    return max(time for seen in motion.seen.values() for time, _ in seen.placements)


def _falls(motion: Motion, numbers: range) -> dict[str, list[int]]:
    """Return the replicas of servers that lose some at any time, over time."""
    found = {
        f"s{n}": [sum(placed.values()) for _, placed in motion.seen[f"s{n}"].placements]
        for n in numbers
    }
    return {name: counts for name, counts in found.items() if counts != sorted(counts)}


def _most_cards(motion: Motion) -> int:
    """Return the most cards that are decided at any time; decisions of one plan count together."""
    now, most = dict.fromkeys(motion.seen, 0), 0
    changes = sorted(
        (time, name, sum(placed.values()))
        for name, seen in motion.seen.items()
        for time, placed in seen.placements
    )
    for number, (time, name, count) in enumerate(changes):
        now[name] = count
        if number + 1 == len(changes) or changes[number + 1][0] > time + APART_S:
            most = max(most, sum(now.values()))
    return most
