"""The program `inferno`: its commands, each of which parses, calls one library function, prints."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

import os
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inferno_operator.cli import options
from inferno_operator.cli.console import (
    Commands,
    interruptible,
    limit_time,
    run_app,
    run_async,
    show,
    show_objects,
    trace_solver,
    warn,
    working,
    write,
)
from inferno_operator.settings import HEALTH_PORT, VARIABLES, Variable
from inferno_optimizer.errors import InputError

if TYPE_CHECKING:
    from inferno_operator.cli.bench import Benchmark, RunsFile
    from inferno_operator.cli.calibration import Measurements
    from inferno_operator.cli.tables.calibration import CalibratedPair
    from inferno_operator.cli.tables.table import RowOrder
    from inferno_optimizer.calibration.choice import Laws
    from inferno_optimizer.solution import Solution
    from inferno_optimizer.system import System


OTHER_NAMES = {"optimize": "plan", "what-if": "plan --set", "estimate": "catalogue estimate"}
"""What people call a command, and what it is; `optimize` is a hidden second name."""


class _Commands(Commands):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - of typer's own click
        """Find a command; what is nearly another name of one is told the name here."""
        near = get_close_matches(args[0], OTHER_NAMES, 1)
        if args[0] not in self.commands and near:
            ctx.fail(f"No such command {args[0]!r}. Did you mean '{OTHER_NAMES[near[0]]}'?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    context_settings=options.HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line and exit; see `console.run_app`."""
    run_app(app, "inferno")


@app.callback(
    epilog=options.examples("inferno size Qwen3-32B --rate 7/s", "inferno sample | inferno plan -")
)
def inferno(_version: options.Version = False) -> None:
    """Decide where LLM inference runs.

    For each server: which accelerator, how many replicas, which batch size.
    """


PLAN_EXAMPLES = options.examples(
    "kubectl get inferno -o yaml | inferno plan - -o json",
    "inferno plan fleet.yaml --set 'server.*.load.arrivalRate*=1.5'",
    "inferno plan fleet.yaml --fail-on unserved --fail-on 'gap>0.01'",
    "inferno plan fleet.yaml --write-lp plan.lp",
    "inferno plan fleet.yaml --set accelerator.B200.type=B200 "
    "--set accelerator.B200.cost=100 --set capacity.B200=8 --set 'model.*.B200=H100' "
    "--set 'model.*.B200.alpha*=0.5'",
)


ModelConfig = Annotated[
    str, options.option("FILE", "The config.json of a model on Hugging Face.", show_default=False)
]
WeightPrecision = Annotated[
    str,
    options.option(
        "NAME",
        "Precision of the weights: bf16, fp8, int4 or mxfp4. Without it, as published.",
        show_default=False,
    ),
]
CachePrecision = Annotated[str, options.option("NAME", "Precision of the cache: bf16 or fp8.")]
OWN_CURRENCY = (
    "The currency of your prices; prices of the catalogue are in USD, and count there only."
)
OWN_PRICES = (
    "Your prices of an hour of a card, in lines such as H100: 2.50, before the catalogue's."
)


@app.command(
    epilog=options.examples(
        "inferno size Qwen3-32B --rate 7/s --input 1000 --output 300 --ttft 500ms --itl 40ms",
        "inferno size gpt-oss-120b --rate 300/min --accelerator H100 --accelerator MI300X",
        "inferno size Qwen3-8B --card X1 --memory 64 --bandwidth 2000 --tflops 400 --price 1.2",
        "inferno size Qwen3-32B --rate 7/s -o yaml > mine.yaml && inferno plan mine.yaml",
    ),
)
def size(  # noqa: PLR0913 - an argument for each option
    model: Annotated[
        str,
        options.argument(
            "MODEL", "A model of `inferno catalogue models`, or with --model-config any name."
        ),
    ],
    *,
    rate: Annotated[str, options.option("RATE", "Load, such as 7/s or 420/min.")] = "1/s",
    input_tokens: Annotated[
        int, options.option("N", "Mean input tokens of requests.", "--input", min=1)
    ] = 1000,
    output_tokens: Annotated[
        str, options.option("N", "Mean output tokens of requests; the format is -o.", "--output")
    ] = "300",
    ttft: Annotated[str, options.option("TIME", "Most mean time to first token.")] = "1s",
    itl: Annotated[str, options.option("TIME", "Most mean inter-token latency.")] = "50ms",
    accelerator: Annotated[
        list[str],
        options.option("NAME", "Only this card; repeat it for several.", show_default="all"),
    ] = [],  # noqa: B006 - typer reads it and never changes it
    cards: Annotated[
        list[int],
        options.option(
            "N",
            "Cards that share each layer (tensor parallel); repeat it for several numbers.",
            min=1,
            show_default="1, 2, 4, 8",
        ),
    ] = [1, 2, 4, 8],  # noqa: B006 - typer reads it and never changes it
    model_config: ModelConfig = "",
    dtype: WeightPrecision = "",
    kv_dtype: CachePrecision = "bf16",
    prices: Annotated[Path | None, options.option("FILE", OWN_PRICES)] = None,
    currency: Annotated[str, options.option("NAME", OWN_CURRENCY)] = "USD",
    card: Annotated[
        str, options.option("NAME", "A card of your own, beside all.", show_default=False)
    ] = "",
    memory: Annotated[float | None, options.option("GB", "Of --card.")] = None,
    bandwidth: Annotated[float | None, options.option("GB/S", "Of the memory of --card.")] = None,
    tflops: Annotated[
        float | None, options.option("TFLOP/S", "Of --card, dense, with 16 bits.")
    ] = None,
    link: Annotated[
        float | None,
        options.option(
            "GB/S", "Of --card to other cards, in one direction; 32 is PCIe 4.0.", show_default="32"
        ),
    ] = None,
    price: Annotated[float | None, options.option("PRICE", "Of an hour of one --card.")] = None,
    whole: Annotated[
        bool,
        typer.Option("--all", help="Show every number of cards, not the best of each card alone."),
    ] = False,
    plot: Annotated[
        Path | None, options.option("FILE", "Draw cost against inter-token latency (SVG).")
    ] = None,
    output_format: Annotated[
        options.Format,
        typer.Option("--format", "-o", help="How to print the result; yaml is a fleet of it."),
    ] = options.Format.TABLE,
) -> None:
    """Show what one model needs for one load, on every card.

    For each card, and each number of cards that share the layers: replicas, latencies and cost,
    the cheapest first. The figures are estimated from data sheets, and the last column says what
    such estimates are off by in the median, or that others have measured it. -o yaml prints a
    fleet to go on with.
    """
    from inferno_operator.cli.catalogue import read_hardware
    from inferno_operator.cli.sizing import (
        CENTS,
        OwnCard,
        WantedLoad,
        build_request,
        gather_groups,
        list_doubts,
    )
    from inferno_operator.cli.sizing import size as size_model
    from inferno_operator.cli.tables.sizing import describe_sizing, draw_sizing, tabulate_sizing

    load = WantedLoad(
        options.parse_rate(rate, "--rate"),
        input_tokens,
        options.parse_tokens(output_tokens, "--output"),
        options.parse_duration_ms(ttft, "--ttft"),
        options.parse_duration_ms(itl, "--itl"),
    )
    hardware = read_hardware()
    own = OwnCard(card, memory, bandwidth, tflops, link, price)
    warn(list_doubts(load, own))
    groups = gather_groups(hardware, accelerator, cards, own, prices, currency)
    request = build_request(model, model_config, dtype, kv_dtype, load)
    sizing = size_model(request, groups, hardware)
    money = options.Money(options.parse_currency(currency).unit, CENTS)
    if plot is not None:
        write(plot, draw_sizing(sizing, money))
    if output_format is options.Format.YAML:
        for line in sizing.warnings:
            typer.echo(f"# {line}")
        show_objects(sizing.fleet)
        return
    show(
        output_format,
        sizing.to_json,
        lambda: describe_sizing(sizing, money, whole=whole),
        lambda: tabulate_sizing(sizing, money),
    )


