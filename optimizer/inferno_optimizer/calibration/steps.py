"""Fits the parameters of generation 4, the steps of an engine that mixes prefill and decode.

Runs with a fixed number of clients, each of which waits for its answer, determine all of them by
one linear regression: with n clients, C = TTFT + (k - 1) ITL and x = (n - 1) / C, the formulas of
`sizing.step_law` are linear in the parameters once ITL and TTFT are measured,

    ITL                = D + E P(a step has a prefill) + x ITL delta h
    TTFT - [n > 1] ITL = ahead ITL + steps of the prompt (D + E) + delta h (1 + x ITL + ...),

because a client's next request comes when a step has just begun, so that it waits for a whole one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.calibration.regression import Prior, Rows, robust_fit
from inferno_optimizer.calibration.windows import Window
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.sizing.step_law import MOST_BUSY, Lengths, mixed_share
from inferno_optimizer.system import StepParameters

LENGTH_COV = 0.29
"""Coefficient of variation of the lengths in benchmark runs: uniform, half to one and a half."""

OVERHEADS = np.arange(0.0, 513.0, 32.0)
"""Overheads that are tried [tokens]: at most two blocks of 256."""

LEAST_SPREAD = 1.5
"""Longest context of the runs, relative to the shortest, from which the overhead shows."""

ITERATIONS = 6
"""Fits in turn with the steps ahead, which are a factor of the others."""

FEWEST = 4
"""Runs at different concurrencies that are needed."""

REACH = 2.0
"""How far beyond the lengths of the runs the parameters hold, as a factor."""


@dataclass(frozen=True, slots=True)
class StepFit:
    """Parameters of generation 4, and how far each run is from them.

    Attributes
    ----------
    parameters
        What fits best.
    errors
        Standard errors of alpha, kappa, delta, u and ahead.
    itl, ttft
        Relative residual of each run, (measured - fitted) / fitted.
    inputs, outputs
        Least and most mean input and output tokens of the runs.
    """

    parameters: StepParameters
    errors: tuple[float, ...]
    itl: tuple[float, ...]
    ttft: tuple[float, ...]
    inputs: tuple[float, float]
    outputs: tuple[float, float]

    @property
    def reach(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Input tokens and output tokens for which the parameters hold."""
        (least_in, most_in), (least_out, most_out) = self.inputs, self.outputs
        return (least_in / REACH, most_in * REACH), (least_out / REACH, most_out * REACH)


def fit_steps(windows: Sequence[Window], budget: float) -> StepFit | None:
    """Fit runs with a fixed number of clients; None if there are too few concurrencies.

    Parameters
    ----------
    windows
        The runs.
    budget
        Most tokens that a step computes.
    """
    if len({window.batch for window in windows}) < FEWEST:
        return None
    runs = _Runs.of(windows, budget)
    tried = OVERHEADS if runs.spread >= LEAST_SPREAD else OVERHEADS[:1]
    ahead = np.ones(len(tried))
    for _ in range(ITERATIONS):
        rows = runs.rows(tried, ahead)
        found = robust_fit(rows, _nothing_known(len(tried)))
        ahead = found.coefficients[:, -1]
    best = int(np.argmin(np.mean(found.residuals**2, axis=1)))
    itl, ttft = np.split(found.residuals[best], 2)
    alpha, kappa, delta, extra, ahead_of = found.coefficients[best].tolist()
    return StepFit(
        StepParameters(alpha, kappa, delta, extra, ahead_of, budget, float(tried[best])),
        tuple(found.errors[best].tolist()),
        tuple(itl.tolist()),
        tuple(ttft.tolist()),
        (min(w.input_tokens for w in windows), max(w.input_tokens for w in windows)),
        (min(w.output_tokens for w in windows), max(w.output_tokens for w in windows)),
    )


def _nothing_known(groups: int) -> Prior:
    return Prior(np.zeros((groups, 5)), np.zeros((groups, 5)))


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs as arrays: clients, ITL and TTFT [ms], and lengths."""

    clients: FloatArray
    itl: FloatArray
    ttft: FloatArray
    lengths: Lengths

    @classmethod
    def of(cls, windows: Sequence[Window], budget: float) -> "_Runs":
        clients, itl, ttft, inputs, outputs = np.array(
            [(w.batch, w.itl_ms, w.prefill_ms, w.input_tokens, w.output_tokens) for w in windows]
        ).T
        same = np.ones_like(clients)
        lengths = Lengths(inputs, outputs, LENGTH_COV * same, budget * same)
        return cls(clients, itl, ttft, lengths)

    @property
    def spread(self) -> float:
        """Longest context, relative to the shortest."""
        return float(self.lengths.context.max() / self.lengths.context.min())

    def rows(self, overhead: FloatArray, ahead: FloatArray) -> Rows:
        """The regression, a group for each overhead and steps ahead; relative residuals."""
        groups = [self._group(*pair) for pair in zip(overhead, ahead, strict=True)]
        response = np.concatenate((self.itl, self.ttft))
        whole = np.where(self.clients > 1, self.itl, 0.0)
        offset = np.concatenate((np.zeros_like(whole), whole))
        shape = (len(groups), len(response))
        return Rows(
            np.stack(groups),
            np.broadcast_to(response, shape),
            np.broadcast_to(offset, shape),
            np.ones(shape),
        )

    def _group(self, overhead: float, ahead: float) -> FloatArray:
        """Factors of alpha, kappa, delta, u and ahead in the ITL, then in the TTFT, of each run."""
        n, itl, lengths = self.clients, self.itl, self.lengths
        h, chunks, alone = lengths.input_tokens, lengths.chunks, lengths.alone
        rate = (n - 1.0) / (self.ttft + (lengths.output_tokens - 1.0) * itl)
        cached = lengths.decoding(np.full_like(n, ahead)) * (lengths.context + overhead)
        mixed = mixed_share(alone, rate * chunks * itl)
        one, zero, others = np.ones_like(n), np.zeros_like(n), rate * itl
        busy = np.minimum(others * lengths.budget_share, MOST_BUSY)
        wait = alone * busy * chunks * (1.0 + lengths.cov**2) / (2.0 * (1.0 - busy))
        steps, met = chunks + wait, cached * (n - 1.0)
        prompts = h * (1.0 + others * (1.0 - alone) + wait / chunks)
        between = (one, cached * n, others * h, mixed * cached * n, zero)
        first = (steps, steps * met, prompts, steps * met, itl)
        return np.concatenate((np.stack(between, axis=1), np.stack(first, axis=1)))
