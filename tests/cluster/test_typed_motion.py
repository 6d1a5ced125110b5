"""A typed load that changes while its Server moves: the move is not turned back before it ends."""

from collections.abc import Iterator

import pytest

from tests.cluster.kubelet import running_pods
from tests.cluster.scene import Manifest, Scene
from tests.conftest import StartOperator
from tests.controlplane.deployments import deployment
from tests.controlplane.waiting import wait_until
from tests.unit.operator import objects

pytestmark = [
    pytest.mark.usefixtures("crds_installed", "deployment_controllers"),
    pytest.mark.extended,
]

BEFORE, AFTER = 590, 650
"""Loads [requests/min]: two on B cost 140, and on A ten cost 100 and eleven 110."""


def fleet() -> Iterator[Manifest]:
    """Yield a Server that runs on ten A and is to move to one B, and what it needs."""
    yield objects.accelerator("A", cost=10)
    yield objects.accelerator("B", cost=70)
    yield objects.model(data=[objects.performance(), objects.performance("B", alpha=99.9, beta=0)])
    yield objects.service_class()
    yield objects.capacity(100)
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    yield deployment("s-a", 10)
    yield deployment("s-b", 0)
    workloads = [{"accelerator": name, "name": f"s-{name.lower()}"} for name in "AB"]
    runs = {**objects.running(10, 10), "load": {"arrivalRate": BEFORE, "avgLength": 1}}
    yield objects.server("S", spec={"workloads": workloads, "currentAlloc": runs})
    optimizer = objects.optimizer(optimize=False)
    optimizer["spec"]["interval"] = 1
    yield optimizer


def test_a_load_that_somebody_types_during_a_move_turns_it_back_only_when_it_has_ended(
    scene: Scene, operator: StartOperator
) -> None:
    plane, namespace = scene.control_plane, scene.namespace

    def decision() -> tuple[str, float]:
        """The accelerator, and the load that it is for."""
        found = scene.servers()["s"]["spec"].get("desiredAlloc", {})
        return found.get("accelerator", ""), found.get("load", {}).get("arrivalRate", 0)

    def replicas() -> dict[str, int]:
        items = plane.items("deployments", namespace)
        return {item["metadata"]["name"]: item["spec"]["replicas"] for item in items}

    held = {"s-b"}
    with running_pods(plane.kubeconfig, namespace, {}, held=held):
        scene.apply(*fleet())
        plane.wait_for(
            "deployment", "s-a", lambda d: d.get("status", {}).get("readyReplicas") == 10, namespace
        )
        operator()
        wait_until(decision, lambda made: made == ("B", BEFORE), "a decision for B")
        wait_until(replicas, lambda found: found == {"s-a": 10, "s-b": 1}, "a replica on B")
        load = {"load": {"arrivalRate": AFTER, "avgLength": 1}}
        plane.patch("server", "s", {"spec": {"currentAlloc": load}}, namespace)
        accelerator, _ = wait_until(decision, lambda made: made[1] == AFTER, "a plan that knows it")
        seen = {accelerator}
        held.clear()

        def arrived() -> bool:
            (decided, _), found = decision(), replicas()
            if found["s-a"] > 0:
                seen.add(decided)
            return found["s-a"] == 0

        wait_until(arrived, bool, "the end of the move")
        assert seen == {"B"}

        wait_until(decision, lambda made: made == ("A", AFTER), "a decision for what costs less")
        wait_until(replicas, lambda found: found == {"s-a": 11, "s-b": 0}, "the way back")
