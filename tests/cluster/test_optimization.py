"""Requests that meet troubles, kills and refusals on a real control plane."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.forgetful import ForgetfulProxy
from tests.cluster.scene import (
    Mode,
    Scene,
    condition,
    decided,
    in_mode,
    many_servers,
)
from tests.conftest import StartOperator
from tests.controlplane.errors import KubectlError
from tests.controlplane.waiting import wait_until

pytestmark = pytest.mark.usefixtures("crds_installed")


@pytest.fixture
def operator(operator: StartOperator, mode: Mode) -> StartOperator:
    """Start operators whose optimizer is elsewhere."""
    return in_mode(operator, mode.environment)


def test_troubles_name_their_cause_and_hurt_nobody_else(
    scene: Scene, operator: StartOperator
) -> None:
    scene.apply_sample("troubles")
    operator()
    scene.optimize("troubles")

    servers = scene.servers()

    told = {name: condition(server, "Allocated") for name, server in servers.items()}
    assert {name: item["reason"] for name, item in told.items()} == {
        "fine": "Allocated",
        "no-capacity": "NoCapacity",
        "unattainable-slo": "UnattainableSLO",
        "unknown-model": "UnknownModel",
    }
    assert "granite-14b" in told["unknown-model"]["message"]
    assert "raise slo-itl above" in told["unattainable-slo"]["message"]
    assert "add capacity or lower the load" in told["no-capacity"]["message"]
    assert {
        name: server["spec"].get("desiredAlloc", {}).get("accelerator")
        for name, server in servers.items()
    } == {
        "fine": "G2",
        "no-capacity": "",
        "unattainable-slo": None,
        "unknown-model": None,
    }
    assert condition(servers["fine"], "Ready")["status"] == "True"


def test_a_request_that_cannot_be_served_stays_and_says_why(
    scene: Scene, operator: StartOperator
) -> None:
    scene.apply_sample("small")
    operator()
    with one_replica_at_most(scene):
        scene.request("inferno")

        optimizer = scene.wait_until_failed("inferno")

        assert optimizer["spec"]["optimize"]
        assert not optimizer["status"]["done"]
        assert condition(optimizer, "Optimized")["reason"] == "Rejected"
        assert "premium-granite-13b" in condition(optimizer, "Optimized")["message"]
        assert "no more than one, please" in condition(optimizer, "Optimized")["message"]
        assert wait_until(lambda: scene.events("Rejected"), bool, "an event")
        assert decided(scene.servers()["free-granite-13b"])[:2] == ("G2", 1)

    assert condition(scene.wait_until_done("inferno"), "Optimized")["status"] == "True"
    assert decided(scene.servers()["premium-granite-13b"])[:2] == ("G2", 2)


@contextmanager
def one_replica_at_most(scene: Scene) -> Iterator[None]:
    """The cluster's administrators refuse decisions on more than one replica."""
    name, kind = f"frugal-{scene.namespace}", "validatingadmissionpolicy"
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    rule = {
        "apiGroups": ["inferno.platform.ai"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["servers"],
    }
    few = "!has(object.spec.desiredAlloc) || object.spec.desiredAlloc.numReplicas <= 1"
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": few, "message": "no more than one, please"}],
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}}
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": here},
    }
    scene.apply(
        {**api, "kind": "ValidatingAdmissionPolicy", "spec": policy},
        {**api, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    )
    try:
        wait_until(lambda: two_replicas_are_refused(scene), bool, "the policy at work")
        yield
    finally:
        scene.control_plane.kubectl("delete", f"{kind},{kind}binding", name)


def two_replicas_are_refused(scene: Scene) -> bool:
    two = {"spec": {"desiredAlloc": {"accelerator": "G2", "numReplicas": 2}}}
    arguments = ("server", "premium-granite-13b", "--namespace", scene.namespace)
    patch = ("--type=merge", "--dry-run=server", "--patch", json.dumps(two))
    try:
        scene.control_plane.kubectl("patch", *arguments, *patch)
    except KubectlError as error:
        return "no more than one" in str(error)
    return False


@pytest.mark.extended
def test_a_kill_in_the_middle_of_the_writes_loses_nothing(
    scene: Scene, operator: StartOperator, mode: Mode, tmp_path: Path
) -> None:
    scene.apply_sample("small")
    scene.apply(*many_servers(200))
    with ForgetfulProxy(scene.control_plane.kubeconfig) as proxy:
        first = operator(kubeconfig=proxy.write_kubeconfig(tmp_path / "kubeconfig"))
        scene.wait_until_held(mode)
        proxy.writes = 100
        scene.request("inferno")
        wait_until(lambda: proxy.hanging, bool, "a write that hangs")
        first.kill()
    interrupted = scene.servers()
    unwritten = [
        name for name, s in interrupted.items() if not s.get("status", {}).get("conditions")
    ]
    assert 0 < len(unwritten) < 202
    assert scene.optimizer("inferno")["spec"]["optimize"]

    operator()
    scene.wait_until_done("inferno")

    servers = scene.servers()
    assert len(servers) == 202
    assert {condition(server, "Allocated")["reason"] for server in servers.values()} == {
        "Allocated"
    }
    assert all(server["spec"]["desiredAlloc"]["numReplicas"] > 0 for server in servers.values())


@pytest.mark.extended
def test_a_restart_of_the_api_server_is_survived(scene: Scene, operator: StartOperator) -> None:
    scene.apply_sample("small")
    operator()
    scene.control_plane.stop_api_server()
    scene.control_plane.start_api_server()
    scene.request("inferno")

    optimizer = scene.wait_until_done("inferno")

    assert optimizer["status"]["lastOptimization"]["allocated"] == 2
