"""Pages as HTML: addresses sort, filter and page tables, rows link to what they are about."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Self
from urllib.parse import quote, urlencode

import yaml

from inferno_operator.cli.kubectl.console.page import ConsolePage, Note, Trend, no_trend
from inferno_operator.cli.options import CENTS, Money
from inferno_operator.cli.tables.table import (
    Part,
    RowOrder,
    TextTable,
    find_main_table,
    name_of,
    order_rows,
    style_of,
)
from inferno_operator.pages.html import build_environment

# The package with the templates and the style sheet that all pages share.
PAGES = "inferno_operator.pages"

# What columns mean, by the first column of their table (ANY: of all tables) and their name.
MEANINGS: Mapping[str, Mapping[str, str]] = yaml.safe_load(
    (files(__package__) / "templates/meanings.yaml").read_text(encoding="utf-8")
)

# What names end with that have their unit in them, as terminals show no second line.
MILLISECONDS = " MS"

# What commands print of a change that would serve a Server, with the option that tries it.
REMEDY = re.compile(r"- (?P<words>.+): --set (?P<change>\S+)")

# A value and the most that it may be, in a column such as ITL/SLO.
OF_MOST = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)")

# What the names in a column of a table lead to.
LINKS = {"SERVER": "/servers/", "PLAN": "/plans/", "MODEL": "/models/"}

NAVIGATION = (
    ("/", "Fleet"),
    ("/next", "Next plan"),
    ("/plans", "Plans"),
    ("/capacity", "Capacity"),
    ("/models", "Models"),
    ("/history", "History"),
    ("/data", "Data"),
)

NAMESPACES = "/namespaces"  # the page to choose a namespace, where people of several come

# Units of columns of numbers, by the last word of their names.
UNITS = {
    **dict.fromkeys(("LOAD", "RATE"), "requests/min"),
    **dict.fromkeys(("ITL", "TTFT", "WAIT", "ITL/SLO", "TTFT/SLO", "WAIT/SLO", "STEP"), "ms"),
    **dict.fromkeys(("IN", "OUT"), "tokens"),
}

# Columns of costs, by the last word of their names.
COSTS = ("COST", "CHANGE", "SCORE", "PRICE", "CARD")

NOTES_SHOWN = 5  # lines of text in a row that are shown at once
LONG = 28  # cells with more characters may have several lines, names without a space, too
ROWS = 200  # rows of the main table that are shown at once
ROWS_BESIDE = 30  # most rows of any other table that are shown before somebody wants to see them

SPARK_WIDTH, SPARK_HEIGHT = 100.0, 20.0  # size of a load over time, in units of its own
LARGEST_SHARE = 9.99  # largest share that is written; it stands for all that are larger

NOTHING = frozenset(("", "-"))  # what cells have that say nothing
TRENDS = (">LOAD", ">PLANNED/THERE")  # columns with values over time
ONE_MORE, TRY = ">ONE MORE CARD", "try it"  # a column that leads to the plan with it

# Values over time of what a row is about, by the name in its first column.
TrendOf = Callable[[str], Trend | None]


def list_meanings(table: TextTable) -> Sequence[tuple[str, str]]:
    """Return the columns of a table that need words, with these, in their order."""
    names = [name_of(heading).removesuffix(MILLISECONDS) for heading in table.headings]
    meanings = {**MEANINGS["ANY"], **MEANINGS.get(names[0], {})}
    return [(name, meanings[name]) for name in names if name in meanings]


@dataclass(frozen=True, slots=True)
class Notes:
    """Lines of text, and others that are shown when somebody wants to see them."""

    shown: Sequence[Note]
    more: Sequence[Note]

    @classmethod
    def of(cls, notes: Iterable[Note]) -> Self:
        """Return notes, of which `NOTES_SHOWN` are shown at once."""
        found = [*notes]
        return cls(found[:NOTES_SHOWN], found[NOTES_SHOWN:])


@dataclass(frozen=True, slots=True)
class PageQuery:
    """What the address of a page asks for, in pairs of names and values."""

    asked: Sequence[tuple[str, str]] = ()

    def get(self, name: str) -> str:
        """Return the value of a name; "" if nothing is asked."""
        return dict(self.asked).get(name, "")

    def without(self, *names: str) -> Sequence[tuple[str, str]]:
        """Return the pairs of other names, which a form keeps."""
        return [(name, value) for name, value in self.asked if name not in names]

    def address(self, **changes: str) -> str:
        """Return the query with other values; "" takes one away."""
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
        """Return how the rows are sorted by a column, in the words of HTML; "" if they are not."""
        if column != self.get("sort"):
            return ""
        return "descending" if self.order.falling else "ascending"

    def sorted_by(self, column: str) -> str:
        """Return the query that sorts by a column, or turns the order round."""
        again = column == self.get("sort") and not self.get("order")
        return self.address(sort=column, order="falling" if again else "", **{"from": ""})


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
    key: str = ""
    order: str = ""

    @property
    def kind(self) -> str:
        """Classes in the style sheet."""
        is_long = not self.number and len(self.text) > LONG
        words = ("words" if " " in self.text else "name") if is_long else ""
        return " ".join(filter(None, ("number" if self.number else "", words, self.style)))


@dataclass(frozen=True, slots=True)
class _Excerpt:
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
    excerpt: _Excerpt | None = None

    @property
    def count(self) -> int:
        """Rows, also those that other pages of it have."""
        return self.excerpt.count if self.excerpt else len(self.rows)

    @property
    def is_folded(self) -> bool:
        """Whether it is a long one beside the main table, which would hide what comes after it."""
        return not self.headings[0].link and len(self.rows) > ROWS_BESIDE


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
        self._environment = build_environment(__package__, PAGES)
        self._environment.globals["form_token"] = form_token
        self._environment.globals["namespaces"] = namespaces

    def render(self, page: ConsolePage, path: str, query: PageQuery, version: int = 0) -> str:
        """Return a page; `version` is that of the news."""
        parts, unfiltered = order_rows(page.parts, query.order), find_main_table(page.parts)
        folder = path.rpartition("/")[0]  # of an object, the page of the navigation leads to it
        return self._environment.get_template("page.html").render(
            page=page,
            path=path,
            section="/" if folder == "/servers" else folder,
            query=query,
            version=version,
            namespace=self._namespace,
            navigation=NAVIGATION,
            count=len(unfiltered.rows) if unfiltered else 0,
            figures=page.figures if unfiltered else (),
            troubles=Notes.of(map(Note, page.troubles)),
            before=list(self._build_parts(page.before, None, query, page.trend)),
            parts=list(self._build_parts(parts, find_main_table(parts), query, page.trend)),
        )

    def render_problem(
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
        page = ConsolePage(title, (advice,), dict, changes=changes, troubles=(text,))
        return self.render(page, path, PageQuery())

    def _build_parts(
        self, parts: Sequence[Part], main: TextTable | None, query: PageQuery, trend: TrendOf
    ) -> Iterator[_Table | Notes]:
        notes = list[Note]()
        for part in (*parts, None):
            if isinstance(part, str):
                remedy = REMEDY.fullmatch(part)
                if remedy:
                    address = "/next?" + urlencode({"set": remedy["change"]})
                    notes.append(Note(remedy["words"], address, "see the plan with it"))
                elif part:
                    notes.append(Note(part))
                continue
            if notes:
                yield Notes.of(notes)
            notes = []
            if part is not None and part is main:
                yield self._build_table(part, query, trend)
            elif part is not None:
                yield self._build_table(part, None, no_trend)

    def _build_table(self, table: TextTable, query: PageQuery | None, trend: TrendOf) -> _Table:
        table = table.without(*_list_empty_columns(table))
        headings, excerpt = [], None
        for heading in table.headings:
            name, is_number = name_of(heading), heading.startswith(">")
            title = name.removesuffix(MILLISECONDS)
            unit = self._units.get(name.split()[-1], "") if is_number else ""
            headings.append(
                _Cell(
                    title,
                    is_number,
                    link=query.sorted_by(name) if query else "",
                    unit=unit if title == name else "ms",
                    key=name,
                    order=query.order_of(name) if query else "",
                )
            )
        rows, count = table.rows, len(table.rows)
        if query and count > ROWS:
            first = min(query.first_row, count - 1)
            last = min(first + ROWS, count)
            before = query.address(**{"from": str(max(first - ROWS, 0))}) if first else ""
            after = query.address(**{"from": str(last)}) if last < count else ""
            excerpt, rows = _Excerpt(first, last, count, before, after), rows[first:last]
        cells = []
        for row in rows:
            found = trend(row[0])
            pairs = zip(table.headings, row, strict=True)
            cells.append([_build_cell(heading, text, row[0], found) for heading, text in pairs])
        return _Table(headings, cells, list_meanings(table), excerpt)


def _list_empty_columns(table: TextTable) -> Iterator[str]:
    """Yield the columns that say nothing of any row, which a page has no room for."""
    for heading, *cells in zip(table.headings[1:], *(row[1:] for row in table.rows), strict=True):
        nothing = NOTHING | {"0"} if heading == ">HELD" else NOTHING
        if cells and heading != ONE_MORE and nothing.issuperset(cells):
            yield name_of(heading)


def _build_cell(heading: str, text: str, row: str, trend: Trend | None) -> _Cell:
    """Build a cell of a row, which the text of its first cell names."""
    base = LINKS.get(heading) if text else None
    link = base + quote(text, safe="") if base else ""
    if heading == ONE_MORE:
        link = "/next?" + urlencode({"set": f"capacity.{row}+=1"})
        text = TRY if text in NOTHING else text
    spark = _draw_spark(trend) if heading in TRENDS and trend else None
    bar, numbers = None, OF_MOST.fullmatch(text) if "/" in heading and not spark else None
    if numbers and float(numbers[2]):
        share = float(numbers[1]) / float(numbers[2])
        bar = _Bar(share, f"{100 * min(share, LARGEST_SHARE):.0f} % of {numbers[2]}")
    return _Cell(
        text,
        heading.startswith(">"),
        style_of(text),
        link,
        bar,
        UNITS.get(text, "") if heading == "QUANTITY" else "",
        spark,
    )


def _draw_spark(trend: Trend) -> _Spark | None:
    """Place points from left to right between the first time and the last, from 0 upwards."""
    if len(trend.points) < 2:  # noqa: PLR2004 - a line has two points
        return None
    start, end = trend.points[0][0], trend.points[-1][0]
    most = max(value for _, value in trend.points) or 1.0
    across, up = SPARK_WIDTH / (end - start or 1.0), (SPARK_HEIGHT - 2) / most
    points = (
        f"{across * (time - start):.1f},{SPARK_HEIGHT - 1 - up * value:.1f}"
        for time, value in trend.points
    )
    return _Spark(" ".join(points), trend.words)


def render_namespaces(namespace: str, refusal: str = "") -> str:
    """Return the page to choose a namespace; a refusal says why one cannot be chosen."""
    template = build_environment(__package__, PAGES).get_template("namespaces.html")
    return template.render(namespace=namespace, refusal=refusal)


def read_static_file(name: str) -> bytes:
    """Return a style sheet, the script or the icon."""
    package = PAGES if name == "style.css" else __package__
    folder = "templates" if name == "style.css" else "static"
    return (files(package) / folder / name).read_bytes()
