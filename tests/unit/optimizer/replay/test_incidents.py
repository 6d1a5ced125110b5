"""The worst times of a replay, and why targets were missed in them."""

import numpy as np
import pytest

from inferno_optimizer.replay.account import Cause, Incident, find_worst_incidents
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.policy import NamedPolicy, Seen, Setting
from inferno_optimizer.replay.replay import Scenario, replay
from inferno_optimizer.sizing.queueing import IntArray
from tests.unit.optimizer.replay.fleets import fleet, trace

BUSY = 5
"""The first step of a load that is too much for one replica."""


def incidents(wanted: list[int], rates: list[float], cards: int = 100) -> list[Incident]:
    """Those of a policy that wants these replicas, from the end of each step on."""
    of = fleet(cards=cards)

    def make(_: Setting) -> "Wanted":
        return Wanted(wanted)

    shown = Scenario(of, of, trace(rates), LeadTime(120.0))
    account = replay(shown, NamedPolicy("wanted", make), of.home)
    return find_worst_incidents(account, shown.trace, of.accelerators, 10)


class Wanted:
    def __init__(self, wanted: list[int]) -> None:
        self._wanted = iter(wanted)

    def __call__(self, _: Seen) -> IntArray:
        return np.array([next(self._wanted)])


def load(steps: int = 20) -> list[float]:
    """Requests/s: hardly any, then more than a replica can do, then hardly any."""
    return [0.2] * BUSY + [8.0] * 5 + [0.2] * (steps - BUSY - 5)


@pytest.mark.parametrize(
    ("after", "cards", "cause"),
    [
        (1, 100, Cause.TOO_FEW),
        (9, 100, Cause.STARTING),
        (9, 2, Cause.NO_CARDS),
    ],
)
def test_the_cause_is_what_was_done_about_the_load(after: int, cards: int, cause: Cause) -> None:
    (worst, *_) = incidents([1] * BUSY + [after] * 15, load(), cards)

    assert (worst.first, worst.server, worst.accelerator) == (BUSY, "s0", "Small")
    assert worst.cause is cause
    assert worst.rate == 8.0 > worst.able


def test_what_was_decided_is_the_last_change_of_replicas() -> None:
    (worst, *_) = incidents([1] * BUSY + [2, 2] + [4] * 13, load())

    assert (worst.before, worst.replicas) in ((1, 2), (2, 4))
    assert worst.changed in (BUSY + 1, BUSY + 3)


def test_a_line_that_is_left_is_a_backlog() -> None:
    found = incidents([1] * 8 + [2] * 12, [0.2] * BUSY + [3.0] * 5 + [2.0] * 10)

    assert {incident.cause for incident in found} <= {Cause.TOO_FEW, Cause.STARTING, Cause.BACKLOG}
    assert all(incident.outside > 0 for incident in found)


def test_a_replay_within_its_targets_has_no_incident() -> None:
    assert incidents([9] * 20, [0.2] * 20) == []


def test_incidents_are_runs_of_steps_and_the_worst_comes_first() -> None:
    found = incidents([1] * 40, [*load(20), *[0.2] * 5, *[30.0] * 5, *[0.2] * 10])

    assert [incident.outside for incident in found] == sorted(
        (incident.outside for incident in found), reverse=True
    )
    assert found[0].rate == 30.0
    for one in found:
        assert one.first <= one.worst <= one.last
