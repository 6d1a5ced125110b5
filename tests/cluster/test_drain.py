"""A node is drained with kubectl while a Server moves: nothing else is taken away for it.

Also where a PodDisruptionBudget allows no eviction: replicas move all the same, and the drain ends.
"""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.kubelet import Scheduler, Witness, running_pods
from tests.cluster.machines import KINDS, machines
from tests.cluster.scene import ACCOUNT, Manifest, Scene, accelerator
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.cluster import DEPLOYMENTS
from tests.controlplane.deployments import deployment
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.unit.operator import objects

pytestmark = pytest.mark.usefixtures("crds_installed")

NEEDED = {"chat": 4, "mail": 2}
"""Replicas that the loads take; each has one card."""

TYPES = {"left": "L4", "other": "L4", "goal": "H100"}
"""Cards of the nodes: of those that chat leaves, and of the one that it goes to."""


def engines(name: str, replicas: int) -> Manifest:
    """A Deployment whose pods ask for one card."""
    found = deployment(name, replicas)
    resource, _, _ = KINDS[name.rpartition("-")[2].upper()]
    pod = found["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"limits": {resource: "1"}}
    pod["tolerations"] = [{"operator": "Exists"}]
    return found


def server(name: str, **spec: object) -> Manifest:
    """A Server on L4, which may move to H100."""
    workloads = [{"accelerator": a, "name": f"{name}-{a.lower()}"} for a in ("L4", "H100")]
    runs = objects.running(NEEDED[name], NEEDED[name], "L4")
    return objects.server(name, spec={"workloads": workloads, "currentAlloc": runs, **spec})


def fleet() -> Iterator[Manifest]:
    """Chat and mail on L4, of which all is as it should be."""
    yield from (accelerator("L4", 10), accelerator("H100", 30), ACCOUNT)
    yield objects.model("M", [objects.performance(name) for name in ("L4", "H100")])
    yield objects.service_class()
    yield objects.manifest("Capacity", {"fromNodes": True}, name="cards")
    yield from (server("chat"), server("mail", keepAccelerator=True))
    for name, replicas in NEEDED.items():
        yield from (engines(f"{name}-l4", replicas), engines(f"{name}-h100", 0))
    manifest = objects.optimizer(optimize=False)
    yield {**manifest, "spec": {**manifest["spec"], "interval": 2}}


def node(scene: Scene, place: str) -> str:
    """The name of a node; pods of other namespaces, which stay, are on none of the same name."""
    return f"{scene.namespace}-{place}"


@dataclass(frozen=True, slots=True)
class Placed:
    """Pods on nodes: who looks at them, and the cards that they may have, all of them or fewer."""

    witness: Witness
    cards: dict[str, tuple[str, int]]
    whole: Mapping[str, tuple[str, int]]

    def go_on(self) -> None:
        """Let the rest of a move go on."""
        self.cards.update(self.whole)


@contextmanager
def scheduled(scene: Scene) -> Iterator[Placed]:
    """Run pods on nodes that are there until the block ends; of a move only the first one starts.

    So no replica is about to be removed for others that a drain evicts at the same moment.
    """
    placed = {node(scene, place): (name, KINDS[name][1]) for place, name in TYPES.items()}
    cards = {**placed, node(scene, "goal"): (TYPES["goal"], 1)}
    kubelet = type("KubeletOfNodes", (Scheduler,), {"cards": cards})
    kubeconfig = scene.control_plane.kubeconfig
    with (
        machines(kubeconfig) as found,
        running_pods(kubeconfig, scene.namespace, {}, kubelet_class=kubelet) as witness,
    ):
        for name, (card_type, _) in placed.items():
            found.add(name, card_type)
        yield Placed(witness, cards, placed)


def ready(scene: Scene) -> dict[str, int]:
    """Ready replicas by Deployment, without those that have none."""
    found = scene.items("deployments")
    counts = {d["metadata"]["name"]: d["status"].get("readyReplicas", 0) for d in found}
    return {name: count for name, count in counts.items() if count}


def is_ready(scene: Scene, **expected: int) -> Callable[[], bool]:
    """Whether exactly these replicas are ready, and asked for."""
    wanted = {name.replace("_", "-"): count for name, count in expected.items()}

    def asked() -> dict[str, int]:
        return {name: count for name, count in scene.replicas().items() if count}

    return lambda: ready(scene) == wanted == asked()


def wait_until_half_moved(scene: Scene, operator: StartOperator, witness: Witness) -> None:
    """Wait until what runs on L4 has one ready replica on H100, where it is cheap now."""
    wait_until(is_ready(scene, chat_l4=4, mail_l4=2), bool, "what runs")
    operator()
    scene.wait_for_words("chat", "Actuated", "4 x L4")
    witness.need(NEEDED)
    scene.patch("accelerator", "h100", {"spec": {"cost": 1}})
    scene.wait_for_words("chat", "Actuated", "4 x L4 (0 wanted) + 1 x H100 (4 wanted)")


@pytest.mark.usefixtures("deployment_controllers")
@pytest.mark.parametrize(
    ("drained", "end"),
    [
        pytest.param("left", {"chat_h100": 4, "mail_l4": 2}, id="that it leaves"),
        pytest.param(
            "goal",
            {"chat_l4": 4, "mail_l4": 2},
            id="that it goes to",
            marks=pytest.mark.extended,
        ),
    ],
)
def test_a_node_that_is_drained_in_the_middle_of_a_move(
    scene: Scene, operator: StartOperator, drained: str, end: dict[str, int]
) -> None:
    plane = scene.control_plane
    with scheduled(scene) as placed:
        scene.apply(*fleet())
        wait_until_half_moved(scene, operator, placed.witness)
        options = ("--force", "--ignore-daemonsets", f"--timeout={PATIENCE_S:.0f}s")
        plane.kubectl("drain", node(scene, drained), *options)
        placed.go_on()
        wait_until(is_ready(scene, **end), bool, "the end of the move")

    assert placed.witness.broken == []


@pytest.fixture
def budget_controllers(control_plane: ControlPlane) -> Iterator[None]:
    """Deployments have pods, and budgets say how many of them may be evicted."""
    control_plane.start_controller_manager(f"{DEPLOYMENTS},disruption-controller")
    yield
    control_plane.stop_controller_manager()


def budget(application: str) -> Manifest:
    """No pod of an application may be evicted."""
    selector = {"matchLabels": {"app": application}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": application},
        "spec": {"maxUnavailable": 0, "selector": selector},
    }


@contextmanager
def draining(plane: ControlPlane, name: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Drain a node; what kubectl complains of is in the log as soon as it does."""
    options = ("--force", "--ignore-daemonsets", f"--timeout={PATIENCE_S:.0f}s")
    program = (str(plane.kubectl_program), "--kubeconfig", str(plane.kubeconfig))
    with (
        log.open("w") as said,
        subprocess.Popen([*program, "drain", name, *options], stderr=said) as drain,
    ):
        yield drain
        drain.kill()  # if it has not ended


@pytest.mark.extended
@pytest.mark.usefixtures("budget_controllers")
def test_a_drain_that_a_budget_forbids_ends_when_the_server_has_moved(
    scene: Scene, operator: StartOperator, tmp_path: Path
) -> None:
    """A reduction is no eviction: the move is not held up, and nobody loses a replica for it."""
    log, forbids = tmp_path / "log", "violate the pod's disruption budget"
    with scheduled(scene) as placed:
        scene.apply(*fleet(), budget("chat-l4"), budget("chat-h100"))
        wait_until_half_moved(scene, operator, placed.witness)
        with draining(scene.control_plane, node(scene, "left"), log) as drain:
            wait_until(log.read_text, lambda said: forbids in said, "a refusal")
            placed.go_on()
            wait_until(is_ready(scene, chat_h100=4, mail_l4=2), bool, "the end of the move")

            assert drain.wait(PATIENCE_S) == 0, log.read_text()

    assert placed.witness.broken == []
