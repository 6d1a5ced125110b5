"""What an autoscaler may read of a Server: the replicas that were decided; pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from inferno_operator.controllers.actuation.decision import placements
from inferno_operator.controllers.actuation.recommendation import decision_for
from inferno_operator.controllers.actuation.reductions import (
    AT_ONCE,
    is_approved,
    served_in_window,
)
from inferno_operator.resources import ReplicaReduction, Server, Workload
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.ports import GoneError
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.system import Role
from inferno_optimizer.way_down import WayDown, strengths

WRITING = "the decision is being written: ask again"


@dataclass(frozen=True, slots=True)
class Published:
    """The decision for a Server.

    Parameters
    ----------
    key
        The Server.
    replicas
        Decided replicas by accelerator, the largest part first; None if no decision stands.
    why
        Why no decision stands.
    current
        Replicas that run, by accelerator.
    workloads
        The workload on each accelerator; None for accelerators of a ModelBooster.
    way_down
        How fast replicas go that others scale by what is published.
    reductions
        Those that the status of the Server remembers.
    """

    key: Key
    replicas: Mapping[str, int] | None
    why: str = ""
    current: Mapping[str, int] = field(default_factory=dict)
    workloads: Mapping[str, Workload | None] = field(default_factory=dict)
    way_down: WayDown = AT_ONCE
    reductions: tuple[ReplicaReduction, ...] = ()

    @property
    def decided(self) -> Mapping[str, int]:
        """The decided replicas by accelerator.

        Raises
        ------
        UnavailableError
            No decision stands.
        """
        if self.replicas is None:
            raise UnavailableError(f"Server {self.key}: no decision stands: {self.why}")
        return self.replicas

    def at(self, now: datetime) -> "Published":
        """What is published at a time: no fewer replicas than may serve then."""
        if self.replicas is None:
            return self
        before = [self.current, *served_in_window(self.reductions, self.way_down, now)]
        places = dict.fromkeys(place for served in before for place in served)
        roles = {place: Role(w.role) if w else Role.BOTH for place, w in self.workloads.items()}
        weights = strengths({place: roles.get(place, Role.BOTH) for place in places} | roles, {})
        after, numbers = dict(self.current), dict(self.replicas)
        for place in places:
            least, most = numbers.get(place, 0), max(each.get(place, 0) for each in before)
            for n in range(least, max(least, most) + 1):
                numbers[place] = after[place] = n
                if self.way_down.permits(after, before, weights):
                    break
        kept = {place: n for place, n in numbers.items() if n or place in self.replicas}
        return replace(self, replicas=_largest_first(kept))

    def on(self, accelerator: str) -> int:
        """Return the decided replicas on an accelerator; 0 if the decision is for others.

        Raises
        ------
        UnavailableError
            No decision stands.
        GoneError
            Neither the Server nor the decision names the accelerator: 0 might be a mistake.
        """
        decided = self.decided
        if accelerator not in decided and accelerator not in self.workloads:
            accelerators = ", ".join(map(repr, sorted({*decided, *self.workloads}))) or "none"
            raise GoneError(
                f"Server {self.key}: spec.workloads: no item runs on accelerator {accelerator!r};"
                f" known: {accelerators}"
            )
        return decided.get(accelerator, 0)

    def parts(self) -> Iterator[tuple[str, int]]:
        """Yield each accelerator that the Server or the decision names, with its replicas."""
        decided = self.decided
        yield from decided.items()
        for accelerator in self.workloads:
            if accelerator not in decided:
                yield accelerator, 0


def publish(
    observation: Observation,
    before: Published | None,
    recommended: str | None = "",
    way_down: WayDown = AT_ONCE,
) -> Published:
    """Return what to publish of a Server, whose replicas go as `way_down` says.

    None stands where decisions are only recommended; see `recommendation.recommended_by`.
    A decision and the condition that explains it are two writes. In between, the decision
    `before` stands. None stands if nothing runs on an accelerator of the decision: the replicas on
    the others would be removed, and no others started.
    """
    key, server = observation.reference.key, observation.resource
    if not isinstance(server, Server):
        return Published(key, None, observation.problem)
    decision = decision_for(observation, recommended)
    replicas, why = decision.replicas, decision.why
    if not decision.fresh:
        replicas, why = (before.replicas, before.why) if before else (None, WRITING)
    workloads = _workloads(server)
    if workloads and replicas and (missing := sorted(replicas.keys() - workloads.keys())):
        names = ", ".join(map(repr, missing))
        replicas, why = None, f"spec.workloads: no item runs on accelerator {names}: add one"
    is_slow = server.spec.actuation == "Publish" and server.names_workloads
    return Published(
        key,
        _largest_first(replicas),
        why,
        _running(server),
        workloads,
        way_down if is_slow and not is_approved(server, replicas) else AT_ONCE,
        server.status.reductions,
    )


def _largest_first(replicas: Mapping[str, int] | None) -> Mapping[str, int] | None:
    if replicas is None:
        return None
    return dict(sorted(replicas.items(), key=lambda item: -item[1]))


def _running(server: Server) -> Mapping[str, int]:
    current = server.spec.current_alloc
    if current is not None and current.roles is not None:
        return {place: part.num_replicas for place, part in current.roles.by_place.items()}
    return {part.accelerator: part.num_replicas for part in placements(current)}


def _workloads(server: Server) -> Mapping[str, Workload | None]:
    booster = server.spec.model_booster
    if booster is not None:
        return {backend.place: None for backend in booster.backends}
    return {workload.place: workload for workload in server.spec.workloads}
