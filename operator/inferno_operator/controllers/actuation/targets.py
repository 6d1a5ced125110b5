"""The objects of a reference, and the bounds that its backends get; pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from inferno_operator.controllers.actuation.booster_bounds import (
    NUMBERS,
    POLICY,
    WORKERS,
    Bounds,
    Holder,
    Write,
    booster_holders,
    role_holder,
    target_holders,
    writes,
)
from inferno_operator.resources import ModelBoosterRef
from inferno_operator.resources.dialects import DIALECTS, Dialect
from inferno_operator.resources.model_booster import Backend
from inferno_operator.resources.objects import Key, Kind, Manifest, Place
from inferno_operator.resources.serving_roles import find_role, groups_of

FAILED, ACTIVE = "Failed", "Active"
"""Conditions of boosters."""


@dataclass(frozen=True, slots=True)
class ScaledObjects:
    """The existing objects of a reference; boosters and servings by name, scalers by kind.

    Scalers are all bindings and AutoscalingPolicies of the namespace; they are read only for
    the target Binding. `ready` has the ready replicas of roles by `ModelBoosterRef.part_of`.
    """

    boosters: Mapping[str, Manifest]
    servings: Mapping[str, Manifest] = field(default_factory=dict)
    scalers: Mapping[Kind, Sequence[Manifest]] = field(default_factory=dict)
    ready: Mapping[str, int] = field(default_factory=dict)

    def spec(self, reference: ModelBoosterRef, backend: Backend) -> Manifest:
        """Return the spec of the booster of a backend; empty if there is none."""
        booster = self.boosters.get(reference.booster_of(backend), {})
        spec: Manifest = booster.get("spec", {})
        return spec

    def backend(self, reference: ModelBoosterRef, backend: Backend) -> Manifest | None:
        """Return a backend as its booster describes it, if it does."""
        holder = self.holder(reference, backend)
        return None if holder is None else holder.part

    def holder(self, reference: ModelBoosterRef, backend: Backend) -> Holder | None:
        """Return what has the numbers of a backend as a whole in its booster, if there is one."""
        booster = self.boosters.get(reference.booster_of(backend), {})
        return booster_holders(dialect(reference).booster, booster).get(backend.name)


def dialect(reference: ModelBoosterRef) -> Dialect:
    """Return the dialect of a reference."""
    return DIALECTS[reference.dialect]


def failure(booster: Manifest) -> str | None:
    """Return what the booster's controller says of its failure; None if it does not fail now.

    Kthena's own controller never clears the condition, and its conditions have no
    observedGeneration: there, a booster that is active does not fail any more.
    """
    conditions = {c["type"]: c for c in booster.get("status", {}).get("conditions") or ()}
    failed, active = conditions.get(FAILED, {}), conditions.get(ACTIVE, {})
    if failed.get("status") != "True":
        return None
    is_old = "observedGeneration" not in failed and active.get("status") == "True"
    return None if is_old else failed.get("message", "")


def revision(reference: ModelBoosterRef, workload: ScaledObjects) -> str:
    """Return what changes with each edit of the boosters.

    It is their generation; where actuation writes the boosters themselves, their spec without the
    numbers that it writes.
    """
    boosters = sorted(workload.boosters.items())
    if reference.target == "ModelBooster":
        return json.dumps([_without_numbers(m["spec"]) for _, m in boosters], sort_keys=True)
    return json.dumps([(m["metadata"]["uid"], m["metadata"]["generation"]) for _, m in boosters])


def _without_numbers(spec: Manifest) -> Manifest:
    parts = [spec["backend"]] if "backend" in spec else spec.get("backends", ())
    backends = [
        {**_dropped(part), WORKERS: [_dropped(worker) for worker in part.get(WORKERS, ())]}
        for part in parts
    ]
    return {**spec, "backend": None, "backends": backends}


def _dropped(part: Manifest) -> Manifest:
    return {name: value for name, value in part.items() if name not in NUMBERS}


def booster_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Return the places of the boosters."""
    kind = dialect(reference).booster
    return tuple(Place(kind, Key(namespace, name)) for name in reference.boosters)


def serving_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Return the places of the servings of the backends."""
    kind = dialect(reference).serving
    names = dict.fromkeys(map(reference.serving_of, reference.backends))
    return tuple(Place(kind, Key(namespace, name)) for name in names)


def replica_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Return, for each backend, the place of its serving or of a role of it."""
    kind = dialect(reference).serving
    return tuple(
        Place(kind, Key(namespace, reference.serving_of(backend)), backend.worker)
        for backend in reference.backends
    )


def read_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Return the places of the objects that a plan for the reference reads by name."""
    return booster_places(reference, namespace) + serving_places(reference, namespace)


def written_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Return the places of the objects that actuation may own fields of, if they are named.

    With the target Binding they are not: what counts is which servings they scale.
    """
    if reference.target == "Binding":
        return ()
    if reference.target == "ModelBooster":
        return booster_places(reference, namespace)
    return serving_places(reference, namespace)


