"""Tables of text, their rows and colours, and the cells that several of them share.

A result is printed as parts: tables, and lines between them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from csv import writer
from dataclasses import dataclass, replace
from datetime import datetime
from io import StringIO
from typing import Self, TypeVar

from rich.text import Text

from inferno_operator.cli.options import Money
from inferno_operator.runtime.texts import join_names
from inferno_optimizer.errors import InputError
from inferno_optimizer.solution import Reason
from inferno_optimizer.suggestions import alternatives
from inferno_optimizer.units import HOURS_PER_MONTH

NAMES_SHOWN = 5  # largest number of servers that a note names

# Units of columns by their names, where tables are read without a page that says them.
UNITS = dict.fromkeys(("LOAD", "MAX RATE", "SERVED", "AT MOST"), "REQ/MIN")

GAP = "  "  # what stands between columns
UNKNOWN = "unknown"  # shown where nothing is measured

# The state of a Server, instead of Allocated, if a latency misses its target now.
MISSES = "MissesTarget"

# Colours of cells.
STYLES: Mapping[str, str] = {
    **{str(reason): "red" for reason in Reason},
    Reason.ALLOCATED: "green",
    Reason.BEST_EFFORT: "yellow",
    MISSES: "red",
    **dict.fromkeys(("Partial", "Stale", "Missing", "Refused"), "yellow"),
}


Item = TypeVar("Item")
Columns = Mapping[str, Callable[[Item], str]]  # what is said of an item, by heading


@dataclass(frozen=True, slots=True)
class ServerPart:
    """Replicas of a server on one accelerator; `cost` is that of all of them [cents/hour]."""

    service_class: str
    accelerator: str
    type: str
    replicas: int
    cards: int
    cost: float


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What each server of a table gets; in CSV each thing of it has a column.

    `find` returns the parts of a server by its name; it is called for CSV only. `servers` counts
    all servers, of which a table may have a part.
    """

    find: Callable[[str], Sequence[ServerPart]]
    money: Money
    servers: int

    def spread(self, table: "TextTable") -> Iterator[Sequence[str]]:
        """Yield names, rows with a part each, and the totals of these rows.

        Further parts of a server repeat its words and none of its numbers, so that sums are right.
        """
        names = [with_unit(name_of(heading)) for heading in table.headings]
        costs = (f"COST {self.money.unit.upper()}/{time}" for time in ("HOUR", "MONTH"))
        yield [*names, "ACCELERATOR", "TYPE", "REPLICAS", "CARDS", *costs]
        shown = list[ServerPart]()
        is_number = [heading.startswith(">") for heading in table.headings]
        for row in table.rows:
            cells: Sequence[str] = row
            own = self.find(row[0])
            shown += own
            for part in own:
                yield [*cells, *self._cells(part.accelerator, part.type, [part])]
                cells = ["" if n else cell for n, cell in zip(is_number, row, strict=True)]
            if not own:
                yield [*row, *[""] * len(self._cells("", "", ()))]
        blank = [""] * (len(names) - 1)
        total = "TOTAL" if len(table.rows) == self.servers else "TOTAL of these rows"
        for name in sorted({part.service_class for part in shown}):
            of_class = [part for part in shown if part.service_class == name]
            yield [f"{total} class {name}", *blank, *self._cells("", "", of_class)]
        for name in sorted({part.type for part in shown}):
            of_type = [part for part in shown if part.type == name]
            yield [f"{total} type {name}", *blank, *self._cells("", name, of_type)]
        if shown:
            yield [total, *blank, *self._cells("", "", shown)]

    def _cells(
        self, accelerator: str, card_type: str, parts: Sequence[ServerPart]
    ) -> Sequence[str]:
        cost = sum(part.cost for part in parts)
        return (
            accelerator,
            card_type,
            str(sum(part.replicas for part in parts)),
            str(sum(part.cards for part in parts)),
            self.money.amount(cost),
            self.money.amount(cost * HOURS_PER_MONTH),
        )


