"""Nodes and pods of a cluster that nobody runs, and what of their cards is used."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from kubernetes.client import ApiClient, CoreV1Api

from tests.cluster.background import client_of

Manifest = dict[str, Any]
Change = Callable[[], object]

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


@dataclass(frozen=True, slots=True)
class Place:
    card_type: str
    is_ready: bool = True
    is_cordoned: bool = False
    is_tainted: bool = False

    @property
    def takes_pods(self) -> bool:
        return self.is_ready and not self.is_cordoned and not self.is_tainted

    @property
    def cards(self) -> int:
        return KINDS[self.card_type][1]


@dataclass(frozen=True, slots=True)
class Guest:
    """A pod on a node; `application` is its label."""

    namespace: str
    node: str
    cards: int
    application: str


class Machines:
    """Nodes and pods that change at random, and a count of their cards by addition.

    Parameters
    ----------
    api
        The API server.
    chance
        What changes.
    """

    def __init__(self, api: ApiClient, chance: Random) -> None:
        self._core = CoreV1Api(api)
        self._chance = chance
        self._numbers = count(1)
        self.nodes: dict[str, Place] = {}
        self.pods: dict[str, Guest] = {}

    def add_nodes(self, number: int) -> None:
        """Add nodes of all kinds, one kind after the other."""
        kinds = sorted(KINDS)
        _do(partial(self._add_node, kinds[i % len(kinds)]) for i in range(number))

    def add(self, name: str, card_type: str) -> None:
        resource, cards, labels = KINDS[card_type]
        allocatable = {"cpu": "8", resource: str(cards)}
        metadata = {"name": name, "labels": dict(labels)}
        body: Any = {"metadata": metadata, "status": {"allocatable": allocatable}}
        self._core.create_node(body)
        self._set_node(name, Place(card_type))

    def add_pods(self, number: int, places: Iterable[tuple[str, str]]) -> None:
        """Add pods of some namespaces and applications on random nodes with room."""
        where = sorted(places)
        pods = [self._guest(*self._chance.choice(where)) for _ in range(number)]
        _do(partial(self._add_pod, *pod) for pod in pods if pod is not None)

    def fill(self, card_type: str, namespace: str, cards: int) -> None:
        """Add a pod on a node with cards of a type."""
        node = min(name for name, place in self.nodes.items() if place.card_type == card_type)
        name = f"pod-{next(self._numbers)}"
        self.pods[name] = Guest(namespace, node, cards, "stranger")
        self._add_pod(name, self.pods[name])

    def change(self, number: int) -> None:
        """Cordon, drain, taint, remove and lose nodes, end and remove pods."""
        nodes = self._chance.sample(sorted(self.nodes), number)
        pods = self._chance.sample(sorted(self.pods), min(number, len(self.pods)))
        chosen = [*map(self._of_node, nodes), *map(self._of_pod, pods)]
        _do([self._chance.choice(changes) for changes in chosen])

    def count(self, card_type: str, applications: Iterable[tuple[str, str]]) -> Mapping[str, int]:
        """Return the cards of a type; ours are those of pods of some applications."""
        ours_are = set(applications)
        total = ours = others = 0
        for name, node in self.nodes.items():
            if node.card_type != card_type or not node.takes_pods:
                continue
            total += node.cards
            for pod in self.pods.values():
                if pod.node == name:
                    is_ours = (pod.namespace, pod.application) in ours_are
                    ours += pod.cards * is_ours
                    others += pod.cards * (not is_ours)
        free = total - ours - others
        return {"total": total, "ours": ours, "others": others, "free": free}

    def remove_all(self) -> None:
        """Remove all nodes and pods."""
        pods = [partial(self._delete_pod, name) for name in self.pods]
        _do([*pods, *(partial(self._delete_node, name) for name in self.nodes)])

    def _add_node(self, card_type: str) -> None:
        self.add(f"node-{next(self._numbers)}", card_type)

    def _set_node(self, name: str, place: Place) -> None:
        """Write what a node is; the API server taints new ones, and nobody is there to untaint."""
        taints = [{"key": "dedicated", "effect": "NoSchedule"}] if place.is_tainted else []
        spec = {"unschedulable": place.is_cordoned or None, "taints": taints}
        self._core.patch_node(name, {"spec": spec})
        conditions = [{"type": "Ready", "status": str(place.is_ready)}]
        self._core.patch_node_status(name, {"status": {"conditions": conditions}})
        self.nodes[name] = place

    def _of_node(self, name: str) -> list[Change]:
        place = self.nodes[name]
        return [
            lambda: self._set_node(name, replace(place, is_cordoned=not place.is_cordoned)),
            lambda: self._set_node(name, replace(place, is_tainted=not place.is_tainted)),
            lambda: self._set_node(name, replace(place, is_ready=not place.is_ready)),
            lambda: self._drain(name, place),
            lambda: self._delete_node(name),
            lambda: self._add_node(place.card_type),
        ]

    def _of_pod(self, name: str) -> list[Change]:
        return [lambda: self._delete_pod(name), lambda: self._end_pod(name)]

    def _drain(self, name: str, place: Place) -> None:
        self._set_node(name, replace(place, is_cordoned=True))
        for pod in [pod for pod, guest in list(self.pods.items()) if guest.node == name]:
            self._delete_pod(pod)

    def _guest(self, namespace: str, application: str) -> tuple[str, Guest] | None:
        """Choose a node with room for a pod, and remember the pod."""
        node = self._chance.choice(sorted(self.nodes))
        used = sum(pod.cards for pod in self.pods.values() if pod.node == node)
        room = self.nodes[node].cards - used
        if room == 0:
            return None
        name = f"pod-{next(self._numbers)}"
        self.pods[name] = Guest(namespace, node, self._chance.randint(1, room), application)
        return name, self.pods[name]

    def _add_pod(self, name: str, guest: Guest) -> None:
        resource = KINDS[self.nodes[guest.node].card_type][0]
        container = {
            "name": "c",
            "image": "example.com/c",
            "resources": {"limits": {resource: str(guest.cards)}},
        }
        metadata = {"name": name, "labels": {"app": guest.application}}
        spec = {
            "nodeName": guest.node,
            "containers": [container],
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
        }
        body: Any = {"metadata": metadata, "spec": spec}
        self._core.create_namespaced_pod(guest.namespace, body)

    def _delete_pod(self, name: str) -> None:
        guest = self.pods.pop(name, None)
        if guest is not None:
            self._core.delete_namespaced_pod(name, guest.namespace, grace_period_seconds=0)

    def _end_pod(self, name: str) -> None:
        guest = self.pods.pop(name, None)
        if guest is not None:
            ended = {"status": {"phase": "Succeeded"}}
            self._core.patch_namespaced_pod_status(name, guest.namespace, ended)

    def _delete_node(self, name: str) -> None:
        del self.nodes[name]
        self._core.delete_node(name)


def _do(changes: Iterable[Change]) -> None:
    """Do several changes at a time."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for result in [pool.submit(change) for change in changes]:
            result.result()


@contextmanager
def machines(kubeconfig: Path, chance: Random) -> Iterator[Machines]:
    """Nodes and pods that end with the block."""
    with client_of(kubeconfig) as api:
        found = Machines(api, chance)
        try:
            yield found
        finally:
            found.remove_all()
