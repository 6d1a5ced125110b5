"""How long a level is searched: what gains nothing leaves its time to the levels after it."""

from collections.abc import Callable

from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.exact.settings import DEFAULTS, ExactSettings
from inferno_optimizer.solvers.incumbent import Incumbent


class Patience:
    """The time of a level, which is over once the incumbent stays the same for too long.

    Parameters
    ----------
    incumbent
        The best choice so far.
    time_left
        Seconds that remain of the level's time.
    settings
        How long is too long.
    """

    def __init__(
        self,
        incumbent: Incumbent[BoolArray],
        time_left: Callable[[], float],
        settings: ExactSettings = DEFAULTS,
    ) -> None:
        self._incumbent, self._time_left = incumbent, time_left
        self._in_vain = settings.in_vain
        self._all = self._gained = time_left()
        self._least = settings.in_vain_time * self._all
        self._value = incumbent.value

    def seconds_left(self) -> float:
        """Seconds that remain; none when nothing was gained for too long."""
        now = self._time_left()
        if self._incumbent.value < self._value:
            self._value, self._gained = self._incumbent.value, now
        wait = max(self._least, self._in_vain * (self._all - self._gained))
        return now if self._gained - now <= wait else 0.0
