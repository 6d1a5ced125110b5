"""What names and options of a command line refer to: objects, decisions, answers to Plans."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, TypeVar

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.cli.options import duration_of
from inferno_operator.cli.tables.servers import Overview, ServerView
from inferno_operator.cli.tables.table import MISSES
from inferno_operator.controllers.measurement.load import (
    set_last_good_load,
    set_scheduled_replicas,
)
from inferno_operator.controllers.planning.proposal import (
    UnreadablePlanError,
    compute_plan_digest,
    find_contradiction,
    unpack_decisions,
)
from inferno_operator.controllers.planning.snapshot import Inputs, Snapshot, take_snapshot
from inferno_operator.resources import Model, Optimizer, Plan, Resource, Server
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation, readable, still_running
from inferno_optimizer.errors import InputError, UnavailableError
from inferno_optimizer.explain.changes import parse_change
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.suggestions import alternatives
from inferno_optimizer.wire.what_if import apply_changes

Kind = TypeVar("Kind", bound=Resource)
Named = TypeVar("Named", Server, Model)

REASONS = (MISSES, *map(str, Reason))  # what the column READY may say of a Server


def build_missing_error(kind: type[Resource], key: Key, names: Sequence[str]) -> InputError:
    """Return the error for an object that is not there; `names` are those of its kind that are."""
    if not names:
        return InputError(f"{kind.kind} {key}: namespace {key.namespace!r} has no {kind.kind}")
    return InputError(f"{kind.kind} {key}: there is none{alternatives(key.name, names)}")


def choose_optimizer(
    observations: Iterable[Observation], namespace: str, name: str | None
) -> Optimizer:
    """Return the Optimizer of this name or, without a name, the only one of the namespace.

    Raises InputError if there is no such Optimizer, there are several, or its spec is invalid.
    """
    by_name = {o.reference.key.name: o for o in observations if o.kind is Optimizer}
    if not by_name:
        raise InputError(f"namespace {namespace!r} has no Optimizer: create one")
    names = sorted(by_name)
    if name is None and len(by_name) > 1:
        several = ", ".join(names)
        raise InputError(f"namespace {namespace!r} has several Optimizers: name one of {several}")
    chosen = name or names[0]
    if chosen not in by_name:
        raise build_missing_error(Optimizer, Key(namespace, chosen), names)
    return _require_readable(by_name[chosen], Optimizer)


def choose_server(observations: Iterable[Observation], namespace: str, name: str) -> Server:
    """Return the Server whose object has this name or, if there is none, whose spec has it.

    Raises InputError if there is no such Server, or its spec is invalid.
    """
    return _choose(observations, Server, namespace, name)


def choose_model(observations: Iterable[Observation], namespace: str, name: str) -> Model:
    """Return the Model whose object has this name or, if there is none, whose spec has it.

    Raises InputError if there is no such Model, or its spec is invalid.
    """
    return _choose(observations, Model, namespace, name)


def _choose(
    observations: Iterable[Observation], kind: type[Named], namespace: str, name: str
) -> Named:
    of_kind = [o for o in observations if o.kind is kind]
    for observation in of_kind:
        if observation.reference.key.name == name:
            return _require_readable(observation, kind)
    for observation in of_kind:
        if isinstance(observation.resource, kind) and observation.resource.spec.name == name:
            return observation.resource
    names = sorted(observation.reference.key.name for observation in of_kind)
    raise build_missing_error(kind, Key(namespace, name), names)


def _require_readable(observation: Observation, kind: type[Kind]) -> Kind:
    if not isinstance(observation.resource, kind):
        raise InputError(f"{observation.reference}: {observation.problem}")
    return observation.resource


@dataclass(slots=True)
class ServerFilter:
    """Servers of this class and model, with this reason and these labels; "" takes all.

    Classes, models and reasons are found in any case.
    """

    service_class: str = ""
    model: str = ""
    reason: str = ""
    selector: str = ""
    _labelled: frozenset[str] | None = field(default=None, init=False)
    _is_checked: bool = field(default=False, init=False)

    async def select(self, session: Session, seen: Overview) -> Overview:
        """Return an overview of these Servers, and of all cards.

        While the API server is away, they are those that had the labels before. A name that
        nothing has is refused at first only: the last Server that has it may be deleted
        later.

        Raises InputError as `check` does; UnavailableError if it is not known yet which
        Servers have the labels.
        """
        if not self._is_checked:
            self.check(seen)
            self._is_checked = bool(seen.servers)
        chosen = self.of(seen)
        if not self.selector:
            return chosen
        try:
            self._labelled = await session.selected(Server, self.selector)
        except UnavailableError:
            if self._labelled is None:
                raise
        names = self._labelled
        return chosen.with_servers(view for view in chosen.servers if view.name in names)

    def check(self, seen: Overview) -> None:
        """Refuse what none of the Servers that there are has.

        Raises InputError if no Server has the class or the model, or there is no such
        reason.
        """
        specs = [view.spec for view in seen.servers if view.spec]
        reasons = {*REASONS, *(view.state for view in seen.servers)} - {""}
        for option, asked, known in (
            ("class", self.service_class, {spec.service_class for spec in specs}),
            ("model", self.model, {spec.model for spec in specs}),
            ("reason", self.reason, reasons),
        ):
            names = sorted(known)
            if seen.servers and asked and asked.casefold() not in map(str.casefold, names):
                owner = "there is no" if option == "reason" else "no Server has the"
                near = alternatives(asked, names)
                raise InputError(f"--{option} {asked}: {owner} {option} {asked!r}{near}")

    def of(self, seen: Overview) -> Overview:
        """Return an overview of the Servers of the class and model, with the reason."""
        return seen.with_servers(view for view in seen.servers if self._is_wanted(view))

    def _is_wanted(self, view: ServerView) -> bool:
        service_class, model = (view.spec.service_class, view.spec.model) if view.spec else ("", "")
        found = (service_class, model, view.state)
        asked = (self.service_class, self.model, self.reason)
        pairs = zip(asked, found, strict=True)
        return all(ask.casefold() == have.casefold() for ask, have in pairs if ask)


PlanAnswer = Literal["Approved", "Rejected"]  # what a person may say to a Plan
LONGEST_NAME = 256  # longest name that an answer may have [characters]


def sort_plans(observations: Iterable[Observation]) -> list[Plan]:
    """Return the Plans that can be read, the newest first."""
    plans = [o.resource for o in observations if isinstance(o.resource, Plan)]
    return sorted(plans, key=lambda plan: plan.order, reverse=True)


def list_waiting(plans: Iterable[Plan], optimizer: str) -> list[Plan]:
    """Return the Plans of an Optimizer that wait, also one that the operator only recorded yet."""
    phases = (None, "Proposed")
    return [p for p in plans if p.spec.optimizer == optimizer and p.status.phase in phases]


def choose_plan(plans: Iterable[Plan], namespace: str, name: str) -> Plan:
    """Return the Plan of this name.

    Raises InputError if there is none.
    """
    by_name = {plan.metadata.name: plan for plan in plans}
    if name not in by_name:
        raise build_missing_error(Plan, Key(namespace, name), sorted(by_name))
    return by_name[name]


def check_open(plan: Plan) -> None:
    """Refuse to answer a Plan that is being carried out, or is finished.

    Raises InputError if nothing can be decided about it any more.
    """
    if plan.is_finished or plan.status.phase == "Acting":
        name, phase = plan.metadata.name, plan.status.phase
        raise InputError(f"Plan {name} is already {phase}; there is nothing to approve or reject")


def check_text(plan: Plan) -> None:
    """Refuse a Plan whose decisions are not what it shows, computed from the decisions again.

    Only the operator knows whether it signed the Plan; it says so on the Plan if it did not.

    Raises InputError if the Plan is not what it shows, or its decisions cannot be read.
    """
    about = f"Plan {Key(plan.metadata.namespace, plan.metadata.name)}"
    if not plan.spec.signature:
        raise InputError(f"{about}: has no signature: the operator does not carry it out")
    if compute_plan_digest(plan.spec) != plan.spec.digest:
        raise InputError(
            f"{about}: spec.digest is not the digest of what it says: do not approve it"
        )
    try:
        wrong = find_contradiction(plan.spec, unpack_decisions(plan.spec.decisions))
    except UnreadablePlanError as error:
        raise InputError(f"{about}: {error}") from error
    if wrong:
        raise InputError(f"{about}: {wrong}: do not approve it")


def parse_deadline(text: str, now: datetime) -> datetime:
    """Return the time that a text means: a time with its zone, or a duration from now.

    Raises InputError if it is neither.
    """
    if (duration := duration_of(text)) is not None:
        return now + duration
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InputError(f"--until {text}: give a time such as 2026-07-01T18:00:00Z, or 90m, 2h")
    return time.astimezone(UTC)


def build_approval(
    plan: Plan, state: PlanAnswer, by: str, until: datetime | None
) -> dict[str, str | None]:
    """Return the answer to a Plan, as its status has it; None removes a field."""
    return {
        "state": state,
        "digest": plan.spec.digest,
        "by": by[:LONGEST_NAME] or None,
        "until": until.strftime("%Y-%m-%dT%H:%M:%SZ") if until else None,
    }


async def answer_plan(
    session: Session,
    name: str,
    state: PlanAnswer,
    until: datetime | None = None,
    digest: str = "",
) -> Plan:
    """Approve or reject a Plan; return the Plan as it was before the answer.

    `session`, `name`, `state`: the namespace, the Plan, and what is said to it; `until`: when
    an approval ends; None means never; `digest`: that of the Plan that the person saw; "" if
    the Plan is read for the first time. Raises InputError if there is no such Plan, it needs no
    answer, it is not the one that the person saw, or its decisions are not what it shows;
    RejectedError if the user has no right to answer.
    """
    plan = choose_plan(sort_plans(await session.plans()), session.namespace, name)
    check_open(plan)
    if digest and digest != plan.spec.digest:
        raise InputError(f"Plan {name}: it is another one than was shown: look at it again")
    if state == "Approved":
        check_text(plan)
    await session.answer(name, build_approval(plan, state, await session.user(), until))
    return plan


@dataclass(frozen=True, slots=True)
class DryRun:
    """An Optimizer, its system, and the decisions for this system.

    `idle` lists the changes that have no effect, one line each.
    """

    optimizer: Optimizer
    snapshot: Snapshot
    solution: Solution
    idle: tuple[str, ...]


def decide(
    observations: Sequence[Observation],
    namespace: str,
    optimizer: str | None,
    changes: Iterable[str] = (),
    time_limit: float = 30.0,
) -> DryRun:
    """Solve the system of an Optimizer.

    `observations`: all objects of the namespace; `namespace`, `optimizer`: the Optimizer whose
    parameters to use; without a name, the only one of the namespace; `changes`: changes to the
    system, in the syntax of `parse_change`; `time_limit`: time limit of the exact solver [s].
    Raises InputError if the Optimizer is ambiguous or does not exist, or a change is invalid.
    """
    chosen, time = choose_optimizer(observations, namespace, optimizer), datetime.now(UTC)
    known = readable(observations)
    resources = [
        set_last_good_load(set_scheduled_replicas(r, time)) if isinstance(r, Server) else r
        for r in known
    ]
    running = [*resources, *still_running(observations)]
    snapshot = take_snapshot(Inputs(running, chosen, time_limit, stored=known, now=time))
    changed, idle = apply_changes(snapshot.system, map(parse_change, changes))
    return DryRun(chosen, replace(snapshot, system=changed), optimize(changed), idle)
