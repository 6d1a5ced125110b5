from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.resources import RESOURCES, SYSTEM_RESOURCES, Resource
from inferno_operator.resources.definitions import crd, render

ROOT = Path(__file__).parents[4]
ORIGINAL = yaml.safe_load((ROOT / "tests/data/crds/original.yaml").read_text())
LIMITS = {
    "enum",
    "format",
    "maximum",
    "maxItems",
    "maxLength",
    "minimum",
    "minItems",
    "minLength",
    "pattern",
}

MINIMUMS = {
    "spec.cost",
    "spec.currentAlloc.cost",
    "spec.currentAlloc.itlAverage",
    "spec.currentAlloc.load.arrivalCOV",
    "spec.currentAlloc.load.arrivalRate",
    "spec.currentAlloc.load.avgLength",
    "spec.currentAlloc.load.serviceCOV",
    "spec.currentAlloc.maxBatch",
    "spec.currentAlloc.numReplicas",
    "spec.currentAlloc.waitAverage",
}
MINIMUMS |= {path.replace("currentAlloc", "desiredAlloc") for path in MINIMUMS}
"""Fields that are not negative in any manifest that makes sense; the original takes any number."""

BOUNDS = {("maxLength", 253), ("maximum", 2**31 - 1)}
"""Names of Kubernetes are not longer; the original takes any text and count, and hangs."""

Schema = dict[str, Any]


def root_schema(resource: type[Resource]) -> Schema:
    (version,) = crd(resource)["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def schemas(schema: Schema) -> Iterator[Schema]:
    """Yield a schema and all those inside it."""
    yield schema
    inside = [*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])]
    for part in inside:
        yield from schemas(part)


def stricter_than_original(schema: Schema, original: Schema, path: str) -> Iterator[str]:
    """Yield what a schema of fields demands that the original one doesn't."""
    for name, was in original.items():
        field, where = schema["properties"][name], f"{path}.{name}"
        if name in schema.get("required", []) and not was.get("required"):
            yield f"{where} is required"
        if field["type"] != was["type"]:
            yield f"{where} has type {field['type']}"
        yield from (
            f"{where} has {limit} {field[limit]}"
            for limit in LIMITS & field.keys()
            if field[limit] != was.get(limit)
            and (limit, field[limit]) not in BOUNDS
            and not (limit == "minimum" and field[limit] == 0 and where in MINIMUMS)
        )
        yield from stricter_than_original(field.get("items", field), was.get("fields", {}), where)


def test_the_files_are_what_the_generator_makes_of_the_models() -> None:
    files = {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}

    assert files == {f"{resource.plural}.yaml": render(resource) for resource in RESOURCES}


@pytest.mark.parametrize("resource", SYSTEM_RESOURCES, ids=lambda resource: resource.kind)
def test_a_crd_demands_nothing_that_the_original_does_not(resource: type[Resource]) -> None:
    spec = root_schema(resource)["properties"]["spec"]
    new_required = set(spec.get("required", [])) - ORIGINAL[resource.kind].keys()

    assert not new_required
    assert not list(stricter_than_original(spec, ORIGINAL[resource.kind], "spec"))


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_an_object_needs_neither_spec_nor_status(resource: type[Resource]) -> None:
    root = root_schema(resource)

    assert "required" not in root
    assert "required" not in root["properties"]["status"]


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_every_field_of_ours_has_a_description(resource: type[Resource]) -> None:
    properties = root_schema(resource)["properties"]
    fields = [
        (name, field)
        for part in (properties["spec"], properties["status"])
        for schema in schemas(part)
        for name, field in schema.get("properties", {}).items()
    ]

    assert fields
    assert not [name for name, field in fields if not field.get("description")]
    texts = [field.get("description", "") for _, field in fields]
    assert [text for text in texts if text != text.strip()] == []
