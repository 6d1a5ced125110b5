"""Sums over the states of chains whose ratios are smooth in ln n; many chains at once.

The logarithm of each ratio p(n) / p(n - 1) is interpolated in each octave of n. So the logarithm of
a probability is linear in the values at the nodes, and one matrix product of an octave makes those
of all its states. States that are too unlikely to matter are left out. See `sizing.md`, section
"Steps that mix prefill and decode".
"""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray

LogRatios = Callable[[slice, FloatArray], FloatArray]
"""ln p(n) / p(n - 1) of the chains `rows`, at n of shape (states, 1); shape (states, rows)."""

FIRST_OCTAVE = 8
NODES = 6
"""States below which every ratio is computed, and nodes of the interpolation in an octave above."""

PROBES = 8
"""States of an octave among which the likeliest one is looked for, so that no sum overflows."""

UNLIKELY = 60.0
"""States less likely than others by exp(-this) are left out; doubles have exp(-37)."""

ROWS = 2048
CELLS = 2**16
"""Chains, and probabilities, that are computed at a time; they fit into the CPU cache."""


def octave_of(state: int) -> int:
    """The number of the octave of a state; the first one has all states below `FIRST_OCTAVE`."""
    return (state // FIRST_OCTAVE).bit_length()


def first_of(octave: int) -> int:
    """The first state of an octave."""
    return FIRST_OCTAVE << octave >> 1 if octave else 1


def last_likely(batch: IntArray, log_ratios: LogRatios) -> IntArray:
    """The last state, up to N, that is not less likely than another one by exp(-`UNLIKELY`).

    `batch` is N, in descending order. Logarithms of probabilities are summed octave by octave, by
    the trapezoidal rule: where ratios fall ever slower, more is left in than need be.
    """
    last = np.minimum(batch, FIRST_OCTAVE - 1)
    for start in range(0, len(batch), ROWS):
        rows = slice(start, start + ROWS)
        _reach_likely(rows, batch[rows], last[rows], log_ratios)
    return last


def _reach_likely(rows: slice, batch: IntArray, last: IntArray, log_ratios: LogRatios) -> None:
    """Raise `last` of some chains to the last likely state, in place."""
    level, most = np.zeros(len(batch)), np.zeros(len(batch))
    some = _reaching(FIRST_OCTAVE, batch)
    ratio = _log_ratio(rows.start, some, FIRST_OCTAVE, log_ratios)
    for octave in range(1, octave_of(int(batch[0])) + 1):
        first, end = first_of(octave), first_of(octave + 1)
        some = _reaching(first, batch)
        before, level, most = ratio[:some], level[:some], most[:some]
        np.maximum(most, level, out=most)
        likely = level + (end - first) * np.maximum(before, 0.0) > most - UNLIKELY
        last[:some][likely] = np.minimum(batch[:some][likely], end - 1)
        ratio = _log_ratio(rows.start, some, end, log_ratios)
        level += (end - first) * (before + ratio) / 2.0


def _log_ratio(start: int, number: int, state: float, log_ratios: LogRatios) -> FloatArray:
    ratios: FloatArray = log_ratios(slice(start, start + number), np.array([[float(state)]]))[0]
    return ratios


def _reaching(state: float, last: IntArray) -> int:
    """How many chains have a state, of those in descending order of their last one."""
    return int(np.count_nonzero(last >= state))


def sums_up_to(last: IntArray, log_ratios: LogRatios) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums of p(n) and n p(n) over n = 0..last, and p(last), all times one factor per chain.

    `last` is in descending order.
    """
    sums = np.zeros((3, len(last)))
    for start in range(0, len(last), ROWS):
        rows = slice(start, min(start + ROWS, len(last)))
        sums[:, rows] = _sums_of_rows(rows, last[rows], log_ratios)
    return sums[0], sums[1], sums[2]


def _sums_of_rows(rows: slice, last: IntArray, log_ratios: LogRatios) -> FloatArray:
    values, at_last, most = _levels(rows, last, log_ratios)
    result = np.stack((np.exp(-most), np.zeros_like(most), np.exp(at_last - most)))
    for octave, known in enumerate(values):
        active = known.shape[1]
        known[-1] -= most[:active]
        for first, design in _blocks(octave, active, int(last[0])):
            levels = design @ known
            states = np.arange(first, first + len(design), dtype=np.float64)
            ending = slice(_reaching(states[-1], last), active)
            np.copyto(levels[:, ending], -np.inf, where=states[:, None] > last[ending])
            weights = np.exp(levels, out=levels)
            result[:2, :active] += np.stack((np.ones_like(states), states)) @ weights
    return result


def _levels(
    rows: slice, last: IntArray, log_ratios: LogRatios
) -> tuple[list[FloatArray], FloatArray, FloatArray]:
    """What makes logarithms of p(n) / p(0): factors of the design of each octave.

    Also that of p(last), and about the largest of all.
    """
    level, most, at_last = np.zeros(len(last)), np.zeros(len(last)), np.zeros(len(last))
    values = []
    for octave in range(octave_of(int(last[0])) + 1):
        first = first_of(octave)
        active = _reaching(first, last)
        ending = slice(_reaching(first_of(octave + 1), last), active)
        ratios = log_ratios(slice(rows.start, rows.start + active), _nodes(octave)[:, None])
        known = np.concatenate((ratios, level[None, :active]))
        values.append(known)
        design = _design(octave)
        at_last[ending] = np.sum(design[last[ending] - first].T * known[:, ending], axis=0)
        probes, of_probes = _probes(octave)
        found = of_probes @ known
        level[:active] = found[-1]
        np.copyto(found[:, ending], -np.inf, where=probes[:, None] > last[ending])
        most[:active] = np.maximum(most[:active], found.max(axis=0))
    return values, at_last, np.maximum(most, at_last)


def _blocks(octave: int, active: int, last: int) -> Iterator[tuple[int, FloatArray]]:
    """The first state and the design of parts of an octave."""
    first, design = first_of(octave), _design(octave)
    design = design[: last - first + 1]
    height = max(CELLS // active, 1)
    for start in range(0, len(design), height):
        yield first + start, design[start : start + height]


@cache
def _nodes(octave: int) -> FloatArray:
    """Chebyshev points of an octave in ln n; the first octave has a node at each state."""
    first, end = first_of(octave), first_of(octave + 1)
    if octave == 0:
        return np.arange(first, end, dtype=np.float64)
    points = np.cos(np.pi * np.arange(NODES) / (NODES - 1))
    low, high = np.log((first, end - 1))
    return np.asarray(np.exp((points * (high - low) + high + low) / 2.0))


@cache
def _probes(octave: int) -> tuple[IntArray, FloatArray]:
    """States of an octave, with the last one, and their part of the design."""
    design = _design(octave)
    places = np.linspace(0, len(design) - 1, PROBES).astype(np.int64)
    return first_of(octave) + places, design[places]


@cache
def _design(octave: int) -> FloatArray:
    """Factors of the values at the nodes, and of the level before, in the level of each state."""
    states = np.log(np.arange(first_of(octave), first_of(octave + 1), dtype=np.float64))
    nodes = np.log(_nodes(octave))
    weights = np.ones((len(states), len(nodes) + 1))
    for place, node in enumerate(nodes):
        for other in np.delete(nodes, place):
            weights[:, place] *= (states - other) / (node - other)
    np.cumsum(weights[:, :-1], axis=0, out=weights[:, :-1])
    return weights
