"""What of nodes and pods matters to a count."""

from typing import Any

import pytest

from inferno_operator.controllers.capacity.machines import (
    count_requested,
    parse_quantity,
    read_machine,
    read_pod,
)
from inferno_operator.resources.pods import reduced, reduced_node
from tests.unit.operator.controllers.capacity.making import GPU, container, node, pod

Manifest = dict[str, Any]

SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(  # as `kubectl describe node` sums requests up
    ("containers", "init", "cards"),
    [
        ([container(2), container(1)], [], 3),
        ([container(2)], [container(4)], 4),
        ([container(2)], [container(1), container(1)], 2),
        ([container(2)], [container(1, **SIDECAR)], 3),
        ([container(1)], [container(1, **SIDECAR), container(3)], 4),
        ([container(1)], [container(3), container(1, **SIDECAR)], 3),
        ([container(0)], [], None),
        ([{"name": "c", "resources": {"limits": {GPU: "2", "cpu": "1"}}}], [], 2),
    ],
)
def test_a_pod_takes_the_larger_of_its_containers_and_of_each_init_container(
    containers: list[Manifest], init: list[Manifest], cards: int | None
) -> None:
    spec = {"containers": containers, "initContainers": init}

    assert count_requested(spec).get(GPU) == cards


@pytest.mark.parametrize(
    ("quantity", "cards"),
    [("8", 8), (8, 8), ("1k", 1000), ("1e1", 10), ("2500m", 2), ("1Ki", 1024), ("many", 0)],
)
def test_a_quantity_is_read_as_the_api_server_writes_it(quantity: object, cards: int) -> None:
    assert parse_quantity(quantity) == cards


def test_of_a_node_its_state_and_its_cards_are_kept() -> None:
    manifest = node(cordoned=True, ready=False, taints=["dedicated"])
    manifest["spec"]["taints"].append({"key": "soft", "effect": "PreferNoSchedule"})
    machine = read_machine(reduced_node(manifest))

    assert machine == read_machine(manifest)

    assert (machine.is_cordoned, machine.is_ready) == (True, False)
    assert machine.taints == {"dedicated"}
    assert machine.cards == {GPU: 8}


def test_of_a_reduced_pod_the_same_cards_are_counted() -> None:
    whole = pod(cards=2, labels={"app": "x"})
    whole["spec"]["initContainers"] = [container(4), container(1, **SIDECAR)]
    whole["spec"]["volumes"] = [{"name": "models"}]

    assert read_pod(reduced(whole)) == read_pod(whole)
    assert "volumes" not in reduced(whole)["spec"]
    web = pod("p", "n")
    web["spec"]["containers"] = [{"name": "web", "resources": {"requests": {"cpu": "1"}}}]
    assert reduced(web)["spec"] == {"nodeName": "n"}
    assert [read_pod(pod(phase=phase)) for phase in ("Succeeded", "Failed")] == [None, None]
