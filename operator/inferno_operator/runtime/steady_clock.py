"""A time of day that does not jump where the clock of the machine is set."""

from collections.abc import Callable
from datetime import datetime, timedelta

from inferno_operator.resources.objects import Now

SLEW = 0.1
"""Largest share by which a second may be longer or shorter, until both clocks agree."""


class SteadyClock:
    """The time of day for what lasts: pauses, patience, and the times to compare them with.

    It goes with the seconds that pass. Where somebody sets the clock of the machine, it follows as
    slowly as a clock that is slewed: a duration is right within a tenth, and the times that it
    writes become right again. What people know by the calendar does not go by it.

    Parameters
    ----------
    wall
        The time of day, which may jump.
    elapsed
        Seconds since an arbitrary moment; monotonic.
    """

    def __init__(self, wall: Now, elapsed: Callable[[], float]) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._read, self._time = elapsed(), wall()

    def __call__(self) -> datetime:
        """Return the time; later by at least nine tenths of what has passed since the last call."""
        read, wall = self._elapsed(), self._wall()
        passed = max(read - self._read, 0.0)
        behind = (wall - self._time).total_seconds() - passed
        slewed = min(max(behind, -SLEW * passed), SLEW * passed)
        self._read, self._time = read, self._time + timedelta(seconds=passed + slewed)
        return self._time
