"""A namespace at one moment, and the stages from its objects to the system that is solved; pure."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from operator import attrgetter

from inferno_operator.controllers.planning.conversions import (
    Shared,
    convert_accelerator,
    convert_class,
    convert_options,
    convert_profiles,
    convert_roles,
    convert_server,
    find_shared,
    list_placements,
    place_current,
    remove_shared,
    sum_cards,
)
from inferno_operator.controllers.planning.memory import Memory, find_calmed_servers
from inferno_operator.resources import (
    Accelerator,
    Capacity,
    Model,
    Optimizer,
    Resource,
    Server,
    ServerAllocation,
    ServiceClass,
)
from inferno_operator.resources.observation import only
from inferno_optimizer import system as core
from inferno_optimizer.capacity import cards_of_servers
from inferno_optimizer.explain.rates import rates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.validation import Problem, find_problems

Named = Accelerator | Model | ServiceClass | Server
"""Objects that other objects refer to by `spec.name`."""

DUPLICATE_NAME = "DuplicateName"

KINDS: Mapping[str, str] = {
    Accelerator.kind: "accelerator",
    Model.kind: "model",
    ServiceClass.kind: "service class",
    Server.kind: "server",
}
"""Names in `Problem.kind` of those of our kinds whose objects have a `spec.name`."""


ReplicaRates = Mapping[tuple[str, str], float]
"""What a replica carries [requests/min], by spec.name of a Server and by place, see `place_of`."""

SPARE = 1e-6
"""Share of what replicas carry that is not asked for: rounding must not ask for one more."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is decided from.

    `resources` are the objects of a namespace with their measured loads, `stored` the same as they
    are on the API server: the minimum of a Server there is what somebody asks for. Without an
    `optimizer`, the oldest one among the resources counts. `time_limit` is that of the exact solver
    [s]. Without `now` nothing runs that is to be kept.
    """

    resources: Sequence[Resource]
    optimizer: Optimizer | None = None
    time_limit: float = 30.0
    stored: Sequence[Resource] = ()
    memory: Memory | None = None
    now: datetime | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects that take part in an optimization, the oldest first, and their system.

    `excluded` has those that do not, each with the reason: an older object has the same name, or a
    Server has no load, or names a workload of an older one.
    """

    inputs: Inputs
    resources: Sequence[Resource]
    excluded: tuple[tuple[Resource, Problem], ...] = ()
    system: core.System = field(default_factory=core.System)
    problems: tuple[Problem, ...] = ()


Stage = Callable[[Snapshot], Snapshot]


def take_snapshot(inputs: Inputs) -> Snapshot:
    """Return the snapshot of a namespace; `UnavailableError` if its cards are not counted yet."""
    stages: Sequence[Stage] = (
        # Others refer to objects by name. Of two with one name, they meant the older one.
        leave_out_duplicates,
        # Nothing can be decided for a Server without a load, or with a workload of an older one.
        leave_out_undecidable,
        # Solvers know numbers, not objects.
        convert_objects,
        # What runs of a Server that was left out goes on running: it needs its cards.
        hold_cards,
        # A person sees what is wrong with numbers on the object; the rest is solved without it.
        note_problems,
        # While targets are missed nothing shows that less is enough, wherever a Server goes.
        keep_carried_load,
        # A move has to pay for itself before the next one: a Server that moved lately stays.
        stay_after_moves,
    )
    resources = sorted(inputs.resources, key=attrgetter("age"))
    snapshot = Snapshot(replace(inputs, resources=resources), resources)
    for stage in stages:
        snapshot = stage(snapshot)
    return snapshot


def build_system(
    resources: Iterable[Resource], optimizer: Optimizer | None = None, time_limit: float = 30.0
) -> Snapshot:
    """Return the snapshot of objects alone, whatever ran and was planned before."""
    return take_snapshot(Inputs([*resources], optimizer, time_limit))


