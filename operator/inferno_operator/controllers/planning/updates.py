"""From a solution to the updates of all objects; pure.

A person and an autoscaler act on the accelerator, the replicas, the batch size and the reason:
these are written at once. The other numbers follow the measured load, which never stands still:
they are written when they differ by more than a share, and not twice within a minute.
"""

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Literal

from inferno_operator.controllers.planning.conversions import (
    build_desired,
    count_by_place,
)
from inferno_operator.controllers.planning.snapshot import KINDS, Snapshot
from inferno_operator.resources import (
    DESIRED_ALLOC,
    ApprovedDecision,
    Capacity,
    Placement,
    Resource,
    ServedReplicas,
    Server,
    ServerAllocation,
    ServerStatus,
    Status,
)
from inferno_operator.resources.allocation import ORIGIN_FIELDS, placement_of
from inferno_operator.resources.caveats import caveats
from inferno_operator.resources.conditions import (
    ALLOCATED,
    NOT_REQUESTED,
    READY,
    WARNINGS,
    Verdict,
    merge_conditions,
)
from inferno_operator.resources.objects import Event, Manifest, Reference
from inferno_operator.resources.observation import Observation, is_of, still_running
from inferno_operator.runtime.ports import UnknownFieldError
from inferno_optimizer import system as core
from inferno_optimizer.caveats import implausible_loads, implausible_numbers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.validation import Problem

