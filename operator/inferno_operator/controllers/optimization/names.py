"""Reports at once a Server that refers to nothing, or has the name of an older one; pure.

An optimization says the same of them. But it may be far away, and a Server that was just applied
would have an empty status until then.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from inferno_operator.controllers.optimization.changes import (
    Update,
    excluded_decision,
    server_update,
)
from inferno_operator.controllers.optimization.snapshot import build_system, named_only
from inferno_operator.resources import Capacity, Condition, Server
from inferno_operator.resources.conditions import ALLOCATED, READY, Verdict
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision, Reason

WRONG_NAMES = frozenset({Reason.UNKNOWN_CLASS, Reason.UNKNOWN_MODEL, Reason.NO_TARGET})
"""Reasons that follow from names alone, whatever the load and the cards are."""

TAKEN = ("name", "modelBooster", "workloads")
"""Fields of a Server that are invalid where an older one has the same."""


def check_names(observations: Iterable[Observation]) -> Iterator[Update]:
    """Yield the updates of Servers with wrong names, and of those whose names are right again."""
    all_objects = list(observations)
    resources = [
        r for r in readable(all_objects) if not isinstance(r, Capacity)
    ]  # may be uncounted
    servers = tuple(named_only(resource) for resource in resources if isinstance(resource, Server))
    snapshot = build_system(resources)
    taken = {id(resource): p for resource, p in snapshot.excluded if p.field in TAKEN}
    catalogue = Catalogue(replace(snapshot.system, servers=servers))
    for observation in all_objects:
        server, allocated = observation.resource, observation.status.condition(ALLOCATED)
        if not isinstance(server, Server):
            continue
        case = catalogue.case(named_only(server))
        if problem := taken.get(id(server)):
            yield server_update(observation, excluded_decision(server.spec.name, problem))
        elif isinstance(case, Decision) and case.reason in WRONG_NAMES:
            yield server_update(observation, case)
        elif allocated is not None and _names_were_wrong(allocated):
            yield _corrected(observation, allocated)


def _names_were_wrong(allocated: Condition) -> bool:
    """Whether a condition speaks of wrong names."""
    field = allocated.message.partition(": ")[0]
    is_taken = allocated.reason == Reason.INVALID_SPEC and field in TAKEN
    return is_taken or allocated.reason in WRONG_NAMES


def _corrected(observation: Observation, allocated: Condition) -> Update:
    """Return the update of a Server that waits for a decision since its names are right."""
    message = "references are valid again; waiting for the next optimization"
    ready = Verdict(READY, holds=None, reason="NotOptimized", message=message)
    stays = Verdict(ALLOCATED, holds=False, reason=allocated.reason, message=allocated.message)
    return Update.of(observation, (ready, stays), active=observation.status.active)
