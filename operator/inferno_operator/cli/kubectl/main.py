"""`kubectl inferno`: parse, read the cluster, call one function of the library, print."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.console import (
    HELP,
    INTERRUPTED,
    Changes,
    Format,
    Output,
    TimeLimit,
    Version,
    examples,
    run_app,
    show,
    warn,
    working,
)
from inferno_operator.cli.kubectl import plans as kubectl_plans
from inferno_operator.cli.kubectl.console import command as kubectl_console
from inferno_operator.cli.kubectl.places import now, run, somewhere
from inferno_operator.cli.options.autoscalers import (
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
from inferno_operator.cli.options.currency import IN_CENTS, Currency, Money, money_of
from inferno_operator.cli.options.fail_on import FailOn, checks_of, refuse
from inferno_operator.cli.options.prometheus import prometheus_options
from inferno_operator.cli.options.rows import Filter, Sort

if TYPE_CHECKING:
    from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions, Session
    from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
    from inferno_operator.cli.measurement import Asked, ServerMeasurement
    from inferno_operator.cli.overview import Overview
    from inferno_operator.cli.tables.order import RowOrder
    from inferno_operator.resources.observation import Observation

app = typer.Typer(
    add_completion=False,
    context_settings=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

OptimizerName = Annotated[
    str | None,
    typer.Argument(metavar="OPTIMIZER", help="Which one, where there are several."),
]


def main() -> None:
    """Run the plugin and exit; see `console.run_app`."""
    run_app(app, "kubectl inferno")


@app.callback(epilog=examples("kubectl inferno top --namespace llm"))
@somewhere
def kubectl_inferno(_place: "KubectlOptions", _version: Version = False) -> None:
    """Look at LLM servers and decide where they run.

    Works on the Servers, Optimizers and other Inferno objects of one namespace.
    """


@app.command(
    epilog=examples(
        "kubectl inferno plan",
        "kubectl inferno plan fleet -n llm --set 'server.*.load.arrivalRate*=1.5'",
    )
)
@somewhere
def plan(  # noqa: PLR0913 - an argument for each option
    place: "KubectlOptions",
    optimizer: OptimizerName = None,
    output: Output = Format.TABLE,
    changes: Changes = [],  # noqa: B006 - typer reads it and never changes it
    time_limit: TimeLimit = 30.0,
    *,
    fail_on: FailOn = [],  # noqa: B006 - typer reads it and never changes it
    words: Filter = "",
    sort: Sort = "",
    currency: Currency = IN_CENTS,
) -> None:
    """Show what an optimization would change, and change nothing.

    Reads the namespace, solves on this machine as the operator would, and compares with the
    allocations that are desired now.
    """
    from inferno_operator.cli.kubectl.dry_run import decide
    from inferno_operator.cli.preview import plan_document, preview
    from inferno_operator.cli.tables.order import RowOrder
    from inferno_operator.cli.tables.plan import changes_table, plan_parts

    checks, money = checks_of(fail_on), money_of(currency)
    namespace, observations = _read(place)
    with working("optimizing"):
        outcome = decide(observations, namespace, optimizer, changes, time_limit)
    warn(outcome.idle)
    solution, name = outcome.solution, outcome.optimizer.metadata.name
    planned = preview(observations, outcome.snapshot, solution)
    show(
        output,
        lambda: plan_document(name, changes, planned, solution),
        lambda: plan_parts(planned, solution, money),
        lambda: changes_table(planned, solution, money),
        RowOrder.asked(words, sort),
    )
    refuse(solution, checks)


@app.command(
    epilog=examples(
        "kubectl inferno optimize --wait",
        "kubectl inferno optimize fleet -n llm --wait --timeout 60 -o json",
    )
)
@somewhere
def optimize(
    place: "KubectlOptions",
    optimizer: OptimizerName = None,
    output: Output = Format.TABLE,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it, and show the result.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long to wait.")
    ] = 300.0,
    currency: Currency = IN_CENTS,
) -> None:
    """Ask the operator to optimize.

    Sets spec.optimize of the Optimizer, and nothing else. Ctrl-C ends the waiting only.

    --wait exits with 0 when the optimization is done, also if its Plan then waits for approval
    (listed as "waiting" by -o json), and with 1 if it fails or is not done in time.
    """
    money = money_of(currency)
    with _interruptible("stopped waiting; the request stays"):
        if wait:
            _show_overview(output, run(place, lambda s: _optimize(s, optimizer, timeout)), money)
            return
        asked = run(place, lambda session: _ask(session, optimizer))
    show(
        output,
        lambda: asked.resource.to_json() if asked.resource else {},
        lambda: [f"{asked.reference}: asked to optimize"],
    )


@app.command(
    epilog=examples(
        "kubectl inferno explain premium-granite-13b",
        "kubectl inferno explain Premium-granite_13b -n llm -o yaml",
    )
)
@somewhere
def explain(
    place: "KubectlOptions",
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Its name, or its spec.name.")],
    optimizer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which one, where there are several.")
    ] = None,
    output: Output = Format.TABLE,
    time_limit: TimeLimit = 30.0,
    *,
    currency: Currency = IN_CENTS,
) -> None:
    """Show every option of one Server, and its conditions.

    Each accelerator with its numbers and, where it is out, why. For a Server that gets less
    than it needs also the smallest changes that would serve it.
    """
    from inferno_operator.cli.kubectl.dry_run import decide
    from inferno_operator.cli.kubectl.selection import choose_server
    from inferno_operator.cli.measurement import reported
    from inferno_operator.cli.tables.calibration import doubt_parts
    from inferno_operator.cli.tables.measurement import comparison_parts
    from inferno_operator.cli.tables.solution import option_parts, saved_work_parts
    from inferno_operator.cli.tables.top import condition_parts
    from inferno_operator.cli.tables.what_if import remedy_parts
    from inferno_operator.resources import Model
    from inferno_operator.resources.observation import readable
    from inferno_optimizer.explain.options import explain
    from inferno_optimizer.explain.remedies import remedies
    from inferno_optimizer.wire.codec import encode_explanation, encode_remedies

    money = money_of(currency)
    namespace, observations = _read(place)
    chosen = choose_server(observations, namespace, server)
    name, conditions = chosen.spec.name, chosen.status.conditions
    objects = readable(observations)
    models = [m for m in objects if isinstance(m, Model) and m.spec.name == chosen.spec.model]
    measurements = [item for item in reported(objects) if item.server is chosen]
    with working("looking for what would serve it"):
        outcome = decide(observations, namespace, optimizer, time_limit=time_limit)
        system, solution = outcome.snapshot.system, outcome.solution
        options = explain(system, name)
        found = remedies(system, solution, name)
    decision = next(d for d in solution.decisions if d.server == name)
    show(
        output,
        lambda: {
            "options": encode_explanation(options),
            "remedies": encode_remedies(found),
            "measured": chosen.status.measured.to_json() if chosen.status.measured else None,
            "conditions": [condition.to_json() for condition in conditions],
        },
        lambda: (
            *option_parts(options, money),
            *doubt_parts(models),
            *saved_work_parts(system, name),
            *remedy_parts(decision, found),
            *(part for item in measurements for part in comparison_parts(item)),
            *condition_parts(conditions, now()),
        ),
    )


@app.command(
    epilog=examples(
        "kubectl inferno generate keda | kubectl apply -f -",
        "kubectl inferno generate hpa premium-granite-13b -n llm",
    )
)
@somewhere
def generate(
    place: "KubectlOptions",
    autoscaler: Kind,
    servers: Annotated[
        list[str],
        typer.Argument(
            metavar="SERVER",
            help="Their names; by default all Servers with workloads.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer reads it and never changes it
    *,
    owner: For = None,
    url: Url = SERVICE,
    token_secret: TokenSecret = SECRET,
    max_replicas: MaxReplicas = MOST,
) -> None:
    """Print autoscalers that carry out the decisions for Servers.

    With keda, a ScaledObject for each workload, which asks the operator; with hpa, a
    HorizontalPodAutoscaler, which reads the metric inferno_desired_replicas.
    """
    from inferno_operator.cli.autoscalers import manifests, select, triggers, warnings
    from inferno_operator.resources.observation import readable

    namespace, observations = _read(place)
    found = select(readable(observations), servers)
    printed = triggers if owner else manifests
    text = printed(autoscaler, found, Access(url, token_secret, max_replicas), namespace)
    warn(warnings(found))
    typer.echo(text, nl=False)


@app.command(
    epilog=examples(
        "kubectl inferno top --namespace llm",
        "kubectl inferno top --once -o json",
        "kubectl inferno top --filter 'premium h100' --sort -cost",
    )
)
@somewhere
def top(
    place: "KubectlOptions",
    output: Output = Format.TABLE,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Show it once; the default where there is no terminal.")
    ] = False,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How often to draw it anew.")
    ] = 2.0,
    words: Filter = "",
    sort: Sort = "",
    currency: Currency = IN_CENTS,
) -> None:
    """Show how the Servers do against their targets, and what the cards are worth.

    Latencies in ms stand beside their SLO, with what is left of it; for waits the percentile
    that the SLO is about. Prices tell what one more card would save, in cents/hour, or which
    load it would serve.

    Where a screen has too few lines, Servers with a problem come first, then those of the most
    important classes, and the last line counts the others.
    """
    from inferno_operator.cli.overview import overview
    from inferno_operator.cli.tables.order import RowOrder

    order, money = RowOrder.asked(words, sort), money_of(currency)
    if once or output is not Format.TABLE or not sys.stdout.isatty():
        _show_overview(output, overview(_read(place)[1]), money, order)
        return
    with _interruptible("", status=0):
        run(place, lambda session: _follow(session, interval, order, money))


@app.command(
    epilog=examples("kubectl inferno savings --namespace llm", "kubectl inferno savings -o json")
)
@somewhere
def savings(
    place: "KubectlOptions", output: Output = Format.TABLE, *, currency: Currency = IN_CENTS
) -> None:
    """Show what the measured Servers cost, and what other policies would have cost.

    Costs are in cents, since the operator counts them. The other policies are simulated with the
    load that was measured, on the accelerator on which a Server ran when its account began.
    """
    from inferno_operator.cli.savings import accounts, savings_document
    from inferno_operator.cli.tables.savings import savings_parts

    money = money_of(currency)
    namespace, observations = _read(place)
    found = accounts(observations, namespace)
    show(output, lambda: savings_document(found), lambda: savings_parts(found, money))


@app.command(
    epilog=examples(
        "kubectl inferno measure --namespace llm",
        "kubectl inferno measure premium-granite-13b --prometheus http://localhost:9090",
    )
)
@somewhere
@prometheus_options
def measure(
    endpoint: "PrometheusEndpoint | None",
    place: "KubectlOptions",
    server: Annotated[
        str | None, typer.Argument(metavar="SERVER", help="Its name, or its spec.name.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what is measured of the Servers, and how.

    Shows what the operator measured last. With --prometheus it measures now, from this machine,
    and shows each query and its answer.
    """
    from inferno_operator.cli.kubectl.selection import choose_server
    from inferno_operator.cli.measurement import measure, reported
    from inferno_operator.resources import Server
    from inferno_operator.resources.observation import readable

    namespace, observations = _read(place)
    resources = readable(observations)
    if server is not None:
        chosen = choose_server(observations, namespace, server)
        resources = [r for r in resources if not isinstance(r, Server) or r is chosen]
    if endpoint is None:
        _show_measurements(output, reported(resources), ())
        return
    with working("asking Prometheus"):
        found, asked = asyncio.run(measure(resources, endpoint))
    _show_measurements(output, found, asked)


