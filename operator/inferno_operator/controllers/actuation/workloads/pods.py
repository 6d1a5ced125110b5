"""The pods that a selector selects, and how many of them serve, start or end; pure."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.resources.objects import Manifest

Labels = Mapping[str, str]

TERM = re.compile(
    r"\s*(?P<no>!?)(?P<label>[^\s=!,()]+)\s*"
    r"(?:(?P<equals>==?|!=)\s*(?P<value>[^\s,()]*)|(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?\s*"
)
"""One requirement of a selector, as the API server writes it."""

FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that use no card any more."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods of a workload by what they do.

    Parameters
    ----------
    live, ready, unscheduled
        Pods that are not being deleted; those of them that are ready; and those that have had
        no node for too long.
    terminating
        Pods that are being deleted.
    changed
        When the last of them was created, became ready or unready, or began to end.
    """

    live: int = 0
    ready: int = 0
    unscheduled: int = 0
    terminating: int = 0
    changed: datetime | None = None


class PodIndex:
    """Pods by their labels."""

    def __init__(self, pods: Iterable[Manifest]) -> None:
        self._by_label: defaultdict[tuple[str, str], list[Manifest]] = defaultdict(list)
        self._all: list[Manifest] = []
        for pod in pods:
            if pod.get("status", {}).get("phase") in FINISHED:
                continue
            self._all.append(pod)
            for pair in pod["metadata"].get("labels", {}).items():
                self._by_label[pair].append(pod)

    def selected(self, selector: str) -> Sequence[Manifest]:
        """Return the pods that a selector selects; the empty selector selects none."""
        terms = [match.groupdict() for match in _terms(selector)]
        pairs = [(t["label"], t["value"]) for t in terms if t["equals"] in ("=", "==")]
        if not terms:
            return ()
        candidates = min((self._by_label[pair] for pair in pairs), key=len, default=self._all)
        meets = [_requirement(term) for term in terms]
        return [
            pod
            for pod in candidates
            if all(each(pod["metadata"].get("labels", {})) for each in meets)
        ]


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


def count_pods(pods: Iterable[Manifest], given_up: datetime) -> PodCounts:
    """Count pods; those without a node that were created before `given_up` are unscheduled."""
    pods = list(pods)
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    unready = [pod for pod in live if not _is_ready(pod)]
    waiting = [pod for pod in unready if not pod.get("spec", {}).get("nodeName")]
    return PodCounts(
        live=len(live),
        ready=len(live) - len(unready),
        unscheduled=sum(_created(pod) < given_up for pod in waiting),
        terminating=len(pods) - len(live),
        changed=max(map(_changed, pods), default=None),
    )


def trimmed(pod: Manifest) -> Manifest:
    """Return the parts of a pod that are read here; whole pods need much memory."""
    metadata, status = pod["metadata"], pod.get("status", {})
    kept = ("name", "namespace", "resourceVersion", "labels", "creationTimestamp")
    return {
        "metadata": {k: metadata[k] for k in (*kept, "deletionTimestamp") if k in metadata},
        "spec": {k: v for k, v in pod.get("spec", {}).items() if k == "nodeName"},
        "status": {
            "phase": status.get("phase", ""),
            "conditions": [c for c in status.get("conditions", ()) if c["type"] == "Ready"],
        },
    }


def _created(pod: Manifest) -> datetime:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"])


def _changed(pod: Manifest) -> datetime:
    metadata, ready = pod["metadata"], _readiness(pod)
    times = metadata.get("deletionTimestamp"), ready.get("lastTransitionTime")
    return max([_created(pod), *map(datetime.fromisoformat, filter(None, times))])


def _is_ready(pod: Manifest) -> bool:
    return bool(_readiness(pod).get("status") == "True")


def _readiness(pod: Manifest) -> Manifest:
    """Return the condition Ready of a pod; empty if it has none."""
    conditions = pod.get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == "Ready"), {})
