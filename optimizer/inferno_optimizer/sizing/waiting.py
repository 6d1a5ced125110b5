"""The distribution of the waiting times of a queue.

An accepted request that finds n >= N others waits for n - N + 1 departures of a full batch,
each exponential with rate mu(N). With r = lambda / mu(N), M = K - N waiting places,
x = mu(N) t and Q(j, x) = P(fewer than j events of a Poisson process by time x), the sum of
these Erlang tails over n = N..K-1 is

    P(W > t) = p(N) / (1 - p(K)) * (exp(-x (1 - r)) Q(M, r x) - r^M Q(M, x)) / (1 - r),

which is exact with a queue limit; without one it becomes the exponential of the M/M/N queue
[Kleinrock, Queueing Systems I, 1975, ch. 3]. All computations use logarithms. See
`sizing.md`, section "Waiting times".
"""

from collections.abc import Callable

import numpy as np

from inferno_optimizer.sizing.erlang import log_erlang_tail, log_erlang_tail_if_less
from inferno_optimizer.sizing.queueing import Averages, FloatArray, IntArray
from inferno_optimizer.sizing.roots import last_feasible
from inferno_optimizer.sizing.spread import Spread

TINY = np.finfo(np.float64).tiny

LogErlangTail = Callable[[FloatArray, FloatArray], FloatArray]
"""ln Q(j, x), computed in one of the ways of `erlang`."""

EVEN_LOAD = 1e-5
"""Where |1 - r| M is below this, the formula above loses digits and an expansion is used."""

LEAST_SHARE = 1e-9
"""Where a percentile would be 0 or less, it is at most this share of the mean."""

ABOUT = 0.02
"""The tail of a `Spread` is off by less than this share at its `quantile`, which is more exact."""

NOTHING = 1e-17
"""A share of requests that wait at all, relative to another share, with which it makes no digit.

It is at most the peak times the waiting places: no state in which they wait is more likely.
"""


def log_tail(
    queue: Averages, time_ms: FloatArray, erlang: LogErlangTail = log_erlang_tail
) -> FloatArray:
    """Logarithm of the share of requests that wait longer than a time [ms].

    For a negative time the share is 1, so the result is 0.
    """
    places, load = np.maximum(queue.places, 1.0), queue.load
    x = np.maximum(time_ms / queue.interval, TINY)
    log_sum = _log_sum(places, load, x, erlang)
    even = np.flatnonzero(np.abs(1.0 - load) * places < EVEN_LOAD)
    if even.size:
        log_sum[even] = _log_sum_at_even_load(places[even], load[even], x[even])
    share = np.log(np.maximum(queue.peak, TINY)) + log_sum
    return np.where(time_ms < 0, 0.0, np.where(queue.places > 0, np.minimum(share, 0), -np.inf))


def _log_sum(
    places: FloatArray, load: FloatArray, x: FloatArray, erlang: LogErlangTail
) -> FloatArray:
    """Logarithm of the sum of r^j Q(j + 1, x) over j = 0..M-1; divided by r^M where r > 1.

    The smaller term of the difference is at most min(r, 1 / r) times the larger one; the code
    enforces this despite rounding errors.
    """
    log_load = np.log(load)
    scale = np.maximum(places * log_load, 0.0)
    first = -x * (1.0 - load) + erlang(places, load * x) - scale
    second = places * log_load - scale + erlang(places, x)
    gap = np.maximum(np.abs(first - second), np.abs(log_load))
    log_share = np.log(-np.expm1(-np.maximum(gap, TINY)) / np.maximum(np.abs(1.0 - load), TINY))
    return np.where(load > 1.0, second, first) + log_share


def _log_sum_at_even_load(places: FloatArray, load: FloatArray, x: FloatArray) -> FloatArray:
    """The result of `_log_sum` for r close to 1, to first order in r - 1."""
    scale = np.maximum(places * np.log(load), 0.0)
    tails = [_erlang_tail(places - less, x) for less in range(3)]
    value = places * tails[0] - x * tails[1]
    slope = (places * (places - 1.0) * tails[0] - x**2 * tails[2]) / 2
    return np.log(np.maximum(value + slope * (load - 1.0), TINY)) - scale


def _erlang_tail(shape: FloatArray, x: FloatArray) -> FloatArray:
    """Q(shape, x); 0 if the shape is 0 or less, because there is nothing to wait for."""
    tail: FloatArray = np.exp(log_erlang_tail(np.maximum(shape, 1.0), x))
    return np.where(shape > 0, tail, 0.0)


