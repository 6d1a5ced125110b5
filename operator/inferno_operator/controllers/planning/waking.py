"""Give Servers without replicas their first one at once, beside an optimization that runs.

An optimization may take minutes, and those who wait for a first replica should not. So they get it
from the greedy solver, on cards that nobody has. The optimization that runs meanwhile was computed
without them: what they got stays, and so does what does not fit beside it.
"""

import logging
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import filterfalse
from typing import TypeGuard

from inferno_operator.controllers.planning.conversions import cards_of
from inferno_operator.controllers.planning.memory import Memory
from inferno_operator.controllers.planning.nodes import Nodes, find_spanning, solve_on_nodes
from inferno_operator.controllers.planning.ports import OPTIMIZER, Context, OnDemand, Optimization
from inferno_operator.controllers.planning.snapshot import Inputs, Snapshot, take_snapshot
from inferno_operator.controllers.planning.updates import (
    VALID,
    Update,
    build_server_update,
    list_written_uids,
)
from inferno_operator.resources import DESIRED_ALLOC, Optimizer, Server, ServerAllocation
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import (
    Observation,
    is_of,
    observe,
    readable,
    still_running,
)
from inferno_operator.runtime.ports import Cluster, GoneError
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.placement import Node
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System

logger = logging.getLogger(__name__)


def is_asleep(observation: Observation) -> TypeGuard[Observation[Server]]:
    """Whether it is a Server that sleeps."""
    return is_of(observation, Server) and bool(observation.resource and observation.resource.sleeps)


def is_wanted(observation: Observation) -> TypeGuard[Observation[Server]]:
    """Whether requests wait for a Server that has no replica."""
    server = observation.resource if is_asleep(observation) else None
    measured = server.status.measured if server else None
    return bool(measured and measured.demand and measured.demand.requests)


def build_waking_system(snapshot: Snapshot, observations: Sequence[Observation]) -> System:
    """Return the system of the wanted Servers alone; all that others have or were given is held."""
    catalogue = Catalogue(snapshot.system)
    wanted = [o.resource for o in observations if is_wanted(o) and o.resource]
    destinations = {server.spec.name: server.wakes_on for server in wanted}
    held: Counter[str] = Counter()
    for observation in observations:
        server = _read_server(observation)
        if server is not None and not is_wanted(observation):
            held += _count_most_cards(server, catalogue)
    return replace(
        snapshot.system,
        servers=tuple(
            replace(server, destination=destinations[server.name])
            for server in snapshot.system.servers
            if server.name in destinations
        ),
        held=held,
        held_cost=0.0,
        options=replace(snapshot.system.options, milp=False, heterogeneous=False),
    )


def build_waking_updates(observations: Iterable[Observation], solution: Solution) -> list[Update]:
    """Return an update of each object; only those of Servers that get a replica change anything."""
    given = {d.server: d for d in solution.decisions if d.allocation and d.allocation.replicas}
    return [
        build_server_update(observation, given[server.spec.name])
        if is_of(observation, Server)
        and (server := observation.resource)
        and server.spec.name in given
        else Update.of(observation, (VALID,), active=True)
        for observation in observations
    ]


def build_waiting_updates(
    observations: Iterable[Observation], solution: Solution
) -> Iterator[Update]:
    """Yield an update of each wanted Server that gets no replica: its conditions say why."""
    refused = {d.server: d for d in solution.decisions if not d.allocation}
    for observation in filter(is_wanted, observations):
        server = observation.resource
        if server and (decision := refused.get(server.spec.name)):
            waiting = replace(
                decision, message=f"requests wait for a first replica: {decision.message}"
            )
            yield replace(build_server_update(observation, waiting), spec=None)


async def leave_woken(
    observations: Sequence[Observation],
    updates: list[Update],
    system: System,
    memory: Memory,
    cluster: Cluster,
) -> tuple[Sequence[Observation], list[Update], frozenset[str]]:
    """Leave Servers alone that woke since they were read, and those without room beside them.

    Returns the objects as they are now, their updates, and the uids of the Servers that stay.
    """
    woken = dict[str, Observation[Server]]()
    for slept in observations:
        if slept.reference.uid in memory.woken_servers and is_asleep(slept):
            reference = slept.reference
            with suppress(GoneError):
                newest = observe(Server, await cluster.get(reference.kind, reference.key))
                if not is_asleep(newest):
                    woken[reference.uid] = newest
    memory.woken_servers = set(woken)
    if not woken:
        return observations, updates, frozenset()
    objects = [woken.get(o.reference.uid, o) for o in observations]
    updates = _drop_changes(updates, woken)
    stays = woken.keys() | find_without_room(objects, updates, system)
    return objects, _drop_changes(updates, stays), frozenset(stays)


