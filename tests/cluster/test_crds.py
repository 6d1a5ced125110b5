import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.resources import (
    API_VERSION,
    GROUP,
    RESOURCES,
    SYSTEM_RESOURCES,
    ManifestError,
    parse,
)
from tests.controlplane import ControlPlane
from tests.controlplane.errors import ApiError
from tests.controlplane.waiting import wait_until

pytestmark = pytest.mark.usefixtures("crds_installed")

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data/crds"
REFUSED = [
    refused
    for name in ("refused.yaml", "minimums.yaml")
    for refused in yaml.safe_load((DATA / name).read_text())
]
SAMPLES = sorted(
    path.parent
    for path in (ROOT / "samples").glob("*/kustomization.yaml")
    if path.parent.name != "model-booster"  # it needs definitions besides ours
)

Manifest = dict[str, Any]


def manifest(kind: str, name: str, **fields: object) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, **fields}


def create(control_plane: ControlPlane, namespace: str, *manifests: Manifest) -> None:
    """Create objects; the API server prunes fields that it does not know."""
    control_plane.api.create(manifests, namespace, field_validation="Ignore")


def condition(type_: str, reason: str) -> Manifest:
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-05-04T10:30:00Z",
        "observedGeneration": 1,
    }


def table(control_plane: ControlPlane, namespace: str, resource: str) -> dict[str, str]:
    """Return the one line of a wide `kubectl get` by column; no value may be empty."""
    shown = control_plane.kubectl("get", resource, "--namespace", namespace, "--output=wide")
    header, row = (line.split() for line in shown.stdout.splitlines())
    return dict(zip(header, row, strict=True))


def objects(control_plane: ControlPlane, namespace: str) -> Iterator[Manifest]:
    for resource in RESOURCES:
        yield from control_plane.items(f"{resource.plural}.{GROUP}", namespace)


def test_the_crds_are_established_and_structural(control_plane: ControlPlane) -> None:
    for resource in RESOURCES:
        crd = control_plane.get("crd", f"{resource.plural}.{GROUP}")
        conditions = {item["type"]: item["status"] for item in crd["status"]["conditions"]}

        assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_the_api_server_has_no_warning_about_the_crds(control_plane: ControlPlane) -> None:
    said = control_plane.kubectl(
        "replace", "--dry-run=server", "--warnings-as-errors", "--filename", ROOT / "crds"
    ).stdout

    assert said.count(" replaced (server dry run)\n") == len(RESOURCES)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_short_names_mean_our_kinds(control_plane: ControlPlane, resource: type[Any]) -> None:
    for name in (resource.plural, *resource.short_names):
        explained = control_plane.kubectl("explain", name).stdout

        assert f"KIND:       {resource.kind}\n" in explained


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_sample_applies_and_is_listed_by_the_category(
    control_plane: ControlPlane, namespace: str, sample: Path
) -> None:
    control_plane.kubectl("apply", "--namespace", namespace, "--kustomize", sample)
    listed = control_plane.kubectl("get", "inferno", "--namespace", namespace, "--output=name")
    kinds = {line.partition(".")[0] for line in listed.stdout.splitlines()}

    assert kinds == {resource.kind.lower() for resource in SYSTEM_RESOURCES}


def test_what_the_original_accepts_and_the_new_fields_are_accepted_and_read_back(
    control_plane: ControlPlane, namespace: str
) -> None:
    file = DATA / "accepted.yaml"
    names = {item["metadata"]["name"] for item in yaml.safe_load_all(file.read_text())}

    control_plane.kubectl("apply", "--namespace", namespace, "--filename", file)
    resources = [parse(item) for item in objects(control_plane, namespace)]

    assert {resource.metadata.name for resource in resources} == names
    assert {resource.metadata.namespace for resource in resources} == {namespace}