@app.command(
    epilog=options.examples(
        "inferno sample | inferno plan - --currency USD",
        "inferno sample | inferno explain - chat",
        "inferno sample --fleet > fleet.yaml && inferno plan fleet.yaml",
        "inferno sample --trace > trace.csv && "
        "inferno replay fleet.yaml --trace trace.csv --hours 6",
    )
)
def sample(
    *,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="Print a fleet of 20 servers and 9 types of cards.")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Print a recorded load of 5 days, to replay.")
    ] = False,
) -> None:
    """Print a small system, to try the other commands with.

    It has a server for each of three models, and the cards that they may run on. Write it to a
    file, change it, and give the file to the other commands. Costs are in US cents/hour.
    """
    from inferno_operator.cli.offline.manifests import read_sample
    from inferno_operator.runtime.files import find_sample

    if fleet and trace:
        raise InputError("--fleet and --trace are two files: print one after the other")
    if trace:
        text = find_sample("traces/servegen-m-large.csv").read_text("utf-8")
    else:
        text = read_sample("fleet" if fleet else "three-models")
    typer.echo(text, nl=False)


@app.command("optimize", hidden=True, epilog=PLAN_EXAMPLES)
@app.command(epilog=PLAN_EXAMPLES)
def plan(  # noqa: PLR0913 - an argument for each option
    paths: options.Paths,
    output: options.Output = options.Format.TABLE,
    changes: options.Changes = [],  # noqa: B006 - typer reads it and never changes it
    time_limit: options.TimeLimit = 30.0,
    *,
    curve: options.CurvePlot = None,
    write_lp: options.LinearProgram = None,
    fail_on: options.FailOn = [],  # noqa: B006 - typer reads it and never changes it
    words: options.Filter = "",
    sort: options.Sort = "",
    currency: options.Currency = options.IN_CENTS,
    namespace: options.InNamespace = "",
    lenient: options.Lenient = False,
) -> None:
    """Show what every server would get.

    Needs no cluster and changes nothing. `inferno optimize` is another name of this command.
    """
    from inferno_operator.cli.drawing import draw_solver_curve
    from inferno_operator.cli.tables.table import RowOrder
    from inferno_optimizer.explain.changes import parse_change
    from inferno_optimizer.optimize import formulate_lp, optimize
    from inferno_optimizer.wire.what_if import apply_changes

    checks, rows = options.parse_conditions(fail_on), RowOrder.parse(words, sort)
    money, doubts = options.parse_currency(currency), list[str]()
    system = _read(paths, time_limit, namespace, lenient=lenient, doubt=doubts.extend)
    system = system if curve is None else trace_solver(system)
    changed, idle = apply_changes(system, map(parse_change, changes))
    warn(idle)
    with working(f"optimizing {len(system.servers)} servers"):
        solution = optimize(system)
    if curve is not None:
        write(curve, draw_solver_curve(solution.certificate))
    before = solution
    if changes:
        with working("optimizing with what is changed"):
            solution = optimize(changed)
    if write_lp is not None:
        write(write_lp, formulate_lp(changed, solution))
    if changes:
        _show_comparison(output, changes, changed, before, solution, rows, money)
    else:
        _show_solution(output, system, solution, rows, money)
    warn(doubts)
    options.refuse(solution, checks)


