"""The chart on a real API server, from its first release to the last."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from inferno_operator.resources import GROUP
from tests.cluster.scene import Scene
from tests.conftest import ROOT
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until
from tests.deployment.make import Make
from tests.deployment.programs import output_of
from tests.deployment.rendering import CHART, NAMESPACE, RELEASE, Manifest, helm_template
from tests.deployment.run import Cluster
from tests.reference.shown import run, shown

USERS = "users"
NEWER_FIELD = "keepAccelerator"
VALUES = """
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
extraEnv:
  - {name: HTTPS_PROXY, valueFrom: {secretKeyRef: {name: proxy, key: url, optional: true}}}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector: {matchLabels: {app.kubernetes.io/part-of: inferno}}
topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}
priorityClassName: system-cluster-critical
podAnnotations: {example.org/note: read}
podLabels: {team: serving}
serviceAccount: {name: planner, annotations: {example.org/role: reader}}
remote: {enabled: true}
prometheus:
  url: https://prometheus.monitoring.svc:9090
  tokenSecret: prometheus
  headersSecret: prometheus
  tlsSecret: prometheus-tls
  caConfigMap: prometheus-ca
  params: {namespace: prod}
"""
"""Some that the API server looks at."""

INSTALL = [command.text for command in shown(ROOT / "docs" / "guides" / "install.md")]
"""Commands that the page shows."""

KEPT = {
    f"customresourcedefinition.apiextensions.k8s.io/{path.stem}.inferno.platform.ai"
    for path in (ROOT / "crds").glob("*.yaml")
}


class Helm:
    """Helm on a control plane."""

    def __init__(self, program: Path, control_plane: ControlPlane, home: Path) -> None:
        self._program = program
        self._environment = os.environ | {
            "KUBECONFIG": str(control_plane.kubeconfig),
            **{f"HELM_{kind}_HOME": str(home) for kind in ("CACHE", "CONFIG", "DATA")},
        }

    def __call__(self, verb: str, *arguments: str | Path, namespace: str = NAMESPACE) -> str:
        command = [self._program, verb, RELEASE, "--namespace", namespace, *arguments]
        return output_of(command, self._environment)

    def run_shown(self, command: str) -> None:
        """Run what a page shows."""
        path = os.pathsep.join([str(self._program.parent), self._environment["PATH"]])
        completed = run(command, **{**self._environment, "PATH": path})
        assert completed.returncode == 0, completed.stderr


@pytest.fixture
def on_cluster(helm: Path, deployment_cluster: Cluster, tmp_path: Path) -> Helm:
    return Helm(helm, deployment_cluster.control_plane, tmp_path)


@pytest.fixture
def before(deployment_cluster: Cluster) -> Iterator[set[str]]:
    """What is in no namespace; in the end it is all there is."""
    before = deployment_cluster.cluster_wide_objects()
    yield before
    deployment_cluster.delete_by_name(deployment_cluster.cluster_wide_objects() - before)


@pytest.fixture
def previous_chart(tmp_path: Path) -> Path:
    """The chart as it may have been a release ago, with a field and a replica less."""
    chart = shutil.copytree(CHART, tmp_path / "previous")
    for path, old, new in (
        ("Chart.yaml", "version: 0.1.0", "version: 0.0.9"),
        ("values.yaml", "replicas: 2", "replicas: 1"),
    ):
        (chart / path).write_text((chart / path).read_text().replace(old, new))
    file = chart / "files" / "crds" / "servers.yaml"
    definition = yaml.safe_load(file.read_text())
    del server_fields(definition)[NEWER_FIELD]
    file.write_text(yaml.safe_dump(definition))
    return chart


@pytest.mark.extended
def test_objects_survive_new_definitions_the_way_back_and_the_end(
    on_cluster: Helm, previous_chart: Path, deployment_cluster: Cluster, before: set[str]
) -> None:
    control_plane = deployment_cluster.control_plane
    on_cluster("install", previous_chart, "--create-namespace")
    control_plane.wait_until_served()
    control_plane.create_namespace(USERS)
    Scene(control_plane, USERS).apply_sample("small")
    uids = object_uids(control_plane)

    on_cluster("upgrade", CHART)

    definition = control_plane.get("crd", "servers.inferno.platform.ai")
    assert NEWER_FIELD in server_fields(definition)
    assert control_plane.get("deployment", "inferno-operator", NAMESPACE)["spec"]["replicas"] == 2
    assert object_uids(control_plane) == uids

    on_cluster("rollback", "1")

    definition = control_plane.get("crd", "servers.inferno.platform.ai")
    assert NEWER_FIELD not in server_fields(definition)
    assert control_plane.get("deployment", "inferno-operator", NAMESPACE)["spec"]["replicas"] == 1
    assert object_uids(control_plane) == uids

    on_cluster("uninstall", "--wait")

    assert object_uids(control_plane) == uids
    namespaces = {f"namespace/{NAMESPACE}", f"namespace/{USERS}"}
    assert deployment_cluster.cluster_wide_objects() - before == KEPT | namespaces


@pytest.fixture
def packaged_chart(helm: Path, tmp_path: Path) -> Path:
    """The chart as one file; a test of the files of a release holds what is in that one."""
    output_of([helm, "package", CHART, "--destination", tmp_path], os.environ)
    (package,) = tmp_path.glob("*.tgz")
    return package


@pytest.mark.extended
def test_what_is_not_to_be_kept_goes_with_the_release_of_a_packaged_chart(
    on_cluster: Helm, packaged_chart: Path, deployment_cluster: Cluster, before: set[str]
) -> None:
    on_cluster("install", packaged_chart, "--create-namespace", "--set=crds.keep=false")
    deployment_cluster.control_plane.wait_until_served()

    on_cluster("uninstall", "--wait")

    assert deployment_cluster.cluster_wide_objects() - before == {f"namespace/{NAMESPACE}"}


@pytest.mark.extended
@pytest.mark.usefixtures("before")
def test_what_helm_renders_can_be_applied_by_kubectl(
    helm: Path, deployment_cluster: Cluster, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(VALUES)
    manifests = helm_template(helm, "--values", values)
    control_plane = deployment_cluster.control_plane
    control_plane.create_namespace(NAMESPACE)

    deployment_cluster.apply(manifests)

    deployments = control_plane.items("deployments", NAMESPACE)
    assert [item["metadata"]["name"] for item in deployments] == [
        "inferno-operator",
        "inferno-optimizer",
    ]


@pytest.mark.extended
def test_two_releases_share_a_cluster(
    on_cluster: Helm, deployment_cluster: Cluster, before: set[str]
) -> None:
    control_plane, (first, second) = deployment_cluster.control_plane, ("first", "second")
    on_cluster("install", CHART, "--create-namespace", namespace=first)
    without_definitions = ("--create-namespace", "--set=crds.install=false")
    on_cluster("install", CHART, *without_definitions, namespace=second)
    on_cluster("upgrade", CHART, "--set=crds.install=false", "--set=replicas=3", namespace=second)
    wait_until(
        lambda: [may_read_servers(control_plane, place) for place in (first, second)],
        all,
        "rights of both",
    )

    on_cluster("uninstall", "--wait", namespace=first)

    wait_until(lambda: may_read_servers(control_plane, first), lambda may: not may, "no rights")
    assert may_read_servers(control_plane, second)
    deployment = control_plane.get("deployment", "inferno-operator", second)
    assert deployment["spec"]["replicas"] == 3

    on_cluster("uninstall", "--wait", namespace=second)
    namespaces = {f"namespace/{first}", f"namespace/{second}"}
    assert deployment_cluster.cluster_wide_objects() - before == KEPT | namespaces


@pytest.mark.extended
def test_helm_takes_over_what_make_has_deployed(
    on_cluster: Helm, deployment_cluster: Cluster, before: set[str]
) -> None:
    control_plane = deployment_cluster.control_plane
    Make(control_plane)("deploy")
    control_plane.wait_until_served()
    control_plane.create_namespace(USERS)
    Scene(control_plane, USERS).apply_sample("small")
    uids = object_uids(control_plane) | deployment_uids(control_plane)

    first = next(i for i, text in enumerate(INSTALL) if "--take-ownership" in text)
    for command in INSTALL[first : first + 2]:
        on_cluster.run_shown(command)

    assert object_uids(control_plane) | deployment_uids(control_plane) == uids
    (deployment,) = control_plane.items("deployments", NAMESPACE)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example.com/inferno-operator:")

    on_cluster.run_shown(next(text for text in INSTALL if text.startswith("helm upgrade")))

    (deployment,) = control_plane.items("deployments", NAMESPACE)
    (upgraded,) = deployment["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable["value"] for variable in upgraded["env"]}
    assert upgraded["image"] == container["image"]
    assert variables["INFERNO_PROMETHEUS_URL"] == "http://prometheus-operated.monitoring.svc:9090"

    on_cluster("uninstall", "--wait")

    namespaces = {f"namespace/{NAMESPACE}", f"namespace/{USERS}"}
    assert deployment_cluster.cluster_wide_objects() - before == KEPT | namespaces


def may_read_servers(control_plane: ControlPlane, namespace: str) -> bool:
    """Whether the operator of a release may, in all namespaces."""
    what = {"verb": "list", "group": GROUP, "resource": "servers"}
    return control_plane.api.may(f"system:serviceaccount:{namespace}:inferno-operator", what)


def deployment_uids(control_plane: ControlPlane) -> set[str]:
    return {item["metadata"]["uid"] for item in control_plane.items("deployments", NAMESPACE)}


def server_fields(definition: Manifest) -> Manifest:
    """Fields of a Server's spec."""
    (version,) = definition["spec"]["versions"]
    spec: Manifest = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    fields: Manifest = spec["properties"]
    return fields


def object_uids(control_plane: ControlPlane) -> set[str]:
    """Of every object of ours that users made."""
    return {item["metadata"]["uid"] for item in control_plane.items("inferno", USERS)}
