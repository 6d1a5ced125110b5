"""What is counted of nodes of many device plugins and clouds: right, or named."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.controllers.capacity.catalogue import read_built_in_cards
from inferno_operator.controllers.capacity.inventory import (
    Fleet,
    NodeView,
    group_unmatched,
    view_nodes,
)
from inferno_operator.controllers.capacity.machines import read_machine
from inferno_operator.resources.pods import NODE_ANNOTATIONS, reduced_node
from tests.unit.operator.controllers.capacity.test_cards import types

Manifest = dict[str, Any]

NODES: list[Manifest] = yaml.safe_load((Path(__file__).parents[4] / "data/nodes.yaml").read_text())

TYPES = (
    *("H100", "H200", "B200", "A100", "A100-40", "L40S", "T4", "L4", "A10", "A10G", "L40"),
    *(
        "RTX PRO 6000",
        "RTX 6000",
        "RTX 4090",
        "TPU v7x",
        "A100-MIG-1g.10gb",
        "T4-SHARED",
        "TPU v5e",
        "Trainium2",
        "Inferentia",
        "Gaudi2",
    ),
    *("MI300X", "MI300X-CPX-NPS4", "Max1550", "Flex170", "Ascend910B3", "Ascend310P"),
)


def seen(node: Manifest, **selections: Any) -> NodeView:  # noqa: ANN401 - YAML of any shape
    """A node as the operator sees it, from the API server on."""
    manifest = {
        "metadata": {
            "name": "n",
            "labels": node["labels"],
            "annotations": {**node.get("annotations", {}), "example.com/large": "x"},
        },
        "status": {
            "allocatable": {name: str(count) for name, count in node["allocatable"].items()},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    names = [name for name in TYPES if name not in selections]
    machine = read_machine(reduced_node(manifest))
    return view_nodes("default", types(*names, **selections), Fleet.of([machine], [], {}))


@pytest.mark.parametrize("node", NODES, ids=[node["name"] for node in NODES])
def test_cards_of_a_node_are_counted_rightly_or_named(node: Manifest) -> None:
    found = seen(node)
    told = {
        item.resource: f"{item.label} {item.message}" for item in group_unmatched(found.unmatched)
    }

    assert {each.type: each.total for each in found.nodes} == node.get("cards", {})
    assert told.keys() == node.get("unmatched", {}).keys()
    for resource, texts in node.get("unmatched", {}).items():
        assert [text for text in texts if text not in told[resource]] == []


def test_the_annotations_that_are_read_are_kept() -> None:
    assert read_built_in_cards().annotations == set(NODE_ANNOTATIONS)


def test_parts_of_cards_that_were_selected_are_counted_and_told() -> None:
    (hami,) = (node for node in NODES if node["name"] == "HAMi")
    found = seen(hami, L40S={"selector": {"gpu": "on"}})
    ((card_type, evidence),) = found.partial

    assert [each.total for each in found.nodes] == [80]
    assert (card_type, "nvidia.com/gpu.count=8" in evidence) == ("L40S", True)
