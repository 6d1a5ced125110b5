"""Where the replicas of backends stand, in the objects of all releases."""

from typing import Any

import pytest

from inferno_operator.controllers.scaling.boosters import (
    BoosterObjects,
    Bounds,
    BoundsWrite,
    ScaledBackend,
    find_backend,
    plan_writes,
)
from inferno_operator.resources import ModelBoosterRef
from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.objects import Kind

Manifest = dict[str, Any]

POLICY: Manifest = {"autoscalingPolicy": {"metrics": []}}


def reference(**fields: object) -> ModelBoosterRef:
    backends = [{"name": "a", "accelerator": "A"}]
    return ModelBoosterRef.model_validate({"name": "m", "backends": backends, **fields})


def metadata(name: str) -> Manifest:
    return {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}


def workload(backend: Manifest, **spec: object) -> BoosterObjects:
    booster = {"metadata": metadata("m"), "spec": {"backend": {"name": "a", **backend}, **spec}}
    return BoosterObjects({"m": booster})


def parts_of(reference: ModelBoosterRef, there: BoosterObjects) -> dict[str, ScaledBackend]:
    """The backends by place whose numbers are found."""
    found = {each.place: find_backend(reference, each, there) for each in reference.backends}
    return {place: part for place, part in found.items() if isinstance(part, ScaledBackend)}


def write(
    reference: ModelBoosterRef, there: BoosterObjects, **numbers: int
) -> tuple[BoundsWrite, ...]:
    """The writes that have backends ask for so many replicas."""
    return plan_writes(parts_of(reference, there), numbers)


ONE_NUMBER = {"replicas": 2}  # Kthena v1.0.0
TWO_BOUNDS = {"minReplicas": 2, "maxReplicas": 2}  # before it


@pytest.mark.parametrize("backend", [ONE_NUMBER, TWO_BOUNDS], ids=["replicas", "bounds"])
def test_the_bounds_of_one_backend_are_read(backend: Manifest) -> None:
    (part,) = parts_of(reference(), workload(backend)).values()

    assert part.fields.bounds == Bounds(2, 2)
    assert part.count_replicas(None) == 2


@pytest.mark.parametrize(
    ("backend", "replicas", "written"),
    [
        (ONE_NUMBER, 5, {"replicas": 5}),
        (ONE_NUMBER, 0, {"replicas": 0}),
        (TWO_BOUNDS, 5, {"minReplicas": 5, "maxReplicas": 5}),
        (TWO_BOUNDS, 0, {"minReplicas": 0, "maxReplicas": 1}),
    ],
)
def test_one_backend_is_written_as_it_is_read(
    backend: Manifest, replicas: int, written: Manifest
) -> None:
    there = workload(backend)

    (only,) = write(reference(), there, A=replicas)

    assert only.spec == {"backend": written}


def test_one_backend_that_is_as_it_should_be_is_not_written() -> None:
    assert write(reference(), workload(ONE_NUMBER), A=2) == ()


def test_the_policy_beside_one_backend_is_its_own() -> None:
    """Its autoscaler would not come back from none, and works below a ceiling."""
    there = workload({"minReplicas": 1, "maxReplicas": 9}, **POLICY)

    (pinned,) = parts_of(reference(), there).values()
    (below,) = parts_of(reference(bounds="Ceiling"), there).values()

    assert pinned.bounds_for(0) == Bounds(1, 1)
    assert below.bounds_for(4) == Bounds(1, 4)
    assert below.count_replicas(4) == 9


def scaled(name: str, **fields: object) -> Manifest:
    """What a binding or a policy has for one target."""
    target = {"targetRef": {"kind": "ModelServing", "name": name}}
    return {"target": target, "minReplicas": 0, "maxReplicas": 9, **fields}


def scaler(**spec: object) -> Manifest:
    return {"metadata": metadata("mine"), "spec": spec}


