"""From a measured load to scaled replicas: the last step of the guide to measuring."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.kubelet import running_pods
from tests.cluster.scene import Scene
from tests.conftest import ROOT, StartOperator
from tests.controlplane.deployments import deployment
from tests.controlplane.waiting import wait_until
from tests.plugin import Plugin
from tests.reference.shown import normal, run

pytestmark = pytest.mark.usefixtures("crds_installed", "deployment_controllers")

PAGE = ROOT / "docs" / "guides" / "measure.md"
STEP = re.compile(r"^## 7\..*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(r"^\$ (.+)\n((?:(?!\$ |```).*\n)*)", re.MULTILINE)
LOAD = {"arrivalRate": 1800.0, "avgInTokens": 501, "avgOutTokens": 201}
"""Three replicas are enough for it. It is typed, as there is no Prometheus; the guide measures
less, and replicas go one at a time there."""


def prepare(scene: Scene) -> None:
    """The sample of the guide on a Deployment with four replicas, and its measured load."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    scene.apply(account, deployment("chat-a100", 4))
    scene.apply_sample("measured")
    measured = {"spec": {"currentAlloc": {"load": LOAD, "maxBatch": 63}, "measure": None}}
    scene.patch("server", "chat", measured)

    def is_running(manifest: dict[str, object]) -> bool:
        status = manifest.get("status")
        return isinstance(status, dict) and status.get("readyReplicas") == 4

    scene.control_plane.wait_for("deployment", "chat-a100", is_running, scene.namespace)


def is_proposed(manifest: dict[str, Any]) -> bool:
    return bool(manifest.get("status", {}).get("phase") == "Proposed")


@pytest.mark.extended
def test_the_last_step_of_the_guide_scales_the_deployment(
    scene: Scene, operator: StartOperator, tmp_path: Path
) -> None:
    environment = dict(Plugin(scene.control_plane, scene.namespace, tmp_path).environment)
    programs = (Path(scene.control_plane.kubectl_program).parent, Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join([*map(str, programs), environment["PATH"]])
    text = PAGE.read_text(encoding="utf-8")
    step = STEP.search(text)
    assert step is not None
    with running_pods(scene.control_plane.kubeconfig, scene.namespace, {}, 0.2):
        prepare(scene)
        for place, (command, output) in enumerate(SHOWN.findall(step.group())):
            if place == 1:  # the Server names its workload, and the guide waits for a Plan
                operator()
                scene.control_plane.wait_for("plan", "inferno-1", is_proposed, scene.namespace)
            done = run(command, **environment)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            assert not output or normal(done.stdout) == normal(output), command
        wait_until(
            lambda: scene.get("deployment", "chat-a100"),
            lambda found: found["spec"]["replicas"] == 3,
            "three replicas",
        )
