"""Values over a window of time, which formulas average or take the largest of."""

import math
from collections import deque

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray


class RecentValues:
    """The newest values over a window of time."""

    def __init__(self, window_s: float, step_s: float) -> None:
        self._values: deque[FloatArray] = deque(maxlen=max(1, math.ceil(window_s / step_s)))

    def add(self, value: FloatArray) -> None:
        """Remember a value, and forget what is too old."""
        self._values.append(value)

    def mean(self) -> FloatArray:
        """Mean of the values."""
        result: FloatArray = np.mean(self._values, axis=0)
        return result

    def highest(self) -> FloatArray:
        """Largest of the values."""
        result: FloatArray = np.max(self._values, axis=0)
        return result

    def lowest(self) -> FloatArray:
        """Smallest of the values."""
        result: FloatArray = np.min(self._values, axis=0)
        return result

    def oldest(self) -> FloatArray:
        """The value at the beginning of the window."""
        return self._values[0]