async def _ask(session: "Session", name: str | None) -> "Observation":
    """Request an optimization; return the Optimizer after the request."""
    from inferno_operator.cli.kubectl.selection import choose_optimizer

    chosen = choose_optimizer(await session.optimizers(), session.namespace, name)
    return await session.request(chosen.metadata.name)


async def _optimize(session: "Session", name: str | None, patience: float) -> "Overview":
    """Request an optimization, wait until it is done; the overview with the Plans that wait."""
    from inferno_operator.cli.kubectl.answer import in_order, waiting
    from inferno_operator.cli.kubectl.follow import follow_request
    from inferno_operator.cli.overview import overview

    asked = await _ask(session, name)
    with working(f"{asked.reference}: asked to optimize") as say:
        await follow_request(session, asked.reference.key, asked.generation, patience, say)
        plans = in_order(await session.plans())
        seen = overview(await session.objects())
        return replace(seen, waiting=tuple(waiting(plans, asked.reference.key.name)))


async def _follow(session: "Session", interval: float, order: "RowOrder", money: Money) -> None:
    """Show the namespace continuously until cancelled."""
    from rich.live import Live

    from inferno_operator.cli.kubectl.follow import follow_objects
    from inferno_operator.cli.overview import overview
    from inferno_operator.cli.tables.screen import Screen

    with Live(screen=True, auto_refresh=False) as live:

        def draw(seen: "Sequence[Observation]", trouble: str) -> None:
            heading = [trouble, ""] if trouble else []
            screen = Screen(*live.console.size, money)
            text = screen.text(overview(seen), now(), order, heading)
            text.no_wrap, text.overflow = True, "ellipsis"
            live.update(text, refresh=True)

        await follow_objects(session, interval, draw)


