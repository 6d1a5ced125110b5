"""A control plane that tells who asked for what, and what was deployed there."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferno_operator.resources.dialects import DIALECTS
from tests.conftest import ROOT
from tests.controlplane import ControlPlane
from tests.controlplane.binaries import Binaries
from tests.deployment import pods
from tests.deployment.lives import LIVES, RUNS, Deployed, live, rendered, runs
from tests.deployment.rendering import Manifest
from tests.deployment.run import Cluster
from tests.deployment.workloads import DEFINITIONS
from tests.tiers import extended

AUDIT_POLICY = Path(pods.__file__).with_name("audit-policy.yaml")


@pytest.fixture(scope="session")
def image() -> Iterator[Path]:
    with pods.image() as folder:
        yield folder


@pytest.fixture(scope="session")
def deployment_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane whose API server writes an audit log, and whose namespaces end."""
    options = (f"--audit-policy-file={AUDIT_POLICY}", "--audit-log-path=audit.log")
    with ControlPlane(more_options=options) as control_plane:
        control_plane.start_controller_manager()
        for dialect in DIALECTS:
            control_plane.install_crds(ROOT / "crds" / dialect)
        control_plane.install_crds(DEFINITIONS)
        yield Cluster(control_plane, tmp_path_factory.mktemp("pods"))


@pytest.fixture(scope="session")
def helm() -> Path:
    return Binaries(os.environ).find("helm")


@pytest.fixture(scope="session")
def rendered_lives(
    deployment_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Manifest]]:
    """The objects of each overlay that has a life."""
    control_plane, folder = deployment_cluster.control_plane, tmp_path_factory.mktemp("rendered")
    return {overlay: rendered(control_plane, overlay, folder) for overlay in LIVES}


@pytest.fixture(scope="session", params=extended(*LIVES, *RUNS))
def deployed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    """What an overlay did in its life, or in a run."""
    overlay: str = request.param
    if overlay in RUNS:
        deployed_in_runs: dict[str, Deployed] = request.getfixturevalue("deployed_in_runs")
        return deployed_in_runs[overlay]
    cluster: Cluster = request.getfixturevalue("deployment_cluster")
    image: Path = request.getfixturevalue("image")
    return live(cluster, overlay, image, tmp_path_factory.mktemp("lives"))


@pytest.fixture(scope="session")
def deployed_in_runs(
    deployment_cluster: Cluster, image: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Deployed]:
    """What each overlay without a life did in its run."""
    return runs(deployment_cluster, image, tmp_path_factory.mktemp("runs"))
