"""A node is drained with kubectl while a Server moves: nothing else is taken away for it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import pytest

from tests.cluster.kubelet import Scheduler, Witness, running_pods
from tests.cluster.machines import KINDS, machines
from tests.cluster.scene import Manifest, Scene
from tests.conftest import StartOperator
from tests.controlplane.deployments import deployment
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.unit.operator import objects

pytestmark = pytest.mark.usefixtures("crds_installed", "deployment_controllers")

NEEDED = {"chat": 4, "mail": 2}
"""Replicas that the loads take; each has one card."""

ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}

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


def accelerator(name: str, cost: float) -> Manifest:
    return objects.manifest(
        "Accelerator", {"name": name, "type": name, "cost": cost}, name=name.lower()
    )


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
        machines(kubeconfig, Random(1)) as found,  # noqa: S311 - nothing is random here
        running_pods(kubeconfig, scene.namespace, {}, kubelet_class=kubelet) as witness,
    ):
        for name, (card_type, _) in placed.items():
            found.add(name, card_type)
        yield Placed(witness, cards, placed)


def ready(scene: Scene) -> dict[str, int]:
    """Ready replicas by Deployment, without those that have none."""
    found = scene.control_plane.items("deployments", scene.namespace)
    counts = {d["metadata"]["name"]: d["status"].get("readyReplicas", 0) for d in found}
    return {name: count for name, count in counts.items() if count}


def is_ready(scene: Scene, **expected: int) -> Callable[[], bool]:
    """Whether exactly these replicas are ready, and asked for."""
    wanted = {name.replace("_", "-"): count for name, count in expected.items()}

    def asked() -> dict[str, int]:
        found = scene.control_plane.items("deployments", scene.namespace)
        return {d["metadata"]["name"]: n for d in found if (n := d["spec"]["replicas"])}

    return lambda: ready(scene) == wanted == asked()


def wait_until_half_moved(scene: Scene, operator: StartOperator, witness: Witness) -> None:
    """Wait until what runs on L4 has one ready replica on H100, where it is cheap now."""
    wait_until(is_ready(scene, chat_l4=4, mail_l4=2), bool, "what runs")
    operator()
    scene.wait_for_words("chat", "Actuated", "4 x L4")
    witness.need(NEEDED)
    cheap = {"spec": {"cost": 1}}
    scene.control_plane.patch("accelerator", "h100", cheap, scene.namespace)
    scene.wait_for_words("chat", "Actuated", "4 x L4 (0 wanted) + 1 x H100 (4 wanted)")


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
        options = ("--force", "--ignore-daemonsets", "--timeout=60s")
        plane.kubectl("drain", node(scene, drained), *options)
        placed.go_on()
        wait_until(is_ready(scene, **end), bool, "the end of the move", PATIENCE_S)

    assert placed.witness.broken == []
