"""Fits the parameters of generation 4, the steps of an engine that mixes prefill and decode.

Runs with a fixed number of clients, each of which waits for its answer, determine all of them by
one linear regression: with n clients, C = TTFT + (k - 1) ITL and x = (n - 1) / C, the formulas of
`sizing.step_law` are linear in the parameters once ITL and TTFT are measured,

    ITL                = D + E P(a step has a prefill) + x ITL delta h
    TTFT - [n > 1] ITL = ahead ITL + steps of the prompt (D + E) + delta h (1 + x ITL + ...),

because a client's next request comes when a step has just begun, so that it waits for a whole one.

Replicas that serve users tell the time from the first step of a request on, without the step that
it meets, and the batch is the number of requests that decode: x = (n - 1) / ((k - 1) ITL).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from inferno_optimizer.calibration.confidence import Z
from inferno_optimizer.calibration.regression import Estimate, Prior, Rows, robust_fit
from inferno_optimizer.calibration.windows import Window
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.sizing.step_law import MOST_BUSY, Lengths, mixed_share
from inferno_optimizer.system import StepParameters

LENGTH_COV = 0.29
"""Coefficient of variation of the lengths in benchmark runs: uniform, half to one and a half."""

UNKNOWN_COV = 1.0
"""The same of users' requests, as in sizing where a load does not tell it."""

OVERHEADS = np.arange(0.0, 1025.0, 32.0)
"""Overheads that are tried [tokens]."""

MOST_COUNTED = 0.1
"""Residual that counts at most in the choice of the overhead, so that no bad run decides."""

LEAST_SPREAD = 1.5
"""Longest context of the runs, relative to the shortest, from which the overhead shows."""

ITERATIONS = 6
"""Fits in turn with the steps ahead, which are a factor of the others."""

FEWEST = 4
"""Runs at different concurrencies that are needed."""

REACH = 2.0
"""How far beyond the lengths of the runs the parameters hold, as a factor."""


DOUBTFUL = 0.5
"""Standard error of a parameter, relative to its value, above which it is hardly known."""

SLIGHT = 0.05
"""Share of all times below which it does not matter that a parameter is hardly known."""

FITTED = ("alpha", "kappa", "delta", "u", "ahead")
"""The parameters that are fitted, in the order of the columns."""


