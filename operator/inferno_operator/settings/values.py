"""The value of one environment variable: a flag, a number of seconds, a file."""

import math
from collections.abc import Mapping
from pathlib import Path

from inferno_optimizer.errors import InputError

YES = frozenset({"true", "t", "1", "yes", "on"})
NO = frozenset({"false", "f", "0", "no", "off"})


def flag(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return whether a flag is set; an empty value is that of an absent variable, as in Go.

    Raises InputError if the value is neither true nor false.
    """
    value = environment.get(name, "").strip().lower()
    if not value:
        return default
    if value not in YES | NO:
        given = environment[name]
        raise InputError(f"{name}: {given!r} is neither true nor false (1/0, t/f, yes/no, on/off)")
    return value in YES


def read_seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    """Return a time [s].

    Raises InputError if the value is not a positive number.
    """
    value = environment.get(name)
    if value is None:
        return default
    try:
        number = float(value)
    except ValueError as error:
        raise InputError(f"{name}: {value!r} is not a number of seconds") from error
    if not 0 < number < math.inf:
        raise InputError(f"{name}: {value!r} is not a positive number of seconds")
    return number


def file(environment: Mapping[str, str], name: str) -> Path | None:
    """Return the path of a file; it is None if the variable is absent or empty."""
    value = environment.get(name)
    return Path(value) if value else None
