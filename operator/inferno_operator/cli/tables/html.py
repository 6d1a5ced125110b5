"""Tables as values that templates show: cells with their units, bars, links and lines; pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import yaml

from inferno_operator.cli.options import Money
from inferno_operator.cli.tables.table import TextTable, name_of, style_of

# What columns mean, by the first column of their table (ANY: of all tables) and their name.
MEANINGS: Mapping[str, Mapping[str, str]] = yaml.safe_load(
    (files("inferno_operator.pages") / "templates/meanings.yaml").read_text(encoding="utf-8")
)

# What names end with that have their unit in them, as terminals show no second line.
MILLISECONDS = " MS"

# A value and the most that it may be, in a column such as ITL/SLO, with the percentile of both.
OF_MOST = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)(?: p[\d.]+)?")

# Units of columns of numbers, by the last word of their names.
UNITS = {
    **dict.fromkeys(("LOAD", "RATE", "SERVED", "MOST"), "requests/min"),
    **dict.fromkeys(("ITL", "TTFT", "WAIT", "ITL/SLO", "TTFT/SLO", "WAIT/SLO", "STEP"), "ms"),
    **dict.fromkeys(("IN", "OUT"), "tokens"),
    "MISSED": "server minutes",
}

# Columns of costs, by the last word of their names.
COSTS = ("COST", "CHANGE", "SCORE", "PRICE", "CARD", "BOUND")

LONG = 28  # cells with more characters may have several lines, names without a space, too
ROWS_BESIDE = 30  # most rows of any other table that are shown before somebody wants to see them

AS_NOW = "as now"  # what is planned where nothing changes
TRY = "try it"  # what a cell says that leads somewhere and has nothing to say

SPARK_WIDTH, SPARK_HEIGHT = 100.0, 20.0  # size of a load over time, in units of its own
LARGEST_SHARE = 9.99  # largest share that is written; it stands for all that are larger

NOTHING = frozenset(("", "-"))  # what cells have that say nothing
TRENDS = (">LOAD", ">PLANNED/THERE")  # columns with values over time


@dataclass(frozen=True, slots=True)
class Trend:
    """Values over time, from times [s] that grow; `words` say what they show."""

    points: Sequence[tuple[float, float]]
    words: str


# Values over time of what a row is about, by the name in its first column.
TrendOf = Callable[[str], Trend | None]


def no_trend(_: str) -> Trend | None:
    """Nothing is known over time."""
    return None


@dataclass(frozen=True, slots=True)
class Bar:
    """How much of the most that it may be a value is, and whether that is as it should be."""

    share: float
    words: str
    met: bool


@dataclass(frozen=True, slots=True)
class Spark:
    """A line of `SPARK_WIDTH` by `SPARK_HEIGHT`, as the points of SVG."""

    points: str
    words: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell, or a heading, whose `key` names its column."""

    text: str
    number: bool
    style: str = ""
    link: str = ""
    bar: Bar | None = None
    unit: str = ""
    spark: Spark | None = None
    key: str = ""
    order: str = ""

    @property
    def kind(self) -> str:
        """Return the classes in the style sheet."""
        is_long = not self.number and len(self.text) > LONG
        words = ("words" if " " in self.text else "name") if is_long else ""
        return " ".join(filter(None, ("number" if self.number else "", words, self.style)))


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Which rows are shown of a table that has more, and where the others are."""

    first: int
    last: int
    count: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table with the links that sort it, and what its columns mean."""

    headings: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    meanings: Sequence[tuple[str, str]]
    excerpt: Excerpt | None = None

    @property
    def count(self) -> int:
        """Count the rows, also those that other pages of it have."""
        return self.excerpt.count if self.excerpt else len(self.rows)

    @property
    def is_folded(self) -> bool:
        """Whether it is a long one beside the main table, which would hide what comes after it."""
        return not self.headings[0].link and len(self.rows) > ROWS_BESIDE


def list_meanings(table: TextTable) -> Sequence[tuple[str, str]]:
    """Return the columns of a table that need words, with these, in their order."""
    names = [name_of(heading).removesuffix(MILLISECONDS) for heading in table.headings]
    meanings = {**MEANINGS["ANY"], **MEANINGS.get(names[0], {})}
    return [(name, meanings[name]) for name in names if name in meanings]


# What a cell leads to, by its heading, its text and the first cell of its row; "" for most.
LinkOf = Callable[[str, str, str], str]


def read_bar(heading: str, text: str) -> Bar | None:
    """Return the bar of a value that is beside the most that it may be, if it is."""
    numbers = OF_MOST.fullmatch(text) if "/" in heading else None
    if not numbers or not float(numbers[2]):
        return None
    share = float(numbers[1]) / float(numbers[2])
    words = f"{100 * min(share, LARGEST_SHARE):.0f} % of {numbers[2]}"
    return Bar(share, words, met=share <= 1)


def build_table(
    table: TextTable,
    money: Money,
    *,
    trend: TrendOf = no_trend,
    link: LinkOf = lambda *_: "",
    bar: Callable[[str, str], Bar | None] = read_bar,
) -> Table:
    """Return a table for templates; `trend` has values over time by the first cell of a row."""
    headings = []
    for heading in table.headings:
        name, is_number = name_of(heading), heading.startswith(">")
        title, word = name.removesuffix(MILLISECONDS), name.split()[-1]
        unit = money.rate if word in COSTS else UNITS.get(word, "")
        if title != name:
            unit = "ms"
        headings.append(Cell(title, is_number, unit=unit if is_number else "", key=name))

    def build_cell(heading: str, text: str, row: str, found: Trend | None) -> Cell:
        address = link(heading, text, row)
        spark = _draw_spark(found) if heading in TRENDS and found else None
        return Cell(
            TRY if address and text in NOTHING else text,
            heading.startswith(">"),
            "quiet" if text == AS_NOW else style_of(text),
            address,
            None if spark else bar(heading, text),
            UNITS.get(text, "") if heading == "QUANTITY" else "",
            spark,
        )

    rows = []
    for row in table.rows:
        found, pairs = trend(row[0]), zip(table.headings, row, strict=True)
        rows.append([build_cell(heading, text, row[0], found) for heading, text in pairs])
    return Table(headings, rows, list_meanings(table))


def join_cards(table: TextTable) -> TextTable:
    """Return a table of planned cards with what is used of what is there in one column."""
    if list(table.headings[:4]) != ["CARDS", ">USED", ">HELD", ">AVAILABLE"]:
        return table
    worth = [">ONE MORE CARD" for heading in table.headings if heading == ">PRICE"]
    rows = [(name, f"{used}/{there}", held, *rest) for name, used, held, there, *rest in table.rows]
    return TextTable(("CARDS", ">PLANNED/THERE", ">HELD", *worth), rows)


def drop_empty_columns(table: TextTable, *kept: str) -> TextTable:
    """Return a table without the columns that say nothing of any row, but for those to be kept."""

    def is_empty(heading: str, cells: Sequence[str]) -> bool:
        nothing = NOTHING | {"0"} if heading == ">HELD" else NOTHING
        return heading not in kept and bool(cells) and nothing.issuperset(cells)

    columns = zip(table.headings[1:], *(row[1:] for row in table.rows), strict=True)
    return table.without(*(name_of(h) for h, *cells in columns if is_empty(h, cells)))


def _draw_spark(trend: Trend) -> Spark | None:
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
    return Spark(" ".join(points), trend.words)
