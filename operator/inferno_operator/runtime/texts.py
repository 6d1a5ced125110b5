"""Texts of others in our messages: in one line, and not too long; pure."""

from collections.abc import Sequence

LONGEST_QUOTED = 300
"""Largest number of characters of a query or an answer that a message shows."""


def shortened(text: str, longest: int = LONGEST_QUOTED) -> str:
    """Return a text in one line, without its end if it is long."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest else f"{line[:longest].rstrip()}..."


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names with commas between them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
