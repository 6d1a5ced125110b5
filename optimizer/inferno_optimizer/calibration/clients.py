"""What clients see of an engine whose prefills are steps of their own.

Each of n clients asks again when it has its answer. An answer of varied length ends with a decode
step with probability p = 1 / (k - 1). Its client's next request comes when a step has just begun,
and waits for that step: a decode step of those that go on, or a prefill of others. So prefills
come in trains: of the J requests that end with the first decode step that ends any, and of those
that end with the next one, in which the J wait. J is binomial, given that it is not 0.

With a other prefills before its own in the train of a request, and as many after it,

    ITL  = alpha + beta m + (n - 1 - a) / (k - 1) prefill
    TTFT = q (alpha + beta m') + (1 + a) prefill,   prefill = gamma + delta h (n - a),

because each other client has one prefill while a request comes and goes; m is the batch of a
decode step, q is how many decode steps the request waits for, and m' their batch.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from inferno_optimizer.calibration.regression import (
    Estimate,
    Prior,
    Rows,
    condition_numbers,
    mean_residual,
    robust_fit,
)
from inferno_optimizer.calibration.windows import WindowTable
from inferno_optimizer.sizing.queueing import FloatArray

ROUNDS = 3
LEAST_ERROR = 1e-3
"""Fits by which the relative errors of both kinds of times are found, and the least error."""


@dataclass(frozen=True, slots=True)
class ClientWaits:
    """What a request of one of n clients meets; all arrays have the same shape.

    Attributes
    ----------
    prefills
        Prefills of others before its own, a above.
    steps, waited_batch
        Decode steps that it waits for, at most 1, and their requests, q and q m' above.
    batch
        Requests in a decode step, as a token sees it, m above.
    """

    prefills: FloatArray
    steps: FloatArray
    waited_batch: FloatArray
    batch: FloatArray

    @classmethod
    def of(cls, clients: FloatArray, output_tokens: FloatArray) -> Self:
        """From the number of clients and the mean output tokens of a request."""
        n, p = clients, np.minimum(1.0 / (output_tokens - 1.0), 1.0)
        some = 1.0 - (1.0 - p) ** n
        first = n * p / some
        square = n * p * (1.0 - p + n * p) / some
        train = first + p * (n - first)
        left = n * n - 2.0 * n * first + square  # mean square of those that go on
        pairs = square - first + 2.0 * p * (n * first - square) + p**2 * (left - (n - first))
        every = n * p**n / some  # ... of trains of all requests, before which no step runs
        return cls(
            prefills=pairs / (2.0 * train),
            steps=(first - every) / train,
            waited_batch=(n * first - square) / train,
            batch=(n * n / some + left) / (n / some + n - first),
        )


def client_factors(
    clients: FloatArray, input_tokens: FloatArray, output_tokens: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Factors of alpha, beta, gamma and delta in the ITL and in the TTFT.

    Parameters
    ----------
    clients
        Number of clients, at least 1.
    input_tokens, output_tokens
        Mean tokens of a request; output tokens are more than 1.

    Returns
    -------
    Two arrays of shape (..., 4).
    """
    waits = ClientWaits.of(clients, output_tokens)
    tokens = input_tokens * (clients - waits.prefills)
    between = (clients - 1.0 - waits.prefills) / (output_tokens - 1.0)
    before = 1.0 + waits.prefills
    itl = (np.ones_like(clients), waits.batch, between, between * tokens)
    ttft = (waits.steps, waits.waited_batch, before, before * tokens)
    return np.stack(itl, axis=-1), np.stack(ttft, axis=-1)


def fit_clients(table: WindowTable, weights: FloatArray, prior: Prior) -> tuple[Estimate, Estimate]:
    """Fit both lines of each group; of ITL and TTFT, the one that varies more counts less.

    Parameters
    ----------
    table
        Runs, whose batch is the number of clients.
    weights
        Of each run; shape (groups, runs).
    prior
        What is believed of alpha, beta, gamma and delta.

    Returns
    -------
    The lines of decode steps, with the residuals of the ITL, and of prefills, with those of TTFT.
    """
    factors = client_factors(table.batch, table.input_tokens, table.output_tokens)
    times = (table.itl_ms, table.prefill_ms)
    design, response = np.concatenate(factors, axis=1), np.concatenate(times, axis=1)
    counted = [weights, weights]
    for _ in range(ROUNDS):
        rows = Rows(design, response, np.zeros_like(response), np.concatenate(counted, axis=1))
        both = robust_fit(rows, prior)
        halves = np.split(both.residuals, 2, axis=1)
        errors = [np.maximum(mean_residual(half, weights), LEAST_ERROR) for half in halves]
        least = np.minimum(*errors)
        counted = [weights * (least / error)[:, None] ** 2 for error in errors]
    decode, prefill = (_line(both, rows, number) for number in range(2))
    return decode, prefill


def _line(both: Estimate, rows: Rows, number: int) -> Estimate:
    """One of the two lines: the first, or the second half of coefficients and rows."""
    own = slice(2 * number, 2 * number + 2)
    columns = (rows.design[..., own], rows.weights, rows.response, both.residuals)
    design, weights, response, residuals = (np.split(c, 2, axis=1)[number] for c in columns)
    return Estimate(
        both.coefficients[:, own],
        both.free[:, own],
        both.covariance[:, own, own],
        residuals,
        both.scale,
        condition_numbers(design * (np.sqrt(weights) / response)[..., None]),
    )
