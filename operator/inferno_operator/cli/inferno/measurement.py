"""`inferno measure`, `calibrate` and `bench`: loads and engines, measured."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.console import (
    INTERRUPTED,
    Format,
    Lenient,
    Output,
    show,
    warn,
    working,
    write,
)
from inferno_operator.cli.options.inputs import Paths
from inferno_operator.cli.options.prometheus import URL, prometheus_options, required

if TYPE_CHECKING:
    from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint

app = typer.Typer()

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


@app.command(
    epilog="Example: inferno measure --prometheus http://localhost:9090 samples/measured"
    "\n\nExample: inferno measure --prometheus https://thanos/prometheus --token-file token "
    "fleet.yaml -o yaml | inferno optimize -"
)
@prometheus_options
def measure(
    endpoint: "PrometheusEndpoint | None",
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
    loads are printed: pipe them to `inferno optimize -`.
    """
    import asyncio
    from datetime import UTC, datetime

    from inferno_operator.cli.measurement import (
        measure,
        measurement_document,
        with_measured_loads,
    )
    from inferno_operator.cli.offline.system import read_resources, refuse_unknown
    from inferno_operator.cli.tables.measurement import measurement_parts

    place = required(endpoint)
    resources = read_resources(paths, warn if lenient else refuse_unknown)
    with working("asking Prometheus"):
        found, asked = asyncio.run(measure(resources, place))
    if output is Format.YAML:
        show(output, lambda: with_measured_loads(resources, found), tuple)
        return
    shown = asked if queries else ()
    show(
        output,
        lambda: measurement_document(found, shown),
        lambda: measurement_parts(found, shown, datetime.now(UTC)),
    )


@app.command(
    epilog="Example: inferno calibrate runs.csv --model llama-8b --accelerator H100"
    "\n\nExample: inferno calibrate *.json --model llama-8b --accelerator H100 --plot fit.svg"
    "\n\nExample: inferno calibrate --prometheus http://localhost:9090 "
    "--labels namespace=prod,model_name=llama-8b --model llama-8b --accelerator H100"
)
@prometheus_options
def calibrate(  # noqa: PLR0913 - an argument for each option
    endpoint: "PrometheusEndpoint | None",
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="CSV with a run on each line, or the JSON that `vllm bench serve`, guidellm or "
            "genai-perf saves.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer reads it and never changes it
    *,
    model: Annotated[str, typer.Option(metavar="NAME", help="The name of the model.")],
    accelerator: Annotated[str, typer.Option(metavar="NAME", help="The name of the accelerator.")],
    acc_count: AccCount = 1,
    max_batch_size: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Largest batch of a replica; 0: the largest that was seen."
        ),
    ] = 0,
    token_budget: TokenBudget = 2048,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the lines and what was measured (SVG)."),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Labels that all series of the vLLM replicas have: read Prometheus, not files.",
        ),
    ] = "",
    hours: Annotated[
        float,
        typer.Option(metavar="H", min=0.5, max=48, help="How far back to read Prometheus."),
    ] = 4,
) -> None:
    """Find the parameters of a model from benchmark runs, or from replicas that serve.

    Prints the manifest of a Model. Columns of a CSV file: concurrency or rate (requests/s), input
    and output tokens, ITL or TPOT, and TTFT (ms, or s in the name). Runs need different
    concurrencies and random lengths. With --labels it reads what replicas did in the last hours
    from Prometheus, in windows of a minute. Exits with 1, and names the run that would help most,
    where the measurements do not determine the parameters.
    """
    from inferno_operator.cli.calibration import parse_labels, read_windows
    from inferno_operator.cli.drawing.plot import plot as draw
    from inferno_operator.cli.offline.calibration import calibrate_windows, runs_of
    from inferno_operator.cli.tables.calibration import CalibratedPair, manifest, named
    from inferno_optimizer.errors import InputError

    if files and (labels or (endpoint is not None and URL not in os.environ)):
        raise InputError("give either files, or --prometheus and --labels")
    if labels:
        place, wanted = required(endpoint), parse_labels(labels)
        with working("asking Prometheus") as tell:
            measured = read_windows(place, wanted, hours, tell)
    else:
        measured = runs_of(files)
    warn(measured.warnings)
    found = calibrate_windows(measured, max_batch_size, token_budget)
    if plot is not None:
        write(plot, draw(measured.windows, found.lines, measured.requirements))
    warn([*named(found)])
    typer.echo(manifest(CalibratedPair(model, accelerator, acc_count), found, measured))


