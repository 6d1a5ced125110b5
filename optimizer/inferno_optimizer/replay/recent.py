"""Values over a window of time, which formulas average or take the largest of."""

import math

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray


class RecentValues:
    """The newest values over a window of time, in a ring; all have the same shape."""

    def __init__(self, window_s: float, step_s: float) -> None:
        self._size = max(1, math.ceil(window_s / step_s))
        self._added = 0
        self._ring = np.zeros((self._size, 0))

    def add(self, value: FloatArray) -> None:
        """Remember a value, and forget what is too old."""
        if not self._added:
            self._ring = np.zeros((self._size, *value.shape))
        self._ring[self._added % self._size] = value
        self._added += 1

    @property
    def _known(self) -> FloatArray:
        return self._ring[: self._added] if self._added < self._size else self._ring

    def newest(self) -> FloatArray:
        """The value that was added last."""
        newest: FloatArray = self._ring[(self._added - 1) % self._size].copy()
        return newest

    def mean(self) -> FloatArray:
        """Mean of the values."""
        result: FloatArray = self._known.mean(axis=0)
        return result

    def highest(self) -> FloatArray:
        """Largest of the values."""
        result: FloatArray = self._known.max(axis=0)
        return result

    def lowest(self) -> FloatArray:
        """Smallest of the values."""
        result: FloatArray = self._known.min(axis=0)
        return result

    def oldest(self) -> FloatArray:
        """The value at the beginning of the window."""
        first = 0 if self._added < self._size else self._added % self._size
        oldest: FloatArray = self._ring[first].copy()
        return oldest


class RecentMeans:
    """The means of the newest values, each over a window of its own.

    Parameters
    ----------
    window_s
        The window of each of the last axis of the values [s].
    step_s
        Time between two values [s].
    """

    def __init__(self, window_s: FloatArray, step_s: float) -> None:
        self._window_s = window_s
        self._recent = {each: RecentValues(each, step_s) for each in sorted(set(window_s.tolist()))}

    def add(self, value: FloatArray) -> None:
        """Remember a value, and forget what is too old."""
        for recent in self._recent.values():
            recent.add(value)

    def mean(self) -> FloatArray:
        """Means of the values."""
        (_, means), *others = ((each, recent.mean()) for each, recent in self._recent.items())
        for each, other in others:
            means = np.where(self._window_s == each, other, means)
        return means
