"""How many pods serve, start or end, how long that took, and what the others wait for; pure.

A replica that serves is cold for a while: no prompt is in its prefix caches yet.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil

from inferno_operator.resources import MeasuredLeadTime, Server
from inferno_operator.resources.objects import Manifest
from inferno_operator.resources.pods import CONTAINER_STATUSES, USUAL_SCHEDULER
from inferno_operator.runtime.texts import shortened

STARTS = frozenset({"", "ContainerCreating", "PodInitializing"})
"""What containers wait for that will start."""

NEVER_RAN = frozenset({"StartError", "ContainerCannotRun", "ContainerStatusUnknown"})
"""Why containers end that have no exit code of their own."""

GATE_OWNERS = {"kueue.x-k8s.io": "Kueue", "scheduling.volcano.sh": "Volcano", "grove.io": "Grove"}
"""Who opens scheduling gates, by the domain of their names."""

QUEUE = "kueue.x-k8s.io/queue-name"
"""The label with the LocalQueue of a pod."""

FORBIDDEN = re.compile(r'pods? "[^"]*" is forbidden: (.*)', re.DOTALL)
"""How the API server says that it refuses a pod: each that is tried has another name."""

PULL_ERROR = re.compile(
    r"\b(\d{3} (?:unauthorized|forbidden|too many requests)|5\d\d [a-z]+(?: [a-z]+)*"
    r"|toomanyrequests|unauthorized|pull access denied|authorization failed|no such host"
    r"|i/o timeout|TLS handshake timeout|context deadline exceeded|connection refused"
    r"|connection reset by peer|no route to host|network is unreachable|unexpected EOF"
    r"|x509: \w+|no space left on device|no match for platform|manifest unknown"
    r"|SignatureValidationFailed|not found)\b",
    re.IGNORECASE,
)
"""Why an image is not pulled, in messages of container runtimes."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods of a workload by what they do."""

    live: int = 0  # not being deleted
    ready: int = 0
    starting: int = 0  # have a node and will be ready, as far as is known
    unscheduled: int = 0  # the scheduler has found no node for too long
    gated: int = 0  # the scheduler may not look at them yet
    terminating: int = 0
    changed: datetime | None = None  # the last time that one came, began to end, got or lost ready
    start_seconds: Mapping[str, float] = field(default_factory=dict)
    """Time from created to ready of the ready ones, by uid [s]. One that was unready for a
    while counts until it was ready again."""
    ready_since: tuple[datetime, ...] = ()
    troubles: Mapping[str, int] = field(default_factory=dict)
    """How many are not ready because of what, in the words of Kubernetes."""


def count_pods(
    pods: Iterable[Manifest], given_up_before: datetime, lately_gated: Collection[str] = ()
) -> PodCounts:
    """Count pods; those created before `given_up_before` that have no node are unscheduled.

    `lately_gated` has the uids of pods that were gated until lately.
    """
    pods = list(pods)
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    ending = [pod for pod in pods if "deletionTimestamp" in pod["metadata"]]
    ready = [pod for pod in live if _is_ready(pod)]
    unready = [(pod, _find_trouble(pod)) for pod in live if not _is_ready(pod)]
    late = [(pod, why) for pod, why in unready if _created_at(pod) < given_up_before]
    causes = [why for _, why in unready] + [_find_delay(pod) for pod, why in late if not why]
    causes += [_describe_end(pod) for pod in ending if _changed_at(pod) < given_up_before]
    given_up = [pod for pod, _ in late if is_unschedulable(pod)]
    return PodCounts(
        live=len(live),
        ready=len(ready),
        starting=sum(_has_node(pod) and not why for pod, why in unready),
        unscheduled=sum(pod["metadata"].get("uid") not in lately_gated for pod in given_up),
        gated=sum(is_gated(pod) for pod, _ in unready),
        terminating=len(ending),
        changed=max(map(_changed_at, pods), default=None),
        start_seconds={
            pod["metadata"]["uid"]: (_changed_at(pod) - _created_at(pod)).total_seconds()
            for pod in ready
        },
        ready_since=tuple(map(_changed_at, ready)),
        troubles=Counter(filter(None, causes)),
    )


