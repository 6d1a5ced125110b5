"""Windows of a model on an accelerator -> its performance parameters, or why there are none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from inferno_optimizer.calibration.budget import fit_budget, typical_residual
from inferno_optimizer.calibration.confidence import GroupRequests, Line, Z, chords
from inferno_optimizer.calibration.drift import shifts
from inferno_optimizer.calibration.fit import Fit, Priors, fit, weights_by_age
from inferno_optimizer.calibration.regression import Estimate
from inferno_optimizer.calibration.verdict import CalibrationReason, Facts, LineFit, verdict
from inferno_optimizer.calibration.windows import (
    LIVE,
    PLAUSIBLE,
    BoolArray,
    Rejection,
    Requirements,
    Window,
    WindowTable,
    in_time,
    rejections,
)
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.system import PrefillDecodeParameters, TokenBudgetParameters

HALF_LIFE_S = 6 * 3600.0
"""Age at which a window counts half [s]."""

HALVINGS = 6
"""How often the half-life is halved at most after a change of the engine: to 6 minutes."""

ROLLOUT_S = 300.0
"""Time before the newest window in which a second pod template means a rollout [s]."""

PACE_S = 600.0
"""Time before the newest window in which the windows that can be used are counted [s]."""

TYPICAL_BATCH = 16.0
TYPICAL_INPUT_TOKENS = 512.0
TYPICAL_OUTPUT_TOKENS = 128.0
"""What to measure with where nothing is known: usual lengths of a chat, at a usual load."""

GOOD_FIT = 0.05
"""Median relative residual of the lines below which generation 3 is not tried."""

BETTER = 0.9
"""Residual of generation 3, relative to generation 2, below which it fits better."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a model on an accelerator.

    Attributes
    ----------
    windows
        What its replicas did, in any order.
    prior
        The parameters that are believed so far, if any.
    largest_batch
        Largest batch of a replica [requests]; 0 if unknown: the largest one seen.
    of_clients
        Whether each window is a run with a fixed number of clients who wait for their answers.
    """

    windows: Sequence[Window]
    prior: PrefillDecodeParameters | None = None
    largest_batch: float = 0.0
    of_clients: bool = False


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result for a model on an accelerator.

    Attributes
    ----------
    reason, message
        Whether the parameters may be used; and if not, what to do.
    facts
        The fitted lines, without waits for prefills of other requests, and what they rest on.
    expected
        Parameters with the waits for prefills of other requests, at the present token mix.
    upper
        The same at the upper confidence of 90 %: what targets are checked with.
    budget
        Parameters of generation 3, if these fit better.
    rejected
        Number of windows that were not used, by reason.
    used, weights
        The windows that were used, in order of time, and how much each counts.
    """

    reason: CalibrationReason
    message: str
    facts: Facts
    expected: PrefillDecodeParameters
    upper: PrefillDecodeParameters
    budget: TokenBudgetParameters | None
    rejected: Mapping[Rejection, int]
    used: Sequence[Window]
    weights: Sequence[float]


def calibrate(
    evidence: Sequence[Evidence], now: float, requirements: Requirements = LIVE
) -> list[Calibration]:
    """Calibrate many models at once.

    Parameters
    ----------
    evidence
        What is known of each model on each accelerator.
    now
        Unix time [s]; older windows count less.
    requirements
        What windows must have.

    Returns
    -------
    list[Calibration]
        One for each item, in the same order.
    """
    whole = WindowTable.of([item.windows for item in evidence])
    broken = rejections(whole, requirements)
    used = whole.present & (broken < 0)
    table, mixed = whole.only(used), _mixed(whole)
    of_clients = np.array([item.of_clients for item in evidence], dtype=np.bool_)
    priors = Priors.of([item.prior for item in evidence])
    adapted = _adapted(_Fitting(table, used, priors, of_clients), now)
    fitted, requests = adapted.fit, _requests(evidence, whole, table, adapted.fit)
    facts = _facts(table, used, adapted, requests, mixed, _pace(whole, used))
    expected, upper = (_chords(fitted, requests, z) for z in (0.0, Z))
    budgets = _budgets(table, fitted)
    return [
        Calibration(
            *verdict(facts[group], requirements),
            facts[group],
            expected[group],
            upper[group],
            budgets[group],
            _counted(broken[group]),
            list(compress(in_time(item.windows), used[group])),
            fitted.weights[group][used[group]].tolist(),
        )
        for group, item in enumerate(evidence)
    ]


