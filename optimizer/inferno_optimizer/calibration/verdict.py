"""Decides whether fitted lines may be used; and if not, says why and what would help."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, isnan, nan, sqrt

from inferno_optimizer.calibration.fit import NEGATIVE
from inferno_optimizer.calibration.windows import Requirements
from inferno_optimizer.units import SECONDS_PER_MINUTE

LARGEST_CONDITION = 20.0
SMALLEST_SPREAD = 1.5
"""The 95 % quantile of the batches must be this many times the 5 % quantile."""

LARGEST_RESIDUAL = 0.15
STEADY_RESIDUAL = 0.03
"""Median relative residual of both lines below which fewer windows are enough."""

EXTRAPOLATION = 1.5
"""Largest batch of a replica, in largest batches seen, up to which a line is trusted."""

FARTHER = 4
"""A run that helps has this many times the batch or the input tokens, where no limit is known."""

LONG_PROMPT = 1000.0
"""Input tokens above which a run that helps has fewer: engines limit the length of a prompt."""


class CalibrationReason(StrEnum):
    """The result of a calibration; all but the first two refuse it."""

    CALIBRATED = "Calibrated"
    """The parameters may be used."""
    EXTRAPOLATING = "Extrapolating"
    """They may be used, but the largest batch is far beyond what was seen."""
    NOT_ENOUGH_DATA = "NotEnoughData"
    """Too few windows."""
    MIXED = "Mixed"
    """Replicas of two pod templates run."""
    SHIFTED = "Shifted"
    """The engine became slower or faster, and there are too few windows since."""
    NO_SPREAD = "NoSpread"
    """All windows have nearly the same batch, so that many lines fit."""
    NEGATIVE_SLOPE = "NegativeSlope"
    """The latency falls with the batch."""
    POOR_FIT = "PoorFit"
    """The windows do not lie near a line."""

    @property
    def usable(self) -> bool:
        """Whether the parameters may be used."""
        return self in (CalibrationReason.CALIBRATED, CalibrationReason.EXTRAPOLATING)

    @property
    def has_evidence(self) -> bool:
        """Whether there are enough windows, even if they do not lie on lines."""
        lines = (CalibrationReason.NEGATIVE_SLOPE, CalibrationReason.POOR_FIT)
        return self.usable or self in lines


@dataclass(frozen=True, slots=True)
class LineFit:
    """A fitted line: intercept + slope x [ms].

    Attributes
    ----------
    intercept, slope
        Neither is negative.
    intercept_error, slope_error, covariance
        Standard errors of both, and their covariance.
    free_slope
        The slope before a negative one was set to 0.
    residual
        Median relative residual, without sign.
    condition
        Condition number of the regression.
    """

    intercept: float
    slope: float
    intercept_error: float
    slope_error: float
    covariance: float
    free_slope: float
    residual: float
    condition: float

    def at(self, x: float) -> float:
        """The value at x [ms]."""
        return self.intercept + self.slope * x

    def error(self, x: float) -> float:
        """The standard error of the value at x [ms]."""
        variance = self.intercept_error**2 + 2 * x * self.covariance + (x * self.slope_error) ** 2
        return sqrt(max(variance, 0.0))


@dataclass(frozen=True, slots=True)
class Facts:
    """What a verdict depends on.

    Attributes
    ----------
    rows, weight
        Number of windows used, and the sum of their weights by age.
    mixed
        Whether replicas of two pod templates run.
    shift
        Relative change of the latencies that was noticed; 0 if none.
    settled
        Whether the fit has adapted to that change.
    batches
        Smallest and largest batch of the windows used.
    spread
        95 % quantile of the batches, relative to the 5 % quantile.
    largest_batch
        Largest batch of a replica.
    input_tokens, output_tokens
        Mean tokens of a request.
    decode, prefill
        The fitted lines.
    waits_apart
        Whether the decode line is without waits for prefills of other requests.
    clients
        Whether the times to the first token have waits, as clients of such an engine see them.
    pace
        Windows per second that could be used lately; NaN if unknown.
    """

    rows: int
    weight: float
    mixed: bool
    shift: float
    settled: bool
    batches: tuple[float, float]
    spread: float
    largest_batch: float
    input_tokens: float
    output_tokens: float
    decode: LineFit
    prefill: LineFit
    waits_apart: bool = True
    clients: bool = False
    pace: float = nan

    @property
    def is_steady(self) -> bool:
        """Whether the windows are close to both lines."""
        return max(self.decode.residual, self.prefill.residual) <= STEADY_RESIDUAL


def verdict(facts: Facts, needed: Requirements) -> tuple[CalibrationReason, str]:
    """The result of a calibration, and a message that says what to do."""
    for refusal in (*_refusals_of_windows(facts, needed), *_refusals_of_lines(facts)):
        return refusal
    if facts.largest_batch > EXTRAPOLATION * facts.batches[1]:
        return CalibrationReason.EXTRAPOLATING, _extrapolating(facts)
    mixed = "" if facts.waits_apart else "; waits for prefills are a part of alpha and beta"
    return (
        CalibrationReason.CALIBRATED,
        f"{facts.rows} measurements at batches {_range(facts)}{mixed}",
    )


def _refusals_of_windows(
    facts: Facts, needed: Requirements
) -> Iterator[tuple[CalibrationReason, str]]:
    if facts.mixed:
        message = "replicas of two pod templates run; wait until the rollout is complete"
        yield CalibrationReason.MIXED, message
    if facts.rows < _rows_needed(facts, needed):
        yield CalibrationReason.NOT_ENOUGH_DATA, _not_enough(facts, _rows_needed(facts, needed))
    if facts.shift and not (facts.settled and facts.weight >= needed.rows):
        yield CalibrationReason.SHIFTED, _shifted(facts)


def _refusals_of_lines(facts: Facts) -> Iterator[tuple[CalibrationReason, str]]:
    if facts.spread < SMALLEST_SPREAD or facts.decode.condition > LARGEST_CONDITION:
        yield CalibrationReason.NO_SPREAD, _no_spread(facts)
    if facts.prefill.condition > LARGEST_CONDITION:
        yield CalibrationReason.NO_SPREAD, _no_spread_of_prefills(facts)
    for name, line in (("inter-token latency", facts.decode), ("prefill time", facts.prefill)):
        if line.free_slope < -NEGATIVE * line.slope_error:
            yield CalibrationReason.NEGATIVE_SLOPE, _negative(name)
        if line.residual > LARGEST_RESIDUAL:
            yield CalibrationReason.POOR_FIT, _poor(name, line)


def _rows_needed(facts: Facts, needed: Requirements) -> float:
    return min(needed.rows, needed.steady_rows) if facts.is_steady else needed.rows


def _not_enough(facts: Facts, rows: float) -> str:
    """How many windows are lacking, and when they will be there."""
    if isnan(facts.pace):
        return f"{facts.rows} of at least {rows:g} measurements can be used"
    if facts.pace <= 0:
        return f"{facts.rows} of {rows:g} windows, and none of the newest can be used: see rejected"
    minutes = ceil((rows - facts.rows) / facts.pace / SECONDS_PER_MINUTE)
    time = "a minute" if minutes == 1 else f"{minutes} minutes"
    return f"{facts.rows} of {rows:g} windows, about {time} more at this traffic"


def _range(facts: Facts) -> str:
    least, most = facts.batches
    return f"of {least:.3g}" if least == most else f"of {least:.3g} to {most:.3g}"


def _shifted(facts: Facts) -> str:
    direction = "slower" if facts.shift > 0 else "faster"
    return (
        f"the engine became about {abs(facts.shift):.0%} {direction};"
        " older windows count less until there are enough new ones"
    )


def _no_spread(facts: Facts) -> str:
    return (
        f"all batches are {_range(facts)}, too much alike to tell the fixed time from the time"
        f" per request; measure at a batch of {next_batch(facts):.0f}"
        f" with {facts.input_tokens:.0f} input tokens"
    )


def _no_spread_of_prefills(facts: Facts) -> str:
    return (
        "input tokens times batch are too much alike to tell the fixed time of a prefill from the"
        f" time per token; measure with {_other_length(facts):.0f} input tokens"
        f" at a batch of {next_batch(facts):.0f}"
    )


def _other_length(facts: Facts) -> float:
    """Input tokens at which a measurement of prefills would help."""
    tokens = facts.input_tokens
    return tokens / FARTHER if tokens > LONG_PROMPT else tokens * FARTHER


def next_batch(facts: Facts) -> float:
    """The batch at which a measurement would help most.

    The largest batch of a replica, where the line is used; or 1, if the largest was seen already;
    or more than was seen, if both were.
    """
    least, most = facts.batches
    if facts.largest_batch > most:
        return facts.largest_batch
    return 1.0 if least > 1 else FARTHER * most


def _negative(name: str) -> str:
    return (
        f"the {name} falls as the batch grows, which no engine does: look for another load on the"
        " accelerator, or for requests of different kinds at different times"
    )


def _poor(name: str, line: LineFit) -> str:
    return (
        f"half of the measurements are more than {line.residual:.0%} off the line of the {name}:"
        " look for speculative decoding, adapters, or another load on the accelerator"
    )


def _extrapolating(facts: Facts) -> str:
    return (
        f"replicas may have batches of {facts.largest_batch:.0f}, and the largest seen is"
        f" {facts.batches[1]:.3g}: the upper confidence is wide; lower the largest batch,"
        f" or measure at a batch of {next_batch(facts):.0f}"
    )
