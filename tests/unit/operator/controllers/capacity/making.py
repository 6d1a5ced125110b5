"""Nodes and pods as the API server has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from inferno_operator.controllers.capacity.machines import (
    Machine,
    Pod,
    read_machine,
    read_pod,
)

Manifest = dict[str, Any]

GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
H100 = {PRODUCT: "NVIDIA-H100-80GB-HBM3"}


def node(
    name: str = "n",
    cards: int = 8,
    labels: Mapping[str, str] = H100,
    *,
    resource: str = GPU,
    ready: bool = True,
    cordoned: bool = False,
    taints: Sequence[str] = (),
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels), "resourceVersion": "1"},
        "spec": {
            "unschedulable": cordoned,
            "taints": [{"key": key, "effect": "NoSchedule"} for key in taints],
        },
        "status": {
            "allocatable": {"cpu": "64", resource: str(cards)},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def container(cards: int, resource: str = GPU, **fields: object) -> Manifest:
    return {
        "name": "c",
        "image": "example.com/engine",
        "resources": {"limits": {resource: str(cards)}, "requests": {resource: str(cards)}},
        **fields,
    }


def pod(
    name: str = "p",
    node: str = "n",
    cards: int = 1,
    *,
    resource: str = GPU,
    namespace: str = "elsewhere",
    labels: Mapping[str, str] | None = None,
    phase: str = "Running",
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "resourceVersion": "1",
        },
        "spec": {"nodeName": node, "containers": [container(cards, resource)]},
        "status": {"phase": phase},
    }


def machine(**fields: Any) -> Machine:  # noqa: ANN401 - handed on
    return read_machine(node(**fields))


def card_pod(**fields: Any) -> Pod:  # noqa: ANN401 - handed on
    found = read_pod(pod(**fields))
    assert found is not None
    return found
