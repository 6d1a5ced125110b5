"""Cards of real Node and Pod objects are counted to the card, and never handed out twice."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import eq
from random import Random
from typing import Any

import pytest
from kubernetes.client import ApiClient, CustomObjectsApi

from inferno_operator.controllers.capacity.counts import divide_cards
from inferno_operator.resources import GROUP, VERSION
from tests.cluster.background import Follower, client_of
from tests.cluster.machines import KINDS, Machines, machines
from tests.cluster.scene import ACCOUNT, Mode, Scene, condition, in_mode, in_opposite_modes
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until
from tests.unit.operator import objects

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("crds_installed")

SELECTED = {"T4": {"selector": {"pool": "old-cards"}}}


def accelerators() -> list[Manifest]:
    """One for each type of card."""
    return [
        objects.manifest(
            "Accelerator",
            {"name": name, "type": name, "cost": 1}
            | ({"nodes": SELECTED[name]} if name in SELECTED else {}),
            name=name.lower(),
        )
        for name in KINDS
    ]


def capacity(**spec: object) -> Manifest:
    return objects.manifest("Capacity", {"fromNodes": True, **spec}, name="cards")


def counted(scene: Scene) -> dict[str, Manifest]:
    status = scene.get("capacity", "cards").get("status", {})
    return {cards["type"]: cards for cards in status.get("counted", ())}


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[Machines]:
    """Nodes and pods, without anybody who runs them."""
    with machines(control_plane.kubeconfig) as found:
        yield found


class PoolWitness(Follower):
    """Looks at the Capacities after every event; `broken` has the moments that must never be."""

    def __init__(self, api: ApiClient, namespaces: set[str], pool: int) -> None:
        lists = CustomObjectsApi(api).list_cluster_custom_object
        super().__init__(lists, GROUP, VERSION, "capacities")
        self._shares = dict.fromkeys(namespaces, 0)
        self._pool = pool
        self.broken: list[Mapping[str, int]] = []
        self.events = 0

    def take(self, manifest: Manifest) -> None:
        """Take a Capacity after a change."""
        namespace = manifest["metadata"]["namespace"]
        if namespace not in self._shares:
            return
        self.events += 1
        cards = {c["type"]: c["available"] for c in manifest.get("status", {}).get("counted", ())}
        self._shares[namespace] = cards.get("H100", 0)
        if sum(self._shares.values()) > self._pool:
            self.broken.append(dict(self._shares))


@contextmanager
def witnessed(
    control_plane: ControlPlane, namespaces: set[str], pool: int
) -> Iterator[PoolWitness]:
    """Look at the shares of a pool until the block ends."""
    with client_of(control_plane.kubeconfig) as api, PoolWitness(api, namespaces, pool) as witness:
        yield witness


def test_two_namespaces_that_share_never_exceed_the_pool(
    operator: StartOperator, scene: Scene, other: Scene, cluster: Machines
) -> None:
    pool, chance = 16, Random(5)  # noqa: S311 - the same shares each run
    cluster.add_nodes(2 * len(KINDS))
    both = {each.namespace: each for each in (scene, other)}
    running = operator(namespace=",".join(both))
    with witnessed(scene.control_plane, set(both), pool) as seen:
        for number in range(4):
            percents = {name: chance.randint(1, 100) for name in both}
            for name, percent in percents.items():
                both[name].apply(*accelerators(), capacity(share={"percent": percent}))
            if number % 2:
                running.kill()
                running = operator(namespace=",".join(both))
            wait_until(
                lambda: [counted(each).get("H100", {}).get("available") for each in both.values()],
                partial(eq, [divide_cards(pool, percents)[name] for name in both]),
                "the shares",
            )

    assert seen.broken == []
    assert seen.events > 8


@in_opposite_modes
def test_optimizations_hand_out_the_counted_cards(
    operator: StartOperator, scene: Scene, cluster: Machines, mode: Mode
) -> None:
    cluster.add_nodes(2 * len(KINDS))
    model = objects.model("M", [objects.performance("H100")])
    asked = objects.optimizer(optimize=False, parameters={"saturationPolicy": "PriorityExhaustive"})
    server = objects.server("s", wanted=99)
    scene.apply(ACCOUNT, *accelerators(), capacity(), model, objects.service_class(), server, asked)
    in_mode(operator, mode.environment)()

    def decided() -> int:
        scene.optimize()
        replicas: int = scene.servers()["s"]["spec"]["desiredAlloc"]["numReplicas"]
        return replicas

    wait_until(decided, partial(eq, 16), "all cards")
    cluster.fill("H100", scene.namespace, cards=3)
    wait_until(decided, partial(eq, 13), "the cards that are left")

    assert counted(scene)["H100"]["boundBy"] == "nodes"


def test_without_the_right_to_nodes_the_condition_says_so(
    operator: StartOperator, scene: Scene, control_plane: ControlPlane
) -> None:
    scene.apply(ACCOUNT, *accelerators(), capacity(), *_rights(scene.namespace))
    operator(kubeconfig=control_plane.service_account_kubeconfig(scene.namespace, "default"))

    def told() -> Manifest:
        return condition(scene.get("capacity", "cards"), "Counted")

    found = wait_until(told, lambda c: c.get("reason") == "Rejected", "the condition")

    assert 'cannot list resource "nodes"' in found["message"]
    assert "capacity.fromNodes" in found["message"]


def _rights(namespace: str) -> list[Manifest]:
    """All rights on our kinds, and none on others."""
    rule = {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}
    api = "rbac.authorization.k8s.io"
    header = {"apiVersion": f"{api}/v1", "metadata": {"name": "ours"}}
    account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": api, "kind": "Role", "name": "ours"}
    return [
        {**header, "kind": "Role", "rules": [rule]},
        {**header, "kind": "RoleBinding", "roleRef": role, "subjects": [account]},
    ]
