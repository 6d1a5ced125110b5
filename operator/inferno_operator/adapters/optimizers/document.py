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


def parse_answer(body: bytes) -> object:
    """Parse a body, which must be JSON without repeated keys.

    Raises
    ------
    InputError
        It is not; the message quotes its beginning.
    """
    if BYTES_PER_CONTAINER * (body.count(b"{") + body.count(b"[")) > max(len(body), 2**20):
        raise InputError(f"{quote_answer(body)} has too many lists and objects")
    try:
        return json.loads(body, object_pairs_hook=build_object, parse_constant=_refuse)
    except RecursionError as error:
        raise InputError(f"{quote_answer(body)} is nested too deeply") from error
    except ValueError as error:
        raise InputError(f"{quote_answer(body)} is no JSON") from error


def build_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these keys and values.

    Raises
    ------
    InputError
        A key occurs twice.
    """
    document = dict(pairs)
    if len(document) < len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise InputError(f"key {shorten_to_line(repeated)!r} occurs twice in an object")
    return document


def _refuse(name: str) -> NoReturn:
    raise InputError(f"{name} is no number of JSON")


def find_message(body: bytes) -> str:
    """The message in a response of the optimizer, in one line; else its beginning."""
    try:
        document = parse_answer(body)
    except InputError:
        return quote_answer(body)
    message = document.get("message") if isinstance(document, dict) else document
    return shorten_to_line(str(message)) if message else quote_answer(body)


def quote_answer(body: bytes) -> str:
    """The beginning of a body, in one line."""
    text = shorten_to_line(body[:LONGEST_QUOTED].decode(errors="replace"))
    return repr(text) if text else "an empty answer"


def shorten_to_line(text: str) -> str:
    """The beginning of a text that UTF-8 can encode, in one line."""
    encodable = text[: 4 * LONGEST_QUOTED].encode(errors="replace").decode()
    return " ".join(encodable.split())[:LONGEST_QUOTED]
