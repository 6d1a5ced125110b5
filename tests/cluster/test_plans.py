"""Plans on a real API server: approved by right, replaced, held back, cleaned up."""

import json
from typing import Any

import pytest

from tests.cluster.scene import Scene, condition
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until
from tests.unit.operator import objects

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("crds_installed")

APPROVER = ROOT / "manifests" / "kustomize" / "rbac" / "people" / "approve.yaml"


def fill(scene: Scene, *more: Manifest, wanted: int = 2, **optimizer: object) -> None:
    """Two Servers that need 2 replicas and 1, and an Optimizer that asks for nothing yet."""
    request = objects.optimizer(optimize=False)
    request["spec"].update(optimizer)
    servers = objects.server("S", wanted=wanted), objects.server("T", wanted=1)
    system = objects.system(20)
    scene.apply(*system, *servers, *more, request)


def plans(scene: Scene) -> dict[str, Manifest]:
    found = scene.items("plans")
    return {plan["metadata"]["name"]: plan for plan in found}


def phases(scene: Scene) -> dict[str, str]:
    return {name: plan.get("status", {}).get("phase", "") for name, plan in plans(scene).items()}


def wait_for_phases(scene: Scene, **wanted: str) -> None:
    names = {name.replace("_", "-"): phase for name, phase in wanted.items()}
    wait_until(lambda: phases(scene), lambda found: found == names, f"{names}")


def desired(scene: Scene) -> dict[str, int]:
    """The replicas that are decided, by Server; those without a decision are left out."""
    return {
        name: server["spec"]["desiredAlloc"]["numReplicas"]
        for name, server in scene.servers().items()
        if "desiredAlloc" in server["spec"]
    }


def answer(scene: Scene, user: str, plan: str, digest: str = "", state: str = "Approved") -> str:
    """Answer a Plan with kubectl in the name of a user; returns what kubectl complains of."""
    digest = digest or plans(scene)[plan]["spec"]["digest"]
    body = {"status": {"approval": {"state": state, "digest": digest, "by": user}}}
    where = ("--namespace", scene.namespace, f"--as={user}", "--subresource=status")
    what = ("plan.inferno.platform.ai", plan, "--type=merge", "--patch", json.dumps(body))
    return scene.control_plane.kubectl("patch", *where, *what, check=False).stderr


def allow(scene: Scene, user: str, role: str) -> None:
    where = ("--namespace", scene.namespace)
    scene.control_plane.kubectl("apply", "--filename", APPROVER)
    name = f"{user}-{role}"
    options = (f"--clusterrole={role}", f"--user={user}")
    scene.control_plane.kubectl("create", "rolebinding", name, *options, *where)


def propose(scene: Scene, operator: StartOperator) -> Manifest:
    """Let an operator propose the Plan inferno-1, which waits for approval; its Optimizer."""
    fill(scene, mode="Approve")
    operator()
    scene.request("inferno")
    done = scene.wait_until_done("inferno")
    wait_for_phases(scene, inferno_1="Proposed")
    return done


def test_only_who_has_the_right_approves_and_nothing_changes_before(
    scene: Scene, operator: StartOperator
) -> None:
    allow(scene, "ann", "inferno-approve")
    allow(scene, "bob", "admin")
    done = propose(scene, operator)

    assert "Plan inferno-1 awaits approval" in condition(done, "Optimized")["message"]
    assert 'cannot get resource "plans/status"' in answer(scene, "bob", "inferno-1")
    assert answer(scene, "ann", "inferno-1", digest="sha256:0") == ""

    def is_told(found: dict[str, Manifest]) -> bool:
        reason: str = condition(found["inferno-1"], "CarriedOut").get("reason", "")
        return reason == "WrongDigest"

    wait_until(lambda: plans(scene), is_told, "the refusal")

    assert desired(scene) == {}
    assert answer(scene, "ann", "inferno-1") == ""

    wait_for_phases(scene, inferno_1="Written")

    assert desired(scene) == {"s": 2, "t": 1}
    assert plans(scene)["inferno-1"]["status"]["by"] == "ann"


def test_a_plan_does_not_change_and_belongs_to_its_optimizer(
    scene: Scene, operator: StartOperator, control_plane: ControlPlane
) -> None:
    control_plane.start_controller_manager()
    try:
        fill(scene, history=1)
        operator()
        scene.request("inferno")
        wait_for_phases(scene, inferno_1="Written")
        change = ("--type=merge", "--patch", '{"spec": {"digest": "other"}}')
        where = ("plan.inferno.platform.ai", "inferno-1", "--namespace", scene.namespace)
        refused = control_plane.kubectl("patch", *where, *change, check=False)
        load = {"spec": {"currentAlloc": {"load": {"arrivalRate": 270, "avgLength": 1}}}}
        control_plane.patch("server", "s", load, scene.namespace)
        scene.request("inferno")
        wait_for_phases(scene, inferno_2="Written")

        assert "a Plan does not change" in refused.stderr
        assert desired(scene) == {"s": 5, "t": 1}

        control_plane.kubectl(
            "delete", "optimizer", "inferno", "--namespace", scene.namespace, "--wait=false"
        )
        wait_for_phases(scene)
    finally:
        control_plane.stop_controller_manager()
