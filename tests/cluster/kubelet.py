"""Stand-ins for scheduler and kubelet: pods get a node, are ready after a while, and end."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any

from kubernetes import watch
from kubernetes.client import ApiClient, CoreV1Api, V1Binding, V1ObjectMeta, V1ObjectReference
from kubernetes.client.exceptions import ApiException

from tests.cluster.background import TICK_S, Background, Ticking, client_of, unless_gone

Manifest = dict[str, Any]

Rule = Callable[[Mapping[str, int]], bool]
"""Whether the ready replicas, by server, are enough."""


class Kubelet(Ticking):
    """Gives each pod a node, lets it be ready after a cold start, and ends what is deleted.

    Parameters
    ----------
    api, namespace
        Where it works.
    cold_start, ending
        The longest time until a pod is ready, and until it has ended [s].
    spread
        By which share of the longest time the others are shorter at most.
    held
        Applications whose pods begin to start only when they are no more among these.
    """

    def __init__(
        self,
        api: ApiClient,
        namespace: str,
        cold_start: float,
        ending: float,
        spread: float = 1.0,
        held: Container[str] = (),
    ) -> None:
        super().__init__()
        self._core = CoreV1Api(api)
        self._namespace = namespace
        self._longest = {"start": cold_start, "end": ending}
        self._spread = spread
        self._held = held
        self._pods: Counter[tuple[str, str]] = Counter()
        self._due: dict[tuple[str, str], int] = {}
        self._ticks = 0

    def tick(self) -> None:
        """Advance each pod."""
        self._ticks += 1
        for pod in _answer(self._core.list_namespaced_pod, self._namespace)["items"]:
            with unless_gone():
                self._advance(pod)

    def _advance(self, pod: Manifest) -> None:
        name = pod["metadata"]["name"]
        place = name, self._namespace
        if "deletionTimestamp" in pod["metadata"]:
            if self._is_due("end", pod):
                _answer(self._core.delete_namespaced_pod, *place, grace_period_seconds=0)
        elif "nodeName" not in pod["spec"]:
            if node := self.node_for(pod):
                target = V1ObjectReference(kind="Node", name=node, api_version="v1")
                body = V1Binding(metadata=V1ObjectMeta(name=name), target=target)
                _answer(self._core.create_namespaced_pod_binding, *place, body)
            elif not pod["status"].get("conditions"):
                _answer(self._core.patch_namespaced_pod_status, *place, _unschedulable())
        elif pod["status"].get("phase") != "Running" and self._starts(pod):
            _answer(self._core.patch_namespaced_pod_status, *place, _ready())

    def _starts(self, pod: Manifest) -> bool:
        """Whether it is time for a pod to be ready."""
        return _application(pod) not in self._held and self._is_due("start", pod)

    def node_for(self, pod: Manifest) -> str:  # noqa: ARG002 - for those that look at it
        """Return the node of a pod that has none; "" while it has to wait."""
        return "n"

    def _is_due(self, what: str, pod: Manifest) -> bool:
        """Whether it is time; the time is drawn when it is first asked for."""
        place = what, pod["metadata"]["uid"]
        if place not in self._due:
            self._due[place] = self._ticks + self._draw(what, _application(pod))
        return self._ticks >= self._due[place]

    def _draw(self, what: str, application: str) -> int:
        """Ticks that the next pod of an application takes, whatever others there are."""
        most = round(self._longest[what] / TICK_S)
        self._pods[what, application] += 1
        seed = f"{what} {application} {self._pods[what, application]}"
        chance = Random(seed)  # noqa: S311 - the same times each run
        return chance.randint(round(most * (1 - self._spread)), most)


def _answer(call: Callable[..., Any], *arguments: object, **options: object) -> Manifest:
    """The JSON of an answer: to make objects of many pods takes longer than a tick."""
    document: Manifest = json.loads(call(*arguments, **options, _preload_content=False).data)
    return document


def _application(pod: Manifest) -> str:
    name: str = pod["metadata"]["labels"]["app"]
    return name


def _ready() -> Manifest:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    types = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    conditions = [{"type": t, "status": "True", "lastTransitionTime": now} for t in types]
    return {"status": {"phase": "Running", "conditions": conditions}}


def _unschedulable() -> Manifest:
    """What a scheduler says of a pod for which it finds no node."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    }
    return {"status": {"conditions": [condition]}}


def _is_evicted(pod: Manifest) -> bool:
    """Whether the API server says of a pod that it was evicted."""
    conditions = pod["status"].get("conditions", ())
    return any(condition["type"] == "DisruptionTarget" for condition in conditions)


@dataclass(slots=True)
class Pods:
    """Pods by name: their application, and whether they are ready and stay."""

    applications: dict[str, str] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)

    def note(self, pod: Manifest, *, gone: bool) -> None:
        """Take a pod as it is after an event; one that is evicted is replaced while it ends."""
        name = pod["metadata"]["name"]
        self.ready.discard(name)
        if gone:
            self.applications.pop(name, None)
            return
        self.applications[name] = _application(pod)
        conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
        if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]:
            self.ready.add(name)

    def existing(self) -> Counter[str]:
        """Count all pods by application."""
        return Counter(self.applications.values())

    def serving(self) -> Counter[str]:
        """Count the ready pods by application."""
        return Counter(self.applications[name] for name in self.ready)


