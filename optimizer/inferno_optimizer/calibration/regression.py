"""Robust linear regression of many groups at once, with a prior and weights."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from inferno_optimizer.calibration.windows import BoolArray
from inferno_optimizer.sizing.queueing import FloatArray, IntArray

HUBER = 1.345
"""Residual, in standard deviations, above which a row counts less [Huber, Robust Statistics]."""

MAD = 1.4826
"""Standard deviation of a normal distribution, in median absolute deviations."""

LEAST_SCALE = 0.03
"""Least relative standard deviation of a row against which the prior counts, and the errors."""

ITERATIONS = 30
SCALINGS = 5
"""Iterations that estimate the scale of the residuals again; a fixed scale makes it converge."""

TOLERANCE = 1e-4
"""Relative change of the coefficients at which the iteration ends."""

LEAST_LEVEL = 0.1
"""Least fitted response, relative to the measured one, that residuals are relative to."""

TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of groups: response = offset + design @ coefficients, with a relative error.

    Attributes
    ----------
    design
        Shape (groups, rows, coefficients).
    response, offset, weights
        Shape (groups, rows). A row of weight 0 is not used, and may be NaN.
    """

    design: FloatArray
    response: FloatArray
    offset: FloatArray
    weights: FloatArray

    @property
    def used(self) -> BoolArray:
        """Which rows have a weight."""
        return np.asarray(self.weights > 0)


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before: a normal distribution of each coefficient, independently.

    Shape (groups, coefficients); a precision (1 / variance) of 0 believes nothing.
    """

    mean: FloatArray
    precision: FloatArray


@dataclass(frozen=True, slots=True)
class Estimate:
    """Coefficients of each group, and how well they are known.

    Attributes
    ----------
    coefficients
        None is negative; shape (groups, coefficients).
    free
        The same before negative ones were set to 0.
    covariance
        Shape (groups, coefficients, coefficients).
    residuals
        Relative, (response - fitted) / fitted; shape (groups, rows), 0 where not used.
    scale
        Robust standard deviation of the residuals; shape (groups,).
    condition
        Condition number of the weighted design with columns of equal length; shape (groups,).
    """

    coefficients: FloatArray
    free: FloatArray
    covariance: FloatArray
    residuals: FloatArray
    scale: FloatArray
    condition: FloatArray

    def replaced(self, groups: IntArray, part: Self) -> Self:
        """The estimate with that of some groups replaced."""
        columns = {field.name: getattr(self, field.name).copy() for field in fields(self)}
        for name, column in columns.items():
            column[groups] = getattr(part, name)
        return type(self)(**columns)

    def take(self, groups: IntArray) -> Self:
        """The estimate of some of the groups."""
        return type(self)(*(getattr(self, field.name)[groups] for field in fields(self)))

    @property
    def errors(self) -> FloatArray:
        """Standard errors of the coefficients."""
        variances = np.diagonal(self.covariance, axis1=1, axis2=2)
        return np.asarray(np.sqrt(np.maximum(variances, 0.0)))


def robust_fit(rows: Rows, prior: Prior) -> Estimate:
    """Estimate the coefficients of each group.

    Notes
    -----
    Iteratively reweighted least squares with the weights of Huber; the residuals are relative
    to the fitted response, and their scale is the median absolute deviation. The prior makes it
    a maximum a posteriori estimate, so that what the rows do not tell stays as believed.
    """
    used = rows.used
    data = Rows(
        np.where(used[..., None], rows.design, 0.0),
        np.where(used, rows.response, 1.0),
        np.where(used, rows.offset, 0.0),
        rows.weights,
    )
    free, level, huber, scale = _reweighted(data, prior)
    normal = _Normal(data, np.where(used, rows.weights * huber, 0.0) / level**2, scale, prior)
    coefficients = normal.solved_without_negatives(free)
    fitted = data.offset + _product(data.design, coefficients)
    residuals = np.where(used, (data.response - fitted) / np.maximum(fitted, TINY), 0.0)
    covariance = np.asarray(np.linalg.inv(normal.matrix), dtype=np.float64)
    condition = condition_numbers(data.design * (np.sqrt(rows.weights) / level)[..., None])
    return Estimate(coefficients, free, covariance, residuals, scale, condition)


def _reweighted(data: Rows, prior: Prior) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Coefficients, fitted responses, weights by residual, and scale of the residuals."""
    used = data.used
    level, huber = data.response, np.ones_like(data.response)
    scale = np.full(len(level), LEAST_SCALE)
    free = np.zeros(prior.mean.shape)
    for iteration in range(ITERATIONS):
        weights = np.where(used, data.weights * huber, 0.0) / level**2
        before, free = free, _Normal(data, weights, scale, prior).solved()
        fitted = data.offset + _product(data.design, free)
        level = np.where(used, np.maximum(fitted, LEAST_LEVEL * data.response), 1.0)
        residuals = np.where(used, np.abs(data.response - fitted) / level, 0.0)
        if iteration < SCALINGS:
            scale = np.maximum(MAD * weighted_median(residuals, data.weights), TINY)
        huber = np.minimum(1.0, HUBER * scale[:, None] / np.maximum(residuals, TINY))
        if np.all(np.abs(free - before) <= TOLERANCE * np.abs(free)):
            break
    return free, level, huber, scale


