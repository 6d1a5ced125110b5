"""The Model Booster controller on a real API server, with our definitions of the children."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from inferno_operator.main import with_images
from inferno_operator.resources.dialects import DIALECTS, KTHENA, MATRIXINFER, Dialect
from inferno_operator.resources.objects import Kind
from tests.cluster.actuated import booster
from tests.cluster.connection import connected
from tests.cluster.scene import Scene, condition
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.waiting import wait_until

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("crds_installed")


@pytest.fixture(scope="session", autouse=True)
def definitions(control_plane: ControlPlane) -> None:
    """Both dialects are served."""
    for dialect in DIALECTS:
        control_plane.install_crds(ROOT / "crds" / dialect)


def backend(name: str, replicas: int = 1, **more: object) -> Manifest:
    return {
        "name": name,
        "type": "vLLM",
        "modelURI": f"hf://example/{name}",
        "minReplicas": replicas,
        "maxReplicas": replicas,
        "workers": [{"type": "server", "image": "engine:1", "config": {"max-model-len": 4096}}],
        **more,
    }


class Boosters:
    """What a test asks of the boosters of its namespace."""

    def __init__(self, scene: Scene, operator: StartOperator, dialect: Dialect = KTHENA) -> None:
        self.scene = scene
        self.dialect = dialect
        self._operator = operator

    def start(self) -> OperatorProcess:
        """Start an operator that is their controller."""
        return self._operator(environment={"INFERNO_MODEL_BOOSTER": self.dialect.name})

    def apply(self, *manifests: Manifest) -> None:
        self.scene.apply(*manifests)

    def names(self) -> dict[str, list[str]]:
        """Names of the children by kind."""
        plane, namespace = self.scene.control_plane, self.scene.namespace
        return {
            kind.kind: [item["metadata"]["name"] for item in plane.items(str(kind), namespace)]
            for kind in self.dialect.children
        }

    def wait_for_names(self, **names: list[str]) -> None:
        def all_there(found: Mapping[str, list[str]]) -> bool:
            return all(found[kind] == names.get(kind, []) for kind in found)

        wait_until(self.names, all_there, f"the children {names}")

    def wait_for(self, name: str, type_: str, status: str) -> Manifest:
        """Wait until a booster has a condition for its present generation; return it."""

        def told(manifest: Manifest) -> bool:
            found = condition(manifest, type_)
            generation = manifest["metadata"]["generation"]
            return found.get("status") == status and found["observedGeneration"] == generation

        place = str(self.dialect.booster)
        plane = self.scene.control_plane
        return condition(plane.wait_for(place, name, told, self.scene.namespace), type_)

    def get(self, kind: Kind, name: str) -> Manifest:
        return self.scene.control_plane.get(str(kind), name, self.scene.namespace)

    def patch(self, kind: Kind, name: str, patch: Manifest) -> Manifest:
        return self.scene.control_plane.patch(str(kind), name, patch, self.scene.namespace)

    def delete(self, kind: Kind, name: str) -> None:
        namespace = self.scene.namespace
        self.scene.control_plane.kubectl("delete", str(kind), name, "--namespace", namespace)

    def wait_until(self, kind: Kind, name: str, met: Callable[[Manifest], bool]) -> Manifest:
        return self.scene.control_plane.wait_for(str(kind), name, met, self.scene.namespace)

    def versions(self) -> dict[str, str]:
        """The version of each object: what is written changes it."""
        plane, namespace = self.scene.control_plane, self.scene.namespace
        kinds = (self.dialect.booster, *self.dialect.children)
        items = [item for kind in kinds for item in plane.items(str(kind), namespace)]
        return {
            f"{i['kind']}/{i['metadata']['name']}": i["metadata"]["resourceVersion"] for i in items
        }


@pytest.fixture
def boosters(scene: Scene, operator: StartOperator) -> Boosters:
    return Boosters(scene, operator)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_booster_gets_its_children(scene: Scene, operator: StartOperator, name: str) -> None:
    dialect = DIALECTS[name]
    boosters = Boosters(scene, operator, dialect)
    boosters.apply(booster("m", backend("a"), backend("b"), dialect=dialect))

    boosters.start()

    boosters.wait_for_names(
        **{dialect.serving.kind: ["m-a", "m-b"]}, ModelServer=["m-a", "m-b"], ModelRoute=["m"]
    )
    assert boosters.wait_for("m", "Initialized", "True")["reason"] == "ModelCreating"
    assert boosters.wait_for("m", "Active", "False")["reason"] == "ModelProcessing"


def test_children_go_with_their_booster(boosters: Boosters, controller_manager: None) -> None:
    del controller_manager
    boosters.start()
    boosters.apply(booster("m", backend("a")))
    boosters.wait_for_names(ModelServing=["m-a"], ModelServer=["m-a"], ModelRoute=["m"])

    boosters.delete(KTHENA.booster, "m")

    boosters.wait_for_names()


def test_a_child_that_is_edited_or_deleted_is_mended(boosters: Boosters) -> None:
    boosters.start()
    boosters.apply(booster("m", backend("a")))
    boosters.wait_for("m", "Initialized", "True")

    noted = {"labels": {"team": "blue"}, "annotations": {"note": "mine"}}
    edited = {"metadata": noted, "spec": {"workloadPort": {"port": 1}}}
    boosters.patch(KTHENA.server, "m-a", edited)
    boosters.delete(KTHENA.route, "m")

    boosters.wait_until(KTHENA.route, "m", lambda _: True)
    mended = boosters.wait_until(
        KTHENA.server, "m-a", lambda server: server["spec"]["workloadPort"]["port"] == 8000
    )
    assert mended["metadata"]["labels"]["team"] == "blue"
    assert mended["metadata"]["annotations"]["note"] == "mine"


@pytest.mark.parametrize("first", ["operator", "loss"])
def test_a_definition_that_is_missing_is_named_and_found_later(
    scene: Scene, operator: StartOperator, first: str
) -> None:
    boosters, plane = Boosters(scene, operator, MATRIXINFER), scene.control_plane
    children: dict[str, list[str]] = {
        MATRIXINFER.serving.kind: ["m-a"],
        "ModelServer": ["m-a"],
        "ModelRoute": ["m"],
    }

    def told(manifest: Manifest) -> bool:
        advice = f"{MATRIXINFER.route} is not served: install the custom resource definitions"
        return advice in condition(manifest, "Failed").get("message", "")

    boosters.apply(booster("m", backend("a"), dialect=MATRIXINFER))
    if first == "operator":
        boosters.start()
        boosters.wait_for_names(**children)

    plane.kubectl("delete", "crd", str(MATRIXINFER.route))
    try:
        if first == "loss":
            boosters.start()
        without = boosters.wait_until(MATRIXINFER.booster, "m", told)
    finally:
        plane.install_crds(ROOT / "crds" / "matrixinfer")

    assert condition(without, "Failed")["status"] == "True"
    boosters.wait_for("m", "Failed", "False")
    boosters.wait_for_names(**children)


@pytest.mark.extended
def test_many_boosters_converge_and_then_nothing_is_written(boosters: Boosters) -> None:
    backends = [backend(name) for name in ("a", "b", "c")]
    boosters.apply(*(booster(f"m{i:03}", *backends) for i in range(200)))
    process = boosters.start()

    def initialized() -> int:
        items = boosters.scene.control_plane.items(str(KTHENA.booster), boosters.scene.namespace)
        return sum(condition(item, "Initialized").get("status") == "True" for item in items)

    wait_until(initialized, lambda n: n == 200, "200 boosters")
    assert len(boosters.names()["ModelServing"]) == 600
    before = boosters.versions()
    process.stop()

    boosters.start()
    boosters.apply(booster("last", backend("a")))  # its turn comes after all others
    boosters.wait_for("last", "Initialized", "True")

    after = boosters.versions()
    assert {name: after[name] for name in before} == before
    assert boosters.scene.events("Updated") == []


async def test_images_are_those_of_the_config_map(
    control_plane: ControlPlane, namespace: str
) -> None:
    name = f"--from-literal={KTHENA.image_keys[1]}=mirror.example/runtime:1"

    async with connected(control_plane.kubeconfig, lambda: datetime.now(UTC)) as api:
        before = await with_images(KTHENA, api, namespace)
        control_plane.kubectl("create", "configmap", KTHENA.images, name, "--namespace", namespace)
        after = await with_images(KTHENA, api, namespace)

    assert before == KTHENA
    assert after.runtime_image == "mirror.example/runtime:1"
    assert after.downloader_image == KTHENA.downloader_image
