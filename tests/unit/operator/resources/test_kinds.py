from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.resources import (
    API_VERSION,
    Allocation,
    Load,
    ManifestError,
    Metadata,
    Optimizer,
    Server,
    parse,
)
from inferno_operator.resources.parsing import unknown_fields

DATA = Path(__file__).parents[3] / "data/crds"
ACCEPTED = list(yaml.safe_load_all((DATA / "accepted.yaml").read_text()))
REFUSED = yaml.safe_load((DATA / "refused.yaml").read_text())
MINIMUMS = yaml.safe_load((DATA / "minimums.yaml").read_text())
KINDS = "Accelerator, Model, ServiceClass, Server, Capacity, Optimizer, Plan"

Manifest = dict[str, Any]


def manifest(kind: str, spec: object, **metadata: object) -> Manifest:
    named = {"name": "example", **metadata}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": named, "spec": spec}


def server(**fields: object) -> Manifest:
    return manifest("Server", {"name": "S", "class": "C", "model": "M", **fields})


@pytest.mark.parametrize("accepted", ACCEPTED, ids=lambda accepted: accepted["metadata"]["name"])
def test_what_the_api_server_accepts_is_read_and_written_as_it_was(accepted: Manifest) -> None:
    parsed = parse(accepted)

    has_nulls = "nulls" in parsed.metadata.name
    assert (parsed.kind, unknown_fields(accepted)) == (accepted["kind"], ())
    assert (parsed.to_json() == accepted) is not has_nulls


