"""`inferno replay` and `floor`: what a recorded load would have cost."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

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
from inferno_operator.cli.options.currency import IN_CENTS, Currency, Money, money_of
from inferno_operator.cli.options.inputs import InNamespace, Paths
from inferno_operator.cli.options.prometheus import PrometheusOptions, prometheus_options
from inferno_operator.cli.options.replay import (
    TRACE_FILE,
    Begin,
    End,
    Error,
    Hours,
    Jobs,
    Keep,
    LeadTimeMean,
    LeadTimeSpread,
    Page,
    Poisson,
    Policies,
    ReplayFormat,
    ReplayOutput,
    Scale,
    Seed,
    Slower,
    Step,
    Truth,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inferno_operator.cli.past import PastOptions
    from inferno_operator.cli.replay import Replayed, ReplayedLoad
    from inferno_operator.resources import Resource
    from inferno_optimizer.replay.replay import Scenario

app = typer.Typer()

DEFAULT_POLICIES = ["static-peak", "static-peak@best", "hpa", "hpa@best", "inferno"]


@app.command(
    epilog=examples(
        "inferno replay samples/fleet --trace samples/traces/servegen-m-large.csv "
        "--scale 0.3 --policy inferno --policy hpa --html replay.html",
        "inferno replay samples/measured --prometheus http://localhost:9090 --from 7d "
        "--keep week.csv.gz --policy inferno --policy hpa",
        "inferno replay samples/episode --trace samples/traces/slo-aware.csv --step 5 "
        "--lead-time 100 --policy keda-slo --policy mine:Mine",
    )
)
@prometheus_options
def replay(  # noqa: PLR0913 - an argument for each option
    prometheus: PrometheusOptions,
    paths: Paths,
    output: ReplayOutput = ReplayFormat.TABLE,
    *,
    trace: Annotated[Path | None, TRACE_FILE] = None,
    begin: Begin = "",
    end: End = "",
    keep: Keep = None,
    policies: Policies = DEFAULT_POLICIES,
    step: Step = 60.0,
    hours: Hours = 0.0,
    scale: Scale = 1.0,
    truth: Truth = None,
    slower: Slower = 1.0,
    error: Error = 0.0,
    lead_time: LeadTimeMean = 120.0,
    lead_time_cov: LeadTimeSpread = 0.0,
    poisson: Poisson = False,
    seed: Seed = 0,
    jobs: Jobs = 1,
    html: Page = None,
    currency: Currency = IN_CENTS,
    namespace: InNamespace = "",
    lenient: Lenient = False,
) -> None:
    """Show what policies would have made of a recorded load.

    Needs no cluster and changes nothing. It simulates replicas that start, queue and drain, and
    prints for each policy the cost, the share of requests within the targets, and the regret:
    the cost above that of a policy that knows the load and whose replicas start at once.
    """
    from inferno_operator.cli.offline.manifests import read_documents
    from inferno_operator.cli.offline.system import (
        measures_of,
        refuse_unknown,
        resources_of,
        system_of,
    )
    from inferno_operator.cli.past import PastOptions
    from inferno_operator.cli.replay import ReplayOptions, scenario_of
    from inferno_optimizer.replay.plant import LeadTime

    money = money_of(currency)
    documents, unknown = read_documents(paths, namespace), warn if lenient else refuse_unknown
    recorded = None if begin or keep else trace
    past = (
        PastOptions(prometheus.place, prometheus.read_sources(), begin, end, step, keep)
        if begin and not trace
        else None
    )
    load = _load(recorded, past, lambda: resources_of(documents, unknown))
    lead = LeadTime(lead_time, lead_time_cov)
    true = system_of(read_documents([str(truth)]), unknown).profiles if truth else ()
    truth_file, measures = str(truth or ""), measures_of(documents)
    options = ReplayOptions(
        step, hours, scale, slower, error, lead, seed, true, truth_file, measures, poisson
    )
    system = system_of(documents, unknown, warn, load.means, doubt=warn)
    scenario = scenario_of(system, load, options, warn)
    replayed = _replayed(scenario, policies, jobs)
    _print(output, scenario, replayed, money)
    if html is not None:
        _write_page(html, f"Replay of {load.origin}", scenario, replayed, money)


def _load(
    recorded: Path | None,
    past: "PastOptions | None",
    resources: "Callable[[], Sequence[Resource]]",
) -> "ReplayedLoad":
    """Return the load of a file, or that of the past; just one of both has to be given."""
    from inferno_optimizer.errors import InputError

    if recorded is not None:
        return _recorded(recorded)
    if past is None:
        raise InputError("which load? Give either --trace FILE, or --prometheus URL and --from")
    return _past(resources(), past)


def _recorded(trace: Path) -> "ReplayedLoad":
    """Return the load of a file."""
    from inferno_operator.cli.offline.traces import read_trace
    from inferno_operator.cli.replay import ReplayedLoad

    return ReplayedLoad(read_trace(str(trace), warn), str(trace))


def _past(resources: "Sequence[Resource]", past: "PastOptions") -> "ReplayedLoad":
    """Return the load that Prometheus knows."""
    from inferno_operator.cli.past import read_past
    from inferno_operator.cli.replay import ReplayedLoad

    with working("asking Prometheus") as tell:
        read = read_past(resources, past, tell, warn)
    return ReplayedLoad(read, past.endpoint.url)


def _replayed(scenario: "Scenario", policies: list[str], jobs: int) -> "list[Replayed]":
    """Replay with all policies; Ctrl-C ends the command."""
    from inferno_operator.cli.replay import replays

    with (
        interruptible(lambda: warn(["interrupted, so there is no result"])),
        working("replaying") as tell,
    ):
        return replays(scenario, policies, tell, jobs)


def _print(
    output: ReplayFormat, scenario: "Scenario", replays: "list[Replayed]", money: Money
) -> None:
    """Print what the policies came to."""
    from inferno_operator.cli.replay_documents import replay_csv, replay_document
    from inferno_operator.cli.tables.replay import replay_parts

    if output is ReplayFormat.CSV:
        typer.echo(replay_csv(replays))
        return
    show(
        Format(output.value),
        lambda: replay_document(scenario, replays),
        lambda: replay_parts(replays, money),
    )


def _write_page(
    file: Path, title: str, scenario: "Scenario", replays: "list[Replayed]", money: Money
) -> None:
    """Write what the policies came to as a page."""
    from inferno_operator.cli.replay_report import replay_page
    from inferno_operator.pages.html import replay_html

    write(file, replay_html(replay_page(title, scenario, replays, money)))


@app.command(
    epilog=examples(
        "inferno floor samples/fleet --trace samples/traces/servegen-m-large.csv --scale 0.3"
    )
)
def floor(  # noqa: PLR0913 - an argument for each option
    paths: Paths,
    output: Output = Format.TABLE,
    *,
    trace: Annotated[Path, TRACE_FILE],
    step: Step = 60.0,
    hours: Hours = 0.0,
    scale: Scale = 1.0,
    currency: Currency = IN_CENTS,
    namespace: InNamespace = "",
    lenient: Lenient = False,
) -> None:
    """Show what an ideal autoscaler would have cost.

    In each step each server has the replicas of least cost that meet its targets, at once and
    without a limit of cards.
    """
    from inferno_operator.cli.offline.manifests import read_documents
    from inferno_operator.cli.offline.system import refuse_unknown, system_of
    from inferno_operator.cli.offline.traces import read_trace
    from inferno_operator.cli.replay import ReplayedLoad, ReplayOptions, scenario_of
    from inferno_operator.cli.replay_documents import floor_document
    from inferno_operator.cli.tables.replay import floor_parts
    from inferno_optimizer.replay.hindsight import find_floor

    money = money_of(currency)
    load = ReplayedLoad(read_trace(str(trace), warn), str(trace))
    unknown = warn if lenient else refuse_unknown
    documents = read_documents(paths, namespace)
    system = system_of(documents, unknown, warn, load.means, doubt=warn)
    scenario = scenario_of(system, load, ReplayOptions(step, hours, scale), warn)
    least = find_floor(scenario.believed, scenario.trace)
    show(output, lambda: floor_document(least), lambda: floor_parts(least, money))
