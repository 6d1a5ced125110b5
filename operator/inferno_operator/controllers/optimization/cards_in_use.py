"""Counts running replicas by the cards that they hold, whatever was edited since; pure.

The cards of a replica that runs do not become others because a spec says so. If what runs does not
fit into the capacity with the new type or number, that is a mistake, of which no other Server may
lose a replica: plans count the cards as before until it fits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from inferno_operator.controllers.optimization.profiles import Place, place_of_profile
from inferno_operator.resources import (
    Accelerator,
    AcceleratorStatus,
    Model,
    ReplicaCards,
    Server,
)
from inferno_optimizer import system as core
from inferno_optimizer.capacity import cards_of_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import System
from inferno_optimizer.validation import Problem

CARDS_CHANGED = "CardsChanged"
"""The reason of an Accelerator or Model whose change is not taken."""

NOT_COUNTED = AcceleratorStatus()
"""What is known of an Accelerator before the first plan."""

Profile = TypeVar("Profile", core.PerformanceProfile, core.RoleProfile)


def still_counted(
    system: System,
    accelerators: Iterable[Accelerator],
    models: Sequence[Model],
    resources: Sequence[Server],
    left_out: Iterable[core.Server],
) -> System:
    """Return the system with the cards as they were counted before, if what runs needs that.

    Parameters
    ----------
    system
        The system with all cards as their specs have them now.
    accelerators, models, resources
        Its accelerators and models, and all Servers of the namespace, with what they were counted
        as.
    left_out
        Servers that run and are not of the system.
    """
    if system.options.unlimited:
        return system
    counts = dict(_known(models, resources))
    before = replace(
        system,
        accelerators=tuple(_accelerators(system, accelerators, [*resources, *models])),
        profiles=tuple(_profiles(system.profiles, counts)),
        roles=tuple(_profiles(system.roles, counts)),
    )
    if before == system:
        return system
    servers, now = (*system.servers, *left_out), Catalogue(system)
    types = set(_changed_types(servers, now, Catalogue(before)))
    used = cards_of_servers(now, servers) if types else {}
    return before if any(used[t] > system.capacity[t] for t in types) else system


def _accelerators(
    system: System, resources: Iterable[Accelerator], others: Iterable[Model | Server]
) -> Iterator[core.Accelerator]:
    """Yield the accelerators as before, if both types of cards have a count.

    Of one that was made anew, the Servers and the Models still tell what it was, these before them.
    """
    told: dict[str, ReplicaCards | AcceleratorStatus] = {
        cards.acc: cards for each in others for cards in each.status.replica_cards if cards.type
    }
    told |= {each.spec.name: each.status for each in resources if each.status.type}
    for accelerator in system.accelerators:
        known = told.get(accelerator.name, NOT_COUNTED)
        before = replace(accelerator, type=known.type, multiplicity=known.multiplicity)
        is_counted = {before.type, accelerator.type} <= system.capacity.keys()
        yield before if is_counted else accelerator


def _known(models: Iterable[Model], servers: Iterable[Server]) -> Iterator[tuple[Place, int]]:
    """Yield the accelerators of each replica as they were counted before; what Models say is last.

    Of a Model that was made anew, the Servers that run it still tell it.
    """
    for server in servers:
        for held in server.status.replica_cards:
            yield (held.model, held.acc, core.Role(held.role)), held.acc_count
    for model in models:
        for each in model.status.replica_cards:
            yield (model.spec.name, each.acc, core.Role(each.role)), each.acc_count


def _profiles(profiles: Iterable[Profile], counts: Mapping[Place, int]) -> Iterator[Profile]:
    """Yield the profiles with the accelerators of a replica as before."""
    for profile in profiles:
        count = counts.get(place_of_profile(profile), profile.accelerator_count)
        yield replace(profile, accelerator_count=count)


def counted_replicas(system: System) -> Iterator[tuple[Place, int]]:
    """Yield the accelerators that plans count for each replica of the models."""
    yield from (
        (place_of_profile(profile), profile.accelerator_count) for profile in system.profiles
    )
    yield from ((place_of_profile(profile), profile.accelerator_count) for profile in system.roles)


def _changed_types(
    servers: Iterable[core.Server], now: Catalogue, before: Catalogue
) -> Iterator[str]:
    """Yield the types that have a count of cards that replicas which run hold other ones of."""
    places = {
        (server.model, part.accelerator, part.role)
        for server in servers
        for part in server.current.parts
        if part.replicas > 0
    }
    for place in places:
        cards = now.cards_per_replica(*place)
        if cards != before.cards_per_replica(*place) and cards[0] in now.system.capacity:
            yield cards[0]


def problems_of(now: System, counted: System) -> Iterator[Problem]:
    """Yield a problem for each accelerator and profile that is counted as before.

    Parameters
    ----------
    now
        The system with all cards as their specs have them.
    counted
        The same as plans count it.
    """
    for accelerator, before in zip(now.accelerators, counted.accelerators, strict=True):
        if accelerator != before:
            message = _message(_cards(before), _cards(accelerator))
            yield Problem("accelerator", accelerator.name, "type", message, CARDS_CHANGED)
    accelerators_before = dict(counted_replicas(counted))
    for place, count in counted_replicas(now):
        if count != accelerators_before[place]:
            message = _message(accelerators_before[place], count)
            yield Problem("model", place[0], "accCount", message, CARDS_CHANGED, place[1])


def _message(before: object, now: object) -> str:
    return (
        f"it was {before} and is {now} now, and what runs does not fit into the Capacity then:"
        f" plans count it as before; set it back, or correct the Capacity"
    )


def _cards(accelerator: core.Accelerator) -> str:
    return f"{accelerator.multiplicity} x {accelerator.type}"