def leave_out_duplicates(snapshot: Snapshot) -> Snapshot:
    """Of several objects of a kind with the same `spec.name`, use the oldest one."""
    holders: dict[tuple[str, str], Named] = {}
    excluded: list[tuple[Resource, Problem]] = []
    for resource in snapshot.resources:
        if not isinstance(resource, Named):
            continue
        key = (KINDS[resource.kind], resource.spec.name)
        older = holders.setdefault(key, resource)
        if older is not resource:
            message = (
                f"{resource.spec.name!r} is already used by the older {older.kind}"
                f" {older.metadata.name!r}; rename one"
            )
            excluded.append((resource, Problem(*key, "name", message, DUPLICATE_NAME)))
    return _leave_out(snapshot, excluded)


def leave_out_undecidable(snapshot: Snapshot) -> Snapshot:
    """Leave out the Servers for which no decision is possible; an idle one has a load of 0."""
    shared = _find_shared(snapshot)
    excluded: list[tuple[Resource, Problem]] = []
    for server in only(Server, snapshot.resources):
        problem = next(iter(shared.get(id(server), {}).values()), None)
        current = server.spec.current_alloc
        if problem is None and (current is None or current.load is None):
            message = (
                "is not measured yet; the condition Measured or `inferno measure` says why"
                if server.spec.measure
                else "load is missing: set arrivalRate (0 = no traffic) and either avgLength, or"
                " avgInTokens and avgOutTokens"
            )
            problem = Problem("server", server.spec.name, "currentAlloc.load", message)
        if problem is not None:
            excluded.append((server, problem))
    return _leave_out(snapshot, excluded)


def convert_objects(snapshot: Snapshot) -> Snapshot:
    """Build the system of the objects that take part.

    The counts of several Capacity objects are added. If cards are counted from nodes, these
    counts are used, and the added ones limit them.
    """
    resources = snapshot.resources
    optimizer = snapshot.inputs.optimizer or next(only(Optimizer, resources), None)
    models = [*only(Model, resources)]
    system = core.System(
        accelerators=tuple(map(convert_accelerator, only(Accelerator, resources))),
        profiles=convert_profiles(models),
        roles=convert_roles(models),
        classes=tuple(map(convert_class, only(ServiceClass, resources))),
        capacity=sum_cards(only(Capacity, resources)),
        options=convert_options(
            optimizer.spec.data.optimizer if optimizer else None, snapshot.inputs.time_limit
        ),
    )
    catalogue = Catalogue(system)
    wakes = optimizer is not None and optimizer.spec.interval is not None
    servers = (convert_server(s, catalogue, wakes=wakes) for s in only(Server, resources))
    return replace(snapshot, system=replace(system, servers=tuple(servers)))


def hold_cards(snapshot: Snapshot) -> Snapshot:
    """Take the cards of Servers that were left out from those that are given to others."""
    excluded = [*only(Server, (resource for resource, _ in snapshot.excluded))]
    if not excluded:
        return snapshot
    system, shared = snapshot.system, _find_shared(snapshot)
    catalogue = Catalogue(system)
    left_out = [
        convert_server(remove_shared(server, shared.get(id(server), {})), catalogue)
        for server in excluded
    ]
    system = replace(
        system,
        held=cards_of_servers(catalogue, left_out) if system.options.hold_undecided else {},
        held_cost=sum(server.current.cost for server in left_out),
    )
    return replace(snapshot, system=system)


def note_problems(snapshot: Snapshot) -> Snapshot:
    """Note what is wrong with numbers of the system."""
    return replace(snapshot, problems=tuple(find_problems(snapshot.system)))


