"""Computes the highest arrival rate at which one replica meets all of its targets.

Latencies hardly ever decrease with the arrival rate, so the highest rate is where the first latency
reaches its target: a single root per replica, found by bracketing for all replicas at once.
In generation 4 the time to first token and percentiles may decrease where prefills take most of
the time; lower rates are tried there, so that targets hold at all rates up to the highest one. (In
generation 3, a latency may decrease slightly at some rates, see `TokenBudgetModel`; the search
finds one of several roots.) See `sizing.md`, section "The highest rate".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.demands import Demands, rates_around
from inferno_optimizer.sizing.erlang import log_erlang_tail_if_less
from inferno_optimizer.sizing.performance import PerformanceModel
from inferno_optimizer.sizing.queueing import (
    ArrayTable,
    Averages,
    FloatArray,
    IntArray,
    distinct_rows,
)
from inferno_optimizer.sizing.roots import Chosen, as_it_is, last_feasible, never
from inferno_optimizer.sizing.spread import Spread
from inferno_optimizer.sizing.waiting import (
    delay_percentile,
    log_delay_tail,
    log_tail,
    wait_percentile,
)
from inferno_optimizer.system import Tail, Target

LOWEST_SHARE = 0.001
"""The search starts at this share of the service rate of a single request."""

HIGHEST_SHARE = 0.999
"""The search ends at this share of the service rate of a full batch: a stable queue."""

THROUGHPUT_SHARE = 0.9
"""Share of the highest stable rate that is used if there is a throughput target."""

ROUNDING = 1e-12
"""A latency that exceeds its target by less than this share meets the target."""

MOST_FALL = 2.0
"""Lower rates are tried where a latency that may fall is more than the limit divided by this.