def _drop_changes(updates: Iterable[Update], uids: Container[str]) -> list[Update]:
    return [replace(u, spec=None) if u.reference.uid in uids else u for u in updates]


def find_without_room(
    observations: Sequence[Observation], updates: Sequence[Update], system: System
) -> frozenset[str]:
    """Return the uids of Servers whose growth does not fit, the least important ones first."""
    if system.options.unlimited:
        return frozenset()
    catalogue = Catalogue(system)
    free = Counter(system.capacity)
    growth: list[tuple[int, str, Counter[str]]] = []
    for observation, update in zip(observations, updates, strict=True):
        server = _read_server(observation)
        if server is None:
            continue
        spec = server.spec
        before = cards_of(spec.desired_alloc or spec.current_alloc, server, catalogue)
        if not update.active:  # nothing can be decided: it may have what runs, too
            before = _count_most_cards(server, catalogue)
        after = before
        if update.spec is not None:
            decided = ServerAllocation.model_validate(update.spec[DESIRED_ALLOC])
            after = cards_of(decided, server, catalogue)
        free.subtract(after)
        more = after.copy()
        more.subtract(before)
        growth.append((catalogue.priority(spec.service_class), observation.reference.uid, more))
    growth.sort(key=lambda entry: entry[:2], reverse=True)
    left_out: set[str] = set()

    def is_crowded(more: Counter[str]) -> bool:
        return any(count > 0 and free[card] < 0 for card, count in more.items())

    while crowded := next((entry for entry in growth if is_crowded(entry[2])), None):
        free.update(crowded[2])  # others may have counted on what it was to leave
        left_out.add(crowded[1])
        growth.remove(crowded)
    return frozenset(left_out)


def _read_server(observation: Observation) -> Server | None:
    """Return a Server; what runs of it, if nobody can read its spec as a whole."""
    if not is_of(observation, Server):
        return None
    return observation.resource or observation.remains


def _count_most_cards(server: Server, catalogue: Catalogue) -> Counter[str]:
    """The cards that a Server has or was given: the larger number of each type."""
    spec = server.spec
    given = (spec.desired_alloc, spec.current_alloc)
    desired, current = (cards_of(each, server, catalogue) for each in given)
    return desired | current


class Greedy:
    """Solves small systems in this process, in milliseconds."""

    async def optimize(self, system: System) -> Solution:
        """Solve a system."""
        return optimize(system)


async def wake(key: Key, context: Context) -> ReconcileResult:
    """Give all Servers that are wanted a replica, if cards are free and nobody has to approve."""
    try:
        observation = observe(Optimizer, await context.cluster.get(OPTIMIZER, key))
        optimizer = observation.resource
        if isinstance(optimizer, Optimizer) and observation.deleted is None:
            nodes = await context.machines.nodes(key.namespace)
            async with context.writes[key.namespace]:
                await _wake(optimizer, nodes, key, context)
    except GoneError:
        return ReconcileResult.SETTLED
    except InfernoError as error:
        logger.warning("Optimizer %s: a Server does not wake yet: %s", key, error)
        return ReconcileResult.FAILED
    return ReconcileResult.SETTLED


async def _wake(optimizer: Optimizer, nodes: Sequence[Node], key: Key, context: Context) -> None:
    stored = await OnDemand(context.cluster).objects(key.namespace)
    asleep, others = filter(is_asleep, stored), filterfalse(is_asleep, stored)
    observations = [*others, *context.loads.with_known_loads([*asleep])]
    if not any(map(is_wanted, observations)):
        return
    resources = readable(observations)
    running = [*resources, *still_running(observations)]
    snapshot = take_snapshot(
        Inputs(running, optimizer, context.time_limit, stored=readable(stored))
    )
    system = build_waking_system(snapshot, observations)
    placed = await solve_on_nodes(system, Nodes(nodes, find_spanning(resources)), Greedy())
    solution = placed.solution
    updates = build_waking_updates(observations, solution)
    permission = await context.approver.permit_additions(
        Optimization(optimizer, observations, updates, snapshot, solution, is_requested=False)
    )
    memory, given = context.memories[key.namespace], [*list_written_uids(permission.updates)]
    memory.woken_servers.update(given)
    await context.writer.write_all(
        [*permission.updates, *build_waiting_updates(observations, solution)]
    )
    memory.note_written(given, context.steady())
    for update in permission.updates:
        logger.info("%s wakes: %s", update.reference, update.main.message)