@dataclass(frozen=True, slots=True)
class TextTable:
    """Headings and rows; a heading that begins with `>` is for a column of numbers.

    A heading such as `>DESIRED:COST` is of a column that belongs to the one before the colon: COST
    is shown where that one is, DESIRED COST elsewhere. `optional` are the columns that a narrow
    terminal does not show, the first to go first, each as `name_of` returns it. `server_parts`
    are those of the servers in the first column, for CSV.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    optional: Sequence[str] = ()
    server_parts: ServerParts | None = None

    @classmethod
    def of(
        cls, items: Iterable[Item], columns: Columns[Item], optional: Sequence[str] = ()
    ) -> Self:
        """Return a table with a row for each item: what each column says of it."""
        rows = [tuple(format_cell(item) for format_cell in columns.values()) for item in items]
        return cls(tuple(columns), rows, optional)

    def __str__(self) -> str:
        """Return columns of plain text; each row is one line of any length, as in kubectl."""
        return "\n".join(GAP.join(cells).rstrip() for cells in self.lines())

    def lines(self) -> list[list[str]]:
        """Return titles and rows, with the cells of each column padded to the same width."""
        sides = [">" if heading.startswith(">") else "<" for heading in self.headings]
        layout = [f"{{:{s}{w}}}" for s, w in zip(sides, self._widths(), strict=True)]
        lines = [self._titles(), *self.rows]
        return [[c.format(cell) for c, cell in zip(layout, line, strict=True)] for line in lines]

    def fit(self, width: int) -> "tuple[TextTable, Sequence[str]]":
        """Return the table without the columns that are too many for a width, and their names."""
        table, left_out = self, list[str]()
        names = set(map(name_of, self.headings))
        for name in self.optional:
            if name in names and table.width() > width:
                table = table.without(name)
                left_out.append(name)
        return table, left_out

    def width(self) -> int:
        """Return the number of characters of a line."""
        return sum(self._widths()) + len(GAP) * (len(self.headings) - 1)

    def without(self, *names: str) -> "TextTable":
        """Return the table without some columns."""
        kept = [n for n, heading in enumerate(self.headings) if name_of(heading) not in names]
        rows = [[row[place] for place in kept] for row in self.rows]
        return replace(self, headings=[self.headings[place] for place in kept], rows=rows)

    def with_last(self, heading: str, cells: Sequence[str]) -> "TextTable":
        """Return the table with one more column; as it is where no cell of that says anything."""
        if not any(cells):
            return self
        rows = [(*row, cell) for row, cell in zip(self.rows, cells, strict=True)]
        return replace(self, headings=(*self.headings, heading), rows=rows)

    def _widths(self) -> list[int]:
        return [max(map(len, cells)) for cells in zip(self._titles(), *self.rows, strict=True)]

    def _titles(self) -> list[str]:
        names = {"", *map(name_of, self.headings)}
        parts = (heading.removeprefix(">").rpartition(":") for heading in self.headings)
        titles = [title if owner in names else f"{owner} {title}" for owner, _, title in parts]
        return list(map(with_unit, titles))


Part = TextTable | str


def name_of(heading: str) -> str:
    """Return the unique name of a column."""
    return heading.removeprefix(">").replace(":", " ")


def with_unit(name: str) -> str:
    """Return the name of a column with its unit, if it has one that its name does not say."""
    return f"{name} {UNITS[name]}" if name in UNITS else name


def find_main_table(parts: Iterable[Part], like: TextTable | None = None) -> TextTable | None:
    """Return the table that a result is about; None if it has no table.

    It is the first one; where the first one may be about something else, it begins with the same
    column as the one that it is `like`.
    """
    first = next((part for part in parts if isinstance(part, TextTable)), None)
    if first is None or like is None or first.headings[0] == like.headings[0]:
        return first
    return None


def format_csv(parts: Iterable[Part]) -> str:
    """Return the first table as CSV (RFC 4180), each column with a name of its own.

    Raises InputError if there is no table.
    """
    table = find_main_table(parts)
    if table is None:
        raise InputError("there is no table to print as CSV: take another --output")
    text = StringIO()
    names = [with_unit(name_of(heading)) for heading in table.headings]
    parted = table.server_parts
    writer(text).writerows(parted.spread(table) if parted else [names, *table.rows])
    return text.getvalue()


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Rows that have all the words, sorted by a column; "" keeps the rows, or their order.

    Neither words nor the name of the column are case-sensitive.
    """

    words: str = ""
    column: str = ""
    falling: bool = False

    @classmethod
    def parse(cls, words: str, column: str) -> Self:
        """Return what the options --filter and --sort ask for; a minus means that it falls."""
        return cls(words, column.removeprefix("-"), falling=column.startswith("-"))

    def apply(self, table: TextTable) -> TextTable:
        """Return a table with these rows.

        Raises InputError if the table has no such column; the message has its columns.
        """
        words = self.words.casefold().split()
        rows = [row for row in table.rows if all(w in " ".join(row).casefold() for w in words)]
        if self.column:
            names = [name_of(heading) for heading in table.headings]
            plain_names = [name.casefold() for name in names]
            if self.column.casefold() not in plain_names:
                near = alternatives(self.column.upper(), names)
                raise InputError(f"the table has no column {self.column!r}{near}")
            place = plain_names.index(self.column.casefold())
            rows.sort(key=lambda row: _rank(row[place]), reverse=self.falling)
        return replace(table, rows=rows)


