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

    def given_to_the_fewest(self, highest: FloatArray) -> FloatArray:
        """What the largest demand of each row gives replicas, if they are as few as it may have.

        `highest` are the rates that no replica exceeds.
        """
        largest = np.zeros_like(highest)
        np.maximum.at(largest, self.rows, self.demand)
        return np.where(largest > 0, largest / replicas_needed(largest, highest), highest)

    def of_rows(self, rows: IntArray) -> "Demands":
        """The demands of some rows, in the given order, which are counted from 0 then."""
        place = np.full(max(self.rows.max(initial=-1), rows.max(initial=-1)) + 1, -1)
        place[rows] = np.arange(len(rows))
        places = place[self.rows]
        asked = places >= 0
        return Demands(self.demand[asked], places[asked])


class OpenDemands:
    """Which demands may still need another number of replicas, while rates are searched.

    A search only narrows what is possible, so a demand that is settled is not looked at again.
    """

    def __init__(self, demands: Demands) -> None:
        self._demands = demands
        self._open = np.arange(len(demands.rows))

    def reopen(self, rows: IntArray) -> None:
        """Look at all demands of some rows again: their rates turned out to be lower."""
        again = np.flatnonzero(np.isin(self._demands.rows, rows))
        self._open = np.union1d(self._open, again)

    def settled(self, least: FloatArray, most: FloatArray) -> npt.NDArray[np.bool_]:
        """Rows whose demands need as many replicas at the least rate of each as at the most."""
        settled = np.ones(len(least), dtype=np.bool_)
        settled[self.left(least, most).rows] = False
        return settled

    def left(self, least: FloatArray, most: FloatArray) -> Demands:
        """The demands that need fewer replicas at the most rate of their row than at the least.

        A row whose least rate is 0 is not searched.
        """
        open_ = self._of(self._open)
        more, fewer = (replicas_needed(open_.demand, rate[open_.rows]) for rate in (least, most))
        self._open = self._open[(more != fewer) & (least[open_.rows] > 0)]
        return self._of(self._open)

    def _of(self, some: IntArray) -> Demands:
        return Demands(self._demands.demand[some], self._demands.rows[some])


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
