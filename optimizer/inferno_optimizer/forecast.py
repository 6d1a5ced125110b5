"""A bound of the load after a lead time, from the newest load and how loads have grown so far.

Conformal: the newest rate times a quantile of the ratios that were realised over that time in the
last day. Until there is enough history, a fixed ratio.
"""

import math

import numpy as np
import numpy.typing as npt

QUANTILE = 0.9
HISTORY_S = 24 * 3600.0
ENOUGH_S = 2 * 3600.0
REFRESH_S = 600.0

FIRST_RATIO = 1.15
"""The ratio until there is enough history."""

MOST = 10.0
"""The largest ratio that counts."""

FloatArray = npt.NDArray[np.float64]


def growth_bound(rates: FloatArray, ahead: int) -> FloatArray:
    """Return the quantile of the ratios of rates to those some steps before.

    Parameters
    ----------
    rates
        Rates of shape (steps, servers); NaN where a rate is not known.
    ahead
        The number of steps between the rates of a ratio.

    Returns
    -------
    FloatArray
        Shape (servers,). No ratio tells what comes after nothing: such pairs do not count, so that
        a server that is silent for most of the day is not planned for as if it always began. It
        is `FIRST_RATIO` for a server without any pair.
    """
    by_server = np.ascontiguousarray(rates.T)
    before, after = by_server[:, :-ahead], by_server[:, ahead:]
    comparable = (before > 0) & ~np.isnan(after)
    ratios = np.where(
        comparable, np.minimum(after / np.where(comparable, before, 1.0), MOST), np.nan
    )
    ratios[~comparable.any(axis=1), 0] = FIRST_RATIO
    return _quantiles(ratios)


def _quantiles(rows: FloatArray) -> FloatArray:
    """The quantile of each row without its NaNs; faster than `nanquantile`, which loops.

    Between two values it is interpolated linearly.
    """
    ordered = np.sort(rows, axis=1)  # NaNs come last
    place = QUANTILE * (np.count_nonzero(~np.isnan(rows), axis=1) - 1)
    below, each = np.floor(place).astype(np.int64), np.arange(len(rows))
    low, high = ordered[each, below], ordered[each, np.ceil(place).astype(np.int64)]
    quantiles: FloatArray = low + (place - below) * (high - low)
    return quantiles


class ConformalBound:
    """The bound for each server; rates are given one step after the other."""

    def __init__(self, servers: int, horizon_s: float, step_s: float) -> None:
        self._ahead = max(1, math.ceil(horizon_s / step_s))
        self._needed = math.ceil(ENOUGH_S / step_s)
        self._refresh = max(1, round(REFRESH_S / step_s))
        self._kept = math.ceil(HISTORY_S / step_s)
        self._rates = np.zeros((self._kept, servers))
        self._known = 0
        self._ratio = np.full(servers, FIRST_RATIO)

    def add(self, rate: FloatArray) -> None:
        """Remember the rate of a step."""
        self._rates[self._known % self._kept] = rate
        self._known += 1
        if self._known >= self._needed and self._known % self._refresh == 0:
            self._ratio = self._quantile()

    @property
    def ratio(self) -> FloatArray:
        """What the newest rate is multiplied by."""
        return self._ratio

    def _quantile(self) -> FloatArray:
        count = min(self._known, self._kept)
        rates = self._rates[np.arange(self._known - count, self._known) % self._kept]
        return growth_bound(rates, self._ahead)
