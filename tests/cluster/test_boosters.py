"""The Model Booster controller on a real API server, with our definitions of the children."""

import copy
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from inferno_operator.main import with_images
from inferno_operator.resources.dialects import DIALECTS, KTHENA, MATRIXINFER, Dialect
from inferno_operator.resources.objects import Kind
from tests.cluster.connection import connected
from tests.cluster.scene import Scene, condition
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
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


def single_backend(name: str, replicas: int) -> Manifest:
    """As later releases have it."""
    bounds = ("minReplicas", "maxReplicas")
    rest = {key: value for key, value in backend(name).items() if key not in bounds}
    return {**rest, "replicas": replicas}


def booster(name: str, *backends: Manifest, dialect: Dialect = KTHENA, **spec: object) -> Manifest:
    return {
        "apiVersion": dialect.booster.api_version,
        "kind": dialect.booster.kind,
        "metadata": {"name": name},
        "spec": {"backends": list(backends), **spec},
    }


METRICS = {"metrics": [{"metricName": "waiting", "targetValue": 10}]}


class Boosters:
    """What a test asks of the boosters of its namespace."""

    def __init__(self, scene: Scene, dialect: Dialect = KTHENA) -> None:
        self.scene = scene
        self.dialect = dialect

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

    def make_available(self, serving: str, replicas: int = 1, of: int | None = None) -> None:
        """Say what the controller of the servings would."""
        now = "2026-01-01T00:00:00Z"
        all_are = "True" if of in (None, replicas) else "False"
        available = {"type": "Available", "status": all_are, "reason": "AllGroupsReady"}
        status = {
            "replicas": replicas if of is None else of,
            "availableReplicas": replicas,
            "conditions": [{**available, "message": "", "lastTransitionTime": now}],
        }
        self.scene.control_plane.patch(
            str(self.dialect.serving),
            serving,
            {"status": status},
            self.scene.namespace,
            subresource="status",
        )

    def versions(self) -> dict[str, str]:
        """The version of each object: what is written changes it."""
        plane, namespace = self.scene.control_plane, self.scene.namespace
        kinds = (self.dialect.booster, *self.dialect.children)
        items = [item for kind in kinds for item in plane.items(str(kind), namespace)]
        return {
            f"{i['kind']}/{i['metadata']['name']}": i["metadata"]["resourceVersion"] for i in items
        }


@pytest.fixture
def boosters(scene: Scene) -> Boosters:
    return Boosters(scene)


def start(operator: StartOperator, dialect: str = "kthena") -> None:
    operator(environment={"INFERNO_MODEL_BOOSTER": dialect})


@pytest.mark.parametrize("name", DIALECTS)
def test_a_booster_gets_its_children(scene: Scene, operator: StartOperator, name: str) -> None:
    dialect = DIALECTS[name]
    boosters = Boosters(scene, dialect)
    boosters.apply(booster("m", backend("a"), backend("b"), dialect=dialect))

    start(operator, name)

    boosters.wait_for_names(
        **{dialect.serving.kind: ["m-a", "m-b"]}, ModelServer=["m-a", "m-b"], ModelRoute=["m"]
    )
    assert boosters.wait_for("m", "Initialized", "True")["reason"] == "ModelCreating"
    assert boosters.wait_for("m", "Active", "False")["reason"] == "ModelProcessing"


def test_a_booster_is_active_when_all_its_servings_are(
    boosters: Boosters, operator: StartOperator
) -> None:
    start(operator)
    boosters.apply(booster("m", backend("a"), backend("b", 3)))
    boosters.wait_for("m", "Initialized", "True")

    boosters.make_available("m-b", 3)
    assert "m-a" in boosters.wait_for("m", "Active", "False")["message"]
    boosters.make_available("m-a", 1)

    boosters.wait_for("m", "Active", "True")
    status = boosters.get(KTHENA.booster, "m")["status"]
    assert status["backendStatuses"] == [
        {"name": "m-a", "replicas": 1},
        {"name": "m-b", "replicas": 3},
    ]


def test_a_booster_stays_active_while_it_grows_and_until_a_backend_is_gone(
    boosters: Boosters, operator: StartOperator
) -> None:
    start(operator)
    boosters.apply(booster("m", backend("a", 2)))
    boosters.wait_for("m", "Initialized", "True")
    boosters.make_available("m-a", 2)
    before = boosters.wait_for("m", "Active", "True")

    boosters.patch(KTHENA.booster, "m", {"spec": {"backends": [backend("a", 5)]}})
    boosters.make_available("m-a", 2, of=5)

    def waits(manifest: Manifest) -> bool:
        return "more replicas of m-a" in condition(manifest, "Active")["message"]

    growing = condition(boosters.wait_until(KTHENA.booster, "m", waits), "Active")
    assert growing["status"] == "True"
    assert growing["lastTransitionTime"] == before["lastTransitionTime"]

    boosters.make_available("m-a", 0, of=5)

    assert "m-a" in boosters.wait_for("m", "Active", "False")["message"]


