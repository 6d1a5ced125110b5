"""Which law describes the runs: lines (generation 2), or steps that mix prefill and decode (4).

Both are fitted to the same runs; the one that is closer to them is chosen. Each run is judged, not
their median: a run that is far from the law that fits the others is named.
"""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.calibration.calibrate import Calibration
from inferno_optimizer.calibration.fit import interference_ms
from inferno_optimizer.calibration.steps import StepFit, fit_steps
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
    facts, itl, ttft = lines.facts, [], []
    for window in lines.used:
        prefill = facts.prefill.at(window.input_tokens * window.batch)
        others = facts.prefill.at(window.input_tokens * (window.batch + 1.0))
        waits = interference_ms(window.batch, others, window.output_tokens)
        step = facts.decode.at(window.batch) + facts.waits_apart * waits
        itl.append(window.itl_ms / max(step, LEAST_MS) - 1.0)
        ttft.append(window.prefill_ms / max(prefill, LEAST_MS) - 1.0)
    return Distances(np.array(itl), np.array(ttft), weights)
