"""Targets -> the highest arrival rate that one replica carries while it keeps all of them.

Both latencies with targets grow with the arrival rate, so the highest rate is where the one
closer to its target reaches it: a single root per pair, found by bracketing for all pairs
at once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferno_optimizer.performance import PerformanceModel
from inferno_optimizer.queueing import Averages, FloatArray, IntArray, averages

LOWEST_SHARE = 0.001
"""The search starts at this share of the service rate of a single request."""

HIGHEST_SHARE = 0.999
"""The search ends at this share of the service rate of a full batch: a stable queue."""

THROUGHPUT_SHARE = 0.9
"""Share of the highest stable rate that is used when a throughput is asked for."""

ROUNDING = 1e-12
"""A latency that exceeds its target by so little, relative, is the target."""

TOLERANCE = 1e-10
"""Relative width of the bracket at which a rate is taken as found."""

MAX_STEPS = 200
"""More than the search ever takes; a guard against an endless loop, not a setting."""

Excess = Callable[[IntArray, FloatArray], FloatArray]
"""Values of increasing functions: those of the given rows, at one point each."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replicas to size, one per pair of server and accelerator.

    `batch` is the largest batch, in descending order wherever averages are asked for; the
    limits are means [ms], infinite where there is no target; `throughput_target` says where
    a throughput is asked for.
    """

    model: PerformanceModel
    batch: IntArray
    itl_limit: FloatArray
    delay_limit: FloatArray
    throughput_target: npt.NDArray[np.bool_]

    def take(self, rows: IntArray) -> "Replicas":
        """The same for some of the rows, in the order given."""
        return Replicas(
            self.model.take(rows),
            self.batch[rows],
            self.itl_limit[rows],
            self.delay_limit[rows],
            self.throughput_target[rows],
        )

    def distinct(self) -> tuple[IntArray, IntArray]:
        """Rows that differ from each other, by descending batch, and where each row is there."""
        columns = (*self.model.columns(), self.itl_limit, self.delay_limit, self.throughput_target)
        table = np.column_stack((-self.batch, *columns))
        _, rows, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
        return rows, inverse.ravel()

    def averages(self, arrival_rate: FloatArray) -> Averages:
        """Averages of the replicas' queues at these rates [requests/ms]."""
        limit = self.model.queue_limit(self.batch)
        return averages(arrival_rate, self.batch, limit, self.model.intervals)

    def excess(self, arrival_rate: FloatArray) -> FloatArray:
        """Logarithm of the worst ratio of latency to target: above 0 a target is missed."""
        at_rate = self.averages(arrival_rate)
        worst = np.maximum(
            self.model.itl_ms(at_rate) / self.itl_limit,
            self.model.delay_ms(at_rate) / self.delay_limit,
        )
        return np.log(np.maximum(worst, np.finfo(np.float64).tiny)) - ROUNDING


@dataclass(frozen=True, slots=True)
class Sizing:
    """What one replica can do, per pair.

    `max_rate` is the highest rate that keeps all targets [requests/ms], 0 where none does;
    the floors are the latencies [ms] at next to no load, below which no number of replicas
    gets.
    """

    max_rate: FloatArray
    itl_floor: FloatArray
    delay_floor: FloatArray


def size(replicas: Replicas) -> Sizing:
    """Size every replica (`sizing.md`, section 2, with the defects 7.1 to 7.3 put right)."""
    batch = replicas.batch.astype(np.float64)
    every = slice(0, len(batch))
    one, full = np.ones((len(batch), 1)), batch[:, None]
    lowest = LOWEST_SHARE / replicas.model.intervals(every, one)[:, 0]
    highest = HIGHEST_SHARE / replicas.model.intervals(every, full)[:, 0]
    floors = replicas.averages(lowest)
    rate = highest_rate(replicas, lowest, highest)
    limited = np.where(replicas.throughput_target, THROUGHPUT_SHARE * highest, highest)
    return Sizing(
        np.minimum(rate, limited),
        replicas.model.itl_ms(floors),
        replicas.model.delay_ms(floors),
    )


def highest_rate(replicas: Replicas, lowest: FloatArray, highest: FloatArray) -> FloatArray:
    """Largest rate in the interval at which every target holds; 0 where none does.

    A target that holds at the highest rate holds everywhere, also where the latency is flat.
    """
    at_lowest, at_highest = replicas.excess(lowest), replicas.excess(highest)
    result = np.where(at_highest <= 0, highest, 0.0)
    rows = np.flatnonzero((at_lowest <= 0) & (at_highest > 0))
    result[rows] = np.exp(
        last_feasible(
            lambda some, x: replicas.take(rows[some]).excess(np.exp(x)),
            ends=np.log(np.stack((lowest[rows], highest[rows]))),
            values=np.stack((at_lowest[rows], at_highest[rows])),
        )
    )
    return result


def last_feasible(excess: Excess, ends: FloatArray, values: FloatArray) -> FloatArray:
    """Where increasing functions cross 0, from below, to `TOLERANCE`; one per row.

    Inverse quadratic interpolation where it is safe, bisection elsewhere [Chandrupatla, Adv.
    Eng. Softw. 28 (1997) 145-149]. The answer was evaluated itself and is feasible.

    Parameters
    ----------
    excess
        The functions.
    ends
        Intervals, shape (2, rows).
    values
        The functions there: at most 0 at the lower end, above 0 at the upper one.
    """
    # Points in the order newest, the other end of the bracket, the one dropped last.
    x, f = ends[[0, 1, 1]], values[[0, 1, 1]]
    active = np.arange(x.shape[1])
    share = np.full(x.shape[1], 0.5)
    for _ in range(MAX_STEPS):
        if not active.size:
            break
        trial = x[0, active] + share * (x[1, active] - x[0, active])
        f_trial = excess(active, trial)
        x[:, active], f[:, active] = _narrow(x[:, active], f[:, active], trial, f_trial)
        active = active[np.abs(x[1, active] - x[0, active]) > TOLERANCE]
        share = _next_share(x[:, active], f[:, active])
    feasible: FloatArray = np.where(f[0] <= 0, x[0], x[1])
    return feasible


def _narrow(
    x: FloatArray, f: FloatArray, trial: FloatArray, f_trial: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The points after a trial: it replaces the end that lies on the same side of the root."""
    same_side = (f_trial > 0) == (f[0] > 0)
    kept, dropped = same_side.astype(np.intp), (~same_side).astype(np.intp)
    columns = np.arange(len(trial))
    return (
        np.stack((trial, x[kept, columns], x[dropped, columns])),
        np.stack((f_trial, f[kept, columns], f[dropped, columns])),
    )


def _next_share(x: FloatArray, f: FloatArray) -> FloatArray:
    """Where to try next, as a share of the bracket from its newest end."""
    (a, b, c), (fa, fb, fc) = x, f
    with np.errstate(divide="ignore", invalid="ignore"):
        position, level = (a - b) / (c - b), (fa - fb) / (fc - fb)
        safe = (level**2 < position) & ((1 - level) ** 2 < 1 - position)
        share = fa / (fb - fa) * fc / (fb - fc)
        share += (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        margin = 0.5 * TOLERANCE / np.abs(b - a)
    return np.where(safe, np.clip(share, margin, 1 - margin), 0.5)
