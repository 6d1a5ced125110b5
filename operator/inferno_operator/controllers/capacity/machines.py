"""Nodes and pods, as far as their cards are concerned; pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from inferno_operator.resources.objects import Key, Manifest
from inferno_operator.resources.pods import FINISHED

CardCounts = Mapping[str, int]
"""Numbers of cards by the name of their resource."""

QUANTITY = re.compile(r"(?P<number>[0-9.]+([eE][-+]?[0-9]+)?)(?P<suffix>[a-zA-Z]*)")
"""A quantity of the API server."""

MULTIPLES: Mapping[str, Decimal] = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("", *"kMGTPE"))},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
    **{suffix: Decimal(1000) ** -power for power, suffix in enumerate("mun", start=1)},
}
"""Suffixes of quantities."""

KEEP_AWAY = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints that keep pods away."""

SIDECAR = "Always"
"""Restart policy of containers that start before the others, and run beside them."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node: its cards, and whether it takes new pods.

    `taints` are the keys of taints that keep pods away.
    """

    name: str
    labels: Mapping[str, str]
    cards: CardCounts
    is_ready: bool
    is_cordoned: bool
    taints: frozenset[str]
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that requests cards; `node` is empty until it is scheduled."""

    key: Key
    node: str
    cards: CardCounts


def read_machine(node: Manifest) -> Machine:
    """Return a node as far as its cards are concerned."""
    metadata, spec, status = node["metadata"], node.get("spec", {}), node.get("status", {})
    ready = [c["status"] for c in status.get("conditions", ()) if c["type"] == "Ready"]
    return Machine(
        metadata["name"],
        metadata.get("labels", {}),
        _find_extended(status.get("allocatable", {})),
        ready == ["True"],
        bool(spec.get("unschedulable")),
        frozenset(t["key"] for t in spec.get("taints", ()) if t["effect"] in KEEP_AWAY),
        metadata.get("annotations", {}),
    )


def read_pod(pod: Manifest) -> Pod | None:
    """Return a pod as far as its cards are concerned; None if it uses none."""
    spec = pod.get("spec", {})
    cards = count_requested(spec)
    if not cards or pod.get("status", {}).get("phase") in FINISHED:
        return None
    return Pod(Key.of(pod), spec.get("nodeName", ""), cards)


def count_requested(spec: Manifest) -> CardCounts:
    """Return the cards that the scheduler sets aside for a pod.

    Sidecars run beside the containers; every other init container runs alone, beside the
    sidecars that were started before it:
    kubernetes.io/docs/concepts/workloads/pods/sidecar-containers.
    """
    beside: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.get("initContainers", ()):
        own = _count_container(container)
        at_a_time = _sum(beside, own)
        if container.get("restartPolicy") == SIDECAR:
            beside = at_a_time
        most = _larger(most, at_a_time)
    return _larger(most, _sum(beside, *map(_count_container, spec.get("containers", ()))))


def _count_container(container: Manifest) -> CardCounts:
    """Return the cards of one container; a limit without a request is a request, too."""
    resources = container.get("resources", {})
    return _find_extended({**resources.get("limits", {}), **resources.get("requests", {})})


def _sum(*parts: CardCounts) -> dict[str, int]:
    names = {name for part in parts for name in part}
    return {name: sum(part.get(name, 0) for part in parts) for name in names}


def _larger(one: CardCounts, other: CardCounts) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in sorted({*one, *other})}


def _find_extended(quantities: Mapping[str, object]) -> dict[str, int]:
    """Return the resources that are not of Kubernetes itself, such as nvidia.com/gpu."""
    counts = {name: parse_quantity(value) for name, value in quantities.items() if "/" in name}
    return {name: count for name, count in sorted(counts.items()) if count}


def parse_quantity(quantity: object) -> int:
    """Return a quantity of the API server as a whole number, rounded down."""
    match = QUANTITY.fullmatch(str(quantity))
    return int(Decimal(match["number"]) * MULTIPLES[match["suffix"]]) if match else 0