@dataclass(frozen=True, slots=True)
class _Adapted:
    """A fit to the present engine; see `Facts.shift` and `Facts.settled`, shape (groups,)."""

    fit: Fit
    shift: FloatArray
    settled: BoolArray


@dataclass(frozen=True, slots=True)
class _Fitting:
    """What is fitted: which windows are used, what is believed, and whether clients waited."""

    table: WindowTable
    used: BoolArray
    priors: Priors
    of_clients: BoolArray

    def fit(self, now: float, half_life_s: FloatArray) -> Fit:
        weights = weights_by_age(self.table, self.used, now, half_life_s)
        return fit(self.table, weights, self.priors, self.of_clients)

    def take(self, groups: IntArray) -> "_Fitting":
        return _Fitting(
            self.table.take(groups),
            self.used[groups],
            self.priors.take(groups),
            self.of_clients[groups],
        )


def _adapted(fitting: _Fitting, now: float) -> _Adapted:
    """Fit; where the engine has changed, again with shorter half-lives until the newest fit."""
    half_life = np.full(len(fitting.used), HALF_LIFE_S)
    fitted = fitting.fit(now, half_life)
    first = shift = _shift(fitted, fitting.used)
    for _ in range(HALVINGS):
        groups = np.flatnonzero(shift)
        if not groups.size:
            break
        half_life[groups] /= 2
        some = fitting.take(groups)
        again = some.fit(now, half_life[groups])
        fitted = fitted.replaced(groups, again)
        shift = shift.copy()
        shift[groups] = _shift(again, some.used)
    return _Adapted(fitted, first, shift == 0)


def _shift(fitted: Fit, used: BoolArray) -> FloatArray:
    """The larger change of decode and prefill times."""
    decode, prefill = (shifts(line, used) for line in (fitted.decode, fitted.prefill))
    return np.asarray(np.where(np.abs(decode) >= np.abs(prefill), decode, prefill))


def _requests(
    evidence: Sequence[Evidence], whole: WindowTable, table: WindowTable, fitted: Fit
) -> GroupRequests:
    """Largest batches, and mean tokens by weight; where no window is used, those of the others."""
    weights = fitted.weights
    seen = np.max(np.where(weights > 0, table.batch, 1.0), axis=1, initial=1.0)
    most = np.where(weights.any(axis=1), seen, TYPICAL_BATCH)
    given = np.array([item.largest_batch for item in evidence])
    return GroupRequests(
        np.where(given > 0, given, most),
        _mean_tokens(whole.input_tokens, table.input_tokens, weights, 1, TYPICAL_INPUT_TOKENS),
        _mean_tokens(whole.output_tokens, table.output_tokens, weights, 2, TYPICAL_OUTPUT_TOKENS),
        fitted.share,
    )


def _mean_tokens(
    whole: FloatArray, used: FloatArray, weights: FloatArray, least: float, typical: float
) -> FloatArray:
    """Mean tokens of each group: of the windows used, else of all, else typical ones."""
    plausible = (whole >= least) & (whole <= PLAUSIBLE[1])
    has_used = weights.any(axis=1).reshape(-1, 1)
    counted = np.where(has_used, weights, plausible.astype(np.float64))
    values = np.where(has_used, used, np.where(plausible, whole, 0.0))
    total = counted.sum(axis=1)
    sums = np.where(counted > 0, values * counted, 0.0).sum(axis=1)
    means = np.maximum(sums / np.maximum(total, np.finfo(float).tiny), least)
    return np.asarray(np.where(total > 0, means, typical))


def _pace(whole: WindowTable, used: BoolArray) -> FloatArray:
    """Windows per second that could be used lately; NaN where all end at the same time."""
    newest = np.max(np.where(whole.present, whole.end, -np.inf), axis=1, initial=-np.inf)
    recent = whole.present & (whole.end > newest[:, None] - PACE_S)
    first = np.min(np.where(recent, whole.end, np.inf), axis=1, initial=np.inf)
    with np.errstate(invalid="ignore"):
        seconds = newest - first
        counted = (used & recent & (whole.end > first[:, None])).sum(axis=1)
    measured = np.isfinite(seconds) & (seconds > 0)
    return np.where(measured, counted / np.where(measured, seconds, 1.0), np.nan)


