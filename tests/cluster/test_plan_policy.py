"""Who may write Plans on a real API server: the operator alone, and people their answers."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.scene import Scene
from tests.cluster.test_plans import allow, fill, phases, plans, propose, wait_for_phases
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("crds_installed")

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