def is_gated(pod: Manifest) -> bool:
    """Whether the scheduler may not look at a pod yet: it holds no card."""
    return not _has_node(pod) and bool(pod.get("spec", {}).get("schedulingGates"))


def is_unschedulable(pod: Manifest) -> bool:
    """Whether the scheduler has looked at a pod, and found no node, nor one that becomes free."""
    if _has_node(pod) or is_gated(pod) or _nominated_node(pod):
        return False
    return bool(_condition_of(pod, "PodScheduled").get("reason") == "Unschedulable")


def describe_refusal(message: str) -> str:
    """Return why the API server refuses pods, from its message."""
    forbidden = FORBIDDEN.search(message)
    return shortened(forbidden[1] if forbidden else message)


def count_failures(pods: Iterable[Manifest], since: datetime) -> Counter[str]:
    """Count pods that have failed since some time, by why: others come in their place."""
    failed = (pod["status"] for pod in pods if _changed_at(pod) >= since)
    return Counter(
        shortened(f"{status.get('reason', 'Failed')}, {status.get('message', '')}".rstrip(", ."))
        for status in failed
    )


def _has_node(pod: Manifest) -> bool:
    return bool(pod.get("spec", {}).get("nodeName"))


def _find_trouble(pod: Manifest) -> str:
    """Return why a pod that is not ready will hardly become so by itself; "" if nothing tells.

    It is the same while a container that crashes runs again, and while an image is pulled again.
    """
    if is_gated(pod):
        return _describe_gate(pod)
    if not _has_node(pod):
        node = _nominated_node(pod)
        waits = f"waits until there is room on node {node!r}, which is nominated for it"
        return waits if node else _describe_condition(_condition_of(pod, "PodScheduled"))
    status = pod.get("status", {})
    for each in status.get("initContainerStatuses", ()):
        if not _is_done(each) and (trouble := _find_container_trouble(each)):
            return f"init container {each.get('name', '')!r}: {trouble}"
    return next(filter(None, map(_find_container_trouble, status.get("containerStatuses", ()))), "")


def _nominated_node(pod: Manifest) -> str:
    """Return the node that will have room for a pod, as others end or it is being made."""
    return str(pod.get("status", {}).get("nominatedNodeName", ""))


def _describe_gate(pod: Manifest) -> str:
    names = [gate["name"] for gate in pod["spec"]["schedulingGates"]]
    owners = (GATE_OWNERS.get(name.partition("/")[0]) for name in names)
    owner = next(filter(None, owners), "")
    queue = pod["metadata"].get("labels", {}).get(QUEUE, "")
    by = f"{owner} ({', '.join(names)})" if owner else ", ".join(names)
    return shortened(f"gated by {by}" + (f" in queue {queue!r}" if queue else ""))


def _describe_condition(condition: Manifest) -> str:
    """Return what a condition says that does not hold; "" if it holds or says nothing."""
    if condition.get("status") == "True" or not condition.get("reason"):
        return ""
    return shortened(f"{condition['reason']}, {condition.get('message', '')}".rstrip(", ."))


def _is_done(container: Manifest) -> bool:
    """Whether an init container has done its work, maybe not at once."""
    return bool(container.get("state", {}).get("terminated", {}).get("exitCode") == 0)


def _find_container_trouble(container: Manifest) -> str:
    state = container.get("state", {})
    if container.get("ready"):
        return ""  # a sidecar that has ended before and serves again
    if ended := state.get("terminated") or container.get("lastState", {}).get("terminated"):
        reason = ended.get("reason", "ended")
        code = f" (exit code {ended['exitCode']})" if "exitCode" in ended else ""
        why = f": {ended['message']}" if reason in NEVER_RAN and ended.get("message") else ""
        return shortened(f"CrashLoopBackOff, {reason}{code if reason == 'Error' else ''}{why}")
    waiting = state.get("waiting", {})
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in STARTS:
        return ""
    if reason in ("ErrImagePull", "ImagePullBackOff"):
        error = PULL_ERROR.search(message)
        image = container.get("image", "")
        return ", ".join(filter(None, ("ImagePullBackOff", image, error[0] if error else "")))
    is_steady = message and "back-off" not in message.lower()  # which says how long
    return shortened(f"{reason}, {message}") if is_steady else str(reason)


