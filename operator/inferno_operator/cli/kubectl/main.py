"""The program `kubectl inferno`: its commands, which read the cluster and call the library."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from inferno_operator.cli import options
from inferno_operator.cli.console import (
    Commands,
    interruptible,
    run_app,
    run_async,
    show,
    warn,
    working,
)

if TYPE_CHECKING:
    from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions, Session
    from inferno_operator.cli.kubectl.choices import PlanAnswer
    from inferno_operator.cli.tables.servers import Labels, Overview
    from inferno_operator.cli.tables.table import RowOrder
    from inferno_operator.resources import Plan
    from inferno_operator.resources.observation import Observation

T = TypeVar("T")

# Options that select the cluster and the namespace, as in kubectl.
CLUSTER_OPTIONS = {
    "namespace": options.option(
        "NAME", "Namespace; the context's by default.", "--namespace", "-n"
    ),
    "context": options.option(
        "NAME", "Context of the kubeconfig; the current by default.", "--context"
    ),
    "kubeconfig": options.option("FILE", "Instead of KUBECONFIG.", "--kubeconfig"),
}


def with_cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `CLUSTER_OPTIONS` to a command, whose first argument is a `KubectlOptions`."""

    @wraps(command, assigned=("__name__", "__doc__"))
    def wrapped(invocation: typer.Context, **arguments: Any) -> None:  # noqa: ANN401 - the command's
        from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions

        before = invocation.find_root().params  # options after the command take precedence
        given = {name: arguments.pop(name) or before.get(name) for name in CLUSTER_OPTIONS}
        command(KubectlOptions(**given), **arguments)

    context = Parameter("invocation", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    own = list(signature(command).parameters.values())[1:]
    added = (
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, o])
        for name, o in CLUSTER_OPTIONS.items()
    )
    wrapped.__signature__ = Signature([*own, context, *added])  # type: ignore[attr-defined]  # PEP 362
    return wrapped


def run_session(
    cluster: "KubectlOptions", work: "Callable[[Session], Coroutine[Any, Any, T]]"
) -> T:
    """Run a coroutine with a connection to the cluster."""
    from inferno_operator.adapters.kubernetes.kubectl import connect

    async def work_connected() -> T:
        async with connect(cluster) as session:
            return await work(session)

    return run_async(work_connected())


