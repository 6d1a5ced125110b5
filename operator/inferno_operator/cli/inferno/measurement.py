"""`inferno measure`, `calibrate` and `bench`: loads and engines, measured."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.console import (
    Format,
    Lenient,
    Output,
    examples,
    interruptible,
    show,
    warn,
    working,
    write,
)
from inferno_operator.cli.interrupts import run_async
from inferno_operator.cli.options.inputs import Paths
from inferno_operator.cli.options.prometheus import URL, PrometheusOptions, prometheus_options

ModelName = Annotated[str, typer.Option(metavar="NAME", help="The name of the model.")]
AcceleratorName = Annotated[str, typer.Option(metavar="NAME", help="The name of the accelerator.")]
AccCount = Annotated[
    int, typer.Option(metavar="N", min=1, help="Accelerators that one replica has.")
]
TokenBudget = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Most tokens that a step of the engine computes (vLLM: max-num-batched-tokens).",
    ),
]
RunFiles = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="CSV with a run on each line, or the JSON that `vllm bench serve`, guidellm or "
        "genai-perf saves.",
        show_default=False,
    ),
]
MaxBatchSize = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, help="Largest batch of a replica; 0: the largest that was seen."
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw the lines and what was measured (SVG)."),
]
Labels = Annotated[
    str,
    typer.Option(
        metavar="NAME=VALUE,...",
        help="Labels that all series of the vLLM replicas have: read Prometheus, not files.",
    ),
]
PastHours = Annotated[
    float, typer.Option(metavar="H", min=0.5, max=48, help="How far back to read Prometheus.")
]
EngineUrl = Annotated[
    str, typer.Argument(metavar="URL", help="Where the engine is, such as http://localhost:8000.")
]
Shapes = Annotated[
    list[str],
    typer.Option(
        "--shape",
        metavar="INPUT/OUTPUT",
        help="Mean tokens of prompts and answers, the most usual ones first. Can be repeated.",
    ),
]
MaxConcurrency = Annotated[
    int,
    typer.Option(
        metavar="N", min=4, max=4096, help="Most clients; not more than the largest batch."
    ),
]
Minutes = Annotated[float, typer.Option(metavar="M", min=0.1, max=15, help="How long to measure.")]
ServedModel = Annotated[
    str,
    typer.Option(metavar="NAME", help="The model to ask for; by default the first one served."),
]
KeyFile = Annotated[Path | None, typer.Option(metavar="FILE", help="A file with the API key.")]
Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", min=1, help="Longest time to the next token.")
]
Csv = Annotated[Path, typer.Option(metavar="FILE", help="The file to write; it must not exist.")]
Yes = Annotated[bool, typer.Option("--yes", help="Load an engine that is not on this machine.")]


if TYPE_CHECKING:
    from inferno_operator.cli.bench import Benchmark, RunsFile
    from inferno_operator.cli.offline.calibration import Measurements
    from inferno_operator.cli.tables.calibration import CalibratedPair
    from inferno_optimizer.calibration.choice import Laws

app = typer.Typer()


@app.command(
    epilog=examples(
        "inferno measure --prometheus http://localhost:9090 samples/measured",
        "inferno measure --prometheus https://thanos/prometheus --token-file token "
        "fleet.yaml -o yaml | inferno plan -",
    )
)
@prometheus_options
def measure(
    prometheus: PrometheusOptions,
    paths: Paths,
    output: Output = Format.TABLE,
    *,
    queries: Annotated[
        bool, typer.Option("--queries", help="Show each query and its answer.")
    ] = False,
    lenient: Lenient = False,
) -> None:
    """Measure the load and the latencies of Servers now.

    Asks Prometheus about the Servers with spec.measure. As YAML, all objects with the measured
    loads are printed: pipe them to `inferno plan -`.
    """
    from datetime import UTC, datetime

    from inferno_operator.cli.measurement import measure, with_measured_loads
    from inferno_operator.cli.offline.system import read_resources, refuse_unknown
    from inferno_operator.cli.tables.measurement import (
        describe_measurements,
        encode_measurements,
        list_measurement_notes,
    )

    place, sources = prometheus.place, prometheus.read_sources()
    resources = read_resources(paths, warn if lenient else refuse_unknown)
    with working("asking Prometheus"):
        measurements, asked = run_async(measure(resources, place, sources))
    if output is Format.YAML:
        warn(list_measurement_notes(measurements))
        show(output, lambda: with_measured_loads(resources, measurements), tuple)
        return
    shown = asked if queries else ()
    show(
        output,
        lambda: encode_measurements(measurements, shown),
        lambda: describe_measurements(measurements, shown, datetime.now(UTC)),
    )


@app.command(
    epilog=examples(
        "inferno calibrate runs.csv --model llama-8b --accelerator H100",
        "inferno calibrate *.json --model llama-8b --accelerator H100 --plot fit.svg",
        "inferno calibrate --prometheus http://localhost:9090 "
        "--labels namespace=prod,model_name=llama-8b --model llama-8b --accelerator H100",
    )
)
@prometheus_options
def calibrate(  # noqa: PLR0913 - an argument for each option
    prometheus: PrometheusOptions,
    files: RunFiles = [],  # noqa: B006 - typer reads it and never changes it
    *,
    model: ModelName,
    accelerator: AcceleratorName,
    acc_count: AccCount = 1,
    max_batch_size: MaxBatchSize = 0,
    token_budget: TokenBudget = 2048,
    plot: Plot = None,
    labels: Labels = "",
    hours: PastHours = 4,
) -> None:
    """Find the parameters of a model from measurements.

    From benchmark runs, or from the metrics of running replicas. Prints the manifest of a Model.
    Columns of a CSV file: concurrency or rate (requests/s), input and output tokens, ITL or TPOT,
    and TTFT (ms, or s in the name). Runs need different concurrencies and random lengths. With
    --labels it reads what replicas did in the last hours from Prometheus, in windows of a minute.
    Exits with 1, and names the run that would help most, where the measurements do not determine
    the parameters.
    """
    from inferno_operator.cli.drawing import draw_calibration
    from inferno_operator.cli.offline.calibration import calibrate_windows, read_measurements
    from inferno_operator.cli.tables.calibration import CalibratedPair
    from inferno_optimizer.errors import InputError

    if files and (labels or (prometheus.endpoint and URL not in os.environ)):
        raise InputError("give either files, or --prometheus and --labels")
    measured = _read_past(prometheus, labels, hours) if labels else read_measurements(files)
    warn(measured.warnings)
    fitted = calibrate_windows(measured, max_batch_size, token_budget)
    if plot is not None:
        write(plot, draw_calibration(measured.windows, fitted.lines, measured.requirements))
    _print_model(CalibratedPair(model, accelerator, acc_count), fitted, measured)


def _read_past(prometheus: PrometheusOptions, labels: str, hours: float) -> "Measurements":
    """Return what replicas with these labels did, as Prometheus knows it."""
    from inferno_operator.cli.calibration import parse_labels, parse_windows

    place, wanted = prometheus.place, parse_labels(labels)
    sources = prometheus.read_sources()
    with working("asking Prometheus") as tell:
        return parse_windows(place, sources, wanted, hours, tell)


def _print_model(pair: "CalibratedPair", laws: "Laws", measured: "Measurements") -> None:
    """Print the manifest of a Model, after what is to be known of its parameters."""
    from inferno_operator.cli.tables.calibration import format_manifest, warn_of_outliers

    warn([*warn_of_outliers(laws)])
    typer.echo(format_manifest(pair, laws, measured))


@app.command(
    epilog=examples(
        "inferno bench http://localhost:8000 --model llama-8b --accelerator H100",
        "inferno bench https://llm.example.com --key-file key --yes --minutes 10 "
        "--shape 1024/256 --shape 4096/64 --max-concurrency 128 --model llama-8b "
        "--accelerator H100",
    )
)
def bench(  # noqa: PLR0913 - an argument for each option
    url: EngineUrl,
    *,
    model: ModelName,
    accelerator: AcceleratorName,
    acc_count: AccCount = 1,
    token_budget: TokenBudget = 2048,
    shapes: Shapes = ["512/128", "2048/64", "128/256"],  # noqa: B006 - typer only reads it
    max_concurrency: MaxConcurrency = 64,
    minutes: Minutes = 15,
    served_model: ServedModel = "",
    key_file: KeyFile = None,
    timeout: Timeout = 60,
    csv: Csv = Path("bench.csv"),
    yes: Yes = False,
) -> None:
    """Measure an engine, and find the parameters of its model.

    The engine completes prompts by the API of OpenAI, as a stream. Clients ask for random lengths
    around each shape, and ask again when they have the answer. The next run is the one that
    narrows the parameters most. Each run is written into the file, which `inferno calibrate` reads,
    also if you end the command; at the end it prints the manifest of a Model.
    """
    from inferno_operator.adapters.completions.client import EngineEndpoint
    from inferno_operator.cli.bench import (
        Benchmark,
        RunsFile,
        allowed,
        shape_of,
    )
    from inferno_operator.cli.offline.calibration import calibrate_windows, read_measurements
    from inferno_operator.cli.tables.calibration import CalibratedPair
    from inferno_optimizer.calibration.plan import Scope
    from inferno_optimizer.errors import CalibrationError
    from inferno_optimizer.units import SECONDS_PER_MINUTE

    endpoint = EngineEndpoint(url, key_file, timeout)
    allowed(endpoint, minutes, yes=yes)
    scope = Scope([shape_of(text) for text in shapes], max_concurrency, token_budget)
    file = RunsFile(csv)
    _measure_engine(Benchmark(endpoint, scope, SECONDS_PER_MINUTE * minutes, served_model), file)
    if not file.rows:
        raise CalibrationError(f"{url}: {file.kept}: give it more --minutes, or shorter requests")
    measured = read_measurements([str(csv)])
    fitted = calibrate_windows(measured, 0, token_budget)
    _print_model(CalibratedPair(model, accelerator, acc_count), fitted, measured)


def _measure_engine(wanted: "Benchmark", file: "RunsFile") -> None:
    """Run the benchmark, and say how it goes; Ctrl-C ends the command and keeps the runs."""
    from inferno_operator.cli.bench import measure
    from inferno_operator.cli.tables.calibration import describe_run, describe_trial

    def tell(news: Iterable[object]) -> None:
        typer.echo("\n".join(map(str, news)), err=True)

    with interruptible(lambda: warn([f"interrupted; {file.kept}"])):
        run_async(
            measure(
                wanted,
                file,
                begins=lambda trial: tell([f"measuring {describe_trial(trial)}"]),
                ends=lambda done: tell([*describe_run(done), ""]),
            )
        )