def _show_overview(
    output: Format, seen: "Overview", money: Money, order: "RowOrder | None" = None
) -> None:
    from inferno_operator.cli.overview import overview_document
    from inferno_operator.cli.tables.plans import waiting_parts
    from inferno_operator.cli.tables.top import servers_table, top_parts

    show(
        output,
        lambda: overview_document(seen),
        lambda: (*top_parts(seen, now(), money), *waiting_parts(seen.waiting, money)),
        lambda: servers_table(seen.servers, money),
        order,
    )


def _show_measurements(
    output: Format, found: "Sequence[ServerMeasurement]", asked: "Sequence[Asked]"
) -> None:
    from inferno_operator.cli.measurement import measurement_document
    from inferno_operator.cli.tables.measurement import measurement_parts

    show(
        output,
        lambda: measurement_document(found, asked),
        lambda: measurement_parts(found, asked, now()),
    )


def _read(place: "KubectlOptions") -> "tuple[str, Sequence[Observation]]":
    """Return the namespace and its objects."""

    async def read(session: "Session") -> "tuple[str, Sequence[Observation]]":
        return session.namespace, await session.objects()

    return run(place, read)


@contextmanager
def _interruptible(message: str, status: int = INTERRUPTED) -> Iterator[None]:
    """Exit without a traceback on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        if message:
            typer.echo(message, err=True)
        raise typer.Exit(status) from None


app.add_typer(kubectl_plans.app)
app.add_typer(kubectl_console.app)

if __name__ == "__main__":
    main()
