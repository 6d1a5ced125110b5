"""What tables of a cluster's objects have in common."""

from inferno_operator.resources import Allocation


def placement(allocation: Allocation | None) -> str:
    """Replicas and accelerator, each where there are several; a dash where nothing runs."""
    if allocation is None or not allocation.accelerator:
        return "-"
    return " + ".join(f"{part.num_replicas} x {part.accelerator}" for part in allocation.parts)


def cost(allocation: Allocation | None) -> float:
    """Cost of an allocation [cents/hour]; nothing costs nothing."""
    return (allocation.cost or 0.0) if allocation and allocation.accelerator else 0.0


def cost_cell(allocation: Allocation | None) -> str:
    """The cost, empty where nothing runs."""
    return f"{cost(allocation):.2f}" if allocation and allocation.accelerator else ""
