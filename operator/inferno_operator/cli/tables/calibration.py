"""A calibration as the manifest of a Model, with standard errors as comments; pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil

from inferno_operator.cli.offline.calibration import Measurements
from inferno_operator.cli.offline.manifests import object_name
from inferno_operator.resources import API_VERSION, Model, StepParms
from inferno_optimizer.calibration.calibrate import Calibration
from inferno_optimizer.calibration.choice import Laws
from inferno_optimizer.calibration.steps import FITTED, StepFit
from inferno_optimizer.calibration.verdict import Facts, LineFit

PERCENT = 100.0

LEAST_ERROR = 0.1
"""Smallest error that is written; runs that fit a law more closely are made up [percent]."""


@dataclass(frozen=True, slots=True)
class CalibratedPair:
    """What a calibration is of: a model, an accelerator, and how many of them a replica has."""

    model: str
    accelerator: str
    count: int


def manifest(pair: CalibratedPair, laws: Laws, measured: Measurements) -> str:
    """The manifest of a Model with the parameters that sizing needs.

    They are those of the law that fits better. Decode parameters include the waits for prefills of
    other requests; a comment has those of a decode step alone.

    Parameters
    ----------
    pair
        What the calibration is of.
    laws
        The calibration.
    measured
        What it was calculated from.
    """
    facts, steps = laws.lines.facts, laws.chosen_steps
    lines = [
        *_header(facts, measured.name),
        *([] if steps else ["# decodeParms include the waits for prefills of other requests."]),
        *_both(laws, measured.name),
        f"apiVersion: {API_VERSION}",
        "kind: Model",
        "metadata:",
        f"  name: {object_name(pair.model)}",
        "spec:",
        f"  name: {_quoted(pair.model)}",
        "  data:",
        f"  - acc: {_quoted(pair.accelerator)}",
        f"    accCount: {pair.count}",
        *(_steps(steps) if steps else _lines(laws.lines)),
        f"    maxBatchSize: {facts.largest_batch:.0f}",
        f"    atTokens: {facts.output_tokens:.0f}",
        _kept(laws, measured.name),
        "    origin: measured",
        f"    errorPercent: {min(max(PERCENT * laws.distances.mean, LEAST_ERROR), PERCENT):.1f}",
    ]
    return "\n".join(lines)


def named(laws: Laws) -> Iterator[str]:
    """Warnings about the runs that are far from the law that fits the others."""
    far = laws.distances
    for place in far.far:
        away = f"ITL {far.itl[place]:+.0%}, TTFT {far.ttft[place]:+.0%}"
        yield f"{laws.lines.used[place].replica}: is far from what fits the other runs: {away}"


def doubt_parts(models: Iterable[Model]) -> Iterator[str]:
    """Yield a warning for each accelerator of models with parameters that are hardly known."""
    for model in models:
        for row in (row for row in model.status.calibration if row.hardly_known):
            names = ", ".join(
                f"{one.name} (± {one.error:.0%}, at most {one.share:.0%} of a latency)"
                for one in row.hardly_known
            )
            yield ""
            yield (
                f"warning: stepParms of {model.spec.name} on {row.acc}: measurements hardly tell"
                f" {names}{_held(row.step_parms)}"
            )


def _held(steps: StepParms | None) -> str:
    """For which lengths steps hold all the same."""
    if steps is None:
        return ""
    inputs = f"{steps.min_in_tokens} to {steps.max_in_tokens} input"
    outputs = f"{steps.min_out_tokens} to {steps.max_out_tokens} output"
    return f"; plans hold for {inputs} and {outputs} tokens"


def _lines(result: Calibration) -> list[str]:
    facts, expected = result.facts, result.expected
    return [
        f"    # {_step(facts)}: {_line(facts.decode, 'alpha', 'beta')}",
        "    decodeParms:",
        f"      alpha: {expected.alpha:.6g}",
        f"      beta: {expected.beta:.6g}",
        f"    # {_line(facts.prefill, 'gamma', 'delta')}",
        "    prefillParms:",
        f"      gamma: {expected.gamma:.6g}",
        f"      delta: {expected.delta:.6g}",
    ]


def _steps(fit: StepFit) -> list[str]:
    """Parameters of the steps, with standard errors where there are any."""
    fitted = fit.parameters
    names = (*FITTED, "budget", "overhead")
    values = [getattr(fitted, name) for name in names]
    weak = {
        one.name: f", hardly known; at most {one.share:.0%} of a time" for one in fit.hardly_known
    }
    errors_by_name = zip(FITTED, fit.errors, strict=True)
    errors = [f" # ± {error:.2g}{weak.get(name, '')}" for name, error in errors_by_name]
    return [
        "    stepParms:",
        *(
            f"      {name}: {value:.6g}{error}"
            for name, value, error in zip_longest(names, values, errors, fillvalue="")
        ),
        f"      minInTokens: {fitted.min_input_tokens}",
        f"      maxInTokens: {fitted.max_input_tokens}",
        f"      minOutTokens: {fitted.min_output_tokens}",
        f"      maxOutTokens: {fitted.max_output_tokens}",
    ]


def _both(laws: Laws, measurements: str) -> list[str]:
    """How far the runs are from both laws, and for which lengths the steps hold."""
    if laws.steps is None or laws.from_steps is None:
        return []
    ways = f"stepParms {laws.from_steps.mean:.1%}, decodeParms {laws.from_lines.mean:.1%}"
    lines = [f"# Mean distance of the {measurements}: {ways}."]
    if (chosen := laws.chosen_steps) is not None:
        valid = chosen.parameters
        inputs = f"{valid.min_input_tokens} to {valid.max_input_tokens} input"
        outputs = f"{valid.min_output_tokens} to {valid.max_output_tokens} output"
        lines.append(f"# stepParms hold for {inputs} and {outputs} tokens.")
    return lines


def _kept(laws: Laws, measurements: str) -> str:
    """The tokens that a full batch of such requests keeps, as was shown to fit."""
    facts = laws.lines.facts
    length = ceil(facts.input_tokens) + ceil(facts.output_tokens)
    tokens = max(w.batch * (w.input_tokens + w.output_tokens) for w in laws.lines.used)
    most = max(ceil(tokens), ceil(facts.largest_batch * length))
    return f"    maxTokens: {most} # what the {measurements} kept; the KV cache may hold more"


def _header(facts: Facts, measurements: str) -> list[str]:
    least, most = facts.batches
    rows = f"{facts.rows} {measurements} at batches of {least:.3g} to {most:.3g}"
    tokens = f"{facts.input_tokens:.0f} input and {facts.output_tokens:.0f} output tokens"
    decode, prefill = facts.decode.residual, facts.prefill.residual
    return [
        f"# Calibrated with {rows}, {tokens}.",
        f"# Median distance from the lines: decode {decode:.1%}, prefill {prefill:.1%}.",
    ]


def _step(facts: Facts) -> str:
    return "A decode step alone" if facts.waits_apart else "The waits cannot be told apart"


def _line(line: LineFit, intercept: str, slope: str) -> str:
    return (
        f"{intercept} {line.intercept:.4g} ± {line.intercept_error:.2g} ms,"
        f" {slope} {line.slope:.4g} ± {line.slope_error:.2g} ms"
    )


def _quoted(text: str) -> str:
    """A text as YAML: plain if that is safe, else in quotes."""
    if re.fullmatch(r"[A-Za-z][\w/.-]*", text) and text.lower() not in _WORDS:
        return text
    return "'" + text.replace("'", "''") + "'"


_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
"""Words that YAML does not read as text."""
