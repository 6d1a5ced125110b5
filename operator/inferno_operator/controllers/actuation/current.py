"""What runs, as the next optimization is to know it: a Server's current allocation; pure."""

from collections.abc import Iterable, Mapping

from inferno_operator.controllers.actuation.decision import placements
from inferno_operator.controllers.actuation.targets import World, serving_name
from inferno_operator.resources import DIGITS, Accelerator, Model, ModelBoosterRef, Resource, Server
from inferno_operator.resources.objects import Manifest


def running(reference: ModelBoosterRef, world: World) -> Mapping[str, int]:
    """Available replicas by accelerator, in the order of the reference."""
    found = {}
    for backend in reference.backends:
        serving = world.servings.get(serving_name(reference, backend.name), {})
        found[backend.accelerator] = serving.get("status", {}).get("availableReplicas", 0)
    return found


def has_changed(server: Server, running: Mapping[str, int]) -> bool:
    """Whether the Server tells of something else than what runs."""
    current = server.spec.current_alloc
    if current is None or current.accelerator != _accelerator(server, running):
        return True
    told = {part.accelerator: part.num_replicas for part in placements(current)}
    return told != {name: count for name, count in running.items() if count}


def current_allocation(
    server: Server, running: Mapping[str, int], unit_costs: Mapping[str, float]
) -> Manifest:
    """What runs, without the load, which is its user's.

    As with a desired allocation on several accelerators, the one with most replicas gives its
    name (the first of the reference if several do), replicas and cost are the totals, and
    the mix has each.
    """
    order = sorted(filter(running.get, running), key=lambda name: -running[name])
    mix = [_on(name, server, running[name], unit_costs) for name in order]
    if len(mix) == 1:
        return mix[0]
    accelerator = _accelerator(server, running)
    whole = {
        "accelerator": accelerator,
        "numReplicas": sum(running.values()),
        "maxBatch": _max_batch(server, accelerator),
        "cost": round(sum(part["cost"] for part in mix), DIGITS),
    }
    return {**whole, "mix": mix} if mix else whole


def _on(name: str, server: Server, count: int, unit_costs: Mapping[str, float]) -> Manifest:
    """What runs on one accelerator."""
    return {
        "accelerator": name,
        "numReplicas": count,
        "maxBatch": _max_batch(server, name),
        "cost": round(count * unit_costs.get(name, 0.0), DIGITS),
    }


def unit_costs(resources: Iterable[Resource], model: str) -> Mapping[str, float]:
    """Cost of one replica of a model by accelerator [cents/hour]; of one name the oldest counts."""
    counts: dict[str, int] = {}
    prices: dict[str, float] = {}
    for resource in sorted(resources, key=lambda resource: resource.age, reverse=True):
        if isinstance(resource, Model) and resource.spec.name == model:
            counts = {data.acc: max(data.acc_count, 1) for data in resource.spec.data}
        elif isinstance(resource, Accelerator):
            prices[resource.spec.name] = resource.spec.cost
    return {name: price * counts.get(name, 1) for name, price in prices.items()}


def _accelerator(server: Server, running: Mapping[str, int]) -> str:
    """The accelerator that most replicas run on.

    Who is to keep one keeps its name even when no replica is up: it is all that is known.
    """
    most = max(running, key=lambda name: running[name])
    if running[most]:
        return most
    current = server.spec.current_alloc
    return current.accelerator if current and server.spec.keep_accelerator else ""


def _max_batch(server: Server, accelerator: str) -> int:
    """The batch that was decided for the accelerator, or else told before."""
    desired, current = server.spec.desired_alloc, server.spec.current_alloc
    told = [*placements(desired), *placements(current), *filter(None, [current])]
    found = (part.max_batch for part in told if part.accelerator == accelerator and accelerator)
    return next((batch for batch in found if batch), 0)
