"""The command line: parse, call one library function, print."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

import os
from collections.abc import Callable, Iterable
from enum import StrEnum
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.autoscaler_options import (
    MOST,
    SECRET,
    SERVICE,
    Access,
    For,
    Kind,
    MaxReplicas,
    TokenSecret,
    Url,
)
from inferno_operator.cli.console import (
    INTERRUPTED,
    Changes,
    Format,
    Lenient,
    Output,
    TimeLimit,
    limited,
    run_app,
    show,
    traced,
    warn,
    working,
    write,
)
from inferno_operator.cli.prometheus_options import URL, prometheus_options
from inferno_operator.settings import HEALTH_PORT, VARIABLES, Variable

if TYPE_CHECKING:
    from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class LogFormat(StrEnum):
    """Format of log lines."""

    TEXT = "text"
    JSON = "json"


class ReplayFormat(StrEnum):
    """Output format of a replay."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


TRACE_FILE = typer.Option(
    metavar="FILE",
    show_default=False,
    help="The load: CSV, also gzip. With a step of a client on each line (client, start_s, "
    "rate_per_s, input_mean, output_mean), or a request (arrival_s, input_tokens, "
    "output_tokens).",
)
Step = Annotated[float, typer.Option(metavar="SECONDS", min=1, help="Time between two decisions.")]
Hours = Annotated[
    float, typer.Option(metavar="H", min=0, help="How much of the trace; 0: all of it.")
]
Scale = Annotated[float, typer.Option(metavar="FACTOR", min=0, help="Multiplies all rates.")]
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
Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="Custom resources or SystemData: files, folders, kustomizations; - for stdin.",
        show_default=False,
    ),
]


def main() -> None:
    """Run the command line and exit; see `console.run_app`."""
    run_app(app, "inferno")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"inferno {version('inferno-operator')}")
        raise typer.Exit


@app.callback(epilog="Example: inferno optimize samples/small")
def inferno(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    """Decide where LLM inference runs.

    For each server: which accelerator, how many replicas, which batch size.
    """


@app.command(
    epilog="Example: kubectl get inferno -o yaml | inferno optimize - -o json"
    "\n\nExample: inferno optimize samples/fleet --set 'server.*.load.arrivalRate*=1.5'"
    "\n\nExample: inferno optimize samples/fleet --set accelerator.B200.type=B200 "
    "--set accelerator.B200.cost=100 --set capacity.B200=8 --set 'model.*.B200=H100' "
    "--set 'model.*.B200.alpha*=0.5'"
)
def optimize(
    paths: Paths,
    output: Output = Format.TABLE,
    changes: Changes = [],  # noqa: B006 - typer reads it and never changes it
    time_limit: TimeLimit = 30.0,
    *,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw how the exact solver improved the plan (SVG); -o json prints it too.",
        ),
    ] = None,
    lenient: Lenient = False,
) -> None:
    """Show what every server would get.

    Needs no cluster and changes nothing.
    """
    from inferno_operator.cli.curve import draw
    from inferno_operator.cli.offline.system import read_system, refuse_unknown
    from inferno_operator.cli.tables.solution import solution_parts
    from inferno_operator.cli.tables.what_if import comparison_parts
    from inferno_optimizer.explain.changes import parse_change
    from inferno_optimizer.explain.comparison import compare
    from inferno_optimizer.optimize import optimize
    from inferno_optimizer.wire.codec import encode_comparison, encode_solution
    from inferno_optimizer.wire.what_if import apply_changes

    system = read_system(paths, warn if lenient else refuse_unknown, remark=warn)
    system = limited(system, time_limit)
    system = system if trace is None else traced(system)
    changed, idle = apply_changes(system, map(parse_change, changes))
    warn(idle)
    with working(f"optimizing {len(system.servers)} servers"):
        solution = optimize(system)
    if trace is not None:
        write(trace, draw(solution.certificate))
    if not changes:
        show(output, lambda: encode_solution(solution), lambda: solution_parts(system, solution))
        return
    with working("optimizing with what is changed"):
        comparison = compare(solution, optimize(changed))
    show(
        output,
        lambda: encode_comparison(changes, comparison),
        lambda: comparison_parts(comparison),
    )


