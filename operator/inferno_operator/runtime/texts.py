"""Texts of others in our messages: in one line, and not too long; pure."""

LONGEST_QUOTED = 300
"""Largest number of characters of a query or an answer that a message shows."""


def shortened(text: str, longest: int = LONGEST_QUOTED) -> str:
    """Return a text in one line, without its end if it is long."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest else f"{line[:longest].rstrip()}..."
