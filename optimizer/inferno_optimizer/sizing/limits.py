"""Targets of many replicas as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.queueing import ArrayTable, FloatArray
from inferno_optimizer.system import Target

MOST_FALL = 2.0
"""Lower rates are tried where a latency that may fall is more than the limit divided by this.

At a lower rate it would have to be so many times as high; latencies fall by up to a sixth only.
"""


@dataclass(frozen=True, slots=True)
class TargetLimits(ArrayTable):
    """Targets as arrays; a limit [ms] is infinite where no target is set.

    `itl` limits the inter-token latency. `itl_share`, `wait_share` and `ttft_share` are the shares
    of the requests that must stay within the limits; 0 means the rule of the original, see
    `Target`. `throughput` is true where there is a throughput target.
    """

    itl: FloatArray
    itl_share: FloatArray
    wait: FloatArray
    wait_share: FloatArray
    ttft: FloatArray
    ttft_share: FloatArray
    throughput: npt.NDArray[np.bool_]

    def of_what_may_fall(self) -> Self:
        """Limits of the latencies that may fall as the rate grows, if they fall by `MOST_FALL`."""
        return replace(
            self,
            itl=np.where(self.itl_share > 0, self.itl / MOST_FALL, np.inf),
            wait=np.where(self.wait_share > 0, self.wait / MOST_FALL, np.inf),
            ttft=self.ttft / MOST_FALL,
        )

    @classmethod
    def of(cls, targets: Sequence[Target]) -> Self:
        """The limits of the targets, one row for each target."""
        limits = ("itl_ms", "wait_ms", "ttft_ms")
        percentiles = ("itl_percentile", "wait_percentile", "ttft_percentile")
        itl, wait, ttft, itl_percent, wait_percent, ttft_percent = (
            np.array([getattr(t, name) for t in targets], dtype=np.float64)
            for name in (*limits, *percentiles)
        )
        return cls(
            np.where(itl > 0, itl, np.inf),
            np.where(itl > 0, itl_percent / 100, 0.0),
            np.where(wait > 0, wait, np.inf),
            np.where(wait > 0, wait_percent / 100, 0.0),
            np.where(ttft > 0, ttft, np.inf),
            np.where(ttft > 0, ttft_percent / 100, 0.0),
            np.array([t.tokens_per_second > 0 for t in targets], dtype=np.bool_),
        )