@app.command(epilog="Example: inferno explain samples/small Premium-granite-13b")
def explain(
    paths: Paths,
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Its name (spec.name).")],
    output: Output = Format.TABLE,
    time_limit: TimeLimit = 30.0,
    *,
    lenient: Lenient = False,
) -> None:
    """Show every option of one server.

    Each accelerator with its numbers and, where it is out, why. For a server that gets less
    than it needs also the smallest changes that would serve it.
    """
    from inferno_operator.cli.offline.system import read_system, refuse_unknown
    from inferno_operator.cli.tables.solution import option_parts
    from inferno_operator.cli.tables.what_if import remedy_parts
    from inferno_optimizer.explain.options import explain
    from inferno_optimizer.explain.remedies import remedies
    from inferno_optimizer.optimize import optimize
    from inferno_optimizer.wire.codec import encode_explanation, encode_remedies

    system = read_system(paths, warn if lenient else refuse_unknown, remark=warn)
    system = limited(system, time_limit)
    options = explain(system, server)
    with working("looking for what would serve it"):
        solution = optimize(system)
        found = remedies(system, solution, server)
    decision = next(d for d in solution.decisions if d.server == server)
    show(
        output,
        lambda: {"options": encode_explanation(options), "remedies": encode_remedies(found)},
        lambda: (*option_parts(options), *remedy_parts(decision, found)),
    )


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

    place = _known(endpoint)
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
    from inferno_operator.cli.offline.calibration import calibrate_windows, runs_of
    from inferno_operator.cli.plot import plot as draw
    from inferno_operator.cli.tables.calibration import CalibratedPair, manifest, named
    from inferno_optimizer.errors import InputError

    if files and (labels or (endpoint is not None and URL not in os.environ)):
        raise InputError("give either files, or --prometheus and --labels")
    if labels:
        place, wanted = _known(endpoint), parse_labels(labels)
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


def _known(endpoint: "PrometheusEndpoint | None") -> "PrometheusEndpoint":
    from inferno_optimizer.errors import InputError

    if endpoint is None:
        raise InputError("where is Prometheus? Give --prometheus URL")
    return endpoint


@app.command(
    epilog="Example: inferno generate keda servers.yaml --namespace llm"
    "\n\nExample: inferno generate keda --for kserve servers.yaml"
    "\n\nExample: kubectl get servers -o yaml | inferno generate keda - | kubectl apply -f -"
)
def generate(  # noqa: PLR0913 - an argument for each option
    autoscaler: Kind,
    paths: Paths,
    servers: Annotated[
        list[str],
        typer.Option(
            "--server",
            metavar="NAME",
            help="Only this Server; can be repeated.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer reads it and never changes it
    *,
    owner: For = None,
    url: Url = SERVICE,
    token_secret: TokenSecret = SECRET,
    max_replicas: MaxReplicas = MOST,
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Namespace of Servers that name none.")
    ] = None,
    lenient: Lenient = False,
) -> None:
    """Print autoscalers that carry out the decisions for Servers.

    With keda, a ScaledObject for each workload, which asks the operator; with hpa, a
    HorizontalPodAutoscaler, which reads the metric inferno_desired_replicas.
    """
    from inferno_operator.cli.autoscalers import manifests, select, triggers, warnings
    from inferno_operator.cli.offline.system import read_resources, refuse_unknown

    found = select(read_resources(paths, warn if lenient else refuse_unknown), servers)
    access = Access(url, token_secret, max_replicas)
    printed = triggers if owner else manifests
    text = printed(autoscaler, found, access, namespace)
    warn(warnings(found))
    typer.echo(text, nl=False)


@app.command(
    epilog="Example: inferno replay samples/fleet --trace samples/traces/servegen-m-large.csv "
    "--scale 0.3 --policy inferno --policy hpa"
    "\n\nExample: inferno replay samples/measured --prometheus http://localhost:9090 --from 7d "
    "--keep week.csv.gz --policy inferno --policy hpa"
    "\n\nExample: inferno replay samples/episode --trace samples/traces/slo-aware.csv --step 5 "
    "--lead-time 100 --policy keda-slo --policy mine:Mine"
)
@prometheus_options
def replay(  # noqa: PLR0913 - an argument for each option
    endpoint: "PrometheusEndpoint | None",
    paths: Paths,
    output: Annotated[
        ReplayFormat, typer.Option("--output", "-o", help="How to print the result.")
    ] = ReplayFormat.TABLE,
    *,
    trace: Annotated[Path | None, TRACE_FILE] = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Replay what Prometheus knows of the Servers with spec.measure since a time, such "
            "as 2026-11-01 or 2026-11-01T18:00+01:00, or 7d or 12h ago.",
        ),
    ] = "",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="The end of it; by default now.")
    ] = "",
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what was read from Prometheus into a file for --trace; .gz compresses it.",
            show_default=False,
        ),
    ] = None,
    policies: Annotated[
        list[str],
        typer.Option(
            "--policy",
            metavar="NAME",
            help="inferno, inferno-exact, inferno-reactive, hpa, keda-slo, keda-queue, "
            "keda-queue-guard, keda-saturation, keda-token, dynamo-sla, static-peak or "
            "clairvoyant; module:name of your own; with @best, on the best single accelerator of "
            "each server. Can be repeated.",
        ),
    ],
    step: Step = 60.0,
    hours: Hours = 0.0,
    scale: Scale = 1.0,
    slower: Annotated[
        float,
        typer.Option(
            metavar="FACTOR",
            min=0.1,
            help="Replicas take longer for everything than the Models say, which policies believe.",
        ),
    ] = 1.0,
    error: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=0.9,
            help="Each parameter of the Models is too large or too small by this, by chance.",
        ),
    ] = 0.0,
    lead_time: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Mean time until a replica serves.")
    ] = 120.0,
    lead_time_cov: Annotated[
        float, typer.Option(metavar="SHARE", min=0, help="Its coefficient of variation.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of random lead times and errors.")] = 0,
    lenient: Lenient = False,
) -> None:
    """Show what policies would have made of a recorded load.

    Needs no cluster and changes nothing. It simulates replicas that start, queue and drain, and
    prints for each policy the cost, the share of requests within the targets, and the regret:
    the cost above that of a policy that knows the load and whose replicas start at once.
    """
    from inferno_operator.cli.offline.manifests import read_documents
    from inferno_operator.cli.offline.system import refuse_unknown, resources_of, system_of
    from inferno_operator.cli.offline.traces import read_trace
    from inferno_operator.cli.past import PastOptions, read_past
    from inferno_operator.cli.replay import (
        ReplayedLoad,
        ReplayOptions,
        replay_csv,
        replay_document,
        replays,
        scenario_of,
    )
    from inferno_operator.cli.tables.replay import replay_parts
    from inferno_optimizer.errors import InputError
    from inferno_optimizer.replay.plant import LeadTime

    lead = LeadTime(lead_time, lead_time_cov)
    options = ReplayOptions(step, hours, scale, slower, error, lead, seed)
    documents, unknown = read_documents(paths), warn if lenient else refuse_unknown
    if trace is not None and not (begin or keep):
        load = ReplayedLoad(read_trace(str(trace)), str(trace))
    elif trace is None and begin:
        past = PastOptions(_known(endpoint), begin, end, step, keep)
        with working("asking Prometheus") as tell:
            read = read_past(resources_of(documents, unknown), past, tell, warn)
        load = ReplayedLoad(read, past.endpoint.url)
    else:
        raise InputError("which load? Give either --trace FILE, or --prometheus URL and --from")
    scenario = scenario_of(system_of(documents, unknown, warn, load.means), load, options, warn)
    with working("replaying") as tell:
        found = replays(scenario, policies, tell)
    if output is ReplayFormat.CSV:
        typer.echo(replay_csv(found))
        return
    show(
        Format(output.value),
        lambda: replay_document(scenario, found),
        lambda: replay_parts(found),
    )