def scaled_places(kind: Kind, scaler: Manifest) -> frozenset[Place]:
    """Return the places of the servings that a binding or policy scales."""
    (served,) = {d.serving for d in DIALECTS.values() if kind in d.scalers}
    namespace = Key.of(scaler).namespace
    names = target_holders(kind, scaler, served)
    return frozenset(Place(served, Key(namespace, name)) for name in names)


def holders(reference: ModelBoosterRef, workload: ScaledObjects) -> dict[str, Holder]:
    """Return what has the replicas of the backends, by `ModelBoosterRef.part_of`.

    Backends that their booster does not have, and those without a holder, are left out.
    """
    existing = [b for b in reference.backends if workload.backend(reference, b) is not None]
    by_name = dict(_holders(reference, workload))
    names = map(reference.part_of, existing)
    return {name: by_name[name] for name in names if name in by_name}


def _holders(reference: ModelBoosterRef, workload: ScaledObjects) -> Iterator[tuple[str, Holder]]:
    """Yield the holders of all objects of the target, by name of the serving, or its role."""
    kinds = dialect(reference)
    if reference.target == "ModelBooster":
        for backend in reference.backends:
            whole = workload.holder(reference, backend)
            holder = role_holder(whole, backend.worker) if whole and backend.worker else whole
            if holder is not None:
                yield reference.part_of(backend), holder
    elif reference.target == "ModelServing":
        for name, serving in workload.servings.items():
            yield name, Holder(kinds.serving, serving)
    else:
        for kind in kinds.scalers:
            for scaler in workload.scalers.get(kind, ()):
                yield from target_holders(kind, scaler, kinds.serving).items()


def available(reference: ModelBoosterRef, workload: ScaledObjects, backend: Backend) -> int:
    """Return the available replicas of a backend, also those that are about to end."""
    if backend.worker:
        return workload.ready.get(reference.part_of(backend), 0)
    status = workload.servings.get(reference.serving_of(backend), {}).get("status", {})
    replicas: int = status.get("availableReplicas", 0)
    return replicas


def asked(serving: Manifest, backend: Backend) -> int:
    """Return the replicas that the serving of a backend asks for."""
    groups = groups_of(serving)
    if not backend.worker:
        return groups
    role = find_role(serving, backend.worker)
    return groups * role[1] if role else 0


def floor(reference: ModelBoosterRef, workload: ScaledObjects, backend: Backend) -> int:
    """Return the minimum of replicas that a backend may have.

    A backend with its own autoscaling policy needs at least one replica: the ModelBooster's
    admission rejects less, since its autoscaler cannot scale up from zero.
    """
    if reference.target == "ModelServing":
        return 0
    spec = workload.spec(reference, backend)
    of_model = POLICY in spec
    if "backend" in spec:  # the policy is that of the single backend
        return int(of_model)
    return int(POLICY in (workload.backend(reference, backend) or {}) and not of_model)


def is_autoscaled(reference: ModelBoosterRef, workload: ScaledObjects, backend: Backend) -> bool:
    """Whether an autoscaler chooses the replicas of a backend, within the bounds."""
    if reference.target != "ModelBooster":
        return reference.target == "Binding"
    parts = workload.spec(reference, backend), workload.backend(reference, backend) or {}
    return any(POLICY in part for part in parts)


def is_ceiling(reference: ModelBoosterRef, workload: ScaledObjects, backend: Backend) -> bool:
    """Whether an autoscaler may use fewer replicas than the plan, which is its maximum."""
    if reference.bounds == "Pin":
        return False
    return reference.target == "ModelServing" or is_autoscaled(reference, workload, backend)


def bounds_for(
    reference: ModelBoosterRef,
    workload: ScaledObjects,
    backend: Backend,
    holder: Holder,
    replicas: int,
) -> Bounds:
    """Return the bounds of a backend for a number of replicas.

    The schema requires a maximum of at least 1. A single number is both minimum and maximum.
    If the plan is a ceiling, the minimum stays, but is at least 1 if replicas are wanted: an
    autoscaler cannot scale up from zero. A number of 0 is no choice of an autoscaler, but that of
    another manager: then what runs stays.
    """
    lowest = floor(reference, workload, backend)
    replicas = least = max(replicas, lowest)
    if is_ceiling(reference, workload, backend):
        runs = available(reference, workload, backend) if holder.is_number else 0
        least = max(lowest, min(holder.bounds.least or max(runs, 1), replicas))
    if holder.is_number:
        return Bounds(least, least)
    return Bounds(least, max(replicas, 1))


def compose(
    reference: ModelBoosterRef,
    workload: ScaledObjects,
    wanted: Mapping[str, Bounds],
    ignored: Mapping[str, Bounds] = MappingProxyType({}),
) -> tuple[Write, ...]:
    """Return the writes that set bounds by name of the serving, for objects that differ.

    Those of names in `ignored` are written although they do not: their servings do not follow
    the numbers of the object, and ask for the bounds given there.
    """
    return writes(holders(reference, workload), wanted, ignored)