def _facts(
    table: WindowTable,
    used: BoolArray,
    adapted: _Adapted,
    requests: GroupRequests,
    mixed: BoolArray,
    pace: FloatArray,
) -> list[Facts]:
    fitted, counts = adapted.fit, used.sum(axis=1)
    in_order = np.sort(np.where(used, table.batch, np.inf), axis=1)
    low, p5, p95, high = (_quantile(in_order, counts, share) for share in (0.0, 0.05, 0.95, 1.0))
    decode, prefill = (_lines(line, fitted.weights) for line in (fitted.decode, fitted.prefill))
    return [
        Facts(
            rows=int(counts[group]),
            weight=float(fitted.weights[group].sum()),
            mixed=bool(mixed[group]),
            shift=float(adapted.shift[group]),
            settled=bool(adapted.settled[group]),
            batches=(float(low[group]), float(high[group])),
            spread=float(p95[group] / p5[group]) if counts[group] else 1.0,
            largest_batch=float(requests.largest_batch[group]),
            input_tokens=float(requests.input_tokens[group]),
            output_tokens=float(requests.output_tokens[group]),
            decode=decode[group],
            prefill=prefill[group],
            waits_apart=bool(fitted.share[group]),
            clients=bool(fitted.clients[group]),
            pace=float(pace[group]),
        )
        for group in range(len(used))
    ]


def _quantile(in_order: FloatArray, counts: IntArray, share: float) -> FloatArray:
    """A quantile of the first values of each row; 0 without values."""
    if in_order.shape[1] == 0:
        return np.zeros(len(in_order))
    at = np.rint(share * np.maximum(counts - 1, 0)).astype(np.int64)
    values = np.take_along_axis(in_order, at[:, None], axis=1)[:, 0]
    return np.where(counts > 0, values, 0.0)


def _mixed(table: WindowTable) -> BoolArray:
    """Whether windows of an earlier pod template end within `ROLLOUT_S` of the newest."""
    newest = np.max(np.where(table.present, table.end, -np.inf), axis=1, initial=-np.inf)
    recent = table.present & (table.end >= newest[:, None] - ROLLOUT_S)
    return np.asarray((recent & ~table.is_newest_shape).any(axis=1))


def _lines(estimate: Estimate, weights: FloatArray) -> list[LineFit]:
    columns = np.column_stack(
        [
            estimate.coefficients,
            estimate.errors,
            estimate.covariance[:, 0, 1],
            estimate.free[:, 1],
            typical_residual(estimate.residuals, weights),
            estimate.condition,
        ]
    )
    return [LineFit(*row) for row in columns.tolist()]


def _chords(fitted: Fit, requests: GroupRequests, z: float) -> list[PrefillDecodeParameters]:
    decode, prefill = (
        Line(line.coefficients[:, 0], line.coefficients[:, 1], line.covariance)
        for line in (fitted.decode, fitted.prefill)
    )
    found = chords(decode, prefill, requests, z)
    columns = np.column_stack([found.alpha, found.beta, found.gamma, found.delta])
    return [PrefillDecodeParameters(*row) for row in columns.tolist()]


def _budgets(table: WindowTable, fitted: Fit) -> list[TokenBudgetParameters | None]:
    """Parameters of generation 3 for the groups that they fit better.

    Only where the lines do not fit well: elsewhere there is nothing to gain.
    """
    weights = np.concatenate([fitted.weights, fitted.weights], axis=1)
    residuals = np.concatenate([fitted.decode.residuals, fitted.prefill.residuals], axis=1)
    lines = typical_residual(residuals, weights)
    budgets: list[TokenBudgetParameters | None] = [None] * len(lines)
    groups = np.flatnonzero(lines > GOOD_FIT)
    if not groups.size:
        return budgets
    budget = fit_budget(table.take(groups), fitted.weights[groups])
    better = typical_residual(budget.residuals, weights[groups]) < BETTER * lines[groups]
    for group, row in zip(groups[better], budget.coefficients[better].tolist(), strict=True):
        budgets[group] = TokenBudgetParameters(*row)
    return budgets


def _counted(broken: IntArray) -> dict[Rejection, int]:
    counts = np.bincount(broken[broken >= 0], minlength=len(Rejection)).tolist()
    return {rule: count for rule, count in zip(Rejection, counts, strict=True) if count}
