"""A ModelBooster as workloads: each backend, or role of one, whose replicas stand elsewhere.

The workload is the serving of a backend: its pods are what runs. `find_backend` reads the replicas
where `target` says, `plan_writes` and `BoundsWrite.apply` write other ones, and
`release_unreferenced` gives up the fields that no Server refers to any more.

=============  =================================================  ============================
`target`       object with the replicas                           who passes them on
=============  =================================================  ============================
ModelBooster   the booster; of a role its worker there            the controller of boosters
ModelServing   the serving
Binding        the binding or policy that scales the serving      an autoscaler
=============  =================================================  ============================

The release of an object shows in the fields of its spec that hold them:

=================  ========================================================================
ModelBooster       `backends[]` (Kthena v0.1), `backend` (later releases); the replicas of a role
                   are those of its worker in the one group of such a backend
ModelServing       `replicas`
binding            `scalingConfiguration`, `optimizerConfiguration.params[]` (v0.1),
                   `homogeneousTarget`, `heterogeneousTarget.params[]` (v0.2 to v0.4)
AutoscalingPolicy  `homogeneousTarget`, `heterogeneousTarget.params[]` (v1.0)
=================  ========================================================================

To release fields, only the entry in `managedFields` is removed. An apply without the fields
would remove their values too: a ModelServing would fall back to one replica, and the API server
rejects a ModelBooster without bounds.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from inferno_operator.controllers.scaling.status import build_refusal
from inferno_operator.resources import ModelBoosterRef, Server, Workload
from inferno_operator.resources.conditions import NOT_FOUND, Verdict
from inferno_operator.resources.dialects import DIALECTS, DISAGGREGATED, Dialect
from inferno_operator.resources.model_booster import Backend
from inferno_operator.resources.objects import Key, Kind, Manifest, Place, Reference, kind_of
from inferno_operator.resources.observation import observe
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

NOBODY: list[dict[str, Any]] = [{}]
"""The value that clears `managedFields`; the API server ignores an empty list."""

ONE_TARGET = ("scalingConfiguration", "homogeneousTarget")
"""Fields of a binding or policy with the bounds of one target."""

SEVERAL_TARGETS = ("optimizerConfiguration", "heterogeneousTarget")
"""Fields with the bounds of several targets, in the list `params`."""

PARAMS = "params"
"""An atomic list: an apply owns all of it."""

BOUNDS = ("minReplicas", "maxReplicas")

WORKERS = "workers"
"""An atomic list of a backend: the workers of the role `type` have `replicas`, by default 1."""

POLICY = "autoscalingPolicy"
"""The field of a booster, and of its backends before v0.2, with an autoscaling policy."""

logger = logging.getLogger(__name__)


def has_own_fields(manifest: Manifest) -> bool:
    """Whether the scaler owns fields outside the status."""
    return bool(_list_own_entries(manifest))


def _list_own_entries(manifest: Manifest) -> list[Manifest]:
    """Return what `managedFields` says of the scaler, but for the status."""
    entries = manifest["metadata"].get("managedFields", ())
    ours = (each for each in entries if each.get("manager") == FieldManager.ACTUATION)
    return [each for each in ours if not each.get("subresource")]


def list_entries_of_others(manifest: Manifest) -> list[Any]:
    """Return the entries of all other managers, and that of the scaler for the status."""
    own = _list_own_entries(manifest)
    entries = manifest["metadata"].get("managedFields", ())
    return [entry for entry in entries if entry not in own] or NOBODY


def has_more_fields(manifest: Manifest, spec: Manifest) -> bool:
    """Whether the scaler owns fields of the spec whose values an apply of `spec` would remove."""

    def exceeds(fields: Manifest, value: Any) -> bool:  # noqa: ANN401 - JSON
        own = {key: inner for key, inner in fields.items() if key != "."}
        if not own:
            return False
        if isinstance(value, list):  # its items have names
            parts = {backend_key(item["name"]): item for item in value}
        else:
            parts = {f"f:{name}": part for name, part in value.items()}
        return any(key not in parts or exceeds(inner, parts[key]) for key, inner in own.items())

    entries = _list_own_entries(manifest)
    return any(exceeds(entry.get("fieldsV1", {}).get("f:spec", {}), spec) for entry in entries)


def backend_key(name: str) -> str:
    """Return the key of an item of `spec.backends` in `managedFields`."""
    return f'k:{{"name":"{name}"}}'


@dataclass(frozen=True, slots=True)
class Bounds:
    """Minimum and maximum of the replicas of a backend."""

    least: int
    most: int

    def covers(self, other: "Bounds") -> bool:
        """Whether both are at least those of `other`."""
        return self.least >= other.least and self.most >= other.most


@dataclass(frozen=True, slots=True)
class ReplicaFields:
    """Where in an object the replicas of a backend stand, or their bounds."""

    kind: Kind
    manifest: Manifest
    path: tuple[str, ...] = ()  # from the spec to the mapping with them, or to a list of mappings
    item: int | None = None  # the position in that list
    worker: int | None = None  # the position in the workers, if they are those of a role

    @property
    def mapping(self) -> Manifest:
        """The mapping with the replicas."""
        value: Any = self.manifest["spec"]
        for name in self.path:
            value = value[name]
        mapping: Manifest = value if self.item is None else value[self.item]
        return mapping

    @property
    def has_bounds(self) -> bool:
        """Whether the mapping has bounds in place of replicas."""
        return "replicas" not in self.mapping and "minReplicas" in self.mapping

    @property
    def is_exact(self) -> bool:
        """Whether one field determines the replicas: that of the mapping, or of the role of it."""
        return self.worker is not None or not self.has_bounds

    @property
    def name(self) -> str:
        """The field of the mapping with its replicas, or the fewest of them."""
        return BOUNDS[0] if self.has_bounds else "replicas"

    @property
    def groups(self) -> int:
        """The fewest replicas of the mapping, of which each has all replicas of all roles."""
        groups: int = self.mapping.get(self.name, 1)
        return groups

    @property
    def bounds(self) -> Bounds:
        """The present bounds; of exact replicas both are the same."""
        if self.worker is not None:
            replicas = self.groups * self.mapping[WORKERS][self.worker].get("replicas", 1)
            return Bounds(replicas, replicas)
        return Bounds(self.groups, self.mapping[BOUNDS[1]] if self.has_bounds else self.groups)

    @property
    def is_ours(self) -> bool:
        """Whether the scaler has set the replicas last, and no other manager has."""
        path = ["f:spec", *(f"f:{name}" for name in self.path)]
        names = [f"f:{name}" for name in _build_mapping([(self, self.bounds)])]
        if self.path[-1:] == (PARAMS,):
            names = [path.pop()]
        elif self.item is not None:
            path.append(backend_key(self.mapping["name"]))

        def has_all(fields: Manifest) -> bool:
            for key in path:
                fields = fields.get(key, {})
            return all(name in fields for name in names)

        return any(has_all(entry.get("fieldsV1", {})) for entry in _list_own_entries(self.manifest))

    @property
    def other_writer(self) -> str:
        """Who else has set the replicas, or the list with them; "" if nobody knows."""
        top = f"f:{(self.path or (self.name,))[0]}"
        entries = self.manifest["metadata"].get("managedFields", ())
        others = (each for each in entries if each.get("manager") != FieldManager.ACTUATION)
        found = [each for each in others if top in each.get("fieldsV1", {}).get("f:spec", {})]
        return f"field manager {found[-1].get('manager', '')!r}" if found else ""


def find_backend_fields(kind: Kind, booster: Manifest) -> dict[str, ReplicaFields]:
    """Return where the replicas of a booster stand, by name of the backend."""
    spec = booster.get("spec", {})
    if "backend" in spec:
        return {spec["backend"]["name"]: ReplicaFields(kind, booster, ("backend",))}
    return {
        backend["name"]: ReplicaFields(kind, booster, ("backends",), position)
        for position, backend in enumerate(spec.get("backends", ()))
    }


def find_target_fields(kind: Kind, scaler: Manifest, serving: Kind) -> dict[str, ReplicaFields]:
    """Return where the bounds of a binding or policy stand, by name of the serving that it scales.

    Targets of other kinds than `serving` and of other namespaces are left out. So are targets that
    scale a role of the object, as the bounds of a role do not determine its replicas.
    """
    spec, namespace = scaler.get("spec", {}), Key.of(scaler).namespace
    found = [ReplicaFields(kind, scaler, (name,)) for name in ONE_TARGET if name in spec]
    for name in SEVERAL_TARGETS:
        params = range(len(spec.get(name, {}).get(PARAMS, ())))
        found += [ReplicaFields(kind, scaler, (name, PARAMS), position) for position in params]
    by_name = {}
    for each in found:
        target = each.mapping.get("target", {})
        reference = target.get("targetRef", {})
        # An empty kind or namespace is like one that is left out.
        of_kind = (reference.get("kind") or serving.kind) == serving.kind
        is_beside = (reference.get("namespace") or namespace) == namespace
        if of_kind and is_beside and not target.get("subTargets"):
            by_name[reference.get("name", "")] = each
    return by_name


@dataclass(frozen=True, slots=True)
class BoosterObjects:
    """The objects of a reference that exist and are not being deleted, by name.

    `scalers` are all bindings and policies of the namespace, read only for the target Binding.
    """

    boosters: Mapping[str, Manifest]
    servings: Mapping[str, Manifest] = field(default_factory=dict)
    scalers: Mapping[Kind, Sequence[Manifest]] = field(default_factory=dict)


@dataclass(frozen=True)
class ScaledBackend:
    """A backend of a ModelBooster, or a role of it.

    `in_booster` is where the backend stands in the booster, `fields` where its replicas stand.
    `available` are the replicas that serve; `serving` is None as long as there is none.
    """

    reference: ModelBoosterRef
    backend: Backend
    booster: Manifest
    in_booster: ReplicaFields
    fields: ReplicaFields
    serving: Manifest | None = None
    available: int = 0

    @property
    def name(self) -> str:
        """The name of the serving, with the role of it."""
        return self.reference.part_of(self.backend)

    @property
    def requested(self) -> int:
        """The replicas that the serving asks for."""
        if self.serving is None:
            return 0
        groups = groups_of(self.serving)
        if not self.backend.worker:
            return groups
        role = find_role(self.serving, self.backend.worker)
        return groups * role[1] if role else 0

    @cached_property
    def fewest_replicas(self) -> int:
        """The fewest replicas that it may have.

        A backend with its own autoscaling policy needs at least one: the ModelBooster's admission
        rejects less, since its autoscaler cannot scale up from zero.
        """
        if self.reference.target == "ModelServing":
            return 0
        of_model = POLICY in self.booster["spec"]
        if "backend" in self.booster["spec"]:  # the policy is that of the single backend
            return int(of_model)
        return int(POLICY in self.in_booster.mapping and not of_model)

    @property
    def is_autoscaled(self) -> bool:
        """Whether an autoscaler chooses the replicas within bounds."""
        if self.reference.target != "ModelBooster":
            return self.reference.target == "Binding"
        return POLICY in self.booster["spec"] or POLICY in self.in_booster.mapping

    @cached_property
    def is_ceiling(self) -> bool:
        """Whether an autoscaler may use fewer replicas than were decided."""
        if self.reference.bounds == "Pin":
            return False
        return self.reference.target == "ModelServing" or self.is_autoscaled

    def bounds_for(self, replicas: int) -> Bounds:
        """Return the bounds that mean a number of replicas.

        The schema requires a maximum of at least 1. Exact replicas are both minimum and maximum.
        Below a ceiling the minimum stays, but is at least 1 if replicas are wanted: an autoscaler
        cannot scale up from zero. A minimum of 0 is no choice of an autoscaler, but that of
        another manager: then what runs stays.
        """
        replicas = least = max(replicas, self.fewest_replicas)
        if self.is_ceiling:
            runs = self.available if self.fields.is_exact else 0
            least = max(
                self.fewest_replicas, min(self.fields.bounds.least or max(runs, 1), replicas)
            )
        return Bounds(least, least if self.fields.is_exact else max(replicas, 1))

    def count_replicas(self, wanted: int | None) -> int:
        """Return the replicas that it asks for: of a ceiling, the most that may run."""
        bounds = self.fields.bounds
        if self.is_ignored:
            return self.requested
        for number in (wanted, 0):
            if number is not None and bounds == self.bounds_for(number):
                return max(number, self.fewest_replicas)
        if self.is_ceiling:
            return max(bounds.most, wanted or 0) if self.fields.is_exact else bounds.most
        return min(max(self.requested, bounds.least), bounds.most)

    @cached_property
    def is_ignored(self) -> bool:
        """Whether the serving does not follow what another manager set in the booster.

        Our controller of boosters follows what the scaler sets alone. It says which numbers it has
        seen; the serving of one that does not say so may still follow.
        """
        if self.reference.target != "ModelBooster" or self.fields.is_ours or self.serving is None:
            return False
        if not _is_status_newest(self.booster):
            return False
        bounds = self.fields.bounds
        if self.is_autoscaled:
            return not bounds.least <= self.requested <= bounds.most
        return bounds.least != self.requested

    @property
    def is_observed(self) -> bool:
        """Whether the statuses are about the newest replicas, as far as they say so."""
        objects = [self.serving or {}]
        if self.reference.target == "ModelBooster":
            objects.append(self.booster)
        return all(
            "observedGeneration" not in each.get("status", {}) or _is_status_newest(each)
            for each in objects
        )

    def describe_surplus(self, wanted: int) -> str:
        """Return why more replicas may run than were decided, to be said after what runs."""
        if self.fewest_replicas > wanted:
            return f"; the autoscalingPolicy of {self.name!r} needs {self.fewest_replicas}"
        is_least = self.reference.target == "Binding" and self.fields.bounds == self.bounds_for(0)
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
        replicas that it writes.
        """
        metadata, spec = self.booster["metadata"], self.booster["spec"]
        if self.reference.target != "ModelBooster":
            return f"{metadata['uid']} {metadata['generation']}"

        def drop_replicas(part: Manifest) -> Manifest:
            return {k: value for k, value in part.items() if k not in ("replicas", *BOUNDS)}

        parts = [spec["backend"]] if "backend" in spec else spec.get("backends", ())
        backends = [
            {**drop_replicas(part), WORKERS: list(map(drop_replicas, part.get(WORKERS, ())))}
            for part in parts
        ]
        return json.dumps({**spec, "backend": None, "backends": backends}, sort_keys=True)


