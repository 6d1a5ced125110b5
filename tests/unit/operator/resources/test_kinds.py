from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from inferno_operator.resources import (
    API_VERSION,
    Accelerator,
    Allocation,
    Capacity,
    Condition,
    ManifestError,
    Metadata,
    Model,
    Optimizer,
    Resource,
    Server,
    ServiceClass,
    Status,
    parse,
)

DATA = Path(__file__).parents[3] / "data/crds"
ACCEPTED = list(yaml.safe_load_all((DATA / "accepted.yaml").read_text()))
REFUSED = yaml.safe_load((DATA / "refused.yaml").read_text())
KINDS = "Accelerator, Model, ServiceClass, Server, Capacity, Optimizer"

Manifest = dict[str, Any]


def manifest(kind: str, spec: object, **metadata: object) -> Manifest:
    named = {"name": "example", **metadata}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": named, "spec": spec}


def server(**fields: object) -> Manifest:
    return manifest("Server", {"name": "S", "class": "C", "model": "M", **fields})


@pytest.mark.parametrize("accepted", ACCEPTED, ids=lambda accepted: accepted["metadata"]["name"])
def test_what_the_api_server_accepts_is_read(accepted: Manifest) -> None:
    assert parse(accepted).metadata.name == accepted["metadata"]["name"]


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused["case"])
def test_an_error_names_the_object_and_the_field_in_one_line(refused: Manifest) -> None:
    bad = manifest(refused["kind"], refused["spec"], namespace="prod", name="chat")

    with pytest.raises(ManifestError) as raised:
        parse(bad)
    error = raised.value
    text = str(error)

    assert (error.kind, error.namespace, error.name) == (refused["kind"], "prod", "chat")
    assert error.path == refused["field"]
    assert text.startswith(f"{refused['kind']} prod/chat: {refused['field']} ")
    assert refused.get("because", "") in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({}, "object without a name: apiVersion must be inferno.platform.ai/v1alpha1, not None"),
        (
            {"apiVersion": API_VERSION, "kind": "Pod", "metadata": {"name": "web"}},
            f"Pod web: kind must be one of {KINDS}, not 'Pod'",
        ),
        (
            {"apiVersion": API_VERSION, "kind": ["Server"], "metadata": "chat"},
            f"['Server'] without a name: kind must be one of {KINDS}, not ['Server']",
        ),
        (
            {"apiVersion": API_VERSION, "kind": "Server", "metadata": {"name": "two\nlines"}},
            r"Server 'two\nlines': spec is missing",
        ),
        (
            manifest("Capacity", {"count": []}, name=""),
            "Capacity without a name: metadata.name must have at least 1 character, not ''",
        ),
        (
            manifest("Server", {"name": "S"}),
            "Server example: spec.class is missing (and 1 more)",
        ),
        (
            server(minNumReplicas="one"),
            "Server example: spec.minNumReplicas must be a valid integer, not 'one'",
        ),
        (
            server(modelBooster={"name": "b", "backends": []}),
            "Server example: spec.modelBooster.backends must not be empty, not []",
        ),
    ],
)
def test_the_text_of_an_error_tells_what_to_change(bad: Manifest, message: str) -> None:
    with pytest.raises(ManifestError) as raised:
        parse(bad)

    assert str(raised.value) == message


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_number_is_finite(value: float) -> None:
    with pytest.raises(ManifestError, match=r"spec\.cost must be a finite number"):
        parse(manifest("Accelerator", {"name": "A", "type": "A", "cost": value}))


def test_an_integer_without_fraction_becomes_an_integer() -> None:
    parsed = parse(server(minNumReplicas=4.0))

    assert isinstance(parsed, Server)
    assert repr(parsed.spec.min_num_replicas) == "4"


def test_python_names_are_unknown_fields_in_a_manifest() -> None:
    parsed = parse(server(min_num_replicas=4, service_class="D"))

    assert isinstance(parsed, Server)
    assert parsed.spec.min_num_replicas == 0
    assert parsed.spec.service_class == "C"


def test_unknown_fields_are_dropped() -> None:
    given = server(currentAlloc={"accelerator": "", "numReplicas": 0, "colour": "red"}, speed=1)

    assert parse(given).to_json() == server(currentAlloc={"accelerator": "", "numReplicas": 0})


@pytest.mark.parametrize(
    ("kind", "spec", "field", "default"),
    [
        ("Accelerator", {"name": "A", "type": "A", "cost": 1}, "multiplicity", 1),
        ("ServiceClass", {"name": "C"}, "priority", 0),
        ("Server", {"name": "S", "class": "C", "model": "M"}, "keep_accelerator", False),
        ("Server", {"name": "S", "class": "C", "model": "M"}, "current_alloc", None),
        ("Model", {"name": "M"}, "data", ()),
    ],
)
def test_absent_and_null_fields_have_the_default(
    kind: str, spec: Manifest, field: str, default: object
) -> None:
    resource = parse(manifest(kind, spec)).spec
    alias = type(resource).model_fields[field].alias
    assert alias is not None
    with_null = parse(manifest(kind, {**spec, alias: None})).spec

    assert getattr(resource, field) == default
    assert getattr(with_null, field) == default


@pytest.mark.parametrize(
    ("accepted", "kind"),
    [
        ("power", Accelerator),
        ("no-data", Model),
        ("priority-out-of-range", ServiceClass),
        ("everything-new", Server),
        ("no-types", Capacity),
        ("every-parameter", Optimizer),
    ],
)
def test_a_manifest_becomes_an_object_of_its_kind(accepted: str, kind: type[Resource]) -> None:
    (given,) = [item for item in ACCEPTED if item["metadata"]["name"] == accepted]

    parsed = parse(given)

    assert type(parsed) is kind
    assert parsed.to_json() == given


def test_a_resource_does_not_change() -> None:
    parsed = parse(server())

    with pytest.raises(ValidationError, match="frozen"):
        parsed.metadata.name = "other"  # type: ignore[misc]  # what the test is about


def test_objects_made_in_python_have_their_json_names() -> None:
    allocation = Allocation(accelerator="A100", num_replicas=2, itl_average=21.5)

    assert allocation.to_json() == {"accelerator": "A100", "numReplicas": 2, "itlAverage": 21.5}


def test_times_are_written_as_the_api_server_writes_them() -> None:
    metadata = Metadata.model_validate(
        {"name": "a", "creationTimestamp": "2026-05-04T12:30:00+02:00"}
    )

    assert metadata.creation_timestamp == datetime(2026, 5, 4, 10, 30, tzinfo=UTC)
    assert metadata.to_json()["creationTimestamp"] == "2026-05-04T10:30:00Z"


def test_a_condition_is_found_by_its_type() -> None:
    ready = Condition(
        type="Ready",
        status="True",
        reason="Allocated",
        message="",
        last_transition_time=datetime(2026, 5, 4, tzinfo=UTC),
    )
    status = Status(conditions=(ready,))

    assert status.condition("Ready") == ready
    assert status.condition("Allocated") is None
