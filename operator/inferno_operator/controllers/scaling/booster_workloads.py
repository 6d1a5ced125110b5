"""A ModelBooster as workloads: each backend, or role of one, whose number stands elsewhere.

The workload is the serving of a backend: its pods are what runs. `BoosterPart` reads its number
where `target` says, and tells which bounds mean another number; `write_numbers` writes them, and
`release` gives up the fields that no Server refers to any more.

=============  =================================================  ============================
`target`       object with the number                             who passes it on
=============  =================================================  ============================
ModelBooster   the booster; of a role its worker there            the controller of boosters
ModelServing   the serving
Binding        the binding or policy that scales the serving      an autoscaler
=============  =================================================  ============================
"""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from inferno_operator.controllers.scaling.booster_bounds import (
    NUMBERS,
    POLICY,
    WORKERS,
    Bounds,
    Holder,
    Write,
    booster_holders,
    entries_of_others,
    owns,
    owns_more,
    role_holder,
    role_problem,
    target_holders,
    writes,
)
from inferno_operator.controllers.scaling.status import (
    no_backend,
    no_binding,
    no_booster,
    no_serving,
    refusal,
)
from inferno_operator.resources import ModelBoosterRef, Server, Workload
from inferno_operator.resources.conditions import Verdict
from inferno_operator.resources.dialects import DIALECTS, Dialect
from inferno_operator.resources.model_booster import Backend
from inferno_operator.resources.objects import Key, Kind, Manifest, Place, Reference, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.resources.serving_roles import (
    find_role,
    groups_of,
    kind_of_serving,
    serving_role,
)
from inferno_operator.runtime.ports import Cluster, FieldManager, GoneError, Listing, RejectedError
from inferno_optimizer.errors import InfernoError

SERVER = kind_of(Server)