@app.command(
    epilog="Example: inferno floor samples/fleet --trace samples/traces/servegen-m-large.csv "
    "--scale 0.3"
)
def floor(
    paths: Paths,
    output: Output = Format.TABLE,
    *,
    trace: Annotated[Path, TRACE_FILE],
    step: Step = 60.0,
    hours: Hours = 0.0,
    scale: Scale = 1.0,
    lenient: Lenient = False,
) -> None:
    """Show the least that an ideal autoscaler could have got away with.

    In each step each server has the replicas of least cost that meet its targets, at once and
    without a limit of cards.
    """
    from inferno_operator.cli.offline.manifests import read_documents
    from inferno_operator.cli.offline.system import refuse_unknown, system_of
    from inferno_operator.cli.offline.traces import read_trace
    from inferno_operator.cli.replay import (
        ReplayedLoad,
        ReplayOptions,
        floor_document,
        scenario_of,
    )
    from inferno_operator.cli.tables.replay import floor_parts
    from inferno_optimizer.replay.floor import floor_of

    load = ReplayedLoad(read_trace(str(trace)), str(trace))
    unknown = warn if lenient else refuse_unknown
    system = system_of(read_documents(paths), unknown, warn, load.means)
    scenario = scenario_of(system, load, ReplayOptions(step, hours, scale), warn)
    found = floor_of(scenario.believed, scenario.trace)
    show(output, lambda: floor_document(found), lambda: floor_parts(found))


migrate = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(migrate, name="migrate")


@migrate.callback()
def others() -> None:
    """Make our objects from those of other autoscalers."""


