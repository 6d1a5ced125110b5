"""How many of some pods serve, start or end; pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from inferno_operator.resources.objects import Manifest
from inferno_operator.resources.pods import CONTAINER_STATUSES
from inferno_operator.runtime.texts import shortened

STARTS = frozenset({"", "ContainerCreating", "PodInitializing"})
"""What containers wait for that will start."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods of a workload by what they do.

    Parameters
    ----------
    live, ready, starting, unscheduled
        Pods that are not being deleted; those of them that are ready; those that have a node and
        will be ready, as far as is known; and those that have had no node for too long.
    terminating
        Pods that are being deleted.
    changed
        When the last of them was created, became ready or unready, or began to end.
    start_seconds
        Time from created to ready of the ready ones, by uid [s]. One that was unready for a
        while counts until it was ready again.
    ready_since
        When the ready ones became ready.
    troubles
        How many of those that are not ready are so because of what, in the words of Kubernetes.
    """

    live: int = 0
    ready: int = 0
    starting: int = 0
    unscheduled: int = 0
    terminating: int = 0
    changed: datetime | None = None
    start_seconds: Mapping[str, float] = field(default_factory=dict)
    ready_since: tuple[datetime, ...] = ()
    troubles: Mapping[str, int] = field(default_factory=dict)


def count_pods(pods: Iterable[Manifest], given_up: datetime) -> PodCounts:
    """Count pods; those without a node that were created before `given_up` are unscheduled."""
    pods = list(pods)
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    unready = [pod for pod in live if not _is_ready(pod)]
    waiting = [pod for pod in unready if not _has_node(pod)]
    return PodCounts(
        live=len(live),
        ready=len(live) - len(unready),
        starting=sum(_has_node(pod) and not _trouble(pod) for pod in unready),
        unscheduled=sum(_created(pod) < given_up for pod in waiting),
        terminating=len(pods) - len(live),
        changed=max(map(_changed, pods), default=None),
        start_seconds={
            pod["metadata"]["uid"]: (_changed(pod) - _created(pod)).total_seconds()
            for pod in live
            if _is_ready(pod)
        },
        ready_since=tuple(_changed(pod) for pod in live if _is_ready(pod)),
        troubles=Counter(filter(None, map(_trouble, unready))),
    )


def _has_node(pod: Manifest) -> bool:
    return bool(pod.get("spec", {}).get("nodeName"))


def _trouble(pod: Manifest) -> str:
    """Return why a pod that is not ready will hardly become so by itself; "" if nothing tells.

    It is the same while a container that crashes runs again, and while an image is pulled again.
    """
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("reason") == "Unschedulable":
        return shortened(f"Unschedulable, {scheduled.get('message', '')}".rstrip(", ."))
    status = pod.get("status", {})
    for container in (c for part in CONTAINER_STATUSES for c in status.get(part, ())):
        if ended := container.get("lastState", {}).get("terminated"):
            return f"CrashLoopBackOff, {ended.get('reason', 'ended')}"
        reason = container.get("state", {}).get("waiting", {}).get("reason", "")
        if reason not in STARTS:
            return "ImagePullBackOff" if reason == "ErrImagePull" else str(reason)
    return ""


def whole_replicas(pods: Iterable[Manifest], group: str) -> list[Manifest]:
    """Return, of each replica whose pods are all ready, the pod that became ready last.

    `group` is the label with the replica of a pod: it serves when all its pods are ready.
    """
    replicas: defaultdict[str, list[Manifest]] = defaultdict(list)
    for pod in pods:
        metadata = pod["metadata"]
        replicas[metadata["labels"].get(group, metadata["name"])].append(pod)
    return [
        max(own_pods, key=_changed) for own_pods in replicas.values() if all(map(_serves, own_pods))
    ]


def _serves(pod: Manifest) -> bool:
    return _is_ready(pod) and "deletionTimestamp" not in pod["metadata"]


def _created(pod: Manifest) -> datetime:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"])


def _changed(pod: Manifest) -> datetime:
    metadata, ready = pod["metadata"], _readiness(pod)
    times = metadata.get("deletionTimestamp"), ready.get("lastTransitionTime")
    return max([_created(pod), *map(datetime.fromisoformat, filter(None, times))])


def _is_ready(pod: Manifest) -> bool:
    return bool(_readiness(pod).get("status") == "True")


def _readiness(pod: Manifest) -> Manifest:
    return _condition(pod, "Ready")


def _condition(pod: Manifest, type_: str) -> Manifest:
    """Return a condition of a pod; empty if it has none."""
    conditions = pod.get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == type_), {})