def _show_solution(
    output: options.Format,
    system: "System",
    solution: "Solution",
    rows: "RowOrder",
    money: options.Money,
) -> None:
    from inferno_operator.cli.tables.solution import describe_solution
    from inferno_optimizer.wire.codec import encode_solution

    show(
        output,
        lambda: encode_solution(solution),
        lambda: describe_solution(system, solution, money),
        rows=rows,
    )


def _show_comparison(
    output: options.Format,
    changes: list[str],
    system: "System",
    before: "Solution",
    after: "Solution",
    rows: "RowOrder",
    money: options.Money,
) -> None:
    from inferno_operator.cli.tables.solution import describe_comparison, tabulate_differences
    from inferno_optimizer.explain.comparison import compare
    from inferno_optimizer.wire.codec import encode_comparison

    comparison = compare(before, after)
    show(
        output,
        lambda: encode_comparison(changes, comparison),
        lambda: describe_comparison(comparison, system, money),
        lambda: tabulate_differences(comparison.differences, system, money),
        rows,
    )


@app.command(epilog=options.examples("inferno sample | inferno explain - chat"))
def explain(
    paths: options.Paths,
    server: Annotated[str, options.argument("SERVER", "Its name (spec.name).")],
    output: options.Output = options.Format.TABLE,
    time_limit: options.TimeLimit = 30.0,
    *,
    currency: options.Currency = options.IN_CENTS,
    namespace: options.InNamespace = "",
    lenient: options.Lenient = False,
) -> None:
    """Show every option of one server.

    Each accelerator with its numbers and, where it is out, why. For a server that gets less
    than it needs also the smallest changes that would serve it.
    """
    from inferno_operator.cli.tables.solution import describe_explanation, explain_decision
    from inferno_optimizer.explain.options import explain
    from inferno_optimizer.optimize import optimize

    money = options.parse_currency(currency)
    system = _read(paths, time_limit, namespace, lenient=lenient, doubt=warn)
    explain(system, server)  # refuses an unknown name before it takes time
    with working("looking for what would serve it"):
        found = explain_decision(system, optimize(system), server)
    show(output, found.to_json, lambda: describe_explanation(system, found, money))


@app.command(epilog=options.examples("inferno report fleet.yaml --html plan.html"))
def report(  # noqa: PLR0913 - an argument for each option
    paths: options.Paths,
    html: Annotated[Path, options.option("FILE", "The page to write.", show_default=False)],
    changes: options.Changes = [],  # noqa: B006 - typer reads it and never changes it
    time_limit: options.TimeLimit = 30.0,
    *,
    fail_on: options.FailOn = [],  # noqa: B006 - typer reads it and never changes it
    currency: options.Currency = options.IN_CENTS,
    namespace: options.InNamespace = "",
    lenient: options.Lenient = False,
) -> None:
    """Write what every server would get as a page (HTML).

    The page is one HTML file that needs no network. For the most important servers that get
    less than they need, it names the smallest changes that would serve them.
    """
    from inferno_operator.cli.report import build_fleet_page
    from inferno_operator.pages.html import render_file
    from inferno_optimizer.explain.changes import parse_change
    from inferno_optimizer.optimize import optimize
    from inferno_optimizer.wire.what_if import apply_changes

    checks, money = options.parse_conditions(fail_on), options.parse_currency(currency)
    system = _read(paths, time_limit, namespace, lenient=lenient, doubt=warn)
    system, idle = apply_changes(system, map(parse_change, changes))
    warn(idle)
    with working(f"optimizing {len(system.servers)} servers") as tell:
        solution = optimize(system)
        tell("looking for what would serve all")
        page = build_fleet_page(f"Plan for {len(system.servers)} servers", system, solution, money)
    write(html, render_file("fleet.html", page))
    options.refuse(solution, checks)


def _read(
    paths: list[str],
    time_limit: float,
    namespace: str,
    *,
    lenient: bool,
    doubt: Callable[[Sequence[str]], None],
) -> "System":
    """Return the system that files describe, with a time limit for the exact solver [s].

    `doubt` is called with what may be meant otherwise; the plan says what follows from it.
    """
    from inferno_operator.cli.offline.system import read_system, refuse_unknown

    unknown = warn if lenient else refuse_unknown
    system = read_system(paths, unknown, remark=warn, doubt=doubt, namespace=namespace)
    return limit_time(system, time_limit)


ModelName = Annotated[str, options.option("NAME", "The name of the model.")]
AcceleratorName = Annotated[str, options.option("NAME", "The name of the accelerator.")]
AccCount = Annotated[int, options.option("N", "Accelerators that one replica has.", min=1)]
TokenBudget = Annotated[
    int,
    options.option(
        "N", "Most tokens that a step of the engine computes (vLLM: max-num-batched-tokens).", min=0
    ),
]
RunFiles = Annotated[
    list[str],
    options.argument(
        "FILE",
        "CSV with a run on each line, or the JSON that `vllm bench serve`, "
        "guidellm or genai-perf saves.",
        show_default=False,
    ),
]
MaxBatchSize = Annotated[
    int, options.option("N", "Largest batch of a replica; 0: the largest that was seen.", min=0)
]
Plot = Annotated[Path | None, options.option("FILE", "Draw the lines and what was measured (SVG).")]
Labels = Annotated[
    str,
    options.option(
        "NAME=VALUE,...",
        "Labels that all series of the vLLM replicas have: read Prometheus, not files.",
    ),
]
PastHours = Annotated[
    float, options.option("H", "How far back to read Prometheus.", min=0.5, max=48)
]
EngineUrl = Annotated[
    str, options.argument("URL", "Where the engine is, such as http://localhost:8000.")
]
Shapes = Annotated[
    list[str],
    options.option(
        "INPUT/OUTPUT",
        "Mean tokens of prompts and answers, the most usual ones first. Can be repeated.",
        "--shape",
    ),
]
MaxConcurrency = Annotated[
    int, options.option("N", "Most clients; not more than the largest batch.", min=4, max=4096)
]
Minutes = Annotated[float, options.option("M", "How long to measure.", min=0.1, max=15)]
ServedModel = Annotated[
    str, options.option("NAME", "The model to ask for; by default the first one served.")
]
KeyFile = Annotated[Path | None, options.option("FILE", "A file with the API key.")]
Timeout = Annotated[float, options.option("SECONDS", "Longest time to the next token.", min=1)]
Csv = Annotated[Path, options.option("FILE", "The file to write; it must not exist.")]
Yes = Annotated[bool, typer.Option("--yes", help="Load an engine that is not on this machine.")]


