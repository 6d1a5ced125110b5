"""While replicas move, others work on the same objects: what serves stays, and it is told."""

import pytest

from inferno_operator.resources.objects import HORIZONTAL_POD_AUTOSCALER, POD, Key, Manifest
from tests.fakes import DEPLOYMENT
from tests.tiers import extended
from tests.unit.operator import objects
from tests.unit.operator.controllers.scaling.workloads.test_controller import deployment, workload
from tests.unit.operator.controllers.test_mistakes_in_motion import (
    ARRIVES,
    RUNS,
    STAYS,
    TURNS_BACK,
    Mistake,
    Moving,
    cards,
    endures,
)

FAST, SLOW = objects.performance("B", alpha=499.5, beta=0), objects.performance("A")

QUOTA = "exceeded quota: gpus"


def names(scene: Moving, *workloads: Manifest) -> None:
    """Name other workloads."""
    scene.change("Server", "s", workloads=list(workloads))


def names_both(scene: Moving) -> None:
    """Name the workloads of the beginning."""
    names(scene, workload("A", "a"), workload("B", "b"))


def has_data(scene: Moving, *data: Manifest) -> None:
    """Write other performance data in the Model; those of the beginning without any."""
    scene.change("Model", "m", data=list(data or (SLOW, FAST)))


def add_autoscaler(scene: Moving) -> None:
    """An HPA on the Deployment that is left."""
    scene.cluster.add(objects.autoscaler("h", "a"))


def rename(scene: Moving) -> None:
    """Delete the Server, and create it again by another name."""
    stored = scene.server()
    scene.delete("Server", "s")
    spec = {k: v for k, v in stored["spec"].items() if k not in ("desiredAlloc", "name")}
    scene.cluster.add(objects.server("S2", spec=spec))


def replace_by_force(scene: Moving) -> None:
    """Make the Server anew from its file, in which nothing runs yet."""
    scene.delete("Server", "s")
    scene.cluster.add(objects.server("S", uid="again", spec={}))
    names_both(scene)
    scene.change("Server", "s", currentAlloc=objects.running(0, RUNS))


def drop_status(scene: Moving) -> None:
    """Restore the Server from a backup, which has no status."""
    stored = scene.server()
    scene.cluster.add({key: value for key, value in stored.items() if key != "status"})


def select(scene: Moving, label: str) -> None:
    """Change the labels of the pods that the Deployment which is left selects."""
    stored = scene.cluster.objects["Deployment", Key("default", "a")]
    selector = {"matchLabels": {"app": label}}
    scene.cluster.add({**stored, "spec": {**stored["spec"], "selector": selector}})


def make_deployment_again(scene: Moving) -> None:
    """Delete the Deployment that is left without its pods, and create it again."""
    scene.cluster.remove(DEPLOYMENT, Key("default", "a"))
    scene.cluster.add(deployment("a", RUNS, uid="again"))


def crash(scene: Moving) -> None:
    """No new pod serves any more."""
    scene.unstarted.add("b")
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": scene.time()}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    status = {
        "phase": "Running",
        "conditions": [ready],
        "containerStatuses": [{"name": "engine", "ready": False, "state": waits}],
    }
    for pod in scene.pods("b"):
        scene.cluster.add({**pod, "status": status})


def refuse(scene: Moving) -> None:
    """A quota that is too small, after the nodes of the new pods are gone."""
    scene.refused.add("b")
    failure = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": QUOTA,
    }
    stored = scene.cluster.objects["Deployment", Key("default", "b")]
    scene.cluster.add({**stored, "status": {"conditions": [failure]}})
    for pod in scene.pods("b"):
        scene.cluster.remove(POD, Key.of(pod))


def allow(scene: Moving) -> None:
    """A quota that is large enough."""
    scene.refused.clear()
    stored = scene.cluster.objects["Deployment", Key("default", "b")]
    scene.cluster.add({**stored, "status": {}})


def pause(scene: Moving, *, paused: bool) -> None:
    """Pause the new Deployment, which has no template of earlier pods; or resume it."""
    scene.refused.add("b") if paused else scene.refused.clear()
    stored = scene.cluster.objects["Deployment", Key("default", "b")]
    scene.cluster.add({**stored, "spec": {**stored["spec"], "paused": paused}})
    for pod in scene.pods("b") if paused else ():
        scene.cluster.remove(POD, Key.of(pod))


