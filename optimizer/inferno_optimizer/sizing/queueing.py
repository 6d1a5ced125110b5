"""Stationary averages of many state-dependent M/M/1/K queues at once; arrays in, arrays out.

A replica that serves up to N requests at a time is a birth-death chain: births at the
arrival rate, deaths at mu(n) with n requests in service, mu(N) beyond N, at most K requests
in total [Kleinrock, Queueing Systems I, 1975, ch. 3]. The states up to N are summed block by
block; the states beyond N are a geometric series with a closed form, so the cost does not
depend on K.

The rates mu(n) need not be monotone. One case is not computed correctly: if the chain has two
likely regions, and states between them are less than 1e-300 times as likely, the region with
more requests is missed. See `sizing.md`, section "The replica as a queue".
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

DepartureIntervals = Callable[[slice, FloatArray], FloatArray]
"""1 / mu(n) [ms] of the queues `rows` with n requests in service.

The second argument is n, of shape (states, 1), or (rows,) with one n for each queue; the
result broadcasts to (states, rows), or has shape (rows,).
"""

ROWS = 4096
CELLS = 2**15
STATES = 16
"""Rows of a slice, cells of a block and its fewest states; arrays then fit into the CPU cache."""

MANY = 256
"""Number of rows from which a loop over the states is faster."""

RESCALE = 1e30
"""Weights above this are scaled down before the next block."""

DECADES = 250
"""Largest growth of the weights within a block, in powers of ten; sums then stay finite."""

SERIES_BELOW = 1e-3
"""Below this exponent the closed form of a geometric sum loses digits, and a series is used."""


@cache  # to ask a class for its fields takes longer than to take some rows of them
def _names(table: type["ArrayTable"]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(table))


@dataclass(frozen=True, slots=True)
class ArrayTable:
    """A table as a struct of arrays, all of the same length."""

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays in the order of the fields."""
        names = _names(type(self))  # type: ignore[arg-type]  # mypy asks the class for a row's hash
        return tuple([getattr(self, name) for name in names])

    def take(self, rows: npt.NDArray[np.intp]) -> Self:
        """The table of some of the rows, in the given order."""
        return type(self)(*(column[rows] for column in self.columns()))

    def with_rows(self, rows: npt.NDArray[np.intp], columns: tuple[npt.NDArray[Any], ...]) -> Self:
        """The table with other columns at some of its rows."""
        changed = [column.copy() for column in self.columns()]
        for column, values in zip(changed, columns, strict=True):
            column[rows] = values
        return type(self)(*changed)


def distinct_rows(*columns: npt.NDArray[Any]) -> tuple[IntArray, IntArray]:
    """One row of each kind, and for each row the place of its kind among them."""
    table = np.column_stack(columns).astype(np.float64)
    bits = table.view(np.uint64)
    # Sorting sums of the rows' bits takes a tenth of the time that sorting the rows takes. Short
    # numbers have the upper bits only, so that few bits of their sums differ: folded, all do.
    weights = 2 * np.random.default_rng(0).integers(1, 2**63, table.shape[1], dtype=np.uint64)
    weights += np.uint64(1)
    for folded in (False, True):
        sums = (bits ^ (bits >> np.uint64(32)) if folded else bits) @ weights
        _, rows, inverse = np.unique(sums, return_index=True, return_inverse=True)
        if np.array_equal(table[rows[inverse]], table, equal_nan=True):
            return rows, inverse
    every = np.arange(len(table))  # different rows with an equal sum: once in ages
    return every, every


@dataclass(frozen=True, slots=True)
class Averages(ArrayTable):
    """Stationary averages of each queue, and the parameters of its waiting times.

    `throughput` is the rate of accepted requests [requests/ms]; `in_service` and `waiting` are
    mean numbers of requests. `places` is the number of waiting places, K - N; `interval` is the
    time between departures of a full batch [ms], and `load` is the arrival rate times `interval`.
    `peak` is the probability p(N), or p(K) if the load is above 1, divided by the probability
    that a request is accepted.
    """

    throughput: FloatArray
    in_service: FloatArray
    waiting: FloatArray
    places: FloatArray
    interval: FloatArray
    load: FloatArray
    peak: FloatArray

    @property
    def service_ms(self) -> FloatArray:
        """Mean time in service [ms], by Little's law."""
        return self.in_service / self.throughput

    @property
    def wait_ms(self) -> FloatArray:
        """Mean waiting time [ms], by Little's law; this avoids a difference of large numbers."""
        return self.waiting / self.throughput


def averages(
    arrival_rate: FloatArray,
    batch: IntArray,
    queue_limit: IntArray,
    intervals: DepartureIntervals,
) -> Averages:
    """Averages of the queues at their arrival rates.

    Parameters
    ----------
    arrival_rate
        Poisson arrival rates, positive [requests/ms]; shape (queues,).
    batch
        N, the largest number of requests in service, at least 1, in descending order.
    queue_limit
        K, the largest number of requests in total, at least N.
    intervals
        Times between departures, positive and finite.
    """
    result = Averages(*(np.empty(len(arrival_rate)) for _ in fields(Averages)))
    for rows in _slices(len(arrival_rate)):
        part = _averages_of_rows(
            arrival_rate[rows], batch[rows], queue_limit[rows], rows, intervals
        )
        for whole, column in zip(result.columns(), part.columns(), strict=True):
            whole[rows] = column
    return result


def _slices(length: int) -> Iterator[slice]:
    for start in range(0, length, ROWS):
        yield slice(start, min(start + ROWS, length))