class Scheduler(Kubelet):
    """Gives a pod a node that takes pods and has a card left for it.

    Applications are named SERVER-ACCELERATOR; an accelerator is called as the type of its cards,
    and each replica has one card.
    """

    cards: Mapping[str, tuple[str, int]] = {}
    """Type and number of the cards of each node."""

    def node_for(self, pod: Manifest) -> str:
        """Return the first node with room, in the order of `cards`."""
        wanted = _application(pod).rpartition("-")[2].upper()
        pods = _answer(self._core.list_namespaced_pod, self._namespace)["items"]
        used = Counter(other["spec"].get("nodeName") for other in pods)
        nodes = {n["metadata"]["name"]: n for n in _answer(self._core.list_node)["items"]}
        for name, (card_type, count) in self.cards.items():
            if card_type == wanted and used[name] < count and _takes_pods(nodes.get(name)):
                return name
        return ""


def _takes_pods(node: Manifest | None) -> bool:
    return node is not None and not node["spec"].get("unschedulable")


class Witness(Background):
    """Looks at the pods after every event; `broken` has the moments that must never be.

    Applications are named SERVER-ACCELERATOR; each replica has one card.

    Parameters
    ----------
    api, namespace
        Where it looks.
    capacity
        Cards by accelerator.
    """

    def __init__(self, api: ApiClient, namespace: str, capacity: Mapping[str, int]) -> None:
        super().__init__()
        self._core = CoreV1Api(api)
        self._namespace = namespace
        self._capacity = capacity
        self._pods = Pods()
        self._watch = watch.Watch("object")  # type: ignore[no-untyped-call]  # nobody typed it
        self._lock = threading.Lock()
        self._needed: dict[str, int] = {}
        self._rule: Rule = lambda _: True
        self.broken: list[str] = []
        self.events = 0

    def work(self) -> None:
        """Look until stopped; begin anew where the API server has forgotten what came last."""
        version = self._begin()
        while not self._stopped.is_set():
            try:
                version = self._follow(version)
            except ApiException as error:
                if error.status != HTTPStatus.GONE:
                    raise
                version = self._begin()

    def _begin(self) -> str:
        """Take the pods that there are; returns their version."""
        found = _answer(self._core.list_namespaced_pod, self._namespace)
        with self._lock:
            self._pods = Pods()
            for pod in found["items"]:
                self._look(pod, gone=False)
        return str(found["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> str:
        """Look at each event of a second; returns the version of the last one."""
        for event in self._watch.stream(  # type: ignore[no-untyped-call]  # nor this
            self._core.list_namespaced_pod,
            self._namespace,
            resource_version=version,
            timeout_seconds=1,
        ):
            with self._lock:
                self._look(event["raw_object"], gone=event["type"] == "DELETED")
        return self._watch.resource_version or version

    def pause(self, seconds: float = 0.5) -> bool:
        """Look for a while; returns True."""
        self._stopped.wait(seconds)
        return True

    def need(self, needed: Mapping[str, int]) -> None:
        """Ask for so many ready replicas of each server, from now on."""
        with self._lock:
            self._needed = dict(needed)

    def keep(self, rule: Rule) -> None:
        """Ask for what ready replicas, by server, must be once they are so, from now on."""
        with self._lock:
            self._rule = rule

    def serving(self) -> Counter[str]:
        """Count the ready replicas by server."""
        with self._lock:
            return self._by_server()

    def _look(self, pod: Manifest, *, gone: bool) -> None:
        self.events += 1
        before = self._by_server()
        evicted = _is_evicted(pod)
        self._pods.note(pod, gone=gone or evicted)
        name = pod["metadata"]["name"]
        used: Counter[str] = Counter()
        for application, count in self._pods.existing().items():
            used[application.rpartition("-")[2].upper()] += count
        if any(used[card_type] > count for card_type, count in self._capacity.items()):
            self.broken.append(f"{name}: cards {dict(used)} of {self._capacity}")
        after = self._by_server()
        if self._rule(before) and not self._rule(after) and not evicted:
            self.broken.append(f"{name}: {dict(after)} are too few, after {dict(before)}")
        needs = {} if evicted else self._needed
        for server, needed in needs.items():
            if after[server] < min(before[server], needed):
                self.broken.append(f"{name}: {server} has {after[server]} of {needed} replicas")

    def _by_server(self) -> Counter[str]:
        ready: Counter[str] = Counter()
        for application, count in self._pods.serving().items():
            ready[application.rpartition("-")[0]] += count
        return ready


@contextmanager
def running_pods(
    kubeconfig: Path,
    namespace: str,
    capacity: Mapping[str, int],
    seconds: float = 1.0,
    kubelet_class: type[Kubelet] = Kubelet,
    held: Container[str] = (),
) -> Iterator[Witness]:
    """Run pods in a namespace, and look at them; they start and end within some seconds.

    Those of the applications in `held` begin to start when a test takes them out of it.
    """
    with client_of(kubeconfig) as seen, client_of(kubeconfig) as changed:
        witness = Witness(seen, namespace, capacity)
        kubelet = kubelet_class(changed, namespace, seconds, seconds, held=held)
        with kubelet, witness:
            yield witness
