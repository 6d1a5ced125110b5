"""How pods are selected and counted, how long they take to start, and how long they are cold."""

from datetime import timedelta
from typing import Any

import pytest

from inferno_operator.controllers.scaling.pods import (
    WARM_UP,
    FirstStarts,
    PodCounts,
    count_cold,
    count_failures,
    count_pods,
    describe_refusal,
    find_next_warm,
    measure_lead_times,
)
from inferno_operator.controllers.scaling.status import describe_pod_troubles
from inferno_operator.resources import Server
from inferno_operator.resources.pods import PodIndex, reduced
from tests.unit.operator import objects
from tests.unit.operator.objects import NOW, manifest, observed, running, server

Manifest = dict[str, Any]

LABELS = {
    "a": {"app": "x", "tier": "gold"},
    "b": {"app": "x", "tier": "iron", "canary": "yes"},
    "c": {"app": "y", "example.com/tier": "gold"},
    "d": {},
}


def at(seconds: int) -> str:
    return f"{objects.NOW + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def pod(
    name: str = "p",
    *,
    created: int = 0,
    node: str = "n",
    ready: int | None = None,
    **metadata: object,
) -> Manifest:
    """A pod that was created then [s], and is ready since then, if it is."""
    condition = {"type": "Ready", "status": str(ready is not None)}
    since = {} if ready is None else {"lastTransitionTime": at(ready)}
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": at(created), **metadata},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": "Running", "conditions": [{**condition, **since}]},
    }


NO_NODE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}


def unscheduled(message: str = NO_NODE["message"], **spec: object) -> Manifest:
    """A pod that is ten minutes old, and that the scheduler has no node for."""
    found = pod(created=-600, node="")
    found["status"] = {"phase": "Pending", "conditions": [{**NO_NODE, "message": message}]}
    return {**found, "spec": spec}


@pytest.mark.parametrize(  # as `kubectl get pods --selector` answers
    ("selector", "selected"),
    [
        ("app=x", "ab"),
        ("app==x,tier=gold", "a"),
        ("app=x,tier!=gold", "b"),
        ("app in (x,y)", "abc"),
        ("app in (x, y),tier notin (iron)", "ac"),
        ("canary", "b"),
        ("!canary,app", "ac"),
        ("example.com/tier=gold", "c"),
        ("app=z", ""),
        ("", ""),
    ],
)
def test_a_selector_selects_what_kubectl_selects(selector: str, selected: str) -> None:
    index = PodIndex(pod(name, labels=labels) for name, labels in LABELS.items())

    assert "".join(p["metadata"]["name"] for p in index.selected(selector)) == selected


def test_pods_are_counted_by_what_they_do() -> None:
    pods = [
        pod(ready=30),
        pod(created=10),
        unscheduled(),
        pod(created=20, node=""),
        pod(ready=5, deletionTimestamp=at(60)),
    ]

    assert count_pods(pods, objects.NOW) == PodCounts(
        live=4,
        ready=1,
        starting=1,
        unscheduled=1,
        terminating=1,
        changed=objects.NOW + timedelta(seconds=60),
        start_seconds={"p": 30},
        ready_since=(objects.NOW + timedelta(seconds=30),),
        troubles={"Unschedulable, 0/3 nodes are available: 3 Insufficient nvidia.com/gpu": 1},
    )


def test_finished_pods_use_no_cards() -> None:
    finished = {**pod(labels={"app": "x"}), "status": {"phase": "Failed"}}

    assert PodIndex([finished]).selected("app=x") == []


def test_a_reduced_pod_is_counted_like_the_whole_one() -> None:
    whole = pod(ready=30, labels={"app": "x"}, namespace="ns", managedFields=[{}])

    assert count_pods([reduced(whole)], objects.NOW) == count_pods([whole], objects.NOW)
    assert "managedFields" not in reduced(whole)["metadata"]


def container(**state: object) -> Manifest:
    """A pod that has a node and whose container is in a state, as the kubelet reports it."""
    found = pod()
    found["status"]["containerStatuses"] = [{"name": "vllm", "restartCount": 3, **state}]
    return found


def waiting(reason: str) -> Manifest:
    return {"waiting": {"reason": reason, "message": "back-off 5m0s restarting"}}


KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (
            container(state=waiting("CrashLoopBackOff"), lastState=KILLED),
            "CrashLoopBackOff, OOMKilled",
        ),
        (container(state={"running": {}}, lastState=KILLED), "CrashLoopBackOff, OOMKilled"),
        (container(state=waiting("ImagePullBackOff")), "ImagePullBackOff"),
        (container(state=waiting("ErrImagePull")), "ImagePullBackOff"),
        (container(state=waiting("CreateContainerConfigError")), "CreateContainerConfigError"),
        (container(state=waiting("ContainerCreating")), None),
        (container(state={"running": {}}), None),
        (
            {**pod(node=""), "status": {"phase": "Pending", "conditions": [NO_NODE]}},
            "Unschedulable, 0/3 nodes are available: 3 Insufficient nvidia.com/gpu",
        ),
        (pod(node=""), None),
    ],
)
def test_a_pod_that_does_not_become_ready_says_why(trouble: Manifest, told: str | None) -> None:
    counted = count_pods([reduced(trouble), reduced(trouble), pod(ready=3)], objects.NOW)

    assert counted.troubles == ({told: 2} if told else {})
    assert counted == count_pods([trouble, trouble, pod(ready=3)], objects.NOW)


def old(*conditions: Manifest, gate: Manifest | None = None, **container: object) -> Manifest:
    """A pod that has a node and is not ready after ten minutes, and its container."""
    found = pod(created=-600)
    found["status"]["conditions"] = [{"type": "Ready", "status": "False", **(gate or {})}]
    found["status"]["conditions"] += conditions
    shown = {"name": "vllm", "image": "vllm/vllm-openai:v0.9", "ready": False, **container}
    found["status"]["containerStatuses"] = [shown]
    return found


def waits(reason: str, message: str = "") -> Manifest:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def ends(reason: str, code: int) -> Manifest:
    return {"lastState": {"terminated": {"reason": reason, "exitCode": code}}, "state": {}}


def begun(*, started: bool = True, ready: bool = False) -> Manifest:
    return {"state": {"running": {}}, "started": started, "ready": ready}


def condition(type_: str, status: str, reason: str = "", message: str = "") -> Manifest:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def gated(gate: str, **labels: str) -> Manifest:
    found = unscheduled("Scheduling is blocked", schedulingGates=[{"name": gate}])
    found["status"]["conditions"][0]["reason"] = "SchedulingGated"
    found["metadata"]["labels"] = {"app": "x", **labels}
    return found


def nominated(node: str) -> Manifest:
    found = unscheduled()
    found["status"]["nominatedNodeName"] = node
    return found


def of_init(**container: object) -> Manifest:
    """A pod whose init container is in a state."""
    found = old(**waits("PodInitializing"))
    found["status"]["initContainerStatuses"] = [{"name": "download", **container}]
    return found


def beside_init(*conditions: Manifest, **container: object) -> Manifest:
    """A pod that waits for its init container or has a sidecar, which is in a state."""
    found = old(*conditions, **(waits("PodInitializing") if conditions else begun()))
    found["status"]["initContainerStatuses"] = [{"name": "download", **container}]
    return found


NOT_INITIALIZED = condition(
    "Initialized",
    "False",
    "ContainersNotInitialized",
    "containers with incomplete status: [download]",
)

QUEUE = {"kueue.x-k8s.io/queue-name": "team-a"}