def test_an_object_without_a_spec_is_accepted_but_cannot_be_read(
    control_plane: ControlPlane, namespace: str
) -> None:
    create(control_plane, namespace, *(manifest(resource.kind, "empty") for resource in RESOURCES))
    found = list(objects(control_plane, namespace))

    assert len(found) == len(RESOURCES)
    for item in found:
        with pytest.raises(ManifestError, match=f"{namespace}/empty: spec is missing"):
            parse(item)


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused["case"])
def test_a_bad_object_is_refused_with_the_name_of_the_field(
    control_plane: ControlPlane, refused: Manifest
) -> None:
    bad = manifest(refused["kind"], "bad", spec=refused["spec"])

    with pytest.raises(ApiError) as answer:
        create(control_plane, "default", bad)

    assert f"{refused['field']}: " in str(answer.value)
    assert refused.get("because", "") in str(answer.value)


def test_unknown_fields_are_pruned_and_defaults_filled_in(
    control_plane: ControlPlane, namespace: str
) -> None:
    spec = {"name": "A100", "type": "A100", "cost": 40.00, "memSize": 80.0, "colour": "red"}

    create(control_plane, namespace, manifest("Accelerator", "a100", spec=spec))
    stored = control_plane.get("accelerators", "a100", namespace)["spec"]

    assert stored == {
        "name": "A100",
        "type": "A100",
        "multiplicity": 1,
        "memSize": 80,
        "cost": 40,
    }


def test_the_status_is_a_subresource(control_plane: ControlPlane, namespace: str) -> None:
    count: Manifest = {"count": [{"type": "A100", "count": 4}]}

    create(
        control_plane,
        namespace,
        manifest("Capacity", "capacity", spec=count, status={"active": True}),
    )
    created = control_plane.get("capacities", "capacity", namespace)
    control_plane.patch(
        "capacities", "capacity", {"status": {"active": True}}, namespace, subresource="status"
    )
    patched = control_plane.get("capacities", "capacity", namespace)

    assert "status" not in created
    assert patched["status"] == {"active": True}
    assert patched["metadata"]["generation"] == created["metadata"]["generation"]


def test_the_columns_of_a_server_show_the_decision(
    control_plane: ControlPlane, namespace: str
) -> None:
    now = {"accelerator": "A100", "numReplicas": 4, "cost": 160}
    decision = {
        "accelerator": "G2",
        "numReplicas": 2,
        "maxBatch": 19,
        "cost": 50.5,
        "itlAverage": 19.79,
    }
    spec = {
        "name": "Chat",
        "class": "Premium",
        "model": "granite-13b",
        "currentAlloc": now,
        "desiredAlloc": decision,
    }
    status = {
        "conditions": [condition("Ready", "Accepted"), condition("Allocated", "BestEffort")],
        "measured": {"time": "2026-03-01T12:00:00Z", "quality": "Fresh", "arrivalRate": 90.5},
    }

    create(control_plane, namespace, manifest("Server", "chat", spec=spec))
    control_plane.patch("servers", "chat", {"status": status}, namespace, subresource="status")
    shown = table(control_plane, namespace, "servers")
    shown.pop("AGE")

    assert shown == {
        "NAME": "chat",
        "CLASS": "Premium",
        "MODEL": "granite-13b",
        "ACCELERATOR": "G2",
        "REPLICAS": "2",
        "COST": "50.5",
        "READY": "True",
        "BATCH": "19",
        "ITL": "19.79",
        "NOW-ON": "A100",
        "NOW-REPLICAS": "4",
        "NOW-COST": "160",
        "ALLOCATED": "BestEffort",
        "MEASURED": "Fresh",
        "ARRIVALS": "90.5",
    }


