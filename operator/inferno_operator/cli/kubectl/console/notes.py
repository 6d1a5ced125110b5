"""Lines of text between the tables of a page: remedies lead to the plan with them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

NOTES_SHOWN = 5
"""Lines of text in a row that are shown at once."""

REMEDY = re.compile(r"- (?P<words>.+): --set (?P<change>\S+)")
"""What commands print of a change that would serve a Server, with the option that tries it."""


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
