"""What a benchmark has measured, and a calibration as the manifest of a Model; pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from inferno_operator.cli.calibration import Measurements
from inferno_operator.cli.offline.manifests import object_name
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_operator.resources import API_VERSION, Model
from inferno_optimizer.calibration.choice import Laws
from inferno_optimizer.calibration.plan import Trial
from inferno_optimizer.calibration.steps import FITTED, StepFit
from inferno_optimizer.calibration.verdict import LineFit

if TYPE_CHECKING:
    from inferno_operator.adapters.completions.load import TrialResult

PERCENTILES = (50, 90, 95, 99)

BUSY = 0.7  # share of a processor from which tokens wait for the clients themselves

# Smallest error that is written; runs that fit a law more closely are made up [percent].
LEAST_ERROR = 0.1

# Words that YAML does not read as text.
YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def describe_trial(trial: Trial) -> str:
    """Return a run in words."""
    users = "1 client" if trial.clients == 1 else f"{trial.clients} clients"
    return (
        f"{users}, {trial.shape.input_tokens} input and {trial.shape.output_tokens} output tokens"
    )


def describe_run(measured: "TrialResult") -> Iterator[Part]:
    """Yield the latencies of a run, and what else was counted."""
    errors = f"{measured.errors} errors"
    if not measured.answers:
        yield f"no request was answered in time, {errors}"
        return
    rows = []
    for name, times in (("TTFT", measured.ttft_ms), ("ITL", measured.itl_ms)):
        values = (times.mean(), *np.percentile(times, PERCENTILES))
        rows.append((name, *(f"{value:.2f}" for value in values)))
    yield TextTable(("MS", ">MEAN", *(f">P{percent}" for percent in PERCENTILES)), rows)
    speed = f"{measured.tokens_per_second:.1f} tokens/s"
    yield f"{len(measured.answers)} requests, {speed}, {errors}"
    if (added := measured.warm_up) > 0:
        before = "let the engine serve such requests for some minutes before"
        then = "the run is repeated" if measured.repeated else before
        yield f"warm-up detected (+{added:.0%} ITL): {then}"
    if measured.busy > BUSY:
        yield (
            f"the clients were busy for {measured.busy:.0%} of the time: the engine may be faster"
            " than they are, so use a smaller --max-concurrency"
        )


@dataclass(frozen=True, slots=True)
class CalibratedPair:
    """What a calibration is of: a model, an accelerator, and how many of them a replica has."""

    model: str
    accelerator: str
    count: int


def format_manifest(pair: CalibratedPair, laws: Laws, measured: Measurements) -> str:
    """Return the manifest of a Model with the parameters that sizing needs.

    They are those of the law that fits better, with standard errors as comments. Decode
    parameters include the waits for prefills of other requests; a comment has those of a decode
    step alone.

    `pair`: what the calibration is of; `laws`: the calibration; `measured`: what it was
    calculated from.
    """
    facts, steps = laws.lines.facts, laws.chosen_steps
    least, most = facts.batches
    length = ceil(facts.input_tokens) + ceil(facts.output_tokens)
    tokens = max(w.batch * (w.input_tokens + w.output_tokens) for w in laws.lines.used)
    most_tokens = max(ceil(tokens), ceil(facts.largest_batch * length))
    distances = []
    if laws.steps is not None and laws.from_steps is not None:
        ways = f"stepParms {laws.from_steps.mean:.1%}, decodeParms {laws.from_lines.mean:.1%}"
        distances = [f"# Mean distance of the {measured.name}: {ways}."]
        if steps is not None:
            valid = steps.parameters
            inputs = f"{valid.min_input_tokens} to {valid.max_input_tokens} input"
            outputs = f"{valid.min_output_tokens} to {valid.max_output_tokens} output"
            distances.append(f"# stepParms hold for {inputs} and {outputs} tokens.")
    rows = f"{facts.rows} {measured.name} at batches of {least:.3g} to {most:.3g}"
    lengths = f"{facts.input_tokens:.0f} input and {facts.output_tokens:.0f} output tokens"
    residuals = f"decode {facts.decode.residual:.1%}, prefill {facts.prefill.residual:.1%}"
    lines = [
        f"# Calibrated with {rows}, {lengths}.",
        f"# Median distance from the lines: {residuals}.",
        *([] if steps else ["# decodeParms include the waits for prefills of other requests."]),
        *distances,
        f"apiVersion: {API_VERSION}",
        "kind: Model",
        "metadata:",
        f"  name: {object_name(pair.model)}",
        "spec:",
        f"  name: {_quote(pair.model)}",
        "  data:",
        f"  - acc: {_quote(pair.accelerator)}",
        f"    accCount: {pair.count}",
        *(_list_step_lines(steps) if steps else _list_parameter_lines(laws)),
        f"    maxBatchSize: {facts.largest_batch:.0f}",
        f"    atTokens: {facts.output_tokens:.0f}",
        f"    maxTokens: {most_tokens} # what the {measured.name} kept; the KV cache may hold more",
        "    origin: measured",
        f"    errorPercent: {min(max(100 * laws.distances.mean, LEAST_ERROR), 100.0):.1f}",
    ]
    return "\n".join(lines)


def _list_parameter_lines(laws: Laws) -> list[str]:
    facts, expected = laws.lines.facts, laws.lines.expected
    step = "A decode step alone" if facts.waits_apart else "The waits cannot be told apart"
    return [
        f"    # {step}: {_describe_line(facts.decode, 'alpha', 'beta')}",
        "    decodeParms:",
        f"      alpha: {expected.alpha:.6g}",
        f"      beta: {expected.beta:.6g}",
        f"    # {_describe_line(facts.prefill, 'gamma', 'delta')}",
        "    prefillParms:",
        f"      gamma: {expected.gamma:.6g}",
        f"      delta: {expected.delta:.6g}",
    ]


def _list_step_lines(fit: StepFit) -> list[str]:
    """Return the parameters of the steps, with standard errors where there are any."""
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


def _describe_line(line: LineFit, intercept: str, slope: str) -> str:
    return (
        f"{intercept} {line.intercept:.4g} ± {line.intercept_error:.2g} ms,"
        f" {slope} {line.slope:.4g} ± {line.slope_error:.2g} ms"
    )


def _quote(text: str) -> str:
    """Return a text as YAML: plain if that is safe, else in quotes."""
    if re.fullmatch(r"[A-Za-z][\w/.-]*", text) and text.lower() not in YAML_WORDS:
        return text
    return "'" + text.replace("'", "''") + "'"


def warn_of_outliers(laws: Laws) -> Iterator[str]:
    """Yield warnings about the runs that are far from the law that fits the others."""
    distances = laws.distances
    for place in distances.far:
        away = f"ITL {distances.itl[place]:+.0%}, TTFT {distances.ttft[place]:+.0%}"
        yield f"{laws.lines.used[place].replica}: is far from what fits the other runs: {away}"


def warn_of_weak_data(models: Iterable[Model]) -> Iterator[str]:
    """Yield a warning for each accelerator of models with parameters that are hardly known."""
    for model in models:
        for row in (row for row in model.status.calibration if row.hardly_known):
            names = ", ".join(
                f"{one.name} (± {one.error:.0%}, at most {one.share:.0%} of a latency)"
                for one in row.hardly_known
            )
            holds, steps = "", row.step_parms
            if steps is not None:
                inputs = f"{steps.min_in_tokens} to {steps.max_in_tokens} input"
                outputs = f"{steps.min_out_tokens} to {steps.max_out_tokens} output"
                holds = f"; plans hold for {inputs} and {outputs} tokens"
            yield ""
            yield (
                f"warning: stepParms of {model.spec.name} on {row.acc}: measurements hardly tell"
                f" {names}{holds}"
            )