@pytest.mark.parametrize("stored", MINIMUMS, ids=lambda stored: stored["case"])
def test_what_is_stored_since_before_there_were_minimums_is_read_and_told(stored: Manifest) -> None:
    resource = parse(manifest(stored["kind"], stored["spec"], namespace="prod"))

    told = [problem.field for problem in build_system([resource]).problems]

    assert stored["told"] in told


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
        ({}, "object without a name: apiVersion is missing: write inferno.platform.ai/v1alpha1"),
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
            "Server example: spec.class is missing; spec.model is missing",
        ),
        (
            server(minNumReplicas="one"),
            "Server example: spec.minNumReplicas must be a valid integer, not 'one'",
        ),
        (
            server(modelBooster={"name": "b", "backends": []}),
            "Server example: spec.modelBooster.backends must not be empty, not []",
        ),
        (
            server(modelBooster={"name": "b", "backends": [{"name": "a"}]}),
            "Server example: spec.modelBooster.backends[0].accelerator is missing",
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


def test_an_optimizer_without_flags_is_asked_for_nothing_and_solves_greedily() -> None:
    parsed = parse(manifest("Optimizer", {"data": {"optimizer": {}}}))

    assert isinstance(parsed, Optimizer)
    flags = parsed.spec.data.optimizer
    assert not parsed.spec.optimize
    assert not any((flags.unlimited, flags.heterogeneous, flags.milp_solver, flags.use_cplex))


def test_all_that_is_wrong_with_an_object_is_told_at_once_up_to_a_limit() -> None:
    data = [{"acc": "A"}] * 3

    with pytest.raises(ManifestError) as few:
        parse(manifest("Accelerator", {"cost": "4O"}))
    with pytest.raises(ManifestError) as many:
        parse(manifest("Model", {"data": data}))

    assert few.value.path == "spec.name"
    assert few.value.problem == (
        "is missing; spec.type is missing; spec.cost must be a valid number, not '4O'"
    )
    assert str(many.value).endswith("; spec.data[2].accCount is missing (and 2 more)")


def test_unknown_fields_are_told_with_the_known_field_that_is_nearest() -> None:
    target = {"model": "m", "slo-tpot": 40}
    misspelt = manifest("ServiceClass", {"name": "P", "prio": 1, "data": [target]})
    load = {"arrivalRate": 6, "avgLength": 9, "avgLenght": 8}
    nested = server(currentAlloc={"accelerator": "", "numReplicas": 0, "load": load})

    assert [
        (error.path, error.problem.partition(" (")[0]) for error in unknown_fields(misspelt)
    ] == [
        ("spec.data[0].slo-tpot", "is unknown; did you mean slo-itl?"),
        ("spec.prio", "is unknown; did you mean priority?"),
    ]
    (error,) = unknown_fields(nested)
    assert str(error).startswith(
        "Server example: spec.currentAlloc.load.avgLenght is unknown; did you mean avgLength"
    )


def test_what_others_write_on_an_object_is_no_unknown_field() -> None:
    written = {
        **manifest(
            "Accelerator",
            {"name": "A", "type": "A", "cost": 1},
            managedFields=[{"manager": "kubectl"}],
            ownerReferences=[],
            annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        ),
        "status": {"active": True, "of": "another version"},
    }

    assert unknown_fields(written) == ()


def test_a_status_of_the_version_before_is_read_without_the_fields_that_are_gone() -> None:
    account = {
        "since": "2026-11-22T18:00:00Z",
        "time": "2026-11-24T12:00:00Z",
        "accelerator": "A100",
        **dict.fromkeys(("countedSeconds", "requests", "keptRequests", "paid", "planned"), 10.5),
        "peakReplicas": 4,
        "staticPeak": 20,
        "policies": [{"policy": "hpa", "cost": 15}],
    }
    status = {"savings": account, "lastAccelerator": "A100"}
    stored = {**server(), "status": status}

    read = parse(stored)

    assert isinstance(read, Server)
    assert read.status.to_json() == {"lastAccelerator": "A100"}
    assert unknown_fields(stored) == ()


def test_unknown_fields_are_dropped() -> None:
    given = server(
        currentAlloc={"accelerator": "", "numReplicas": 0, "colour": "red"},
        minNumReplicas=4.0,
        min_num_replicas=5,  # names of Python are no fields
        service_class="D",
    )

    found = parse(given).to_json()

    assert found == server(currentAlloc={"accelerator": "", "numReplicas": 0}, minNumReplicas=4)
    assert repr(found["spec"]["minNumReplicas"]) == "4"


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


def test_times_are_written_as_the_api_server_writes_them() -> None:
    metadata = Metadata.model_validate(
        {"name": "a", "creationTimestamp": "2026-05-04T12:30:00+02:00"}
    )

    assert metadata.creation_timestamp == datetime(2026, 5, 4, 10, 30, tzinfo=UTC)
    assert metadata.to_json()["creationTimestamp"] == "2026-05-04T10:30:00Z"


def test_objects_with_the_same_fields_share_what_says_which_are_given() -> None:
    first, second = (Allocation(accelerator=name, num_replicas=1) for name in "AB")
    costly, dear = (each.model_copy(update={"cost": 2.0}) for each in (first, second))

    assert first.model_fields_set is second.model_fields_set
    assert costly.model_fields_set is dear.model_fields_set
    assert first.to_json() == {"accelerator": "A", "numReplicas": 1}
    assert dear.to_json() == {"accelerator": "B", "numReplicas": 1, "cost": 2.0}


def test_the_json_of_fields_is_that_of_the_object() -> None:
    load = Load(arrival_rate=2.0, arrival_cov=1.0, avg_length=30)
    fields: Manifest = {"accelerator": "A", "num_replicas": 1, "cost": 2.5, "max_batch": None}

    found = Allocation.json_of(**fields, load=Load.json_of(**dict(load)))

    assert found == Allocation(**fields, load=load).to_json()


def test_windows_of_a_measurement_may_be_equal_and_have_defaults() -> None:
    """Those that are refused are in `tests/data/crds/refused.yaml`."""
    measure = {"source": "vLLM", "labels": {"model_name": "m"}, "windows": {"longSeconds": 60}}

    found = parse(server(measure=measure))

    assert isinstance(found, Server)
    assert found.spec.measure is not None
    assert found.spec.measure.windows is not None
    assert found.spec.measure.windows.short_seconds == 60