def order_rows(
    parts: Iterable[Part], order: RowOrder, like: TextTable | None = None
) -> Sequence[Part]:
    """Return the parts of a result with these rows in the main table.

    `parts`: the result; `order`: the rows; `like`: the main table where the first one may be
    about something else; it is left as it is then. Raises InputError if the main table has no
    such column.
    """
    shown = list(parts)
    main = find_main_table(shown, like)
    if main is None:
        return shown
    changed = order.apply(main)
    return [changed if part is main else part for part in shown]


def _rank(cell: str) -> tuple[bool, float, str]:
    """Numbers by their size, before texts; of `18.0/80` the first one, of `~4` or `<-999%` this."""
    number = cell.split("/", maxsplit=1)[0].lstrip("~<").removesuffix("%")
    try:
        return (False, float(number), "")
    except ValueError:
        return (True, 0.0, cell.casefold())


def style_parts(parts: Iterable[Part], width: int, like: TextTable | None = None) -> Text:
    """Return the text of the parts as `str` returns it, with colours for the state of servers.

    Tables lose the optional columns for which there is no room; a line below tells their names. The
    first one is what CSV has, unless CSV has a table `like` another one.
    """
    parts = list(parts)
    main = find_main_table(parts, like)
    lines: list[Text] = []
    for part in parts:
        if not isinstance(part, TextTable):
            lines.append(Text(part))
            continue
        table, left_out = part.fit(width)
        headings, *rows = table.lines()
        lines.append(Text(GAP.join(headings), style="bold"))
        cells = ([Text(cell, style=style_of(cell.strip())) for cell in row] for row in rows)
        lines += map(Text(GAP).join, cells)
        if left_out:
            where = "; -o csv has all" if part is main else ""
            note = f"hidden (terminal too narrow): {', '.join(left_out)}{where}"
            lines.append(Text(note, style="dim"))
    return Text("\n").join(lines)


def style_of(cell: str) -> str:
    """Return the colour of a cell, as rich names it; "" for most."""
    missed = cell.lstrip("<").startswith("-") and cell.endswith("%")
    return "red" if missed else STYLES.get(cell, "")


def group_notes(notes: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield pairs of a server and a note as sentences, one for all servers with an equal note."""
    servers: dict[str, list[str]] = {}
    for server, note in notes:
        servers.setdefault(note, []).append(server)
    yield from (f"{join_names(names, NAMES_SHOWN)}: {note}" for note, names in servers.items())


def format_age(since: datetime, now: datetime) -> str:
    """Return the time between two moments in one unit, as kubectl does."""
    return format_duration((now - since).total_seconds())


def format_duration(time_s: float) -> str:
    """Return a time in one unit, rounded down."""
    seconds = max(0, int(time_s))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def format_number(value: float | None) -> str:
    """Return a number with three digits or more, or that it is not known."""
    if value is None:
        return UNKNOWN
    # What is less than the last of four decimals is 0.
    return f"{value:.0f}" if value >= 100 else f"{round(value, 4):.3g}"  # noqa: PLR2004 - three digits
