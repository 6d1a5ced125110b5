"""Servers without replicas for which requests wait: what they get, beside a running optimization.

An optimization may take minutes, and those who wait for a first replica should not. So they get it
from the greedy solver, on cards that nobody has. The optimization that runs meanwhile was computed
without them: it leaves what they got, and what does not fit beside it. All functions are pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from inferno_operator.controllers.optimization.changes import VALID, Update, server_update
from inferno_operator.controllers.optimization.snapshot import Snapshot
from inferno_operator.resources import Server, ServerAllocation
from inferno_operator.resources.observation import Observation
from inferno_optimizer.capacity import cards_in_use
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import (
    LOWEST_PRIORITY,
    Allocation,
    Decision,
    Solution,
    System,
)


def is_wanted(observation: Observation) -> bool:
    """Whether requests wait for a Server that has no replica."""
    server = observation.resource
    if not isinstance(server, Server) or not server.sleeps:
        return False
    measured = server.status.measured
    return bool(measured and measured.demand and measured.demand.requests)


def waking_system(
    snapshot: Snapshot, observations: Sequence[Observation], last: Mapping[str, str]
) -> System:
    """Return the system of the wanted Servers alone; all that others have or were given is held.

    Parameters
    ----------
    snapshot
        The whole namespace.
    observations
        Its objects, as they are now.
    last
        The accelerator that Servers had last, by uid, as far as it is known.
    """
    catalogue = Catalogue(snapshot.system)
    wanted = {
        server.spec.name: observation
        for observation in observations
        if is_wanted(observation) and isinstance(server := observation.resource, Server)
    }
    held: Counter[str] = Counter()
    for observation in observations:
        if not is_wanted(observation):
            held += _most_cards(observation, catalogue)
    return replace(
        snapshot.system,
        servers=tuple(
            replace(server, destination=last.get(wanted[server.name].reference.uid, ""))
            for server in snapshot.system.servers
            if server.name in wanted
        ),
        held=held,
        held_cost=0.0,
        options=replace(snapshot.system.options, milp=False, heterogeneous=False),
    )


def waking_updates(observations: Iterable[Observation], solution: Solution) -> list[Update]:
    """Return an update of each object; only those of Servers that get a replica change anything."""
    given = {d.server: d for d in solution.decisions if d.allocation and d.allocation.replicas}
    return [
        server_update(observation, given[server.spec.name])
        if isinstance(server := observation.resource, Server) and server.spec.name in given
        else Update.of(observation, (VALID,), active=True)
        for observation in observations
    ]


def with_woken(
    observations: Iterable[Observation],
    newest: Mapping[str, Observation],
    solution: Solution,
    woken: Mapping[str, Decision],
) -> tuple[Sequence[Observation], Solution]:
    """Return the objects and the solution with what Servers got while it was computed.

    Parameters
    ----------
    observations, solution
        What was read, and the answer to it.
    newest
        The objects that were written meanwhile, by uid.
    woken
        What they got, by uid.
    """
    got = {woken[uid].server: woken[uid] for uid in newest}
    decisions = tuple(got.get(d.server, d) for d in solution.decisions)
    current = [newest.get(o.reference.uid, o) for o in observations]
    return current, replace(solution, decisions=decisions)


def without_room(
    observations: Sequence[Observation], updates: Sequence[Update], system: System
) -> frozenset[str]:
    """Return the uids of Servers whose growth does not fit, the least important ones first."""
    if system.options.unlimited:
        return frozenset()
    catalogue = Catalogue(system)
    free = Counter(system.capacity)
    growth: list[tuple[int, str, Counter[str]]] = []
    for observation, update in zip(observations, updates, strict=True):
        server = observation.resource
        if not isinstance(server, Server):
            continue
        before, after = _standing(server, update), _decided(server, update)
        more = Counter(_cards(server, after, catalogue))
        free.subtract(more)
        more.subtract(_cards(server, before, catalogue))
        growth.append((_priority(server, catalogue), observation.reference.uid, more))
    left_out = set()
    for _, uid, more in sorted(growth, key=lambda entry: entry[:2], reverse=True):
        if any(count > 0 and free[card] < 0 for card, count in more.items()):
            free.update(more)
            left_out.add(uid)
    return frozenset(left_out)


def _most_cards(observation: Observation, catalogue: Catalogue) -> Counter[str]:
    """The cards that a Server has or was given: the larger number of each type."""
    server = observation.resource
    if not isinstance(server, Server):
        return Counter()
    spec = server.spec
    return _cards(server, spec.desired_alloc, catalogue) | _cards(
        server, spec.current_alloc, catalogue
    )


def _decided(server: Server, update: Update) -> ServerAllocation | None:
    """What a Server has after an update."""
    if update.spec is None:
        return _standing(server, update)
    return ServerAllocation.model_validate(update.spec["desiredAlloc"])


def _standing(server: Server, update: Update) -> ServerAllocation | None:
    """What a Server was given; what runs, if nothing was, or none can be decided."""
    spec = server.spec
    is_given = spec.desired_alloc is not None and (update.active or spec.desired_alloc.num_replicas)
    return spec.desired_alloc if is_given else spec.current_alloc


def _cards(server: Server, whole: ServerAllocation | None, catalogue: Catalogue) -> Counter[str]:
    if whole is None:
        return Counter()
    parts = tuple(
        Allocation(accelerator=part.accelerator, replicas=part.num_replicas)
        for part in whole.mix or (whole,)
    )
    return Counter(cards_in_use(catalogue, server.spec.model, Allocation(mix=parts)))


def _priority(server: Server, catalogue: Catalogue) -> int:
    found = catalogue.classes.get(server.spec.service_class)
    return found.effective_priority if found else LOWEST_PRIORITY
