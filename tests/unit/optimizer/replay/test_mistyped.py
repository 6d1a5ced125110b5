"""A Model that is ten times as fast all at once, by mistake: half of what serves stays."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from inferno_optimizer.correction import MOST
from inferno_optimizer.replay.account import ENOUGH
from inferno_optimizer.replay.fleet import build_fleet, slow_down
from inferno_optimizer.replay.planning import Planner, PlanningRules
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.policy import Decide, NamedPolicy, Seen, Setting
from inferno_optimizer.replay.replay import Scenario, replay
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.system import System
from inferno_optimizer.way_down import HALF
from tests.unit.optimizer.replay.fleets import system, trace

STEP_S = 30.0
MISTAKE_S, CORRECTED_S, END_S = 3600.0, 7200.0, 9000.0
"""When the Model is mistyped, and when somebody sets it right."""

FASTER = 10.0

LOAD = 20.8
"""What eight replicas carry, and seven do not [requests/s]."""


def on_small(of: System) -> System:
    """The system on the small card only, as the Server names no other workload."""
    small = tuple(replace(server, accelerators=("Small",)) for server in of.servers)
    return replace(of, servers=small)


@dataclass(frozen=True)
class Minute:
    """Replicas that serve, requests within all targets, and what plans are made for."""

    minute: int
    ready: int
    within: float
    factor: float


def minutes(rate: float) -> Iterator[Minute]:
    """What happens from the mistake on; the rules are those of an Optimizer without a guard."""
    true = build_fleet(on_small(system()))[0]
    wrong = build_fleet(slow_down(true.system, 1 / FASTER))[0]
    factors: list[float] = []

    class Mistyped(Planner):
        """The operator: it believes what the Model says, right or wrong."""

        def __call__(self, seen: Seen) -> IntArray:
            for time_s, believed in ((MISTAKE_S, wrong), (CORRECTED_S, true)):
                if seen.time_s == time_s:
                    self._plans, self._learned = self._make_plans(believed), True
            decided = super().__call__(seen)
            factors.append(float(self._correction.factor[0]))
            return decided

    def policy(setting: Setting) -> Decide:
        return Mistyped(PlanningRules(), setting)

    load = trace([rate] * int(END_S / STEP_S), STEP_S)
    shown = Scenario(true, true, load, LeadTime(120.0))
    history = replay(shown, NamedPolicy("mistyped", policy), true.home).history
    for step in range(int(MISTAKE_S / STEP_S) - 2, len(history.ready), 2):
        within = float(history.delay_within[step, 0] * history.itl_within[step, 0])
        minute = round((step * STEP_S - MISTAKE_S) / 60)
        yield Minute(minute, int(history.ready[step, 0]), within, factors[step])


def table(found: list[Minute]) -> str:
    """The minutes in which something changes."""
    rows, last = ["minute  replicas  within targets  load planned for"], None
    for each in found:
        shown = f"{each.ready:8}  {each.within:14.0%}  {each.factor:15.2f}x"
        if shown != last:
            rows.append(f"{each.minute:6}  {shown}")
        last = shown
    return "\n".join(rows)


def test_of_eight_replicas_six_stay_as_targets_that_are_missed_hold_them() -> None:
    """In mode Auto without a guard; the load keeps all eight busy."""
    found = list(minutes(LOAD))
    print(table(found))
    before, *after = found
    wrong = [each for each in after if 60 * each.minute <= CORRECTED_S - MISTAKE_S]

    assert before.ready == 8
    assert before.within == pytest.approx(1.0, abs=0.01)
    assert all(each.ready >= HALF.count_fewest(8) for each in after)
    assert min(each.within for each in after) > 0.5
    first_loss = next(each.minute for each in after if each.ready < 8)
    noticed = next(each.minute for each in after if each.within < ENOUGH)
    assert first_loss == noticed == 5  # when fewer were enough for the window of reductions
    assert all(each.ready == 6 for each in wrong if each.minute >= first_loss)
    assert 1.0 < wrong[-1].factor <= MOST
    assert found[-1].within == pytest.approx(1.0, abs=0.01)
