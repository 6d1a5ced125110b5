"""Chooses the run of a benchmark that tells most about parameters not known well yet; pure.

The first runs have the fewest and the most clients and some between, and each kind of requests
once. Each later one is the run that narrows the parameters most: it makes the determinant of
their information largest [Fedorov, Theory of Optimal Experiments, 1972], as far as the runs made
so far tell which times it will have.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from inferno_optimizer.calibration.calibrate import Evidence, calibrate
from inferno_optimizer.calibration.choice import Laws, expected_ms, laws, line_factors
from inferno_optimizer.calibration.steps import LENGTH_COV, sensitivities
from inferno_optimizer.calibration.verdict import Facts
from inferno_optimizer.calibration.windows import RUNS, Window
from inferno_optimizer.sizing.performance import Requests
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.sizing.step_model import StepModel
from inferno_optimizer.system import StepParameters

FIRST_SHARES = (0.0, 1.0, 0.5, 0.75, 0.25)
"""Clients of the first runs, between one and the most, on a logarithmic scale."""

OTHER_SHARE = 0.5
"""The same of the first run with each other kind of requests."""

LEAST_GAIN = 0.3
"""Growth of the logarithm of the determinant below which another run is not worth its time."""

UNKNOWN = 1e-6
"""What is known of each parameter before, relative to what the runs tell of it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of requests, by their mean lengths [tokens]."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trial:
    """A run: so many clients, each of which waits for its answer, and what they ask for."""

    clients: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class Scope:
    """What may be measured.

    Attributes
    ----------
    shapes
        The kinds of requests, the most usual one first.
    most_clients
        The most clients of a run.
    budget
        Most tokens that a step of the engine computes; 0: any number.
    """

    shapes: Sequence[Shape]
    most_clients: int
    budget: float = 0.0

    @property
    def first(self) -> list[Trial]:
        """The runs to begin with."""
        usual, *others = self.shapes
        runs = [Trial(self._clients(share), usual) for share in FIRST_SHARES]
        runs += [Trial(self._clients(OTHER_SHARE), shape) for shape in others]
        return list(dict.fromkeys(runs))

    @property
    def candidates(self) -> list[Trial]:
        """All runs that may help, at numbers of clients that double."""
        doubled = [2**power for power in range(self.most_clients.bit_length())]
        clients = sorted({*doubled, self.most_clients})
        return [Trial(number, shape) for shape, number in product(self.shapes, clients)]

    def _clients(self, share: float) -> int:
        return round(math.pow(self.most_clients, share))


def next_trial(scope: Scope, made: Sequence[Trial], windows: Sequence[Window]) -> Trial | None:
    """The run that helps most; None if no further one helps.

    Parameters
    ----------
    scope
        What may be measured.
    made, windows
        The runs that were made, and what was measured in those that succeeded.
    """
    for trial in scope.first:
        if trial not in made:
            return trial
    if not windows:
        return None
    (lines,) = calibrate([Evidence(windows, of_clients=True)], 0.0, RUNS)
    fitted = laws(lines, scope.budget, of_clients=True)
    gains = _gains(fitted, windows, scope.candidates)
    best = int(np.argmax(gains))
    return scope.candidates[best] if gains[best] >= LEAST_GAIN else None


def _gains(fitted: Laws, windows: Sequence[Window], candidates: Sequence[Trial]) -> FloatArray:
    """Growth of the logarithm of the determinant by each candidate."""
    if (fit := fitted.chosen_steps) is not None:
        expected = [_expected_of_steps(fit.parameters, trial) for trial in candidates]
        known, new = (sensitivities(ws, fit.parameters) for ws in (windows, expected))
    else:
        facts = fitted.lines.facts
        expected = [_expected_of_lines(facts, trial) for trial in candidates]
        known, new = (_sensitivities_of_lines(facts, ws) for ws in (windows, expected))
    rows = np.concatenate(known)
    scale = np.maximum(np.sqrt((rows**2).sum(axis=0)), np.finfo(np.float64).tiny)
    information = (rows / scale).T @ (rows / scale) + UNKNOWN * np.eye(len(scale))
    added = np.swapaxes(new, 0, 1) / scale
    narrowed = added @ np.linalg.inv(information) @ np.swapaxes(added, 1, 2)
    return np.asarray(np.linalg.slogdet(np.eye(2) + narrowed)[1])


def _expected_of_steps(parameters: StepParameters, trial: Trial) -> Window:
    one, shape = np.ones(1, np.int64), trial.shape
    requests = Requests(
        batch=trial.clients * one,
        tokens=shape.output_tokens * one,
        input_tokens=shape.input_tokens * one,
        max_queue_size=0 * one,
        arrival_cov=np.ones(1),
        length_cov=np.full(1, LENGTH_COV),
        computed_tokens=shape.input_tokens * one,
        tokens_per_step=np.ones(1),
    )
    model = StepModel.of([parameters], 0 * one, requests)
    clients, (stay,) = float(trial.clients), model.full_ms
    rate = np.array([(clients - 1.0) / stay])
    (itl,) = model.decode_step_ms(np.array([clients]), rate, of_clients=True).tolist()
    return _window(trial, itl, stay - (shape.output_tokens - 1.0) * itl)


def _expected_of_lines(facts: Facts, trial: Trial) -> Window:
    outputs = max(trial.shape.output_tokens, 2.0)
    lengths = (float(trial.clients), float(trial.shape.input_tokens), outputs)
    itl, ttft = expected_ms(facts, *(np.array([length]) for length in lengths))
    return _window(trial, float(itl[0]), float(ttft[0]))


def _window(trial: Trial, itl_ms: float, ttft_ms: float) -> Window:
    tiny = np.finfo(np.float64).tiny
    return Window(
        end=0.0,
        itl_ms=max(itl_ms, tiny),
        intervals=np.inf,
        batch=float(trial.clients),
        prefill_ms=max(ttft_ms, tiny),
        prefills=np.inf,
        input_tokens=float(trial.shape.input_tokens),
        output_tokens=float(trial.shape.output_tokens),
    )


def _sensitivities_of_lines(facts: Facts, windows: Sequence[Window]) -> FloatArray:
    """The same as `sensitivities`, of alpha, beta, gamma and delta."""
    columns = [(w.batch, w.input_tokens, w.output_tokens, w.itl_ms, w.prefill_ms) for w in windows]
    batch, inputs, outputs, itl, ttft = np.array(columns).T
    decode, prefill = line_factors(facts, batch, inputs, outputs)
    return np.stack((decode / itl[:, None], prefill / ttft[:, None]))