CAUSES: dict[str, tuple[Manifest, str]] = {
    "no card": (
        unscheduled(),
        "Unschedulable, 0/3 nodes are available: 3 Insufficient nvidia.com/gpu",
    ),
    "a taint": (
        unscheduled("0/3 nodes are available: 3 node(s) had untolerated taint {dedicated: x}."),
        "Unschedulable, 0/3 nodes are available: 3 node(s) had untolerated taint {dedicated: x}",
    ),
    "a volume": (
        unscheduled("pod has unbound immediate PersistentVolumeClaims."),
        "Unschedulable, pod has unbound immediate PersistentVolumeClaims",
    ),
    "a gang": (
        unscheduled("pod group is not ready, 1 Pending, 2 minAvailable."),
        "Unschedulable, pod group is not ready, 1 Pending, 2 minAvailable",
    ),
    "Kueue": (
        gated("kueue.x-k8s.io/admission", **QUEUE),
        "gated by Kueue (kueue.x-k8s.io/admission) in queue 'team-a'",
    ),
    "another gate": (gated("example.com/approval"), "gated by example.com/approval"),
    "no scheduler": (
        {**pod(created=-600, node=""), "spec": {"schedulerName": "volcano"}},
        "no scheduler has looked at it: check that 'volcano' runs",
    ),
    "an image": (
        old(**waits("ImagePullBackOff", "Back-off pulling image")),
        "ImagePullBackOff, vllm/vllm-openai:v0.9",
    ),
    "the name of an image": (
        old(**waits("InvalidImageName", 'couldn\'t parse image name "Vllm"')),
        'InvalidImageName, couldn\'t parse image name "Vllm"',
    ),
    "an image that takes long": (
        old(condition("PodReadyToStartContainers", "True"), **waits("ContainerCreating")),
        "ContainerCreating, pulls image vllm/vllm-openai:v0.9",
    ),
    "a mount": (
        old(condition("PodReadyToStartContainers", "False"), **waits("ContainerCreating")),
        "ContainerCreating, waits for volumes, sandbox or network: see the events of the pod",
    ),
    "a container that an older kubelet creates": (
        old(**waits("ContainerCreating")),
        "ContainerCreating: see the events of the pod",
    ),
    "a mount before an init container": (
        beside_init(
            condition("PodReadyToStartContainers", "False"),
            NOT_INITIALIZED,
            **waits("PodInitializing"),
        ),
        "ContainerCreating, waits for volumes, sandbox or network: see the events of the pod",
    ),
    "an image of an init container that takes long": (
        beside_init(
            condition("PodReadyToStartContainers", "True"),
            NOT_INITIALIZED,
            image="busybox",
            **waits("PodInitializing"),
        ),
        "ContainerCreating, pulls image busybox",
    ),
    "an init container that runs": (
        beside_init(NOT_INITIALIZED, **begun()),
        "ContainersNotInitialized, containers with incomplete status: [download]",
    ),
    "the startup probe of a sidecar": (
        beside_init(NOT_INITIALIZED, **begun(started=False)),
        "the startup probe of container 'download' does not succeed",
    ),
    "a probe, beside a sidecar that crashed once": (
        beside_init(ready=True, lastState=KILLED, state={"running": {}}),
        "the readiness probe of container 'vllm' does not succeed",
    ),
    "a container that ends well": (
        old(state={"terminated": {"reason": "Completed", "exitCode": 0}}),
        "CrashLoopBackOff, Completed",
    ),
    "a registry that is down": (
        old(
            **waits(
                "ImagePullBackOff",
                'Back-off pulling image "r/v": ErrImagePull: failed to resolve reference "r/v":'
                " unexpected status from HEAD request to https://r/v2/v: 503 Service Unavailable",
            )
        ),
        "ImagePullBackOff, vllm/vllm-openai:v0.9, 503 Service Unavailable",
    ),
    "a registry that is slow": (
        old(**waits("ErrImagePull", "failed to pull and unpack image: context deadline exceeded")),
        "ImagePullBackOff, vllm/vllm-openai:v0.9, context deadline exceeded",
    ),
    "the signature of an image": (
        old(
            **waits(
                "ImagePullBackOff",
                "Back-off pulling image: SignatureValidationFailed: image pull failed for r/v",
            )
        ),
        "ImagePullBackOff, vllm/vllm-openai:v0.9, SignatureValidationFailed",
    ),
    "a secret": (
        old(**waits("CreateContainerConfigError", 'secret "hf" not found')),
        'CreateContainerConfigError, secret "hf" not found',
    ),
    "a command": (
        old(**waits("RunContainerError", "exec: vlm: not found")),
        "RunContainerError, exec: vlm: not found",
    ),
    "memory": (old(**ends("OOMKilled", 137)), "CrashLoopBackOff, OOMKilled"),
    "an error": (old(**ends("Error", 1)), "CrashLoopBackOff, Error (exit code 1)"),
    "an init container": (
        old(
            condition(
                "Initialized",
                "False",
                "ContainersNotInitialized",
                "containers with incomplete status: [download]",
            ),
            **waits("PodInitializing"),
        ),
        "ContainersNotInitialized, containers with incomplete status: [download]",
    ),
    "a startup probe": (
        old(**begun(started=False)),
        "the startup probe of container 'vllm' does not succeed",
    ),
    "a readiness probe": (
        old(**begun()),
        "the readiness probe of container 'vllm' does not succeed",
    ),
    "a readiness gate": (
        old(
            gate=condition("Ready", "False", "ReadinessGatesNotReady", 'gate "lb" is not "True"'),
            **begun(ready=True),
        ),
        'ReadinessGatesNotReady, gate "lb" is not "True"',
    ),
    "a node that is lost": (
        old(**begun(ready=True)),
        "its containers are ready, and node 'n' does not answer",
    ),
    "a disruption": (
        old(condition("DisruptionTarget", "True", "PreemptionByScheduler", "by x/y"), **begun()),
        "PreemptionByScheduler, by x/y",
    ),
    "room on another node": (
        nominated("n7"),
        "waits until there is room on node 'n7', which is nominated for it",
    ),
    "a crash of an init container": (
        of_init(**{**ends("Error", 1), **waits("CrashLoopBackOff")}),
        "init container 'download': CrashLoopBackOff, Error (exit code 1)",
    ),
    "a container that cannot run": (
        old(
            lastState={
                "terminated": {
                    "reason": "StartError",
                    "exitCode": 128,
                    "message": "nvidia-container-cli: driver error",
                }
            },
            **waits("CrashLoopBackOff", "back-off 5m0s restarting"),
        ),
        "CrashLoopBackOff, StartError: nvidia-container-cli: driver error",
    ),
    "the secret of a registry": (
        old(**waits("ImagePullBackOff", "Back-off pulling image: ErrImagePull: 401 Unauthorized")),
        "ImagePullBackOff, vllm/vllm-openai:v0.9, 401 Unauthorized",
    ),
    "a node that does nothing": (
        {**pod(created=-600), "status": {"conditions": [condition("PodScheduled", "True")]}},
        "node 'n' has not begun to start it",
    ),
    "a pod that its kubelet refuses": (
        {**pod(created=-600), "status": {"reason": "NodeAffinity", "message": "no labels."}},
        "NodeAffinity, no labels",
    ),
    "containers that are unready": (
        old(gate=condition("Ready", "False", "ContainersNotReady", "unready status: [vllm]")),
        "ContainersNotReady, unready status: [vllm]",
    ),
    "a finalizer": (
        pod(created=-900, ready=-800, deletionTimestamp=at(-600), finalizers=["example.com/x"]),
        "it was deleted, and it has finalizers: example.com/x",
    ),
    "a node that ends nothing": (
        pod(created=-900, ready=-800, deletionTimestamp=at(-600)),
        "it was deleted, and node 'n' does not end it",
    ),
}
"""Pods that are not ready, and why."""


