"""Which accelerator's cards a node has."""

from collections.abc import Mapping
from typing import Any

import pytest

from inferno_operator.controllers.capacity.catalogue import read_built_in_cards
from inferno_operator.controllers.capacity.inventory import CardTypes, group_unmatched
from inferno_operator.resources import Accelerator
from tests.unit.operator import objects
from tests.unit.operator.controllers.capacity.making import GPU, PRODUCT, machine

TYPE = "node.kubernetes.io/instance-type"
KARPENTER = "karpenter.k8s.aws/instance-gpu"


def types(*names: str, **selections: Any) -> CardTypes:  # noqa: ANN401 - YAML of any shape
    """The types of accelerators; `selections` have their spec.nodes, by type."""
    specs = [{"name": n, "type": n, "cost": 1} for n in names]
    specs += [{"name": n, "type": n, "cost": 1, "nodes": nodes} for n, nodes in selections.items()]
    found = [
        Accelerator.model_validate(objects.manifest("Accelerator", spec, name="a"))
        for spec in specs
    ]
    return CardTypes(found, read_built_in_cards())


@pytest.mark.parametrize(
    ("labels", "resource", "card_type"),
    [
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3"}, GPU, "H100"),
        ({PRODUCT: "NVIDIA-A100-SXM4-40GB"}, GPU, "A100-40"),
        ({PRODUCT: "NVIDIA-A100-SXM4-80GB"}, GPU, "A100"),
        ({PRODUCT: "NVIDIA-L40S"}, GPU, "L40S"),
        ({PRODUCT: "NVIDIA-L40"}, GPU, None),
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3-SHARED"}, GPU, None),
        ({PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}, GPU, "A100-MIG-1g.10gb"),
        ({PRODUCT: "NVIDIA-A100-SXM4-80GB"}, "nvidia.com/mig-1g.10gb", "A100-MIG-1g.10gb"),
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3"}, "nvidia.com/mig-1g.10gb", None),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, "amd.com/gpu", "MI300X"),
        ({"beta.amd.com/gpu.product-name": "AMD_Instinct_MI210"}, "amd.com/gpu", "MI210"),
        ({"amd.com/gpu.device-id": "74a1"}, "amd.com/gpu", "MI300X"),
        ({"habana.ai/product.name": "GAUDI2"}, "habana.ai/gaudi", "Gaudi2"),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, GPU, "H100"),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, GPU, "L4"),
        ({"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}, "google.com/tpu", "TPU v6e"),
        ({f"{KARPENTER}-name": "t4", f"{KARPENTER}-memory": "16384"}, GPU, "T4"),
        ({f"{KARPENTER}-name": "a100", f"{KARPENTER}-memory": "40960"}, GPU, "A100-40"),
        ({"eks.amazonaws.com/instance-gpu-name": "h100"}, GPU, "H100"),
        ({TYPE: "p4d.24xlarge"}, GPU, "A100-40"),
        ({TYPE: "g6.12xlarge"}, GPU, "L4"),
        ({TYPE: "g6e.12xlarge"}, GPU, "L40S"),
        ({TYPE: "Standard_ND96isr_H100_v5"}, GPU, "H100"),
        ({TYPE: "Standard_NC16as_T4_v3"}, GPU, "T4"),
        ({TYPE: "Standard_ND96asr_v4"}, GPU, "A100-40"),
        ({TYPE: "m5.large"}, GPU, None),
        ({}, GPU, None),
    ],
)
def test_labels_of_vendors_and_clouds_name_the_card(
    labels: Mapping[str, str], resource: str, card_type: str | None
) -> None:
    known = types(
        *("H100", "A100", "A100-40", "A100-MIG-1g.10gb", "L4", "L40S", "T4"),
        *("MI300X", "MI210", "Gaudi2", "TPU v6e"),
    )

    node = machine(labels=labels, resource=resource, cards=1)

    assert known.type_of(node, resource) == card_type


@pytest.mark.parametrize(
    ("labels", "card_type"),
    [
        ({PRODUCT: "NVIDIA-H100"}, None),
        ({PRODUCT: "NVIDIA-A100", "pool": "fast"}, "H100"),
        ({PRODUCT: "NVIDIA-A100"}, "A100"),
        ({PRODUCT: "NVIDIA-A100", "pool": "fast", "zone": "a"}, "Z"),
    ],
)
def test_a_selection_takes_the_place_of_labels_and_that_with_more_labels_of_another(
    labels: Mapping[str, str], card_type: str | None
) -> None:
    exact = {"selector": {"pool": "fast", "zone": "a"}}
    known = types("A100", H100={"selector": {"pool": "fast"}}, Z=exact)

    assert known.type_of(machine(labels=labels), GPU) == card_type


def test_a_selection_may_name_a_resource_that_nobody_knows() -> None:
    known = types(X={"selector": {"pool": "x"}, "resource": "example.com/card"})
    strange = machine(labels={"pool": "x"}, resource="example.com/card")

    assert known.resources(strange) == ["example.com/card"]
    assert known.type_of(strange, "example.com/card") == "X"
    assert types("X").resources(strange) == []


def test_taints_of_accelerators_are_tolerated_and_others_if_a_selection_says_so() -> None:
    tainted = machine(taints=[GPU, "sku", "dedicated"])
    tolerant = {"selector": {"pool": "fast"}, "tolerates": ["dedicated"]}

    assert types("H100").keep_away(tainted) == {"dedicated"}
    assert types(H100=tolerant).keep_away(tainted) == set()


def test_cards_of_no_type_are_told_with_what_to_write() -> None:
    known = types("H100")
    strange = [machine(name=f"n{i}", labels={PRODUCT: "NVIDIA-L4"}) for i in range(2)]
    (told,) = group_unmatched(known.unmatched(each, GPU) for each in strange)

    assert (told.nodes, told.cards, told.example) == (2, 16, "n0")
    assert f"spec.nodes: {{selector: {{{PRODUCT}: NVIDIA-L4}}, resource: {GPU}}}" in told.message
