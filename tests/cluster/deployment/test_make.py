"""The targets of the Makefile that users of the original know, on a real API server."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.scene import FINALIZER, Scene, mode_called
from tests.conftest import ROOT
from tests.deployment.make import Make
from tests.deployment.pods import Pod
from tests.deployment.rendering import NAMESPACE, OVERLAYS, Manifest, find
from tests.deployment.run import Cluster, Samples
from tests.reference.shown import run, shown

OTHERS = "example.org/theirs"
IMAGE = "registry.example.org/inferno:1.2.3"


@pytest.fixture(scope="module")
def make(deployment_cluster: Cluster) -> Make:
    return Make(deployment_cluster.control_plane)


@pytest.fixture(scope="module")
def users(deployment_cluster: Cluster) -> Iterator[str]:
    """A namespace of users; a namespace takes 5 s to end, so there is one for all tests."""
    control_plane = deployment_cluster.control_plane
    control_plane.create_namespace("held")
    yield "held"
    control_plane.kubectl("delete", "namespace", "held")


@pytest.fixture
def held(make: Make, users: str, deployment_cluster: Cluster) -> Iterator[Scene]:
    """A deployment, and objects that no operator lets go; in the end all is gone."""
    before = deployment_cluster.cluster_wide_objects()
    make("deploy", f"IMG={IMAGE}", "OVERLAY=stateful")
    deployment_cluster.control_plane.wait_until_served()
    samples = Samples(deployment_cluster.control_plane, {"small": users})
    samples.apply()
    yield samples.scene("small")
    make("undeploy", "OVERLAY=stateful", "ignore-not-found=true")

    assert deployment_cluster.cluster_wide_objects() == before


@pytest.mark.extended
def test_definitions_can_come_first_and_go_first(make: Make, held: Scene) -> None:
    make("install")
    assert all(held.finalizers().values())

    make("uninstall")


@pytest.fixture
def definitions_of_another_tool(
    make: Make, deployment_cluster: Cluster
) -> Iterator[list[Manifest]]:
    """Definitions that another tool applied, with texts of its own, as those of the original."""
    definitions = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]
    theirs = copy.deepcopy(definitions)
    for definition in theirs:
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["description"] = f"{definition['spec']['names']['kind']} is the Schema of an API."
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": theirs})
    options = ("--server-side", "--field-manager=another-tool", "-f", "-")
    deployment_cluster.control_plane.kubectl("apply", *options, input=document)
    yield definitions
    make("undeploy", "ignore-not-found=true")


@pytest.mark.extended
@pytest.mark.parametrize("target", ["install", "deploy"])
def test_the_definitions_of_another_tool_are_taken_over_and_it_is_said(
    target: str,
    make: Make,
    deployment_cluster: Cluster,
    definitions_of_another_tool: list[Manifest],
) -> None:
    printed = make(target)

    assert "another tool set" in printed
    for ours in definitions_of_another_tool:
        installed = deployment_cluster.control_plane.get("crd", ours["metadata"]["name"])
        assert described(installed) == described(ours)


@pytest.mark.extended
@pytest.mark.usefixtures("definitions_of_another_tool")
def test_the_guide_stops_the_original_and_deletes_nothing(
    deployment_cluster: Cluster, users: str
) -> None:
    control_plane = deployment_cluster.control_plane
    original = ("controller-controller-manager", "controller-system")
    control_plane.create_namespace(original[1])
    control_plane.kubectl(
        "create", "deployment", original[0], "--image=controller", "--namespace", original[1]
    )
    Samples(control_plane, {"small": users}).apply()
    before = control_plane.items("accelerators,models,servers,optimizers", users)
    kubectl = control_plane.kubectl_program
    environment = {"KUBECTL": str(kubectl), "KUBECONFIG": str(control_plane.kubeconfig)}

    stop, install, *_ = shown(ROOT / "docs" / "guides" / "migrate.md")
    done = [run(command.text, **environment) for command in (stop, install)]

    assert [each.returncode for each in done] == [0, 0], done
    assert control_plane.get("deployment", *original)["spec"]["replicas"] == 0
    assert control_plane.items("accelerators,models,servers,optimizers", users) == before

    control_plane.kubectl("delete", "namespace", original[1])


def described(definition: Manifest) -> str:
    """What a definition says of its kind."""
    text: str = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"]
    return text


def test_undeploy_ends_what_was_deployed_beside_an_operator_that_runs_elsewhere(
    make: Make, held: Scene, deployment_cluster: Cluster, tmp_path: Path
) -> None:
    """Stateful with a remote optimizer, it gives objects its finalizer again and again."""
    control_plane = held.control_plane
    deployment = control_plane.get("deployment", "inferno-operator", NAMESPACE)
    assert [c["image"] for c in deployment["spec"]["template"]["spec"]["containers"]] == [IMAGE]
    refusal = deployment_cluster.refusal(Pod(deployment, {}), hostNetwork=True)
    assert "violates PodSecurity" in refusal

    with mode_called("stateful-remote", control_plane.processes) as mode:
        elsewhere = held.start_operator(tmp_path.name, **mode.environment)
        held.wait_until_held(mode)

        make("undeploy", "OVERLAY=stateful")

        assert "inferno" not in str(deployment_cluster.cluster_wide_objects())
        elsewhere.kill()


def test_undeploy_says_what_it_waits_for_and_gives_up(make: Make, held: Scene) -> None:
    control_plane = held.control_plane
    theirs = {"metadata": {"finalizers": [OTHERS]}}
    control_plane.patch("optimizer", "inferno", theirs, held.namespace)

    with pytest.raises(AssertionError) as failed:
        make("undeploy", "OVERLAY=stateful", "PATIENCE=6")

    nobodys: Manifest = {"metadata": {"finalizers": []}}
    control_plane.patch("optimizer", "inferno", nobodys, held.namespace)
    left, said = f"Optimizer inferno in {held.namespace} (finalizers: {OTHERS})", str(failed.value)
    assert f"waiting for the deletion of {left}" in said
    assert f"gave up after 6 s: the definitions wait for the deletion of\n{left}" in said


@pytest.mark.extended
def test_a_deletion_that_hangs_goes_on_when_our_finalizers_are_released(
    make: Make, held: Scene
) -> None:
    control_plane = held.control_plane
    theirs = {"metadata": {"finalizers": [OTHERS, FINALIZER]}}
    control_plane.patch("optimizer", "inferno", theirs, held.namespace)
    everything = ("delete", "--ignore-not-found", "--kustomize", OVERLAYS / "stateful")
    control_plane.kubectl(*everything, "--wait=false")
    assert all(FINALIZER in names for names in held.finalizers().values())

    make("release")

    assert held.optimizer("inferno")["metadata"]["finalizers"] == [OTHERS]
    nobodys: Manifest = {"metadata": {"finalizers": []}}
    control_plane.patch("optimizer", "inferno", nobodys, held.namespace)
    control_plane.kubectl(*everything)


def test_the_installer_has_all_that_deploy_applies(make: Make, tmp_path: Path) -> None:
    make("build-installer", f"IMG={IMAGE}", f"DIST={tmp_path}")

    manifests = list(yaml.safe_load_all((tmp_path / "install.yaml").read_text()))
    (container,) = find(manifests, "Deployment", "inferno-operator")["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["image"] == IMAGE
    assert sum(m["kind"] == "CustomResourceDefinition" for m in manifests) == 7
