"""Convert a worker's `config` to the flags of its engine; pure."""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal

PLAIN_EXPONENTS = range(-4, 6)
"""Decimal exponents of the numbers that the original writes without an exponent."""


def flags(config: Mapping[str, object], *, bare_switches: bool = False) -> list[str]:
    """Return the flags in the order of their keys; a key with the value null has no flag.

    Parameters
    ----------
    config
        Names of flags and their values; a flag with an empty text has no value.
    bare_switches
        Write true as a flag without a value, and leave out false, instead of writing values.
    """
    return list(_flags(config, bare_switches=bare_switches))


def _flags(config: Mapping[str, object], *, bare_switches: bool) -> Iterator[str]:
    for key in sorted(config):
        value = config[key]
        if value is None or (bare_switches and value is False):
            continue
        yield _flag(key)
        text = "" if bare_switches and value is True else _text(value)
        if text:
            yield text


def flags_of_the_original(config: Mapping[str, object]) -> list[str]:
    """Return the flags as the original writes them, which some engines cannot parse."""
    pairs = ((_flag(key), text_in_go(config[key])) for key in sorted(config))
    return [part for pair in pairs for part in pair if part]


def text_in_go(value: object) -> str:
    """Return a JSON value as Go prints it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case int() | float():
            return _number_in_go(value)
        case list():
            return f"[{' '.join(map(text_in_go, value))}]"
        case dict():
            return f"map[{' '.join(f'{key}:{text_in_go(value[key])}' for key in sorted(value))}]"
    return str(value)


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _number_in_go(value: float) -> str:
    shortest = Decimal(repr(float(value))).normalize()
    exponent = shortest.adjusted()
    if not shortest or exponent in PLAIN_EXPONENTS:
        return f"{shortest:f}"
    mantissa = shortest.scaleb(-exponent)
    return f"{mantissa:f}e{exponent:+03d}"
