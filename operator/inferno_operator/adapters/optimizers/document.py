"""Reads the JSON of an answer, and says in one line what is wrong with it."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

from inferno_optimizer.errors import InputError

LONGEST_QUOTED = 200
"""Largest number of characters of a response that a message shows."""

BYTES_PER_CONTAINER = 16
"""Fewest bytes for each list or object: empty ones take thirty times their size in memory."""


def parsed(body: bytes) -> object:
    """Parse a body, which must be JSON without repeated keys.

    Raises
    ------
    InputError
        It is not; the message quotes its beginning.
    """
    if BYTES_PER_CONTAINER * (body.count(b"{") + body.count(b"[")) > max(len(body), 2**20):
        raise InputError(f"{quoted(body)} has too many lists and objects")
    try:
        return json.loads(body, object_pairs_hook=without_repeats, parse_constant=_refuse)
    except RecursionError as error:
        raise InputError(f"{quoted(body)} is nested too deeply") from error
    except ValueError as error:
        raise InputError(f"{quoted(body)} is no JSON") from error


def without_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these keys and values.

    Raises
    ------
    InputError
        A key occurs twice.
    """
    document = dict(pairs)
    if len(document) < len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise InputError(f"key {one_line(repeated)!r} occurs twice in an object")
    return document


def _refuse(name: str) -> NoReturn:
    raise InputError(f"{name} is no number of JSON")


def message_of(body: bytes) -> str:
    """The message in a response of the optimizer, in one line; else its beginning."""
    try:
        document = parsed(body)
    except InputError:
        return quoted(body)
    message = document.get("message") if isinstance(document, dict) else document
    return one_line(str(message)) if message else quoted(body)


def quoted(body: bytes) -> str:
    """The beginning of a body, in one line."""
    text = one_line(body[:LONGEST_QUOTED].decode(errors="replace"))
    return repr(text) if text else "an empty answer"


def one_line(text: str) -> str:
    """The beginning of a text that UTF-8 can encode, in one line."""
    encodable = text[: 4 * LONGEST_QUOTED].encode(errors="replace").decode()
    return " ".join(encodable.split())[:LONGEST_QUOTED]