def test_the_columns_of_an_optimizer_show_the_last_optimization(
    control_plane: ControlPlane, namespace: str
) -> None:
    flags = {"unlimited": False, "heterogeneous": False, "milpSolver": True, "useCplex": False}
    last = {
        "time": "2026-05-04T10:30:00Z",
        "requestedGeneration": 1,
        "servers": 20,
        "allocated": 18,
        "cost": 3261.5,
        "certificate": {
            "solver": "HiGHS",
            "status": "Optimal",
            "objective": 2101.25,
            "bound": 2101,
            "gap": 0.0001,
            "seconds": 0.25,
        },
        "unserved": [{"server": "Chat", "reason": "NoCapacity", "message": "no A100 is left"}],
        "capacity": [{"type": "A100", "used": 32, "available": 32, "price": 12.5}],
    }
    status = {
        "active": True,
        "observedGeneration": 1,
        "done": True,
        "lastOptimization": last,
        "conditions": [condition("Ready", "Optimized"), condition("Optimized", "Optimized")],
    }

    create(
        control_plane,
        namespace,
        manifest("Optimizer", "fleet", spec={"optimize": False, "data": {"optimizer": flags}}),
    )
    stored = control_plane.patch(
        "optimizers", "fleet", {"status": status}, namespace, subresource="status"
    )
    shown = table(control_plane, namespace, "optimizers")
    del shown["AGE"], shown["LAST"]

    assert parse(stored).status.to_json() == status
    assert shown == {
        "NAME": "fleet",
        "MODE": "Auto",
        "OPTIMIZE": "false",
        "DONE": "true",
        "OPTIMIZED": "Optimized",
        "SERVERS": "20",
        "ALLOCATED": "18",
        "COST": "3261.5",
        "GAP": "0.0001",
        "READY": "True",
        "SOLVER": "HiGHS",
        "SECONDS": "0.25",
    }


def test_the_columns_of_a_capacity_show_all_types(
    control_plane: ControlPlane, namespace: str
) -> None:
    count: Manifest = {"count": [{"type": "A100", "count": 4}, {"type": "G2", "count": 8}]}

    create(control_plane, namespace, manifest("Capacity", "capacity", spec=count))
    shown = control_plane.kubectl("get", "capacities", "-n", namespace, "--output=wide").stdout

    assert '[{"count":4,"type":"A100"},{"count":8,"type":"G2"}]' in shown


def test_the_conditions_of_two_writers_are_merged_by_type(
    control_plane: ControlPlane, namespace: str
) -> None:
    create(
        control_plane,
        namespace,
        manifest("Server", "chat", spec={"name": "Chat", "class": "Premium", "model": "m"}),
    )
    for writer in ("Ready", "Allocated"):
        status = {"conditions": [condition(writer, "Because")]}
        control_plane.kubectl(
            "apply",
            "--server-side",
            f"--field-manager={writer}",
            "--subresource=status",
            "--namespace",
            namespace,
            "--filename=-",
            input=json.dumps(manifest("Server", "chat", status=status)),
        )
    conditions = control_plane.get("servers", "chat", namespace)["status"]["conditions"]

    assert {item["type"] for item in conditions} == {"Ready", "Allocated"}


CARDS = {"name": "A", "type": "A100", "multiplicity": 2, "cost": 40}
ON_A = {"acc": "A", "accCount": 2, "alpha": 9, "beta": 1, "maxBatchSize": 8, "atTokens": 256}
ON_B = {**ON_A, "acc": "B"}
STEPS = {"stepParms": {"alpha": 9, "kappa": 0, "delta": 0}}
PREFILL = {**{k: v for k, v in ON_A.items() if k not in ("alpha", "beta")}, **STEPS}
MODEL = {"name": "M", "data": [ON_A, ON_B]}

NEW_ACCELERATOR = "as replicas run on these cards: make a new Accelerator"


def refusal(control_plane: ControlPlane, namespace: str, kind: str, spec: Manifest) -> str:
    """What the API server says against the change of an object; "" if it takes it."""
    try:
        control_plane.patch(kind, "x", {"spec": spec}, namespace)
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("change", [{"type": "H100"}, {"multiplicity": 1}], ids=str)
def test_the_cards_of_an_accelerator_do_not_change(
    control_plane: ControlPlane, namespace: str, change: Manifest
) -> None:
    create(control_plane, namespace, manifest("Accelerator", "x", spec=CARDS))

    said = refusal(control_plane, namespace, "accelerators", change)

    assert f"type and multiplicity do not change, {NEW_ACCELERATOR}" in said
    assert not refusal(control_plane, namespace, "accelerators", {"cost": 41, "name": "B"})


