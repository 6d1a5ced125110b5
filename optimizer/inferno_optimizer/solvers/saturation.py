"""Sharing out the capacity that is left among cases that got nothing.

See `assignment.md`, section "Saturation policies".
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Protocol

from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.system import SaturationPolicy


class UnservedCase(Protocol):
    """A case that got nothing, and its usable rows by value."""

    @property
    def case(self) -> int:
        """Position of the case."""

    @property
    def priority(self) -> int:
        """Its priority."""

    @property
    def rows(self) -> tuple[int, ...]:
        """Its usable rows, best first."""


def share_out(ledger: Ledger, unserved: Sequence[UnservedCase], policy: SaturationPolicy) -> None:
    """Give what is left to unserved cases, which stand in the order in which they failed."""
    _POLICIES[policy](ledger, unserved)


def _nothing(_ledger: Ledger, _unserved: Sequence[UnservedCase]) -> None:
    """Leave it."""


def _exhaustive(ledger: Ledger, unserved: Sequence[UnservedCase]) -> None:
    """One case after the other takes all it can of the first row of which a replica fits."""
    for entry in unserved:
        row = _first_with_room(ledger, entry)
        if row is not None:
            ledger.take(row, ledger.room(row))


def _largest_share(ledger: Ledger, unserved: Sequence[UnservedCase]) -> None:
    """One case after the other adds what fits to what it holds, or moves where it gets more.

    What runs on an accelerator without a usable row stays as it is, and what runs on several ones
    until more of the load can be served on one.
    """
    for entry in unserved:
        held = sorted(entry.rows, key=lambda row: ledger.given(row) == 0)
        row = max(held, key=ledger.share)
        if ledger.room(row) > 0 and ledger.share(row) > ledger.kept_share(entry.case):
            ledger.take(row, ledger.room(row))


def _round_robin(ledger: Ledger, unserved: Sequence[UnservedCase]) -> None:
    """One replica each in turn, of the row chosen first, until its type is used up."""
    waiting = []
    for entry in unserved:
        row = _first_with_room(ledger, entry)
        if row is not None:
            ledger.take(row, 1)
            waiting.append(row)
    while waiting:
        rounds = ledger.whole_rounds(waiting)
        for row in waiting:
            ledger.take(row, rounds)
        waiting = [row for row in waiting if _take_one(ledger, row)]


def _take_one(ledger: Ledger, row: int) -> bool:
    """Give one replica of a row if there is room; whether there was."""
    room = ledger.room(row) > 0
    if room:
        ledger.take(row, 1)
    return room


def _round_robin_by_priority(ledger: Ledger, unserved: Sequence[UnservedCase]) -> None:
    """Round robin in each priority group, the important ones first."""
    for _, group in groupby(unserved, key=lambda entry: entry.priority):
        _round_robin(ledger, list(group))


def _first_with_room(ledger: Ledger, entry: UnservedCase) -> int | None:
    """The row that a case has, else its best row of which a replica fits."""
    given = next((row for row in entry.rows if ledger.given(row) > 0), None)
    if given is not None:
        return given if ledger.room(given) > 0 else None
    return next((row for row in entry.rows if ledger.room(row) > 0), None)


_POLICIES: Mapping[SaturationPolicy, Callable[[Ledger, Sequence[UnservedCase]], None]] = {
    SaturationPolicy.NONE: _nothing,
    SaturationPolicy.HOLD: _largest_share,
    SaturationPolicy.PRIORITY_EXHAUSTIVE: _exhaustive,
    SaturationPolicy.PRIORITY_ROUND_ROBIN: _round_robin_by_priority,
    SaturationPolicy.ROUND_ROBIN: _round_robin,
}