DISTURBANCES = {
    "an autoscaler is put on what is left": Mistake(
        add_autoscaler,
        "HorizontalPodAutoscaler 'h' scales the workload too: remove it, or set spec.actuation",
        STAYS,
        lambda s: s.cluster.remove(HORIZONTAL_POD_AUTOSCALER, Key("default", "h")),
    ),
    "the Server is renamed": Mistake(rename, "Actuated 3 x B", ARRIVES),
    "the Server is made anew from its file": Mistake(replace_by_force, "Actuated 3 x B", ARRIVES),
    "the Server is restored without its status": Mistake(drop_status, "Actuated 3 x B", ARRIVES),
    "another Server names the Deployment that is left": Mistake(
        lambda s: s.add("T", workload("A", "a")),
        "Server 's' names Deployment 'a' already: each workload runs one server",
        ARRIVES,
    ),
    "half of the cards that it leaves go": Mistake(
        lambda s: s.change("Capacity", "cards", count=cards(4, 4)), "Actuated 3 x B", ARRIVES
    ),
    "plans are only recommended": Mistake(
        lambda s: s.change("Optimizer", "inferno", mode="Recommend"),
        "the replicas stay as they are: Optimizer 'inferno' has mode Recommend",
        STAYS,
        lambda s: s.change("Optimizer", "inferno", mode="Auto"),
    ),
    "what it leaves is named no more": Mistake(
        lambda s: names(s, workload("B", "b")),
        "it runs 6 x A, and names no workload or backend for 'A'",
        STAYS,
        names_both,
    ),
    "what it goes to is named no more": Mistake(
        lambda s: names(s, workload("A", "a")),
        "Deployment 'b' has 3 replicas on B and is not in spec.workloads any more",
        STAYS,
        names_both,
    ),
    "what it leaves is named for both": Mistake(
        lambda s: names(s, workload("A", "a"), workload("B", "a")),
        "Server 's' names Deployment 'a' already",
        STAYS,
        names_both,
    ),
    "the kind of a workload is mistyped": Mistake(
        lambda s: names(s, workload("A", "a", kind="Deploymnt"), workload("B", "b")),
        "the API server does not serve Deploymnt of apps/v1",
        STAYS,
        names_both,
    ),
    "numbers are only published": Mistake(
        lambda s: s.change("Server", "s", actuation="Publish"),
        "spec.actuation is Publish: the operator scales nothing",
        STAYS,
        lambda s: s.change("Server", "s", actuation="Scale"),
    ),
    "it is to stay where it is": Mistake(
        lambda s: s.change("Server", "s", keepAccelerator=True),
        "Actuated 6 x A",
        TURNS_BACK,
        lambda s: s.change("Server", "s", keepAccelerator=False),
    ),
    "it is to have a hundred times the replicas": Mistake(
        lambda s: s.change("Server", "s", minNumReplicas=600),
        "it keeps what runs, which misses its targets",
        STAYS,
        lambda s: s.change("Server", "s", minNumReplicas=0),
    ),
    "replicas are to take four cards": Mistake(
        lambda s: has_data(s, SLOW, {**FAST, "accCount": 4}),
        # The API server refuses it. In a Model made anew, B is too small for the Server: it turns
        # back to A, where all have stayed. Plans counted 1 card as before, and it arrived.
        "Actuated 6 x A",
        TURNS_BACK,
        has_data,
    ),
    "the new cards get the type of the old ones": Mistake(
        lambda s: s.change("Accelerator", "b", type="A"),
        "no accelerator has type 'B' (known: A)",
        ARRIVES,
    ),
    "the times of the new cards lose three digits": Mistake(
        # The Plan waited for a person. Now it is carried out by what the Model says, also on the
        # way down: all leave A when one serves on B that is to carry a thousand times as much.
        lambda s: has_data(s, SLOW, {**FAST, "alpha": 0.4995}),
        "Allocated 1 x B",
        (0, 1),
        has_data,
        least=2,
    ),
    "the data of the new cards are deleted": Mistake(
        lambda s: has_data(s, SLOW), "Actuated 6 x A", TURNS_BACK, has_data
    ),
    "the Model is deleted": Mistake(
        lambda s: s.delete("Model", "m"),
        "no model with performance data is named 'M'",
        STAYS,
        lambda s: s.cluster.add(objects.model("M", [SLOW, FAST])),
    ),
    "the class is deleted": Mistake(
        lambda s: s.delete("ServiceClass", "c"),
        "no service class is named 'C'",
        STAYS,
        lambda s: s.cluster.add(objects.service_class()),
    ),
    "a second Optimizer is made": Mistake(
        lambda s: s.cluster.add(objects.optimizer(optimize=True, name="other", uid="other")),
        "Optimizer 'inferno' already optimizes this namespace",
        ARRIVES,
    ),
    "the Deployment that is left selects other pods": Mistake(
        lambda s: select(s, "z"),
        "pods are not created (6 on A): see the events of the workload",
        STAYS,
        lambda s: select(s, "a"),
    ),
    "the Deployment that is left is made anew": Mistake(
        make_deployment_again, "Actuated 3 x B", ARRIVES
    ),
    "the new pods crash": Mistake(
        crash,
        "6 x A (0 wanted) + 0 x B (3 wanted); not ready: 3 x CrashLoopBackOff; no progress",
        STAYS,
        lambda s: s.unstarted.clear(),
    ),
    "a quota refuses the new pods": Mistake(refuse, QUOTA, STAYS, allow),
    "the new Deployment is paused": Mistake(
        lambda s: pause(s, paused=True),
        "Deployment 'b' is paused: set its spec.paused to false",
        STAYS,
        lambda s: pause(s, paused=False),
    ),
}


@pytest.mark.parametrize(
    "serving", [1, *extended(0)], ids=["the first one serves", "none serves yet"]
)
@pytest.mark.parametrize("what", DISTURBANCES)
async def test_a_disturbance_takes_nothing_away_that_serves_and_is_told(
    what: str, serving: int
) -> None:
    await endures(DISTURBANCES[what], serving)