def read_objects(cluster: "KubectlOptions") -> "tuple[str, Sequence[Observation]]":
    """Return the namespace and its objects."""

    async def read(session: "Session") -> "tuple[str, Sequence[Observation]]":
        return session.namespace, await session.objects()

    return run_session(cluster, read)


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    context_settings=options.HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the plugin and exit; see `console.run_app`."""
    run_app(app, "kubectl inferno")


@app.callback(epilog=options.examples("kubectl inferno top --namespace llm"))
@with_cluster_options
def kubectl_inferno(_cluster: "KubectlOptions", _version: options.Version = False) -> None:
    """Look at LLM servers and decide where they run.

    Works on the Servers, Optimizers and other Inferno objects of one namespace.
    """


OptimizerName = Annotated[
    str | None, options.argument("OPTIMIZER", "Which one, where there are several.")
]


@app.command(
    epilog=options.examples(
        "kubectl inferno plan",
        "kubectl inferno plan fleet -n llm --set 'server.*.load.arrivalRate*=1.5'",
    )
)
@with_cluster_options
def plan(  # noqa: PLR0913 - an argument for each option
    cluster: "KubectlOptions",
    optimizer: OptimizerName = None,
    output: options.Output = options.Format.TABLE,
    changes: options.Changes = [],  # noqa: B006 - typer reads it and never changes it
    time_limit: options.TimeLimit = 30.0,
    *,
    fail_on: options.FailOn = [],  # noqa: B006 - typer reads it and never changes it
    words: options.Filter = "",
    sort: options.Sort = "",
    currency: options.Currency = options.IN_CENTS,
) -> None:
    """Show what an optimization would change; change nothing.

    Reads the namespace, solves on this machine as the operator would, and compares with the
    allocations that are desired now.
    """
    from inferno_operator.cli.kubectl.choices import decide
    from inferno_operator.cli.tables import plans
    from inferno_operator.cli.tables.table import RowOrder

    checks, money = options.parse_conditions(fail_on), options.parse_currency(currency)
    namespace, observations = read_objects(cluster)
    with working("optimizing"):
        outcome = decide(observations, namespace, optimizer, changes, time_limit)
    warn(outcome.idle)
    solution, name = outcome.solution, outcome.optimizer.metadata.name
    planned = plans.preview_plan(observations, outcome.snapshot, solution)
    show(
        output,
        lambda: plans.encode_preview(name, changes, planned, solution),
        lambda: plans.describe_preview(planned, solution, money),
        lambda: plans.tabulate_changes(planned, solution, money),
        RowOrder.parse(words, sort),
    )
    options.refuse(solution, checks)


@app.command(
    epilog=options.examples(
        "kubectl inferno optimize --wait",
        "kubectl inferno optimize fleet -n llm --wait --timeout 60 -o json",
    )
)
@with_cluster_options
def optimize(
    cluster: "KubectlOptions",
    optimizer: OptimizerName = None,
    output: options.Output = options.Format.TABLE,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it, and show the result.")] = False,
    timeout: Annotated[float, options.option("SECONDS", "How long to wait.", min=0)] = 300.0,
    currency: options.Currency = options.IN_CENTS,
) -> None:
    """Ask the operator to optimize.

    Sets spec.optimize of the Optimizer, and nothing else. Ctrl-C ends the waiting only.

    --wait exits with 0 when the optimization is done, also if its Plan then waits for approval
    (listed as "waiting" by -o json), and with 1 if it fails or is not done in time.
    """
    money = options.parse_currency(currency)

    async def request(session: "Session") -> "Observation":
        from inferno_operator.cli.kubectl.choices import choose_optimizer

        chosen = choose_optimizer(await session.optimizers(), session.namespace, optimizer)
        return await session.request(chosen.metadata.name)

    async def request_and_wait(session: "Session") -> "Overview":
        from inferno_operator.cli.kubectl.choices import list_waiting, sort_plans
        from inferno_operator.cli.kubectl.follow import follow_request
        from inferno_operator.cli.tables.servers import build_overview

        asked = await request(session)
        with working(f"{asked.reference}: asked to optimize") as say:
            key = asked.reference.key
            await follow_request(session, key, asked.generation, timeout, say)
            waiting = list_waiting(sort_plans(await session.plans()), key.name)
            return replace(build_overview(await session.objects()), waiting=tuple(waiting))

    with interruptible(lambda: typer.echo("stopped waiting; the request stays", err=True)):
        if wait:
            show_overview(output, run_session(cluster, request_and_wait), money)
            return
        asked = run_session(cluster, request)
    show(
        output,
        lambda: asked.resource.to_json() if asked.resource else {},
        lambda: [f"{asked.reference}: asked to optimize"],
    )


@app.command(
    epilog=options.examples(
        "kubectl inferno explain chat",
        "kubectl inferno explain chat -n llm -o yaml",
    )
)
@with_cluster_options
def explain(
    cluster: "KubectlOptions",
    server: Annotated[str, options.argument("SERVER", "Its name, or its spec.name.")],
    optimizer: Annotated[
        str | None, options.option("NAME", "Which one, where there are several.")
    ] = None,
    output: options.Output = options.Format.TABLE,
    time_limit: options.TimeLimit = 30.0,
    *,
    currency: options.Currency = options.IN_CENTS,
) -> None:
    """Show every option of one Server, and its conditions.

    Each accelerator with its numbers and, where it is out, why. For a Server that gets less
    than it needs also the smallest changes that would serve it.
    """
    from inferno_operator.cli.kubectl.choices import choose_server, decide
    from inferno_operator.cli.tables.calibration import warn_of_weak_data
    from inferno_operator.cli.tables.measurement import describe_latencies, list_reported
    from inferno_operator.cli.tables.servers import describe_conditions
    from inferno_operator.cli.tables.solution import describe_explanation, explain_decision
    from inferno_operator.resources import Model
    from inferno_operator.resources.observation import only, readable

    money = options.parse_currency(currency)
    namespace, observations = read_objects(cluster)
    chosen = choose_server(observations, namespace, server)
    conditions, objects = chosen.status.conditions, readable(observations)
    models = [m for m in only(Model, objects) if m.spec.name == chosen.spec.model]
    measurements = [item for item in list_reported(objects) if item.server is chosen]
    with working("looking for what would serve it"):
        outcome = decide(observations, namespace, optimizer, time_limit=time_limit)
        system = outcome.snapshot.system
        found = explain_decision(system, outcome.solution, chosen.spec.name)
    show(
        output,
        lambda: {
            **found.to_json(),
            "measured": chosen.status.measured.to_json() if chosen.status.measured else None,
            "conditions": [condition.to_json() for condition in conditions],
        },
        lambda: (
            *describe_explanation(system, found, money, warn_of_weak_data(models)),
            *(part for item in measurements for part in describe_latencies(item)),
            *describe_conditions(conditions, datetime.now(UTC)),
        ),
    )


@app.command(
    epilog=options.examples(
        "kubectl inferno generate keda | kubectl apply -f -",
        "kubectl inferno generate hpa chat -n llm",
    )
)
@with_cluster_options
def generate(
    cluster: "KubectlOptions",
    autoscaler: options.Kind,
    servers: Annotated[
        list[str],
        options.argument(
            "SERVER", "Their names; by default all Servers with workloads.", show_default=False
        ),
    ] = [],  # noqa: B006 - typer reads it and never changes it
    *,
    owner: options.For = None,
    url: options.Url = options.SERVICE,
    token_secret: options.TokenSecret = options.SECRET,
    max_replicas: options.MaxReplicas = options.MOST,
) -> None:
    """Generate KEDA ScaledObjects or HPAs.

    With keda, a ScaledObject for each workload, which asks the operator; with hpa, a
    HorizontalPodAutoscaler, which reads the metric inferno_desired_replicas.
    """
    from inferno_operator.cli.autoscalers import generate_autoscalers
    from inferno_operator.resources.observation import readable

    namespace, observations = read_objects(cluster)
    access = options.Access(url, token_secret, max_replicas)
    text, warnings = generate_autoscalers(
        autoscaler, readable(observations), servers, access, namespace, owner
    )
    warn(warnings)
    typer.echo(text, nl=False)


def complete_reasons(incomplete: str) -> list[str]:
    """Return the reasons that begin so, for a shell."""
    from inferno_operator.cli.kubectl.choices import REASONS

    return [name for name in REASONS if name.startswith(incomplete)]


@app.command(
    epilog=options.examples(
        "kubectl inferno top --namespace llm",
        "kubectl inferno top -o json",
        "kubectl inferno top --class premium --reason NoCapacity",
        "kubectl inferno top --filter 'premium h100' --sort -cost",
        "kubectl inferno top --selector team=search",
    )
)
@with_cluster_options
def top(  # noqa: PLR0913 - an argument for each option
    cluster: "KubectlOptions",
    output: options.Output = options.Format.TABLE,
    *,
    watch: Annotated[
        bool | None,
        typer.Option(
            "--watch/--once",
            "-w",
            help="Draw it anew until Ctrl-C, the default on a terminal; or show it once.",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[
        float, options.option("SECONDS", "How often to draw it anew.", min=0.1)
    ] = 2.0,
    service_class: Annotated[
        str,
        options.option(
            "CLASS", "Show only Servers of this service class.", "--class", show_default=False
        ),
    ] = "",
    model: Annotated[
        str,
        options.option("MODEL", "Show only Servers of this model.", "--model", show_default=False),
    ] = "",
    reason: Annotated[
        str,
        options.option(
            "REASON",
            "Show only Servers with this word in the column READY, such as NoCapacity.",
            "--reason",
            show_default=False,
            autocompletion=complete_reasons,
        ),
    ] = "",
    words: options.Filter = "",
    selector: Annotated[
        str,
        options.option(
            "LABELS",
            "Show only Servers with these labels, as kubectl get does.",
            "--selector",
            "-l",
            show_default=False,
        ),
    ] = "",
    sort: options.Sort = "",
    currency: options.Currency = options.IN_CENTS,
) -> None:
    """Show Servers beside their targets, costs and cards.

    Latencies in ms stand beside their SLO, with what is left of it; for waits the percentile
    that the SLO is about. Prices tell what one more card would save, in cents/hour, or which
    load it would serve.

    Where a screen has too few lines, Servers with a problem come first, then those of the most
    important classes, and the last line counts the others.
    """
    from inferno_operator.cli.kubectl.choices import ServerFilter
    from inferno_operator.cli.kubectl.follow import follow_objects
    from inferno_operator.cli.tables.servers import Screen, build_overview
    from inferno_operator.cli.tables.table import RowOrder
    from inferno_optimizer.errors import InputError

    wanted = ServerFilter(service_class, model, reason, selector)
    order, money = RowOrder.parse(words, sort), options.parse_currency(currency)
    on_screen = output is options.Format.TABLE and sys.stdout.isatty()
    if watch and not on_screen:
        raise InputError("--watch draws a table on a terminal: leave it out")

    async def read_once(session: "Session") -> "Overview":
        return await wanted.select(session, build_overview(await session.objects()))

    async def draw_until_cancelled(session: "Session") -> None:
        from rich.live import Live

        with Live(screen=True, auto_refresh=False) as live:

            async def draw(objects: "Sequence[Observation]", trouble: str) -> None:
                heading = [trouble, ""] if trouble else []
                seen = await wanted.select(session, build_overview(objects))
                screen = Screen(*live.console.size, money)
                text = screen.draw(seen, datetime.now(UTC), order, heading)
                text.no_wrap, text.overflow = True, "ellipsis"
                live.update(text, refresh=True)

            await follow_objects(session, interval, draw)

    if watch is False or not on_screen:
        show_overview(output, run_session(cluster, read_once), money, order)
        return
    with interruptible(status=0):
        run_session(cluster, draw_until_cancelled)


def show_overview(
    output: options.Format, seen: "Overview", money: options.Money, order: "RowOrder | None" = None
) -> None:
    """Print how the Servers of a namespace do."""
    from inferno_operator.cli.tables import servers
    from inferno_operator.cli.tables.plans import describe_waiting

    now = datetime.now(UTC)
    show(
        output,
        lambda: servers.encode_overview(seen),
        lambda: (
            *servers.describe_overview(seen, now, money),
            *describe_waiting(seen.waiting, money),
        ),
        lambda: servers.tabulate_servers(seen.servers, money),
        order,
    )


@app.command(
    epilog=options.examples(
        "kubectl inferno measure --namespace llm",
        "kubectl inferno measure chat --prometheus http://localhost:9090",
    )
)
@with_cluster_options
@options.prometheus_options
def measure(
    prometheus: options.PrometheusOptions,
    cluster: "KubectlOptions",
    server: Annotated[str | None, options.argument("SERVER", "Its name, or its spec.name.")] = None,
    output: options.Output = options.Format.TABLE,
) -> None:
    """Show what is measured of the Servers, and how.

    Shows what the operator measured last. With --prometheus it measures now, from this machine,
    and shows each query and its answer.
    """
    from inferno_operator.cli.kubectl.choices import choose_server
    from inferno_operator.cli.measurement import measure
    from inferno_operator.cli.tables import measurement
    from inferno_operator.resources import Server
    from inferno_operator.resources.observation import readable

    namespace, observations = read_objects(cluster)
    resources = readable(observations)
    if server is not None:
        chosen = choose_server(observations, namespace, server)
        resources = [r for r in resources if not isinstance(r, Server) or r is chosen]
    queries: Sequence[measurement.AskedQuery] = ()
    if prometheus.endpoint is None:
        measurements = measurement.list_reported(resources)
    else:
        with working("asking Prometheus"):
            measurements, queries = run_async(
                measure(resources, prometheus.endpoint, prometheus.read_sources())
            )
    show(
        output,
        lambda: measurement.encode_measurements(measurements, queries),
        lambda: measurement.describe_measurements(measurements, queries, datetime.now(UTC)),
    )


PlanName = Annotated[
    str, options.argument("PLAN", "Its name, as `kubectl inferno plans` lists it.")
]


@app.command(
    epilog=options.examples(
        "kubectl inferno plans --namespace llm", "kubectl inferno plans -o json"
    )
)
@with_cluster_options
def plans(
    cluster: "KubectlOptions",
    output: options.Output = options.Format.TABLE,
    *,
    currency: options.Currency = options.IN_CENTS,
) -> None:
    """Show the recorded Plans, the newest first.

    Those that wait for approval are shown with the reason.
    """
    from inferno_operator.cli.kubectl.choices import sort_plans
    from inferno_operator.cli.tables.plans import describe_plans

    money = options.parse_currency(currency)
    newest_first = sort_plans(run_session(cluster, lambda session: session.plans()))
    show(
        output,
        lambda: [plan.to_json() for plan in newest_first],
        lambda: describe_plans(newest_first, datetime.now(UTC), money),
    )


@app.command(
    epilog=options.examples(
        "kubectl inferno diff fleet-17",
        "kubectl inferno diff fleet-17 -n llm -o yaml",
        "kubectl inferno diff fleet-17 fleet-18",
    )
)
@with_cluster_options
def diff(
    cluster: "KubectlOptions",
    name: PlanName,
    other: Annotated[str | None, options.argument("OTHER", "A Plan to compare it with.")] = None,
    output: options.Output = options.Format.TABLE,
    *,
    currency: options.Currency = options.IN_CENTS,
) -> None:
    """Show what a Plan changes: each Server, and the cost.

    Of two Plans, show the Servers that they leave in different states. A Plan that is still to be
    carried out is refused if its decisions are not what it shows.
    """
    from inferno_operator.cli.kubectl.choices import check_text, choose_plan, sort_plans
    from inferno_operator.cli.tables.plans import (
        describe_difference,
        describe_plan,
        name_accelerators,
    )
    from inferno_operator.cli.tables.servers import find_labels
    from inferno_optimizer.errors import InfernoError

    async def read(session: "Session") -> "tuple[list[Plan], Labels]":
        plans = sort_plans(await session.plans())
        chosen = [choose_plan(plans, session.namespace, each) for each in (name, other) if each]
        try:
            return chosen, find_labels(await session.objects())
        except InfernoError:  # such as without the rights; accelerators are named alone then
            return chosen, name_accelerators

    money = options.parse_currency(currency)
    chosen, labels = run_session(cluster, read)
    for plan in chosen:
        if not plan.is_finished:
            check_text(plan)
    if other:
        first, second = chosen
        document = [plan.to_json() for plan in chosen]
        show(output, lambda: document, lambda: describe_difference(first, second, money, labels))
    else:
        show(output, chosen[0].to_json, lambda: describe_plan(chosen[0], money, None, labels))


@app.command(
    epilog=options.examples(
        "kubectl inferno approve fleet-17", "kubectl inferno approve fleet-17 -n llm --until 2h"
    )
)
@with_cluster_options
def approve(
    cluster: "KubectlOptions",
    name: PlanName,
    until: Annotated[
        str | None,
        options.option("TIME", "When it ends: a time, or a duration such as 2h; never by default."),
    ] = None,
    output: options.Output = options.Format.TABLE,
    *,
    currency: options.Currency = options.IN_CENTS,
) -> None:
    """Approve a Plan, so that the operator carries it out.

    A Plan is refused if its decisions are not what it shows.
    Writes status.approval of the Plan with your rights. You need the ClusterRole inferno-approve.
    """
    _answer(cluster, name, "Approved", until, output, options.parse_currency(currency))


@app.command(epilog=options.examples("kubectl inferno reject fleet-17 --namespace llm"))
@with_cluster_options
def reject(
    cluster: "KubectlOptions",
    name: PlanName,
    output: options.Output = options.Format.TABLE,
    *,
    currency: options.Currency = options.IN_CENTS,
) -> None:
    """Reject a Plan, so that the operator never carries it out.

    The same changes are not proposed again at the interval of the Optimizer while the inputs
    stay the same. You need the ClusterRole inferno-approve.
    """
    _answer(cluster, name, "Rejected", None, output, options.parse_currency(currency))


def _answer(
    cluster: "KubectlOptions",
    name: str,
    state: "PlanAnswer",
    until: str | None,
    output: options.Format,
    money: options.Money,
) -> None:
    from inferno_operator.cli.kubectl.choices import answer_plan, parse_deadline
    from inferno_operator.cli.tables.plans import summarize

    end = None if until is None else parse_deadline(until, datetime.now(UTC))
    plan = run_session(cluster, lambda session: answer_plan(session, name, state, end))
    line = f"Plan {name}: {state.lower()}; {summarize(plan, money)}"
    show(output, lambda: {"plan": name, "state": state, "digest": plan.spec.digest}, lambda: [line])


OperatorNamespace = Annotated[
    str, options.option("NAMESPACE", "Namespace of the operator; its Lease there names the leader.")
]


@app.command(
    epilog=options.examples(
        "kubectl inferno console --namespace llm",
        "kubectl inferno console --port 8000 --no-browser",
    )
)
@with_cluster_options
def console(
    cluster: "KubectlOptions",
    *,
    port: Annotated[
        int, options.option("PORT", "Where to listen; 0 takes a free port.", min=0, max=65535)
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the address in the browser.")
    ] = True,
    operator_namespace: OperatorNamespace = "inferno-system",
    currency: options.Currency = options.IN_CENTS,
) -> None:
    """Show the namespace as pages in a browser, until Ctrl-C.

    The pages have your rights, and nobody else can open them: the address that is printed opens
    one browser, once. Plans can be approved there with the ClusterRole inferno-approve.
    """
    from inferno_operator.cli.kubectl.console.page import ConsoleSettings
    from inferno_operator.cli.kubectl.console.serve import serve

    settings = ConsoleSettings(options.parse_currency(currency), operator_namespace)
    with interruptible(status=0):
        run_session(
            cluster, lambda session: serve(session, port, settings, typer.echo, browser=browser)
        )


ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - in a pod


@app.command(
    epilog=options.examples(
        "kubectl inferno console-server --origin https://inferno.example.com"
        " --certificate /tls/tls.crt --private-key /tls/tls.key",
        "kubectl inferno console-server --origin https://inferno.example.com --port 8080",
    )
)
def console_server(  # noqa: PLR0913 - the options of a server
    *,
    origin: Annotated[str, options.option("URL", "The address that browsers use: https://HOST.")],
    certificate: Annotated[
        Path | None,
        options.option(
            "FILE", "Certificate for TLS; without one, the proxy is answered by plain HTTP."
        ),
    ] = None,
    private_key: Annotated[
        Path | None, options.option("FILE", "Private key of the certificate.")
    ] = None,
    host: Annotated[
        str | None,
        options.option(
            "HOST",
            "Address to listen on; by default all with a certificate, and 127.0.0.1 without one.",
        ),
    ] = None,
    port: Annotated[
        int, options.option("PORT", "Where to listen; 0 takes a free port.", min=0, max=65535)
    ] = 8443,
    namespace: Annotated[
        str,
        options.option(
            "NAME", "What the page to choose a namespace suggests.", "--namespace", "-n"
        ),
    ] = "default",
    api_server: Annotated[
        str, options.option("URL", "Address of the API server.")
    ] = "https://kubernetes.default.svc",  # as a pod reaches it
    api_server_ca: Annotated[
        Path, options.option("FILE", "Authorities that sign the certificate of the API server.")
    ] = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"),
    operator_namespace: OperatorNamespace = "inferno-system",
    currency: options.Currency = options.IN_CENTS,
    _key_file: Annotated[Path | None, typer.Option("--key-file", hidden=True)] = None,
    _behind_proxy: Annotated[bool, typer.Option("--behind-proxy", hidden=True)] = True,
) -> None:
    """Serve the console behind an authenticating proxy.

    The proxy shows a token with each request, in its header Authorization. Each person has the
    rights of that token; the server has none of its own.
    """
    import asyncio

    from inferno_operator.adapters.kubernetes.kubectl import ApiServerAddress
    from inferno_operator.cli.kubectl.console import serve
    from inferno_operator.cli.kubectl.console.page import ConsoleSettings

    server = ApiServerAddress(api_server, api_server_ca)
    settings = ConsoleSettings(options.parse_currency(currency), operator_namespace)
    console = serve.create_proxied_console(server, namespace, origin, asyncio.sleep, settings)
    with interruptible(status=0):
        address = host or (ALL_ADDRESSES if certificate else serve.LOOPBACK)
        listener = serve.Listener(address, port, certificate, private_key)
        run_async(
            serve.serve_guarded_console(console, listener, lambda text: typer.echo(text, err=True))
        )


# The last line: whether the shell completes the names of files, where nothing else is known.
FILES, NO_FILES = ":0\n", ":4\n"


def complete(arguments: Sequence[str]) -> str:
    """Return the completions of the last argument, in the words that kubectl expects.

    kubectl runs `kubectl_complete-inferno` with the arguments, of which the last may be incomplete.
    It expects a completion with its description on each line, and then what the shell does
    otherwise [https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins]. The lines of typer
    for fish are those of kubectl.
    """
    import shlex
    from contextlib import redirect_stdout, suppress
    from io import StringIO

    from typer.completion import completion_init  # type: ignore[attr-defined]  # it has no other

    *typed, last = arguments or [""]
    asked = {
        "_INFERNO_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COLUMNS": "1000",  # a description is one line
        "_TYPER_COMPLETE_ARGS": f"inferno {shlex.join(typed)} {last}",
    }
    os.environ.update(asked)
    completion_init()
    printed = StringIO()
    with suppress(SystemExit), redirect_stdout(printed):
        app([], prog_name="inferno")
    lines = [line for line in printed.getvalue().splitlines() if line]
    return "".join(f"{line}\n" for line in lines) + (NO_FILES if lines else FILES)


if __name__ == "__main__":
    main()
