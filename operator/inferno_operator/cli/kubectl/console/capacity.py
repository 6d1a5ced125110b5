"""The objects of a namespace -> the page of its cards: there, in use, planned, and over time."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from urllib.parse import urlencode

from inferno_operator.cli.kubectl.answer import in_order
from inferno_operator.cli.kubectl.console.page import ConsolePage, PageLink
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.overview import CardUse, overview, overview_document
from inferno_operator.cli.tables.solution import Part, TextTable, one_more_card
from inferno_operator.cli.tables.top import excess_notes
from inferno_operator.pages.charts import Chart, line_chart
from inferno_operator.pages.figures import KeyFigure
from inferno_operator.pages.svg import Frame, stairs
from inferno_operator.pages.timeline import Timeline
from inferno_operator.resources import Plan
from inferno_operator.resources.observation import Observation

ABOVE = 1.1
"""Height of an axis, where the highest value is 1."""

MORE = (1, 4)
"""How many more cards a link tries."""

COUNTED = ("TOTAL", "OTHERS", "OURS", "FREE")


def capacity_view(
    observations: Sequence[Observation], now: datetime, money: Money = CENTS
) -> ConsolePage:
    """The cards by type: there, in use, planned, held; and what was planned over time."""
    cards = overview(observations).cards
    plans = [plan for plan in reversed(in_order(observations)) if plan.status.took_effect]
    return ConsolePage(
        title="Cards by type",
        parts=tuple(_parts(cards, money)),
        document=lambda: _document(observations, plans),
        figures=tuple(_figures(cards)),
        charts=tuple(_charts(cards, plans, now)),
        links=tuple(_trials(cards)),
    )


def _figures(cards: Sequence[CardUse]) -> Iterator[KeyFigure]:
    there = sum(item.available for item in cards)
    running = sum(item.running for item in cards)
    yield KeyFigure("Cards", str(there), f"of {len(cards)} types")
    yield KeyFigure("In use", str(running), "by the Servers of this namespace")
    if all(item.planned is None for item in cards):
        yield KeyFigure("Planned", "-", "no plan was made yet")
        return
    held = sum(item.held or 0 for item in cards)
    full = sum(item.planned is not None and _taken(item) >= item.available for item in cards)
    yield KeyFigure("Planned", str(sum(item.planned or 0 for item in cards)), "by the last plan")
    yield KeyFigure("Held", str(held), "by Servers without a decision")
    yield KeyFigure("Types without a free card", str(full), "by the last plan")


def _taken(item: CardUse) -> int:
    return (item.planned or 0) + (item.held or 0)


def _parts(cards: Sequence[CardUse], money: Money) -> Iterator[Part]:
    if not cards:
        yield "No cards: there is no Capacity, and no Server that runs. Apply a Capacity."
        return
    counted = COUNTED if any(item.counted for item in cards) else ()
    headings = ("CARDS", ">IN USE/THERE", ">PLANNED/THERE", ">HELD", ">ONE MORE CARD")
    limit = ("LIMITED BY",) if counted else ()
    counts = [f">{name}" for name in counted]
    rows = [_row(item, money, counted=bool(counted)) for item in cards]
    yield TextTable((*headings, *counts, *limit), rows)
    yield from excess_notes(cards)


def _row(item: CardUse, money: Money, *, counted: bool) -> Sequence[str]:
    return (
        item.type,
        f"{item.running}/{item.available}",
        "-" if item.planned is None else f"{item.planned}/{item.available}",
        "-" if item.held is None else str(item.held),
        one_more_card(item.price, item.gain, money, estimated=item.estimated),
        *(_counts(item) if counted else ()),
    )


def _counts(item: CardUse) -> Sequence[str]:
    found = item.counted
    if found is None:
        return ["-"] * (len(COUNTED) + 1)
    return [*(str(getattr(found, name.lower())) for name in COUNTED), found.bound_by]


def _charts(cards: Sequence[CardUse], plans: Sequence[Plan], now: datetime) -> Iterator[Chart]:
    """Yield what the Plans that took effect gave of each type, beside what is there now."""
    born = [plan.metadata.creation_timestamp for plan in plans]
    line = Timeline.of((moment for moment in born if moment), now)
    for item in cards if plans else ():
        given = [
            (line.at(moment), float(_cards_of(plan, item.type)))
            for plan, moment in zip(plans, born, strict=True)
            if moment
        ]
        most = max(item.available, *(count for _, count in given), 1)
        frame = Frame(item.type, line.label, "cards", line.end, most * ABOVE, whole=True)
        there = [(0.0, float(item.available)), (line.end, float(item.available))]
        words = f"{item.type}: {given[-1][1]:g} by the last Plan that took effect; dashed:"
        lines = (("bound", there), ("line", stairs(given, line.end)))
        yield line_chart(frame, lines, f"{words} {item.available} are there now")


def _cards_of(plan: Plan, card_type: str) -> int:
    return sum(cards.count for cards in plan.spec.totals.cards if cards.type == card_type)


def _trials(cards: Sequence[CardUse]) -> Iterator[PageLink]:
    """Yield what the next plan would be with more cards, which is solved when somebody asks."""
    for item in cards:
        for more in MORE:
            change = urlencode({"set": f"capacity.{item.type}+={more}"})
            yield PageLink(f"/next?{change}", f"{more} more {item.type}")


def _document(observations: Sequence[Observation], plans: Sequence[Plan]) -> object:
    return {
        "capacity": overview_document(overview(observations))["capacity"],
        "plans": [
            {
                "name": plan.metadata.name,
                "created": plan.metadata.to_json().get("creationTimestamp"),
                "cards": {cards.type: cards.count for cards in plan.spec.totals.cards},
            }
            for plan in plans
        ],
    }
