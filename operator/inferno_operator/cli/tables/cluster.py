"""Cells that the tables of a cluster's objects share."""

from inferno_operator.cli.options.currency import Money
from inferno_operator.cli.tables.solution import PlannedReplicas
from inferno_operator.resources import Allocation, PlanStep, ServerAllocation
from inferno_operator.resources.allocation import ReplicaAllocation
from inferno_optimizer.system import band_of


def placement(allocation: Allocation | None) -> str:
    """Return replicas and accelerator, one pair for each part of a mix; a dash if nothing runs."""
    if allocation is None or not allocation.accelerator:
        return "-"
    return " + ".join(map(_placed, allocation.parts))


def _placed(part: Allocation) -> str:
    starting = f" ({part.starting_replicas} starting)" if part.starting_replicas else ""
    return f"{part.num_replicas} x {part.accelerator}{starting}"


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
