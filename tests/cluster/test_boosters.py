"""ModelBoosters and their children, and the numbers of roles that are one gang."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from inferno_operator.main import with_images
from inferno_operator.resources.dialects import DIALECTS, KTHENA, MATRIXINFER, Dialect
from inferno_operator.resources.objects import Kind
from tests.cluster.actuated import backend as backend_of
from tests.cluster.actuated import booster, cards, decide_roles, without_load
from tests.cluster.apart import CARDS
from tests.cluster.connection import connected
from tests.cluster.fleet import Fleet, running_fleet
from tests.cluster.kubelet import Witness, running_pods
from tests.cluster.role_pods import Role, of_serving, running_roles
from tests.cluster.scene import ACCOUNT, Scene, condition
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.waiting import wait_until
from tests.tiers import extended
from tests.unit.operator import objects

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


# The numbers of the roles of a ModelBooster whose prefill and decode are one gang


APART = "apart-main"
"""The serving of the booster."""


@pytest.fixture(params=[KTHENA, *extended(MATRIXINFER)], ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """What boosters and servings are called, and what their pods have as labels."""
    found: Dialect = request.param
    return found


@pytest.fixture
def controller(dialect: Dialect) -> Mapping[str, str]:
    """The setting with which the operator makes the servings of boosters."""
    return {"INFERNO_MODEL_BOOSTER": dialect.name}


@pytest.fixture
def fleet(control_plane: ControlPlane, scene: Scene, dialect: Dialect) -> Iterator[Fleet]:
    """The status of servings, which our Model Booster controller makes."""
    with running_fleet(control_plane.kubeconfig, scene.namespace, dialect) as fleet:
        fleet.makes_servings = False
        yield fleet


@pytest.fixture
def witness(control_plane: ControlPlane, scene: Scene, dialect: Dialect) -> Iterator[Witness]:
    """The pods of both roles start and end."""
    places = ("prefill", "l40s"), ("decode", "h100")
    roles = [role_of(dialect, *place) for place in places]
    with (
        running_roles(control_plane.kubeconfig, scene.namespace, roles),
        running_pods(control_plane.kubeconfig, scene.namespace, CARDS) as witness,
    ):
        yield witness


def role_of(dialect: Dialect, role: str, accelerator: str) -> Role:
    """The replicas of a role of the serving; without a group there are none."""
    made = of_serving(dialect)(f"{role}-{accelerator}", 1)

    def number(found: Manifest) -> int:
        return int(found.get("spec", {}).get("replicas", 0)) * made.number(found)

    labels = {**made.labels, dialect.pod_label("name"): APART}
    return replace(made, name=APART, labels=labels, number=number)


def booster_apart(
    dialect: Dialect, image: str = "example.com/engine", replicas: int = 1
) -> Manifest:
    """A booster with prefill and decode apart."""
    worker = {"image": image, "replicas": replicas, "pods": 1}
    workers = [{**worker, "type": role} for role in ("prefill", "decode")]
    made = backend_of("main", type="vLLMDisaggregated", workers=workers)
    return booster("apart", made, dialect=dialect)


BACKENDS = [
    {"name": "main", "accelerator": "L40S", "role": "Prefill"},
    {"name": "main", "accelerator": "H100", "role": "Decode"},
]


def backend_apart(scene: Scene, dialect: Dialect) -> Manifest:
    found = scene.get(str(dialect.booster), "apart")
    (backend,) = found["spec"]["backends"]
    return dict(backend)


def workers_of(scene: Scene, dialect: Dialect) -> dict[str, int]:
    workers = backend_apart(scene, dialect)["workers"]
    return {each["type"]: each["replicas"] for each in workers}


def roles_of(scene: Scene, dialect: Dialect) -> dict[str, int]:
    """The numbers in the serving."""
    spec = scene.get(str(dialect.serving), APART)["spec"]
    return {role["name"]: role["replicas"] for role in spec["template"]["roles"]}


GANGS: Manifest = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "gangs-of-roles"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["workload.serving.volcano.sh"],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["modelservings"],
                }
            ]
        },
        "validations": [
            {
                "expression": "!has(object.spec.template.gangPolicy) ||"
                " object.spec.template.roles.all(role,"
                " !(role.name in object.spec.template.gangPolicy.minRoleReplicas) ||"
                " object.spec.template.gangPolicy.minRoleReplicas[role.name] <= role.replicas)"
            }
        ],
    },
}
"""What Kthena's admission says of gangs: no role has fewer replicas than its policy asks for."""


@pytest.fixture
def gangs(control_plane: ControlPlane, scene: Scene) -> Iterator[None]:
    """Kthena's admission refuses roles that are smaller than their gangs, in this namespace."""
    of_namespace = {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}}
    bound = {
        "policyName": "gangs-of-roles",
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": of_namespace},
    }
    binding = {**GANGS, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound}
    scene.apply(GANGS, binding)
    role = {"name": "prefill", "replicas": 1, "workerReplicas": 0}
    role["entryTemplate"] = {"spec": {"containers": [{"name": "engine"}]}}
    template = {"roles": [role], "gangPolicy": {"minRoleReplicas": {"prefill": 2}}}
    wrong = {
        "apiVersion": KTHENA.serving.api_version,
        "kind": KTHENA.serving.kind,
        "metadata": {"name": "wrong", "namespace": scene.namespace},
        "spec": {"schedulerName": "volcano", "template": template},
    }
    dry_run = ("create", "--dry-run=server", "--filename", "-")
    wait_until(
        lambda: control_plane.kubectl(*dry_run, input=yaml.safe_dump(wrong), check=False).stderr,
        lambda refusal: "gangs-of-roles" in refusal,
        "the admission",
    )
    yield
    names = ("validatingadmissionpolicy,validatingadmissionpolicybinding", "gangs-of-roles")
    control_plane.kubectl("delete", *names)


def said(scene: Scene) -> str:
    """What the Server says of the numbers."""
    found = scene.get("server", "s")
    return str(condition(found, "Actuated").get("message"))


@pytest.mark.usefixtures("fleet", "gangs", "witness")
def test_the_roles_of_a_gang_are_scaled_and_keep_their_numbers_when_the_booster_is_edited(
    scene: Scene, operator: StartOperator, dialect: Dialect, controller: Mapping[str, str]
) -> None:
    def until(wanted: dict[str, int]) -> None:
        wait_until(
            lambda: (workers_of(scene, dialect), roles_of(scene, dialect), said(scene)),
            lambda found: found[:2] == (wanted, wanted),
            f"the numbers {wanted}",
        )

    made = booster_apart(dialect, replicas=3)
    made["metadata"]["annotations"] = {"inferno.platform.ai/gang-scheduling": "true"}
    refers = {"name": "apart", "dialect": dialect.name, "backends": BACKENDS}
    scene.apply(ACCOUNT, made, *cards("L40S", "H100"))
    scene.apply(objects.guarded({"window": 1}))
    spec = {"modelBooster": refers, "currentAlloc": without_load()}
    scene.apply(objects.server(spec=spec))
    operator(environment=controller)
    scene.control_plane.wait_for(str(dialect.serving), APART, bool, scene.namespace)

    until(decide_roles(scene, prefill=2, decode=4, accelerator="L40S"))
    until(decide_roles(scene, prefill=4, decode=1, accelerator="L40S"))

    edited = booster_apart(dialect, "example.com/engine:2", replicas=3)
    scene.apply({**edited, "metadata": made["metadata"]})
    until({"prefill": 4, "decode": 1})
    images = {worker["image"] for worker in backend_apart(scene, dialect)["workers"]}
    assert images == {"example.com/engine:2"}
