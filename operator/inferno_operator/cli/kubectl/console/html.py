"""Pages as HTML: addresses sort, filter and page tables, rows link to what they are about."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from urllib.parse import quote, urlencode

from inferno_operator.cli.kubectl.console.page import ConsolePage, Trend, no_trend
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.table import (
    Part,
    RowOrder,
    TextTable,
    find_main_table,
    name_of,
    order_rows,
    style_of,
)
from inferno_operator.pages.html import environment

MILLISECONDS = " MS"
"""What names end with that have their unit in them, as terminals show no second line."""

NOW, DECIDED = "Replicas and accelerator that run now.", "Replicas and accelerator last decided."

LEFT = "How much of the target is left, in percent of it; below 0 the target is missed."

ONE_MORE = (
    "What one more card of the type would save per hour, or with a plus how many more requests/min"
    " it would serve. A tilde marks an estimate; a dash, that it is not known."
)

REASON = "Why the condition has its status, in a word; the pages on troubleshooting have each."

MEANINGS: Mapping[str, str] = {
    "ACTION": "What changes: the number of replicas, the accelerator (move), the batch, or only"
    " the predicted numbers.",
    "AVAILABLE": "Cards that there are for Servers of this namespace.",
    "BATCH": "Most requests that a replica serves at the same time.",
    "BEST ELSEWHERE": "What the Server needs on the best other accelerator, whether cards are free"
    " or not.",
    "BEST ELSEWHERE PRICE": "How much more that costs than what is decided.",
    "BY": "Who approved or rejected the Plan; mode Auto: nobody had to.",
    "COST": "Cost of all replicas.",
    "CURRENT": NOW,
    "DESIRED": DECIDED,
    "HELD": "Cards of Servers for which no decision is possible.",
    "IN": "Mean input tokens of a request.",
    "ITL": "Inter-token latency: mean time between two output tokens of a request.",
    "ITL/SLO": "Inter-token latency (mean time between two output tokens), of what the target"
    " allows.",
    "ITL/SLO LEFT": LEFT,
    "KV": "How full the KV cache is, which keeps the tokens of running requests.",
    "LIMITED BY": "Why there are not more cards: the Capacity, or what else uses them.",
    "LOAD": "Requests that arrive.",
    "MAX RATE": "Most requests that one replica serves within all targets.",
    "MISS A TARGET": "Servers with a latency above its target now, among those with measured"
    " latencies.",
    "MISSES": "Targets that the measured latencies miss now.",
    "NOW/SLO": "What a target limits now, of what it allows: the mean, or the percentile that the"
    " target names, which is the 95th for WAIT; estimated where percentiles are not measured.",
    "ONE MORE CARD": ONE_MORE,
    "OTHERS": "Cards that pods use which belong to no Server.",
    "OURS": "Cards that Servers use.",
    "OUT": "Mean output tokens of a request.",
    "SCORE": "What plans make as small as possible: the change of cost, and a penalty for a move.",
    "CHOSEN": "Whether the plan uses the option, and how many replicas where it needs more.",
    "WHY NOT": "Why the plan does not use the option.",
    "PHASE": "Where the Plan is: Proposed waits for an answer, Approved and Acting are on the way,"
    " Done runs. Written: the operator scales none of its Servers. Superseded: a newer one took its"
    " place; Expired: its approval ended before; Rejected: somebody said no; Failed: it could not"
    " be carried out.",
    "PLANNED": "What the plan decides.",
    "PRICE": ONE_MORE,
    "PRIORITY": "1 is served first.",
    "QUALITY": "Fresh: measured now. Partial: some replicas are missing. Idle: no requests. Stale,"
    " Missing, Refused: no new numbers, see the message. A dash: entered by hand.",
    "READY": "Allocated: the Server gets what it needs; otherwise what is wrong.",
    "REASON": "Allocated: the Server gets what it needs; otherwise what is short.",
    "RUNNING": "Requests that are being served.",
    "TOTAL": "Cards that nodes have.",
    "TTFT": "Mean time to first token: from the arrival of a request to its first output token.",
    "TTFT/SLO": "Time to first token, of what the target allows: the mean, or the percentile that"
    " the target names.",
    "TTFT/SLO LEFT": LEFT,
    "WAIT": "Mean time that a request waits before a replica works on it.",
    "WAIT/SLO": "Waiting time of a request, of what the target allows: the 95th percentile, or the"
    " one that the target names; estimated from the mean where it is not measured.",
    "WAIT/SLO LEFT": LEFT,
    "WAITING": "Requests that wait.",
    "WHY": "Allocated: the Server gets what it needs; otherwise what is short, and why.",
}
"""Meanings by the name of the column."""

OF_TABLES: Mapping[str, Mapping[str, str]] = {
    "ACCELERATOR": {
        "ALONE STEP": "Time of a step that makes a token of one request, alone in its batch.",
        "FULL STEP": "Time of a step that makes a token of each request of a full batch, with"
        " atTokens tokens each.",
        "CALIBRATED STEP": "The same as alone, as it follows from measurements.",
        "CALIBRATION": "Calibrated: measured parameters are good to use; configured: there are"
        " none; otherwise why not.",
        "WINDOWS": "Spans of time of single replicas that the calibration is made of.",
        "BATCHES": "Smallest and largest batch among them [requests].",
        "RESIDUAL": "Median distance of the windows from the calibrated line.",
        "DRIFT": "By how much latencies changed lately, where that was noticed.",
    },
    "CARDS": {
        "IN USE/THERE": "Cards that replicas use now, of those that there are.",
        "PLANNED/THERE": "Cards that the last plan uses, of those that there are.",
    },
    "CONDITION": {"REASON": REASON},
    "MODEL": {
        "CALIBRATE": "Use: plans take measured parameters. Report: they are only shown. Off: there"
        " are none.",
        "CALIBRATED": "Whether the measured parameters are good to use, or why not.",
    },
    "NOT USED BECAUSE": {
        "WINDOWS": "Spans of time of single replicas that the calibration left out.",
    },
    "OPTIMIZER": {"REASON": REASON},
    "QUANTITY": {
        "PREDICTED": "What the last decision counts on, for the load that it was made for."
    },
    "SERVER": {
        "MEASURED": "Quality of the measured numbers; a dash: entered by hand.",
        "REPLICAS": "Replicas that report, of those that are ready.",
    },
}
"""Meanings in tables that begin with a column, where they are not those of `MEANINGS`."""

NOTES_SHOWN = 5
"""Lines of text in a row that are shown at once."""

REMEDY = re.compile(r"- (?P<words>.+): --set (?P<change>\S+)")
"""What commands print of a change that would serve a Server, with the option that tries it."""

LINKS = {"SERVER": "/servers/", "PLAN": "/plans/", "MODEL": "/models/"}
"""What the names in a column of a table lead to."""

NAVIGATION = (
    ("/", "Fleet"),
    ("/next", "Next plan"),
    ("/plans", "Plans"),
    ("/capacity", "Capacity"),
    ("/models", "Models"),
    ("/history", "History"),
    ("/data", "Data"),
)

NAMESPACES = "/namespaces"
"""The page to choose a namespace, where people of several come."""

UNITS = {
    **dict.fromkeys(("LOAD", "RATE"), "requests/min"),
    **dict.fromkeys(("ITL", "TTFT", "WAIT", "ITL/SLO", "TTFT/SLO", "WAIT/SLO", "STEP"), "ms"),
    **dict.fromkeys(("IN", "OUT"), "tokens"),
}
"""Units of columns of numbers, by the last word of their names."""

COSTS = ("COST", "CHANGE", "SCORE", "PRICE", "CARD")
"""Columns of costs, by the last word of their names."""

LONG = 28
"""Cells with more characters may have several lines, names without a space, too."""

ROWS = 200
"""Rows of the main table that are shown at once."""

ROWS_BESIDE = 30
"""Most rows of any other table that are shown before somebody wants to see them."""

QUANTITY = "QUANTITY"
"""The column with names of quantities, which have units of their own."""

LOAD = ">LOAD"
"""The column with the loads over time."""

SPARK_WIDTH, SPARK_HEIGHT = 100.0, 20.0
"""Size of a load over time, in units of its own."""

MOST_SHARE = 9.99
"""Largest share that is told; it stands for all that are larger."""

TrendOf = Callable[[str], Trend | None]
"""The load over time of what a row is about, by the name in its first column."""

OF_MOST = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)")
"""A value and the most that it may be, in a column such as ITL/SLO."""


def meanings_of(table: TextTable) -> Sequence[tuple[str, str]]:
    """Return the columns of a table that need words, with these, in their order."""
    names = [name_of(heading).removesuffix(MILLISECONDS) for heading in table.headings]
    meanings = {**MEANINGS, **OF_TABLES.get(names[0], {})}
    return [(name, meanings[name]) for name in names if name in meanings]


@dataclass(frozen=True, slots=True)
class Note:
    """A line of text; of a remedy, the address of the page that shows the plan with it."""

    text: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class Notes:
    """Lines of text, and others that are shown when somebody wants to see them."""

    shown: Sequence[Note]
    more: Sequence[Note]


def notes_of(lines: Sequence[str]) -> Notes | None:
    """Return the lines that are not empty; None if there are none."""
    notes = [_note(line) for line in lines if line]
    return Notes(notes[:NOTES_SHOWN], notes[NOTES_SHOWN:]) if notes else None


def _note(line: str) -> Note:
    remedy = REMEDY.fullmatch(line)
    if remedy is None:
        return Note(line)
    return Note(remedy["words"], "/next?" + urlencode({"set": remedy["change"]}))


@dataclass(frozen=True, slots=True)
class PageQuery:
    """What the address of a page asks for, in pairs of names and values."""

    asked: Sequence[tuple[str, str]] = ()

    def get(self, name: str) -> str:
        """The value of a name; "" if nothing is asked."""
        return dict(self.asked).get(name, "")

    def without(self, *names: str) -> Sequence[tuple[str, str]]:
        """The pairs of other names, which a form keeps."""
        return [(name, value) for name, value in self.asked if name not in names]

    def address(self, **changes: str) -> str:
        """The query with other values; "" takes one away."""
        changed = [(name, value) for name, value in changes.items() if value]
        return "?" + urlencode([*self.without(*changes), *changed])

    @property
    def order(self) -> RowOrder:
        """The rows of the main table."""
        return RowOrder(self.get("q"), self.get("sort"), falling=bool(self.get("order")))

    @property
    def first_row(self) -> int:
        """Number of the first row of the main table that is shown, from 0."""
        text = self.get("from")
        return int(text) if re.fullmatch(r"\d{1,9}", text) else 0

    @property
    def all_rows(self) -> str:
        """The query that shows the rows that the words left out, too."""
        return self.address(q="", **{"from": ""})

    def order_of(self, column: str) -> str:
        """How the rows are sorted by a column, in the words of HTML; "" if they are not."""
        if column != self.get("sort"):
            return ""
        return "descending" if self.order.falling else "ascending"

    def sorted_by(self, column: str) -> str:
        """The query that sorts by a column, or turns the order round."""
        again = column == self.get("sort") and not self.get("order")
        return self.address(sort=column, order="falling" if again else "", **{"from": ""})


class Pages:
    """Renders pages of a namespace."""

    def __init__(
        self,
        namespace: str,
        form_token: Callable[[str], str],
        money: Money = CENTS,
        namespaces: str = "",
    ) -> None:
        self._namespace = namespace
        self._units = {**UNITS, **dict.fromkeys(COSTS, money.rate)}
        self._environment = environment(__package__, "inferno_operator.pages")
        self._environment.globals["form_token"] = form_token
        self._environment.globals["namespaces"] = namespaces

    def html(self, page: ConsolePage, path: str, query: PageQuery, version: int = 0) -> str:
        """Return a page; `version` is that of the news."""
        parts, unfiltered = order_rows(page.parts, query.order), find_main_table(page.parts)
        main = find_main_table(parts)
        return self._environment.get_template("page.html").render(
            page=page,
            path=path,
            section=_section(path),
            query=query,
            version=version,
            namespace=self._namespace,
            navigation=NAVIGATION,
            count=len(unfiltered.rows) if unfiltered else 0,
            before=list(_shown(page.before, None, query, self._units, page.trend)),
            parts=list(_shown(parts, main, query, self._units, page.trend)),
        )

    def problem(
        self,
        title: str,
        text: str,
        advice: str = "",
        changes: Sequence[str] | None = None,
        path: str = "",
    ) -> str:
        """Return a page that says what went wrong with that of a path, and what a person can do.

        With `changes` that do not work there is the form to correct them.
        """
        page = ConsolePage(title, (advice,), dict, changes=changes, trouble=text)
        return self.html(page, path, PageQuery())


def namespaces_page(namespace: str, refusal: str = "") -> str:
    """Return the page to choose a namespace; a refusal says why one cannot be chosen."""
    template = environment(__package__, "inferno_operator.pages").get_template("namespaces.html")
    return template.render(namespace=namespace, refusal=refusal)


def _section(path: str) -> str:
    """The page of the navigation that leads to the one of an object: /plans for /plans/fleet-1."""
    folder = path.rpartition("/")[0]
    return "/" if folder == "/servers" else folder


@dataclass(frozen=True, slots=True)
class _Bar:
    """How much of the most that it may be a value is."""

    share: float
    words: str

    @property
    def met(self) -> bool:
        return self.share <= 1.0


@dataclass(frozen=True, slots=True)
class _Spark:
    """A line of `SPARK_WIDTH` by `SPARK_HEIGHT`, as the points of SVG."""

    points: str
    words: str


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    number: bool
    style: str = ""
    link: str = ""
    bar: _Bar | None = None
    unit: str = ""
    spark: _Spark | None = None
    order: str = ""

    @property
    def kind(self) -> str:
        """Classes in the style sheet."""
        long = not self.number and len(self.text) > LONG
        words = ("words" if " " in self.text else "name") if long else ""
        return " ".join(filter(None, ("number" if self.number else "", words, self.style)))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Which rows are shown of a table that has more, and where the others are."""

    first: int
    last: int
    count: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Table:
    """A table with the links that sort it, and what its columns mean."""

    headings: Sequence[_Cell]
    rows: Sequence[Sequence[_Cell]]
    meanings: Sequence[tuple[str, str]]
    excerpt: _Rows | None = None

    @property
    def count(self) -> int:
        """Rows, also those that other pages of it have."""
        return self.excerpt.count if self.excerpt else len(self.rows)

    @property
    def is_folded(self) -> bool:
        """Whether it is a long one beside the main table, which would hide what comes after it."""
        return not self.headings[0].link and len(self.rows) > ROWS_BESIDE


