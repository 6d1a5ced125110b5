"""Where the replicas of a booster with one backend stand."""

from typing import Any

import pytest

from inferno_operator.controllers.actuation.targets import (
    Bounds,
    Workload,
    bounds_for,
    compose,
    read_bounds,
)
from inferno_operator.resources import ModelBoosterRef

Manifest = dict[str, Any]

POLICY: Manifest = {"autoscalingPolicy": {"metrics": []}}


def reference(**fields: object) -> ModelBoosterRef:
    backends = [{"name": "a", "accelerator": "A"}]
    return ModelBoosterRef.model_validate({"name": "m", "backends": backends, **fields})


def workload(backend: Manifest, **spec: object) -> Workload:
    metadata = {"name": "m", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    return Workload({"metadata": metadata, "spec": {"backend": {"name": "a", **backend}, **spec}})


ONE_NUMBER = {"replicas": 2}  # Kthena v1.0.0
TWO_BOUNDS = {"minReplicas": 2, "maxReplicas": 2}  # before it


@pytest.mark.parametrize("backend", [ONE_NUMBER, TWO_BOUNDS], ids=["replicas", "bounds"])
def test_the_bounds_of_one_backend_are_read(backend: Manifest) -> None:
    assert read_bounds(reference(), workload(backend)) == {"a": Bounds(2, 2)}


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
    now = read_bounds(reference(), there)["a"]
    wanted = bounds_for(reference(), there, "a", now, replicas)

    (write,) = compose(reference(), there, {"a": wanted})

    assert write.spec == {"backend": written}


def test_one_backend_that_is_as_it_should_be_is_not_written() -> None:
    assert compose(reference(), workload(ONE_NUMBER), {"a": Bounds(2, 2)}) == ()


def test_the_policy_beside_one_backend_is_its_own() -> None:
    """Its autoscaler would not come back from none, and works below a ceiling."""
    there = workload({"minReplicas": 1, "maxReplicas": 9}, **POLICY)
    now = Bounds(1, 9)

    assert bounds_for(reference(), there, "a", now, 0) == Bounds(1, 1)
    assert bounds_for(reference(bounds="Ceiling"), there, "a", now, 4) == Bounds(1, 4)