def keep_carried_load(snapshot: Snapshot) -> Snapshot:
    """Let Servers keep what their replicas carry, in place of their number.

    A measured Server has as many replicas as its minimum as run, or were decided, while nothing
    shows that less is enough. Elsewhere as many are needed as carry what these carry: of faster
    ones fewer. By their number alone, a Server that misses its targets would stay on what has
    become the wrong accelerator, or lose by a move to slower ones. Where it is not known what
    replicas carry, their number stays the minimum.
    """
    inputs, system = snapshot.inputs, snapshot.system
    if inputs.now is None:
        return snapshot
    stored = find_calmed_servers(inputs.stored)
    asked = {server.metadata.uid: server.fewest_replicas(inputs.now) for server in stored}
    catalogue = Catalogue(system)
    kept: dict[str, Sequence[ServerAllocation]] = {}
    fewest: dict[str, int] = {}
    for server in find_calmed_servers(snapshot.resources):
        if server.spec.min_num_replicas > asked.get(server.metadata.uid, inf):
            kept[server.spec.name] = _list_kept(server, catalogue)
            fewest[server.spec.name] = max(asked[server.metadata.uid], 1)
    if not kept:
        return snapshot
    placed = (p for wholes in kept.values() for whole in wholes for p in list_placements(whole))
    replica = _find_replica_rates(system, kept.keys(), {p.accelerator for p in placed})
    servers = []
    for planned in system.servers:
        name = planned.name
        rate = min((_carry(w, name, replica) for w in kept.get(name, ())), default=0.0)
        if rate > 0:
            least = rate * (1.0 - SPARE)
            servers.append(replace(planned, least_rate=least, min_replicas=fewest[name]))
        else:
            servers.append(planned)
    return replace(snapshot, system=replace(system, servers=tuple(servers)))


def _list_kept(server: Server, catalogue: Catalogue) -> Sequence[ServerAllocation]:
    """Return what runs; and what was decided, where fewer replicas than run are kept."""
    runs, decided = place_current(server, catalogue), server.spec.desired_alloc
    kept = [runs] if runs is not None else []
    if runs and decided and server.spec.min_num_replicas < runs.num_replicas:
        kept.append(decided)
    return kept


def stay_after_moves(snapshot: Snapshot) -> Snapshot:
    """Keep Servers where they are that moved lately; see `Memory`."""
    memory = snapshot.inputs.memory
    if memory is None:
        return snapshot
    servers = find_calmed_servers(snapshot.resources)
    return replace(snapshot, system=memory.set_destinations(snapshot.system, servers))


def _leave_out(snapshot: Snapshot, excluded: Sequence[tuple[Resource, Problem]]) -> Snapshot:
    left = {id(resource) for resource, _ in excluded}
    resources = [resource for resource in snapshot.resources if id(resource) not in left]
    return replace(snapshot, resources=resources, excluded=(*snapshot.excluded, *excluded))


def _find_shared(snapshot: Snapshot) -> Mapping[int, Shared]:
    """Return what Servers share with older ones, also with those that were left out."""
    return find_shared(only(Server, snapshot.inputs.resources))


def _find_replica_rates(
    system: core.System, servers: Container[str], accelerators: Container[str]
) -> ReplicaRates:
    """Return what a replica of Servers under load carries; none where it misses the targets.

    That a Server keeps its accelerator does not count. Roles count on all accelerators, as they
    need each other.
    """
    asked = [replace(s, keep_accelerator=False) for s in system.servers if s.name in servers]
    models = {server.model for server in asked}
    profiles = [p for p in system.profiles if p.model in models and p.accelerator in accelerators]
    roles = [role for role in system.roles if role.model in models]
    small = replace(system, servers=tuple(asked), profiles=tuple(profiles), roles=tuple(roles))
    return rates(small).replica


def _carry(whole: ServerAllocation, server: str, replica: ReplicaRates) -> float:
    """Return what replicas of a Server carry [requests/min], 0 for those of unknown speed."""
    rates = [
        part.num_replicas * replica.get((server, core.place_of(part.accelerator, role)), 0.0)
        for role, part in whole.parts_by_role
    ]
    return min(rates) if whole.roles else sum(rates)
