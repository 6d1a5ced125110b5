"""The rows of the main table of a result: which ones, and in which order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from inferno_operator.cli.tables.solution import Part, TextTable, first_table, name_of
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Rows that have all the words, sorted by a column; "" keeps the rows, or their order.

    Neither words nor the name of the column are case-sensitive.
    """

    words: str = ""
    column: str = ""
    falling: bool = False

    @classmethod
    def asked(cls, words: str, column: str) -> Self:
        """Return what the options --filter and --sort ask for; a minus means that it falls."""
        return cls(words, column.removeprefix("-"), falling=column.startswith("-"))

    def of(self, table: TextTable) -> TextTable:
        """Return a table with these rows.

        Raises
        ------
        InputError
            The table has no such column; the message has its columns.
        """
        words = self.words.casefold().split()
        rows = [row for row in table.rows if all(w in " ".join(row).casefold() for w in words)]
        if self.column:
            place = self._place(table)
            rows.sort(key=lambda row: _rank(row[place]), reverse=self.falling)
        return replace(table, rows=rows)

    def _place(self, table: TextTable) -> int:
        names = [name_of(heading) for heading in table.headings]
        plain_names = [name.casefold() for name in names]
        if self.column.casefold() not in plain_names:
            near = alternatives(self.column.upper(), names)
            raise InputError(f"the table has no column {self.column!r}{near}")
        return plain_names.index(self.column.casefold())


def ordered(
    parts: Iterable[Part], order: RowOrder, like: TextTable | None = None
) -> Sequence[Part]:
    """Return the parts of a result with these rows in the main table.

    Parameters
    ----------
    parts
        The result.
    order
        The rows.
    like
        The main table where the first one may be about something else; it is left as it is then.

    Raises
    ------
    InputError
        The main table has no such column.
    """
    shown = list(parts)
    main = first_table(shown, like)
    if main is None:
        return shown
    changed = order.of(main)
    return [changed if part is main else part for part in shown]


def _rank(cell: str) -> tuple[bool, float, str]:
    """Numbers by their size, before texts; of `18.0/80` the first one, of `~4` or `<-999%` this."""
    number = cell.split("/", maxsplit=1)[0].lstrip("~<").removesuffix("%")
    try:
        return (False, float(number), "")
    except ValueError:
        return (True, 0.0, cell.casefold())
