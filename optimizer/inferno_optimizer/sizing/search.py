"""The search for the highest rates at which targets are met, of many replicas at once."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.demands import Demands, OpenDemands, rates_around
from inferno_optimizer.sizing.queueing import Averages, FloatArray, IntArray
from inferno_optimizer.sizing.replicas import Replicas
from inferno_optimizer.sizing.roots import Chosen, as_it_is, last_feasible, never

LEAST_STEP = 1e-9
"""A rate that is as near to one that was tried, in logarithms, is not tried."""

SPAN, POINTS = 2.0, 32
"""Where latencies may fall: how far below the highest rate others are tried, and how many."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Rates that were tried [requests/ms], the averages at them, and the excess over targets."""

    rate: FloatArray
    queue: Averages
    excess: FloatArray


@dataclass(frozen=True, slots=True)
class Search:
    """The search for the highest rates at which the targets are met, 0 where there is none.

    `rate` is the highest one so far, and `counted` what `Sizing.max_rate` counts at it; `missed`
    is the same at the last rate that missed a target, or the highest rate. With `demands`, a row is
    searched until it is known how many replicas they need, and none of them is `undecided`.
    """

    replicas: Replicas
    demands: Demands | None
    undecided: OpenDemands | None
    rate: FloatArray
    counted: FloatArray
    missed: FloatArray

    @classmethod
    def done(
        cls, replicas: Replicas, least: Tried, highest: FloatArray, demands: Demands | None = None
    ) -> Self:
        """The search between two rates, the lowest of which was tried."""
        rate, counted = np.zeros_like(highest), np.zeros_like(highest)
        undecided = OpenDemands(demands) if demands is not None else None
        search = cls(replicas, demands, undecided, rate, counted, highest.copy())
        met = least.excess <= 0
        search._note(np.arange(len(met)), least.rate, least.queue, met)
        ends, values = search._ends(least, highest)
        rows = np.flatnonzero(met & (values[1] > 0))
        search._between(rows, ends[:, rows], values[:, rows])
        falling = search._may_miss_below(np.flatnonzero(replicas.model.may_fall(search.rate)))
        search._descend(falling, least.rate[falling])
        return search

    def _ends(self, least: Tried, highest: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rates around the one that is looked for, and the excess at both; shape (2, rows).

        If demands tell where to begin, the upper one is what they would give a replica, and the
        highest rate only where that meets the targets and more can be of use.
        """
        every, low, at_low, high = np.arange(len(highest)), least.rate, least.excess, highest
        if self.demands is not None and self.replicas.model.begins_at_demands:
            high = np.clip(self.demands.given_to_the_fewest(highest), low, highest)
        at_high = self._excess(every, high)
        rows = np.flatnonzero((at_low <= 0) & (at_high <= 0) & (high < highest))
        rows = rows[~self._settled(rows)] if rows.size else rows
        if rows.size:
            low, at_low, high = low.copy(), at_low.copy(), high.copy()
            low[rows], at_low[rows], high[rows] = high[rows], at_high[rows], highest[rows]
            at_high[rows] = self._excess(rows, highest[rows])
        return np.stack((low, high)), np.stack((at_low, at_high))

    def limit(self, most: FloatArray) -> None:
        """Let no rate exceed these."""
        rows = np.flatnonzero(self.rate > most)
        queue = self.replicas.take(rows).averages(most[rows])
        self._note(rows, most[rows], queue, np.ones(len(rows), dtype=np.bool_))

    def _between(self, rows: IntArray, ends: FloatArray, values: FloatArray) -> None:
        """Search between two rates of each row, with the excess at both; shape (2, rows)."""
        if not rows.size:
            return
        last_feasible(
            lambda some, x: self._excess(rows[some], np.exp(x)),
            ends=np.log(ends),
            values=values,
            settled=lambda some: self._settled(rows[some]),
            chosen=self._of_demands(rows),
        )

    def _of_demands(self, rows: IntArray) -> Chosen:
        """Instead of a trial rate, the nearest one that demands give a whole number of replicas.

        Both are logarithms.
        """
        undecided = self.undecided
        if undecided is None or not self.replicas.model.begins_at_demands:
            return as_it_is

        def chosen(some: IntArray, trial: FloatArray, ends: FloatArray) -> FloatArray:
            here = rows[some]
            demands = undecided.left(self.counted, self.missed).of_rows(here)
            at, refused = demands.rows, np.maximum(self.rate[here] / self.counted[here] - 1.0, 0.0)
            with np.errstate(divide="ignore"):
                near = np.log(rates_around(demands.demand, np.exp(trial[at]), refused[at]))
            inside = near > (np.minimum(*ends) + LEAST_STEP)[at]
            inside &= near < (np.maximum(*ends) - LEAST_STEP)[at]
            which, every = np.argmax(inside, axis=0), np.arange(len(at))
            found = np.flatnonzero(inside[which, every])
            near, at = near[which, every][found], at[found]
            nearest_last = np.argsort(-np.abs(near - trial[at]), kind="stable")
            result = trial.copy()
            result[at[nearest_last]] = near[nearest_last]
            return result

        return chosen

    def _may_miss_below(self, rows: IntArray) -> IntArray:
        """Those of the rows where a target may be missed at a lower rate than the highest."""
        if not rows.size:
            return rows
        some = self.replicas.take(rows)
        some = replace(some, limits=some.limits.of_what_may_fall())
        return rows[some.excess(self.rate[rows]) > 0]

    def _settled(self, rows: IntArray) -> npt.NDArray[np.bool_]:
        """Where any of the rates that are still possible gives the demands as many replicas."""
        if self.undecided is None:
            return never(rows)
        return self.undecided.settled(self.counted, self.missed)[rows]

    def _descend(self, rows: IntArray, lowest: FloatArray) -> None:
        """Let no lower rate miss a target: search below the first of some points that does."""
        if not rows.size:
            return
        found = self.rate[rows]
        points = np.geomspace(np.maximum(lowest, found / SPAN), found, POINTS, endpoint=False)
        trial = np.concatenate((lowest[None], points))
        several = self.replicas.take(np.repeat(rows, len(trial)))
        excess = several.excess(trial.T.ravel()).reshape(-1, len(trial)).T
        missed = excess[1:] > 0
        some = np.flatnonzero(missed.any(axis=0))
        place = np.argmax(missed[:, some], axis=0) + np.arange(2)[:, None]
        if self.undecided is not None:
            self.undecided.reopen(rows[some])
        self._excess(rows[some], trial[place[0], some])
        self._between(rows[some], trial[place, some], excess[place, some])

    def _excess(self, rows: IntArray, rate: FloatArray) -> FloatArray:
        """The excess of some replicas, which is noted."""
        some = self.replicas.take(rows)
        queue = some.averages(rate)
        excess = some.limited(queue).excess(some.limits)
        self._note(rows, rate, queue, excess <= 0)
        return excess

    def _note(
        self, rows: IntArray, rate: FloatArray, queue: Averages, met: npt.NDArray[np.bool_]
    ) -> None:
        """Note rates; the last one that meets the targets is the highest one."""
        counted = queue.throughput if self.replicas.model.rated_by_throughput else rate
        self.rate[rows[met]], self.counted[rows[met]] = rate[met], counted[met]
        self.missed[rows[~met]] = counted[~met]