@app.command(
    epilog="Example: inferno bench http://localhost:8000 --model llama-8b --accelerator H100"
    "\n\nExample: inferno bench https://llm.example.com --key-file key --yes --minutes 10 "
    "--shape 1024/256 --shape 4096/64 --max-concurrency 128 --model llama-8b --accelerator H100"
)
def bench(  # noqa: PLR0913 - an argument for each option
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="Where the engine is, such as http://localhost:8000."),
    ],
    *,
    model: Annotated[str, typer.Option(metavar="NAME", help="The name of the model.")],
    accelerator: Annotated[str, typer.Option(metavar="NAME", help="The name of the accelerator.")],
    acc_count: AccCount = 1,
    token_budget: TokenBudget = 2048,
    shapes: Annotated[
        list[str],
        typer.Option(
            "--shape",
            metavar="INPUT/OUTPUT",
            help="Mean tokens of prompts and answers, the most usual ones first. Can be repeated.",
        ),
    ] = ["512/128", "2048/64", "128/256"],  # noqa: B006 - typer reads it and never changes it
    max_concurrency: Annotated[
        int,
        typer.Option(
            metavar="N", min=4, max=4096, help="Most clients; not more than the largest batch."
        ),
    ] = 64,
    minutes: Annotated[
        float, typer.Option(metavar="M", min=0.1, max=15, help="How long to measure.")
    ] = 15,
    served_model: Annotated[
        str,
        typer.Option(metavar="NAME", help="The model to ask for; by default the first one served."),
    ] = "",
    key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the API key.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Longest time to the next token.")
    ] = 60,
    csv: Annotated[
        Path, typer.Option(metavar="FILE", help="The file to write; it must not exist.")
    ] = Path("bench.csv"),
    yes: Annotated[
        bool, typer.Option("--yes", help="Load an engine that is not on this machine.")
    ] = False,
) -> None:
    """Measure an engine, and find the parameters of its model.

    The engine completes prompts by the API of OpenAI, as a stream. Clients ask for random lengths
    around each shape, and ask again when they have the answer. The next run is the one that
    narrows the parameters most. Each run is written into the file, which `inferno calibrate` reads,
    also if you end the command; at the end it prints the manifest of a Model.
    """
    import asyncio

    from inferno_operator.adapters.completions.endpoint import EngineEndpoint
    from inferno_operator.cli.bench import (
        SECONDS_PER_MINUTE,
        Benchmark,
        RunsFile,
        allowed,
        measure,
        shape_of,
    )
    from inferno_operator.cli.offline.calibration import calibrate_windows, runs_of
    from inferno_operator.cli.tables.bench import run_parts, trial_text
    from inferno_operator.cli.tables.calibration import CalibratedPair, manifest, named
    from inferno_optimizer.calibration.plan import Scope
    from inferno_optimizer.errors import CalibrationError

    endpoint = EngineEndpoint(url, key_file, timeout)
    allowed(endpoint, minutes, yes=yes)
    scope = Scope([shape_of(text) for text in shapes], max_concurrency, token_budget)
    file = RunsFile(csv)
    wanted = Benchmark(endpoint, scope, SECONDS_PER_MINUTE * minutes, served_model)

    def tell(news: Iterable[object]) -> None:
        typer.echo("\n".join(map(str, news)), err=True)

    try:
        asyncio.run(
            measure(
                wanted,
                file,
                begins=lambda trial: tell([f"measuring {trial_text(trial)}"]),
                ends=lambda done: tell([*run_parts(done), ""]),
            )
        )
    except KeyboardInterrupt:
        warn([f"interrupted; {file.kept}"])
        raise typer.Exit(INTERRUPTED) from None
    if not file.rows:
        raise CalibrationError(f"{url}: {file.kept}: give it more --minutes, or shorter requests")
    measured = runs_of([str(csv)])
    found = calibrate_windows(measured, 0, token_budget)
    warn([*named(found)])
    typer.echo(manifest(CalibratedPair(model, accelerator, acc_count), found, measured))
