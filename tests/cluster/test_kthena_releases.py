"""Decisions reach the objects of each release of Kthena, and roll nothing."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inferno_operator.controllers.scaling.boosters import has_own_fields
from inferno_operator.resources.dialects import KTHENA, MATRIXINFER
from inferno_operator.resources.objects import Kind
from tests.cluster.actuated import (
    BOOSTERS,
    SERVINGS,
    Actuated,
    backend,
    booster,
    cards,
    decide_roles,
    server_with_roles,
)
from tests.cluster.fleet import Fleet, running_fleet
from tests.cluster.scene import ACCOUNT, Scene, condition
from tests.conftest import ROOT
from tests.controlplane import ControlPlane
from tests.controlplane.deployments import deployment
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.waiting import wait_until
from tests.deployment.rendering import NAMESPACE, kustomize
from tests.deployment.rights import BINDINGS as BINDINGS_OF_ROLES
from tests.deployment.rights import ROLES
from tests.tiers import extended
from tests.unit.operator import objects

Manifest = dict[str, Any]

DEFINITIONS = ROOT / "tests/data/kthena"
BINDINGS, POLICIES = str(KTHENA.binding), str(KTHENA.policy)
BOUNDS = ("minReplicas", "maxReplicas")
API_VERSION = "workload.serving.volcano.sh/v1alpha1"


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Kthena: how a model on two accelerators and its autoscaling look there.

    Attributes
    ----------
    numbers
        The fields of a backend with its replicas, for each number.
    scaler
        The resource that binds an autoscaler to ModelServings.
    one, several
        The parts of its spec for one target and for several.
    """

    name: str
    numbers: tuple[str, ...]
    scaler: str
    one: str
    several: str

    @property
    def has_one_backend(self) -> bool:
        return self.name != "v0.1.0"

    @property
    def backends(self) -> list[Manifest]:
        """The backends of the Server's reference."""
        if self.has_one_backend:
            second = {"name": "main", "accelerator": "H100", "booster": "n"}
            return [{"name": "main", "accelerator": "A100"}, second]
        return [{"name": "a100", "accelerator": "A100"}, {"name": "h100", "accelerator": "H100"}]

    @property
    def servings(self) -> tuple[str, str]:
        return ("m-main", "n-main") if self.has_one_backend else ("m-a100", "m-h100")

    @property
    def kinds(self) -> list[Kind]:
        every = (KTHENA.booster, *KTHENA.children)
        return [kind for kind in every if self.scaler == BINDINGS or kind != KTHENA.binding]

    def boosters(self) -> list[Manifest]:
        if not self.has_one_backend:
            return [booster("m", backend("a100"), backend("h100"))]
        fields = {k: v for k, v in backend("main").items() if not k.endswith("Replicas")}
        one = {**fields, **dict(zip(self.numbers, (0, 1), strict=False))}
        return [{**booster(name), "spec": {"backend": one}} for name in ("m", "n")]

    def others(self) -> list[Manifest]:
        """Boosters with one backend that no Server refers to: disaggregated, and autoscaled."""
        one = parts(self.boosters()[0]["spec"])[0]
        workers = [{**one["workers"][0], "type": role} for role in ("prefill", "decode")]
        split = {"backend": {**one, "type": "vLLMDisaggregated", "workers": workers}}
        found = [{**booster("split"), "spec": split}]
        if self.numbers == BOUNDS:
            metrics = [{"metricName": "waiting", "targetValue": 10}]
            policy = {"autoscalingPolicy": {"metrics": metrics}}
            scaled = {"backend": {**one, "minReplicas": 1}, **policy}
            found.append({**booster("scaled"), "spec": scaled})
        return found

    def scalers(self) -> list[Manifest]:
        """What binds an autoscaler to the two servings: one of one target, one of several."""
        kind = "AutoscalingPolicy" if self.scaler == POLICIES else "AutoscalingPolicyBinding"
        common = {} if self.scaler == POLICIES else {"policyRef": {"name": "policy"}}
        first, second = (bounded(name, 0, 9) for name in self.servings)
        parts = {self.one: first}, {self.several: {"params": [{**second, "cost": 3}]}}
        return [
            {
                "apiVersion": API_VERSION,
                "kind": kind,
                "metadata": {"name": f"any-name-{position}"},
                "spec": {**common, **part},
            }
            for position, part in enumerate(parts)
        ]


