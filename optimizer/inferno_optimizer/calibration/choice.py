"""Which law describes the runs: lines (generation 2), or steps that mix prefill and decode (4).

Both are fitted to the same runs; the one that is closer to them is chosen. Each run is judged, not
their median: a run that is far from the law that fits the others is named.
"""

from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from inferno_optimizer.calibration.calibrate import Calibration
from inferno_optimizer.calibration.clients import client_factors
from inferno_optimizer.calibration.fit import interference_ms
from inferno_optimizer.calibration.steps import StepFit, fit_steps
from inferno_optimizer.calibration.verdict import Facts
from inferno_optimizer.sizing.queueing import FloatArray

LARGEST_DISTANCE = 0.1
"""Mean distance of the runs above which the steps do not describe an engine."""

MOST_COUNTED = 0.3
"""Distance that counts at most, so that one bad run does not decide."""

LEAST_MS = 1e-6
"""Least time that a law predicts, so that distances are finite [ms]."""

NAMED = 0.2
"""Distance from which a run is named."""


@dataclass(frozen=True, slots=True)
class Distances:
    """How far each run is from a law, relatively: (measured - fitted) / fitted."""

    itl: FloatArray
    ttft: FloatArray
    weights: FloatArray

    @property
    def mean(self) -> float:
        """Mean distance, without signs; a single one counts at most `MOST_COUNTED`."""
        both = np.minimum(np.abs(np.stack((self.itl, self.ttft))), MOST_COUNTED)
        return float(np.average(both.mean(axis=0), weights=self.weights))

    @property
    def far(self) -> list[int]:
        """Positions of the runs that are far from the law."""
        worst = np.maximum(np.abs(self.itl), np.abs(self.ttft))
        return [int(place) for place in np.flatnonzero(worst > NAMED)]


@dataclass(frozen=True, slots=True)
class Laws:
    """Both laws of the same runs; no steps if the runs do not determine them."""

    lines: Calibration
    from_lines: Distances
    steps: StepFit | None
    from_steps: Distances | None

    @property
    def chosen_steps(self) -> StepFit | None:
        """The steps, if they describe the runs and do so better than the lines."""
        if self.from_steps is None or self.from_steps.mean > LARGEST_DISTANCE:
            return None
        better = self.from_steps.mean < self.from_lines.mean
        return self.steps if better or not self.lines.reason.usable else None

    @property
    def distances(self) -> Distances:
        """How far the runs are from the chosen law."""
        chosen = self.from_steps if self.chosen_steps else None
        return chosen or self.from_lines


def laws(lines: Calibration, budget: float, *, of_clients: bool) -> Laws:
    """Both laws of the windows that a calibration has used.

    Parameters
    ----------
    lines
        The calibration. If it refuses the windows themselves, and not only their lines, there are
        no steps either, but for runs with a fixed number of clients, which are few and chosen.
    budget
        Most tokens that a step of the engine computes; 0: any number.
    of_clients
        Whether each window is a run with a fixed number of clients.
    """
    steps = None
    if of_clients or lines.reason.has_evidence:
        steps = fit_steps(lines.used, budget, lines.weights, of_clients=of_clients)
    weights = np.array(lines.weights)
    from_steps = Distances(np.array(steps.itl), np.array(steps.ttft), weights) if steps else None
    return Laws(lines, _from_lines(lines, weights), steps, from_steps)


def _from_lines(lines: Calibration, weights: FloatArray) -> Distances:
    names = ("batch", "input_tokens", "output_tokens", "itl_ms", "prefill_ms")
    columns = np.array([attrgetter(*names)(window) for window in lines.used]).reshape(-1, 5)
    *requests, itl, ttft = columns.T
    expected = expected_ms(lines.facts, *requests)
    of_itl, of_ttft = (
        measured / np.maximum(fitted, LEAST_MS) - 1.0
        for measured, fitted in zip((itl, ttft), expected, strict=True)
    )
    return Distances(of_itl, of_ttft, weights)


def expected_ms(
    facts: Facts, batch: FloatArray, input_tokens: FloatArray, output_tokens: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """ITL and TTFT of runs by the fitted lines [ms]; see `line_factors`."""
    decode, prefill = facts.decode, facts.prefill
    lines = np.array([decode.intercept, decode.slope, prefill.intercept, prefill.slope])
    itl, ttft = line_factors(facts, batch, input_tokens, output_tokens)
    return itl @ lines, ttft @ lines


def line_factors(
    facts: Facts, batch: FloatArray, input_tokens: FloatArray, output_tokens: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Factors of alpha, beta, gamma and delta in the ITL and in the TTFT of runs.

    Parameters
    ----------
    facts
        The lines, which say what waits the times have.
    batch, input_tokens, output_tokens
        The batch of each run and the mean tokens of its requests; output tokens are more than 1.

    Returns
    -------
    Two arrays of shape (runs, 4).
    """
    if facts.clients:
        return client_factors(batch, input_tokens, output_tokens)
    one, zero = np.ones_like(batch), np.zeros_like(batch)
    waits = facts.waits_apart * interference_ms(batch, one, output_tokens)
    itl = (one, batch, waits, waits * input_tokens * (batch + 1.0))
    return np.stack(itl, axis=1), np.stack((zero, zero, one, input_tokens * batch), axis=1)
