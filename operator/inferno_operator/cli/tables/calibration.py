"""A calibration as the manifest of a Model, with standard errors as comments; pure."""

import re
from dataclasses import dataclass

from inferno_operator.cli.offline.manifests import object_name
from inferno_operator.resources import API_VERSION
from inferno_optimizer.calibration.calibrate import Calibration
from inferno_optimizer.calibration.verdict import Facts, LineFit


@dataclass(frozen=True, slots=True)
class CalibratedPair:
    """What a calibration is of: a model, an accelerator, and how many of them a replica has."""

    model: str
    accelerator: str
    count: int


def manifest(named: CalibratedPair, result: Calibration, measurements: str) -> str:
    """The manifest of a Model with the parameters that sizing needs.

    Its decode parameters include the waits for prefills of other requests; a comment has those
    of a decode step alone.

    Parameters
    ----------
    named
        What the calibration is of.
    result
        The calibration.
    measurements
        What it was calculated from, in the plural: `runs`, `windows`.
    """
    facts, expected = result.facts, result.expected
    lines = [
        *_header(facts, measurements),
        f"apiVersion: {API_VERSION}",
        "kind: Model",
        "metadata:",
        f"  name: {object_name(named.model)}",
        "spec:",
        f"  name: {_quoted(named.model)}",
        "  data:",
        f"  - acc: {_quoted(named.accelerator)}",
        f"    accCount: {named.count}",
        f"    # {_step(facts)}: {_line(facts.decode, 'alpha', 'beta')}",
        "    decodeParms:",
        f"      alpha: {expected.alpha:.6g}",
        f"      beta: {expected.beta:.6g}",
        f"    # {_line(facts.prefill, 'gamma', 'delta')}",
        "    prefillParms:",
        f"      gamma: {expected.gamma:.6g}",
        f"      delta: {expected.delta:.6g}",
        f"    maxBatchSize: {facts.largest_batch:.0f}",
        f"    atTokens: {facts.output_tokens:.0f}",
    ]
    return "\n".join(lines)


def _header(facts: Facts, measurements: str) -> list[str]:
    least, most = facts.batches
    rows = f"{facts.rows} {measurements} at batches of {least:.3g} to {most:.3g}"
    tokens = f"{facts.input_tokens:.0f} input and {facts.output_tokens:.0f} output tokens"
    decode, prefill = facts.decode.residual, facts.prefill.residual
    return [
        f"# Calibrated with {rows}, {tokens}.",
        f"# Median distance from the lines: decode {decode:.1%}, prefill {prefill:.1%}.",
        "# decodeParms include the waits for prefills of other requests.",
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
