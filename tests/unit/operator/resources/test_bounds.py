"""Texts and counts that people write are bounded, in the schema and where objects are read."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from inferno_operator.resources import RESOURCES, Resource
from inferno_operator.resources.observation import observe
from tests.conftest import ROOT
from tests.unit.operator import objects

OF_PLANS = {"decisions", "inputs", "message", "omitted", "reason"}
"""Texts of Plans, which the operator writes and signs."""

MEGABYTE = "x" * 2**20

Path = tuple[str, ...]


def spec_of(kind: str) -> Mapping[str, Any]:
    for path in (ROOT / "crds").glob("*.yaml"):
        definition = yaml.safe_load(path.read_text())
        if definition["spec"]["names"]["kind"] == kind:
            schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            spec: Mapping[str, Any] = schema["properties"]["spec"]
            return spec
    raise AssertionError(kind)


def leaves(schema: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for name, inner in schema.get("properties", {}).items():
        yield from leaves(inner, (*path, name))
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            yield from leaves(schema[key], (*path, "[]"))
    yield path, schema


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_every_text_and_integer_of_a_spec_is_bounded(resource: type[Resource]) -> None:
    unbounded = [
        ".".join(path)
        for path, schema in leaves(spec_of(resource.kind))
        if (schema.get("type") == "string" and not {"maxLength", "enum", "format"} & schema.keys())
        or (schema.get("type") == "integer" and "maximum" not in schema)
    ]

    if resource.kind == "Plan":
        unbounded = [path for path in unbounded if path.split(".")[-1] not in OF_PLANS]
        unbounded = [path for path in unbounded if not path.startswith("certificate.")]
    assert unbounded == []


SPECS = {
    "Server": objects.server(spec={"currentAlloc": objects.running(1, 1)})["spec"],
    "Accelerator": objects.accelerator("A")["spec"],
    "Model": objects.model("M", [objects.performance("A")])["spec"],
    "ServiceClass": objects.service_class()["spec"],
    "Capacity": {"count": [{"type": "T", "count": 1}]},
}


def changed(value: Any, path: Path, new: object) -> Any:  # noqa: ANN401 - JSON
    if not path:
        return new
    step, *rest = path
    if step == "[]":
        return [changed(value[0], tuple(rest), new)]
    return {**value, step: changed(value.get(step, {}), tuple(rest), new)}


WRONG = [
    ("Server", ("class",), MEGABYTE),
    ("Server", ("model",), MEGABYTE),
    ("Server", ("name",), MEGABYTE),
    ("Server", ("currentAlloc", "accelerator"), MEGABYTE),
    ("Server", ("minNumReplicas",), 2**62),
    ("Server", ("currentAlloc", "numReplicas"), 2**62),
    ("Accelerator", ("name",), MEGABYTE),
    ("Accelerator", ("type",), MEGABYTE),
    ("Accelerator", ("multiplicity",), 2**62),
    ("Model", ("name",), MEGABYTE),
    ("Model", ("data", "[]", "acc"), MEGABYTE),
    ("Model", ("data", "[]", "accCount"), 2**62),
    ("ServiceClass", ("name",), MEGABYTE),
    ("ServiceClass", ("data", "[]", "model"), MEGABYTE),
    ("Capacity", ("count", "[]", "type"), MEGABYTE),
    ("Capacity", ("count", "[]", "count"), 2**62),
]


@pytest.mark.parametrize(("kind", "path", "value"), WRONG, ids=lambda value: str(value)[:40])
def test_an_object_of_an_older_schema_that_is_beyond_a_bound_is_told_in_short(
    kind: str, path: Path, value: object
) -> None:
    resource = next(each for each in RESOURCES if each.kind == kind)
    manifest = objects.manifest(kind, changed(SPECS[kind], path, value), name="x")
    metadata = {"namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1}
    manifest["metadata"] = {**manifest["metadata"], **metadata}

    began = time.process_time()
    observation = observe(resource, manifest)
    spent = time.process_time() - began

    assert observation.resource is None
    if kind == "Server":  # what runs is counted, where it can be read
        assert (observation.remains is None) is (path[0] == "currentAlloc")
    assert path[-1] in observation.problem
    assert len(observation.problem) < 300
    assert spent < 0.5