At a lower rate it would have to be so many times as high; latencies fall by up to a quarter only.
"""

LEAST_STEP = 1e-9
"""A rate that is as near to one that was tried, in logarithms, is not tried."""

SPAN, POINTS = 2.0, 32
"""Where latencies may fall: how far below the highest rate others are tried, and how many."""

MEAN_FACTOR = float(-np.log(0.05))
"""Ratio of the 95th percentile to the mean of an exponential wait, as in the original."""

PERCENTILES = (0.90, 0.95, 0.99)
"""The percentiles in a `Tail`."""


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


@dataclass(frozen=True, slots=True)
class Latencies(ArrayTable):
    """Latencies of requests [ms]: means, and percentiles of shape (rows, `PERCENTILES`)."""

    itl_ms: FloatArray
    wait_ms: FloatArray
    ttft_ms: FloatArray
    wait_percentiles: FloatArray
    ttft_percentiles: FloatArray
    itl_percentiles: FloatArray

    @classmethod
    def zeros(cls, rows: int) -> Self:
        """Latencies of 0, to be filled in."""
        tails = (np.zeros((rows, len(PERCENTILES))) for _ in range(3))
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(rows), *tails)

    def tail(self, row: int) -> Tail:
        """The percentiles of one row."""
        columns = (self.wait_percentiles, self.ttft_percentiles, self.itl_percentiles)
        return Tail(*np.concatenate([column[row] for column in columns]).tolist())


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replicas of one generation to size, one per pair of server and accelerator.

    They must be in descending order of batch when averages are computed.
    """

    model: PerformanceModel
    limits: TargetLimits

    def take(self, rows: IntArray) -> "Replicas":
        """The replicas of some of the rows, in the given order."""
        return Replicas(self.model.take(rows), self.limits.take(rows))

    def distinct(self) -> tuple[IntArray, IntArray]:
        """The distinct rows, by descending batch, and the position of each row among them."""
        columns = (*self.model.columns(), *self.limits.columns())
        rows, inverse = distinct_rows(self.model.batch, *columns)
        order = np.argsort(-self.model.batch[rows], kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return rows[order], place[inverse]

    def averages(self, arrival_rate: FloatArray) -> Averages:
        """Averages of the replicas' queues at these rates [requests/ms]."""
        return self.model.averages(arrival_rate)

    def itl(self, queue: Averages) -> "Latency":
        """The mean inter-token latency of a request."""
        share = self.limits.itl_share
        spread = self.model.itl_spread(queue) if share.any() else None
        return Latency(self.model.itl_ms(queue), share, spread)

    def delays(self, queue: Averages) -> tuple["Delay", "Delay"]:
        """The wait and the time to first token."""
        first, limits = self.model.first_token_ms(queue), self.limits
        spread = self.model.first_token_spread(queue) if limits.ttft_share.any() else None
        return (
            Delay(queue, np.zeros_like(first), limits.wait_share, MEAN_FACTOR),
            Delay(queue, first, limits.ttft_share, 1.0, spread),
        )

    def excess(self, arrival_rate: FloatArray) -> FloatArray:
        """Logarithm of the largest ratio of a latency to its target; above 0 a target is missed.

        For a mean it is the ratio to the limit; for a percentile it is the share of requests
        beyond the limit, divided by the allowed share.
        """
        return self.excess_of(self.averages(arrival_rate))

    def excess_of(self, queue: Averages) -> FloatArray:
        """The same, from the averages of the queues."""
        limits = self.limits
        wait, ttft = self.delays(queue)
        itl = self.itl(queue).excess(limits.itl)
        delay = np.maximum(wait.excess(limits.wait), ttft.excess(limits.ttft))
        return np.maximum(itl, delay) - ROUNDING

    def latencies(self, arrival_rate: FloatArray) -> Latencies:
        """Latencies at these rates [requests/ms]."""
        queue = self.averages(arrival_rate)
        first, spread = self.model.first_token_ms(queue), self.model.first_token_spread(queue)
        itl, around = self.model.itl_ms(queue), self.model.itl_spread(queue)
        waits, delays = _tails(queue, first, spread)
        intervals = np.zeros_like(waits)
        if around is not None:
            quantiles = [around.quantile(np.full_like(itl, share)) for share in PERCENTILES]
            intervals = itl[:, None] + np.stack(quantiles, axis=1)
        return Latencies(itl, queue.wait_ms, queue.wait_ms + first, waits, delays, intervals)


def _tails(
    queue: Averages, first: FloatArray, spread: Spread | None
) -> tuple[FloatArray, FloatArray]:
    """The `PERCENTILES` of the wait, and of it and the time after it [ms].

    That time has the mean `first`, and a `spread` if it is not the same for all requests.
    """
    if spread is None:
        found = [wait_percentile(queue, np.full_like(first, share)) for share in PERCENTILES]
        waits = np.stack(found, axis=1)
        return waits, waits + first[:, None]
    every = np.tile(np.arange(len(first)), len(PERCENTILES))
    several, share = queue.take(every), np.repeat(PERCENTILES, len(first))
    waits = wait_percentile(several, share, log_erlang_tail_if_less)
    delays = delay_percentile(several, first[every], spread.take(every), share, waits)
    return waits.reshape(-1, len(first)).T, delays.reshape(-1, len(first)).T


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency with a target: its mean [ms], and how far it is from that; None if it is not.

    The share `share` of the requests must stay within the target; where it is 0, the mean must.
    """

    mean: FloatArray
    share: FloatArray
    spread: Spread | None

    def ms(self) -> FloatArray:
        """The latency that the target limits: a percentile, or the mean [ms]."""
        result = self.mean.copy()
        if self.spread is not None:
            rows = np.flatnonzero(self.share)
            result[rows] += self.spread.take(rows).quantile(self.share[rows])
        return result

    def excess(self, limit: FloatArray) -> FloatArray:
        """Logarithm of the ratio to a limit [ms], see `Replicas.excess`."""
        result = _log(self.mean / limit)
        if self.spread is not None:
            rows = np.flatnonzero(self.share)
            beyond = self.spread.take(rows).tail(limit[rows] - self.mean[rows])
            result[rows] = _log(beyond) - np.log1p(-self.share[rows])
        return result


@dataclass(frozen=True, slots=True)
class Delay:
    """A latency with a target: the wait in a queue plus the time `after` it [ms].

    The time after it has a `spread`; None if it is the same for all requests.
    The share `share` of the requests must stay within the target; where `share` is 0, the mean
    times `factor` must stay within the target.
    """

    queue: Averages
    after: FloatArray
    share: FloatArray
    factor: float
    spread: Spread | None = None

    @property
    def _rows(self) -> IntArray:
        """Positions of the rows with a percentile."""
        return np.flatnonzero(self.share)

    def ms(self) -> FloatArray:
        """The latency that the target limits: a percentile, or the mean times `factor` [ms]."""
        result = self.factor * (self.queue.wait_ms + self.after)
        rows = self._rows
        if rows.size:
            queue, after, share = self.queue.take(rows), self.after[rows], self.share[rows]
            waits = wait_percentile(queue, share)
            result[rows] = (
                waits + after
                if self.spread is None
                else delay_percentile(queue, after, self.spread.take(rows), share, waits)
            )
        return result

    def excess(self, limit: FloatArray) -> FloatArray:
        """Logarithm of the ratio to a limit [ms], see `Replicas.excess`."""
        result = _log(self.factor * (self.queue.wait_ms + self.after) / limit)
        rows = self._rows
        if rows.size:
            queue, after = self.queue.take(rows), self.after[rows]
            missed = (
                log_tail(queue, limit[rows] - after)
                if self.spread is None
                else log_delay_tail(queue, after, self.spread.take(rows), limit[rows])
            )
            result[rows] = missed - np.log1p(-self.share[rows])
        return result


def _log(ratio: FloatArray) -> FloatArray:
    return np.log(np.maximum(ratio, np.finfo(np.float64).tiny))


@dataclass(frozen=True, slots=True)
class Sizing(ArrayTable):
    """The capacity of one replica, per pair of server and accelerator.

    `max_rate` is the highest rate at which the replica meets all targets [requests/ms], 0 if it
    meets them at no rate; from generation 2 on it counts accepted requests. The floors are the
    latencies [ms] at the lowest rate, computed as the targets define them; no number of replicas
    gets below them.
    """

    max_rate: FloatArray
    itl_floor: FloatArray
    wait_floor: FloatArray
    ttft_floor: FloatArray


def size(replicas: Replicas, demands: Demands | None = None) -> Sizing:
    """The highest rate and the lowest latencies of every replica.

    With `demands`, rates are such that the demands need no more replicas than at the highest
    rates; the search ends as soon as that is known.
    """
    model = replicas.model
    batch = model.batch.astype(np.float64)
    every = slice(0, len(batch))
    highest = HIGHEST_SHARE / model.intervals(every, batch)
    lowest = np.minimum(LOWEST_SHARE / model.intervals(every, np.ones_like(batch)), highest)
    least = replicas.averages(lowest)
    search = _Search.done(replicas, lowest, highest, least, demands)
    if replicas.limits.throughput.any():
        search.limit(np.where(replicas.limits.throughput, THROUGHPUT_SHARE, 1.0) * highest)
    wait, ttft = replicas.delays(least)
    itl = replicas.itl(least)
    return Sizing(search.counted, itl.ms(), wait.ms(), ttft.ms())


def highest_rate(replicas: Replicas, lowest: FloatArray, highest: FloatArray) -> FloatArray:
    """Highest rate in the interval at which every target is met; 0 if there is none.

    If all targets are met at the highest rate, no search is needed.
    """
    return _Search.done(replicas, lowest, highest, replicas.averages(lowest)).rate


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for the highest rates at which the targets are met, 0 where there is none.

    `rate` is the highest one so far, and `counted` what `Sizing.max_rate` counts at it; `missed`
    is the same at the last rate that missed a target, or the highest rate. With `demands`, a row is
    searched until it is known how many replicas they need.
    """

    replicas: Replicas
    demands: Demands | None
    rate: FloatArray
    counted: FloatArray
    missed: FloatArray

    @classmethod
    def done(
        cls,
        replicas: Replicas,
        lowest: FloatArray,
        highest: FloatArray,
        least: Averages,
        demands: Demands | None = None,
    ) -> Self:
        """The search between two rates; `least` are the averages at the lowest one."""
        at_lowest = replicas.excess_of(least)
        met = at_lowest <= 0
        rate, counted = np.zeros_like(lowest), np.zeros_like(lowest)
        search = cls(replicas, demands, rate, counted, highest.copy())
        every = np.arange(len(met))
        search._note(every, lowest, least, met)
        low, at_low, high = lowest, at_lowest, highest
        if demands is not None and replicas.model.begins_at_demands:
            high = np.clip(demands.given_to_the_fewest(highest), lowest, highest)
        at_high = search._excess(every, high)
        rows = np.flatnonzero(met & (at_high <= 0) & (high < highest) & ~search._settled(every))
        if rows.size:
            low, at_low, high = low.copy(), at_low.copy(), high.copy()
            low[rows], at_low[rows], high[rows] = high[rows], at_high[rows], highest[rows]
            at_high[rows] = search._excess(rows, highest[rows])
        rows = np.flatnonzero(met & (at_high > 0))
        ends, values = np.stack((low, high)), np.stack((at_low, at_high))
        search._between(rows, ends[:, rows], values[:, rows])
        falling = search._may_miss_below(np.flatnonzero(replicas.model.may_fall(search.rate)))
        search._descend(falling, lowest[falling])
        return search

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
        """Instead of a trial rate, one that demands give a whole number of replicas, if it is near.

        Both are logarithms.
        """
        demands = self.demands
        if demands is None or not self.replicas.model.begins_at_demands:
            return as_it_is

        def chosen(some: IntArray, trial: FloatArray, ends: FloatArray) -> FloatArray:
            here = rows[some]
            refused = np.maximum(self.rate[here] / self.counted[here] - 1.0, 0.0)
            demand = demands.largest_open(self.counted, self.missed)[here]
            with np.errstate(divide="ignore"):
                near = np.log(rates_around(demand, np.exp(trial), refused))
            inside = near > np.minimum(*ends) + LEAST_STEP
            inside &= near < np.maximum(*ends) - LEAST_STEP
            which = np.argmax(inside, axis=0)
            return np.where(inside.any(axis=0), near[which, np.arange(len(here))], trial)

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
        if self.demands is None:
            return never(rows)
        return self.demands.settled(self.counted, self.missed)[rows]

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
        self._excess(rows[some], trial[place[0], some])
        self._between(rows[some], trial[place, some], excess[place, some])

    def _excess(self, rows: IntArray, rate: FloatArray) -> FloatArray:
        """The excess of some replicas, which is noted."""
        some = self.replicas.take(rows)
        queue = some.averages(rate)
        excess = some.excess_of(queue)
        self._note(rows, rate, queue, excess <= 0)
        return excess

    def _note(
        self, rows: IntArray, rate: FloatArray, queue: Averages, met: npt.NDArray[np.bool_]
    ) -> None:
        """Note rates; the last one that meets the targets is the highest one."""
        counted = queue.throughput if self.replicas.model.rated_by_throughput else rate
        self.rate[rows[met]], self.counted[rows[met]] = rate[met], counted[met]
        self.missed[rows[~met]] = counted[~met]