def _averages_of_rows(
    arrival_rate: FloatArray,
    batch: IntArray,
    queue_limit: IntArray,
    rows: slice,
    intervals: DepartureIntervals,
) -> Averages:
    """Averages of one slice of the queues."""
    sums = _sums_up_to_batch(arrival_rate, batch, rows, intervals)
    interval = intervals(rows, batch.astype(np.float64))
    return with_queue(arrival_rate, batch, queue_limit, interval, sums)


def with_queue(
    arrival_rate: FloatArray,
    batch: IntArray,
    queue_limit: IntArray,
    interval: FloatArray,
    sums: tuple[FloatArray, FloatArray, FloatArray],
) -> Averages:
    """Averages of queues with the states beyond a full batch, where `interval` is 1 / mu(N) [ms].

    `sums` are those of p(n) and n p(n) over n = 0..N, and p(N), all times one factor per queue.
    """
    total, in_service, full = sums
    states, places = batch.astype(np.float64), (queue_limit - batch).astype(np.float64)
    load = arrival_rate * interval
    scale, tail, tail_waiting, last = _tail(load, places)
    total = total * scale + full * tail
    in_service = in_service * scale + full * states * tail
    admitted = 1.0 - full * last / total
    return Averages(
        throughput=arrival_rate * admitted,
        in_service=in_service / total,
        waiting=full * tail_waiting / total,
        places=places,
        interval=interval,
        load=load,
        peak=full / total / admitted,
    )


def _sums_up_to_batch(
    arrival_rate: FloatArray, batch: IntArray, rows: slice, intervals: DepartureIntervals
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums of p(n) and n p(n) over n = 0..N, and p(N), all times one factor per queue."""
    total = np.ones_like(arrival_rate)
    first_moment = np.zeros_like(arrival_rate)
    weight = np.ones_like(arrival_rate)  # the weight of the last state summed
    start = 1
    while start <= batch[0] and weight.any():  # far beyond few requests, all weights are 0
        active = int(np.count_nonzero(batch >= start))  # a prefix, because N is descending
        active_rows = slice(rows.start, rows.start + active)
        width = min(max(STATES, CELLS // active), int(batch[0]) - start + 1)
        states = np.arange(start, start + width, dtype=np.float64)[:, None]
        ratios = intervals(active_rows, states) * arrival_rate[:active]
        ending = slice(int(np.count_nonzero(batch >= start + width - 1)), active)
        beyond = states > batch[ending]
        ratios[:, ending][beyond] = 1.0  # keeps the weight of state N until the end of the block
        width = _safe_width(ratios)
        ratios[0] *= weight[:active]
        weights = _running_products(ratios[:width])
        weight[:active] = weights[-1]
        weights[:, ending][beyond[:width]] = 0.0
        sums = np.stack((np.ones(width), states[:width, 0])) @ weights
        total[:active] += sums[0]
        first_moment[:active] += sums[1]
        _rescale(weight, total, first_moment)
        start += width
    return total, first_moment, weight


def _safe_width(ratios: FloatArray) -> int:
    """Number of states, at least one, that can be summed before a weight may overflow."""
    growth = float(np.max(ratios))
    states: int = ratios.shape[0]
    return states if growth <= 1.0 else max(1, min(states, int(DECADES / math.log10(growth))))


def _running_products(ratios: FloatArray) -> FloatArray:
    """Cumulative products of the ratios over the states, in place; shape (states, rows).

    With many rows, a loop over the states is faster, because it multiplies all rows at once.
    """
    if ratios.shape[1] < MANY:
        return np.multiply.accumulate(ratios, axis=0, out=ratios)
    for before, here in itertools.pairwise(ratios):
        np.multiply(here, before, out=here)
    return ratios


def _rescale(weight: FloatArray, total: FloatArray, first_moment: FloatArray) -> None:
    """Divide weights and sums of a queue by its weight where it is large, in place."""
    large = weight > RESCALE
    if large.any():
        total[large] /= weight[large]
        first_moment[large] /= weight[large]
        weight[large] = 1.0


def _tail(
    ratio: FloatArray, length: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sums of r^j and j r^j over j = 1..M, and r^M, all times a scale that keeps them finite.

    The scale is 1 where r <= 1, else r^-M. It is the first item of the result.
    """
    growing = ratio > 1.0
    x = np.where(growing, 1.0 / ratio, ratio)
    count, moment = _geometric(x, length)
    last = np.power(x, length)
    scale = np.where(growing, last, 1.0)
    tail = np.where(growing, count, x * count)
    tail_moment = np.where(growing, length * count - moment, x * (moment + count))
    return scale, tail, tail_moment, np.where(growing, 1.0, last)


def _geometric(x: FloatArray, length: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sums of x^i and i x^i over i = 0..M-1, for 0 < x <= 1."""
    log_x = np.log(x)
    exponent = length * log_x
    series = -exponent < SERIES_BELOW
    safe_log = np.where(series, -1.0, log_x)
    safe_exponent = np.where(series, -1.0, exponent)
    count = np.expm1(safe_exponent) / np.expm1(safe_log)
    moment = (count - 1.0 - (length - 1.0) * np.exp(safe_exponent)) / -np.expm1(safe_log)
    if series.any():
        count[series], moment[series] = _power_sums(log_x[series], length[series])
    return count, moment


def _power_sums(log_x: FloatArray, length: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sums of x^i and i x^i by the series of the exponential, for x close to 1."""
    m = length - 1.0
    sums = np.stack(
        (
            length,
            m * length / 2,
            m * length * (2 * m + 1) / 6,
            (m * length / 2) ** 2,
            m * length * (2 * m + 1) * (3 * m**2 + 3 * m - 1) / 30,
        )
    )
    terms = np.stack((np.ones_like(log_x), log_x, log_x**2 / 2, log_x**3 / 6))
    return np.sum(terms * sums[:4], axis=0), np.sum(terms * sums[1:], axis=0)