SHARE = 0.05
"""Largest relative difference of a number that is not written."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def is_same_placement(before: Manifest, after: Manifest) -> bool:
    """Whether two desired allocations have the same accelerators, replicas and batch sizes."""
    return placement_of(before) == placement_of(after)


def is_close(before: Manifest, after: Manifest) -> bool:
    """Whether each number of an allocation is there before, and differs by at most `SHARE`."""
    return all((name in before) == (name in after) for name in ORIGIN_FIELDS) and all(
        name in before and _is_close_value(before[name], value) for name, value in after.items()
    )


def has_other_words(before: str, after: str) -> bool:
    """Whether two messages differ in more than their numbers."""
    return _NUMBER.sub("#", before) != _NUMBER.sub("#", after)


def is_close_message(before: str, after: str) -> bool:
    """Whether two messages say the same, with numbers that differ by at most `SHARE`."""
    numbers = [map(float, _NUMBER.findall(message)) for message in (before, after)]
    return not has_other_words(before, after) and all(map(_is_close_number, *numbers))


def _is_close_value(before: Any, after: Any) -> bool:  # noqa: ANN401 - JSON of any shape
    if isinstance(after, Mapping):
        return isinstance(before, Mapping) and is_close(before, after)
    if isinstance(after, list):
        in_order = (sorted(parts, key=itemgetter("accelerator")) for parts in (before, after))
        return len(before) == len(after) and all(map(is_close, *in_order))
    if isinstance(after, str):
        return bool(before == after)
    return _is_close_number(before, after)


def _is_close_number(before: float, after: float) -> bool:
    return abs(after - before) <= SHARE * max(abs(before), abs(after))


VALID = Verdict(READY, holds=True, reason="Valid")


@dataclass(frozen=True, slots=True)
class Update:
    """The desired status of one object, and the change of its spec.

    `spec` has the operator's fields of the spec if they must change, and `moves` says whether
    accelerators, replicas or batch sizes do; `extra_status` has the status fields that only some
    kinds have.
    """

    reference: Reference
    generation: int
    status: Status
    verdicts: tuple[Verdict, ...]
    active: bool
    spec: Manifest | None
    extra_status: Mapping[str, Any]
    moves: bool = False

    @classmethod
    def of(
        cls,
        observation: Observation,
        verdicts: tuple[Verdict, ...],
        *,
        active: bool,
        spec: Manifest | None = None,
        extra_status: Mapping[str, Any] = MappingProxyType({}),
    ) -> "Update":
        """The update of an observed object."""
        return cls(
            observation.reference,
            observation.generation,
            observation.status,
            verdicts,
            active,
            spec,
            {**_keep_status_fields(observation, spec), **extra_status},
            spec is not None
            and not is_same_placement(_find_desired(observation), spec[DESIRED_ALLOC]),
        )

    @property
    def ready(self) -> Verdict:
        """The verdict Ready."""
        return self.verdicts[0]

    @property
    def main(self) -> Verdict:
        """The reported verdict: Allocated of a Server, Optimized of an Optimizer, else Ready."""
        return self.verdicts[-1]

    def status_after(self, written: Manifest | None, now: datetime) -> Manifest | None:
        """The status, after the write of the spec if there was one; None if it is there."""
        generation = self.generation
        if written is not None and written["metadata"]["generation"] == generation + 1:
            generation += 1  # nobody else has changed it
        return self.status_at(generation, now)

    def status_at(self, generation: int, now: datetime) -> Manifest | None:
        """The status for a generation of the object; None if the object already has it."""
        conditions = merge_conditions(self.status, self.verdicts, generation, now)
        common = Status(active=self.active, observed_generation=generation, conditions=conditions)
        written = {**common.to_json(), **self.extra_status}
        current = self.status.to_json()
        ours = {WARNINGS, *(verdict.type for verdict in self.verdicts)}
        kept = [c for c in current.get("conditions", []) if c["type"] in ours]
        return None if {**current, "conditions": kept} == {**current, **written} else written

    def events(self) -> Iterator[Event]:
        """The events to emit: for new placements and reasons, new problems, and what is awaited."""
        verdict = self.main
        news = self.moves or _is_news(self.status, verdict)
        waits = verdict.reason == NOT_REQUESTED and self.active
        if news and (verdict.type == ALLOCATED or verdict.holds is False or waits):
            is_fine = verdict.holds or waits
            severity: Literal["Normal", "Warning"] = "Normal" if is_fine else "Warning"
            yield Event(self.reference, severity, verdict.reason, verdict.message)

    def otherwise(self, _: UnknownFieldError, /) -> None:
        """Return nothing: the Optimizer says what is wrong."""


def _is_news(status: Status, verdict: Verdict) -> bool:
    """Whether a verdict has another reason, or, if it is not about a decision, other words."""
    before = status.condition(verdict.type)
    if before is None or (before.status, before.reason) != (verdict.status, verdict.reason):
        return True
    return verdict.type != ALLOCATED and has_other_words(before.message, verdict.message)


def plan_updates(
    observations: Iterable[Observation],
    snapshot: Snapshot,
    solution: Solution,
    recent: Container[str] = (),
    moved: Mapping[str, datetime] = MappingProxyType({}),
) -> list[Update]:
    """The updates of all observed objects after an optimization.

    `recent` has the uids of the Servers whose numbers were written a moment ago: see `noise`.
    `moved` has the time of the last move of each Server to another accelerator, by uid.
    """
    results = _Results(snapshot, solution, moved)
    return [
        drop_small_changes(results.build_update(o), o, is_recent=o.reference.uid in recent)
        for o in observations
    ]


def drop_small_changes(update: Update, observation: Observation, *, is_recent: bool) -> Update:
    """The update without numbers that differ too little, or that follow others within a moment."""
    if update.moves:
        return update
    verdicts = (
        _keep_message(update.status, verdict, is_recent=is_recent) for verdict in update.verdicts
    )
    update = replace(update, verdicts=tuple(verdicts))
    if update.spec is None:
        return update
    close = is_close(_find_desired(observation), update.spec[DESIRED_ALLOC])
    return replace(update, spec=None) if close or is_recent else update


def _keep_message(status: Status, verdict: Verdict, *, is_recent: bool) -> Verdict:
    """The verdict with the message that the object has, if only its numbers are others."""
    before = status.condition(verdict.type)
    if before is None or (before.status, before.reason) != (verdict.status, verdict.reason):
        return verdict
    if has_other_words(before.message, verdict.message):
        return verdict
    stays = is_recent or is_close_message(before.message, verdict.message)
    return replace(verdict, message=before.message) if stays else verdict


def _keep_status_fields(observation: Observation, spec: Manifest | None) -> Manifest:
    """What a status keeps, whoever writes it: of a Server, when it moved and where it ran last.

    A field that an apply leaves out would be removed, such as the approval of another decision.
    """
    status, before = observation.status, _find_desired(observation).get("accelerator")
    if not isinstance(status, ServerStatus):
        return {}
    sleeps = spec is not None and not spec[DESIRED_ALLOC]["accelerator"]
    last = (before if sleeps else "") or status.last_accelerator
    desired = _find_desired(observation) if spec is None else spec[DESIRED_ALLOC]
    fields: Mapping[str, object] = {
        "moved": status.moved,
        "last_accelerator": last,
        "approved": status.approved if _is_approved(status, desired) else None,
    }
    return ServerStatus.model_validate({n: v for n, v in fields.items() if v}).to_json()


def _is_approved(status: ServerStatus, desired: Manifest) -> bool:
    if status.approved is None or not desired:
        return False
    return status.approved.is_for(ServerAllocation.model_validate(desired).by_place)


def mark_approved(update: Update, plan: str, placed: Iterable[Placement]) -> Update:
    """The update of a Server with the decision of a Plan that a person approved."""
    approved = ApprovedDecision(
        plan=plan,
        replicas=tuple(
            ServedReplicas(accelerator=place, replicas=n)
            for place, n in count_by_place(placed).items()
        ),
    )
    status = ServerStatus(approved=approved).to_json()
    return replace(update, extra_status={**update.extra_status, **status})


def _find_desired(observation: Observation) -> Manifest:
    server = observation.resource if is_of(observation, Server) else None
    desired = server.spec.desired_alloc if server else None
    return desired.to_json() if desired else {}


def list_troubles(observations: Sequence[Observation], snapshot: Snapshot) -> list[str]:
    """The problems of the observed objects, one line each."""
    unreadable = [f"{o.reference}: {o.problem}" for o in observations if o.resource is None]
    remains = set(map(id, still_running(observations)))
    excluded = [
        f"{resource.kind} {resource.metadata.name}: {problem.field}: {problem.message}"
        for resource, problem in snapshot.excluded
        if id(resource) not in remains
    ]
    return [*unreadable, *excluded, *map(str, snapshot.problems)]


class _Results:
    """The decisions and problems of an optimization, by object."""

    def __init__(
        self, snapshot: Snapshot, solution: Solution, move_times: Mapping[str, datetime]
    ) -> None:
        self._move_times = move_times
        self._decisions = {decision.server: decision for decision in solution.decisions}
        self._excluded = {id(resource): problem for resource, problem in snapshot.excluded}
        self._problems: dict[tuple[str, str], list[Problem]] = defaultdict(list)
        for problem in snapshot.problems:
            self._problems[problem.kind, problem.name].append(problem)
        self._implausible = {
            (problem.kind, problem.name): _describe(problem)
            for problem in (
                *implausible_numbers(snapshot.system),
                *implausible_loads(
                    Catalogue(snapshot.system), _find_hardly_needed(snapshot, solution)
                ),
            )
        }

    def build_update(self, observation: Observation) -> Update:
        """The update of one object."""
        if is_of(observation, Server):
            moved = self._move_times.get(observation.reference.uid)
            return build_server_update(observation, self._find_decision(observation), moved)
        verdict = self._judge(observation)
        warnings = [
            *_list_caveats(observation.resource),
            *self._list_implausible(observation.resource),
        ]
        verdicts = (*_build_warnings(warnings), verdict)
        return Update.of(observation, verdicts, active=verdict.holds is True)

    def _list_implausible(self, resource: Resource | None) -> Iterator[str]:
        for name in _list_names(resource) if resource else ():
            if name in self._implausible:
                yield self._implausible[name]

    def _find_decision(self, observation: Observation[Server]) -> Decision:
        name, server = observation.reference.key.name, observation.resource
        if server is None:
            return Decision(name, Reason.INVALID_SPEC, observation.problem)
        problem = self._excluded.get(id(server))
        if problem is not None:
            return build_exclusion(name, problem)
        decision = self._decisions[server.spec.name]
        implausible = tuple(self._list_implausible(server))
        return (
            replace(decision, warnings=(*decision.warnings, *implausible))
            if implausible
            else decision
        )

    def _judge(self, observation: Observation) -> Verdict:
        resource = observation.resource
        if resource is None:
            return Verdict(
                READY, holds=False, reason=Reason.INVALID_SPEC, message=observation.problem
            )
        problem = self._excluded.get(id(resource))
        if problem is not None:
            return Verdict(READY, holds=False, reason=problem.reason, message=problem.message)
        problems = [p for name in _list_names(resource) for p in self._problems[name]]
        if not problems:
            return VALID
        message = "; ".join(
            f"{f'{problem.part}: ' if problem.part else ''}{problem.field}: {problem.message}"
            for problem in problems
        )
        return Verdict(READY, holds=False, reason=problems[0].reason, message=message)


def _list_names(resource: Resource) -> Iterator[tuple[str, str]]:
    """Kind and name of a resource in problems; a Capacity has a name for each of its types."""
    if isinstance(resource, Capacity):
        yield from (("capacity", count.type) for count in resource.spec.count)
    else:
        yield KINDS.get(resource.kind, ""), getattr(resource.spec, "name", "")


def build_exclusion(server: str, problem: Problem) -> Decision:
    """The decision on a Server that is no part of the system."""
    return Decision(server, Reason.INVALID_SPEC, f"{problem.field}: {problem.message}")


def build_server_update(
    observation: Observation[Server], decision: Decision, moved: datetime | None = None
) -> Update:
    """The update of a Server after a decision; `moved` is when it got another accelerator."""
    allocated = Verdict(
        ALLOCATED,
        holds=decision.allocation is not None,
        reason=decision.reason,
        message=decision.message,
    )
    ready = Verdict(
        READY,
        holds=decision.reason is Reason.ALLOCATED,
        reason=decision.reason,
        message=decision.message,
    )
    warnings = [*decision.warnings, *_list_caveats(observation.resource)]
    verdicts = (ready, *_build_warnings(warnings), allocated)
    server, spec = observation.resource, None
    if server is not None and decision.reason.decided:  # without a decision, the last one stands
        spec = find_spec_change(server, build_desired(decision.allocation))
    status = ServerStatus(moved=moved).to_json() if moved else {}
    return Update.of(
        observation, verdicts, active=decision.reason.decided, spec=spec, extra_status=status
    )


def _list_caveats(resource: Resource | None) -> Sequence[str]:
    return list(map(_describe, caveats(resource)))


def _describe(problem: Problem) -> str:
    part = f" of {problem.part}" if problem.part else ""
    return f"{problem.field}{part}: {problem.message}"


def _find_hardly_needed(snapshot: Snapshot, solution: Solution) -> Iterator[core.Server]:
    """Servers of several replicas that need one: only of these the load is worth a doubt."""
    given = {decision.server: decision.allocation for decision in solution.decisions}
    for server in snapshot.system.servers:
        planned, current = given.get(server.name), server.current
        if planned and current.replicas > 1:
            least = max(server.min_replicas, 1) * current.cost / current.replicas
            if planned.cost <= least or planned.replicas <= max(server.min_replicas, 1):
                yield server


def _build_warnings(warnings: Sequence[str]) -> Iterator[Verdict]:
    if warnings:
        message = "; ".join(warnings)
        yield Verdict(WARNINGS, holds=True, reason="Implausible", message=message)


def find_spec_change(server: Server, desired: Manifest) -> Manifest | None:
    """The change of spec.desiredAlloc, or None if the Server already has it."""
    current = server.spec.desired_alloc
    absent = dict.fromkeys(("roles", *ORIGIN_FIELDS))
    if (
        current is not None
        and {**absent, **desired}.items() <= (absent | current.to_json()).items()
    ):
        return None
    return {DESIRED_ALLOC: desired}


def list_written_uids(updates: Iterable[Update]) -> Iterator[str]:
    """Yield the uids of Servers whose numbers are written."""
    return (update.reference.uid for update in updates if update.spec is not None)
