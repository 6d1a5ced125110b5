"""How many replicas a demand needs, and when the search for their rate may end; see `sizing.md`."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.queueing import FloatArray, IntArray

ROUNDING = 1e-9
"""Relative excess over an integer that is rounded down: 3.000000001 replicas are 3."""

MORE, LESS = 1e-10, 1e-8
"""How far a rate is above the part of a demand, or below one that would need fewer replicas."""


@dataclass(frozen=True, slots=True)
class Demands:
    """Demands [requests/ms], each of which replicas of one row share.

    `rows` are the rows of the replicas, one per demand; a row may have several demands.
    """

    demand: FloatArray
    rows: IntArray

    def settled(self, least: FloatArray, most: FloatArray) -> npt.NDArray[np.bool_]:
        """Rows whose demands need as many replicas at the least rate of each as at the most."""
        settled = np.ones(len(least), dtype=np.bool_)
        settled[self.rows[self._open(least, most)]] = False
        return settled

    def _open(self, least: FloatArray, most: FloatArray) -> npt.NDArray[np.bool_]:
        """Which demands are not settled."""
        more, fewer = (replicas_needed(self.demand, rate[self.rows]) for rate in (least, most))
        return np.asarray(more != fewer, dtype=np.bool_)

    def given_to_the_fewest(self, highest: FloatArray) -> FloatArray:
        """What the largest demand of each row gives replicas, if they are as few as it may have.

        `highest` are the rates that no replica exceeds.
        """
        largest = np.zeros_like(highest)
        np.maximum.at(largest, self.rows, self.demand)
        return np.where(largest > 0, largest / replicas_needed(largest, highest), highest)

    def largest_open(self, least: FloatArray, most: FloatArray) -> FloatArray:
        """The largest demand of each row that is not settled between two rates; 0 if all are."""
        some, largest = np.flatnonzero(self._open(least, most)), np.zeros_like(least)
        np.maximum.at(largest, self.rows[some], self.demand[some])
        return largest


def rates_around(demand: FloatArray, rate: FloatArray, refused: FloatArray) -> FloatArray:
    """Rates that tell whether demands need as many replicas as at a rate; shape (2, demands).

    If replicas carry the first one, no more are needed; if they miss targets at the second one, no
    fewer. A replica refuses about the share `refused` of what it accepts.
    """
    needed = np.maximum(replicas_needed(demand, rate), 1.0)
    fewer = demand / np.maximum(needed - 1.0, 1.0) * (1.0 - LESS)
    enough = demand / needed * (1.0 + MORE + 2.0 * refused)
    return np.stack((enough, np.where(needed > 1.0, fewer, np.inf)))


def replicas_needed(demand: FloatArray, rate: FloatArray) -> FloatArray:
    """The whole numbers of replicas that share demands, of which each takes a rate [requests/ms].

    At least 1 for a demand above 0; infinite at a rate of 0.
    """
    with np.errstate(divide="ignore", over="ignore"):
        needed = np.ceil(demand / rate * (1.0 - ROUNDING))
    return np.maximum(needed, demand > 0)
