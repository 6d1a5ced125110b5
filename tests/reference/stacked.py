"""A hook of MkDocs: tables that no phone has room for become a list of rows there.

Each cell gets the heading of its column, which `docs/styles/tables.css` shows before it.
"""

import re
from itertools import cycle

TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEADING = re.compile(r"<th(?: [^>]*)?>(.*?)</th>", re.DOTALL)
CELL = re.compile(r"<td(?= |>)")
TAG = re.compile(r"<[^>]*>")

MANY = 6
"""Columns that do not fit, even with numbers only."""

LONG = 80
"""Characters of a row that would become a column of single words."""


def on_page_content(html: str, **_: object) -> str:
    """Return a page whose wide tables can be shown as lists."""
    return TABLE.sub(lambda found: _labelled(found[0]), html)


def _labelled(table: str) -> str:
    headings = [TAG.sub("", heading).replace('"', "&quot;") for heading in HEADING.findall(table)]
    longest = max(len(TAG.sub("", row)) for row in table.split("<tr>"))
    if len(headings) < MANY and longest <= LONG:
        return table
    labels = cycle(headings)
    cells = CELL.sub(lambda _: f'<td data-label="{next(labels)}"', table)
    return cells.replace("<table>", "<table data-stacked>", 1)
