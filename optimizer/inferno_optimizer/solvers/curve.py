"""Records how a search improves the plan and the bound, as the curve of a certificate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from inferno_optimizer.solution import CurvePoint
from inferno_optimizer.solvers.incumbent import UNKNOWN, SearchProgress

FINEST = 0.01
"""Share of the distance from the incumbent that a bound alone moves at least between points."""


class CurveRecorder:
    """Keeps the state of a search whenever it improves, with the time.

    Parameters
    ----------
    clock
        A monotonic clock [s]; times of the curve count from now on.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._start = clock, clock()
        self._seen: list[tuple[float, SearchProgress]] = []

    def observe(self, progress: SearchProgress) -> None:
        """Record the state of the search now."""
        if not self._seen or _differs(self._seen[-1][1], progress):
            self._seen.append((self.seconds, progress))

    @property
    def seconds(self) -> float:
        """Time since the start [s]."""
        return self._clock() - self._start

    def curve(
        self, priorities: Sequence[int], besides: Mapping[int, float], value: float
    ) -> tuple[CurvePoint, ...]:
        """The points so far.

        Parameters
        ----------
        priorities
            Of each level.
        besides, value
            What every plan serves besides what the search decides: load by priority, with all
            priorities, and its value.
        """
        return tuple(
            _point(seconds, progress, priorities, besides, value)
            for seconds, progress in self._seen
        )


def _differs(last: SearchProgress, progress: SearchProgress) -> bool:
    """Whether there is another stage, a better incumbent, or a bound that is clearly better."""
    if progress.level != last.level or progress.objective < last.objective:
        return True
    return last.bound == UNKNOWN or (
        progress.bound - last.bound >= FINEST * (last.objective - last.bound)
    )


def _point(
    seconds: float,
    progress: SearchProgress,
    priorities: Sequence[int],
    besides: Mapping[int, float],
    value: float,
) -> CurvePoint:
    loads = dict(zip(priorities, progress.served.tolist(), strict=True))
    served = {priority: loads.get(priority, 0.0) + load for priority, load in besides.items()}
    point = CurvePoint(seconds, None, served, progress.value + value)
    if progress.level is not None:
        point = replace(point, priority=priorities[progress.level])
    if progress.bound == UNKNOWN:
        return point
    if point.priority is None:
        return replace(point, bound=progress.bound + value)
    return replace(point, bound=besides[point.priority] - progress.bound)