def bounded(serving: str, least: int, most: int) -> Manifest:
    target = {"targetRef": {"kind": "ModelServing", "name": serving}}
    return {"target": target, "minReplicas": least, "maxReplicas": most}


OLD_PARTS = "scalingConfiguration", "optimizerConfiguration"
PARTS = "homogeneousTarget", "heterogeneousTarget"
RELEASES = [
    Release("v0.1.0", BOUNDS, BINDINGS, *OLD_PARTS),
    Release("v0.4.0", BOUNDS, BINDINGS, *PARTS),
    Release("v1.0.0", ("replicas",), POLICIES, *PARTS),
]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own: the definitions of all releases have the same names."""
    with ControlPlane() as plane:
        plane.install_crds(ROOT / "crds")
        yield plane


@pytest.fixture(
    params=[*extended(*RELEASES[:-1]), RELEASES[-1]],
    ids=lambda release: release.name,
    scope="module",
)
def release(plane: ControlPlane, request: pytest.FixtureRequest) -> Release:
    """A release, and its definitions installed in place of those of another one."""
    release: Release = request.param
    plane.install_crds(DEFINITIONS / release.name)
    if release.scaler == POLICIES:
        plane.kubectl("delete", "--ignore-not-found", "crd", BINDINGS)
    return release


@pytest.fixture
def actuated(plane: ControlPlane, release: Release) -> Actuated:  # noqa: ARG001 - installs
    """A new namespace."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    plane.create_namespace(name)
    return Actuated(Scene(plane, name))


@pytest.fixture
def fleet(plane: ControlPlane, actuated: Actuated) -> Iterator[Fleet]:
    """Kthena's own controllers, in miniature."""
    with running_fleet(plane.kubeconfig, actuated.scene.namespace) as fleet:
        yield fleet


@pytest.fixture
def operator(actuated: Actuated, tmp_path: Path) -> OperatorProcess:
    """An operator beside Kthena's own controllers."""
    return actuated.scene.start_operator(tmp_path.name)


def templates(actuated: Actuated) -> dict[str, Manifest]:
    """All of each serving but its number of replicas: a change of it would roll pods."""
    items = actuated.scene.items(SERVINGS)
    return {
        item["metadata"]["name"]: {k: v for k, v in item["spec"].items() if k != "replicas"}
        for item in items
    }


def bounds(actuated: Actuated, release: Release) -> dict[str, tuple[int, int]]:
    items = actuated.scene.items(release.scaler)
    specs = [item["spec"] for item in items]
    found = [spec[release.one] for spec in specs if release.one in spec]
    found += [p for spec in specs for p in spec.get(release.several, {}).get("params", ())]
    return {
        part["target"]["targetRef"]["name"]: (part["minReplicas"], part["maxReplicas"])
        for part in found
    }


def numbers(actuated: Actuated, release: Release) -> list[tuple[int, ...]]:
    """The replicas or bounds of all backends, as the boosters have them."""
    boosters = actuated.scene.items(BOOSTERS)
    found = [part for each in boosters for part in parts(each["spec"])]
    return [tuple(part[name] for name in release.numbers) for part in found]


def aim_at(actuated: Actuated, target: str) -> None:
    actuated.scene.patch("server", "s", {"spec": {"modelBooster": {"target": target}}})


def test_decisions_arrive_wherever_a_release_has_replicas_and_roll_nothing(
    actuated: Actuated, release: Release, fleet: Fleet, operator: OperatorProcess
) -> None:
    first, second = release.servings
    actuated.scene.apply(*release.boosters())
    wait_until(lambda: templates(actuated), lambda found: len(found) == 2, "servings")
    before = templates(actuated)

    actuated.apply(wanted=2, backends=release.backends, target="Binding")
    told = actuated.wait_for("NoBinding")
    actuated.scene.apply(*release.scalers())
    decided = {first: (2, 2), second: (0, 1)}
    wait_until(lambda: bounds(actuated, release), lambda b: b == decided, "the bounds")
    actuated.scene.patch(SERVINGS, first, {"spec": {"replicas": 2}})  # as the autoscaler would
    actuated.wait_for("Actuated", text="2 x A100")
    assert release.backends[0]["name"] in told["message"]
    assert bounds(actuated, release) == decided
    assert fleet.available == {first: 2, second: 0}

    aim_at(actuated, "ModelServing")
    actuated.have_only_h100()
    actuated.load(3)
    actuated.wait_for("Actuated", text="3 x H100")
    assert actuated.replicas() == {first: 0, second: 3}
    assert fleet.available == {first: 0, second: 3}

    if release.name != "v0.1.0":  # it has no scale subresource
        scale(actuated, second, 1)
        wait_until(actuated.replicas, lambda found: found[second] == 3, "scaled back")
        scale(actuated, second, 1)
        told = actuated.wait_for("ForeignWriter")
        assert "'kubectl' changed the number of replicas" in told["message"]

    aim_at(actuated, "ModelBooster")
    actuated.load(4)
    actuated.wait_for("Actuated", text="4 x H100")
    in_bounds = release.numbers == BOUNDS
    assert numbers(actuated, release) == ([(0, 1), (4, 4)] if in_bounds else [(0,), (4,)])
    assert templates(actuated) == before
    assert owned(actuated, release) == {release.backends[1].get("booster", "m")}  # was changed

    assert operator.stop() == 0
    actuated.scene.kubectl("delete", "server", "s")
    again = actuated.scene.start_operator(f"{actuated.scene.namespace}-again")
    wait_until(lambda: owned(actuated, release), lambda names: not names, "a sweep")
    assert numbers(actuated, release)[-1][0] == 4
    assert again.stop() == 0


