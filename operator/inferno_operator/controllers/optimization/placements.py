"""Where replicas of a Server are: by accelerator, and the cards that they take; pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from inferno_operator.controllers.optimization.allocations import allocation_of
from inferno_operator.resources import Allocation, Placement, Server, ServerAllocation
from inferno_optimizer import system as core
from inferno_optimizer.capacity import cards_in_use
from inferno_optimizer.sizing.cases import Catalogue


def placements(whole: Allocation | None) -> tuple[Placement, ...]:
    """Return the replicas by accelerator of an allocation, in order of the accelerators."""
    parts = whole.parts if whole else ()
    placed = (
        Placement(
            accelerator=p.accelerator, replicas=p.num_replicas, batch=max(p.max_batch or 0, 0)
        )
        for p in parts
        if p.accelerator and p.num_replicas > 0
    )
    return tuple(sorted(placed, key=lambda placement: placement.accelerator))


def replicas(placed: Iterable[Placement]) -> Mapping[str, int]:
    """Return the replicas by accelerator."""
    return {placement.accelerator: placement.replicas for placement in placed}


def cards_of_placements(
    placed: Iterable[Placement], server: Server, catalogue: Catalogue
) -> Counter[str]:
    """Return the cards by type that replicas take, as far as their accelerators tell them."""
    mix = tuple(core.Allocation(accelerator=p.accelerator, replicas=p.replicas) for p in placed)
    return Counter(cards_in_use(catalogue, server.spec.model, core.Allocation(mix=mix)))


def cards_of(whole: ServerAllocation | None, server: Server, catalogue: Catalogue) -> Counter[str]:
    """Return the cards by type that an allocation of a Server takes."""
    if whole is None:
        return Counter()
    return Counter(cards_in_use(catalogue, server.spec.model, allocation_of(whole)))


def places(whole: ServerAllocation | None) -> Iterator[tuple[str, core.Role]]:
    """Yield where an allocation has replicas: the accelerator, and what they do there."""
    if whole is not None and whole.roles is not None:
        yield from ((part.accelerator, role) for role, part in whole.roles.by_role.items())
    else:
        yield from ((placed.accelerator, core.Role.BOTH) for placed in placements(whole))


def by_place(whole: ServerAllocation | None) -> Mapping[str, int]:
    """Return the replicas of an allocation by place, see `place_of`."""
    if whole is not None and whole.roles is not None:
        return {place: part.num_replicas for place, part in whole.roles.by_place.items()}
    return replicas(placements(whole))