@dataclass(frozen=True, slots=True)
class HardlyKnown:
    """A parameter that the runs hardly tell: its standard error, relative to its value.

    `share` is the largest share of a fitted time that it has.
    """

    name: str
    error: float
    share: float


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
    doubt
        Largest relative standard error of a fitted time.
    shares
        Largest share of a fitted time that alpha, kappa, delta, u and ahead have.
    """

    parameters: StepParameters
    errors: tuple[float, ...]
    itl: tuple[float, ...]
    ttft: tuple[float, ...]
    doubt: float
    shares: tuple[float, ...]

    @property
    def hardly_known(self) -> tuple[HardlyKnown, ...]:
        """The parameters that matter, and have a standard error above `DOUBTFUL`."""
        values = [getattr(self.parameters, name) for name in FITTED]
        return tuple(
            HardlyKnown(name, error / value, share)
            for name, value, error, share in zip(
                FITTED, values, self.errors, self.shares, strict=True
            )
            if error > DOUBTFUL * value > 0 and share > SLIGHT
        )

    @property
    def upper(self) -> StepParameters:
        """The parameters with all times at the upper confidence of 90 %."""
        slower, best = 1.0 + Z * self.doubt, self.parameters
        return replace(
            best,
            alpha=best.alpha * slower,
            kappa=best.kappa * slower,
            delta=best.delta * slower,
            u=best.u * slower,
        )


def fit_steps(
    windows: Sequence[Window],
    budget: float,
    weights: Sequence[float] | None = None,
    *,
    of_clients: bool = True,
) -> StepFit | None:
    """Fit the steps; None if there are too few concurrencies, or a time comes out as nothing.

    Parameters
    ----------
    windows
        Runs with a fixed number of clients, or replicas that serve users.
    budget
        Most tokens that a step computes; 0: any number.
    weights
        How much each window counts; None: all the same.
    of_clients
        Whether they are runs with a fixed number of clients.
    """
    if len({window.batch for window in windows}) < FEWEST:
        return None
    counted = np.ones(len(windows)) if weights is None else np.array(weights, dtype=np.float64)
    runs = _Runs.of(windows, budget, counted, of_clients=of_clients)
    tried = OVERHEADS if runs.spread >= LEAST_SPREAD else OVERHEADS[:1]
    ahead = np.ones(len(tried))
    for _ in range(ITERATIONS):
        rows = runs.rows(tried, ahead)
        estimate = robust_fit(rows, _nothing_known(len(tried)))
        ahead = estimate.coefficients[:, -1]
    counted = np.minimum(np.abs(estimate.residuals), MOST_COUNTED)
    best = int(np.argmin(np.mean(counted**2, axis=1)))
    if (_fitted(rows, estimate, best)[rows.used[best]] <= 0).any():
        return None
    itl, ttft = np.split(estimate.residuals[best], 2)
    alpha, kappa, delta, extra, ahead_of = estimate.coefficients[best].tolist()
    inputs, outputs = (_reach(column) for column in (runs.prompts, runs.lengths.output_tokens))
    return StepFit(
        StepParameters(
            alpha, kappa, delta, extra, ahead_of, budget, float(tried[best]), *inputs, *outputs
        ),
        tuple(estimate.errors[best].tolist()),
        tuple(itl.tolist()),
        tuple(ttft.tolist()),
        _doubt(rows, estimate, best),
        tuple(_shares(rows, estimate, best).tolist()),
    )


def sensitivities(windows: Sequence[Window], parameters: StepParameters) -> FloatArray:
    """How much ITL and TTFT of runs with clients grow with each parameter, relatively.

    Returns
    -------
    FloatArray
        Derivatives by alpha, kappa, delta, u and ahead; shape (2, runs, 5).
    """
    runs = _Runs.of(windows, parameters.budget, np.ones(len(windows)), of_clients=True)
    rows = runs.rows(np.array([parameters.overhead]), np.array([parameters.ahead]))
    relative = rows.design[0] / rows.response[0][:, None]
    return np.stack(np.split(relative, 2))


def _reach(tokens: FloatArray) -> tuple[int, int]:
    """Least and most mean tokens of requests for which parameters from such runs hold."""
    return round(tokens.min() / REACH), round(tokens.max() * REACH)


def _fitted(rows: Rows, estimate: Estimate, group: int) -> FloatArray:
    """The times that were fitted in a group [ms]."""
    return np.asarray(rows.offset[group] + rows.design[group] @ estimate.coefficients[group])


def _shares(rows: Rows, estimate: Estimate, group: int) -> FloatArray:
    """Largest share of the times that were fitted in a group that each coefficient has."""
    parts = rows.design[group] * estimate.coefficients[group]
    used = rows.used[group]
    return np.asarray(np.max(parts[used] / _fitted(rows, estimate, group)[used, None], axis=0))


def _doubt(rows: Rows, estimate: Estimate, group: int) -> float:
    """Largest relative standard error of the times that were fitted in a group."""
    design, used = rows.design[group], rows.used[group]
    fitted = _fitted(rows, estimate, group)
    variance = np.einsum("ri,ij,rj->r", design, estimate.covariance[group], design)
    return float(np.max(np.sqrt(np.maximum(variance, 0.0))[used] / fitted[used]))


def _nothing_known(groups: int) -> Prior:
    return Prior(np.zeros((groups, 5)), np.zeros((groups, 5)))


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs as arrays: batch, times of a step and to the first token [ms], lengths and weights.

    The batch is that of clients who wait for their answers, or of requests that decode. Of the
    `prompts`, the input tokens in `lengths` are not in a cache.
    """

    batch: FloatArray
    itl: FloatArray
    ttft: FloatArray
    lengths: Lengths
    prompts: FloatArray
    weights: FloatArray
    of_clients: bool

    @classmethod
    def of(
        cls, windows: Sequence[Window], budget: float, weights: FloatArray, *, of_clients: bool
    ) -> "_Runs":
        names = ("batch", "itl_ms", "prefill_ms", "input_tokens", "output_tokens")
        batch, itl, ttft, inputs, outputs, prompts, per_step = np.array(
            [attrgetter(*names, "prompt_tokens", "tokens_per_step")(w) for w in windows]
        ).T
        cov = np.full_like(batch, LENGTH_COV if of_clients else UNKNOWN_COV)
        lengths = Lengths(inputs, outputs, cov, np.full_like(batch, budget), per_step)
        return cls(batch, itl * per_step, ttft, lengths, prompts, weights, of_clients)

    @property
    def spread(self) -> float:
        """Longest context, relative to the shortest."""
        return float(self.context.max() / self.context.min())

    @property
    def context(self) -> FloatArray:
        """Mean tokens in the cache of a decoding request."""
        return self.lengths.context + (self.prompts - self.lengths.input_tokens)

    def rows(self, overhead: FloatArray, ahead: FloatArray) -> Rows:
        """The regression, a group for each overhead and steps ahead; relative residuals."""
        groups = [self._group(*pair) for pair in zip(overhead, ahead, strict=True)]
        response = np.concatenate((self.itl, self.ttft))
        whole = np.where(self.of_clients & (self.batch > 1), self.itl, 0.0)
        offset = np.concatenate((np.zeros_like(whole), whole))
        shape = (len(groups), len(response))
        return Rows(
            np.stack(groups),
            np.broadcast_to(response, shape),
            np.broadcast_to(offset, shape),
            np.broadcast_to(np.concatenate((self.weights, self.weights)), shape),
        )

    @property
    def _rate(self) -> FloatArray:
        """Rate at which other requests come [requests/ms]."""
        waiting = self.ttft if self.of_clients else 0.0
        return (self.batch - 1.0) / (waiting + self.lengths.decode_steps * self.itl)

    def _decoding(self, ahead: float) -> FloatArray:
        """Share of the batch that decodes."""
        if not self.of_clients:
            return np.ones_like(self.batch)
        return self.lengths.decoding(np.full_like(self.batch, ahead))

    def _longer(self, steps: FloatArray, ahead: float) -> FloatArray:
        """How much longer than mean steps those of a prompt are, for each step of the answer [ms].

        Prompts that come in that time are computed while a request decodes, see `StepLaw`.
        """
        if not self.of_clients:
            return np.zeros_like(self.batch)
        before = np.where(self.batch > 1, 1.0, 0.0) + ahead + steps
        longer = np.maximum(self.ttft - before * self.itl, 0.0)
        return np.asarray(longer / np.maximum(self.lengths.decode_steps, 1.0))

    def _group(self, overhead: float, ahead: float) -> FloatArray:
        """Factors of alpha, kappa, delta, u and ahead in the ITL, then in the TTFT, of each run."""
        n, itl, lengths, rate = self.batch, self.itl, self.lengths, self._rate
        h, chunks, alone = lengths.input_tokens, lengths.chunks, lengths.alone
        cached = self._decoding(ahead) * (self.context + overhead)
        one, zero, others = np.ones_like(n), np.zeros_like(n), rate * itl
        busy = np.minimum(others * lengths.budget_share, MOST_BUSY)
        wait = alone * busy * chunks * (1.0 + lengths.cov**2) / (2.0 * (1.0 - busy))
        steps, met = chunks + wait, cached * (n - 1.0)
        prompts = h * (1.0 + others * (1.0 - alone) + wait / chunks)
        others_met = others + rate * self._longer(steps, ahead)
        mixed = mixed_share(alone, others_met * chunks)
        between = (one, cached * n, others_met * h, mixed * cached * n, zero)
        first = (steps, steps * met, prompts, steps * met, itl)
        return np.concatenate((np.stack(between, axis=1), np.stack(first, axis=1)))
