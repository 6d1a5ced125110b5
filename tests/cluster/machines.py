"""Nodes and pods of a cluster that nobody runs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient, CoreV1Api

from tests.cluster.background import client_of

AT_A_TIME = 8

KINDS: Mapping[str, tuple[str, int, Mapping[str, str]]] = {
    "H100": ("nvidia.com/gpu", 8, {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
    "L4": ("nvidia.com/gpu", 4, {"cloud.google.com/gke-accelerator": "nvidia-l4"}),
    "A10G": ("nvidia.com/gpu", 1, {"node.kubernetes.io/instance-type": "g5.xlarge"}),
    "MI300X": ("amd.com/gpu", 8, {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}),
    "Gaudi2": ("habana.ai/gaudi", 8, {"habana.ai/product.name": "GAUDI2"}),
    "T4": ("nvidia.com/gpu", 2, {"pool": "old-cards"}),
}
"""Resource, cards and labels of nodes by the type of their cards; T4 need a selection."""


class Machines:
    """Nodes with cards, and pods that have some of these."""

    def __init__(self, api: ApiClient) -> None:
        self._core = CoreV1Api(api)
        self._numbers = count(1)
        self._nodes: dict[str, str] = {}
        """The type of the cards of each."""
        self._pods: dict[str, str] = {}
        """The namespace of each."""

    def add_nodes(self, number: int) -> None:
        """Add nodes of all kinds, one kind after the other."""
        kinds = sorted(KINDS)
        names = [f"node-{next(self._numbers)}" for _ in range(number)]
        _do(partial(self.add, name, kinds[n % len(kinds)]) for n, name in enumerate(names))

    def add(self, name: str, card_type: str) -> None:
        """Add a node that takes pods: the API server taints new ones, and nobody untaints them."""
        resource, cards, labels = KINDS[card_type]
        allocatable = {"cpu": "8", resource: str(cards)}
        metadata = {"name": name, "labels": dict(labels)}
        body: Any = {"metadata": metadata, "status": {"allocatable": allocatable}}
        self._core.create_node(body)
        self._core.patch_node(name, {"spec": {"taints": []}})
        conditions = [{"type": "Ready", "status": "True"}]
        self._core.patch_node_status(name, {"status": {"conditions": conditions}})
        self._nodes[name] = card_type

    def fill(self, card_type: str, namespace: str, cards: int) -> None:
        """Add a pod on a node with cards of a type."""
        resource, _, _ = KINDS[card_type]
        container = {
            "name": "c",
            "image": "example.com/c",
            "resources": {"limits": {resource: str(cards)}},
        }
        name = f"pod-{next(self._numbers)}"
        spec = {
            "nodeName": min(node for node, has in self._nodes.items() if has == card_type),
            "containers": [container],
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
        }
        body: Any = {"metadata": {"name": name, "labels": {"app": "stranger"}}, "spec": spec}
        self._core.create_namespaced_pod(namespace, body)
        self._pods[name] = namespace

    def remove_all(self) -> None:
        """Remove all nodes and pods."""
        delete = partial(self._core.delete_namespaced_pod, grace_period_seconds=0)
        pods = [partial(delete, name, namespace) for name, namespace in self._pods.items()]
        _do([*pods, *(partial(self._core.delete_node, name) for name in self._nodes)])


def _do(changes: Iterable[Callable[[], object]]) -> None:
    """Do several changes at a time."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for result in [pool.submit(change) for change in changes]:
            result.result()


@contextmanager
def machines(kubeconfig: Path) -> Iterator[Machines]:
    """Nodes and pods that end with the block."""
    with client_of(kubeconfig) as api:
        found = Machines(api)
        try:
            yield found
        finally:
            found.remove_all()