def _is_status_newest(manifest: Manifest) -> bool:
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


def find_backend(
    reference: ModelBoosterRef, backend: Backend, objects: BoosterObjects
) -> ScaledBackend | Verdict:
    """Return a backend with its replicas, or why they cannot be set."""
    name, kinds = reference.serving_of(backend), dialect_of(reference)
    booster_name = reference.booster_of(backend)
    booster, serving = objects.boosters.get(booster_name), objects.servings.get(name)
    if booster is None:
        message = f"{kinds.booster.kind} {booster_name!r} does not exist: create it, or correct"
        return build_refusal("NoModelBooster", f"{message} spec.modelBooster")
    in_booster = find_backend_fields(kinds.booster, booster).get(backend.name)
    if in_booster is None:
        message = f"{booster_name!r} has no backend {backend.name!r}: add it there, or correct"
        return build_refusal("NoBackend", f"{message} modelBooster.backends")
    if backend.worker and (problem := next(_list_role_problems(in_booster, backend.worker), None)):
        reason, message = problem
        return build_refusal(reason, f"{kinds.booster.kind} {booster_name!r}: {message}")
    if reference.target == "ModelBooster":
        fields = replace(in_booster, worker=_find_worker(in_booster, backend.worker))
    elif reference.target == "ModelServing":
        if serving is None:
            message = f"{kinds.serving.kind} {name!r} does not exist: check that a controller of"
            return build_refusal(NOT_FOUND, f"{message} ModelBoosters runs, which makes it")
        fields = ReplicaFields(kinds.serving, serving)
    else:
        found: dict[str, ReplicaFields] = {}
        for kind in kinds.scalers:
            for scaler in objects.scalers.get(kind, ()):
                found |= find_target_fields(kind, scaler, kinds.serving)
        if name not in found:
            scalers = " or ".join(kind.kind for kind in kinds.scalers)
            message = f"no {scalers} scales the replicas of backend {backend.name!r}: create one,"
            return build_refusal("NoBinding", f"{message} or choose another modelBooster.target")
        fields = found[name]
    available = (serving or {}).get("status", {}).get("availableReplicas", 0)
    return ScaledBackend(reference, backend, booster, in_booster, fields, serving, available)