def _find_delay(pod: Manifest) -> str:
    """Return what a pod waits for that has no trouble and is not ready after a long time."""
    if not _has_node(pod):
        name = pod.get("spec", {}).get("schedulerName", USUAL_SCHEDULER)
        return f"no scheduler has looked at it: check that {name!r} runs"
    return next(filter(None, _list_delays(pod)), "")


def _list_delays(pod: Manifest) -> Iterator[str]:
    """Yield what may delay a pod on a node, in the order in which it starts; "" what does not."""
    node, status = pod["spec"]["nodeName"], pod.get("status", {})
    yield _describe_condition({**_condition_of(pod, "DisruptionTarget"), "status": "False"})
    inits = status.get("initContainerStatuses", ())
    left: Iterator[Manifest] = (c for c in inits if not (c.get("ready") or _is_done(c)))
    init = next(left, {})
    if not (init.get("started") and "running" in init["state"]):
        yield _describe_slow_container(pod, init)
    yield _describe_condition(_condition_of(pod, "Initialized"))
    containers = [each for part in CONTAINER_STATUSES for each in status.get(part, ())]
    for container in containers:
        yield _describe_slow_container(pod, container)
    ready, main = _condition_of(pod, "Ready"), status.get("containerStatuses", ())
    if ready.get("reason") == "ReadinessGatesNotReady":
        yield _describe_condition(ready)
    elif main and all(container.get("ready") for container in main):
        yield f"its containers are ready, and node {node!r} does not answer"
    elif reason := status.get("reason"):
        yield shortened(f"{reason}, {status.get('message', '')}".rstrip(", ."))
    elif not containers:
        yield f"node {node!r} has not begun to start it"
    else:
        yield _describe_condition(ready)


def _describe_slow_container(pod: Manifest, container: Manifest) -> str:
    """Return what a container waits for; "" if it is ready."""
    name, state = container.get("name", ""), container.get("state", {})
    if "running" in state and container.get("ready") is False:
        probe = "startup" if container.get("started") is False else "readiness"
        return f"the {probe} probe of container {name!r} does not succeed"
    if "waiting" not in state:
        return ""
    match _condition_of(pod, "PodReadyToStartContainers").get("status"):
        case "True":
            return f"ContainerCreating, pulls image {container.get('image', '')}".rstrip()
        case "False":
            obstacle = ", waits for volumes, sandbox or network"
        case _:  # a kubelet before 1.29
            obstacle = ""
    return f"ContainerCreating{obstacle}: see the events of the pod"


def _describe_end(pod: Manifest) -> str:
    """Return why a pod is still there that should have ended long ago."""
    finalizers = pod["metadata"].get("finalizers", ())
    node = pod.get("spec", {}).get("nodeName", "")
    why = f"it has finalizers: {', '.join(finalizers)}" if finalizers else ""
    lost = f"node {node!r} does not end it" if node else "nothing ends it"
    return shortened(f"it was deleted, and {why or lost}")


def select_pod_of_each_replica(pods: Iterable[Manifest], group: str) -> list[Manifest]:
    """Return, of each replica with several pods, the pod that tells how the replica is.

    `group` is the label with the replica of a pod. A replica ends when one of its pods does, and
    serves when all are ready: since the last one was.
    """
    replicas: defaultdict[str, list[Manifest]] = defaultdict(list)
    for pod in pods:
        metadata = pod["metadata"]
        replicas[metadata.get("labels", {}).get(group, metadata["name"])].append(pod)

    def order(pod: Manifest) -> tuple[bool, bool, datetime]:
        return "deletionTimestamp" in pod["metadata"], not _is_ready(pod), _changed_at(pod)

    return [max(own_pods, key=order) for own_pods in replicas.values()]


def _created_at(pod: Manifest) -> datetime:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"])


def _changed_at(pod: Manifest) -> datetime:
    metadata, ready = pod["metadata"], _condition_of(pod, "Ready")
    times = metadata.get("deletionTimestamp"), ready.get("lastTransitionTime")
    return max([_created_at(pod), *map(datetime.fromisoformat, filter(None, times))])


