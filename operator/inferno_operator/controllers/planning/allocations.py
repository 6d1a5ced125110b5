"""Allocations of objects as the optimizer has them, and where replicas are; pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from inferno_operator.resources import (
    DIGITS,
    Allocation,
    Load,
    Placement,
    ReplicaAllocation,
    Roles,
    Server,
    ServerAllocation,
)
from inferno_operator.resources.objects import Manifest
from inferno_optimizer import system as core
from inferno_optimizer.capacity import cards_in_use
from inferno_optimizer.sizing.cases import Catalogue

Priced = TypeVar("Priced", bound=Allocation)
Placed = TypeVar("Placed", bound=ReplicaAllocation)


def price_current(resource: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """The current allocation of a Server; a missing cost is computed from its replicas."""
    whole, model = resource.spec.current_alloc, resource.spec.model
    if whole is None:
        return None
    mix = tuple(_price(part, model, catalogue) for part in whole.mix)
    if whole.roles:
        return _price_roles(whole, model, catalogue)
    if not mix:
        return _price(whole, model, catalogue)
    total = sum(part.cost or 0.0 for part in mix)
    return whole.model_copy(
        update={"mix": mix, "cost": total if whole.cost is None else whole.cost}
    )


def place_current(resource: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """The current allocation as plans take it: replicas that start run, as they hold their cards.

    They are cold, and cost as much as the others.
    """
    whole, model = price_current(resource, catalogue), resource.spec.model
    if whole is None or not any(part.starting_replicas for part in whole.parts):
        return whole

    def placed(part: Placed, role: core.Role = core.Role.BOTH) -> Placed:
        return _add_starting(part, catalogue.unit_cost(model, part.accelerator, role))

    if not _list_parts(whole):
        return placed(whole)
    roles = whole.roles and Roles(
        prefill=placed(whole.roles.prefill, core.Role.PREFILL),
        decode=placed(whole.roles.decode, core.Role.DECODE),
    )
    after = whole.model_copy(update={"mix": tuple(map(placed, whole.mix)), "roles": roles})
    added = _sum_costs(_list_parts(after)) - _sum_costs(_list_parts(whole))
    replicas = sum(part.num_replicas for part in _list_parts(after))
    return after.model_copy(update={"num_replicas": replicas, "cost": (whole.cost or 0.0) + added})


def _list_parts(whole: ServerAllocation) -> tuple[ReplicaAllocation, ...]:
    """The parts of a mix, or those by role; none where the allocation is in one piece."""
    return (*whole.mix, *(whole.roles.by_role.values() if whole.roles else ()))


def _add_starting(part: Placed, unit_cost: float) -> Placed:
    starting = part.starting_replicas or 0
    return part.model_copy(
        update={
            "num_replicas": part.num_replicas + starting,
            "cold_replicas": (part.cold_replicas or 0) + starting,
            "cost": (part.cost or 0.0) + starting * unit_cost,
        }
    )


def _sum_costs(parts: Iterable[ReplicaAllocation]) -> float:
    return sum(part.cost or 0.0 for part in parts)


def _price_roles(whole: ServerAllocation, model: str, catalogue: Catalogue) -> ServerAllocation:
    if whole.roles is None or whole.cost is not None:
        return whole
    costs = (
        max(part.replicas, 0) * catalogue.unit_cost(model, part.accelerator, part.role)
        for part in _convert_roles(whole.roles)
    )
    return whole.model_copy(update={"cost": sum(costs)})


def _price(part: Priced, model: str, catalogue: Catalogue) -> Priced:
    if part.cost is not None:
        return part
    cost = max(part.num_replicas, 0) * catalogue.unit_cost(model, part.accelerator)
    return part.model_copy(update={"cost": cost})


def allocation_of(whole: ServerAllocation) -> core.Allocation:
    """Return the allocation as the optimizer has it."""
    return replace(
        _convert_part(whole),
        mix=tuple(map(_convert_part, whole.mix)),
        roles=tuple(_convert_roles(whole.roles)) if whole.roles else (),
    )


def _convert_roles(roles: Roles) -> Iterator[core.Allocation]:
    for role, part in roles.by_role.items():
        yield replace(_convert_replicas(part), role=role)


def _convert_replicas(part: ReplicaAllocation) -> core.Allocation:
    return core.Allocation(
        accelerator=part.accelerator,
        replicas=part.num_replicas,
        max_batch_size=part.max_batch or 0,
        cost=part.cost or 0.0,
        cold_replicas=part.cold_replicas or 0,
    )


def _convert_part(part: Allocation) -> core.Allocation:
    return replace(
        _convert_replicas(part),
        itl_ms=part.itl_average or 0.0,
        wait_ms=part.wait_average or 0.0,
        ttft_ms=part.ttft_average or 0.0,
        load=_convert_load(part.load) if part.load else core.Load(),
    )


def _convert_load(part: Load) -> core.Load:
    return core.Load(
        arrival_rate=part.arrival_rate,
        tokens_per_request=part.avg_length or 0,
        arrival_cov=part.arrival_cov or 0.0,
        service_cov=part.service_cov or 0.0,
        input_tokens=part.avg_in_tokens or 0,
        output_tokens=part.avg_out_tokens or 0,
        cached_tokens=part.cached_tokens or 0,
        tokens_per_step=part.tokens_per_step or 0.0,
    )


def build_desired(allocation: core.Allocation | None) -> Manifest:
    """Return the manifest of spec.desiredAlloc with every field, so that nothing earlier stays."""
    decided = allocation or core.Allocation()
    parts = {
        part.role.lower(): ReplicaAllocation.json_of(**_write_replicas(part))
        for part in decided.roles
    }
    return ServerAllocation.json_of(
        **_write_part(decided),
        mix=[Allocation.json_of(**_write_part(part)) for part in decided.mix],
        roles=parts or None,
    )


def _write_replicas(allocation: core.Allocation) -> dict[str, Any]:
    return {
        "accelerator": allocation.accelerator,
        "num_replicas": allocation.replicas,
        "max_batch": allocation.max_batch_size,
        "cost": round(allocation.cost, DIGITS),
    }


def _write_part(allocation: core.Allocation) -> dict[str, Any]:
    return {
        **_write_replicas(allocation),
        "itl_average": round(allocation.itl_ms, DIGITS),
        "wait_average": round(allocation.wait_ms, DIGITS),
        "ttft_average": round(allocation.ttft_ms, DIGITS),
        "load": _write_load(allocation.load),
        "origin": allocation.origin or None,
        "error_percent": allocation.error_percent or None,
    }


def _write_load(load: core.Load) -> Manifest:
    lengths = {"avg_in_tokens": load.input_tokens, "avg_out_tokens": load.output_tokens}
    if load.tokens_per_request or not load.output_tokens:
        lengths = {"avg_length": load.tokens_per_request} | (lengths if load.output_tokens else {})
    return Load.json_of(
        arrival_rate=load.arrival_rate,
        **lengths,
        cached_tokens=load.cached_tokens or None,
        tokens_per_step=load.tokens_per_step or None,
        arrival_cov=load.arrival_cov,
        service_cov=load.service_cov,
    )


Label = Callable[[str, core.Role], str]
"""An accelerator as it is shown for replicas of a role: with the cards of one replica."""


def name_accelerator(accelerator: str, role: core.Role = core.Role.BOTH) -> str:  # noqa: ARG001 - a Label
    """Return the name of an accelerator, where it is not known what a replica takes."""
    return accelerator


def list_placements(whole: ServerAllocation | None) -> tuple[Placement, ...]:
    """Return the replicas by accelerator and role, in order of the accelerators."""
    placed = (
        Placement(
            accelerator=part.accelerator,
            replicas=part.num_replicas,
            batch=max(part.max_batch or 0, 0),
            role=role.value,
        )
        for role, part in list_parts_by_role(whole)
        if part.accelerator and part.num_replicas > 0
    )
    return tuple(sorted(placed, key=lambda placement: placement.place))


def list_parts_by_role(whole: Allocation | None) -> Iterator[tuple[core.Role, ReplicaAllocation]]:
    """Yield the parts of an allocation, and what their replicas do of each request."""
    if isinstance(whole, ServerAllocation) and whole.roles is not None:
        yield from whole.roles.by_role.items()
    elif whole is not None:
        yield from ((core.Role.BOTH, part) for part in whole.parts)


def is_whole(placed: Sequence[Placement]) -> bool:
    """Whether replicas serve requests: a role alone serves none."""
    return core.can_answer(core.Role(placement.role) for placement in placed)


def count_by_place(placed: Iterable[Placement]) -> Mapping[str, int]:
    """Return the replicas by place, see `Placement.place`."""
    return {placement.place: placement.replicas for placement in placed}


def cards_of_placements(
    placed: Iterable[Placement], server: Server, catalogue: Catalogue
) -> Counter[str]:
    """Return the cards by type that replicas take, as far as their accelerators tell them."""
    mix = tuple(
        core.Allocation(accelerator=p.accelerator, replicas=p.replicas, role=core.Role(p.role))
        for p in placed
    )
    return Counter(cards_in_use(catalogue, server.spec.model, core.Allocation(mix=mix)))


def cards_of(whole: ServerAllocation | None, server: Server, catalogue: Catalogue) -> Counter[str]:
    """Return the cards by type that an allocation of a Server takes."""
    if whole is None:
        return Counter()
    return Counter(cards_in_use(catalogue, server.spec.model, allocation_of(whole)))
