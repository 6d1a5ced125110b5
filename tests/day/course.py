"""The load of the day: clients of a recorded trace, each a server, so many times faster."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inferno_operator.cli.offline.traces import read_trace
from inferno_optimizer.replay.trace import Trace
from tests.cluster.motion import Mover, Rate
from tests.controlplane.processes import ROOT

TRACE = ROOT / "samples" / "traces" / "servegen-m-mid.csv"
FIRST_HOUR, HOURS = 24.0, 24.0
"""Where the day begins in the trace, and how long it is [h]."""

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Role:
    """A server of the day.

    Attributes
    ----------
    client
        Of the trace, whose shape its load has.
    peak
        Its highest rate [requests/s].
    accelerators
        Those for which it has a Deployment.
    running
        Replicas of the first of them at midnight.
    """

    client: str
    peak: float
    accelerators: tuple[str, ...]
    running: int


ROLES: Mapping[str, Role] = {
    "chat": Role("1", 36.0, ("A100", "H100", "MI300X"), 2),
    "code": Role("2", 24.0, ("L40S", "A100"), 3),
    "agents": Role("4", 30.0, ("A100", "L40S", "H100"), 1),
    "search": Role("5", 8.0, ("L40S", "A100"), 3),
}
CARDS = {"L40S": 20, "A100": 12, "H100": 3, "MI300X": 2}
"""Enough of the first type of each server for its peak, which the policies without choice need."""


@dataclass(frozen=True, slots=True)
class Day:
    """The recorded day, which passes in `seconds`."""

    seconds: float

    def clock(self, elapsed: float) -> str:
        """The time of the recorded day after so many seconds."""
        minutes = round(elapsed / self.seconds * HOURS * 60)
        return f"{minutes // 60:02}:{minutes % 60:02}"

    def movers(self) -> list[Mover]:
        """The servers with their loads."""
        start, end = (SECONDS_PER_HOUR * hour for hour in (FIRST_HOUR, FIRST_HOUR + HOURS))
        recorded = read_trace(str(TRACE)).between(start, end)
        return [
            Mover(name, rate_of(role, recorded, self.seconds), role.accelerators, role.running)
            for name, role in ROLES.items()
        ]


def rate_of(role: Role, recorded: Trace, seconds: float) -> Rate:
    """The load of a role when the recorded time passes in so many seconds."""
    own = recorded.rate[:, recorded.clients.index(role.client)]
    rates = own * (role.peak / own.max())
    times = (np.arange(recorded.steps) + 0.5) * seconds / recorded.steps
    return lambda elapsed: float(np.interp(elapsed, times, rates))
