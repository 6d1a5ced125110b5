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

pytestmark = pytest.mark.usefixtures("crds_installed", "boosters_installed")


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
        return self._operator(environment={"INFERNO_MODEL_BOOSTER": self.dialect.name})

    def names(self) -> dict[str, list[str]]:
        """Names of the children by kind."""
        return {
            kind.kind: [item["metadata"]["name"] for item in self.scene.items(str(kind))]
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

    def wait_until(self, kind: Kind, name: str, met: Callable[[Manifest], bool]) -> Manifest:
        return self.scene.control_plane.wait_for(str(kind), name, met, self.scene.namespace)


@pytest.fixture
def boosters(scene: Scene, operator: StartOperator) -> Boosters:
    return Boosters(scene, operator)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_booster_gets_its_children(scene: Scene, operator: StartOperator, name: str) -> None:
    dialect = DIALECTS[name]
    boosters = Boosters(scene, operator, dialect)
    boosters.scene.apply(booster("m", backend("a"), backend("b"), dialect=dialect))

    boosters.start()

    boosters.wait_for_names(
        **{dialect.serving.kind: ["m-a", "m-b"]}, ModelServer=["m-a", "m-b"], ModelRoute=["m"]
    )
    assert boosters.wait_for("m", "Initialized", "True")["reason"] == "ModelCreating"
    assert boosters.wait_for("m", "Active", "False")["reason"] == "ModelProcessing"


def test_a_child_that_is_edited_or_deleted_is_mended(boosters: Boosters) -> None:
    boosters.start()
    boosters.scene.apply(booster("m", backend("a")))
    boosters.wait_for("m", "Initialized", "True")

    noted = {"labels": {"team": "blue"}, "annotations": {"note": "mine"}}
    edited = {"metadata": noted, "spec": {"workloadPort": {"port": 1}}}
    boosters.scene.patch(str(KTHENA.server), "m-a", edited)
    boosters.scene.kubectl("delete", str(KTHENA.route), "m")

    boosters.wait_until(KTHENA.route, "m", lambda _: True)
    mended = boosters.wait_until(
        KTHENA.server, "m-a", lambda server: server["spec"]["workloadPort"]["port"] == 8000
    )
    assert mended["metadata"]["labels"]["team"] == "blue"
    assert mended["metadata"]["annotations"]["note"] == "mine"


def test_a_definition_that_is_missing_is_named_and_found_later(
    scene: Scene, operator: StartOperator
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

    boosters.scene.apply(booster("m", backend("a"), dialect=MATRIXINFER))
    boosters.start()
    boosters.wait_for_names(**children)

    plane.kubectl("delete", "crd", str(MATRIXINFER.route))
    try:
        without = boosters.wait_until(MATRIXINFER.booster, "m", told)
    finally:
        plane.install_crds(ROOT / "crds" / "matrixinfer")

    assert condition(without, "Failed")["status"] == "True"
    boosters.wait_for("m", "Failed", "False")
    boosters.wait_for_names(**children)


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