@app.command(
    epilog=options.examples(
        "inferno measure --prometheus http://localhost:9090 mine.yaml "
        "--labels namespace=prod,model_name=Qwen/Qwen3-32B -o yaml > measured.yaml",
        "inferno measure --prometheus https://thanos/prometheus --token-file token measured.yaml",
    )
)
@options.prometheus_options
def measure(
    prometheus: options.PrometheusOptions,
    paths: options.Paths,
    output: options.Output = options.Format.TABLE,
    *,
    queries: Annotated[
        bool, typer.Option("--queries", help="Show each query and its answer.")
    ] = False,
    labels: Annotated[
        str,
        options.option(
            "NAME=VALUE,...",
            "Labels that all series of the vLLM replicas have, of the one Server without "
            "spec.measure.",
        ),
    ] = "",
    lenient: options.Lenient = False,
) -> None:
    """Measure the load and the latencies of Servers now.

    Asks Prometheus about the Servers with spec.measure. As YAML, all objects with the measured
    loads are printed: pipe them to `inferno plan -`.
    """
    from datetime import UTC, datetime

    from inferno_operator.cli.calibration import parse_labels
    from inferno_operator.cli.measurement import measure, name_labels, with_measured_loads
    from inferno_operator.cli.offline.system import read_resources, refuse_unknown
    from inferno_operator.cli.tables import measurement

    place, sources = prometheus.place, prometheus.read_sources()
    resources = read_resources(paths, warn if lenient else refuse_unknown)
    if labels:
        resources = name_labels(resources, parse_labels(labels))
    with working("asking Prometheus"):
        measurements, asked = run_async(measure(resources, place, sources))
    if output is options.Format.YAML:
        warn(measurement.list_measurement_notes(measurements))
        show(output, lambda: with_measured_loads(resources, measurements), tuple)
        return
    shown = asked if queries else ()
    show(
        output,
        lambda: measurement.encode_measurements(measurements, shown),
        lambda: measurement.describe_measurements(measurements, shown, datetime.now(UTC)),
    )


