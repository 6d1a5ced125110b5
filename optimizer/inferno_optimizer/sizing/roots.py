"""Finds the roots of many increasing functions at once, by bracketing."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.queueing import FloatArray, IntArray

TOLERANCE = 1e-10
"""Width of the bracket at which the search ends."""

MAX_STEPS = 200
"""More steps than the search needs; a guard against an endless loop, not a setting."""

FIRST_STRIDE, STRETCH = 0.05, 4.0
"""Length of the first stride down from the upper end, and the growth factor of the next ones."""

Excess = Callable[[IntArray, FloatArray], FloatArray]
"""Returns the values of the functions of the given rows, at one point each."""

Settled = Callable[[IntArray], npt.NDArray[np.bool_]]
"""Tells which of the given rows need no narrower bracket."""

Chosen = Callable[[IntArray, FloatArray, FloatArray], FloatArray]
"""Other points of the given rows instead of trial points, between the ends, shape (2, rows)."""


def as_it_is(rows: IntArray, trial: FloatArray, ends: FloatArray) -> FloatArray:  # noqa: ARG001 - does not matter
    """No other points."""
    return trial


def never(rows: IntArray) -> npt.NDArray[np.bool_]:
    """Search every row to the end."""
    return np.zeros(len(rows), dtype=np.bool_)


def last_feasible(
    excess: Excess,
    ends: FloatArray,
    values: FloatArray,
    settled: Settled = never,
    chosen: Chosen = as_it_is,
) -> FloatArray:
    """The largest points with values of at most 0, to `TOLERANCE`; one per row.

    Uses inverse quadratic interpolation where it is safe, otherwise bisection [Chandrupatla, Adv.
    Eng. Softw. 28 (1997) 145-149]. The functions were evaluated at the returned points, so these
    are feasible despite the tolerance.

    Parameters
    ----------
    excess
        The functions.
    ends
        Intervals, shape (2, rows).
    values
        Values at the ends: at most 0 at the lower end, above 0 at the upper end.
    settled
        Where the search may end earlier, after any evaluation.
    chosen
        Points that tell more than those that the search would try.
    """
    ends, values = _stride_down(excess, ends, values, chosen)
    # Points: the newest one, the other end of the bracket, the one dropped last.
    x, f = ends[[0, 1, 1]], values[[0, 1, 1]]
    active = np.arange(x.shape[1])
    active = active[~settled(active)]
    share = np.full(len(active), 0.5)
    for _ in range(MAX_STEPS):
        if not active.size:
            break
        trial = x[0, active] + share * (x[1, active] - x[0, active])
        trial = chosen(active, trial, x[:2, active])
        f_trial = excess(active, trial)
        x[:, active], f[:, active] = _narrow(x[:, active], f[:, active], trial, f_trial)
        wide = np.abs(x[1, active] - x[0, active]) > TOLERANCE
        active = active[wide & ~settled(active)]
        share = _next_share(x[:, active], f[:, active])
    feasible: FloatArray = np.where(f[0] <= 0, x[0], x[1])
    return feasible


def _stride_down(
    excess: Excess, ends: FloatArray, values: FloatArray, chosen: Chosen
) -> tuple[FloatArray, FloatArray]:
    """Narrow the intervals from the upper end, because most functions cross 0 near it."""
    ends, values = ends.copy(), values.copy()
    active, stride = np.arange(ends.shape[1]), FIRST_STRIDE
    while True:
        active = active[ends[1, active] - stride > ends[0, active]]
        if not active.size:
            return ends, values
        trial = chosen(active, ends[1, active] - stride, ends[:, active])
        f_trial = excess(active, trial)
        side = (f_trial > 0).astype(np.intp)
        ends[side, active], values[side, active] = trial, f_trial
        active, stride = active[side > 0], stride * STRETCH


def _narrow(
    x: FloatArray, f: FloatArray, trial: FloatArray, f_trial: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The points after a trial, which replaces the end on the same side of the root."""
    same_side = (f_trial > 0) == (f[0] > 0)
    kept, dropped = same_side.astype(np.intp), (~same_side).astype(np.intp)
    columns = np.arange(len(trial))
    return (
        np.stack((trial, x[kept, columns], x[dropped, columns])),
        np.stack((f_trial, f[kept, columns], f[dropped, columns])),
    )


def _next_share(x: FloatArray, f: FloatArray) -> FloatArray:
    """The next trial point, as a share of the bracket from its newest end."""
    (a, b, c), (fa, fb, fc) = x, f
    with np.errstate(divide="ignore", invalid="ignore"):
        position, level = (a - b) / (c - b), (fa - fb) / (fc - fb)
        safe = (level**2 < position) & ((1 - level) ** 2 < 1 - position)
        share = fa / (fb - fa) * fc / (fb - fc)
        share += (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        margin = 0.5 * TOLERANCE / np.abs(b - a)
    return np.where(safe, np.clip(share, margin, 1 - margin), 0.5)
