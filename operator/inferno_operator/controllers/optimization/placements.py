"""Where replicas of a Server are: by accelerator and role, and the cards they take; pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from inferno_operator.controllers.optimization.allocations import allocation_of
from inferno_operator.resources import (
    Allocation,
    Placement,
    ReplicaAllocation,
    Server,
    ServerAllocation,
)
from inferno_optimizer import system as core
from inferno_optimizer.capacity import cards_in_use
from inferno_optimizer.sizing.cases import Catalogue

Label = Callable[[str, core.Role], str]
"""An accelerator as it is shown for replicas of a role: with the cards of one replica."""


def plain(accelerator: str, role: core.Role = core.Role.BOTH) -> str:  # noqa: ARG001 - a Label
    """Return the name of an accelerator, where it is not known what a replica takes."""
    return accelerator


def placements(whole: ServerAllocation | None) -> tuple[Placement, ...]:
    """Return the replicas by accelerator and role, in order of the accelerators."""
    placed = (
        Placement(
            accelerator=part.accelerator,
            replicas=part.num_replicas,
            batch=max(part.max_batch or 0, 0),
            role=role.value,
        )
        for role, part in parts_by_role(whole)
        if part.accelerator and part.num_replicas > 0
    )
    return tuple(sorted(placed, key=lambda placement: placement.place))


def parts_by_role(whole: Allocation | None) -> Iterator[tuple[core.Role, ReplicaAllocation]]:
    """Yield the parts of an allocation, and what their replicas do of each request."""
    if isinstance(whole, ServerAllocation) and whole.roles is not None:
        yield from whole.roles.by_role.items()
    elif whole is not None:
        yield from ((core.Role.BOTH, part) for part in whole.parts)


def is_whole(placed: Sequence[Placement]) -> bool:
    """Whether replicas serve requests: a role alone serves none."""
    return core.can_answer(core.Role(placement.role) for placement in placed)


def replicas(placed: Iterable[Placement]) -> Mapping[str, int]:
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
