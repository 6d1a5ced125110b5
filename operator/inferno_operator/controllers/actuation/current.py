"""The current allocation of a Server, from the replicas that run; pure."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from inferno_operator.controllers.actuation.decision import placements
from inferno_operator.controllers.actuation.targets import ScaledObjects, available
from inferno_operator.resources import (
    DIGITS,
    Accelerator,
    Allocation,
    Model,
    ModelBoosterRef,
    Resource,
    RoleAllocation,
    Roles,
    Server,
    ServerAllocation,
)
from inferno_operator.resources.objects import Manifest
from inferno_optimizer.system import Role, place_of


def running(reference: ModelBoosterRef, workload: ScaledObjects) -> Mapping[str, int]:
    """Return the available replicas by accelerator, in the order of the reference."""
    return {
        backend.accelerator: available(workload, reference.serving_of(backend))
        for backend in reference.backends
    }


NONE: Mapping[str, int] = MappingProxyType({})
"""No replica is cold, or starts."""


def has_changed(
    server: Server,
    running: Mapping[str, int],
    cold: Mapping[str, int] = NONE,
    starting: Mapping[str, int] = NONE,
) -> bool:
    """Whether the Server's current allocation differs from the replicas that run, cold or not."""
    current = server.spec.current_alloc
    if current is None or current.cost is None or current.roles:
        return True
    if current.accelerator != _accelerator(server, running, starting):
        return True
    reported = {
        part.accelerator: (part.num_replicas, part.cold_replicas or 0, part.starting_replicas or 0)
        for part in current.parts
        if part.placed_replicas
    }
    return reported != {
        name: (running[name], cold.get(name, 0), starting.get(name, 0))
        for name in _in_order(running, starting)
    }


def is_mistyped(
    server: Server, running: Mapping[str, int], unit_costs: Mapping[str, float]
) -> bool:
    """Whether replicas run on an accelerator that there is not, and others were reported before.

    A mistyped name must not replace the accelerator whose cards the replicas hold.
    """
    reported = {part.accelerator for part in placements(server.spec.current_alloc)}
    unknown = (name for name, n in running.items() if n and name not in unit_costs)
    return bool(reported) and any(name not in reported for name in unknown)


def current_allocation(
    server: Server,
    running: Mapping[str, int],
    unit_costs: Mapping[str, float],
    cold: Mapping[str, int] = NONE,
    starting: Mapping[str, int] = NONE,
) -> Manifest:
    """Return `currentAlloc` from the running replicas, without the load, which users set.

    If several accelerators have replicas, `accelerator` is the one with the most (the first of
    the reference among equals), replicas and cost are totals, and the mix has one entry for
    each accelerator, as in a desired allocation. `cold` replicas have just started; those that
    are `starting` come on top.
    """
    mix = [
        _on(name, server, running[name], unit_costs, cold.get(name, 0), starting.get(name, 0))
        for name in _in_order(running, starting)
    ]
    if len(mix) == 1:
        return mix[0].to_json()
    accelerator = _accelerator(server, running, starting)
    whole = ServerAllocation(
        accelerator=accelerator,
        num_replicas=sum(running.values()),
        max_batch=_max_batch(server, accelerator),
        cost=round(sum(part.cost or 0.0 for part in mix), DIGITS),
        starting_replicas=sum(part.starting_replicas or 0 for part in mix) or None,
        cold_replicas=sum(part.cold_replicas or 0 for part in mix) or None,
    )
    return (whole.model_copy(update={"mix": tuple(mix)}) if mix else whole).to_json()


def has_changed_apart(
    server: Server,
    running: Mapping[Role, tuple[str, int]],
    cold: Mapping[str, int] = NONE,
    starting: Mapping[str, int] = NONE,
) -> bool:
    """Whether the roles of the current allocation differ from the replicas that run."""
    current = server.spec.current_alloc
    if current is None or current.roles is None:
        return True
    reported = {
        role: (
            part.accelerator,
            part.num_replicas,
            part.cold_replicas or 0,
            part.starting_replicas or 0,
        )
        for role, part in current.roles.by_role.items()
    }
    return reported != {
        role: (name, count, cold.get(place, 0), starting.get(place, 0))
        for role, (name, count) in running.items()
        if (place := place_of(name, role))
    }