def _shown(
    parts: Sequence[Part],
    main: TextTable | None,
    query: PageQuery,
    units: Mapping[str, str],
    trend: TrendOf,
) -> Iterator[_Table | Notes]:
    """Yield tables, and the lines between them."""
    lines = list[str]()
    for part in parts:
        if isinstance(part, str):
            lines.append(part)
            continue
        if notes := notes_of(lines):
            yield notes
        lines = []
        if part is main:
            yield _table(part, query, units, trend)
        else:
            yield _table(part, None, units, no_trend)
    if notes := notes_of(lines):
        yield notes


def _table(
    table: TextTable, query: PageQuery | None, units: Mapping[str, str], trend: TrendOf
) -> _Table:
    excerpt = _excerpt(len(table.rows), query) if query else None
    rows = table.rows[excerpt.first : excerpt.last] if excerpt else table.rows
    headings = tuple(_headings(table, query, units))
    cells = [tuple(_cells(table, row, trend)) for row in rows]
    return _Table(headings, cells, meanings_of(table), excerpt)


def _excerpt(count: int, query: PageQuery) -> _Rows | None:
    """The rows of a long table that a page has; None if it has all."""
    if count <= ROWS:
        return None
    first = min(query.first_row, count - 1)
    last = min(first + ROWS, count)
    before = query.address(**{"from": str(max(first - ROWS, 0))}) if first else ""
    after = query.address(**{"from": str(last)}) if last < count else ""
    return _Rows(first, last, count, before, after)