def _list_role_problems(backend: ReplicaFields, role: str) -> Iterator[tuple[str, str]]:
    """Yield why the replicas of a role cannot be set: reason of the condition, and what to do."""
    mapping, item = backend.mapping, "" if backend.item is None else f"[{backend.item}]"
    path = ".".join(("spec", *backend.path)) + item
    if mapping.get("type") != DISAGGREGATED:
        wrong = f"{path}.type is {mapping.get('type')}: a backend with roles is {DISAGGREGATED}"
        yield "NoBackend", wrong
    elif _find_worker(backend, role) is None:
        yield "NoBackend", f"{path}.workers: none is of the type {role!r}: add one"
    for place, fields in ((path, mapping), ("spec", backend.manifest["spec"])):
        if POLICY in fields:
            yield "Conflict", f"{place}.{POLICY} scales whole groups, not roles: remove it"
    if backend.groups > 1:
        is_now = f"{path}.{backend.name} is {backend.groups}"
        yield "SeveralGroups", f"{is_now}: set it to 1, as roles are scaled in one group"


def _find_worker(backend: ReplicaFields, role: str) -> int | None:
    """Return the place of the last worker of a role, which is the one that counts."""
    types = [worker.get("type") for worker in backend.mapping.get(WORKERS, ())]
    return max((i for i, each in enumerate(types) if each == role), default=None) if role else None


