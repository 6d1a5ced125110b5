"""Bytes of the wire <-> JSON."""

import json
from typing import NoReturn

from inferno_optimizer.errors import InputError


def parse_json(text: bytes) -> object:
    """Parse a body; the whole of it, unlike the original, which drops what comes after.

    Raises
    ------
    InputError
        It is no JSON; the text tells where.
    """
    if not text.strip():
        raise InputError("the body is empty; send JSON")
    try:
        return json.loads(text.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InputError(f"the body is not UTF-8: byte {error.start}") from error
    except RecursionError as error:
        raise InputError("the body is nested too deeply") from error
    except ValueError as error:
        raise InputError(f"the body is not valid JSON: {error}") from error


def write_json(document: object) -> bytes:
    """Write JSON; in ASCII, as names may hold halves of surrogates that UTF-8 has no room for."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number there")
