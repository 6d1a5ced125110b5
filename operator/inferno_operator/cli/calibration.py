"""Benchmark runs, or windows of replicas that serve -> a calibration, or what would help."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.cli.console import run_async
from inferno_operator.cli.offline.runs import read_runs
from inferno_operator.controllers.calibration.parameters import add_prefill_batch
from inferno_operator.controllers.calibration.replicas import (
    PART,
    VLLM,
    WINDOW_S,
    LabelledReplicas,
    PrometheusWindows,
)
from inferno_operator.controllers.calibration.windows import Pair, list_past_ends
from inferno_operator.engines.catalogue import MetricSources
from inferno_operator.runtime.prometheus import Prometheus, is_label_name
from inferno_optimizer.calibration.calibrate import Calibration, Evidence, calibrate
from inferno_optimizer.calibration.choice import Laws, laws
from inferno_optimizer.calibration.verdict import next_batch
from inferno_optimizer.calibration.windows import LIVE, RUNS, Requirements, Window, judged, retained
from inferno_optimizer.errors import CalibrationError, InputError
from inferno_optimizer.units import SECONDS_PER_HOUR

# The metric by which a source with the metrics of vLLM is known, without its prefix.
ALIVE = "num_requests_running"

TOLD_EVERY = 30  # windows between two messages of progress


@dataclass(frozen=True, slots=True)
class Measurements:
    """What a calibration is made from.

    `windows`: what replicas did, or benchmark runs; `requirements`: what windows must have;
    `name`: what they are called, in the plural: `runs`, `windows`; `warnings`: which of them
    are not used, and why; `of_clients`: whether each is of a fixed number of clients that wait
    for their answers.
    """

    windows: Sequence[Window]
    requirements: Requirements
    name: str
    warnings: Sequence[str]
    of_clients: bool = False


def read_measurements(files: Sequence[str]) -> Measurements:
    """Read benchmark runs.

    Raises InputError if there is no file, or a file cannot be read.
    """
    if not files:
        raise InputError("what was measured? Give files, or --prometheus and --labels")
    runs, warnings = read_runs(files)
    windows = [run.window for run in runs]
    unused = (
        f"{window.replica}: is not used: {reason}"
        for window, reason in judged(windows, RUNS)
        if reason
    )
    of_clients = all(isfinite(run.concurrency) for run in runs)
    return Measurements(windows, RUNS, "runs", [*warnings, *unused], of_clients)


def calibrate_windows(measured: Measurements, largest_batch: float, budget: float = 0.0) -> Laws:
    """Calibrate a model on an accelerator; older windows count less than the newest.

    `measured`: what was measured; `largest_batch`: largest batch of a replica [requests]; 0:
    the largest one of the windows; `budget`: most tokens that a step of the engine computes; 0:
    any number. Raises CalibrationError if the windows do not determine the parameters.
    """
    newest = max((window.end for window in measured.windows), default=0.0)
    evidence = Evidence(
        measured.windows, largest_batch=largest_batch, of_clients=measured.of_clients
    )
    (result,) = calibrate([evidence], newest, measured.requirements)
    fitted = laws(result, budget, of_clients=measured.of_clients)
    if not (result.reason.usable or fitted.chosen_steps):
        raise CalibrationError(f"{result.reason}: {result.message}. {_name_helpful_run(result)}")
    return fitted


def _name_helpful_run(result: Calibration) -> str:
    facts = result.facts
    return (
        f"The run that would help most: concurrency {max(next_batch(facts), 1):.0f},"
        f" {facts.input_tokens:.0f} input tokens, {facts.output_tokens:.0f} output tokens"
    )


def parse_labels(text: str) -> dict[str, str]:
    """Return the labels in a text such as `namespace=prod,model_name=llama-8b`.

    Raises InputError if a part is not a name and a value, or a name is not one of a label.
    """
    pairs = [part.partition("=") for part in text.split(",")]
    labels = {name.strip(): value.strip() for name, _, value in pairs}
    if not all(labels.values()):
        raise InputError(f"--labels {text!r}: expected NAME=VALUE,NAME=VALUE")
    for name in labels:
        if not is_label_name(name) or name == PART:
            raise InputError(f"--labels: {name!r} is not a name of a label")
    return labels


def parse_windows(
    endpoint: PrometheusEndpoint,
    sources: MetricSources,
    labels: Mapping[str, str],
    hours: float,
    tell: Callable[[str], None],
) -> Measurements:
    """Read the windows of the last hours, one a minute for each replica; see `retained`.

    `endpoint`: where Prometheus is; `sources`: the sources, of which those count that have the
    metrics of vLLM under another prefix; `labels`: labels that all series of the replicas have;
    `hours`: how far back to read [h]; `tell`: is told the progress. Raises CalibrationError if
    Prometheus has nothing about such replicas; RefusedError, UnavailableError if Prometheus
    refuses a query, or does not answer.
    """

    async def read() -> list[Window]:
        async with connect(endpoint) as client:
            ends = list_past_ends(time.time(), hours * SECONDS_PER_HOUR)
            return await past_windows(client, sources, labels, ends, tell)

    windows = run_async(read())
    if not windows:
        wanted = ", ".join(f'{name}="{value}"' for name, value in labels.items())
        raise CalibrationError(
            f"no vLLM replica has reported with {{{wanted}}} within {hours:g} h:"
            " correct --labels, which all series of the replicas have, or --hours"
        )
    kept = retained(windows)
    return Measurements(kept, LIVE, "windows", _list_unused(kept))


def vllm_prefixes(sources: MetricSources) -> tuple[str, ...]:
    """Return with what the names of the metrics of vLLM begin in some sources, its own first."""
    names = (source.heartbeat[0] for source in sources.values())
    prefixes = (name.removesuffix(ALIVE) for name in names if name.endswith(ALIVE))
    return tuple(dict.fromkeys((VLLM, *prefixes)))


async def past_windows(
    prometheus: Prometheus,
    sources: MetricSources,
    labels: Mapping[str, str],
    ends: Sequence[float],
    tell: Callable[[str], None],
    window_s: int = WINDOW_S,
) -> list[Window]:
    """Return the windows of all replicas with these labels.

    `prometheus`: answers queries; `sources`: the sources; they say how the metrics and the
    replicas are named; `labels`: labels that all series of the replicas have; `ends`: the ends
    of the windows in order, Unix time [s]; `tell`: is told the progress; `window_s`: length of
    the windows [s], at least four scrapes.
    """
    pair = Pair("", "", "")
    replicas = {label for source in sources.values() for label in source.replicas}
    windows = PrometheusWindows(
        prometheus,
        lambda: [LabelledReplicas(labels, pair)],
        window_s,
        vllm_prefixes(sources),
        replicas,
    )
    all_windows: list[Window] = []
    last: list[Window] = []
    for number, end in enumerate(ends, start=1):
        last = add_prefill_batch((await windows.read(end)).get(pair, ()), last)
        all_windows += last
        if number % TOLD_EVERY == 0:
            tell(f"asking Prometheus: {number} of {len(ends)} minutes")
    return all_windows


def _list_unused(windows: Sequence[Window]) -> list[str]:
    reasons = Counter(reason for _, reason in judged(windows, LIVE) if reason)
    return [
        f"{number} of {len(windows)} windows are not used: {reason}"
        for reason, number in sorted(reasons.items())
    ]