def kubeconfig_of_the_manifests(actuated: Actuated) -> Path:
    """The operator's account in the namespace, with the rights that the manifests give it."""
    plane, namespace = actuated.scene.control_plane, actuated.scene.namespace
    rights = kustomize(plane.kubectl_program, ROOT / "manifests" / "kustomize" / "rbac")
    kinds = ("ServiceAccount", *ROLES, *BINDINGS_OF_ROLES)
    text = json.dumps([manifest for manifest in rights if manifest["kind"] in kinds])
    actuated.scene.apply(*json.loads(text.replace(NAMESPACE, namespace)))
    return plane.service_account_kubeconfig(namespace, "inferno-operator")


def ready_pod(serving: str) -> Manifest:
    """The first pod of a replica of a serving."""
    labels = {KTHENA.pod_label("name"): serving, KTHENA.pod_label("entry"): "true"}
    containers = [{"name": "engine", "image": "example.com/engine"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{serving}-0", "labels": labels},
        "spec": {"containers": containers, "nodeName": "n"},
    }


@pytest.mark.parametrize("release", RELEASES[-1:], indirect=True, scope="module")
def test_what_a_booster_left_is_counted_with_the_rights_of_the_manifests(
    actuated: Actuated, release: Release, fleet: Fleet, tmp_path: Path
) -> None:
    actuated.scene.apply(ACCOUNT, *release.boosters())
    kubeconfig = kubeconfig_of_the_manifests(actuated)
    operator = actuated.scene.start_operator(tmp_path.name, kubeconfig)
    actuated.apply(wanted=2, backends=release.backends)
    actuated.wait_until_runs("A100", 2)
    actuated.wait_for("Actuated", text="2 x A100")

    first, _ = release.servings
    actuated.scene.apply(ready_pod(first), deployment("engine"))
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": objects.born(0)}
    actuated.scene.patch("pod", f"{first}-0", {"status": {"conditions": [ready]}}, "status")
    workloads = [{"accelerator": "H100", "name": "engine"}]
    actuated.scene.patch("server", "s", {"spec": {"modelBooster": None, "workloads": workloads}})

    actuated.wait_for("NotFound", text=f"ModelServing {first!r} has 2 replicas on A100 and is not")
    actuated.wait_until_runs("A100", 1)  # of two that are asked for, one has a pod
    assert fleet.available[first] == 2
    assert operator.stop() == 0


def test_both_roles_of_a_backend_get_their_numbers(
    actuated: Actuated, release: Release, fleet: Fleet, operator: OperatorProcess
) -> None:
    fleet.makes_servings = False  # pods are what counts, and there are none
    (made,) = (each for each in release.others() if each["metadata"]["name"] == "split")
    if not release.has_one_backend:
        made = {**made, "spec": {"backends": [made["spec"]["backend"]]}}
    named = {"name": parts(made["spec"])[0]["name"]}
    actuated.scene.apply(made, *cards("A100", "H100"))
    actuated.scene.apply(server_with_roles(named))
    decide_roles(actuated.scene, prefill=3, decode=2)

    def written() -> dict[str, int]:
        (part,) = parts(actuated.scene.get(BOOSTERS, "split")["spec"])
        return {worker["type"]: worker["replicas"] for worker in part["workers"]}

    wait_until(written, lambda found: found == {"prefill": 3, "decode": 2}, "numbers")
    told = actuated.wait_for("Moving")
    assert "0 x A100 prefill (3 wanted)" in told["message"]
    assert numbers(actuated, release) == [(1, 1) if release.numbers == BOUNDS else (1,)]
    assert owned(actuated, release) == {"split"}

    actuated.scene.patch("server", "s", {"spec": {"modelBooster": None}})
    wait_until(lambda: owned(actuated, release), lambda names: not names, "a release")
    assert written() == {"prefill": 3, "decode": 2}
    assert operator.stop() == 0


def owned(actuated: Actuated, release: Release) -> set[str]:
    """The names of the objects that actuation owns fields of."""
    kinds = f"{BOOSTERS},{SERVINGS},{release.scaler}"
    shown = actuated.scene.kubectl("get", kinds, "--show-managed-fields", "--output=json")
    return {i["metadata"]["name"] for i in json.loads(shown)["items"] if has_own_fields(i)}


def scale(actuated: Actuated, serving: str, replicas: int) -> None:
    actuated.scene.kubectl("scale", f"{SERVINGS}/{serving}", f"--replicas={replicas}")


@pytest.mark.parametrize(
    "release",
    [*extended(RELEASES[1]), RELEASES[2]],
    ids=lambda release: release.name,
    indirect=True,
    scope="module",
)  # tests of boosters have v0.1.0
def test_our_controller_makes_what_a_later_release_accepts_and_rests(
    actuated: Actuated, release: Release, fleet: Fleet, tmp_path: Path
) -> None:
    fleet.makes_servings = False
    actuated.scene.apply(*release.boosters(), *release.others())
    operator = actuated.scene.start_operator(tmp_path.name, INFERNO_MODEL_BOOSTER="kthena")

    def told(type_: str) -> dict[str, str]:
        items = actuated.scene.items(BOOSTERS)
        return {b["metadata"]["name"]: condition(b, type_).get("status", "") for b in items}

    wait_until(lambda: told("Initialized"), lambda s: set(s.values()) == {"True"}, "children")
    assert set(told("Failed").values()) == {"False"}

    before = templates(actuated)
    actuated.apply(wanted=2, backends=release.backends)
    actuated.wait_for("Actuated", text="2 x A100")
    actuated.wait_until_runs("A100", 2)
    assert operator.stop() == 0
    kinds = ",".join(str(k) for k in release.kinds)
    settled = actuated.scene.versions(kinds)
    again = actuated.scene.start_operator(f"{tmp_path.name}-again", INFERNO_MODEL_BOOSTER="kthena")
    actuated.scene.apply({**release.boosters()[0], "metadata": {"name": "last"}})
    wait_until(lambda: told("Initialized"), lambda s: s.get("last") == "True", "its turn")

    after = actuated.scene.versions(kinds)
    assert {name: after[name] for name in settled} == settled
    assert {name: templates(actuated)[name] for name in before} == before
    assert again.stop() == 0


def parts(spec: Manifest) -> list[Manifest]:
    """The backends of a booster."""
    backends: list[Manifest] = spec.get("backends") or [spec["backend"]]
    return backends


def test_another_snapshot_of_matrixinfer_is_refused_with_the_field(
    plane: ControlPlane, tmp_path: Path
) -> None:
    for path in sorted((ROOT / "crds/matrixinfer").glob("*.yaml")):
        later = tmp_path / path.name  # its last release has another field for gangs
        later.write_text(path.read_text().replace("gangSchedule:", "gangPolicy:"))
    plane.install_crds(tmp_path)
    name = f"test-{uuid.uuid4().hex[:8]}"
    plane.create_namespace(name)
    actuated = Actuated(Scene(plane, name))
    kind = MATRIXINFER.booster
    model = {**booster("m", backend("a")), "apiVersion": kind.api_version, "kind": kind.kind}
    actuated.scene.apply(model)

    operator = actuated.scene.start_operator("matrixinfer", INFERNO_MODEL_BOOSTER="matrixinfer")

    failed = wait_until(
        lambda: condition(actuated.scene.get(str(kind), "m"), "Failed"), bool, "a refusal"
    )
    assert failed["status"] == "True"
    assert ".spec.template.gangSchedule" in failed["message"]
    assert "MatrixInfer of 2025-08-14 (commit 0716ba8a)" in failed["message"]
    assert operator.stop() == 0