def current_apart(
    server: Server,
    running: Mapping[Role, tuple[str, int]],
    unit_costs: Mapping[str, float],
    cold: Mapping[str, int] = NONE,
    starting: Mapping[str, int] = NONE,
) -> Manifest:
    """Return `currentAlloc` from the running replicas of both roles, without the load."""
    parts = {
        role: RoleAllocation(
            accelerator=name,
            num_replicas=count,
            starting_replicas=starting.get(place_of(name, role)) or None,
            cold_replicas=cold.get(place_of(name, role)) or None,
            max_batch=_max_batch_of(server, place_of(name, role)),
            cost=round(count * unit_costs.get(place_of(name, role), 0.0), DIGITS),
        )
        for role, (name, count) in running.items()
    }
    whole = ServerAllocation(
        accelerator=parts[Role.DECODE].accelerator,
        num_replicas=sum(count for _, count in running.values()),
        starting_replicas=sum(part.starting_replicas or 0 for part in parts.values()) or None,
        cold_replicas=parts[Role.PREFILL].cold_replicas,
        max_batch=parts[Role.DECODE].max_batch,
        cost=round(sum(part.cost or 0.0 for part in parts.values()), DIGITS),
        roles=Roles(prefill=parts[Role.PREFILL], decode=parts[Role.DECODE]),
    )
    return whole.to_json()


def _max_batch_of(server: Server, place: str) -> int:
    """Return the batch size that was decided for a role, else the one before."""
    for whole in (server.spec.desired_alloc, server.spec.current_alloc):
        part = whole.roles.by_place.get(place) if whole and whole.roles else None
        if part is not None and part.max_batch:
            return part.max_batch
    return 0


def _in_order(running: Mapping[str, int], starting: Mapping[str, int]) -> Sequence[str]:
    """Return the accelerators with replicas, that with the most first."""
    placed = (name for name in running if running[name] or starting.get(name))
    return sorted(placed, key=lambda name: (-running[name], -starting.get(name, 0)))


def _on(
    name: str, server: Server, count: int, unit_costs: Mapping[str, float], cold: int, starting: int
) -> Allocation:
    """Return the allocation on one accelerator."""
    return Allocation(
        accelerator=name,
        num_replicas=count,
        max_batch=_max_batch(server, name),
        cost=round(count * unit_costs.get(name, 0.0), DIGITS),
        starting_replicas=starting or None,
        cold_replicas=cold or None,
    )


def unit_costs(resources: Iterable[Resource], model: str) -> Mapping[str, float]:
    """Return the cost of one replica of a model by accelerator [cents/hour].

    If several objects have the same name in their spec, the oldest one is used.
    """
    counts: dict[str, int] = {}
    prices: dict[str, float] = {}
    for resource in sorted(resources, key=lambda resource: resource.age, reverse=True):
        if isinstance(resource, Model) and resource.spec.name == model:
            counts = {data.acc: max(data.acc_count, 1) for data in resource.spec.data}
        elif isinstance(resource, Accelerator):
            prices[resource.spec.name] = resource.spec.cost
    return {name: price * counts.get(name, 1) for name, price in prices.items()}


def _accelerator(server: Server, running: Mapping[str, int], starting: Mapping[str, int]) -> str:
    """Return the accelerator with the most replicas.

    If there are none, a Server with `keepAccelerator` keeps its accelerator, because the optimizer
    needs its name; any other Server has none ("").
    """
    order = _in_order(running, starting)
    if order:
        return order[0]
    current = server.spec.current_alloc
    return current.accelerator if current and server.spec.keep_accelerator else ""


def _max_batch(server: Server, accelerator: str) -> int:
    """Return the batch size that was decided for the accelerator, else the one before."""
    desired, current = server.spec.desired_alloc, server.spec.current_alloc
    parts = [*placements(desired), *placements(current), *filter(None, [current])]
    batches = (part.max_batch for part in parts if part.accelerator == accelerator and accelerator)
    return next((batch for batch in batches if batch), 0)
