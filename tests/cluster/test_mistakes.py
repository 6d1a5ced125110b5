"""Wrong manifests on a real control plane: the Deployments keep their replicas."""

import json
from collections.abc import Iterator

import pytest

from inferno_operator.resources import GROUP
from tests.cluster.kubelet import running_pods
from tests.cluster.scene import ACCOUNT, Manifest, Scene, accelerator, condition, counted
from tests.conftest import ROOT, StartOperator
from tests.controlplane.deployments import deployment
from tests.controlplane.errors import ApiError
from tests.controlplane.waiting import wait_until
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
            accelerator("A100"),
            accelerator("H100", cost=30),
            objects.model("M", [objects.performance(name) for name in ("A100", "H100")]),
            objects.service_class(),
            counted(A100=3, H100=8),
            ACCOUNT,
            *(deployment(name, replicas) for name, replicas in BEFORE.items()),
            self._server("chat", 3, "A100"),
            self._server("mail", 2, "H100"),
            objects.optimizer(optimize=False, name="inferno"),
        )

    def _server(self, name: str, replicas: int, accelerator: str) -> Manifest:
        runs = objects.running(replicas, replicas, accelerator)
        return objects.server(name, spec={"workloads": workloads_of(name), "currentAlloc": runs})

    def run(self, start: StartOperator) -> Scene:
        """Apply all objects, start the operator, plan, and wait until what was decided runs."""
        self._apply()
        start()
        self.scene.optimize()
        for name in DECIDED:
            self.scene.wait_for_actuated("Actuated", server=name)
        return self.scene

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
        self.scene.optimize()
        self.scene.optimize()
        assert (self.scene.replicas(), self.desired()) == (BEFORE, DECIDED)
        found, message = self.said(server)
        assert (found, words in message) == (reason, True)

    def desired(self) -> dict[str, tuple[str, int]]:
        found = {n: s["spec"]["desiredAlloc"] for n, s in self.scene.servers().items()}
        return {name: (d["accelerator"], d["numReplicas"]) for name, d in found.items()}


def workloads_of(server: str) -> list[Manifest]:
    return [{"accelerator": a, "name": f"{server}-{a.lower()}"} for a in ("A100", "H100")]


@pytest.fixture
def fleet(scene: Scene) -> Iterator[Fleet]:
    with running_pods(scene.control_plane.kubeconfig, scene.namespace, {}):
        yield Fleet(scene)


def patch(scene: Scene, kind: str, name: str, spec: Manifest) -> None:
    scene.patch(kind, name, {"spec": spec})


def refusal(scene: Scene, kind: str, name: str) -> Manifest:
    """The condition Ready of an object, which is false."""
    told = condition(scene.get(kind, name), "Ready")
    assert told["status"] == "False"
    return told


def test_mistakes_in_each_kind_take_nothing_away_that_runs(
    fleet: Fleet, operator: StartOperator
) -> None:
    scene = fleet.run(operator)
    check = fleet.check
    assert (scene.replicas(), fleet.desired()) == (BEFORE, DECIDED)

    scene.kubectl("delete", "capacity", "cards")
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
    scene.kubectl("delete", "model", "m")
    scene.apply(objects.model("M", heavy))
    scene.optimize()
    assert "would lose the last replica under load" in fleet.waits()
    assert (scene.replicas(), fleet.desired()) == (BEFORE, DECIDED)
    scene.kubectl("delete", "model", "m")
    scene.apply(objects.model("M", data))
    check("chat", "Allocated", "3 x A100")

    patch(scene, "server", "chat", {"workloads": [{"accelerator": "H100", "name": "chat-h100"}]})
    scene.wait_for_words("chat", "Actuated", "'chat-a100' has 3 replicas on A100 and is not in")
    check("chat", "InvalidSpec", "names no workload or backend for 'A100'")
    patch(scene, "server", "chat", {"workloads": workloads_of("chat")})

    patch(scene, "model", "m", {"name": "m"})
    check("mail", "UnknownModel", "'M'")
    patch(scene, "model", "m", {"name": "M"})

    scene.kubectl("delete", "serviceclass", "c")
    check("chat", "UnknownClass", "'C'")
    scene.apply(objects.service_class())

    scene.optimize()
    assert fleet.said("chat") == ("Allocated", "3 x A100")
    assert (scene.replicas(), fleet.desired()) == (BEFORE, DECIDED)


@pytest.mark.extended
def test_times_that_are_mistyped_by_a_factor_take_half_at_once_also_in_a_model_made_anew(
    fleet: Fleet, operator: StartOperator
) -> None:
    """All waited for a person before. One of 3 goes now, the next one 300 s later, if ever."""
    scene = fleet.run(operator)
    for name in DECIDED:
        patch(scene, "server", name, {"keepAccelerator": True})
    right, fast, slow = (
        [objects.performance(name, alpha=ms, beta=0) for name in ("A100", "H100")]
        for ms in (999, 0.999, 9990)
    )
    scene.optimize()
    patch(scene, "model", "m", {"data": fast})
    scene.optimize()
    fewer = {**BEFORE, "chat-a100": 2, "mail-h100": 1}
    scene.wait_for_words("chat", "Actuated", "2 x A100 (1 wanted); more may go at")
    wait_until(scene.replicas, lambda found: found == fewer, "half of each")
    scene.kubectl("delete", "model", "m")
    scene.apply(objects.model("M", fast))
    scene.optimize()
    assert scene.replicas() == fewer
    patch(scene, "model", "m", {"data": right})
    scene.optimize()
    scene.wait_for_words("chat", "Actuated", "3 x A100")
    scene.wait_for_words("mail", "Actuated", "2 x H100")
    assert scene.replicas() == BEFORE
    # Ten times as slow: nobody loses a replica to an equal Server, and nobody gets enough.
    patch(scene, "model", "m", {"data": slow})
    scene.optimize()
    now = scene.replicas()
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
        scene.request("inferno")
        plane.wait_for("optimizer", "inferno", told, namespace)
        assert scene.replicas() == BEFORE
    finally:
        plane.install_crds(ROOT / "crds")
    scene.wait_until_done("inferno")
    assert scene.replicas() == BEFORE


@pytest.mark.parametrize("name", ["chat", *extended("talk")])
def test_a_copy_of_a_server_counts_no_card_and_takes_nothing_away(
    fleet: Fleet, operator: StartOperator, name: str
) -> None:
    """The copy has all that `kubectl get --output yaml` prints, but its own name."""
    scene = fleet.run(operator)
    spec = {**scene.servers()["chat"]["spec"], "name": name}
    scene.apply(objects.manifest("Server", spec, name="copied"))
    scene.wait_for_words("copied", "Actuated", "Server 'chat' names Deployment 'chat-a100' already")

    scene.optimize()
    scene.optimize()

    copied = scene.servers()["copied"]
    assert scene.replicas() == BEFORE
    assert condition(copied, "Allocated")["reason"] == "InvalidSpec"
    assert "'chat'" in condition(copied, "Allocated")["message"]
    assert copied["spec"]["currentAlloc"]["numReplicas"] == 0
    assert fleet.desired()["chat"] == ("A100", 3)
    used = scene.optimizer("inferno")["status"]["lastOptimization"]["capacity"]
    assert {u["type"]: u["used"] for u in used} == {"A100": 3, "H100": 2}
    scene.kubectl("delete", "server", "chat")
    scene.wait_for_words("copied", "Ready", "waiting for the next optimization")
    scene.optimize()
    scene.wait_for_words("copied", "Actuated", "3 x A100")
    assert scene.replicas() == BEFORE
