"""The targets of the Makefile that users of the original know, on a real API server."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.deployment.pods import Pod
from tests.deployment.rendering import NAMESPACE, find
from tests.deployment.run import Cluster

IMAGE = "registry.example.org/inferno:1.2.3"


class Make:
    """`make` on a control plane."""

    def __init__(self, cluster: Cluster) -> None:
        control_plane = cluster.control_plane
        self._environment = os.environ | {"KUBECONFIG": str(control_plane.kubeconfig)}
        self._kubectl = f"KUBECTL={control_plane.kubectl_program}"

    def __call__(self, target: str, *variables: str) -> None:
        completed = subprocess.run(
            ["make", "--no-print-directory", target, self._kubectl, *variables],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr


@pytest.fixture
def make(deployment_cluster: Cluster) -> Make:
    return Make(deployment_cluster)


def test_deploy_runs_the_image_asked_for_and_undeploy_leaves_nothing(
    make: Make, deployment_cluster: Cluster
) -> None:
    before = deployment_cluster.cluster_wide_objects()
    make("install")
    make("deploy", f"IMG={IMAGE}", "OVERLAY=stateful")

    control_plane = deployment_cluster.control_plane
    deployment = control_plane.get("deployment", "inferno-operator", NAMESPACE)
    assert [c["image"] for c in deployment["spec"]["template"]["spec"]["containers"]] == [IMAGE]
    refusal = deployment_cluster.refusal(Pod(deployment, {}), hostNetwork=True)
    assert "violates PodSecurity" in refusal

    make("undeploy", "OVERLAY=stateful")
    make("uninstall", "ignore-not-found=true")
    assert deployment_cluster.cluster_wide_objects() == before


def test_the_installer_has_all_that_deploy_applies(make: Make, tmp_path: Path) -> None:
    make("build-installer", f"IMG={IMAGE}", f"DIST={tmp_path}")

    manifests = list(yaml.safe_load_all((tmp_path / "install.yaml").read_text()))
    (container,) = find(manifests, "Deployment", "inferno-operator")["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["image"] == IMAGE
    assert sum(m["kind"] == "CustomResourceDefinition" for m in manifests) == 6
