"""Fits the parameters of generation 3, the time of an iteration that mixes prefill and decode.

With one prefill chunk per request both latencies of `performance.TokenBudgetModel` are linear in
its three parameters, so that they are fitted together, as in `fit`.
"""

import numpy as np

from inferno_optimizer.calibration.regression import (
    Estimate,
    Prior,
    Rows,
    robust_fit,
    weighted_median,
)
from inferno_optimizer.calibration.windows import WindowTable
from inferno_optimizer.sizing.queueing import FloatArray


def fit_budget(table: WindowTable, weights: FloatArray) -> Estimate:
    """The parameters alpha, beta and gamma of each group.

    Parameters
    ----------
    table
        The windows; shape (groups, windows).
    weights
        Their weights, 0 where a window is not used; the same shape.

    Returns
    -------
    Estimate
        Its residuals are those of the inter-token latencies, then those of the times to the
        first token; shape (groups, 2 windows).
    """
    groups = len(table.batch)
    itl, first_token = _design(table)
    rows = Rows(
        np.concatenate([itl, first_token], axis=1),
        np.concatenate([table.itl_ms, table.prefill_ms], axis=1),
        np.zeros((groups, 2 * table.batch.shape[1])),
        np.concatenate([weights, weights], axis=1),
    )
    return robust_fit(rows, Prior(np.zeros((groups, 3)), np.zeros((groups, 3))))


def _design(table: WindowTable) -> tuple[FloatArray, FloatArray]:
    """Factors of alpha, beta and gamma in the inter-token latency and the time to first token.

    With d, the time that a request adds to each of its k + 1 iterations, and p, that of its
    prefill: itl = alpha + n d + (d - p) / k, first token = alpha + (n - 1) d + p + itl.
    """
    n, h, k = table.batch, table.input_tokens, table.output_tokens
    one, zero = np.ones_like(n), np.zeros_like(n)
    read = k * (h + (k + 1) / 2)
    alpha = np.stack([one, zero, zero], axis=2)
    share = np.stack([zero, (h + k) / (1 + k), (h + read) / (1 + k)], axis=2)
    prefill = np.stack([zero, h, h], axis=2)
    itl = alpha + n[..., None] * share + (share - prefill) / k[..., None]
    return itl, alpha + (n - 1)[..., None] * share + prefill + itl


def typical_residual(residuals: FloatArray, weights: FloatArray) -> FloatArray:
    """Median relative residual of each group, without sign; shape (groups,)."""
    return weighted_median(np.abs(residuals), weights)