def pod_selector_of(reference: ModelBoosterRef, backend: Backend) -> tuple[str, str]:
    """Return the selector of the pods of a backend or role, and the label of their replica."""
    kinds, terms = dialect_of(reference), {"name": reference.serving_of(backend)}
    if backend.worker:
        terms["role"] = backend.worker
    selector = ",".join(f"{kinds.pod_label(key)}={text}" for key, text in terms.items())
    return selector, kinds.pod_label("role-id" if backend.worker else "group-name")


@dataclass(frozen=True, slots=True)
class BoundsWrite:
    """An apply of all fields of an object's spec that the scaler owns after it.

    `places` are the accelerators, with the roles, whose replicas it has.
    """

    kind: Kind
    manifest: Manifest
    spec: Manifest
    places: tuple[str, ...]

    async def apply(self, cluster: Cluster) -> Manifest:
        """Write the bounds of the object, and give up those of parts that nobody names any more.

        It fails if the object has changed since it was read: atomic lists are written as they were.
        """
        if has_more_fields(self.manifest, self.spec):
            await release_fields(self.kind, self.manifest, cluster)
        reference = Reference.of(self.kind, self.manifest)
        body = reference.manifest_at_version(spec=self.spec)
        return await cluster.apply(self.kind, body, FieldManager.ACTUATION)


