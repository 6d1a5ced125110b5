"""Texts of others in our messages: in one line, and not too long; pure."""

import os
import socket
import ssl
from collections.abc import Iterator, Sequence

LONGEST_QUOTED = 300
"""Largest number of characters of a query or an answer that a message shows."""


def shortened(text: str, longest: int = LONGEST_QUOTED) -> str:
    """Return a text in one line, without its end if it is long."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest else f"{line[:longest].rstrip()}..."


def cause_of(error: BaseException) -> str:
    """Return why a connection failed, in one line.

    Libraries say "All connection attempts failed" where an address refuses, or is not reachable;
    what the operating system said of it is in the errors that led to theirs.
    """
    errors = list(_list_causes(error))
    named = next(filter(None, map(_describe_system_error, errors)), "")
    told = named or next(filter(None, map(str, errors)), "")
    return shortened(told) or "the connection was closed"


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that led to it."""
    while error is not None:
        yield error
        several = error.__cause__ or error.__context__
        error = several.exceptions[0] if isinstance(several, BaseExceptionGroup) else several


def _describe_system_error(error: BaseException) -> str:
    """What the operating system says of an error; "" if it is not one of its own."""
    match error:
        case ssl.SSLError():
            return ""
        case socket.gaierror():
            text = error.strerror or ""
        case OSError(errno=int(number)):
            text = os.strerror(number)
        case TimeoutError():
            text = "timed out"
        case _:
            return ""
    return text[:1].lower() + text[1:]


def join_names(names: Sequence[str], most: int) -> str:
    """Return the first names with commas between them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
