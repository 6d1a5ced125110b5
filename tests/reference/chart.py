"""Every value of the Helm chart, as its comment in values.yaml explains it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.reference.markdown import code, table

CHART = Path(__file__).parents[2] / "manifests" / "helm" / "inferno"
VALUES = CHART / "values.yaml"


def chart() -> str:
    """A table of all values."""
    return table(("value", "default", "meaning"), list(values()))


def values() -> Iterator[tuple[str, str, str]]:
    """Path, default and meaning of each value; a group of values has no default."""
    text = VALUES.read_text(encoding="utf-8")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    yield from _values("", root, schema, text.splitlines())


def _values(
    path: str, node: yaml.MappingNode, schema: dict[str, Any], lines: list[str]
) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        name, meaning = f"{path}{key.value}", _comment_above(lines, key.start_mark.line)
        inner = schema["properties"][key.value]
        if "properties" in inner:
            yield code(name), "", meaning
            yield from _values(f"{name}.", value, inner, lines)
        else:
            yield code(name), code(_written(value)), meaning


def _written(node: yaml.Node) -> str:
    """A default in one line, as values may be given."""
    return json.dumps(yaml.safe_load(yaml.serialize(node)))


def _comment_above(lines: list[str], line: int) -> str:
    """The lines above one, as long as they are comments."""
    first = line
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(text.lstrip(" #") for text in lines[first:line])
