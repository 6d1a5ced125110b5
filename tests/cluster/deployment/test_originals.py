"""The documents of the originals, command by command, in their order, on a real API server.

These are the README of the Inferno controller with the steps of its demo, and the pages of Kthena
on the Model Booster. What the commands name differently is what this project calls otherwise: the
image, and the namespace of the deployment.
"""

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.resources.dialects import KTHENA
from tests.cluster.actuated import backend, booster
from tests.cluster.scene import Mode, Scene, condition, mode_called
from tests.conftest import ROOT
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until
from tests.deployment.make import Make, make_files
from tests.deployment.rendering import NAMESPACE
from tests.deployment.run import Cluster

Manifest = dict[str, Any]

IMAGE = "registry.example.org/controller:tag"
USERS = "default"
"""The namespace of commands that name none."""


@pytest.fixture
def plane(deployment_cluster: Cluster) -> ControlPlane:
    return deployment_cluster.control_plane


@pytest.fixture
def make(deployment_cluster: Cluster) -> Iterator[Make]:
    """What is left at the end goes, too."""
    before = deployment_cluster.cluster_wide_objects()
    make = Make(deployment_cluster.control_plane)
    yield make
    make("undeploy", "ignore-not-found=true")
    assert deployment_cluster.cluster_wide_objects() == before