def _is_ready(pod: Manifest) -> bool:
    return bool(_condition_of(pod, "Ready").get("status") == "True")


def _condition_of(pod: Manifest, type_: str) -> Manifest:
    """Return a condition of a pod; empty if it has none."""
    conditions = pod.get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == type_), {})


QUANTILE = 0.9
"""Share of the pods that serve within the lead time."""

MOVED = 0.1
"""Relative change of a lead time that is worth a write."""

LONGEST_START_SECONDS = 3600.0
"""A pod that took longer to be ready has been ready before."""


@dataclass(slots=True)
class FirstStarts:
    """Time from created to ready of the pods of a workload when they were ready first [s]."""

    _known: Mapping[str, float] = field(default_factory=dict)

    def note_ready(self, seconds: Mapping[str, float]) -> tuple[float, ...]:
        """Take note of the ready pods, by uid; returns how long each took to start."""
        self._known = {uid: self._known.get(uid, took) for uid, took in seconds.items()}
        return tuple(took for took in self._known.values() if took < LONGEST_START_SECONDS)


def measure_lead_times(
    server: Server, seconds: Mapping[str, Sequence[float]]
) -> tuple[MeasuredLeadTime, ...]:
    """Return the lead times of a Server by place, in the order of how long its pods took [s].

    A place keeps its earlier lead time if it has no ready pod, or if the new one hardly differs.
    """
    before = {item.accelerator: item for item in server.status.lead_times}
    found = []
    for place, starts in seconds.items():
        old = before.get(place)
        if starts:
            longest = sorted(starts)[ceil(QUANTILE * len(starts)) - 1]
            if old is None or abs(longest - old.seconds) > MOVED * max(old.seconds, longest):
                old = MeasuredLeadTime(accelerator=place, seconds=longest, pods=len(starts))
        found.append(old)
    return tuple(filter(None, found))


WARM_UP = timedelta(minutes=10)
"""Time for which a replica that became ready counts as cold."""

ReadySince = Mapping[str, Sequence[datetime]]
"""When the replicas that compute prompts became ready, by place."""


def count_cold(server: Server, ready: ReadySince, now: datetime) -> Mapping[str, int]:
    """Return the cold replicas by place; none where no prompt is cached anyway."""
    if not _has_cached_prompts(server):
        return {}
    return {name: len(list(_list_seconds_left(since, now))) for name, since in ready.items()}


def find_next_warm(server: Server, ready: ReadySince, now: datetime) -> float | None:
    """Return after how many seconds the next cold replica is warm; None without one."""
    if not _has_cached_prompts(server):
        return None
    return min(
        (left for since in ready.values() for left in _list_seconds_left(since, now)), default=None
    )


def _list_seconds_left(ready: Iterable[datetime], now: datetime) -> Iterable[float]:
    """Yield for how long each cold replica stays so.

    Where the clock of a node is ahead by more than the time of warming up, it says nothing.
    """
    cold = (since for since in ready if abs(now - since) < WARM_UP)
    return ((since + WARM_UP - now).total_seconds() for since in cold)


def _has_cached_prompts(server: Server) -> bool:
    """Whether a part of the prompts of a Server is in prefix caches, as far as is known."""
    measured, current = server.status.measured, server.spec.current_alloc
    load = (measured and measured.load) or (current and current.load)
    return bool(load and load.cached_tokens)


@dataclass(slots=True)
class ClusterClock:
    """The clock of the API server, as the ages of pods tell it.

    No pod that was seen was created later than it was seen, so the operator's clock is ahead by no
    more than the age of any of them; by about as much as that of one that has just been created.
    An operator that has just started takes pods for younger than they are, until it sees a new one.
    """

    _ahead: timedelta | None = None

    def note_pods(self, pods: Iterable[Manifest], now: datetime) -> None:
        """Take note of the youngest pod."""
        created = max((pod["metadata"]["creationTimestamp"] for pod in pods), default=None)
        if created is not None:
            age = now - datetime.fromisoformat(created)
            self._ahead = age if self._ahead is None else min(self._ahead, age)

    @property
    def ahead(self) -> timedelta:
        """By how much the operator's clock is ahead, at most; negative if it is behind."""
        return self._ahead or timedelta()
