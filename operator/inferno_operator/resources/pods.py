"""The fields of pods that the operator reads, and the pods that a selector selects; pure."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from inferno_operator.resources.objects import Manifest

Labels = Mapping[str, str]

TERM = re.compile(
    r"\s*(?P<no>!?)(?P<label>[^\s=!,()]+)\s*"
    r"(?:(?P<equals>==?|!=)\s*(?P<value>[^\s,()]*)|(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?\s*"
)
"""One requirement of a selector, as the API server writes it."""

FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that use no card any more."""


METADATA = "name", "namespace", "uid", "resourceVersion", "labels", "creationTimestamp"
OF_ENDING = "deletionTimestamp", "finalizers"
CONTAINER = "name", "resources", "restartPolicy"
CONTAINER_STATUS = "state", "lastState", "name", "image", "ready", "started"
NODE_SPEC = "unschedulable", "taints"
NODE_ANNOTATIONS = "*/node-nvidia-register", "*/node-vgpu-register", "hami.io/node-register-Ascend*"
"""The fields of pods, containers and nodes that the operator reads; of annotations patterns."""

CONTAINER_STATUSES = "initContainerStatuses", "containerStatuses"
POD_CONDITIONS = frozenset({"Ready", "PodScheduled"})
UNREADY_CONDITIONS = POD_CONDITIONS | {
    "DisruptionTarget",
    "Initialized",
    "PodReadyToStartContainers",
}
"""Conditions of pods that are read, also those of pods that are not ready."""

USUAL_SCHEDULER = "default-scheduler"


def reduced(pod: Manifest) -> Manifest:
    """Return a pod with the fields that the operator reads: a tenth of what a pod has."""
    metadata, spec, status = (pod.get(part, {}) for part in ("metadata", "spec", "status"))
    containers = {
        part: [_only(container, CONTAINER) for container in chosen]
        for part in ("containers", "initContainers")
        if (chosen := [container for container in spec.get(part, ()) if _wants_cards(container)])
    }
    is_ready = {"type": "Ready", "status": "True"}.items()
    is_serving = any(is_ready <= c.items() for c in status.get("conditions", ()))
    is_usual = spec.get("schedulerName", USUAL_SCHEDULER) == USUAL_SCHEDULER
    return {
        **_only(pod, ("apiVersion", "kind")),
        "metadata": _only(metadata, (*METADATA, *OF_ENDING)),
        "spec": {
            **_only(spec, ("nodeName", "schedulingGates")),
            **_only(spec, () if is_usual else ("schedulerName",)),
            **containers,
        },
        "status": {
            **_only(status, ("phase", "reason", "message", "nominatedNodeName")),
            **_conditions(status, POD_CONDITIONS if is_serving else UNREADY_CONDITIONS),
            **({} if is_serving else _containers(status)),
        },
    }


def reduced_node(node: Manifest) -> Manifest:
    """Return a node with the fields that the operator reads."""
    metadata, spec, status = (node.get(part, {}) for part in ("metadata", "spec", "status"))
    return {
        **_only(node, ("apiVersion", "kind")),
        "metadata": {
            **_only(metadata, METADATA),
            "annotations": {
                name: value
                for name, value in metadata.get("annotations", {}).items()
                if any(fnmatchcase(name, pattern) for pattern in NODE_ANNOTATIONS)
            },
        },
        "spec": _only(spec, NODE_SPEC),
        "status": {**_only(status, ("allocatable",)), **_conditions(status, {"Ready"})},
    }


def _wants_cards(container: Manifest) -> bool:
    """Whether a container asks for a resource that is not of Kubernetes itself."""
    resources = container.get("resources", {})
    return any("/" in name for part in ("limits", "requests") for name in resources.get(part, ()))


def _conditions(status: Manifest, types: Collection[str]) -> Manifest:
    return {"conditions": [c for c in status.get("conditions", ()) if c["type"] in types]}


def _containers(status: Manifest) -> Manifest:
    """The states of the containers of a pod that is not ready."""
    states_by_part = {
        part: [_only(each, CONTAINER_STATUS) for each in status.get(part, ())]
        for part in CONTAINER_STATUSES
    }
    return {part: states for part, states in states_by_part.items() if states}


def _only(whole: Manifest, names: Iterable[str]) -> dict[str, Any]:
    return {name: whole[name] for name in names if name in whole}


class PodIndex:
    """Pods by their labels; `all` has those that are not finished, `failed` those that failed."""

    def __init__(self, pods: Iterable[Manifest]) -> None:
        self._by_label: defaultdict[tuple[str, str], list[Manifest]] = defaultdict(list)
        self.all: list[Manifest] = []
        self.failed: list[Manifest] = []
        for pod in pods:
            phase = pod.get("status", {}).get("phase")
            if phase == "Failed":
                self.failed.append(pod)
            if phase in FINISHED:
                continue
            self.all.append(pod)
            for pair in pod["metadata"].get("labels", {}).items():
                self._by_label[pair].append(pod)

    def selected(self, selector: str) -> Sequence[Manifest]:
        """Return the pods that a selector selects; the empty selector selects none."""
        terms = [match.groupdict() for match in _terms(selector)]
        pairs = [(t["label"], t["value"]) for t in terms if t["equals"] in ("=", "==")]
        if not terms:
            return ()
        candidates = min((self._by_label[pair] for pair in pairs), key=len, default=self.all)
        return _select(terms, candidates)

    def selected_failed(self, selector: str) -> Sequence[Manifest]:
        """Return the failed pods that a selector selects; the empty selector selects none."""
        terms = [match.groupdict() for match in _terms(selector)]
        return _select(terms, self.failed) if terms and self.failed else ()


def _select(terms: Iterable[Mapping[str, str]], pods: Iterable[Manifest]) -> Sequence[Manifest]:
    meets = [_requirement(term) for term in terms]
    return [pod for pod in pods if all(each(pod["metadata"].get("labels", {})) for each in meets)]


def _terms(selector: str) -> Iterable[re.Match[str]]:
    position = 0
    while position < len(selector) and (match := TERM.match(selector, position)):
        yield match
        position = match.end() + 1  # after the comma


def _requirement(term: Mapping[str, str]) -> Callable[[Labels], bool]:
    """Return what the labels of a pod must meet."""
    label = term["label"]
    if term["equals"]:
        values, negated = {term["value"]}, term["equals"] == "!="
    elif term["set"]:
        values, negated = {v.strip() for v in term["values"].split(",")}, term["set"] == "notin"
    else:
        negated = bool(term["no"])
        return lambda labels: (label in labels) != negated
    return lambda labels: (labels.get(label) in values) != negated