def test_a_gang_policy_that_cannot_change_stays_and_hinders_nothing(
    boosters: Boosters, operator: StartOperator
) -> None:
    start(operator)
    asked = booster("m", backend("a"))
    asked["metadata"]["annotations"] = {"inferno.platform.ai/gang-scheduling": "true"}
    boosters.apply(asked)
    boosters.wait_for("m", "Initialized", "True")

    changed = copy.deepcopy(backend("a"))
    changed["workers"][0]["replicas"] = 3
    boosters.patch(KTHENA.booster, "m", {"spec": {"backends": [changed]}})

    assert "keeps its gang policy" in boosters.wait_for("m", "Initialized", "True")["message"]
    boosters.wait_for("m", "Failed", "False")
    template = boosters.get(KTHENA.serving, "m-a")["spec"]["template"]
    assert template["roles"][0]["replicas"] == 3
    assert template["gangPolicy"] == {"minRoleReplicas": {"leader": 1}}


def test_what_is_not_wanted_any_more_goes(boosters: Boosters, operator: StartOperator) -> None:
    start(operator)
    scaled = {"maxReplicas": 2, "autoscalingPolicy": METRICS}
    boosters.apply(booster("m", {**backend("a"), **scaled}, {**backend("b"), **scaled}))
    every = ["m-a", "m-b"]
    boosters.wait_for_names(
        ModelServing=every,
        ModelServer=every,
        ModelRoute=["m"],
        AutoscalingPolicy=every,
        AutoscalingPolicyBinding=every,
    )

    boosters.patch(KTHENA.booster, "m", {"spec": {"backends": [backend("a")]}})

    boosters.wait_for_names(ModelServing=["m-a"], ModelServer=["m-a"], ModelRoute=["m"])


def test_children_go_with_their_booster(
    boosters: Boosters, operator: StartOperator, controller_manager: None
) -> None:
    del controller_manager
    start(operator)
    boosters.apply(booster("m", backend("a")))
    boosters.wait_for_names(ModelServing=["m-a"], ModelServer=["m-a"], ModelRoute=["m"])

    boosters.delete(KTHENA.booster, "m")

    boosters.wait_for_names()


def test_a_child_that_is_edited_or_deleted_is_mended(
    boosters: Boosters, operator: StartOperator
) -> None:
    start(operator)
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


def test_a_child_of_somebody_else_is_left_alone(
    boosters: Boosters, operator: StartOperator
) -> None:
    foreign = {
        "apiVersion": KTHENA.route.api_version,
        "kind": "ModelRoute",
        "metadata": {"name": "m"},
        "spec": {"modelName": "other", "rules": []},
    }
    boosters.apply(foreign, booster("m", backend("a")))
    start(operator)

    assert "ModelRoute m" in boosters.wait_for("m", "Failed", "True")["message"]
    assert boosters.get(KTHENA.route, "m")["spec"]["modelName"] == "other"

    boosters.delete(KTHENA.route, "m")

    boosters.wait_for("m", "Failed", "False")
    assert boosters.get(KTHENA.route, "m")["spec"]["modelName"] == "m"


def test_new_bounds_weights_and_costs_roll_no_pods(
    boosters: Boosters, operator: StartOperator
) -> None:
    start(operator)
    boosters.apply(booster("m", backend("a"), backend("b")))
    boosters.wait_for("m", "Initialized", "True")
    before = boosters.get(KTHENA.serving, "m-a")["spec"]["template"]

    changed = [backend("a", 3, routeWeight=10), backend("b", 2, routeWeight=90)]
    boosters.patch(KTHENA.booster, "m", {"spec": {"backends": changed}})
    boosters.wait_for("m", "Initialized", "True")

    after = boosters.get(KTHENA.serving, "m-a")["spec"]
    assert after["replicas"] == 3
    assert after["template"] == before


def test_replicas_of_the_plan_stay(boosters: Boosters, operator: StartOperator) -> None:
    start(operator)
    boosters.apply(booster("m", backend("a")))
    boosters.wait_for("m", "Initialized", "True")
    planned = {
        "apiVersion": KTHENA.serving.api_version,
        "kind": "ModelServing",
        "metadata": {"name": "m-a"},
        "spec": {"replicas": 7},
    }
    boosters.scene.control_plane.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--field-manager=inferno-operator"),
        *("--namespace", boosters.scene.namespace, "--filename", "-"),
        input=json.dumps(planned),
    )

    changed = copy.deepcopy(backend("a"))
    changed["workers"][0]["image"] = "engine:2"
    boosters.patch(KTHENA.booster, "m", {"spec": {"backends": [changed]}})

    def has_new_image(serving: Manifest) -> bool:
        return "engine:2" in json.dumps(serving["spec"])

    serving = boosters.wait_until(KTHENA.serving, "m-a", has_new_image)
    assert serving["spec"]["replicas"] == 7