@migrate.command(
    "wva",
    epilog="Example: inferno migrate wva samples/wva"
    "\n\nExample: kubectl get variantautoscalings,hpa,scaledobjects,configmaps,deployments -A "
    "-o yaml | inferno migrate wva - > inferno.yaml",
)
def migrate_wva(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="VariantAutoscalings, or HPAs and ScaledObjects with annotations; the ConfigMaps "
            "of WVA; the Deployments. Files, folders; - for stdin.",
            show_default=False,
        ),
    ],
) -> None:
    """Make our objects from those of llm-d's Workload Variant Autoscaler.

    Reads what v0.5 to v0.9 are configured with, and prints Accelerators, Models, ServiceClasses,
    Servers, a Capacity and an Optimizer in mode Recommend, which scale nothing yet. What has no
    counterpart is told in one line each. Needs no cluster and changes nothing.
    """
    from inferno_operator.cli.migration import migrated
    from inferno_operator.cli.offline.manifests import read_documents

    found = migrated(read_documents(paths))
    warn(found.notes)
    typer.echo(found.text, nl=False)


catalogue = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(catalogue, name="catalogue")


@catalogue.callback()
def published() -> None:
    """Show performance parameters that others have published.

    They are a start, until your own are calibrated.
    """


@catalogue.command("list", epilog="Example: inferno catalogue list")
def list_models(output: Output = Format.TABLE) -> None:
    """List the models, their accelerators and sources."""
    from inferno_operator.cli.offline.catalogue import read_catalogue
    from inferno_operator.cli.tables.catalogue import catalogue_parts

    known = read_catalogue()
    show(output, known.to_json, lambda: catalogue_parts(known))


@catalogue.command("show", epilog="Example: inferno catalogue show llama_13b -o yaml")
def show_model(
    model: Annotated[str, typer.Argument(metavar="NAME", help="The name of the model.")],
    output: Output = Format.TABLE,
) -> None:
    """Show the figures of a model with their sources; as YAML or JSON, the manifest of a Model."""
    from inferno_operator.cli.offline.catalogue import model_manifest, read_catalogue
    from inferno_operator.cli.tables.catalogue import figures_parts

    known = read_catalogue()
    figures = known.of(model)
    show(output, lambda: model_manifest(model, figures), lambda: figures_parts(known, figures))


def _configurable(command: Callable[..., None]) -> Callable[..., None]:
    """Add to a command one option for each environment variable that the operator reads."""
    own = [p for p in signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = map(_option, VARIABLES)
    command.__signature__ = Signature([*own, *options])  # type: ignore[attr-defined]  # PEP 362
    return command


def _option(variable: Variable) -> Parameter:
    flag, text = f"--{variable.option}", f"{variable.help} [{variable.name}]"
    kind: object
    if variable.switch:
        kind = Annotated[bool | None, typer.Option(f"{flag}/--no-{variable.option}", help=text)]
    else:
        kind = Annotated[str | None, typer.Option(flag, metavar=variable.metavar, help=text)]
    name = variable.option.replace("-", "_")
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)


@app.command(epilog="Example: inferno operator --namespace llm --leader-election")
@_configurable
def operator(
    *,
    health_port: Annotated[
        int,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="For /healthz, /readyz and /metrics; 0 takes a free one and prints it.",
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


@app.command(epilog="Example: inferno serve --stateful --port 3302")
def serve(  # noqa: PLR0913 - an argument for each option
    *,
    stateful: Annotated[
        bool,
        typer.Option(
            "--stateful", "-F", help="Keep a system that clients change, and optimize that."
        ),
    ] = False,
    host: Annotated[
        str,
        typer.Option(metavar="HOST", envvar="INFERNO_HOST", help="The address to listen on."),
    ] = "127.0.0.1",
    port: Annotated[
        str,
        typer.Option(
            metavar="PORT",
            envvar="INFERNO_PORT",
            help="The port to listen on; 0 takes a free one and prints it.",
        ),
    ] = "8080",
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", envvar="INFERNO_TLS_CERT", help="Serve TLS with this certificate (PEM)."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", envvar="INFERNO_TLS_KEY", help="Its key (PEM)."),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="INFERNO_TLS_CA",
            help="Serve only clients that have a certificate of this authority (PEM).",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="INFERNO_TOKEN_FILE",
            help="Serve only clients that send the bearer token in this file.",
        ),
    ] = None,
    time_limit: TimeLimit = 30.0,
) -> None:
    """Run the optimizer as a REST server.

    Files are read anew when they change. It speaks the published API, and describes that at
    /openapi.json; /healthz, /readyz and /metrics are there too.
    """
    from inferno_optimizer.api.limits import ServerLimits
    from inferno_optimizer.api.security import Files
    from inferno_optimizer.api.server import port_of, serve

    files = Files(tls_cert, tls_key, tls_ca, token_file)
    limits = ServerLimits.for_solver(time_limit)
    serve(host, port_of(port), limits, files, typer.echo, stateful=stateful)
