"""How many replicas a demand needs, and when the search for their rate may end; see `sizing.md`."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.queueing import FloatArray, IntArray

ROUNDING = 1e-9
"""Relative excess over an integer that is rounded down: 3.000000001 replicas are 3."""


@dataclass(frozen=True, slots=True)
class Demands:
    """Demands [requests/ms], each of which replicas of one row share.

    `rows` are the rows of the replicas, one per demand; a row may have several demands.
    """

    demand: FloatArray
    rows: IntArray

    def settled(self, least: FloatArray, most: FloatArray) -> npt.NDArray[np.bool_]:
        """Rows whose demands need as many replicas at the least rate of each as at the most."""
        more, fewer = (replicas_needed(self.demand, rate[self.rows]) for rate in (least, most))
        settled = np.ones(len(least), dtype=np.bool_)
        settled[self.rows[more != fewer]] = False
        return settled


def replicas_needed(demand: FloatArray, rate: FloatArray) -> FloatArray:
    """The whole numbers of replicas that share demands, of which each takes a rate [requests/ms].

    At least 1 for a demand above 0; infinite at a rate of 0.
    """
    with np.errstate(divide="ignore", over="ignore"):
        needed = np.ceil(demand / rate * (1.0 - ROUNDING))
    return np.maximum(needed, demand > 0)