def plan_writes(
    backends: Mapping[str, ScaledBackend], numbers: Mapping[str, int]
) -> tuple[BoundsWrite, ...]:
    """Return the writes that have the backends of a Server ask for these replicas, by place.

    Of an object one write has the bounds of all its backends, because an apply gives up the fields
    that it leaves out. A serving that does not follow its object has that written although it does
    not differ.
    """
    by_object: defaultdict[int, dict[str, ScaledBackend]] = defaultdict(dict)
    for place, each in backends.items():
        by_object[id(each.fields.manifest)][place] = each
    writes = []
    for own in by_object.values():
        changes = [(each.fields, each.bounds_for(numbers[place])) for place, each in own.items()]
        is_ignored = any(each.is_ignored for each in own.values())
        if is_ignored or any(fields.bounds != bounds for fields, bounds in changes):
            first, _ = changes[0]
            spec = _build_spec(changes)
            writes.append(BoundsWrite(first.kind, first.manifest, spec, tuple(own)))
    return tuple(writes)


FieldChange = tuple[ReplicaFields, Bounds]
"""Where replicas stand, and the bounds to write there."""


def _build_spec(changes: Sequence[FieldChange]) -> Manifest:
    """Return the spec with the bounds of all backends of one object."""
    first, _ = changes[0]
    by_item: defaultdict[int | None, list[FieldChange]] = defaultdict(list)
    for change in changes:
        by_item[change[0].item].append(change)
    written = {item: _build_mapping(own) for item, own in by_item.items()}
    value: Any
    if first.path[-1:] == (PARAMS,):
        params: Any = replace(first, item=None).mapping
        value = [{**param, **written.get(i, {})} for i, param in enumerate(params)]
    elif first.item is not None:
        names = {item: own[0][0].mapping["name"] for item, own in by_item.items()}
        value = [{"name": names[item], **fields} for item, fields in written.items()]
    else:
        value = written[None]
    for name in reversed(first.path):
        value = {name: value}
    return dict(value)


