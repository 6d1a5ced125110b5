"""`inferno replay`, `floor` and `study`: what recorded loads would have cost."""
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
from inferno_operator.cli.options.currency import IN_CENTS, Currency, money_of
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
    from collections.abc import Iterable, Sequence

    from inferno_operator.cli.study import Result, StudyRun

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
        list_measures,
        parse_resources,
        parse_system,
        refuse_unknown,
    )
    from inferno_operator.cli.offline.traces import read_trace
    from inferno_operator.cli.past import PastOptions, read_past
    from inferno_operator.cli.replay import (
        ReplayedLoad,
        ReplayOptions,
        build_document,
        build_scenario,
        replay_policies,
        write_csv,
    )
    from inferno_operator.cli.tables.replay import describe_replays
    from inferno_optimizer.errors import InputError
    from inferno_optimizer.replay.plant import LeadTime

    money = money_of(currency)
    documents, unknown = read_documents(paths, namespace), warn if lenient else refuse_unknown
    if trace and not (begin or keep):
        load = ReplayedLoad(read_trace(str(trace), warn), str(trace))
    elif begin and not trace:
        place, sources = prometheus.place, prometheus.read_sources()
        resources = parse_resources(documents, unknown)
        with working("asking Prometheus") as tell:
            past = PastOptions(place, sources, begin, end, step, keep)
            load = ReplayedLoad(read_past(resources, past, tell, warn), place.url)
    else:
        raise InputError("which load? Give either --trace FILE, or --prometheus URL and --from")
    true = parse_system(read_documents([str(truth)]), unknown).profiles if truth else ()
    options = ReplayOptions(
        step_s=step,
        hours=hours,
        scale=scale,
        slower=slower,
        error=error,
        lead=LeadTime(lead_time, lead_time_cov),
        seed=seed,
        truth=true,
        truth_file=str(truth or ""),
        measures=list_measures(documents),
        poisson=poisson,
    )
    system = parse_system(documents, unknown, warn, load.means, doubt=warn)
    scenario = build_scenario(system, load, options, warn)
    with (
        interruptible(lambda: warn(["interrupted, so there is no result"])),
        working("replaying") as tell,
    ):
        replayed = replay_policies(scenario, policies, tell, jobs)
    if output is ReplayFormat.CSV:
        typer.echo(write_csv(replayed))
    else:
        show(
            Format(output.value),
            lambda: build_document(scenario, replayed),
            lambda: describe_replays(replayed, money),
        )
    if html is not None:
        from inferno_operator.cli.replay_report import replay_page
        from inferno_operator.pages.html import render_replay

        page = replay_page(f"Replay of {load.origin}", scenario, replayed, money)
        write(html, render_replay(page))


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
    from inferno_operator.cli.offline.system import parse_system, refuse_unknown
    from inferno_operator.cli.offline.traces import read_trace
    from inferno_operator.cli.replay import (
        ReplayedLoad,
        ReplayOptions,
        build_floor_document,
        build_scenario,
    )
    from inferno_operator.cli.tables.replay import describe_floor
    from inferno_optimizer.replay.hindsight import find_floor

    money = money_of(currency)
    load = ReplayedLoad(read_trace(str(trace), warn), str(trace))
    unknown = warn if lenient else refuse_unknown
    documents = read_documents(paths, namespace)
    system = parse_system(documents, unknown, warn, load.means, doubt=warn)
    scenario = build_scenario(system, load, ReplayOptions(step, hours, scale), warn)
    least = find_floor(scenario.believed, scenario.trace)
    show(output, lambda: build_floor_document(least), lambda: describe_floor(least, money))


@app.command(
    epilog=examples(
        "inferno study samples/studies/slower.yaml --jobs 2",
        "inferno study samples/studies/eighteen.yaml --scheduler tcp://scheduler:8786 -o csv",
    )
)
def study(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study, YAML or JSON.")],
    output: Output = Format.TABLE,
    *,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keeps the results, which are not computed again: one JSON line for each replay. "
            "By default a file of the current folder with the name of the study, and .jsonl.",
            show_default=False,
        ),
    ] = None,
    jobs: Jobs = 1,
    scheduler: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Replay on a Dask cluster, by the address of its scheduler; it needs the extra "
            "study.",
        ),
    ] = "",
    currency: Currency = IN_CENTS,
    lenient: Lenient = False,
) -> None:
    """Replay policies with several fleets, loads and settings.

    The study names all of them. Each replay is one row. What was
    computed once is kept, so that an interrupted study goes on where it was.
    """
    from inferno_operator.cli.offline.system import refuse_unknown
    from inferno_operator.cli.study import (
        compare_with_bounds,
        list_runs,
        read_results,
        read_study,
    )
    from inferno_operator.cli.tables.replay import describe_study

    money = money_of(currency)
    wanted, kept = read_study(file), results or Path(f"{file.stem}.jsonl")
    printed = set[str]()

    def warn_once(warnings: "Iterable[str]") -> None:
        new = [warning for warning in dict.fromkeys(warnings) if warning not in printed]
        printed.update(new)
        warn(new)

    runs = list(list_runs(wanted, file.parent, warn if lenient else refuse_unknown, warn_once))
    kept_results = read_results(kept)
    missing = [each for each in runs if each.key not in kept_results]
    rows = compare_with_bounds(
        wanted, runs, kept_results | _compute(missing, kept, jobs, scheduler)
    )
    show(output, lambda: [one.document() for one in rows], lambda: describe_study(rows, money))


def _compute(
    missing: "Sequence[StudyRun]", kept: Path, jobs: int, scheduler: str
) -> "dict[str, Result]":
    """Compute results and keep them by their keys; Ctrl-C ends the command."""
    from inferno_operator.cli.executors import dask_cluster, processes, yield_completed
    from inferno_operator.cli.study import compute_result, open_results

    results: dict[str, Result] = {}
    if not missing:
        return results

    def say() -> None:
        done = f"{len(results)} of {len(missing)} replays are done and kept in {kept}"
        warn([f"interrupted: {done}; the same command goes on"])

    add = open_results(kept)
    with (
        interruptible(say),
        working("replaying") as tell,
        dask_cluster(scheduler) if scheduler else processes(jobs) as executor,
    ):
        runs = {each.key: each for each in missing}
        calls = {key: (each.scenario, each.policy) for key, each in runs.items()}
        for key, result in yield_completed(executor, compute_result, calls):
            run = runs[key]
            add(run, result)
            results[key] = result
            tell(f"replayed {run} ({len(results)} of {len(missing)})")
    return results