FAILED, ACTIVE = "Failed", "Active"
"""Conditions of boosters."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BoosterObjects:
    """The objects of a reference that exist and are not being deleted, by name.

    `scalers` are all bindings and policies of the namespace, read only for the target Binding.
    """

    boosters: Mapping[str, Manifest]
    servings: Mapping[str, Manifest] = field(default_factory=dict)
    scalers: Mapping[Kind, Sequence[Manifest]] = field(default_factory=dict)


@dataclass(frozen=True)
class BoosterPart:
    """A backend of a ModelBooster, or a role of it, with the object that has its number.

    `available` are its replicas that serve. `serving` is None as long as there is none.
    """

    reference: ModelBoosterRef
    backend: Backend
    booster: Manifest
    whole: Holder
    holder: Holder
    serving: Manifest | None = None
    available: int = 0

    @property
    def name(self) -> str:
        """The name of the serving, with the role of it."""
        return self.reference.part_of(self.backend)

    @property
    def asked(self) -> int:
        """The replicas that the serving asks for."""
        if self.serving is None:
            return 0
        groups = groups_of(self.serving)
        if not self.backend.worker:
            return groups
        role = find_role(self.serving, self.backend.worker)
        return groups * role[1] if role else 0

    @cached_property
    def floor(self) -> int:
        """The fewest replicas that it may have.

        A backend with its own autoscaling policy needs at least one: the ModelBooster's admission
        rejects less, since its autoscaler cannot scale up from zero.
        """
        if self.reference.target == "ModelServing":
            return 0
        of_model = POLICY in self.booster["spec"]
        if "backend" in self.booster["spec"]:  # the policy is that of the single backend
            return int(of_model)
        return int(POLICY in self.whole.part and not of_model)

    @property
    def is_autoscaled(self) -> bool:
        """Whether an autoscaler chooses the number within bounds."""
        if self.reference.target != "ModelBooster":
            return self.reference.target == "Binding"
        return POLICY in self.booster["spec"] or POLICY in self.whole.part

    @cached_property
    def is_ceiling(self) -> bool:
        """Whether an autoscaler may use fewer replicas than were decided."""
        if self.reference.bounds == "Pin":
            return False
        return self.reference.target == "ModelServing" or self.is_autoscaled

    def bounds_for(self, replicas: int) -> Bounds:
        """Return the bounds that mean a number of replicas.

        The schema requires a maximum of at least 1. A single number is both minimum and maximum.
        Below a ceiling the minimum stays, but is at least 1 if replicas are wanted: an autoscaler
        cannot scale up from zero. A number of 0 is no choice of an autoscaler, but that of another
        manager: then what runs stays.
        """
        replicas = least = max(replicas, self.floor)
        if self.is_ceiling:
            runs = self.available if self.holder.is_number else 0
            least = max(self.floor, min(self.holder.bounds.least or max(runs, 1), replicas))
        if self.holder.is_number:
            return Bounds(least, least)
        return Bounds(least, max(replicas, 1))

    def replicas(self, wanted: int | None) -> int:
        """Return the number that it asks for: of a ceiling, the most that may run."""
        bounds = self.holder.bounds
        if self.is_ignored:
            return self.asked
        for number in (wanted, 0):
            if number is not None and bounds == self.bounds_for(number):
                return max(number, self.floor)
        if self.is_ceiling:
            return max(bounds.most, wanted or 0) if self.holder.is_number else bounds.most
        return min(max(self.asked, bounds.least), bounds.most)

    @cached_property
    def is_ignored(self) -> bool:
        """Whether the serving does not follow the number that another manager set in the booster.

        Our controller of boosters follows that of the scaler alone. It says which numbers it has
        seen; the serving of one that does not say so may still follow.
        """
        if self.reference.target != "ModelBooster" or self.holder.is_ours or self.serving is None:
            return False
        if not is_reported(self.booster):
            return False
        bounds = self.holder.bounds
        if self.is_autoscaled:
            return not bounds.least <= self.asked <= bounds.most
        return bounds.least != self.asked

    @property
    def is_observed(self) -> bool:
        """Whether the statuses are about the newest numbers, as far as they say so."""
        objects = [self.serving or {}]
        if self.reference.target == "ModelBooster":
            objects.append(self.booster)
        return all(
            "observedGeneration" not in each.get("status", {}) or is_reported(each)
            for each in objects
        )

    def excuse(self, wanted: int) -> str:
        """Return why more replicas may run than were decided, to be said after what runs."""
        if self.floor > wanted:
            return f"; the autoscalingPolicy of {self.name!r} needs {self.floor}"
        is_least = self.reference.target == "Binding" and self.holder.bounds == self.bounds_for(0)
        if is_least and self.available:
            return f"; the autoscaler of {self.name!r} may keep 1: there is no smaller maximum"
        return ""

    @property
    def failure(self) -> str:
        """What the controller of the booster says of its failure; "" if it does not fail now.

        Kthena's own controller never clears the condition, and its conditions have no
        observedGeneration: there, a booster that is active does not fail any more.
        """
        conditions = {c["type"]: c for c in self.booster.get("status", {}).get("conditions") or ()}
        failed, active = conditions.get(FAILED, {}), conditions.get(ACTIVE, {})
        is_old = "observedGeneration" not in failed and active.get("status") == "True"
        if failed.get("status") != "True" or is_old:
            return ""
        name = self.booster["metadata"]["name"]
        return f"the controller of {name!r} reports: {failed.get('message', '')}"

    @property
    def revision(self) -> str:
        """What changes with each edit of the booster.

        It is its generation; where the scaler writes the booster itself, its spec without the
        numbers that it writes.
        """
        metadata, spec = self.booster["metadata"], self.booster["spec"]
        if self.reference.target != "ModelBooster":
            return f"{metadata['uid']} {metadata['generation']}"
        parts = [spec["backend"]] if "backend" in spec else spec.get("backends", ())
        backends = [
            {**_dropped(part), WORKERS: [_dropped(worker) for worker in part.get(WORKERS, ())]}
            for part in parts
        ]
        return json.dumps({**spec, "backend": None, "backends": backends}, sort_keys=True)


def _dropped(part: Manifest) -> Manifest:
    return {name: value for name, value in part.items() if name not in NUMBERS}


def is_reported(manifest: Manifest) -> bool:
    """Whether the status says that it is about the newest spec."""
    generation: int = manifest["metadata"].get("generation", 0)
    observed: int = manifest.get("status", {}).get("observedGeneration", -1)
    return generation <= observed


def dialect_of(reference: ModelBoosterRef) -> Dialect:
    """Return the dialect of a reference."""
    return DIALECTS[reference.dialect]


def kinds_of(reference: ModelBoosterRef) -> tuple[Kind, ...]:
    """Return the kinds of the objects of a reference that are read."""
    kinds = dialect_of(reference)
    return kinds.booster, kinds.serving, *(kinds.scalers if reference.target == "Binding" else ())


def workload_of(reference: ModelBoosterRef, backend: Backend) -> Workload:
    """Return the serving of a backend, or a role of it, as a workload."""
    serving = dialect_of(reference).serving
    return Workload(
        accelerator=backend.accelerator,
        role=backend.role,
        api_version=serving.api_version,
        kind=serving.kind,
        name=reference.serving_of(backend),
    )


def read_part(
    reference: ModelBoosterRef, backend: Backend, there: BoosterObjects
) -> BoosterPart | Verdict:
    """Return a backend with what has its number, or why that cannot be set."""
    name, kinds = reference.serving_of(backend), dialect_of(reference)
    booster = there.boosters.get(reference.booster_of(backend))
    if booster is None:
        return no_booster(kinds.booster, reference.booster_of(backend))
    whole = booster_holders(kinds.booster, booster).get(backend.name)
    if whole is None:
        return no_backend(reference.booster_of(backend), backend.name)
    if backend.worker and (problem := role_problem(whole, backend.worker)):
        return refusal(*problem)
    serving = there.servings.get(name)
    if reference.target == "ModelBooster":
        holder = role_holder(whole, backend.worker) if backend.worker else whole
    elif reference.target == "ModelServing":
        holder = Holder(kinds.serving, serving) if serving else None
    else:
        holder = _scaler_holders(kinds, there).get(name)
    if holder is not None:
        available = (serving or {}).get("status", {}).get("availableReplicas", 0)
        return BoosterPart(reference, backend, booster, whole, holder, serving, available)
    if reference.target == "Binding":
        return no_binding(kinds.scalers, backend.name)
    return no_serving(kinds.serving, name)


def _scaler_holders(kinds: Dialect, there: BoosterObjects) -> Mapping[str, Holder]:
    found: dict[str, Holder] = {}
    for kind in kinds.scalers:
        for scaler in there.scalers.get(kind, ()):
            found |= target_holders(kind, scaler, kinds.serving)
    return found


def count_selector(reference: ModelBoosterRef, backend: Backend) -> tuple[str, str]:
    """Return the selector of the pods of a backend or role, and the label of their replica."""
    kinds, terms = dialect_of(reference), {"name": reference.serving_of(backend)}
    if backend.worker:
        terms["role"] = backend.worker
    selector = ",".join(f"{kinds.pod_label(key)}={text}" for key, text in terms.items())
    return selector, kinds.pod_label("role-id" if backend.worker else "group-name")


def writes_for(parts: Mapping[str, BoosterPart], numbers: Mapping[str, int]) -> tuple[Write, ...]:
    """Return the writes that have the parts of a Server ask for these numbers, by place.

    A serving that does not follow its object has that written although it does not differ.
    """
    by_name = {part.name: (part, numbers[place]) for place, part in parts.items()}
    return writes(
        {name: part.holder for name, (part, _) in by_name.items()},
        {name: part.bounds_for(number) for name, (part, number) in by_name.items()},
        [name for name, (part, _) in by_name.items() if part.is_ignored],
    )


async def apply_bounds(write: Write, manifest: Manifest, cluster: Cluster) -> Manifest:
    """Write the bounds of an object, and give up those of parts that nobody names any more.

    It fails if the object has changed since it was read: atomic lists are written as they were.
    """
    reference = write.reference
    if owns_more(manifest, write.spec):
        await release_fields(reference.kind, manifest, cluster)
    body = reference.manifest_at_version(spec=write.spec)
    return await cluster.apply(reference.kind, body, FieldManager.ACTUATION)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The objects that keep their fields.

    `scaled` are servings whose bindings or policies keep theirs, and `namespaces` those with a
    Server that cannot be read: its reference is not known.
    """

    places: set[Place] = field(default_factory=set)
    scaled: set[Place] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)

    def has(self, kind: Kind, manifest: Manifest) -> bool:
        """Whether an object keeps its fields."""
        key = Key.of(manifest)
        if key.namespace in self.namespaces:
            return True
        dialect = next((d for d in DIALECTS.values() if kind in d.scalers), None)
        if dialect is None:
            return Place(kind, key) in self.places
        names = target_holders(kind, manifest, dialect.serving)
        places = {Place(dialect.serving, Key(key.namespace, name)) for name in names}
        return not self.scaled.isdisjoint(places)


