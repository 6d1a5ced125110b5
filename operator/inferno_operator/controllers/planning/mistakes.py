"""What is wrong with an object before any plan: as it would be stored, or by its names; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from inferno_operator.controllers.planning.conversions import convert_names
from inferno_operator.controllers.planning.reconcile import find_rival
from inferno_operator.controllers.planning.snapshot import Snapshot, build_system
from inferno_operator.controllers.planning.status import report_rival
from inferno_operator.controllers.planning.updates import (
    Update,
    build_exclusion,
    build_server_update,
    plan_updates,
)
from inferno_operator.resources import (
    SYSTEM_RESOURCES,
    Accelerator,
    Capacity,
    Condition,
    Model,
    Optimizer,
    Resource,
    Server,
)
from inferno_operator.resources.conditions import ALLOCATED, READY, WARNINGS, Verdict
from inferno_operator.resources.observation import Observation, is_of, of_kind, only, readable
from inferno_optimizer import system as core
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Certificate, Decision, Reason, Solution, SolverStatus
from inferno_optimizer.validation import UNKNOWN_TYPE

AWAITED: Mapping[str, type[Resource]] = {
    Reason.UNKNOWN_MODEL: Model,
    Reason.UNKNOWN_ACCELERATOR: Accelerator,
    Reason.NO_PERFORMANCE_DATA: Accelerator,
    Reason.UNKNOWN_CAPACITY: Capacity,
    UNKNOWN_TYPE: Accelerator,
}
"""Reasons that are none yet where the namespace has no object of a kind: it may be applied next."""

SMALL_KINDS = tuple(kind for kind in SYSTEM_RESOURCES if kind is not Server)
"""The kinds with few objects, which all others refer to."""

UNSOLVED = Certificate("", SolverStatus.FEASIBLE, objective=0.0, bound=None, seconds=0.0)


def find_mistakes(observation: Observation, others: Iterable[Observation]) -> tuple[Verdict, ...]:
    """Return what an optimization would say is wrong with an object, whatever it decides.

    `observation` is the object as it would be stored, with a spec that can be read; `others` are
    those of `SMALL_KINDS` in its namespace, perhaps with an older version of it. What comes back is
    a false `Ready`, the condition `Warnings`, or both, with the message that each would have.
    """
    place = observation.reference.place
    others = [o for o in others if o.reference.place != place and o.deleted is None]
    if is_of(observation, Optimizer):
        other = find_rival(observation, of_kind(others, Optimizer))
        return () if other is None else report_rival(observation, other.metadata.name).verdicts[:1]
    resources = _drop_uncounted([*readable([observation, *others])])
    kinds = {type(found) for found in resources}
    awaited = {reason for reason, kind in AWAITED.items() if kind not in kinds}
    snapshot = build_system(resources)
    known = tuple(problem for problem in snapshot.problems if problem.reason not in awaited)
    decisions: tuple[Decision, ...] = ()
    if is_of(observation, Server) and (server := observation.resource):
        snapshot = _drop_missing_measurement(snapshot, server)
        decisions = (_decide_alone(server, snapshot.system, awaited),)
    plan = Solution(decisions, UNSOLVED, ())
    (update,) = plan_updates([observation], replace(snapshot, problems=known), plan)
    wrong = {(READY, False), (WARNINGS, True)}
    return tuple(verdict for verdict in update.verdicts if (verdict.type, verdict.holds) in wrong)


def _drop_uncounted(resources: Sequence[Resource]) -> list[Resource]:
    """Return the resources without any Capacity where one is to be counted, and never was."""
    if not any(isinstance(found, Capacity) and found.is_uncounted for found in resources):
        return list(resources)
    return [found for found in resources if not isinstance(found, Capacity)]


def _drop_missing_measurement(snapshot: Snapshot, server: Server) -> Snapshot:
    """Return the snapshot without the problem that a Server is not measured yet."""
    if server.spec.measure is None:
        return snapshot
    kept = tuple(
        (found, problem)
        for found, problem in snapshot.excluded
        if found is not server or problem.field != "currentAlloc.load"
    )
    return replace(snapshot, excluded=kept)


def _decide_alone(resource: Server, system: core.System, awaited: set[str]) -> Decision:
    """Return why no decision is possible for a Server; an empty decision if one is."""
    server = next(iter(system.servers), convert_names(resource))
    targets = {server.model: core.Target()}
    stand_in = core.ServiceClass(server.service_class, core.LOWEST_PRIORITY, targets)
    classes = system.classes or (stand_in,)  # they may be applied next: look at the rest
    system = replace(system, servers=(server,), classes=classes)
    case = Catalogue(system).case(server)
    if isinstance(case, Decision) and case.reason not in awaited:
        return case
    return Decision(server.name, Reason.ALLOCATED, "")


WRONG_NAMES = frozenset({Reason.UNKNOWN_CLASS, Reason.UNKNOWN_MODEL, Reason.NO_TARGET})
"""Reasons that follow from names alone, whatever the load and the cards are."""

TAKEN = ("name", "modelBooster", "workloads")
"""Fields of a Server that are invalid where an older one has the same."""


def find_wrong_names(observations: Iterable[Observation]) -> Iterator[Update]:
    """Yield the updates of Servers with wrong names, and of those whose names are right again."""
    all_objects = list(observations)
    # Cards that nobody has counted yet would be an error, and names do not depend on them.
    resources = [r for r in readable(all_objects) if not isinstance(r, Capacity)]
    servers = tuple(map(convert_names, only(Server, resources)))
    snapshot = build_system(resources)
    taken = {id(resource): p for resource, p in snapshot.excluded if p.field in TAKEN}
    catalogue = Catalogue(replace(snapshot.system, servers=servers))
    for observation in of_kind(all_objects, Server):
        server, allocated = observation.resource, observation.status.condition(ALLOCATED)
        if server is None:
            continue
        case = catalogue.case(convert_names(server))
        if problem := taken.get(id(server)):
            yield build_server_update(observation, build_exclusion(server.spec.name, problem))
        elif isinstance(case, Decision) and case.reason in WRONG_NAMES:
            yield build_server_update(observation, case)
        elif allocated is not None and _names_were_wrong(allocated):
            message = "references are valid again; waiting for the next optimization"
            ready = Verdict(READY, holds=None, reason="NotOptimized", message=message)
            stays = Verdict(
                ALLOCATED, holds=False, reason=allocated.reason, message=allocated.message
            )
            yield Update.of(observation, (ready, stays), active=observation.status.active)


def _names_were_wrong(allocated: Condition) -> bool:
    field = allocated.message.partition(": ")[0]
    is_taken = allocated.reason == Reason.INVALID_SPEC and field in TAKEN
    return is_taken or allocated.reason in WRONG_NAMES


NO_OPTIMIZER = Verdict(
    READY,
    holds=None,
    reason="NoOptimizer",
    message="no Optimizer in this namespace: the last decision stays in force;"
    " create an Optimizer to resume planning",
)
DUE = replace(
    NO_OPTIMIZER,
    reason="NotOptimized",
    message="there is an Optimizer again; waiting for the next optimization",
)


def find_unplanned(observations: Iterable[Observation], *, has_optimizer: bool) -> Iterator[Update]:
    """Yield updates of decided Servers that nobody plans for, or that somebody plans for again."""
    for observation in observations:
        ready, allocated = map(observation.status.condition, (READY, ALLOCATED))
        is_reported = ready is not None and ready.reason == NO_OPTIMIZER.reason
        if allocated is not None and is_reported is has_optimizer:
            known = map(observation.status.condition, (WARNINGS, ALLOCATED))
            stay = (Verdict.of(condition) for condition in known if condition)
            newest = DUE if has_optimizer else NO_OPTIMIZER
            yield Update.of(observation, (newest, *stay), active=observation.status.active)