def wait_percentile(
    queue: Averages, share: FloatArray, erlang: LogErlangTail = log_erlang_tail
) -> FloatArray:
    """The shortest time that a share of the requests, in (0, 1), does not wait longer than [ms]."""
    log_rest = np.log1p(-share)
    result = np.zeros(len(share))
    rows = np.flatnonzero(log_tail(queue, result, erlang) > log_rest)
    waiting, log_rest = queue.take(rows), log_rest[rows]
    longest = _longest(waiting, log_rest)

    def excess(some: IntArray, position: FloatArray) -> FloatArray:
        time_ms = longest[some] * (1.0 - position)
        return log_tail(waiting.take(some), time_ms, erlang) - log_rest[some]

    ends = np.stack((np.zeros(len(rows)), np.ones(len(rows))))
    everything = np.arange(len(rows))
    values = np.stack([excess(everything, end) for end in ends])
    result[rows] = longest * (1.0 - last_feasible(excess, ends, values))
    return result


def _longest(queue: Averages, log_rest: FloatArray) -> FloatArray:
    """An upper bound of the percentile [ms], from M departures or from a queue without limit.

    M + sqrt(2 M y) + y bounds the percentile 1 - exp(-y) of a sum of M exponentials of mean 1
    [Laurent and Massart, Ann. Statist. 28 (2000) 1302-1338, lemma 1].
    """
    departures = queue.places + np.sqrt(-2.0 * queue.places * log_rest) - log_rest
    stable = queue.load < 1.0
    room = np.where(stable, 1.0 - queue.load, 1.0)
    log_share = np.log(np.maximum(queue.peak, TINY)) - np.log(room) - log_rest
    endless = np.where(stable, np.maximum(log_share, 0.0) / room, np.inf)
    return np.minimum(departures, endless) * queue.interval * (1.0 + 1e-9)


def log_delay_tail(
    queue: Averages, mean_ms: FloatArray, spread: Spread, time_ms: FloatArray
) -> FloatArray:
    """Logarithm of the share of requests whose wait and time after it exceed a time [ms].

    A request exceeds it by the time after the wait alone, or it waits longer than the rest that the
    mean of that time leaves.
    """
    alone = spread.tail(time_ms - mean_ms)
    rows = np.flatnonzero(queue.peak * queue.places > NOTHING * alone)
    waits = np.zeros_like(alone)
    beyond = np.maximum(time_ms - mean_ms, 0.0)[rows]
    waits[rows] = np.exp(log_tail(queue.take(rows), beyond, log_erlang_tail_if_less))
    return np.asarray(np.log(np.maximum(alone + (1.0 - alone) * waits, TINY)))


def delay_percentile(
    queue: Averages, mean_ms: FloatArray, spread: Spread, share: FloatArray, waits_ms: FloatArray
) -> FloatArray:
    """The shortest time that a share of the requests does not exceed, see `log_delay_tail` [ms].

    `waits_ms` are the percentiles of the wait alone.
    """
    log_rest = np.log1p(-share)
    shortest, longest = _bounds(queue, mean_ms, spread, log_rest, waits_ms)

    def excess(some: IntArray, position: FloatArray) -> FloatArray:
        time_ms = np.exp(-position)
        tail = log_delay_tail(queue.take(some), mean_ms[some], spread.take(some), time_ms)
        return np.asarray(tail - log_rest[some])

    every, ends = np.arange(len(share)), -np.log(np.stack((longest, shortest)))
    values = np.stack([excess(every, end) for end in ends])
    rows = np.flatnonzero(values[1] > 0)
    found = last_feasible(lambda some, x: excess(rows[some], x), ends[:, rows], values[:, rows])
    shortest[rows] = np.exp(-found)
    return shortest


def _bounds(
    queue: Averages,
    mean_ms: FloatArray,
    spread: Spread,
    log_rest: FloatArray,
    waits_ms: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """What the percentile is at least, and at most [ms].

    It is no less than those of the time after the wait and of the wait alone, and no more than both
    where half as many requests exceed each; nobody waits where it makes no digit.
    """
    rest = np.exp(log_rest)
    rests = np.minimum(rest * (1.0 + ABOUT), (1.0 + rest) / 2.0), rest / (1.0 + ABOUT), rest / 2.1
    least, alone, both = (spread.quantile(1.0 - some) for some in rests)
    both = np.maximum(both, _longest(queue, log_rest - np.log(2.0)))
    nobody = queue.peak * queue.places <= NOTHING * rest
    least = np.where(waits_ms > 0, np.maximum(least, waits_ms), least)
    longest = np.maximum(mean_ms + np.where(nobody, alone, both), LEAST_SHARE * mean_ms)
    return np.maximum(mean_ms + least, LEAST_SHARE * longest), longest