async def release(namespace: str, cluster: Cluster) -> bool:
    """Release the fields of all objects that no Server refers to any more; their values stay.

    The objects are those of a namespace, or of all namespaces (""). Returns whether all of them
    are released.
    """
    servers = await cluster.list(SERVER, namespace)
    kept = _Kept()
    for manifest in servers.manifests:
        _keep(observe(Server, manifest), kept)
    failures = await _release_unreferenced(servers, kept, cluster)
    for dialect in DIALECTS.values():
        for kind in (dialect.booster, dialect.serving, *dialect.scalers):
            try:
                listing = await cluster.list(kind, namespace)
            except (GoneError, RejectedError) as error:
                logger.debug("%s: nothing to release: %s", kind, error)
                continue
            failures += await _release_unreferenced(listing, kept, cluster)
    return not failures


def _keep(observation: Observation[Server], kept: _Kept) -> None:
    """Note what a Server refers to."""
    server, namespace = observation.resource, observation.reference.key.namespace
    if server is None:
        kept.namespaces.add(namespace)
        return
    for workload in server.spec.workloads:
        kept.places.add(observation.reference.place)
        kind = kind_of_serving(workload)
        if kind is not None and serving_role(workload):  # it has the number of the role
            kept.places.add(Place(kind, Key(namespace, workload.name)))
    reference = server.spec.model_booster
    if reference is None or observation.deleted is not None:
        return
    kept.places.add(observation.reference.place)
    kinds = dialect_of(reference)
    servings = {
        Place(kinds.serving, Key(namespace, reference.serving_of(each)))
        for each in reference.backends
    }
    if reference.target == "Binding":
        kept.scaled.update(servings)
    elif reference.target == "ModelServing":
        kept.places.update(servings)
    else:
        boosters = (Place(kinds.booster, Key(namespace, n)) for n in reference.boosters)
        kept.places.update(boosters)


async def _release_unreferenced(listing: Listing, kept: _Kept, cluster: Cluster) -> int:
    """Release objects that are not kept; returns how many could not be released."""
    failures = 0
    for manifest in listing.manifests:
        if owns(manifest) and not kept.has(listing.kind, manifest):
            try:
                with suppress(GoneError):  # deleted in the meantime
                    await release_fields(listing.kind, manifest, cluster)
            except InfernoError as error:
                failures += 1
                logger.warning("%s: not released: %s", Reference.of(listing.kind, manifest), error)
    return failures


async def release_fields(kind: Kind, manifest: Manifest, cluster: Cluster) -> None:
    """Release the fields of an object's spec; `StaleError` if it changed since it was read."""
    reference = Reference.of(kind, manifest)
    await cluster.set_managers(reference, entries_of_others(manifest))
    logger.info("%s: released", reference)