@pytest.mark.parametrize("cause", CAUSES)
def test_a_pod_that_waits_says_what_for(cause: str) -> None:
    waiting, words = CAUSES[cause]
    counted = count_pods([reduced(waiting)], objects.NOW)

    assert counted.troubles == {words: 1}
    assert counted.unscheduled == words.startswith("Unschedulable")
    assert counted.gated == words.startswith("gated")


def test_of_many_causes_the_most_frequent_ones_are_named() -> None:
    causes = {f"RunContainerError, pod {n}": 1 for n in range(200)}
    told = describe_pod_troubles([PodCounts(troubles={**causes, "CrashLoopBackOff, OOMKilled": 3})])

    assert told.startswith("; not ready: 3 x CrashLoopBackOff, OOMKilled; not ready: 1 x Run")
    assert told.endswith("; not ready: 193 for other causes")
    assert len(told) < 1000


def test_an_init_container_that_succeeded_at_last_is_no_trouble() -> None:
    late = pod(created=-10)
    done = {"state": {"terminated": {"exitCode": 0}}, "lastState": KILLED}
    late["status"]["initContainerStatuses"] = [done]

    assert count_pods([reduced(late)], objects.NOW).troubles == {}


def test_failed_pods_that_others_replace_say_why_for_a_while() -> None:
    failed = [pod(f"p{age}", created=-age, labels={"app": "x"}) for age in (10, 20, 900)]
    for each in failed:
        each["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no."}
    index = PodIndex(map(reduced, failed))

    assert count_failures(index.selected_failed("app=x"), objects.NOW - timedelta(seconds=240)) == {
        "UnexpectedAdmissionError, no": 2
    }


