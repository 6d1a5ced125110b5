"""The sample with prefill and decode apart, with one of its servers."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.cluster.scene import Scene
from tests.conftest import ROOT

Manifest = dict[str, Any]

CARDS = {"H100": 12, "L40S": 10}
"""The cards that there are, where a replica has one."""

LOOSE, TIGHT = 40, 16
"""Targets of the inter-token latency with which the sample is cheaper together, and apart [ms]."""


def documents(itl: int, cards: Mapping[str, int], **spec: object) -> Iterator[Manifest]:
    """The objects of the sample with so many cards; `spec` says where its decisions go."""
    for found in yaml.safe_load_all((ROOT / "samples/apart/fleet.yaml").read_text()):
        kind, own = found["kind"], found["spec"]
        if kind == "ServiceClass":
            own["data"] = targets(itl)
        elif kind == "Capacity":
            own["count"] = [{"type": name, "count": count} for name, count in cards.items()]
        elif kind == "Optimizer":
            own["optimize"] = True
        elif kind == "Server":
            if own["name"] != "documents":
                continue
            load = own["currentAlloc"]["load"]
            own["currentAlloc"] = {"accelerator": "", "numReplicas": 0, "load": load}
            own |= spec
        yield found


def server(scene: Scene) -> Manifest:
    """The server of the sample."""
    return scene.get("server", "documents")


def sizes(allocation: Manifest) -> dict[str, int]:
    """The replicas of each role of an allocation."""
    return {role: part["numReplicas"] for role, part in allocation.get("roles", {}).items()}


def targets(itl: int) -> list[Manifest]:
    """The targets of the class of service."""
    return [{"model": "qwen3-8b", "slo-itl": itl, "slo-ttft": 1500}]
