"""The objects of a namespace -> the page of one Server: its options, its past, how it is."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from math import inf

from inferno_operator.cli.kubectl.answer import in_order
from inferno_operator.cli.kubectl.console.curves import curve_charts, curve_document, curve_of
from inferno_operator.cli.kubectl.console.events import (
    NO_EVENTS,
    SeenEvents,
    event_parts,
    events_document,
)
from inferno_operator.cli.kubectl.console.page import ConsolePage, without_columns
from inferno_operator.cli.kubectl.console.past import PastLoads, latencies_of, loads_of
from inferno_operator.cli.kubectl.console.timelines import changes_of, past_charts
from inferno_operator.cli.kubectl.dry_run import DryRun
from inferno_operator.cli.kubectl.selection import choose_server
from inferno_operator.cli.measurement import reported
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.cluster import band_cell, cost, placement
from inferno_operator.cli.tables.measurement import comparison_parts
from inferno_operator.cli.tables.solution import option_parts, saved_work_parts
from inferno_operator.cli.tables.top import condition_parts
from inferno_operator.cli.tables.what_if import remedy_parts
from inferno_operator.controllers.planning.allocations import priced_current
from inferno_operator.pages.charts import Chart, Named, limit_chart
from inferno_operator.pages.figures import KeyFigure
from inferno_operator.pages.svg import Frame
from inferno_operator.resources import Model, Server
from inferno_operator.resources.conditions import READY
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.explain.options import Option, explain, with_choice
from inferno_optimizer.explain.remedies import remedies
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Target
from inferno_optimizer.wire.codec import encode_explanation, encode_remedies

ABOVE = 1.1
"""Height of an axis, where the highest value is 1."""

DEAREST = 10.0
"""Options are drawn up to so many times the cost of the cheapest one, which a dearer one hides."""


def server_view(  # noqa: PLR0913 - all that is known of a Server
    observations: Sequence[Observation],
    outcome: DryRun,
    namespace: str,
    name: str,
    now: datetime,
    money: Money = CENTS,
    *,
    past: Sequence[PastLoads] = (),
    events: SeenEvents = NO_EVENTS,
) -> ConsolePage:
    """Every option of a Server, what would serve it, its past, what is measured, its conditions."""
    chosen = choose_server(observations, namespace, name)
    system, solution = outcome.snapshot.system, outcome.solution
    catalogue = Catalogue(system)
    options = explain(system, chosen.spec.name)
    options = with_choice(options, system, solution, chosen.spec.name)
    found = remedies(system, solution, chosen.spec.name)
    decision = next(d for d in solution.decisions if d.server == chosen.spec.name)
    target = catalogue.target(next(s for s in system.servers if s.name == decision.server))
    measurements = [item for item in reported(readable(observations)) if item.server is chosen]
    models = [r for r in readable(observations) if isinstance(r, Model)]
    curve, loads = curve_of(system, chosen, models), loads_of(chosen.spec, past, now)
    latencies = latencies_of(chosen, past)
    changes = changes_of(chosen, in_order(observations))
    return ConsolePage(
        title=f"Server {chosen.metadata.name}",
        parts=(
            *without_columns(option_parts(options, money), "TYPE", "BATCH"),
            *saved_work_parts(system, chosen.spec.name),
            *remedy_parts(decision, found),
            *(part for item in measurements for part in comparison_parts(item)),
            *condition_parts(chosen.status.conditions, now),
            *event_parts(events, now),
        ),
        document=lambda: {
            "options": encode_explanation(options),
            "remedies": encode_remedies(found),
            "loads": [[f"{time:%Y-%m-%dT%H:%M:%SZ}", rate] for time, rate in loads],
            "latencies": [
                {"time": f"{time:%Y-%m-%dT%H:%M:%SZ}", **found._asdict()}
                for time, found in latencies
            ],
            "curve": curve_document(curve) if curve else None,
            "events": events_document(events),
        },
        figures=tuple(_figures_of(chosen, catalogue, money)),
        trouble=_trouble_of(chosen),
        charts=(
            *_choices(options, target, money),
            *(curve_charts(curve, target, chosen) if curve else ()),
            *past_charts(loads, latencies, changes, target, now),
        ),
    )


def affordable(options: Sequence[Option]) -> Sequence[Option]:
    """The options up to `DEAREST` times the cost of the cheapest one; all if it is free."""
    most = DEAREST * min((option.cost for option in options), default=0.0) or inf
    return [option for option in options if option.cost <= most]


def _left_out(count: int) -> str:
    """What a chart says of the options that are too dear to be drawn."""
    if not count:
        return ""
    return (
        f"; {count} that cost{'s' if count == 1 else ''} more than {DEAREST:g} times the cheapest"
    )


def _trouble_of(server: Server) -> str:
    """Why a Server does not get what it needs; "" if it does, or nothing was decided yet."""
    ready = server.status.condition(READY)
    if ready is None or ready.status != "False":
        return ""
    return f"{ready.reason}: {ready.message}"


def _figures_of(server: Server, catalogue: Catalogue, money: Money) -> Iterator[KeyFigure]:
    spec, label = server.spec, partial(catalogue.label, server.spec.model)
    current, desired = priced_current(server, catalogue), spec.desired_alloc
    yield KeyFigure("Model", spec.model, f"class {spec.service_class}")
    load = f"{current.load.arrival_rate:g}" if current and current.load else "-"
    yield KeyFigure("Load", load, "requests/min")
    for title, found in (("Now", current), ("Desired", desired)):
        yield KeyFigure(title, placement(found, label), f"{money.amount(cost(found))} {money.rate}")
    if desired and (band := band_cell(desired)):
        yield KeyFigure("Predicted ITL", f"{desired.itl_average or 0:.2f} ms", f"({band})")


def _choices(options: Sequence[Option], target: Target, money: Money) -> Iterator[Chart]:
    """Yield what each accelerator would cost against the latencies that have a target."""
    possible = [option for option in options if not option.reason]
    drawn = affordable(possible)
    dearer = _left_out(len(possible) - len(drawn))
    named = (("ITL", "itl_ms", target.itl_ms), ("TTFT", "ttft_ms", target.ttft_ms))
    for title, field, limit in named if drawn else ():
        if limit:
            points = [Named(o.accelerator, o.cost / money.cents, getattr(o, field)) for o in drawn]
            widest = max(point.x for point in points) * ABOVE or 1.0
            highest = max(limit, *(point.y for point in points)) * ABOVE
            frame = Frame(f"Cost and {title}", money.rate, "ms", widest, highest)
            words = (
                f"{title} of each accelerator against its cost; labelled: best trade-offs;"
                f" dashed: the target, {limit:g} ms{dearer}"
            )
            yield limit_chart(frame, points, limit, words)
