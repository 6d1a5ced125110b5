"""Cells that the tables of a cluster's objects share."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from inferno_operator.cli.options.currency import Money
from inferno_operator.cli.tables.solution import PlannedReplicas
from inferno_operator.controllers.planning.allocations import Label, list_parts_by_role, plain
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.resources import (
    Allocation,
    PlanStep,
    ReplicaAllocation,
    Server,
    ServerAllocation,
)
from inferno_operator.resources.observation import Observation, only, readable
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import band_of

Labels = Callable[[str], Label]
"""The labels for the replicas of a Server, by the name of the object."""


def catalogue_of(observations: Iterable[Observation]) -> Catalogue:
    """Return accelerators and performance data of a namespace."""
    return Catalogue(build_system(readable(observations)).system)


def with_current(server: Server, current: ServerAllocation | None) -> Server:
    """Return a Server with another current allocation."""
    spec = server.spec.model_copy(update={"current_alloc": current})
    return server.model_copy(update={"spec": spec})


def labels_of(observations: Sequence[Observation]) -> Labels:
    """Return the labels by the objects of a namespace."""
    catalogue = catalogue_of(observations)
    servers = only(Server, readable(observations))
    models = {server.metadata.name: server.spec.model for server in servers}
    return lambda server: partial(catalogue.label, models.get(server, ""))


def placement(allocation: Allocation | None, label: Label = plain) -> str:
    """Return replicas with their cards, one pair for each part; a dash if nothing runs."""
    if allocation is None or not allocation.accelerator:
        return "-"
    replicas, starting = Counter[str](), Counter[str]()
    for role, part in list_parts_by_role(allocation):
        name = label(part.accelerator, role)
        replicas[name] += part.num_replicas
        starting[name] += part.starting_replicas or 0
    return " + ".join(
        f"{count} x {name}" + (f" ({starting[name]} starting)" if starting[name] else "")
        for name, count in replicas.items()
    )


def replicas_of(now: Allocation | None, planned: Allocation | None) -> PlannedReplicas:
    """Return the replicas of a server, now and as they are to be."""
    parts: list[ReplicaAllocation] = [planned] if planned and planned.accelerator else []
    if isinstance(planned, ServerAllocation) and planned.roles:
        parts = list(planned.roles.by_role.values())
    counts = [(part.num_replicas, part.cost or 0.0) for part in parts]
    return PlannedReplicas(now.num_replicas if now else 0, counts)


def band_cell(prediction: Allocation | PlanStep | None) -> str:
    """Return where predicted latencies come from, and what they are off by; "" if unknown."""
    if prediction is None:
        return ""
    return band_of(prediction.origin or "", prediction.error_percent or 0.0)


def cost(allocation: Allocation | None) -> float:
    """Return the cost of an allocation [cents/hour]; 0 without an allocation."""
    return (allocation.cost or 0.0) if allocation and allocation.accelerator else 0.0


def cost_cell(allocation: Allocation | None, money: Money) -> str:
    """Return the cost as text, empty if nothing runs."""
    return money.amount(cost(allocation)) if allocation and allocation.accelerator else ""
