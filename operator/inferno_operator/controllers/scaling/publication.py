"""Publish the decisions for Servers, for autoscalers that carry them out."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from inferno_operator.controllers.scaling.boosters import SERVER
from inferno_operator.controllers.scaling.decision import (
    OPTIMIZER,
    explain_recommendation,
    is_recommending,
    read_decision,
)
from inferno_operator.controllers.scaling.reductions import (
    AT_ONCE,
    Guards,
    is_approved,
    list_served,
)
from inferno_operator.controllers.scaling.writers import (
    list_autoscalers,
    scaled_object_of,
    target_of,
)
from inferno_operator.resources import ReplicaReduction, Server, Workload
from inferno_operator.resources.objects import Key, Manifest, Now, Place
from inferno_operator.resources.observation import Observation, of_kind
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import GoneError, Reader
from inferno_optimizer.errors import InfernoError, UnavailableError
from inferno_optimizer.system import Role
from inferno_optimizer.way_down import WayDown, choose_weights

WRITING = "the decision is being written: ask again"


@dataclass(frozen=True, slots=True)
class Published:
    """The decision for a Server."""

    key: Key
    replicas: Mapping[str, int] | None  # by place, the largest part first; None: none stands
    why: str = ""  # no decision stands
    current: Mapping[str, int] = field(default_factory=dict)  # what runs, by place
    workloads: Mapping[str, Workload | None] = field(default_factory=dict)
    """The workload of each place; None for those of a ModelBooster."""
    way_down: WayDown = AT_ONCE  # how fast replicas go that others scale by what is published
    reductions: tuple[ReplicaReduction, ...] = ()  # those that the status remembers

    def limited(self, now: datetime) -> "Published":
        """Return what is published at a time: no fewer replicas than may serve then."""
        if self.replicas is None:
            return self
        before = [self.current, *list_served(self.reductions, self.way_down, now)]
        places = dict.fromkeys(place for served in before for place in served)
        roles = {place: Role(w.role) if w else Role.BOTH for place, w in self.workloads.items()}
        weights = choose_weights(dict.fromkeys(places, Role.BOTH) | roles, {})
        after, numbers = dict(self.current), dict(self.replicas)
        for place in places:
            least, most = numbers.get(place, 0), max(each.get(place, 0) for each in before)
            for n in range(least, max(least, most) + 1):
                numbers[place] = after[place] = n
                if self.way_down.permits(after, before, weights):
                    break
        kept = {place: n for place, n in numbers.items() if n or place in self.replicas}
        return replace(self, replicas=_sort(kept))

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

    def parts(self) -> Iterable[tuple[str, int]]:
        """Return each accelerator that the Server or the decision names, with its replicas."""
        decided = self.decided
        return {**decided, **{p: 0 for p in self.workloads if p not in decided}}.items()

    def on(self, accelerator: str) -> int:
        """Return the decided replicas on an accelerator; 0 if the decision is for others.

        Raises
        ------
        UnavailableError
            No decision stands.
        GoneError
            Neither the Server nor the decision names the accelerator: 0 might be a mistake.
        """
        parts = dict(self.parts())
        if accelerator not in parts:
            accelerators = ", ".join(map(repr, sorted(parts))) or "none"
            raise GoneError(
                f"Server {self.key}: spec.workloads: no item runs on accelerator {accelerator!r};"
                f" known: {accelerators}"
            )
        return parts[accelerator]


def publish(
    observation: Observation[Server],
    before: Published | None,
    recommending: str | None = "",
    way_down: WayDown = AT_ONCE,
) -> Published:
    """Return what to publish of a Server, whose replicas go as `way_down` says.

    None stands where decisions are only recommended, as `explain_recommendation` says.
    A decision and the condition that explains it are two writes. In between, the decision
    `before` stands. None stands if nothing runs on an accelerator of the decision: the replicas on
    the others would be removed, and no others started.
    """
    key, server = observation.reference.key, observation.resource
    if server is None:
        return Published(key, None, observation.problem)
    decision = read_decision(server, recommending)
    replicas, why = decision.replicas, decision.why
    if not decision.is_written:
        replicas, why = (before.replicas, before.why) if before else (None, WRITING)
    booster, current = server.spec.model_booster, server.spec.current_alloc
    workloads: Mapping[str, Workload | None] = {w.place: w for w in server.spec.workloads}
    if booster is not None:
        workloads = {backend.place: None for backend in booster.backends}
    if workloads and replicas and (missing := sorted(replicas.keys() - workloads.keys())):
        names = ", ".join(map(repr, missing))
        replicas, why = None, f"spec.workloads: no item runs on accelerator {names}: add one"
    is_slow = server.spec.actuation == "Publish" and server.names_workloads
    return Published(
        key,
        None if replicas is None else _sort(replicas),
        why,
        current.by_place if current else {},
        workloads,
        way_down if is_slow and not is_approved(server, replicas) else AT_ONCE,
        server.status.reductions,
    )


def _sort(replicas: Mapping[str, int]) -> Mapping[str, int]:
    """Return the replicas with the largest part first."""
    return dict(sorted(replicas.items(), key=lambda item: -item[1]))


MANAGED = "llm-d.ai/managed"
"""The annotation of autoscalers that scale by the wva_* metrics; KEDA copies it to its HPA."""

WorkloadTarget = tuple[str, str, str, str]
"""Namespace, API group, kind and name of a workload."""


def find_variants(autoscalers: Iterable[Manifest]) -> Mapping[WorkloadTarget, str]:
    """Return the name of the annotated autoscaler of each workload.

    That of an HPA that belongs to a ScaledObject is the name of the ScaledObject.
    """
    names = {}
    for autoscaler in autoscalers:
        metadata = autoscaler["metadata"]
        if metadata.get("annotations", {}).get(MANAGED) == "true":
            target = metadata["namespace"], *target_of(autoscaler)
            names[target] = scaled_object_of(autoscaler) or metadata["name"]
    return names


def find_variant(decision: Published, accelerator: str, known: Mapping[WorkloadTarget, str]) -> str:
    """Return the name of the workload on an accelerator: of its autoscaler, or its own.

    Without a workload it is the name of the Server.
    """
    workload = decision.workloads.get(accelerator)
    if workload is None:
        return decision.key.name
    group = workload.api_version.rpartition("/")[0]
    target = decision.key.namespace, group, workload.kind, workload.name
    return known.get(target, workload.name)


TIME_OF_DAY = partial(datetime.now, UTC)

VARIANTS_SECONDS = 60.0
"""Seconds between two lists of autoscalers, which are not watched."""


class Publication:
    """The decisions for all Servers, as the API server has them.

    With `names_variants`, `find_variant` knows the names of autoscalers.
    """

    def __init__(
        self,
        reader: Reader,
        informers: Informers,
        *,
        names_variants: bool = False,
        now: Now = TIME_OF_DAY,
    ) -> None:
        self._reader, self._now = reader, now
        self._namespaces = informers.namespaces
        self._names_variants = names_variants
        self._objects = informers.subscribe([OPTIMIZER, SERVER], self._changed)
        self._published: dict[Key, Published] = {}
        self._variants: Mapping[WorkloadTarget, str] = {}
        self._guards = Guards()

    async def run(self) -> None:
        """Watch Servers and Optimizers until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._objects.run())
            if self._names_variants:
                group.create_task(self._name_variants())

    def unready(self) -> str:
        """Return why decisions are not known; "" if they are."""
        return next((_describe_trouble(error) for error in self._objects.missing.values()), "")

    def decision(self, key: Key) -> Published:
        """Return what is published of a Server.

        Raises
        ------
        UnavailableError
            The Servers of the namespace are not known now.
        GoneError
            There is no such Server.
        """
        for (_, namespace), error in self._objects.missing.items():
            if namespace in ("", key.namespace):
                raise UnavailableError(_describe_trouble(error))
        try:
            return self._published[key].limited(self._now())
        except KeyError:
            raise GoneError(f"Server {key} does not exist") from None

    def decisions(self) -> Iterable[Published]:
        """Return what is published, in the order of the keys; the last state if a watch failed."""
        now = self._now()
        return [self._published[key].limited(now) for key in sorted(self._published)]

    def find_variant(self, decision: Published, accelerator: str) -> str:
        """Return the name by which users of llm-d know the workload on an accelerator."""
        return find_variant(decision, accelerator, self._variants)

    async def _name_variants(self) -> None:
        while True:
            try:
                listings = [
                    await list_autoscalers(self._reader, name) for name in self._namespaces or ("",)
                ]
                self._variants = find_variants(item for items in listings for item in items)
            except UnavailableError:
                pass  # the names stay as they were
            await asyncio.sleep(VARIANTS_SECONDS)

    def _changed(self, difference: ObjectDifference) -> None:
        place = difference.place
        if place.kind == SERVER:
            self._publish(place)
        elif difference.concerns(_read_rules):
            for server in self._objects.places(SERVER, place.key.namespace):
                self._publish(server)

    def _publish(self, place: Place) -> None:
        """Publish a Server; nothing of one that is gone, or is being deleted."""
        before = self._published.pop(place.key, None)
        found = filter(None, [self._objects.observation(place)])
        for server in (each for each in of_kind(found, Server) if each.deleted is None):
            optimizers = tuple(self._objects.manifests(OPTIMIZER, place.key.namespace))
            way_down = self._guards.way_down(place.key.namespace, optimizers)
            self._published[place.key] = publish(
                server, before, explain_recommendation(optimizers), way_down
            )


def _read_rules(optimizer: Manifest | None) -> object:
    """Return what of an Optimizer matters to what is published."""
    return is_recommending(optimizer), (optimizer or {}).get("spec", {}).get("guard")


def _describe_trouble(error: InfernoError | None) -> str:
    return f"decisions are not known: {error or 'their list is awaited'}"
