"""What tables of a cluster's objects have in common."""

from inferno_operator.resources import Allocation, ServerAllocation


def placement(allocation: Allocation | None) -> str:
    """Replicas and accelerator, each where there are several; a dash where nothing runs."""
    if allocation is None or not allocation.accelerator:
        return "-"
    mix = allocation.mix if isinstance(allocation, ServerAllocation) else ()
    return " + ".join(f"{part.num_replicas} x {part.accelerator}" for part in mix or (allocation,))


def cost(allocation: Allocation | None) -> float:
    """Cost of an allocation [cents/hour]; nothing costs nothing."""
    return (allocation.cost or 0.0) if allocation and allocation.accelerator else 0.0


def cost_cell(allocation: Allocation | None) -> str:
    """The cost, empty where nothing runs."""
    return f"{cost(allocation):.2f}" if allocation and allocation.accelerator else ""
