"""A Server goes from one ModelBooster to the prefill and decode of another, operators killed."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from inferno_operator.resources.dialects import KTHENA, MATRIXINFER, Dialect
from tests.cluster.actuated import backend as backend_of
from tests.cluster.actuated import booster, cards, decide_roles, without_load
from tests.cluster.apart import CARDS, LOOSE, TIGHT, documents, server, sizes, targets
from tests.cluster.fleet import Fleet, running_fleet
from tests.cluster.kubelet import Witness, running_pods
from tests.cluster.role_pods import Role, of_serving, running_roles
from tests.cluster.scene import ACCOUNT, Scene, condition
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until
from tests.tiers import extended
from tests.unit.operator import objects

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("crds_installed", "boosters_installed")

WHOLE, APART = "together-main", "apart-main"
"""The servings of both boosters."""


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


def boosters(dialect: Dialect) -> Iterator[Manifest]:
    """One that runs whole requests, one with prefill and decode apart, and what pods need."""
    yield ACCOUNT
    yield booster("together", backend_of("main"), dialect=dialect)
    yield booster_apart(dialect)


def booster_apart(
    dialect: Dialect, image: str = "example.com/engine", replicas: int = 1
) -> Manifest:
    """A booster with prefill and decode apart."""
    worker = {"image": image, "replicas": replicas, "pods": 1}
    workers = [{**worker, "type": role} for role in ("prefill", "decode")]
    made = backend_of("main", type="vLLMDisaggregated", workers=workers)
    return booster("apart", made, dialect=dialect)


BACKENDS = [
    {"name": "main", "accelerator": "H100"},
    {"name": "main", "accelerator": "L40S", "role": "Prefill", "booster": "apart"},
    {"name": "main", "accelerator": "H100", "role": "Decode", "booster": "apart"},
]


def ask(scene: Scene, itl: int) -> None:
    """Have a plan for another target, once the last one, which is asked for alike, is whole."""
    scene.wait_until_done("apart")
    scene.patch("serviceclass", "premium", {"spec": {"data": targets(itl)}})
    scene.request("apart")


def told(scene: Scene, reason: str) -> Manifest:
    """Wait until the Server has a condition with a reason, and a decision; returns the Server."""

    def tells(found: Manifest) -> bool:
        desired = found["spec"].get("desiredAlloc", {}).get("numReplicas", 0)
        return condition(found, "Actuated").get("reason") == reason and desired > 0

    return wait_until(lambda: server(scene), tells, reason)


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


@pytest.mark.extended
def test_both_roles_of_a_booster_move_together_with_the_operator_killed_in_between(
    scene: Scene,
    operator: StartOperator,
    dialect: Dialect,
    controller: Mapping[str, str],
    fleet: Fleet,
    witness: Witness,
) -> None:
    refers = {"name": "together", "dialect": dialect.name, "backends": BACKENDS}
    scene.apply(*boosters(dialect), *documents(LOOSE, CARDS, modelBooster=refers))
    running = operator(environment=controller)
    together = told(scene, "Actuated")["spec"]["currentAlloc"]
    ask(scene, TIGHT)
    apart = wait_until(lambda: sizes(server(scene)["spec"].get("desiredAlloc", {})), bool, "roles")
    gaps = []

    def look() -> bool:
        whole = fleet.available.get(WHOLE, 0)  # first: it may go once both roles serve
        serving = witness.serving()
        arrived = all(serving[role] >= least for role, least in apart.items())
        if whole < together["numReplicas"] and not arrived:
            gaps.append(dict(serving))
        return arrived and not whole

    for seconds in (0.3, 0.9):
        witness.pause(seconds)
        look()
        running.kill()
        running = operator(environment=controller)
    wait_until(look, bool, "both roles")

    assert "roles" not in together
    assert gaps == []
    wait_until(
        lambda: (workers_of(scene, dialect), roles_of(scene, dialect)),
        lambda found: found == (apart, apart),
        f"the numbers {apart}",
    )
    current = wait_until(lambda: sizes(server(scene)["spec"]["currentAlloc"]), bool, "what runs")
    assert current == apart

    ask(scene, LOOSE)
    wait_until(witness.serving, lambda found: not +found, "an end of both roles")
    wait_until(lambda: fleet.available[WHOLE], lambda n: n == together["numReplicas"], "the whole")
    back = told(scene, "Actuated")["spec"]["currentAlloc"]
    assert ("roles" in back, back["numReplicas"]) == (False, together["numReplicas"])


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
    refers = {"name": "apart", "dialect": dialect.name, "backends": BACKENDS[1:]}
    scene.apply(*boosters(dialect), made, *cards("L40S", "H100"))
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