def _build_mapping(changes: Sequence[FieldChange]) -> Manifest:
    """Return the fields of one mapping that say the bounds of it, or of its roles.

    A role needs one group, or none. Without replicas there is no group, and the replicas of a role
    stay as they are.
    """
    first, _ = changes[0]
    result: dict[str, Any] = {}
    for each, bounds in changes:
        is_role = each.worker is not None
        least = min(bounds.least, 1) if is_role else bounds.least
        result[each.name] = least
        if each.has_bounds:
            result[BOUNDS[1]] = 1 if is_role else bounds.most
    numbers = {each.worker: bounds.least for each, bounds in changes if each.worker is not None}
    if numbers:
        result[WORKERS] = [
            {**worker, "replicas": numbers[i]} if numbers.get(i) else worker
            for i, worker in enumerate(first.mapping[WORKERS])
        ]
    return result


@dataclass(frozen=True, slots=True)
class _References:
    """What Servers refer to: the objects that keep their fields.

    `scaled` are servings whose bindings or policies keep theirs, and `namespaces` those with a
    Server that cannot be read: its reference is not known.
    """

    places: set[Place] = field(default_factory=set)
    scaled: set[Place] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)

    def add(self, manifest: Manifest) -> None:
        """Add those of a Server."""
        observation = observe(Server, manifest)
        server, place = observation.resource, observation.reference.place
        namespace = place.key.namespace
        if server is None:
            self.namespaces.add(namespace)
            return
        for workload in server.spec.workloads:
            self.places.add(place)
            kind = kind_of_serving(workload)
            if kind is not None and serving_role(workload):  # it has the replicas of the role
                self.places.add(Place(kind, Key(namespace, workload.name)))
        reference = server.spec.model_booster
        if reference is None or observation.deleted is not None:
            return
        self.places.add(place)
        kinds = dialect_of(reference)
        names = {reference.serving_of(each) for each in reference.backends}
        servings = {Place(kinds.serving, Key(namespace, name)) for name in names}
        if reference.target == "Binding":
            self.scaled.update(servings)
        elif reference.target == "ModelServing":
            self.places.update(servings)
        else:
            boosters = (Place(kinds.booster, Key(namespace, n)) for n in reference.boosters)
            self.places.update(boosters)

    def has(self, kind: Kind, manifest: Manifest) -> bool:
        """Whether a Server refers to an object."""
        key = Key.of(manifest)
        if key.namespace in self.namespaces:
            return True
        dialect = next((d for d in DIALECTS.values() if kind in d.scalers), None)
        if dialect is None:
            return Place(kind, key) in self.places
        names = find_target_fields(kind, manifest, dialect.serving)
        places = {Place(dialect.serving, Key(key.namespace, name)) for name in names}
        return not self.scaled.isdisjoint(places)


async def release_unreferenced(namespace: str, cluster: Cluster) -> bool:
    """Release the fields of all objects that no Server refers to any more; their values stay.

    The objects are those of a namespace, or of all namespaces (""). Returns whether all of them
    are released.
    """
    servers, references = await cluster.list(SERVER, namespace), _References()
    for manifest in servers.manifests:
        references.add(manifest)
    is_released = await _release_others(servers, references, cluster)
    for dialect in DIALECTS.values():
        for kind in (dialect.booster, dialect.serving, *dialect.scalers):
            try:
                listing = await cluster.list(kind, namespace)
            except (GoneError, RejectedError) as error:
                logger.debug("%s: nothing to release: %s", kind, error)
                continue
            is_released &= await _release_others(listing, references, cluster)
    return is_released


async def _release_others(listing: Listing, references: _References, cluster: Cluster) -> bool:
    """Release objects that nobody refers to; returns whether all of them are released."""
    is_released = True
    for manifest in listing.manifests:
        if has_own_fields(manifest) and not references.has(listing.kind, manifest):
            try:
                with suppress(GoneError):  # deleted in the meantime
                    await release_fields(listing.kind, manifest, cluster)
            except InfernoError as error:
                is_released = False
                logger.warning("%s: not released: %s", Reference.of(listing.kind, manifest), error)
    return is_released


async def release_fields(kind: Kind, manifest: Manifest, cluster: Cluster) -> None:
    """Release the fields of an object's spec; `StaleError` if it changed since it was read."""
    reference = Reference.of(kind, manifest)
    await cluster.set_managers(reference, list_entries_of_others(manifest))
    logger.info("%s: released", reference)
