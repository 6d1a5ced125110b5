"""`inferno replay` and `floor`: what a recorded load would have cost."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

from enum import StrEnum
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
from inferno_operator.cli.options.prometheus import prometheus_options, required

if TYPE_CHECKING:
    from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint

app = typer.Typer()


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


@app.command(
    epilog="Example: inferno replay samples/fleet --trace samples/traces/servegen-m-large.csv "
    "--scale 0.3 --policy inferno --policy hpa --html replay.html"
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
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Models as replicas really perform; policies believe those of the fleet.",
            show_default=False,
        ),
    ] = None,
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
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", "-j", metavar="N", min=1, help="Policies that are replayed at the same time."
        ),
    ] = 1,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the result as a page: cost and replicas over time, targets by class, "
            "and the ten worst times of each policy with their causes.",
            show_default=False,
        ),
    ] = None,
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
    from inferno_operator.cli.replay_report import replay_page
    from inferno_operator.cli.tables.replay import replay_parts
    from inferno_operator.pages.html import replay_html
    from inferno_optimizer.errors import InputError
    from inferno_optimizer.replay.plant import LeadTime

    lead = LeadTime(lead_time, lead_time_cov)
    documents, unknown = read_documents(paths), warn if lenient else refuse_unknown
    true = system_of(read_documents([str(truth)]), unknown).profiles if truth else ()
    options = ReplayOptions(step, hours, scale, slower, error, lead, seed, true, str(truth or ""))
    if trace is not None and not (begin or keep):
        load = ReplayedLoad(read_trace(str(trace)), str(trace))
    elif trace is None and begin:
        past = PastOptions(required(endpoint), begin, end, step, keep)
        with working("asking Prometheus") as tell:
            read = read_past(resources_of(documents, unknown), past, tell, warn)
        load = ReplayedLoad(read, past.endpoint.url)
    else:
        raise InputError("which load? Give either --trace FILE, or --prometheus URL and --from")
    scenario = scenario_of(system_of(documents, unknown, warn, load.means), load, options, warn)
    try:
        with working("replaying") as tell:
            found = replays(scenario, policies, tell, jobs)
    except KeyboardInterrupt:
        warn(["interrupted, so there is no result"])
        raise typer.Exit(INTERRUPTED) from None
    if html is not None:
        title = f"Replay of {load.origin}"
        write(html, replay_html(replay_page(title, scenario, found)))
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