def _headings(
    table: TextTable, query: PageQuery | None, units: Mapping[str, str]
) -> Iterator[_Cell]:
    for heading in table.headings:
        name = name_of(heading)
        link = query.sorted_by(name) if query else ""
        is_number = heading.startswith(">")
        title = name.removesuffix(MILLISECONDS)
        of_last_word = units.get(name.split()[-1], "") if is_number else ""
        unit = of_last_word if title == name else "ms"
        order = query.order_of(name) if query else ""
        yield _Cell(title, is_number, link=link, unit=unit, order=order)


def _cells(table: TextTable, row: Sequence[str], trend: TrendOf) -> Iterator[_Cell]:
    for heading, text in zip(table.headings, row, strict=True):
        base = LINKS.get(heading) if text else None
        link = base + quote(text, safe="") if base else ""
        spark = _spark(trend(row[0])) if heading == LOAD else None
        yield _Cell(
            text,
            heading.startswith(">"),
            style_of(text),
            link,
            _bar(heading, text),
            UNITS.get(text, "") if heading == QUANTITY else "",
            spark,
        )


def _spark(trend: Trend | None) -> _Spark | None:
    """Points from left to right in the time between the first one and the last, from 0 upwards."""
    if trend is None or len(trend.points) < 2:  # noqa: PLR2004 - a line has two points
        return None
    start, end = trend.points[0][0], trend.points[-1][0]
    most = max(value for _, value in trend.points) or 1.0
    across, up = SPARK_WIDTH / (end - start or 1.0), (SPARK_HEIGHT - 2) / most
    points = (
        f"{across * (time - start):.1f},{SPARK_HEIGHT - 1 - up * value:.1f}"
        for time, value in trend.points
    )
    return _Spark(" ".join(points), trend.words)


def _bar(heading: str, text: str) -> _Bar | None:
    numbers = OF_MOST.fullmatch(text) if "/" in heading else None
    if numbers is None or not float(numbers[2]):
        return None
    share = float(numbers[1]) / float(numbers[2])
    return _Bar(share, f"{100 * min(share, MOST_SHARE):.0f} % of {numbers[2]}")


def static_file(name: str) -> bytes:
    """Return a style sheet, the script or the icon."""
    package = "inferno_operator.pages" if name == "style.css" else __package__
    folder = "templates" if name == "style.css" else "static"
    return (files(package) / folder / name).read_bytes()
