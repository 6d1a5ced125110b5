"""A control plane that tells who asked for what, and what was deployed there."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inferno_operator.resources.dialects import DIALECTS, Dialect
from tests.conftest import ROOT
from tests.controlplane import ControlPlane
from tests.controlplane.binaries import Binaries
from tests.deployment import pods
from tests.deployment.boosters import Boosters
from tests.deployment.counted import NODES, CountedNode
from tests.deployment.pods import Pod
from tests.deployment.rendering import (
    NAMESPACE,
    OVERLAYS,
    Manifest,
    copy_with_components,
    find,
    kustomize,
)
from tests.deployment.rights import Calls, granted
from tests.deployment.run import OPERATOR, OPTIMIZERS, Cluster, Samples, leads, write_out_of_date
from tests.deployment.workloads import DEFINITIONS, Workloads

COMPONENTS = {"remote": ("capacity",)}
"""Components that an overlay has in addition, as a user's own has them."""

AUDIT_POLICY = Path(pods.__file__).with_name("audit-policy.yaml")


@dataclass(frozen=True, slots=True)
class Deployed:
    """What an overlay did from its first to its last day."""

    manifests: list[Manifest]
    warnings: str
    refusals: dict[str, str]
    """Why its pods are not admitted, by the name of the Deployment; "" if they are."""

    servers: dict[str, dict[str, Manifest]]
    """Of each sample, by name."""

    finalizers: dict[str, dict[str, list[str]]]
    calls: Calls
    leaders: int
    survived: bool
    """Whether all objects were still there after the same was applied once more."""

    left_behind: set[str]


@pytest.fixture(scope="session")
def image() -> Iterator[Path]:
    """What the image has in it."""
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


@pytest.fixture(scope="session", params=sorted(folder.name for folder in OVERLAYS.iterdir()))
def deployed(
    request: pytest.FixtureRequest,
    deployment_cluster: Cluster,
    image: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Deployed:
    """Apply an overlay, let it work on the samples, delete it."""
    cluster, control_plane = deployment_cluster, deployment_cluster.control_plane
    components = COMPONENTS.get(request.param, ())
    overlay = copy_with_components(tmp_path_factory.mktemp("own"), request.param, *components)
    manifests = kustomize(control_plane.kubectl_program, overlay)
    samples = Samples(control_plane, _namespaces(request.param))
    before, asked_before = cluster.cluster_wide_objects(), len(cluster.audit_log())
    warnings = cluster.apply(manifests)
    deployments = [m for m in manifests if m["kind"] == "Deployment"]
    refusals = {m["metadata"]["name"]: cluster.refusal(Pod(m, {})) for m in deployments}
    samples.apply()
    boosters = Boosters(samples.scene("small"), looked_after(manifests))
    boosters.apply()
    workloads = Workloads(samples.scene("small"))
    workloads.apply()
    counted = CountedNode(control_plane)
    counts = NODES in granted(manifests, f"{NAMESPACE}:{OPERATOR}")
    if counts:
        counted.apply()
    with cluster.pods(manifests, image) as pods_at_work:
        samples.optimize()
        boosters.wait_until_actuated()
        boosters.change()
        workloads.wait_until_scaled()
        if counts:
            counted.wait_until_counted()
        leaders = sum(map(leads, pods_at_work.operators))
    scenes = {sample: samples.scene(sample) for sample in samples.namespaces}
    servers = {sample: scene.servers() for sample, scene in scenes.items()}
    finalizers = {sample: scene.finalizers() for sample, scene in scenes.items()}
    write_out_of_date(control_plane, samples.namespaces["small"])
    cluster.apply(manifests)
    survived = all(
        _uids(servers[sample]) == _uids(scene.servers()) for sample, scene in scenes.items()
    )
    calls = Calls.of(f"{NAMESPACE}:inferno-operator", cluster.audit_log()[asked_before:])
    left = counted.left if counts else []
    cluster.delete([*left, *samples.own_namespaces, *manifests])  # a namespace takes 5 s to end
    left_behind = cluster.cluster_wide_objects() - before
    return Deployed(
        manifests, warnings, refusals, servers, finalizers, calls, leaders, survived, left_behind
    )


def looked_after(manifests: list[Manifest]) -> Dialect | None:
    """The dialect whose boosters an overlay turns into what serves them."""
    environment = Pod(find(manifests, "Deployment", OPERATOR), {}).environment
    return DIALECTS.get(environment.get("INFERNO_MODEL_BOOSTER", ""))


def _uids(objects: dict[str, Manifest]) -> dict[str, str]:
    return {name: manifest["metadata"]["uid"] for name, manifest in objects.items()}


def _namespaces(overlay: str) -> dict[str, str]:
    """Where each sample is to go; one that serves its own namespace alone gets one of them."""
    if overlay == "namespaced":
        return {"small": NAMESPACE}
    return {sample: f"sample-{sample}" for sample in OPTIMIZERS}