@pytest.mark.parametrize(
    "data",
    [[{**ON_A, "accCount": 4}, ON_B], [ON_B, {**ON_A, "accCount": 4}], [{**ON_B, "accCount": 1}]],
    ids=["changed", "moved and changed", "changed, and the other one removed"],
)
def test_the_accelerators_of_a_replica_do_not_change(
    control_plane: ControlPlane, namespace: str, data: list[Manifest]
) -> None:
    create(control_plane, namespace, manifest("Model", "x", spec=MODEL))

    said = refusal(control_plane, namespace, "models", {"data": data})

    assert f"accCount does not change, {NEW_ACCELERATOR}" in said


@pytest.mark.parametrize(("before", "after"), [(0, 1), (-1, 1), (1, 0)])
def test_a_number_that_counts_as_one_may_be_corrected_to_one(
    control_plane: ControlPlane, namespace: str, before: int, after: int
) -> None:
    model = {"name": "M", "data": [{**ON_A, "accCount": before}]}
    create(control_plane, namespace, manifest("Model", "x", spec=model))

    for count in (2, after):
        data = [{**ON_A, "accCount": count}]
        said = refusal(control_plane, namespace, "models", {"data": data})

        assert bool(said) == (count == 2)


@pytest.mark.parametrize(
    "data",
    [
        [ON_B, ON_A],
        [ON_B],
        [{**ON_A, "alpha": 8}, ON_B],
        [ON_A, {**PREFILL, "role": "Prefill", "accCount": 8}],
        [ON_A, ON_B, {**ON_A, "acc": "4xA", "accCount": 1}],
    ],
    ids=["order", "removed", "other times", "another role", "a new accelerator"],
)
def test_all_else_of_performance_data_changes(
    control_plane: ControlPlane, namespace: str, data: list[Manifest]
) -> None:
    create(control_plane, namespace, manifest("Model", "x", spec=MODEL))

    assert not refusal(control_plane, namespace, "models", {"data": data})


def test_data_that_were_removed_come_back_as_new_ones(
    control_plane: ControlPlane, namespace: str
) -> None:
    """CEL compares an item with the one of the same `acc` and `role` that it replaces, if any."""
    create(control_plane, namespace, manifest("Model", "x", spec=MODEL))

    assert not refusal(control_plane, namespace, "models", {"data": [ON_B]})
    assert not refusal(
        control_plane, namespace, "models", {"data": [ON_B, {**ON_A, "accCount": 4}]}
    )


def test_a_model_of_the_version_before_is_read_and_written(
    control_plane: ControlPlane, namespace: str
) -> None:
    """It has data for an accelerator twice, and a writer that knows fields of before."""
    data = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/data"
    gone = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys")
    before = [{"op": "remove", "path": f"{data}/{field}"} for field in gone]
    before += [{"op": "remove", "path": f"{data}/items/x-kubernetes-validations"}]
    twice = manifest("Model", "x", spec={"name": "M", "data": [ON_A, {**ON_A, "alpha": 8}]})
    patch = ("--type=json", "--patch", json.dumps(before))
    assert _refused(control_plane, namespace, twice)
    control_plane.kubectl("patch", "crd", f"models.{GROUP}", *patch)
    try:
        taken = partial(_refused, control_plane, namespace, twice)
        wait_until(taken, lambda is_refused: not is_refused, "the definition of before is served")
    finally:
        control_plane.install_crds(ROOT / "crds")
    other = manifest("Model", "y", spec=twice["spec"])
    refused = partial(_refused, control_plane, namespace, other)
    wait_until(refused, bool, "the new definition is served")

    status = {"conditions": [condition("Ready", "Valid")]}
    old = {**status, "replicaCards": [{"acc": "A", "accCount": 2}], "performance": [ON_A]}
    written = control_plane.patch("models", "x", {"status": old}, namespace, "status")

    assert written["status"] == {"active": False, **status}
    assert parse({**written, "status": old}).status.to_json() == status
    assert not refusal(control_plane, namespace, "models", {"calibrate": "Off"})


def _refused(control_plane: ControlPlane, namespace: str, made: Manifest) -> bool:
    """Whether the API server refuses an object because items have the same key."""
    try:
        create(control_plane, namespace, made)
    except ApiError as error:
        return "Duplicate value" in str(error)
    return False
