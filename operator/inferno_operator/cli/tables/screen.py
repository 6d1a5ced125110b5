"""`kubectl inferno top` on a screen that may be too small: the most important rows and notes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rich.text import Text

from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.overview import Overview, ServerView
from inferno_operator.cli.tables.order import RowOrder, ordered
from inferno_operator.cli.tables.rich import rich_text
from inferno_operator.cli.tables.solution import Part
from inferno_operator.cli.tables.top import notes_of, servers_table, summary_parts, top_parts

NOTES_SHARE = 3
"""Notes take one of so many lines, and more where the rows leave room."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Columns and lines of a terminal, and the unit of costs."""

    width: int
    height: int
    money: Money = CENTS

    def text(
        self, seen: Overview, now: datetime, order: RowOrder, heading: Sequence[Part] = ()
    ) -> Text:
        """Return what `top` shows, not more lines than there are.

        Where not all servers have room, those with a problem come first, then those of the most
        important classes, unless `order` sorts them; the last line counts what is left out.

        Raises
        ------
        InputError
            The table has no column by which to sort.
        """
        whole = rich_text([*heading, *ordered(top_parts(seen, now, self.money), order)], self.width)
        excess = len(whole.split()) - self.height
        if excess <= 0 or not seen.servers:
            return whole
        shown = list(self._without(by_importance(seen), now, order, excess + 1))
        last = shown.pop()
        lines = rich_text([*heading, *shown], self.width).split()[: self.height - 1]
        return Text("\n").join([*lines, Text(str(last), style="dim")])

    def _without(
        self, seen: Overview, now: datetime, order: RowOrder, excess: int
    ) -> Iterator[Part]:
        """Yield what `top` shows without `excess` of its lines, and what is left out.

        Parameters
        ----------
        seen, now, order
            What is to be shown.
        excess
            Number of rows and notes to leave out; a third of the lines are shown in any case.
        """
        table, notes = order.of(servers_table(seen.servers, self.money)), list(notes_of(seen))
        rows = table.rows
        room = max(len(rows) + len(notes) - excess, self.height // 3)
        shown_notes = notes[: max(room // NOTES_SHARE, room - len(rows))]
        shown_rows = rows[: room - len(shown_notes)]
        yield replace(table, rows=shown_rows)
        yield ""
        if shown_notes:
            yield from shown_notes
            yield ""
        yield from summary_parts(seen, now, self.money)
        yield _left_out(
            (len(rows) - len(shown_rows), len(rows), "servers"),
            (len(notes) - len(shown_notes), len(notes), "notes"),
        )


def by_importance(seen: Overview) -> Overview:
    """Return an overview with its most important servers first."""
    return replace(seen, servers=tuple(sorted(seen.servers, key=_importance)))


def _importance(view: ServerView) -> tuple[bool, int, str]:
    return (not view.has_problem, view.priority, view.name)


def _left_out(*counts: tuple[int, int, str]) -> str:
    left_out = [f"{missing} of {total} {what}" for missing, total, what in counts if missing]
    return f"no room for {' and '.join(left_out) or 'all lines'}; --once shows all"
