"""Wrong manifests on a real control plane: the Deployments keep their replicas."""

import json
from collections.abc import Iterator

import pytest

from inferno_operator.resources import GROUP
from tests.cluster.kubelet import running_pods
from tests.cluster.scene import Manifest, Mode, Scene, condition, in_mode
from tests.conftest import ROOT, StartOperator
from tests.controlplane.deployments import deployment
from tests.controlplane.errors import ApiError
from tests.tiers import extended
from tests.unit.operator import objects

pytestmark = pytest.mark.usefixtures("crds_installed", "deployment_controllers")

BEFORE = {"chat-a100": 3, "chat-h100": 0, "mail-a100": 0, "mail-h100": 2}
"""3 of 3 A100 and 2 of 8 H100 are in use: nothing is to be changed."""

DECIDED = {"chat": ("A100", 3), "mail": ("H100", 2)}


class Fleet:
    """Two Servers, each with a Deployment on A100 and on H100; what they need runs."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def _apply(self) -> None:
        self.scene.apply(
            *(self._accelerator(name, cost) for name, cost in (("A100", 10), ("H100", 30))),
            objects.model("M", [objects.performance(name) for name in ("A100", "H100")]),
            objects.service_class(),
            counted(A100=3, H100=8),
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
            *(deployment(name, replicas) for name, replicas in BEFORE.items()),
            self._server("chat", 3, "A100"),
            self._server("mail", 2, "H100"),
            objects.optimizer(optimize=False, name="inferno"),
        )

    def _accelerator(self, name: str, cost: float) -> Manifest:
        spec = {"name": name, "type": name, "cost": cost}
        return objects.manifest("Accelerator", spec, name=name.lower())

    def _server(self, name: str, replicas: int, accelerator: str) -> Manifest:
        runs = objects.running(replicas, replicas, accelerator)
        return objects.server(name, spec={"workloads": workloads_of(name), "currentAlloc": runs})

    def run(self, start: StartOperator) -> Scene:
        """Apply all objects, start the operator, plan, and wait until what was decided runs."""
        self._apply()
        start()
        self.optimize()
        self._wait_until_it_runs()
        return self.scene

    def optimize(self) -> Manifest:
        self.scene.request("inferno")
        return self.scene.wait_until_done("inferno")

    def _wait_until_it_runs(self) -> None:
        """Wait until each Deployment has its replicas, and the Servers say so."""

        def ready(manifest: Manifest) -> bool:
            told = condition(manifest, "Actuated")
            return told.get("status") == "True"

        for name in ("chat", "mail"):
            self.scene.control_plane.wait_for("server", name, ready, self.scene.namespace)

    def replicas(self) -> dict[str, int]:
        found = self.scene.control_plane.items("deployments", self.scene.namespace)
        return {item["metadata"]["name"]: item["spec"]["replicas"] for item in found}

    def said(self, server: str) -> tuple[str, str]:
        """Reason and message of what is decided."""
        told = condition(self.scene.servers()[server], "Allocated")
        return told["reason"], told["message"]

    def waits(self) -> str:
        """What the last optimization says of Plans that wait."""
        message: str = condition(self.scene.optimizer("inferno"), "Optimized")["message"]
        return message

    def check(self, server: str, reason: str, words: str) -> None:
        """Plan twice: nothing changes, and this is said of a Server."""
        self.optimize()
        self.optimize()
        assert (self.replicas(), self.desired()) == (BEFORE, DECIDED)
        found, message = self.said(server)
        assert (found, words in message) == (reason, True)

    def desired(self) -> dict[str, tuple[str, int]]:
        found = {n: s["spec"]["desiredAlloc"] for n, s in self.scene.servers().items()}
        return {name: (d["accelerator"], d["numReplicas"]) for name, d in found.items()}


def workloads_of(server: str) -> list[Manifest]:
    return [{"accelerator": a, "name": f"{server}-{a.lower()}"} for a in ("A100", "H100")]


def counted(**counts: int) -> Manifest:
    items = [{"type": name, "count": count} for name, count in counts.items()]
    return objects.manifest("Capacity", {"count": items}, name="cards")


@pytest.fixture
def fleet(scene: Scene) -> Iterator[Fleet]:
    with running_pods(scene.control_plane.kubeconfig, scene.namespace, {}):
        yield Fleet(scene)


def delete(scene: Scene, kind: str, name: str) -> None:
    arguments = ("delete", kind, name, "--namespace", scene.namespace)
    scene.control_plane.kubectl(*arguments)


def patch(scene: Scene, kind: str, name: str, spec: Manifest) -> None:
    scene.control_plane.patch(kind, name, {"spec": spec}, scene.namespace)


def refusal(scene: Scene, kind: str, name: str) -> Manifest:
    """The condition Ready of an object, which is false."""
    told = condition(scene.control_plane.get(kind, name, scene.namespace), "Ready")
    assert told["status"] == "False"
    return told


def test_mistakes_in_each_kind_take_nothing_away_that_runs(
    fleet: Fleet, operator: StartOperator, mode: Mode
) -> None:
    scene = fleet.run(in_mode(operator, mode.environment))
    check = fleet.check
    assert (fleet.replicas(), fleet.desired()) == (BEFORE, DECIDED)

    delete(scene, "capacity", "cards")
    check("mail", "UnknownCapacity", "no Capacity lists card type 'H100'")
    scene.apply(counted(a100=3, h100=8))
    check("chat", "UnknownCapacity", "did you mean a100?")
    assert "did you mean A100?" in refusal(scene, "capacity", "cards")["message"]
    scene.apply(counted(A100=3, H100=8))

    patch(scene, "accelerator", "a100", {"name": "a100"})
    check("chat", "UnknownAccelerator", "did you mean a100?")
    patch(scene, "accelerator", "a100", {"name": "A100"})

    data = [objects.performance(name) for name in ("A100", "H100")]
    heavy = [{**item, "accCount": 4} for item in data]
    for kind, name, spec in (
        ("accelerator", "a100", {"type": "H100"}),
        ("model", "m", {"data": heavy}),
    ):
        with pytest.raises(ApiError, match="make a new Accelerator"):
            patch(scene, kind, name, spec)
    check("mail", "Allocated", "2 x H100")
    # Of a Model made anew no replica of chat fits: its last one waits for a person.
    delete(scene, "model", "m")
    scene.apply(objects.model("M", heavy))
    fleet.optimize()
    assert "would lose the last replica under load" in fleet.waits()
    assert (fleet.replicas(), fleet.desired()) == (BEFORE, DECIDED)
    delete(scene, "model", "m")
    scene.apply(objects.model("M", data))
    check("chat", "Allocated", "3 x A100")

    patch(scene, "server", "chat", {"workloads": [{"accelerator": "H100", "name": "chat-h100"}]})
    scene.wait_for_words("chat", "Actuated", "'chat-a100' has 3 replicas on A100 and is not in")
    check("chat", "InvalidSpec", "names no workload or backend for 'A100'")
    patch(scene, "server", "chat", {"workloads": workloads_of("chat")})

    patch(scene, "model", "m", {"name": "m"})
    check("mail", "UnknownModel", "'M'")
    patch(scene, "model", "m", {"name": "M"})

    delete(scene, "serviceclass", "c")
    check("chat", "UnknownClass", "'C'")
    scene.apply(objects.service_class())

    fleet.optimize()
    assert fleet.said("chat") == ("Allocated", "3 x A100")
    assert (fleet.replicas(), fleet.desired()) == (BEFORE, DECIDED)


@pytest.mark.extended
def test_times_that_are_mistyped_by_a_factor_take_half_at_once_also_in_a_model_made_anew(
    fleet: Fleet, operator: StartOperator, mode: Mode
) -> None:
    """All waited for a person before. One of 3 goes now, the next one 300 s later, if ever."""
    scene = fleet.run(in_mode(operator, mode.environment))
    for name in DECIDED:
        patch(scene, "server", name, {"keepAccelerator": True})
    right, fast, slow = (
        [objects.performance(name, alpha=ms, beta=0) for name in ("A100", "H100")]
        for ms in (999, 0.999, 9990)
    )
    fleet.optimize()
    patch(scene, "model", "m", {"data": fast})
    fleet.optimize()
    scene.wait_for_words("chat", "Actuated", "2 x A100 (1 wanted); more may go at")
    assert fleet.replicas() == {**BEFORE, "chat-a100": 2, "mail-h100": 1}
    delete(scene, "model", "m")
    scene.apply(objects.model("M", fast))
    fleet.optimize()
    assert fleet.replicas() == {**BEFORE, "chat-a100": 2, "mail-h100": 1}
    patch(scene, "model", "m", {"data": right})
    fleet.optimize()
    scene.wait_for_words("chat", "Actuated", "3 x A100")
    scene.wait_for_words("mail", "Actuated", "2 x H100")
    assert fleet.replicas() == BEFORE
    # Ten times as slow: nobody loses a replica to an equal Server, and nobody gets enough.
    patch(scene, "model", "m", {"data": slow})
    fleet.optimize()
    now = fleet.replicas()
    assert all(now[name] >= replicas for name, replicas in BEFORE.items())


def test_an_optimizer_whose_definition_lacks_a_field_says_so_and_what_runs_stays(
    fleet: Fleet, operator: StartOperator
) -> None:
    scene = fleet.run(operator)
    plane, namespace = scene.control_plane, scene.namespace
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/lastOptimization"
    patch = json.dumps([{"op": "remove", "path": f"{path}/properties/certificate"}])

    def told(manifest: Manifest) -> bool:
        return condition(manifest, "Optimized").get("reason") == "Rejected"

    def kept(manifest: Manifest) -> Manifest:
        last: Manifest = manifest["status"]["lastOptimization"]
        return last

    assert "certificate" in kept(scene.optimizer("inferno"))
    plane.kubectl("patch", "crd", f"optimizers.{GROUP}", "--type=json", "--patch", patch)
    try:
        # The API server goes by a definition a moment after it has it.
        plane.wait_for("optimizer", "inferno", lambda o: "certificate" not in kept(o), namespace)
        fleet.scene.request("inferno")
        plane.wait_for("optimizer", "inferno", told, namespace)
        assert fleet.replicas() == BEFORE
    finally:
        plane.install_crds(ROOT / "crds")
    fleet.scene.wait_until_done("inferno")
    assert fleet.replicas() == BEFORE


@pytest.mark.parametrize("name", ["chat", *extended("talk")])
def test_a_copy_of_a_server_counts_no_card_and_takes_nothing_away(
    fleet: Fleet, operator: StartOperator, name: str
) -> None:
    """The copy has all that `kubectl get --output yaml` prints, but its own name."""
    scene = fleet.run(operator)
    spec = {**scene.servers()["chat"]["spec"], "name": name}
    scene.apply(objects.manifest("Server", spec, name="copied"))
    scene.wait_for_words("copied", "Actuated", "Server 'chat' names Deployment 'chat-a100' already")

    fleet.optimize()
    fleet.optimize()

    copied = scene.servers()["copied"]
    assert fleet.replicas() == BEFORE
    assert condition(copied, "Allocated")["reason"] == "InvalidSpec"
    assert "'chat'" in condition(copied, "Allocated")["message"]
    assert copied["spec"]["currentAlloc"]["numReplicas"] == 0
    assert fleet.desired()["chat"] == ("A100", 3)
    used = scene.optimizer("inferno")["status"]["lastOptimization"]["capacity"]
    assert {u["type"]: u["used"] for u in used} == {"A100": 3, "H100": 2}
    delete(scene, "server", "chat")
    scene.wait_for_words("copied", "Ready", "waiting for the next optimization")
    fleet.optimize()
    scene.wait_for_words("copied", "Actuated", "3 x A100")
    assert fleet.replicas() == BEFORE
