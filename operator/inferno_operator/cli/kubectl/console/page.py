"""A page as a value: tables, charts and numbers, which HTML, CSV and JSON are made from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.cli.options import CENTS, Money
from inferno_operator.cli.tables.html import TrendOf, no_trend
from inferno_operator.cli.tables.table import Part
from inferno_operator.pages.charts import Chart
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources.observation import Observation

OPERATOR_NAMESPACE = "inferno-system"  # where the installation guides put the operator

# What pages say before there is one.
NO_SERVERS = "No Servers in this namespace: apply yours, or try `inferno sample`."


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """What a console is started with: the unit of costs, and the namespace of the operator."""

    money: Money = CENTS
    operator_namespace: str = OPERATOR_NAMESPACE


@dataclass(frozen=True, slots=True)
class SeenNamespace:
    """What pages are made of: the objects of a namespace now, and the unit of costs."""

    objects: Sequence[Observation]
    name: str
    now: datetime
    money: Money = CENTS


@dataclass(frozen=True, slots=True)
class PlanForm:
    """A Plan that a person may answer; `refusal` says why it cannot be approved.

    One that `is_approved` and not yet carried out can still be rejected.
    """

    plan: str
    digest: str
    refusal: str = ""
    is_approved: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A line of text, and the page on which to go on, if there is one; `action` is its link."""

    text: str
    address: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """All that a page shows.

    `title`: what the page is about; `parts`: tables and lines; `document`: the same as JSON,
    computed when it is asked for; `figures`: the numbers that it begins with; `form`: what a
    person can say to a Plan; `changes`: the changes that it was computed with; None where none
    can be tried; `charts`: pictures above the tables; `others`: what this may be compared with,
    by name; `lead`: the sentence below the title; `troubles`: what is wrong, which stands above
    all numbers; `notice`: what a person can do next; `state`: where that is which the page is
    about; "" if it is nowhere on a way; `before`: tables and lines above the main table, which
    nobody sorts or filters; `trend`: values over time of what a row of the main table is about,
    by its name.
    """

    title: str
    parts: Sequence[Part]
    document: Callable[[], object]
    figures: Sequence[KeyFigure] = ()
    form: PlanForm | None = None
    changes: Sequence[str] | None = None
    charts: Sequence[Chart] = ()
    others: Sequence[str] = ()
    lead: str = ""
    troubles: Sequence[str] = ()
    notice: Note | None = None
    state: str = ""
    before: Sequence[Part] = ()
    trend: TrendOf = no_trend
