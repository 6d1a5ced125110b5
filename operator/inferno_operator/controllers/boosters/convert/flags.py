"""Convert a worker's `config` to the flags of its engine; pure."""

import json
from collections.abc import Iterator, Mapping


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


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