@pytest.mark.parametrize(
    ("kind", "one", "several"),
    [
        (KTHENA.binding, "scalingConfiguration", "optimizerConfiguration"),  # v0.1.0
        (KTHENA.binding, "homogeneousTarget", "heterogeneousTarget"),  # v0.2.0 to v0.4.0
        (KTHENA.policy, "homogeneousTarget", "heterogeneousTarget"),  # v1.0.0
    ],
    ids=["v0.1", "v0.2 to v0.4", "v1.0"],
)
def test_the_bounds_of_an_autoscaler_are_written_where_its_release_has_them(
    kind: Kind, one: str, several: str
) -> None:
    refers = reference(target="Binding")
    boosters = workload(ONE_NUMBER).boosters
    alone = BoosterObjects(boosters, scalers={kind: [scaler(**{one: scaled("m-a")})]})
    params = [scaled("other", cost=5), scaled("m-a", cost=7)]
    mixed = BoosterObjects(boosters, scalers={kind: [scaler(**{several: {"params": params}})]})

    (of_one,) = write(refers, alone, A=3)
    (of_several,) = write(refers, mixed, A=3)

    given = {"minReplicas": 3, "maxReplicas": 3}
    assert of_one.spec == {one: given}
    assert of_several.spec == {several: {"params": [params[0], {**params[1], **given}]}}
    assert {each.kind for each in (of_one, of_several)} == {kind}


def refers(**fields: str) -> Manifest:
    return {"kind": "ModelServing", "name": "m-a", **fields}


OF_ANOTHER_NAMESPACE = {"targetRef": refers(namespace="other")}


@pytest.mark.parametrize(
    "spec",
    [
        {"homogeneousTarget": scaled("m-a", target={"targetRef": {"kind": "Deployment"}})},
        {
            "homogeneousTarget": scaled(
                "m-a", target={"targetRef": {"name": "m-a"}, "subTargets": {"kind": "Role"}}
            )
        },
        {"homogeneousTarget": scaled("m-a", target={"targetRef": refers(namespace="other")})},
        {"heterogeneousTarget": {"params": [scaled("m-a", target=OF_ANOTHER_NAMESPACE)]}},
        {"disaggregatedTarget": {"targetRef": {"kind": "ModelServing", "name": "m-a"}}},
        {"metrics": []},
    ],
    ids=[
        "another kind",
        "a role",
        "another namespace",
        "another namespace, one of several",
        "roles in a ratio",
        "no target",
    ],
)
def test_what_does_not_scale_the_whole_serving_is_left_alone(spec: Manifest) -> None:
    there = BoosterObjects(workload(ONE_NUMBER).boosters, scalers={KTHENA.policy: [scaler(**spec)]})

    assert parts_of(reference(target="Binding"), there) == {}


@pytest.mark.parametrize(
    "fields",
    [{"kind": ""}, {"namespace": ""}, {"namespace": "ns"}, {"kind": "", "namespace": "ns"}],
)
def test_a_kind_or_namespace_that_is_empty_is_the_usual_one(fields: dict[str, str]) -> None:
    spec = {"homogeneousTarget": scaled("m-a", target={"targetRef": refers(**fields)})}
    there = BoosterObjects(workload(ONE_NUMBER).boosters, scalers={KTHENA.policy: [scaler(**spec)]})

    assert list(parts_of(reference(target="Binding"), there)) == ["A"]


SEVERAL = ModelBoosterRef.model_validate(
    {
        "name": "m",
        "backends": [
            {"name": "a", "accelerator": "A"},
            {"name": "a", "accelerator": "H", "booster": "n"},
        ],
    }
)


def test_backends_of_several_boosters_are_written_each_in_its_own() -> None:
    boosters = {
        name: {"metadata": metadata(name), "spec": {"backend": {"name": "a", "replicas": 1}}}
        for name in ("m", "n")
    }

    writes = write(SEVERAL, BoosterObjects(boosters), A=2, H=3)

    written = {each.manifest["metadata"]["name"]: each.spec for each in writes}
    assert written == {"m": {"backend": {"replicas": 2}}, "n": {"backend": {"replicas": 3}}}


@pytest.mark.parametrize(
    "backends",
    [
        [{"name": "a", "accelerator": "A"}, {"name": "a", "accelerator": "H"}],
        [{"name": "n-a", "accelerator": "A"}, {"name": "a", "accelerator": "H", "booster": "m-n"}],
    ],
    ids=["the same", "one serving"],
)
def test_two_backends_are_not_one_serving(backends: list[Manifest]) -> None:
    with pytest.raises(ValueError, match="each backend is named once"):
        reference(backends=backends)
