"""A ModelBooster is edited ten times while a Server decides: its replicas at every moment."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq
from typing import Any

import pytest
from kubernetes.client import CustomObjectsApi

from inferno_operator.resources.dialects import KTHENA
from tests.cluster.actuated import (
    Actuated,
    backend,
    booster,
    cards,
    decide_roles,
    server_with_roles,
)
from tests.cluster.background import Follower, client_of
from tests.cluster.fleet import Fleet, running_fleet
from tests.cluster.scene import Scene
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until
from tests.tiers import extended

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("crds_installed", "boosters_installed")

EDITS = 10
OURS = {"INFERNO_MODEL_BOOSTER": "kthena"}

POLICY = {"metrics": [{"metricName": "waiting", "targetValue": 10}]}


class Seen(Follower):
    """The replicas of each serving, from the first to the last that somebody could see."""

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - of a follower
        super().__init__(*arguments)
        self.replicas: dict[str, list[int]] = {}
        self.roles: list[dict[str, int]] = []
        """The replicas of the roles of one with several."""
        self.images: dict[str, list[str]] = {}

    def take(self, manifest: Manifest) -> None:
        name, spec = manifest["metadata"]["name"], manifest["spec"]
        self.replicas.setdefault(name, []).append(spec["replicas"])
        roles = spec["template"]["roles"]
        image = roles[0]["entryTemplate"]["spec"]["containers"][-1]["image"]
        self.images.setdefault(name, []).append(image)
        if len(roles) > 1:
            self.roles.append({role["name"]: role["replicas"] for role in roles})


@pytest.fixture
def fleet(control_plane: ControlPlane, namespace: str) -> Iterator[Fleet]:
    """The status of servings, which our controller makes."""
    with running_fleet(control_plane.kubeconfig, namespace) as fleet:
        fleet.makes_servings = False
        yield fleet


@pytest.fixture
def seen(control_plane: ControlPlane, namespace: str) -> Iterator[Seen]:
    kind = KTHENA.serving
    with client_of(control_plane.kubeconfig) as api:
        lists = CustomObjectsApi(api).list_namespaced_custom_object
        with Seen(lists, kind.group, kind.version, namespace, kind.plural) as seen:
            yield seen


def file_of(number: int, image: str, form: str) -> Manifest:
    """The file of a booster: its number of replicas, and the image of its engine."""
    worker = {"type": "server", "image": image, "replicas": 1, "pods": 1}
    if form == "one backend":
        one = {k: v for k, v in backend("a100").items() if k not in ("minReplicas", "maxReplicas")}
        made = booster("m")
        return {**made, "spec": {"backend": {**one, "replicas": number, "workers": [worker]}}}
    scaled = {"autoscalingPolicy": POLICY} if form == "a policy" else {}
    low = max(number, 1) if scaled else number
    first = backend("a100", low, max(number, 1), workers=[worker], **scaled)
    return booster("m", first, backend("h100", workers=[worker]))


@pytest.fixture
def apply(scene: Scene) -> Callable[[Manifest], None]:
    """What users do with a file."""

    def run(manifest: Manifest) -> None:
        file = json.dumps(manifest)
        here = ("--namespace", scene.namespace)
        scene.control_plane.kubectl("apply", *here, "--filename", "-", input=file)

    return run


CASES = [
    ("two backends", "ModelServing"),
    ("one backend", "ModelBooster"),
    ("a policy", "ModelBooster"),
]


@pytest.mark.parametrize(
    "case", [("two backends", "ModelBooster"), *extended(*CASES)], ids=" to ".join
)
def test_ten_edits_of_a_booster_leave_the_replicas_that_were_decided(
    scene: Scene,
    operator: StartOperator,
    fleet: Fleet,
    seen: Seen,
    apply: Callable[[Manifest], None],
    case: tuple[str, str],
) -> None:
    form, target = case
    actuated, running = Actuated(scene), operator(environment=OURS)
    apply(file_of(0, "e:0", form))
    backends = [{"name": "a100", "accelerator": "A100"}]
    if form != "one backend":
        backends.append({"name": "h100", "accelerator": "H100"})
    actuated.apply(wanted=4, target=target, backends=backends)
    actuated.wait_for("Actuated", "4 x A100")
    wait_until(lambda: seen.replicas["m-a100"][-1], partial(eq, 4), "the decision")
    begun = len(seen.replicas["m-a100"])

    for edit in range(1, EDITS + 1):
        if edit == EDITS // 2:
            running.kill()  # between the edit and what it causes
        apply(file_of((0, 6, 1)[edit % 3], f"e:{edit}", form))
        if edit == EDITS // 2:
            running = operator(environment=OURS)
        image = f"e:{edit}"
        wait_until(lambda: seen.images["m-a100"][-1], partial(eq, image), image)
    actuated.wait_until_runs("A100", 4)

    assert set(seen.replicas["m-a100"][begun:]) == {4}
    assert list(dict.fromkeys(seen.images["m-a100"])) == [f"e:{n}" for n in range(EDITS + 1)]
    fleet.wait_for(a100=4)

    scene.kubectl("delete", "server", "s")
    apply(file_of(1, "e:end", form))
    scene.control_plane.wait_for(
        str(KTHENA.serving), "m-a100", lambda m: m["spec"]["replicas"] == 1, scene.namespace
    )


def file_with_roles(number: int, image: str) -> Manifest:
    """The file of a booster with prefill and decode apart, and the numbers in it."""
    fields = {"image": image, "replicas": max(number, 1), "pods": 1}
    workers = [{"type": role, **fields} for role in ("prefill", "decode")]
    least = min(number, 1)  # without replicas there is no group
    made = backend("main", least, 1, type="vLLMDisaggregated", workers=workers)
    return booster("split", made)


@pytest.mark.usefixtures("fleet")  # says how many are ready
def test_ten_edits_leave_the_replicas_of_roles_that_were_decided(
    scene: Scene, operator: StartOperator, seen: Seen, apply: Callable[[Manifest], None]
) -> None:
    operator(environment=OURS)
    apply(file_with_roles(1, "e:0"))
    scene.apply(*cards("A100", "H100"))
    scene.apply(server_with_roles({"name": "main"}))
    wanted = decide_roles(scene, prefill=3, decode=2)
    wait_until(lambda: seen.roles[-1:], lambda found: found == [wanted], "the decision")
    begun = len(seen.roles)

    for edit in range(1, EDITS + 1):
        apply(file_with_roles((0, 6, 1)[edit % 3], f"e:{edit}"))
        image = f"e:{edit}"
        wait_until(lambda: seen.images["split-main"][-1], partial(eq, image), image)

    def numbers() -> list[int]:
        found = scene.get(str(KTHENA.booster), "split")["spec"]["backends"][0]
        return [found["minReplicas"], *(worker["replicas"] for worker in found["workers"])]

    wait_until(numbers, lambda found: found == [1, 3, 2], "the numbers in the booster")
    assert seen.roles[begun:].count(wanted) == len(seen.roles[begun:])
    assert set(seen.replicas["split-main"]) == {1}
