"""A histogram as Prometheus clients keep them, which takes many equal values at once."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Histogram:
    """Counts of values by bucket, and their sum.

    The histogram of `prometheus_client` takes one value at a time; a simulation that makes
    thousands of equal decode steps at once cannot afford that.

    Attributes
    ----------
    sum
        Sum of all values.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # the last one: greater than all bounds
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    @property
    def mean(self) -> float:
        """Mean of the values; NaN if there were none."""
        return self.sum / self.count if self.count else float("nan")

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound and cumulative count of each bucket, the last one `+Inf`."""
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(bounds, self.cumulative(), strict=True))

    def cumulative(self) -> list[int]:
        """How many values are in each bucket and those before."""
        return list(accumulate(self._counts))
