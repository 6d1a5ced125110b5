"""Notices that an engine has changed: cumulative sums of the residuals of a fit."""

import numpy as np

from inferno_optimizer.calibration.regression import LEAST_SCALE, Estimate
from inferno_optimizer.calibration.windows import BoolArray
from inferno_optimizer.sizing.queueing import FloatArray

SLACK = 0.5
"""Mean residual, in standard deviations, that is not counted as a change."""

THRESHOLD = 10.0
"""Sum, in standard deviations, at which a change is noticed."""

LARGEST_SUM = 2 * THRESHOLD
"""Where the sum ends, so that a change to which the fit has adapted is soon forgotten."""

CLIP = 2.0
"""Largest residual that counts, in standard deviations: outliers come alone, a change stays."""


def shifts(estimate: Estimate, used: BoolArray) -> FloatArray:
    """How far the newest rows of each group lie above (or below) the fit, persistently.

    Parameters
    ----------
    estimate
        The fit; its residuals are in order of time.
    used
        Which rows count; shape (groups, rows).

    Returns
    -------
    FloatArray
        Shape (groups,): 0 if the newest rows fit; otherwise the median relative residual since
        the sum left 0, positive if the engine has become slower.

    Notes
    -----
    Two-sided cumulative sums [Page, Continuous inspection schemes, Biometrika 41, 1954]. The sum
    at the end decides, so a change long ago, to which the fit has adapted, does not count.
    """
    scale = np.maximum(estimate.scale, LEAST_SCALE)[:, None]
    standardized = np.clip(estimate.residuals / scale, -CLIP, CLIP)
    slower, faster = (_since(sign * standardized, used) for sign in (1.0, -1.0))
    begin = np.minimum(slower, faster)[:, None]
    recent = used & (np.arange(used.shape[1]) >= begin)
    values = np.where(recent, estimate.residuals, np.nan)
    shift = np.zeros(len(values))
    shifted = recent.any(axis=1)
    shift[shifted] = np.nanmedian(values[shifted], axis=1)
    return shift


def _since(deviations: FloatArray, used: BoolArray) -> FloatArray:
    """The row at which the sum last left 0; infinite if it is below the threshold at the end."""
    total = np.zeros(len(deviations))
    begin = np.full(len(deviations), np.inf)
    for row in range(deviations.shape[1]):
        step = np.where(used[:, row], deviations[:, row] - SLACK, 0.0)
        begin = np.where((total == 0) & (step > 0), row, begin)
        total = np.clip(total + step, 0.0, LARGEST_SUM)
    return np.where(total > THRESHOLD, begin, np.inf)
