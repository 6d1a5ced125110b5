"""Says of an object, before it is stored, what its conditions would say is wrong with it; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from inferno_operator.controllers.planning.conversions import convert_names
from inferno_operator.controllers.planning.reconcile import find_rival
from inferno_operator.controllers.planning.snapshot import Snapshot, build_system
from inferno_operator.controllers.planning.status import report_rival
from inferno_operator.controllers.planning.updates import plan_updates
from inferno_operator.resources import (
    SYSTEM_RESOURCES,
    Accelerator,
    Capacity,
    Model,
    Optimizer,
    Resource,
    Server,
)
from inferno_operator.resources.conditions import READY, WARNINGS, Verdict
from inferno_operator.resources.observation import Observation, is_of, of_kind, readable
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
