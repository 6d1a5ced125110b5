"""Which pods a selector selects, and how they are counted."""

from datetime import timedelta
from typing import Any

import pytest

from inferno_operator.controllers.actuation.pods import (
    PodCounts,
    count_pods,
)
from inferno_operator.resources.pods import PodIndex, reduced
from tests.unit.operator import objects

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
        pod(created=-600, node=""),
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
NO_NODE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}


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