class _Normal:
    """The normal equations; their matrix is the inverse of the covariance."""

    def __init__(self, data: Rows, weights: FloatArray, scale: FloatArray, prior: Prior) -> None:
        weighted = np.swapaxes(data.design * weights[..., None], 1, 2)
        precision = 1.0 / np.maximum(scale, LEAST_SCALE)[:, None] ** 2
        identity = np.eye(prior.mean.shape[1])
        matrix = (weighted @ data.design) * precision[..., None]
        self.matrix = _regular(matrix + prior.precision[:, :, None] * identity)
        self.right = _product(weighted, data.response - data.offset) * precision
        self.right += prior.precision * prior.mean

    def solved(self) -> FloatArray:
        """The coefficients."""
        return np.asarray(np.linalg.solve(self.matrix, self.right[..., None])[..., 0])

    def solved_without_negatives(self, free: FloatArray) -> FloatArray:
        """The coefficients with negative ones at 0 and the others fitted again."""
        coefficients = free
        while (coefficients < 0).any():
            dropped = np.asarray(coefficients < 0)
            kept = (coefficients > 0) & ~dropped
            pairs = kept[:, :, None] & kept[:, None, :]
            matrix = np.where(pairs, self.matrix, 0.0) + ~kept[:, :, None] * np.eye(kept.shape[1])
            right = np.where(kept, self.right, 0.0)
            solved = np.linalg.solve(matrix, right[..., None])[..., 0]
            coefficients = np.where(dropped.any(axis=1, keepdims=True), solved, coefficients)
        return coefficients


def _product(design: FloatArray, coefficients: FloatArray) -> FloatArray:
    return np.asarray((design @ coefficients[..., None])[..., 0])


def _regular(matrix: FloatArray) -> FloatArray:
    """The matrix with a little added to its diagonal, so that it can be inverted without rows."""
    diagonal = np.diagonal(matrix, axis1=1, axis2=2)
    added = np.where(diagonal > 0, 1e-10 * diagonal, 1.0)
    return np.asarray(matrix + added[:, :, None] * np.eye(matrix.shape[1]))


def weighted_median(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted median of each group; 0 for a group without weight.

    Parameters
    ----------
    values, weights
        Shape (groups, rows).
    """
    if values.shape[1] == 0:
        return np.zeros(len(values))
    order = np.argsort(values, axis=1)
    share = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    middle = (share < 0.5 * share[:, -1:]).sum(axis=1)
    at = np.take_along_axis(order, np.minimum(middle, values.shape[1] - 1)[:, None], axis=1)
    return np.asarray(np.take_along_axis(values, at, axis=1)[:, 0])


def mean_residual(residuals: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted mean of the residuals of each group, without signs; shape (groups,)."""
    total = np.maximum(weights.sum(axis=1), TINY)
    return np.asarray((np.abs(residuals) * weights).sum(axis=1) / total)


def condition_numbers(design: FloatArray) -> FloatArray:
    """Condition number of each design, its columns scaled to equal length; shape (groups,).

    It is infinite for a group that has a column of zeros.
    """
    gram = np.swapaxes(design, 1, 2) @ design
    lengths = np.sqrt(np.diagonal(gram, axis1=1, axis2=2))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = gram / (lengths[:, :, None] * lengths[:, None, :])
    empty = ~np.isfinite(cosines).all(axis=(1, 2))
    cosines[empty] = np.ones(gram.shape[1:])
    values = np.linalg.eigvalsh(cosines)
    with np.errstate(divide="ignore"):
        ratio = values[:, -1] / np.maximum(values[:, 0], 0.0)
    return np.asarray(np.sqrt(ratio))