def test_replicas_of_roles_stay_when_a_booster_is_edited(
    boosters: Boosters, operator: StartOperator
) -> None:
    def disaggregated(image: str) -> Manifest:
        config = {"kv-transfer-config": {"kv_connector": "NixlConnector"}}
        workers = [
            {"type": role, "image": image, "replicas": 1, "pods": 1, "config": config}
            for role in ("prefill", "decode")
        ]
        return booster("m", backend("a", type="vLLMDisaggregated", workers=workers))

    def roles() -> dict[str, tuple[int, str]]:
        found = boosters.get(KTHENA.serving, "m-a")["spec"]["template"]["roles"]
        return {
            role["name"]: (
                role["replicas"],
                role["entryTemplate"]["spec"]["containers"][-1]["image"],
            )
            for role in found
        }

    boosters.apply(disaggregated("engine:1"))
    operator(environment={"INFERNO_MODEL_BOOSTER": "kthena"})
    boosters.wait_for_names(ModelServing=["m-a"], ModelServer=["m-a"], ModelRoute=["m"])
    patch = [{"op": "replace", "path": "/spec/template/roles/0/replicas", "value": 3}]
    place = str(KTHENA.serving), "m-a", "--namespace", boosters.scene.namespace
    boosters.scene.control_plane.kubectl(
        *("patch", *place, "--type=json", "--field-manager=inferno-actuation"),
        f"--patch={json.dumps(patch)}",
    )

    boosters.apply(disaggregated("engine:2"))

    wait_until(
        roles,
        lambda found: {image for _, image in found.values()} == {"engine:2"},
        "the new image",
    )
    assert {name: replicas for name, (replicas, _) in roles().items()} == {
        "prefill": 3,
        "decode": 1,
    }


def test_a_failure_is_told_and_is_over_when_it_is(
    boosters: Boosters, operator: StartOperator
) -> None:
    start(operator)
    boosters.apply(booster("m", backend("a"), backend("b", type="MindIE")))

    failed = boosters.wait_for("m", "Failed", "True")
    assert "spec.backends[1].type MindIE is not supported" in failed["message"]
    boosters.wait_for_names(ModelServing=["m-a"], ModelServer=["m-a"], ModelRoute=["m"])
    assert boosters.scene.events("Failed")

    boosters.patch(KTHENA.booster, "m", {"spec": {"backends": [backend("a"), backend("b")]}})

    boosters.wait_for("m", "Failed", "False")
    assert boosters.scene.events("Created")


@pytest.mark.parametrize("first", ["operator", "loss"])
def test_a_definition_that_is_missing_is_named_and_found_later(
    scene: Scene, operator: StartOperator, first: str
) -> None:
    boosters, plane = Boosters(scene, MATRIXINFER), scene.control_plane
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
        start(operator, "matrixinfer")
        boosters.wait_for_names(**children)

    plane.kubectl("delete", "crd", str(MATRIXINFER.route))
    try:
        if first == "loss":
            start(operator, "matrixinfer")
        without = boosters.wait_until(MATRIXINFER.booster, "m", told)
    finally:
        plane.install_crds(ROOT / "crds" / "matrixinfer")

    assert condition(without, "Failed")["status"] == "True"
    boosters.wait_for("m", "Failed", "False")
    boosters.wait_for_names(**children)


def test_the_one_backend_of_later_releases_is_read(
    boosters: Boosters, operator: StartOperator
) -> None:
    start(operator)
    boosters.apply({**booster("m"), "spec": {"backend": single_backend("a", 2)}})

    boosters.wait_for("m", "Initialized", "True")

    assert boosters.get(KTHENA.serving, "m-a")["spec"]["replicas"] == 2
    assert "backendStatuses" not in boosters.get(KTHENA.booster, "m")["status"]


@pytest.mark.extended
def test_many_boosters_converge_and_then_nothing_is_written(
    boosters: Boosters, operator: StartOperator
) -> None:
    backends = [backend(name) for name in ("a", "b", "c")]
    boosters.apply(*(booster(f"m{i:03}", *backends) for i in range(200)))
    process = operator(environment={"INFERNO_MODEL_BOOSTER": "kthena"})

    def initialized() -> int:
        items = boosters.scene.control_plane.items(str(KTHENA.booster), boosters.scene.namespace)
        return sum(condition(item, "Initialized").get("status") == "True" for item in items)

    wait_until(initialized, lambda n: n == 200, "200 boosters")
    assert len(boosters.names()["ModelServing"]) == 600
    before = boosters.versions()
    process.stop()

    start(operator)
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