@app.command(
    epilog=options.examples(
        "inferno calibrate bench.csv --model llama-8b --accelerator H100",
        "inferno calibrate *.json --model llama-8b --accelerator H100 --plot fit.svg",
        "inferno calibrate --prometheus http://localhost:9090 "
        "--labels namespace=prod,model_name=llama-8b --model llama-8b --accelerator H100",
    )
)
@options.prometheus_options
def calibrate(  # noqa: PLR0913 - an argument for each option
    prometheus: options.PrometheusOptions,
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
    from inferno_operator.cli.calibration import calibrate_windows, read_measurements
    from inferno_operator.cli.drawing import draw_calibration
    from inferno_operator.cli.tables.calibration import CalibratedPair
    from inferno_optimizer.errors import InputError

    if files and (labels or (prometheus.endpoint and options.URL not in os.environ)):
        raise InputError("give either files, or --prometheus and --labels")
    measured = _read_past(prometheus, labels, hours) if labels else read_measurements(files)
    warn(measured.warnings)
    fitted = calibrate_windows(measured, max_batch_size, token_budget)
    if plot is not None:
        write(plot, draw_calibration(measured.windows, fitted.lines, measured.requirements))
    _print_model(CalibratedPair(model, accelerator, acc_count), fitted, measured)


def _read_past(prometheus: options.PrometheusOptions, labels: str, hours: float) -> "Measurements":
    """Return what replicas with these labels did, as Prometheus knows it."""
    from inferno_operator.cli.calibration import parse_labels, parse_windows

    place, wanted = prometheus.place, parse_labels(labels)
    sources = prometheus.read_sources()
    with working("asking Prometheus") as tell:
        return parse_windows(place, sources, wanted, hours, tell)


def _print_model(pair: "CalibratedPair", laws: "Laws", measured: "Measurements") -> None:
    from inferno_operator.cli.tables.calibration import format_manifest, warn_of_outliers

    warn([*warn_of_outliers(laws)])
    typer.echo(format_manifest(pair, laws, measured))


@app.command(
    epilog=options.examples(
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
    from inferno_operator.cli import bench
    from inferno_operator.cli.calibration import calibrate_windows, read_measurements
    from inferno_operator.cli.tables.calibration import CalibratedPair
    from inferno_optimizer.calibration.plan import Scope
    from inferno_optimizer.errors import CalibrationError
    from inferno_optimizer.units import SECONDS_PER_MINUTE

    endpoint = EngineEndpoint(url, key_file, timeout)
    bench.require_consent(endpoint, minutes, yes=yes)
    scope = Scope([bench.parse_shape(text) for text in shapes], max_concurrency, token_budget)
    file = bench.RunsFile(csv)
    _measure_engine(
        bench.Benchmark(endpoint, scope, SECONDS_PER_MINUTE * minutes, served_model), file
    )
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


@app.command(
    epilog=options.examples(
        "kubectl get servers -o yaml | inferno generate keda - | kubectl apply -f -",
        "kubectl get servers -o yaml | inferno generate keda --for kserve - > scaled-objects.yaml",
    )
)
def generate(  # noqa: PLR0913 - an argument for each option
    autoscaler: options.Kind,
    paths: options.Paths,
    servers: Annotated[
        list[str],
        options.option(
            "NAME", "Only this Server; can be repeated.", "--server", show_default=False
        ),
    ] = [],  # noqa: B006 - typer reads it and never changes it
    *,
    owner: options.For = None,
    url: options.Url = options.SERVICE,
    token_secret: options.TokenSecret = options.SECRET,
    max_replicas: options.MaxReplicas = options.MOST,
    namespace: Annotated[
        str | None, options.option("NAME", "Namespace of Servers that name none.")
    ] = None,
    lenient: options.Lenient = False,
) -> None:
    """Generate KEDA ScaledObjects or HPAs.

    With keda, a ScaledObject for each workload, which asks the operator; with hpa, a
    HorizontalPodAutoscaler, which reads the metric inferno_desired_replicas.
    """
    from inferno_operator.cli.autoscalers import generate_autoscalers
    from inferno_operator.cli.offline.system import read_resources, refuse_unknown

    resources = read_resources(paths, warn if lenient else refuse_unknown)
    access = options.Access(url, token_secret, max_replicas)
    text, warnings = generate_autoscalers(autoscaler, resources, servers, access, namespace, owner)
    warn(warnings)
    typer.echo(text, nl=False)


migrations = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


WVA_EXAMPLES = options.examples(
    "kubectl get variantautoscalings,hpa,scaledobjects,configmaps,deployments -A "
    "-o yaml | inferno migrate wva - > inferno.yaml"
)


@migrations.callback(epilog=WVA_EXAMPLES)
def migrate() -> None:
    """Convert other autoscalers' objects to Inferno resources."""


@migrations.command("wva", epilog=WVA_EXAMPLES)
def migrate_wva(
    paths: Annotated[
        list[str],
        options.argument(
            "PATH",
            "VariantAutoscalings, or HPAs and ScaledObjects with annotations; the "
            "ConfigMaps of WVA; the Deployments. Files, folders; - for stdin.",
            show_default=False,
        ),
    ],
    accelerators: Annotated[
        list[str],
        options.option(
            "[WORKLOAD=]NAME",
            "The accelerator of a workload, or of all whose pods name none. Can be repeated.",
            "--accelerator",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer reads it and never changes it
) -> None:
    """Convert objects of llm-d's WVA to Inferno resources.

    Reads what v0.5 to v0.9 are configured with, and prints Accelerators, Models, ServiceClasses,
    Servers, a Capacity and an Optimizer in mode Recommend, which scale nothing yet. What has no
    counterpart is told in one line each. Needs no cluster and changes nothing.
    """
    from inferno_operator.cli.migration import migrate
    from inferno_operator.cli.offline.manifests import read_documents

    manifests, notes = migrate(read_documents(paths), accelerators)
    warn(notes)
    if not manifests:
        raise InputError("nothing was migrated: each workload is left out; the warnings say why")
    show_objects(manifests)


DEFAULT_POLICIES = ["static-peak", "static-peak@best", "hpa", "hpa@best", "inferno"]


@app.command(
    epilog=options.examples(
        "inferno replay fleet.yaml --trace trace.csv --hours 6 --scale 0.3 "
        "--policy inferno --policy hpa --html replay.html",
        "echo 'leadTimeSeconds: 100' > settings.yaml && inferno replay fleet.yaml "
        "--trace trace.csv --hours 2 --settings settings.yaml --policy keda-slo",
        "inferno replay measured.yaml --prometheus http://localhost:9090 --from 7d "
        "--keep week.csv.gz --policy inferno --policy hpa",
    )
)
@partial(options.prometheus_options, is_brief=True)
def replay(  # noqa: PLR0913 - an argument for each option
    prometheus: options.PrometheusOptions,
    paths: options.Paths,
    output: options.ReplayOutput = options.ReplayFormat.TABLE,
    *,
    trace: Annotated[Path | None, options.TRACE_FILE] = None,
    begin: options.Begin = "",
    end: options.End = "",
    keep: options.Keep = None,
    policies: options.Policies = DEFAULT_POLICIES,
    hours: options.Hours = 0.0,
    scale: options.Scale = 1.0,
    settings_file: options.SettingsFile = None,
    step: options.OwnStep = None,
    truth: options.Truth = None,
    slower: options.Slower = None,
    error: options.Error = None,
    lead_time: options.LeadTimeMean = None,
    lead_time_cov: options.LeadTimeSpread = None,
    poisson: options.Poisson = None,
    seed: options.Seed = None,
    jobs: options.Jobs = 1,
    html: options.Page = None,
    currency: options.Currency = options.IN_CENTS,
    namespace: options.InNamespace = "",
    lenient: options.Lenient = False,
) -> None:
    """Show what policies would have made of a recorded load.

    Needs no cluster and changes nothing. It simulates replicas that start, queue and drain, and
    prints for each policy the cost, the share of requests within the targets, and the regret:
    the cost above that of a policy that knows the load and whose replicas start at once.
    """
    from inferno_operator.cli import replay
    from inferno_operator.cli.offline.manifests import read_documents
    from inferno_operator.cli.offline.system import (
        list_measures,
        parse_resources,
        parse_system,
        refuse_unknown,
    )
    from inferno_operator.cli.offline.traces import read_trace
    from inferno_operator.cli.past import PastOptions, read_past
    from inferno_optimizer.errors import InputError

    given = {
        "step_seconds": step,
        "truth": truth,
        "slower": slower,
        "error": error,
        "lead_time_seconds": lead_time,
        "lead_time_cov": lead_time_cov,
        "poisson": poisson,
        "seed": seed,
    }
    settings = replay.read_settings(settings_file, given)
    money = options.parse_currency(currency)
    documents, unknown = read_documents(paths, namespace), warn if lenient else refuse_unknown
    if trace and not (begin or keep):
        load = replay.ReplayedLoad(read_trace(str(trace), warn), str(trace), hours, scale)
    elif begin and not trace:
        place, sources = prometheus.place, prometheus.read_sources()
        resources = parse_resources(documents, unknown)
        with working("asking Prometheus") as tell:
            past = PastOptions(place, sources, begin, end, settings.step_seconds, keep)
            load = replay.ReplayedLoad(
                read_past(resources, past, tell, warn), place.url, hours, scale
            )
    else:
        raise InputError("which load? Give either --trace FILE, or --prometheus URL and --from")
    true = read_documents([settings.truth] if settings.truth else [])
    performing = parse_system(true, unknown).profiles if true else ()
    system = parse_system(documents, unknown, warn, load.means, doubt=warn)
    scenario = replay.build_scenario(
        system, load, settings, warn, truth=performing, measures=list_measures(documents)
    )
    with (
        interruptible(lambda: warn(["interrupted, so there is no result"])),
        working("replaying") as tell,
    ):
        replayed = replay.replay_policies(scenario, policies, tell, jobs)
    if output is options.ReplayFormat.CSV:
        typer.echo(replay.write_csv(replayed))
    else:
        show(
            options.Format(output.value),
            lambda: replay.build_document(scenario, replayed),
            lambda: replay.describe_replays(replayed, money),
        )
    if html is not None:
        from inferno_operator.cli.report import build_replay_page
        from inferno_operator.pages.html import render_file

        page = build_replay_page(f"Replay of {load.origin}", scenario, replayed, money)
        write(html, render_file("replay.html", page))


@app.command(epilog=options.examples("inferno floor fleet.yaml --trace trace.csv --hours 6"))
def floor(  # noqa: PLR0913 - an argument for each option
    paths: options.Paths,
    output: options.Output = options.Format.TABLE,
    *,
    trace: Annotated[Path, options.TRACE_FILE],
    step: options.Step = 60.0,
    hours: options.Hours = 0.0,
    scale: options.Scale = 1.0,
    currency: options.Currency = options.IN_CENTS,
    namespace: options.InNamespace = "",
    lenient: options.Lenient = False,
) -> None:
    """Show what an ideal autoscaler would have cost.

    In each step each server has the replicas of least cost that meet its targets, at once and
    without a limit of cards.
    """
    from inferno_operator.cli import replay
    from inferno_operator.cli.offline.manifests import read_documents
    from inferno_operator.cli.offline.system import parse_system, refuse_unknown
    from inferno_operator.cli.offline.traces import read_trace
    from inferno_optimizer.replay.policies import find_floor

    money = options.parse_currency(currency)
    load = replay.ReplayedLoad(read_trace(str(trace), warn), str(trace), hours, scale)
    unknown = warn if lenient else refuse_unknown
    documents = read_documents(paths, namespace)
    system = parse_system(documents, unknown, warn, load.means, doubt=warn)
    scenario = replay.build_scenario(system, load, replay.ReplaySettings(step_seconds=step), warn)
    least = find_floor(scenario.believed, scenario.trace)
    show(
        output,
        lambda: replay.build_floor_document(least),
        lambda: replay.describe_floor(least, money),
    )


@app.command(
    epilog=options.examples(
        "echo '{fleets: [{name: mine, paths: [fleet.yaml]}],' "
        "'traces: [{name: load, file: trace.csv, hours: 2}],' 'policies: [hpa, inferno]}' "
        "> study.yaml && inferno study study.yaml --jobs 2",
        "inferno study study.yaml --scheduler tcp://scheduler:8786 -o csv",
    )
)
def study(
    file: Annotated[Path, options.argument("FILE", "The study, YAML or JSON.")],
    output: options.Output = options.Format.TABLE,
    *,
    results: Annotated[
        Path | None,
        options.option(
            "FILE",
            "Keeps the results, which are not computed again: one JSON line for each "
            "replay. By default a file of the current folder with the name of the "
            "study, and .jsonl.",
            show_default=False,
        ),
    ] = None,
    jobs: options.Jobs = 1,
    scheduler: Annotated[
        str,
        options.option(
            "ADDRESS",
            "Replay on a Dask cluster, by the address of its scheduler; it needs the extra study.",
        ),
    ] = "",
    currency: options.Currency = options.IN_CENTS,
    lenient: options.Lenient = False,
) -> None:
    """Replay policies with several fleets, loads and settings.

    The study names all of them. Each replay is one row. What was
    computed once is kept, so that an interrupted study goes on where it was.
    """
    from inferno_operator.cli import study
    from inferno_operator.cli.offline.system import refuse_unknown
    from inferno_operator.cli.replay import processes, yield_completed

    money = options.parse_currency(currency)
    wanted, kept = study.read_study(file), results or Path(f"{file.stem}.jsonl")
    printed = set[str]()

    def warn_once(warnings: Iterable[str]) -> None:
        new = [warning for warning in dict.fromkeys(warnings) if warning not in printed]
        printed.update(new)
        warn(new)

    runs = list(
        study.list_runs(wanted, file.parent, warn if lenient else refuse_unknown, warn_once)
    )
    found = study.read_results(kept)
    missing = {each.key: each for each in runs if each.key not in found}
    done = 0

    def say() -> None:
        so_far = f"{done} of {len(missing)} replays are done and kept in {kept}"
        warn([f"interrupted: {so_far}; the same command goes on"])

    if missing:
        add = study.open_results(kept)
        calls = {key: (each.scenario, each.policy) for key, each in missing.items()}
        with (
            interruptible(say),
            working("replaying") as tell,
            study.dask_cluster(scheduler) if scheduler else processes(jobs) as executor,
        ):
            for key, result in yield_completed(executor, study.compute_result, calls):
                add(missing[key], result)
                found[key] = result
                done += 1
                tell(f"replayed {missing[key]} ({done} of {len(missing)})")
    rows = study.list_rows(wanted, runs, found)
    show(output, lambda: rows, lambda: study.describe_study(rows, money))


class LogFormat(StrEnum):
    """Format of log lines."""

    TEXT = "text"
    JSON = "json"


def _add_operator_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add to a command one option for each environment variable that the operator reads."""
    own = [p for p in signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = map(_build_option, VARIABLES)
    command.__signature__ = Signature([*own, *options])  # type: ignore[attr-defined]  # PEP 362
    return command


def _build_option(variable: Variable) -> Parameter:
    flag, text = f"--{variable.option}", f"{variable.help}{variable.default_note} [{variable.name}]"
    kind: object
    if variable.switch:
        kind = Annotated[bool | None, typer.Option(f"{flag}/--no-{variable.option}", help=text)]
    else:
        kind = Annotated[str | None, typer.Option(flag, metavar=variable.metavar, help=text)]
    name = variable.option.replace("-", "_")
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)


@app.command(epilog=options.examples("inferno operator --namespace llm --leader-election"))
@_add_operator_options
def operator(
    *,
    health_port: Annotated[
        int,
        options.option(
            "PORT",
            "For /healthz, /readyz and /metrics; 0 takes a free one and prints it.",
            min=0,
            max=65535,
        ),
    ] = HEALTH_PORT,
    log_format: Annotated[LogFormat, typer.Option(help="How to log.")] = LogFormat.TEXT,
    **flags: str | bool | None,
) -> None:
    """Run the operator.

    It works in the cluster that KUBECONFIG names, or in which it runs, and is configured by
    INFERNO_* variables; options win over them.
    """
    from inferno_operator.main import run

    names = {variable.option.replace("-", "_"): variable.name for variable in VARIABLES}
    given = {names[flag]: str(value) for flag, value in flags.items() if value is not None}
    run({**os.environ, **given}, health_port, json_logs=log_format is LogFormat.JSON)


@app.command(epilog=options.examples("inferno admission --tls-cert tls.crt --tls-key tls.key"))
def admission(
    *,
    tls_cert: Annotated[
        Path,
        options.option(
            "FILE", "Certificate by which the API server knows it (PEM).", envvar="INFERNO_TLS_CERT"
        ),
    ],
    tls_key: Annotated[Path, options.option("FILE", "Its key (PEM).", envvar="INFERNO_TLS_KEY")],
    port: Annotated[
        int, options.option("PORT", "Where the API server calls it.", min=1, max=65535)
    ] = 9443,
    log_format: Annotated[LogFormat, typer.Option(help="How to log.")] = LogFormat.TEXT,
) -> None:
    """Warn of mistakes while objects are applied.

    The API server asks it before it stores an object, and kubectl prints what it answers: what the
    conditions would say. It works in the cluster that KUBECONFIG names, or in which it runs, needs
    a ValidatingWebhookConfiguration there, and writes nothing.
    """
    try:
        from inferno_operator.adapters.admission import run_admission
    except ModuleNotFoundError as error:
        advice = "pip install 'inferno-operator[admission]'"
        raise InputError(f"inferno admission needs kopf: {advice}") from error
    from inferno_operator.logs import configure

    configure(as_json=log_format is LogFormat.JSON)
    run_admission(port, tls_cert, tls_key)


@app.command(epilog=options.examples("inferno serve --stateful --port 3302"))
def serve(  # noqa: PLR0913 - an argument for each option
    *,
    stateful: Annotated[
        bool,
        typer.Option(
            "--stateful", "-F", help="Keep a system that clients change, and optimize that."
        ),
    ] = False,
    host: Annotated[
        str, options.option("HOST", "The address to listen on.", envvar="INFERNO_HOST")
    ] = "127.0.0.1",
    port: Annotated[
        str,
        options.option(
            "PORT",
            "The port to listen on; 0 takes a free one and prints it.",
            envvar="INFERNO_PORT",
        ),
    ] = "8080",
    tls_cert: Annotated[
        Path | None,
        options.option("FILE", "Serve TLS with this certificate (PEM).", envvar="INFERNO_TLS_CERT"),
    ] = None,
    tls_key: Annotated[
        Path | None, options.option("FILE", "Its key (PEM).", envvar="INFERNO_TLS_KEY")
    ] = None,
    tls_ca: Annotated[
        Path | None,
        options.option(
            "FILE",
            "Serve only clients that have a certificate of this authority (PEM).",
            envvar="INFERNO_TLS_CA",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        options.option(
            "FILE",
            "Serve only clients that send the bearer token in this file.",
            envvar="INFERNO_TOKEN_FILE",
        ),
    ] = None,
    time_limit: options.TimeLimit = 30.0,
) -> None:
    """Run the optimizer as a REST server.

    Files are read anew when they change. It speaks the published API, and describes that at
    /openapi.json; /healthz, /readyz and /metrics are there too.
    """
    from inferno_optimizer.api.messages import ServerLimits
    from inferno_optimizer.api.server import Files, read_port, run_server

    files = Files(tls_cert, tls_key, tls_ca, token_file)
    limits = ServerLimits.for_solver(time_limit)
    run_server(host, read_port(port), limits, files, typer.echo, stateful=stateful)


CardNames = Annotated[
    list[str],
    options.option(
        "NAME", "The card; `inferno catalogue accelerators` has all. Repeat it for several."
    ),
]
KnownModelName = Annotated[
    str,
    options.option(
        "NAME",
        "A model of `inferno catalogue models`; with --model-config, the name to give it.",
        show_default=False,
    ),
]
CardCounts = Annotated[
    list[int],
    options.option(
        "N",
        "Cards of a replica, which share each layer; repeat it for each "
        "accelerator where they differ.",
        min=1,
        show_default="1",
    ),
]
ONE_CARD = [1]
InputTokens = Annotated[int, options.option("N", "Mean input tokens of requests.", min=1)]
OutputTokens = Annotated[int, options.option("N", "Mean output tokens.", min=1)]


catalogue_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@catalogue_app.callback(epilog=options.examples("inferno catalogue show llama_13b -o yaml"))
def show_published() -> None:
    """Show published figures of models, and estimate others.

    Use them until you have calibrated your own.
    """


@catalogue_app.command("list", epilog=options.examples("inferno catalogue list"))
def list_models(output: options.Output = options.Format.TABLE) -> None:
    """List the models, their accelerators and sources."""
    from inferno_operator.cli.catalogue import describe_catalogue, read_catalogue

    catalogue = read_catalogue()
    show(output, catalogue.to_json, lambda: describe_catalogue(catalogue))


@catalogue_app.command("show", epilog=options.examples("inferno catalogue show llama_13b -o yaml"))
def show_model(
    model: Annotated[str, options.argument("NAME", "The name of the model.")],
    output: options.Output = options.Format.TABLE,
) -> None:
    """Show the figures of a model with their sources.

    As YAML or JSON, print the manifest of a Model.
    """
    from inferno_operator.cli.catalogue import (
        build_published_model,
        describe_figures,
        read_catalogue,
    )

    catalogue = read_catalogue()
    figures = catalogue.of(model)
    show(
        output,
        lambda: build_published_model(model, figures),
        lambda: describe_figures(catalogue, figures),
    )


@catalogue_app.command("accelerators", epilog=options.examples("inferno catalogue accelerators"))
def list_accelerators(output: options.Output = options.Format.TABLE) -> None:
    """List the cards of which there are estimates.

    Their figures are those that their vendors publish.
    """
    from inferno_operator.cli.catalogue import describe_hardware, read_hardware

    hardware = read_hardware()
    show(output, hardware.to_json, lambda: describe_hardware(hardware))


@catalogue_app.command("models", epilog=options.examples("inferno catalogue models"))
def list_known_models(output: options.Output = options.Format.TABLE) -> None:
    """List the models whose config.json is known.

    `inferno catalogue estimate --model` takes their names.
    """
    from inferno_operator.cli.catalogue import describe_models, read_models

    models = read_models()
    show(output, models.to_json, lambda: describe_models(models))


@catalogue_app.command(
    "estimate",
    epilog=options.examples(
        "inferno catalogue estimate --model Llama-3.1-70B --accelerator H200 "
        "--accelerator-count 2 --dtype fp8 -o table",
        "inferno catalogue estimate --model Qwen3-32B --accelerator H100 --accelerator L40S "
        "--accelerator-count 1 --accelerator-count 4",
    ),
)
def estimate_model(  # noqa: PLR0913 - an argument for each option
    *,
    accelerator: CardNames,
    model: KnownModelName = "",
    model_config: ModelConfig = "",
    accelerator_count: CardCounts = ONE_CARD,
    dtype: WeightPrecision = "",
    kv_dtype: CachePrecision = "bf16",
    input_tokens: InputTokens = 1024,
    output_tokens: OutputTokens = 256,
    output: options.Output = options.Format.YAML,
) -> None:
    """Estimate the performance of a model, as a Model to paste.

    A roofline: a step takes as long as the card needs to read weights and cache, or to multiply,
    and what engines take besides, which was fitted to published measurements. It says what it was
    off by for models that it was not fitted to. Needs no cluster and no GPU.
    """
    from inferno_operator.cli import catalogue
    from inferno_operator.cli.offline.model_config import read_config
    from inferno_optimizer.errors import InputError

    if not model and not model_config:
        raise InputError("name a model with --model, or its config.json with --model-config")
    hardware = catalogue.read_hardware()
    counts = catalogue.spread_counts(accelerator, accelerator_count)
    cards = [hardware.card(name) for name in accelerator]
    config = (
        read_config(model_config) if model_config else catalogue.read_models().model(model).config
    )
    origin = model_config or model
    name = model or str(config.get("_name_or_path") or config.get("model_type") or "model")
    form = (dtype, kv_dtype, input_tokens, output_tokens)
    estimates = [
        catalogue.estimate(
            catalogue.EstimateRequest(name, config, origin, count, *form), card, hardware
        )
        for card, count in zip(cards, counts, strict=True)
    ]
    if output is options.Format.YAML:
        for line in catalogue.list_warnings(estimates):
            typer.echo(f"# {line}")
    show(
        output,
        lambda: catalogue.build_estimated_model(estimates),
        lambda: catalogue.describe_estimates(estimates),
    )


app.add_typer(migrations, name="migrate")
app.add_typer(catalogue_app, name="catalogue")
