"""`kubectl inferno top` and `measure`: how the Servers do, and what they cost."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.console import (
    Format,
    Output,
    examples,
    interruptible,
    show,
    working,
)
from inferno_operator.cli.interrupts import run_async
from inferno_operator.cli.kubectl.places import now, read, run, somewhere
from inferno_operator.cli.options.currency import IN_CENTS, Currency, Money, money_of
from inferno_operator.cli.options.prometheus import PrometheusOptions, prometheus_options
from inferno_operator.cli.options.rows import Filter, Sort

if TYPE_CHECKING:
    from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions, Session
    from inferno_operator.cli.kubectl.wanted import WantedServers
    from inferno_operator.cli.measurement import Asked, ServerMeasurement
    from inferno_operator.cli.overview import Overview
    from inferno_operator.cli.tables.order import RowOrder
    from inferno_operator.resources.observation import Observation

app = typer.Typer()


def _reasons(incomplete: str) -> list[str]:
    """The reasons that begin so, for a shell."""
    from inferno_operator.cli.kubectl.wanted import REASONS

    return [name for name in REASONS if name.startswith(incomplete)]


ServiceClassName = Annotated[
    str,
    typer.Option(
        "--class",
        metavar="CLASS",
        help="Show only Servers of this service class.",
        show_default=False,
    ),
]
ModelName = Annotated[
    str,
    typer.Option(
        "--model", metavar="MODEL", help="Show only Servers of this model.", show_default=False
    ),
]
ReasonName = Annotated[
    str,
    typer.Option(
        "--reason",
        metavar="REASON",
        help="Show only Servers with this word in the column READY, such as NoCapacity.",
        show_default=False,
        autocompletion=_reasons,
    ),
]
Selector = Annotated[
    str,
    typer.Option(
        "--selector",
        "-l",
        metavar="LABELS",
        help="Show only Servers with these labels, as kubectl get does.",
        show_default=False,
    ),
]
Watch = Annotated[
    bool | None,
    typer.Option(
        "--watch/--once",
        "-w",
        help="Draw it anew until Ctrl-C, the default on a terminal; or show it once.",
        show_default=False,
    ),
]
Interval = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.1, help="How often to draw it anew.")
]


@app.command(
    epilog=examples(
        "kubectl inferno top --namespace llm",
        "kubectl inferno top -o json",
        "kubectl inferno top --class premium --reason NoCapacity",
        "kubectl inferno top --filter 'premium h100' --sort -cost",
        "kubectl inferno top --selector team=search",
    )
)
@somewhere
def top(  # noqa: PLR0913 - an argument for each option
    place: "KubectlOptions",
    output: Output = Format.TABLE,
    *,
    watch: Watch = None,
    interval: Interval = 2.0,
    service_class: ServiceClassName = "",
    model: ModelName = "",
    reason: ReasonName = "",
    words: Filter = "",
    selector: Selector = "",
    sort: Sort = "",
    currency: Currency = IN_CENTS,
) -> None:
    """Show Servers beside their targets, costs and cards.

    Latencies in ms stand beside their SLO, with what is left of it; for waits the percentile
    that the SLO is about. Prices tell what one more card would save, in cents/hour, or which
    load it would serve.

    Where a screen has too few lines, Servers with a problem come first, then those of the most
    important classes, and the last line counts the others.
    """
    from inferno_operator.cli.kubectl.wanted import WantedServers
    from inferno_operator.cli.overview import overview
    from inferno_operator.cli.tables.order import RowOrder
    from inferno_optimizer.errors import InputError

    async def read_once(session: "Session") -> "Overview":
        return await _Selection(session, wanted, selector).of(overview(await session.objects()))

    wanted = WantedServers(service_class, model, reason)
    order, money = RowOrder.asked(words, sort), money_of(currency)
    on_screen = output is Format.TABLE and sys.stdout.isatty()
    if watch and not on_screen:
        raise InputError("--watch draws a table on a terminal: leave it out")
    if watch is False or not on_screen:
        show_overview(output, run(place, read_once), money, order)
        return
    with interruptible(status=0):
        run(
            place,
            lambda session: _follow(
                session, _Selection(session, wanted, selector), interval, order, money
            ),
        )


@app.command(
    epilog=examples(
        "kubectl inferno measure --namespace llm",
        "kubectl inferno measure premium-granite-13b --prometheus http://localhost:9090",
    )
)
@somewhere
@prometheus_options
def measure(
    prometheus: PrometheusOptions,
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

    namespace, observations = read(place)
    resources = readable(observations)
    if server is not None:
        chosen = choose_server(observations, namespace, server)
        resources = [r for r in resources if not isinstance(r, Server) or r is chosen]
    if prometheus.endpoint is None:
        _show_measurements(output, reported(resources), ())
        return
    with working("asking Prometheus"):
        measurements, asked = run_async(
            measure(resources, prometheus.endpoint, prometheus.read_sources())
        )
    _show_measurements(output, measurements, asked)


class _Selection:
    """The Servers that a person asks for, with the labels of a selector if there is one."""

    def __init__(self, session: "Session", wanted: "WantedServers", selector: str) -> None:
        self._session, self._wanted, self._selector = session, wanted, selector
        self._names: frozenset[str] | None = None
        self._is_checked = False

    async def of(self, seen: "Overview") -> "Overview":
        """An overview of these Servers, and of all cards.

        While the API server is away, they are those that had the labels before. A name that
        nothing has is refused at first only: the last Server that has it may be deleted later.
        """
        from inferno_operator.resources import Server
        from inferno_optimizer.errors import UnavailableError

        if not self._is_checked:
            self._wanted.check(seen)
            self._is_checked = bool(seen.servers)
        chosen = self._wanted.of(seen)
        if not self._selector:
            return chosen
        try:
            self._names = await self._session.selected(Server, self._selector)
        except UnavailableError:
            if self._names is None:
                raise
        names = self._names
        return chosen.with_servers(view for view in chosen.servers if view.name in names)


async def _follow(
    session: "Session", selection: _Selection, interval: float, order: "RowOrder", money: Money
) -> None:
    """Show the namespace continuously until cancelled."""
    from rich.live import Live

    from inferno_operator.cli.kubectl.follow import follow_objects
    from inferno_operator.cli.overview import overview
    from inferno_operator.cli.tables.screen import Screen

    with Live(screen=True, auto_refresh=False) as live:

        async def draw(seen: "Sequence[Observation]", trouble: str) -> None:
            heading = [trouble, ""] if trouble else []
            screen = Screen(*live.console.size, money)
            text = screen.text(await selection.of(overview(seen)), now(), order, heading)
            text.no_wrap, text.overflow = True, "ellipsis"
            live.update(text, refresh=True)

        await follow_objects(session, interval, draw)


def show_overview(
    output: Format, seen: "Overview", money: Money, order: "RowOrder | None" = None
) -> None:
    """Print how the Servers of a namespace do."""
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
    output: Format, measurements: "Sequence[ServerMeasurement]", asked: "Sequence[Asked]"
) -> None:
    from inferno_operator.cli.measurement import measurement_document
    from inferno_operator.cli.tables.measurement import measurement_parts

    show(
        output,
        lambda: measurement_document(measurements, asked),
        lambda: measurement_parts(measurements, asked, now()),
    )
