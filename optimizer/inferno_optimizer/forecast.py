"""A bound of the load after a lead time, from the newest load and how loads have grown so far.

Conformal: the newest rate times a quantile of the ratios that were realised over that time in the
last day, from rates like the newest one: a peak grows less than what follows a lull. Until there is
enough history, the ratio that loads of others had over such a time.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

QUANTILE = 0.9
HISTORY_S = 24 * 3600.0
ENOUGH_S = 2 * 3600.0
REFRESH_S = 600.0

FIRST_GROWTH, FIRST_POWER = 0.02, 0.4
"""Logarithm of the ratio of loads without history after one second, and the power of the time.

Loads that wander would grow with the square root of the time; recorded ones do with a little less.
The clients of two services stay within it in 89 to 93 % of the steps, after 10 minutes as after an
hour.
"""

MOST = 10.0
"""The largest ratio that counts."""

SMALLEST_GAP = 1e-9
"""Two levels differ by so much at least: from one to its equal, the ratio jumps [requests/s]."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def first_ratio(horizon_s: float) -> float:
    """Return the ratio over a time [s] until there is enough history."""
    return math.exp(FIRST_GROWTH * horizon_s**FIRST_POWER)


def spread_over(horizon_s: float) -> float:
    """Return the standard deviation of the logarithm of the ratio over a time [s], as of a normal.

    It is that of loads without history.
    """
    return math.log(first_ratio(horizon_s)) / NormalDist().inv_cdf(QUANTILE)


@dataclass(frozen=True, slots=True)
class GrowthBound:
    """What rates are multiplied by; arrays of shape (levels, servers).

    Attributes
    ----------
    levels
        Rates, rising.
    ratios
        The bound at these rates; linear between them, constant beyond.
    """

    levels: FloatArray
    ratios: FloatArray

    @classmethod
    def first(cls, servers: int, ratio: float) -> "GrowthBound":
        """The bound without history: the same ratio at each rate."""
        return cls(np.zeros((1, servers)), np.full((1, servers), ratio))

    def at(self, rates: FloatArray) -> FloatArray:
        """The ratio of each server at its rate."""
        below, above = self.levels[:-1], self.levels[1:]
        share = np.clip((rates - below) / np.maximum(above - below, SMALLEST_GAP), 0.0, 1.0)
        ratio: FloatArray = self.ratios[0] + (np.diff(self.ratios, axis=0) * share).sum(axis=0)
        return ratio


def growth_bound(rates: FloatArray, ahead: int, first: float) -> GrowthBound:
    """Return the quantiles of the ratios of rates to those some steps before.

    The levels are the quartiles of the rates before. The quantile at each is that of the half of
    the ratios that is nearest: from rates up to the median, between the outer quartiles, and from
    the median.

    Parameters
    ----------
    rates
        Rates of shape (steps, servers); NaN where a rate is not known.
    ahead
        The number of steps between the rates of a ratio.
    first
        The bound of a server without any pair of rates.

    Returns
    -------
    GrowthBound
        No ratio tells what comes after nothing: such pairs do not count, so that a server that is
        silent for most of the day is not planned for as if it always began.
    """
    by_server = np.ascontiguousarray(rates.T)
    before, after = by_server[:, :-ahead], by_server[:, ahead:]
    before = np.where((before > 0) & ~np.isnan(after), before, np.inf)
    ratios = np.minimum(after / before, MOST)
    low, middle, high = levels = _quartiles(before)
    halves = (before <= middle, (before >= low) & (before <= high), before >= middle)
    bounds = [
        _bound(np.where(half & np.isfinite(before), ratios, np.inf), first) for half in halves
    ]
    return GrowthBound(levels[:, :, 0], np.stack(bounds))


def _quartiles(rows: FloatArray) -> FloatArray:
    """The quartiles of each row, as values of it; shape (3, rows, 1)."""
    ordered, count = _ordered(rows)
    found = ordered[np.arange(len(rows)), np.arange(1, 4)[:, None] * count // 4]
    return np.where(count > 0, found, 0.0)[:, :, None]


def _bound(rows: FloatArray, without: float) -> FloatArray:
    """What one more value of each row exceeds in only one of ten cases; of one without any, this.

    Of n values it is the one of rank (n + 1) times the quantile, linear between two ranks [Hyndman
    and Fan, The American Statistician 50 (1996) 361-365, definition 6].
    """
    ordered, count = _ordered(rows)
    place = np.clip(QUANTILE * (count + 1) - 1.0, 0.0, np.maximum(count - 1, 0))
    ranks = np.stack((np.floor(place), np.ceil(place))).astype(np.int64)
    low, high = np.where(count > 0, ordered[np.arange(len(rows)), ranks], without)
    bound: FloatArray = low + (place - ranks[0]) * (high - low)
    return bound


def _ordered(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """The finite values of rows in order, with others after them; and how many there are."""
    ordered = np.sort(rows, axis=1)
    return ordered, np.count_nonzero(ordered < np.inf, axis=1)


class ConformalBound:
    """The bound for each server; rates are given one step after the other."""

    def __init__(self, servers: int, horizon_s: float, step_s: float) -> None:
        self._ahead = max(1, math.ceil(horizon_s / step_s))
        self._needed = math.ceil(ENOUGH_S / step_s)
        self._refresh = max(1, round(REFRESH_S / step_s))
        self._kept = math.ceil(HISTORY_S / step_s)
        self._rates = np.zeros((self._kept, servers))
        self._known = 0
        self._first = first_ratio(horizon_s)
        self._growth = GrowthBound.first(servers, self._first)

    def add(self, rate: FloatArray) -> None:
        """Remember the rate of a step."""
        self._rates[self._known % self._kept] = rate
        self._known += 1
        if self._known >= self._needed and self._known % self._refresh == 0:
            self._growth = self._newest()

    def ratio(self, rates: FloatArray) -> FloatArray:
        """What the rate of each server is multiplied by."""
        return self._growth.at(rates)

    def _newest(self) -> GrowthBound:
        count = min(self._known, self._kept)
        rates = self._rates[np.arange(self._known - count, self._known) % self._kept]
        return growth_bound(rates, self._ahead, self._first)
