"""Tables for a terminal: the plain tables, with colours for the state of servers."""

from collections.abc import Iterable, Iterator, Mapping

from rich.text import Text

from inferno_operator.cli.tables.solution import GAP, Part, TextTable
from inferno_operator.cli.tables.top import MISSES
from inferno_optimizer.system import Reason

HEADING = "bold"

STYLES: Mapping[str, str] = {
    **{str(reason): "red" for reason in Reason},
    Reason.ALLOCATED: "green",
    Reason.BEST_EFFORT: "yellow",
    MISSES: "red",
    **dict.fromkeys(("Partial", "Stale", "Missing", "Refused"), "yellow"),
}
"""Styles of cells."""


def rich_text(parts: Iterable[Part]) -> Text:
    """Return the text of the parts as `str` returns it, with styles."""
    return Text("\n").join(line for part in parts for line in _lines(part))


def _lines(part: Part) -> Iterator[Text]:
    if not isinstance(part, TextTable):
        yield Text(part)
        return
    headings, *rows = part.lines()
    yield Text(GAP.join(headings), style=HEADING)
    for row in rows:
        yield Text(GAP).join(Text(cell, style=_style(cell.strip())) for cell in row)


def _style(cell: str) -> str:
    missed = cell.startswith("-") and cell.endswith("%")
    return "red" if missed else STYLES.get(cell, "")