@pytest.fixture
def kubectl(plane: ControlPlane) -> Callable[..., str]:
    """A command as the README has it, in the folder of the project; returns what it prints."""

    def run(arguments: str, status: int = 0) -> str:
        command: list[str | Path] = [plane.kubectl_program, *shlex.split(arguments)]
        done = subprocess.run(
            [*command, "--kubeconfig", plane.kubeconfig],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return f"{done.stdout}{done.stderr}"

    return run


@pytest.fixture
def mode(plane: ControlPlane) -> Iterator[Mode]:
    """With INFERNO_HOST, INFERNO_PORT and INFERNO_STATELESS."""
    with mode_called("stateless-remote", plane.processes) as mode:
        yield mode


def test_the_readme_of_the_controller_and_its_demo(
    plane: ControlPlane,
    make: Make,
    kubectl: Callable[..., str],
    mode: Mode,
    tmp_path: Path,
) -> None:
    # Install the CRDs into the cluster.
    make("install")
    resources = list(yaml.safe_load_all((ROOT / "tests/data/originals/resources.yaml").read_text()))
    stored = plane.api.create(resources, USERS)
    assert [m["spec"] | s["spec"] == s["spec"] for m, s in zip(resources, stored, strict=True)]
    kubectl(
        f"delete --all accelerators,models,serviceclasses,servers,capacities,optimizers -n {USERS}"
    )

    # Deploy the Manager to the cluster with the image specified by IMG; add two variables.
    make("deploy", f"IMG={IMAGE}")
    where = f"--namespace {NAMESPACE}"
    names = "INFERNO_HOST=inferno-optimizer.inferno.svc.cluster.local INFERNO_PORT=80"
    kubectl(f"set env deployment/inferno-operator {where} {names}")
    deployed = plane.get("deployment", "inferno-operator", NAMESPACE)
    (container,) = deployed["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE
    assert {"name": "INFERNO_PORT", "value": "80"} in container["env"]

    # For testing, a deploy.yaml file is already created; the samples are beside it.
    kubectl("apply -f manifests/yamls/deploy.yaml")
    kubectl("apply -k manifests/yamls/")
    scene = Scene(plane, USERS)
    before = scene.servers()
    operator = scene.start_operator(tmp_path.name, **mode.environment)
    assert mode.optimizer is not None
    assert f"optimizer: remote, {mode.optimizer.url}" in operator.log
    assert "operator: stateless" in operator.log

    # Patch optimizer CR to invoke optimizer; inspect optimization decisions.
    kubectl("""patch --type merge --patch '{"spec":{"optimize":true}}' optimizer inferno""")
    done = scene.wait_until_done("inferno")
    assert done["spec"]["optimize"] is False
    assert kubectl("get server").count("\n") == 1 + len(before)
    for name, server in scene.servers().items():
        desired = server["spec"]["desiredAlloc"]
        assert desired["numReplicas"] > 0
        described = " ".join(kubectl(f"describe server {name}").split())
        assert f"Num Replicas: {desired['numReplicas']}" in described

    # Delete the instances, the APIs, and the controller.
    kubectl("delete -k manifests/yamls/")
    assert scene.servers() == {}
    assert operator.stop() == 0
    make("uninstall")
    assert "inferno.platform.ai" not in kubectl("get crd --output=name")
    said = kubectl("delete -f manifests/yamls/deploy.yaml", status=1)  # no APIs are left
    assert {
        line.rpartition('"')[0].rpartition(".")[2]
        for line in said.splitlines()
        if "NotFound" in line
    } == {"ai"}
    kubectl(f"wait --for=delete namespace/{NAMESPACE} --timeout=60s")

    # Build the installer, and install with it.
    make_files("build-installer", tmp_path, f"IMG={IMAGE}", f"KUBECTL={plane.kubectl_program}")
    kubectl(f"apply -f {tmp_path}/install.yaml")
    deployed = plane.get("deployment", "inferno-operator", NAMESPACE)
    assert deployed["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE


LABEL = ("registry.volcano.sh/managed-by", "registry.volcano.sh")
POLICY = {"metrics": [{"metricName": "waiting", "targetValue": 10}]}


def test_the_pages_of_the_model_booster(plane: ControlPlane, make: Make, tmp_path: Path) -> None:
    make("install")
    namespace = "booster-pages"
    plane.create_namespace(namespace)
    scene = Scene(plane, namespace)
    operator = scene.start_operator(tmp_path.name, INFERNO_MODEL_BOOSTER="kthena")

    def children(name: str) -> dict[str, list[Manifest]]:
        found = {kind.kind: plane.items(str(kind), namespace) for kind in KTHENA.children}
        return {kind: [i for i in items if owner(i) == name] for kind, items in found.items()}

    def told(name: str, type_: str, status: str) -> str:
        found = plane.wait_for(
            str(KTHENA.booster),
            name,
            lambda found: condition(found, type_).get("status") == status,
            namespace,
        )
        return str(condition(found, type_)["message"])

    # Users need to create a ModelBooster alone; policy and binding are optional.
    plane.api.apply(
        [booster_of("plain"), booster_of("scaled", autoscalingPolicy=POLICY)], namespace
    )
    told("plain", "Initialized", "True")
    told("scaled", "Initialized", "True")
    counts = {name: [len(each) for each in children(name).values()] for name in ("plain", "scaled")}
    assert counts == {"plain": [1, 1, 1, 0, 0], "scaled": [1, 1, 1, 1, 1]}

    # All of them carry a label, and the booster is their owner.
    every = [child for name in counts for kind in children(name).values() for child in kind]
    assert all(LABEL in child["metadata"]["labels"].items() for child in every)

    # Once all ModelServings are Available, Active is true; it is not before.
    told("plain", "Active", "False")
    available = {"type": "Available", "status": "True", "reason": "AllGroupsReady", "message": ""}
    status = {
        "availableReplicas": 1,
        "conditions": [{**available, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    serving = str(KTHENA.serving)
    plane.patch(serving, "plain-main", {"status": status}, namespace, subresource="status")
    told("plain", "Active", "True")

    # A change is synchronized; each Model has one ModelRoute, without a rate limit.
    plane.api.apply([booster_of("plain", image="engine:2")], namespace)
    plane.wait_for(serving, "plain-main", lambda m: "engine:2" in json.dumps(m["spec"]), namespace)
    (route,) = children("plain")["ModelRoute"]
    assert "rateLimit" not in route["spec"]

    # If an error occurs, Failed is true, with a message.
    plane.api.apply([booster_of("odd", type="MindIE")], namespace)
    assert "MindIE is not supported" in told("odd", "Failed", "True")

    # When the booster is deleted, all related resources are deleted as well.
    for name in (*counts, "odd"):
        plane.kubectl("delete", str(KTHENA.booster), name, "--namespace", namespace)
    wait_until(
        lambda: [i for kind in KTHENA.children for i in plane.items(str(kind), namespace)],
        lambda left: left == [],
        "the end of all children",
    )
    assert operator.stop() == 0
    plane.kubectl("delete", "namespace", namespace)


def owner(child: Manifest) -> str:
    (reference,) = child["metadata"]["ownerReferences"]
    return str(reference["name"])


def booster_of(name: str, image: str = "engine:1", **fields: object) -> Manifest:
    workers = [{"type": "server", "image": image, "replicas": 1, "pods": 1}]
    most = 2 if "autoscalingPolicy" in fields else 1
    return booster(name, backend("main", 1, most, workers=workers, **fields))
