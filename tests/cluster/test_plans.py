"""Plans on a real control plane: who may write and approve them, and what others create."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

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


# Who may write Plans on a real API server: the operator alone, and people their answers


POLICY = ROOT / "manifests" / "kustomize" / "rbac" / "plans"
EVERYTHING_OF_PLANS = (
    "--verb=create,get,list,patch,update,delete",
    "--resource=plans,plans/status",
)


@pytest.fixture
def policy(control_plane: ControlPlane, scene: Scene) -> Iterator[None]:
    """The admission policy, in force."""
    control_plane.kubectl("apply", "--kustomize", POLICY)
    try:
        role = ("role", "plan-writer", *EVERYTHING_OF_PLANS, "--namespace", scene.namespace)
        control_plane.kubectl("create", *role)
        binding = ("--role=plan-writer", "--user=mallory", "--namespace", scene.namespace)
        control_plane.kubectl("create", "rolebinding", "plan-writers", *binding)
        wait_until(
            lambda: created(scene, "mallory", "probe", "--dry-run=server").stderr,
            lambda told: "only the Inferno operator creates Plans" in told,
            "the policy",
        )
        yield
    finally:
        control_plane.kubectl("delete", "--kustomize", POLICY)


def manifest_of(scene: Scene, name: str) -> str:
    totals = {"servers": 0, "costBefore": 0, "costAfter": 0}
    spec = {"optimizer": "inferno", "digest": "x", "inputsDigest": "x", "totals": totals}
    metadata = {"name": name, "namespace": scene.namespace}
    header = {"apiVersion": "inferno.platform.ai/v1alpha1", "kind": "Plan", "metadata": metadata}
    return yaml.safe_dump({**header, "spec": spec})


def created(scene: Scene, user: str, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    what = ("create", "--filename", "-", f"--as={user}", *options)
    return scene.control_plane.kubectl(*what, input=manifest_of(scene, name), check=False)


def patched(scene: Scene, user: str, plan: str, patch: Manifest, *options: str) -> str:
    """What kubectl complains of, when a user patches a Plan."""
    where = ("--namespace", scene.namespace, f"--as={user}", *options)
    what = ("plan.inferno.platform.ai", plan, "--type=merge", "--patch", json.dumps(patch))
    return scene.control_plane.kubectl("patch", *where, *what, check=False).stderr


@pytest.mark.usefixtures("policy")
def test_only_the_operator_writes_plans_and_approvers_nothing_but_their_answer(
    scene: Scene, operator: StartOperator
) -> None:
    allow(scene, "ann", "inferno-approve")
    propose(scene, operator)
    digest = plans(scene)["inferno-1"]["spec"]["digest"]
    status = "--subresource=status"

    assert "only the Inferno operator creates Plans" in created(scene, "mallory", "p").stderr
    for user, field, value in (
        ("ann", "phase", "Acting"),
        ("ann", "by", "the operator"),
        ("ann", "finished", "2026-01-01T00:00:00Z"),
        ("mallory", "phase", "Done"),
        ("mallory", "conditions", []),
    ):
        told = patched(scene, user, "inferno-1", {"status": {field: value}}, status)
        assert "only the Inferno operator writes the status of a Plan" in told, (user, field)
    refused = patched(scene, "mallory", "inferno-1", {"spec": {"digest": digest + "0"}})
    assert "only the Inferno operator writes the spec" in refused or "does not change" in refused
    assert phases(scene) == {"inferno-1": "Proposed"}

    approval = {"approval": {"state": "Approved", "digest": digest, "by": "ann"}}
    assert patched(scene, "ann", "inferno-1", {"status": approval}, status) == ""

    wait_for_phases(scene, inferno_1="Written")


def test_without_the_policy_what_others_create_is_told_and_not_carried_out(
    scene: Scene, operator: StartOperator
) -> None:
    fill(scene, mode="Auto", guard={"maxServersChanged": 0})
    operator()
    scene.request("inferno")
    wait_for_phases(scene, inferno_1="Proposed")
    real = plans(scene)["inferno-1"]
    forged = {
        "apiVersion": real["apiVersion"],
        "kind": "Plan",
        "metadata": {"name": "inferno-2", "namespace": scene.namespace},
        "spec": {**real["spec"], "totals": {"servers": 0, "costBefore": 0, "costAfter": 0}},
    }
    scene.apply(forged)
    wait_for_phases(scene, inferno_1="Proposed", inferno_2="Superseded")

    (condition,) = plans(scene)["inferno-2"]["status"]["conditions"]
    assert condition["reason"] == "NotSigned"
    assert all("desiredAlloc" not in server["spec"] for server in scene.servers().values())