@pytest.mark.parametrize(
    "words",
    [
        "exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 2, limited: 2",
        'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
        "[maximum cpu usage per Container is 2, but limit is 8]",
        'error looking up service account ns/vllm: serviceaccount "vllm" not found',
    ],
)
def test_what_refuses_pods_is_named_without_the_pod(words: str) -> None:
    assert describe_refusal(f'pods "a-2" is forbidden: {words}') == words


def found(before: dict[str, float], **seconds: tuple[float, ...]) -> dict[str, float]:
    """The lead times of a Server with others in its status, whose pods took so long to start."""
    spec = {"name": "S", "class": "C", "model": "M", "currentAlloc": running(0, 1)}
    known = [{"accelerator": a, "seconds": s, "pods": 1} for a, s in before.items()]
    body = {**manifest("Server", spec, name="s"), "status": {"leadTimes": known}}
    server = observed(body).resource
    assert isinstance(server, Server)
    return {time.accelerator: time.seconds for time in measure_lead_times(server, seconds)}


@pytest.mark.parametrize(
    ("pods", "seconds"),
    [((30.0,), 30.0), ((30.0, 50.0), 50.0), (tuple(map(float, range(1, 21))), 18.0)],
)
def test_nine_of_ten_pods_start_within_the_lead_time(
    pods: tuple[float, ...], seconds: float
) -> None:
    assert found({}, A=pods) == {"A": seconds}


def test_the_lead_time_of_an_accelerator_without_pods_stays() -> None:
    assert found({"A": 70.0}, A=(), B=(40.0,)) == {"A": 70.0, "B": 40.0}
    assert found({}, A=(), B=()) == {}


def test_a_lead_time_that_hardly_moves_is_not_written_again() -> None:
    assert found({"A": 100.0}, A=(109.0,)) == {"A": 100.0}
    assert found({"A": 100.0}, A=(115.0,)) == {"A": 115.0}


def test_an_accelerator_that_is_not_named_any_more_has_none() -> None:
    assert found({"A": 70.0, "B": 40.0}, B=(40.0,)) == {"B": 40.0}


def test_a_pod_that_was_unready_for_a_while_did_not_start_again() -> None:
    starts = FirstStarts()

    assert starts.note_ready({"p": 30.0}) == (30.0,)
    assert starts.note_ready({"p": 900.0, "q": 40.0}) == (30.0, 40.0)
    assert starts.note_ready({"q": 40.0}) == (40.0,)


def test_a_pod_that_was_ready_again_before_it_was_seen_tells_nothing() -> None:
    assert FirstStarts().note_ready({"p": 86_400.0}) == ()


MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def caching() -> Server:
    """A Server of whose prompts a part is in caches."""
    load = {"arrivalRate": 60, "avgInTokens": 9, "avgOutTokens": 1, "cachedTokens": 5}
    current = {"accelerator": "A", "numReplicas": 1, "load": load}
    found = observed(server(spec={"currentAlloc": current})).resource
    assert isinstance(found, Server)
    return found


def test_a_replica_is_cold_until_it_has_been_ready_for_ten_minutes() -> None:
    ready = {"A": [NOW - 3 * MINUTE, NOW - WARM_UP]}

    assert count_cold(caching(), ready, NOW) == {"A": 1}
    assert find_next_warm(caching(), ready, NOW) == 7 * 60


@pytest.mark.parametrize("skew", [-HOUR, HOUR], ids=["an hour back", "an hour ahead"])
def test_a_clock_that_differs_by_an_hour_makes_no_replica_cold_for_an_hour(
    skew: timedelta,
) -> None:
    """Pods say when they became ready by the clock of their nodes."""
    ready = {"A": [NOW - 3 * MINUTE]}

    assert count_cold(caching(), ready, NOW + skew) == {"A": 0}
    assert find_next_warm(caching(), ready, NOW + skew) is None


def test_clocks_that_differ_by_seconds_make_no_difference() -> None:
    ready = {"A": [NOW + timedelta(seconds=2)]}

    assert count_cold(caching(), ready, NOW) == {"A": 1}
