"""Tables for a terminal: the plain tables, with colours for the state of servers."""

from collections.abc import Iterable, Iterator, Mapping

from rich.text import Text

from inferno_operator.cli.overview import MISSES
from inferno_operator.cli.tables.solution import GAP, Part, TextTable, first_table
from inferno_optimizer.solution import Reason

HEADING = "bold"

STYLES: Mapping[str, str] = {
    **{str(reason): "red" for reason in Reason},
    Reason.ALLOCATED: "green",
    Reason.BEST_EFFORT: "yellow",
    MISSES: "red",
    **dict.fromkeys(("Partial", "Stale", "Missing", "Refused"), "yellow"),
}
"""Styles of cells."""


def rich_text(parts: Iterable[Part], width: int, like: TextTable | None = None) -> Text:
    """Return the text of the parts as `str` returns it, with styles.

    Tables lose the optional columns for which there is no room; a line below tells their names. The
    first one is what CSV has, unless CSV has a table `like` another one.
    """
    parts = list(parts)
    first = first_table(parts, like)
    return Text("\n").join(
        line for part in parts for line in _lines(part, width, in_csv=part is first)
    )


def _lines(part: Part, width: int, *, in_csv: bool) -> Iterator[Text]:
    if not isinstance(part, TextTable):
        yield Text(part)
        return
    table, left_out = part.within(width)
    yield from _table_lines(table)
    if left_out:
        where = "; -o csv has all" if in_csv else ""
        yield Text(f"hidden (terminal too narrow): {', '.join(left_out)}{where}", style="dim")


def _table_lines(table: TextTable) -> Iterator[Text]:
    headings, *rows = table.lines()
    yield Text(GAP.join(headings), style=HEADING)
    for row in rows:
        yield Text(GAP).join(Text(cell, style=style_of(cell.strip())) for cell in row)


def style_of(cell: str) -> str:
    """Return the colour of a cell, as rich names it; "" for most."""
    missed = cell.lstrip("<").startswith("-") and cell.endswith("%")
    return "red" if missed else STYLES.get(cell, "")
