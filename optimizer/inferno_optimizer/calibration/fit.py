"""Fits the decode and the prefill time of many groups to their windows.

Both are lines: a decode step of a batch of n takes alpha + beta n, and a prefill with h input
tokens takes gamma + delta h n. The queue is in neither, so no queueing model is fitted through.

Where a number of clients wait for their answers, the times to the first token may have the waits
for others in them; both ways are fitted then, and the closer one is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np

from inferno_optimizer.calibration.clients import fit_clients
from inferno_optimizer.calibration.regression import (
    Estimate,
    Prior,
    Rows,
    mean_residual,
    robust_fit,
)
from inferno_optimizer.calibration.windows import BoolArray, WindowTable
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.system import PrefillDecodeParameters

PRIOR_COV = 0.5
"""Coefficient of variation of the prior: configured parameters may be wrong by this factor."""


NEGATIVE = 2.0
"""Standard errors below 0 at which a slope is negative, not only uncertain."""


@dataclass(frozen=True, slots=True)
class Priors:
    """What is believed of the lines before: those of decode steps and of prefills."""

    decode: Prior
    prefill: Prior

    @classmethod
    def of(cls, parameters: Sequence[PrefillDecodeParameters | None]) -> Self:
        """From the parameters of each group; None, and a parameter of 0, believe nothing."""
        values = np.array(
            [(p.alpha, p.beta, p.gamma, p.delta) if p else (0.0,) * 4 for p in parameters]
        ).reshape(-1, 4)
        measured = values > 0
        precision = np.where(
            measured, 1.0 / (PRIOR_COV * np.where(measured, values, 1.0)) ** 2, 0.0
        )
        return cls(Prior(values[:, :2], precision[:, :2]), Prior(values[:, 2:], precision[:, 2:]))

    def take(self, groups: IntArray) -> "Priors":
        """The priors of some of the groups."""
        return Priors(
            *(Prior(p.mean[groups], p.precision[groups]) for p in (self.decode, self.prefill))
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """The fitted lines of each group.

    Attributes
    ----------
    decode, prefill
        (alpha, beta) and (gamma, delta) [ms].
    weights
        Weight of each window by its age; 0 if it is not used; shape (groups, windows).
    share
        1 if the decode times are without waits for prefills of other requests; 0 if the waits
        are part of them, because the engine mixes prefills with decode steps; shape (groups,).
    clients
        Whether times to the first token are those of `clients`, with waits; shape (groups,).
    """

    decode: Estimate
    prefill: Estimate
    weights: FloatArray
    share: FloatArray
    clients: BoolArray

    @property
    def distance(self) -> FloatArray:
        """Mean relative residual, without sign; shape (groups,)."""
        decode, prefill = (line.residuals for line in (self.decode, self.prefill))
        return mean_residual(decode, self.weights) + mean_residual(prefill, self.weights)

    def replaced(self, groups: IntArray, part: Self) -> "Fit":
        """The fit with that of some groups replaced."""
        columns = {name: getattr(self, name).copy() for name in ("weights", "share", "clients")}
        for name, column in columns.items():
            column[groups] = getattr(part, name)
        decode = self.decode.replaced(groups, part.decode)
        return Fit(decode, self.prefill.replaced(groups, part.prefill), **columns)

    def take(self, groups: IntArray) -> "Fit":
        """The fit of some of the groups."""
        columns = (getattr(self, name)[groups] for name in ("weights", "share", "clients"))
        return Fit(self.decode.take(groups), self.prefill.take(groups), *columns)


def weights_by_age(
    table: WindowTable, used: BoolArray, now: float, half_life_s: FloatArray
) -> FloatArray:
    """Weight of each window: 2^(-age / half-life), 0 if it is not used.

    Parameters
    ----------
    table
        The windows.
    used
        Which of them are used.
    now
        Unix time [s].
    half_life_s
        Of each group [s]; shape (groups,).
    """
    age = np.maximum(now - np.where(used, table.end, now), 0.0)
    return np.where(used, 2.0 ** (-age / half_life_s[:, None]), 0.0)


def fit(table: WindowTable, weights: FloatArray, priors: Priors, of_clients: BoolArray) -> Fit:
    """Fit both times of each group.

    Parameters
    ----------
    table
        The windows.
    weights
        Of each window; shape (groups, windows).
    priors
        What is believed before.
    of_clients
        Whether a number of clients wait for their answers; shape (groups,).
    """
    served = _fit_of_servers(table, weights, priors)
    groups = np.flatnonzero(of_clients)
    if not groups.size:
        return served
    seen = _fit_of_clients(table.take(groups), weights[groups], priors.take(groups))
    closer = np.flatnonzero(seen.distance < served.distance[groups])
    return served.replaced(groups[closer], seen.take(closer))


def _fit_of_servers(table: WindowTable, weights: FloatArray, priors: Priors) -> Fit:
    """Fit prefills, then what decode steps take without the prefills of other requests.

    Notes
    -----
    While a request makes its k - 1 further tokens in a batch of n, n - 1 other requests arrive on
    average, because as many leave. Each prefills in a batch that is larger by one, and all decode
    steps wait for it. So a measured inter-token latency is
    (alpha + beta n) + (n - 1) prefill(n + 1) / (k - 1).

    An engine that computes prefills and decode steps together waits less. Where the latencies
    without the waits would fall with the batch, the waits stay a part of alpha and beta.
    """
    ones = np.ones_like(table.batch)
    zeros = np.zeros_like(table.batch)
    product = table.input_tokens * table.batch_of_prefills()
    prefill = robust_fit(
        Rows(np.stack([ones, product], axis=2), table.prefill_ms, zeros, weights), priors.prefill
    )
    gamma, delta = prefill.coefficients.T[..., None]
    others = gamma + delta * table.input_tokens * (table.batch + 1.0)
    waits = interference_ms(table.batch, others, table.output_tokens)
    rows = Rows(np.stack([ones, table.batch], axis=2), table.itl_ms, waits, weights)
    decode = robust_fit(rows, priors.decode)
    mixed = np.flatnonzero(falls(decode))
    share = np.ones(len(weights))
    if mixed.size:
        with_waits = Rows(rows.design[mixed], rows.response[mixed], zeros[mixed], weights[mixed])
        decode = decode.replaced(mixed, robust_fit(with_waits, priors.take(mixed).decode))
        share[mixed] = 0.0
    return Fit(decode, prefill, weights, share, np.zeros(len(weights), dtype=np.bool_))


def _fit_of_clients(table: WindowTable, weights: FloatArray, priors: Priors) -> Fit:
    believed = Prior(
        np.concatenate([priors.decode.mean, priors.prefill.mean], axis=1),
        np.concatenate([priors.decode.precision, priors.prefill.precision], axis=1),
    )
    decode, prefill = fit_clients(table, weights, believed)
    ones = np.ones(len(weights))
    return Fit(decode, prefill, weights, ones, ones.astype(np.bool_))


def falls(line: Estimate) -> BoolArray:
    """Whether a line has a negative slope, not only an uncertain one; shape (groups,)."""
    return np.asarray(line.free[:, 1] < -NEGATIVE * line.errors[:, 1])


Numbers = TypeVar("Numbers", float, FloatArray)


def interference_ms(batch: Numbers, prefill_ms: Numbers, output_tokens: Numbers) -> Numbers:
    """Time that a decode step waits for prefills of other requests [ms].

    Parameters
    ----------
    batch
        Requests in the batch.
    prefill_ms
        Time of a prefill in a batch that is larger by one [ms].
    output_tokens
        Mean output tokens of a request, more than 1.
    """
    return (batch - 1.0) * prefill_ms / (output_tokens - 1.0)
