"""Remembers what plans knew of Models and Accelerators that are deleted and made anew; pure.

Their status goes with them; the replicas that run by it do not. So what it said counts for the
next object of the same `spec.name`, until that has a status of its own: the performance data that
are trusted (see `doubt`), and the cards that replicas hold (see `cards_in_use`). An operator that
starts in between does not know it; then the Server that runs tells both: in its status the cards of
its replicas (see `counted_cards`), in its decision their speed (see `approval/speedup`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from inferno_operator.controllers.optimization.changes import Update
from inferno_operator.controllers.optimization.placements import placements
from inferno_operator.resources import (
    Accelerator,
    AcceleratorStatus,
    Model,
    ModelStatus,
    Resource,
    Server,
    Status,
)
from inferno_operator.resources.observation import Observation, readable

Name = tuple[type[Resource], str]
"""A kind, Model or Accelerator, and `spec.name`."""

Statuses = Mapping[Name, Status]
"""What the statuses of Models and Accelerators said last."""

NO_STATUSES: Statuses = MappingProxyType({})


def with_remembered(observations: Iterable[Observation], remembered: Statuses) -> list[Observation]:
    """Return objects with resources whose status says what is remembered of their names."""
    return [_with_status(observation, remembered) for observation in observations]


def _with_status(observation: Observation, remembered: Statuses) -> Observation:
    resource = observation.resource
    status = remembered.get(_name(resource)) if resource is not None else None
    if isinstance(resource, Model) and isinstance(status, ModelStatus):
        merged = _merged(status, resource.status)
        return replace(observation, resource=resource.model_copy(update={"status": merged}))
    if isinstance(resource, Accelerator) and not resource.status.type and status is not None:
        return replace(observation, resource=resource.model_copy(update={"status": status}))
    return observation


def remembered_after(
    remembered: Statuses,
    observations: Iterable[Observation],
    updates: Iterable[Update],
    excluded: Iterable[Resource],
) -> Statuses:
    """Return what is remembered after a plan, of what exists or is named by some Server.

    Parameters
    ----------
    remembered
        What was remembered before.
    observations, updates
        The objects, and how the plan changes each of them.
    excluded
        Resources that are no part of the system, such as a second one with the same name.
    """
    observations, left = list(observations), set(map(id, excluded))
    newest = dict(remembered)
    for observation, update in zip(observations, updates, strict=True):
        resource = observation.resource
        if isinstance(resource, Model) and id(resource) not in left:
            status = ModelStatus.model_validate(update.extra_status)
            newest[_name(resource)] = _merged(remembered.get(_name(resource)), status)
        elif isinstance(resource, Accelerator) and id(resource) not in left:
            newest[_name(resource)] = AcceleratorStatus.model_validate(update.extra_status)
    names = {name for each in readable(observations) for name in _names(each)}
    return {name: status for name, status in newest.items() if name in names}


def _merged(before: Status | None, newest: ModelStatus) -> ModelStatus:
    """Return the newer status of a Model, with what only the older one says."""
    if not isinstance(before, ModelStatus):
        return newest
    cards = {(c.acc, c.role): c for c in (*before.replica_cards, *newest.replica_cards)}
    data = {(d.acc, d.role): d for d in (*before.performance, *newest.performance)}
    fields = {"replica_cards": tuple(cards.values()), "performance": tuple(data.values())}
    return newest.model_copy(update=fields)


def _name(resource: Resource) -> Name:
    return type(resource), getattr(resource.spec, "name", "")


def _names(resource: Resource) -> Iterator[Name]:
    """Yield the name of a resource, and those that a Server names or runs on."""
    yield _name(resource)
    if isinstance(resource, Server):
        yield Model, resource.spec.model
        for whole in (resource.spec.current_alloc, resource.spec.desired_alloc):
            yield from ((Accelerator, placed.accelerator) for placed in placements(whole))
