"""Read and write numbers of replicas in a ModelBooster, its ModelServings or bindings; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferno_operator.resources import ModelBoosterRef
from inferno_operator.resources.dialects import DIALECTS, Dialect
from inferno_operator.resources.objects import Key, Kind, Manifest, Place, Reference


@dataclass(frozen=True, slots=True)
class Write:
    """An apply of all fields of an object's spec that actuation owns after it."""

    reference: Reference
    spec: Manifest


@dataclass(frozen=True, slots=True)
class Bounds:
    """Minimum and maximum of the replicas of a backend."""

    least: int
    most: int

    def covers(self, other: "Bounds") -> bool:
        """Whether both numbers are at least those of `other`."""
        return self.least >= other.least and self.most >= other.most

    def joined(self, other: "Bounds") -> "Bounds":
        """Return the larger minimum and the larger maximum."""
        return Bounds(max(self.least, other.least), max(self.most, other.most))


@dataclass(frozen=True, slots=True)
class Workload:
    """The existing objects of a reference; servings and bindings by name."""

    booster: Manifest
    servings: Mapping[str, Manifest] = field(default_factory=dict)
    bindings: Mapping[str, Manifest] = field(default_factory=dict)

    @property
    def single(self) -> bool:
        """Whether the booster has a single `backend`, as in later releases of Kthena."""
        return "backend" in self.booster.get("spec", {})

    def backends(self) -> Mapping[str, Manifest]:
        """Return the backends of the booster by name."""
        spec = self.booster.get("spec", {})
        items = [spec["backend"]] if self.single else spec.get("backends", ())
        return {item["name"]: item for item in items}


def dialect(reference: ModelBoosterRef) -> Dialect:
    """Return the dialect of a reference."""
    return DIALECTS[reference.dialect]


def serving_name(reference: ModelBoosterRef, backend: str) -> str:
    """Return the name of the serving of a backend, which is also that of its binding."""
    return f"{reference.name}-{backend}"


def booster_place(reference: ModelBoosterRef, namespace: str) -> Place:
    """Return the place of the booster."""
    return Place(dialect(reference).booster, Key(namespace, reference.name))


def serving_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Return the places of the servings of the backends."""
    return _places(dialect(reference).serving, reference, namespace)


def binding_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Return the places of possible bindings: of the model, and of each backend."""
    kind = dialect(reference).binding
    whole = Place(kind, Key(namespace, reference.name))
    return (whole, *_places(kind, reference, namespace))


def _places(kind: Kind, reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    names = (serving_name(reference, backend.name) for backend in reference.backends)
    return tuple(Place(kind, Key(namespace, name)) for name in names)


def read_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Return the places of all objects that a plan for the reference reads."""
    bindings = binding_places(reference, namespace) if reference.target == "Binding" else ()
    places = booster_place(reference, namespace), *serving_places(reference, namespace)
    return places + bindings


def written_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Return the places of all objects that actuation may own fields of."""
    if reference.target == "ModelBooster":
        return (booster_place(reference, namespace),)
    if reference.target == "ModelServing":
        return serving_places(reference, namespace)
    return binding_places(reference, namespace)


def floor(reference: ModelBoosterRef, workload: Workload, backend: str) -> int:
    """Return the minimum of replicas that a backend may have.

    A backend with its own autoscaling policy needs at least one replica: the ModelBooster's
    admission rejects less, since its autoscaler cannot scale up from zero.
    """
    if reference.target == "ModelServing":
        return 0
    of_model = "autoscalingPolicy" in workload.booster["spec"]
    if workload.single:  # spec.autoscalingPolicy is that of the single backend
        return int(of_model)
    return int("autoscalingPolicy" in workload.backends()[backend] and not of_model)


def is_ceiling(reference: ModelBoosterRef, workload: Workload, backend: str) -> bool:
    """Whether an autoscaler may use fewer replicas than the plan, which is its maximum."""
    if reference.bounds == "Pin":
        return False
    holders = workload.booster["spec"], workload.backends().get(backend, {})
    return reference.target != "ModelBooster" or any("autoscalingPolicy" in h for h in holders)


def bounds_for(
    reference: ModelBoosterRef, workload: Workload, backend: str, now: Bounds, replicas: int
) -> Bounds:
    """Return the bounds of a backend for a number of replicas.

    The schema requires a maximum of at least 1. A single number is both minimum and maximum.
    If the plan is a ceiling, the minimum stays, but is at least 1 if replicas are wanted: an
    autoscaler cannot scale up from zero.
    """
    lowest = floor(reference, workload, backend)
    replicas = least = max(replicas, lowest)
    if is_ceiling(reference, workload, backend):
        least = max(lowest, min(max(now.least, 1), replicas))
    if _is_number(_holder(reference, workload, backend) or {}):
        return Bounds(least, least)
    return Bounds(least, max(replicas, 1))


def _is_number(holder: Manifest) -> bool:
    """Whether an object has one number of replicas instead of bounds."""
    return "replicas" in holder or "minReplicas" not in holder


def read_bounds(reference: ModelBoosterRef, workload: Workload) -> Mapping[str, Bounds]:
    """Return the current bounds by name of backend; backends without bounds are left out."""
    found = {
        backend.name: _bounds(reference, workload, backend.name) for backend in reference.backends
    }
    return {name: bounds for name, bounds in found.items() if bounds is not None}


def _bounds(reference: ModelBoosterRef, workload: Workload, backend: str) -> Bounds | None:
    holder = _holder(reference, workload, backend)
    if holder is None:
        return None
    if _is_number(holder):
        replicas = holder.get("replicas", 1)
        return Bounds(replicas, replicas)
    return Bounds(holder["minReplicas"], holder["maxReplicas"])


def _holder(reference: ModelBoosterRef, workload: Workload, backend: str) -> Manifest | None:
    """Return the part of an object that has the bounds of a backend, if it exists."""
    name = serving_name(reference, backend)
    if backend not in workload.backends():
        return None
    if reference.target == "ModelBooster":
        return workload.backends()[backend]
    if reference.target == "ModelServing":
        serving = workload.servings.get(name)
        return None if serving is None else serving["spec"]
    for binding in workload.bindings.values():
        for holder in _configurations(binding):
            if _target(holder) == name:
                return holder
    return None


def _configurations(binding: Manifest) -> Iterator[Manifest]:
    spec = binding["spec"]
    if "scalingConfiguration" in spec:
        yield spec["scalingConfiguration"]
    yield from spec.get("optimizerConfiguration", {}).get("params", ())


def _target(configuration: Manifest) -> str:
    name: str = configuration.get("target", {}).get("targetRef", {}).get("name", "")
    return name


def compose(
    reference: ModelBoosterRef, workload: Workload, wanted: Mapping[str, Bounds]
) -> tuple[Write, ...]:
    """Return the writes that set bounds by name of backend, for objects that differ."""
    now = read_bounds(reference, workload)
    changed = {name for name, bounds in wanted.items() if now[name] != bounds}
    if not changed:
        return ()
    if reference.target == "ModelBooster":
        return (_booster_write(reference, workload, wanted),)
    by_target = {serving_name(reference, name): wanted[name] for name in wanted}
    targets = {serving_name(reference, name) for name in changed}
    if reference.target == "ModelServing":
        kind = dialect(reference).serving
        return tuple(
            _write(kind, workload.servings[name], {"replicas": by_target[name].least})
            for name in sorted(targets)
        )
    return tuple(_binding_writes(dialect(reference).binding, workload, by_target, targets))


def _booster_write(
    reference: ModelBoosterRef, workload: Workload, wanted: Mapping[str, Bounds]
) -> Write:
    kind = dialect(reference).booster
    if workload.single:
        ((name, bounds),) = wanted.items()
        is_one = _is_number(workload.backends()[name])
        fields = {"replicas": bounds.least} if is_one else _fields(bounds)
        return _write(kind, workload.booster, {"backend": fields})
    backends = [{"name": name, **_fields(bounds)} for name, bounds in wanted.items()]
    return _write(kind, workload.booster, {"backends": backends})


def _binding_writes(
    kind: Kind, workload: Workload, wanted: Mapping[str, Bounds], changed: Iterable[str]
) -> Iterator[Write]:
    for binding in workload.bindings.values():
        if not {_target(c) for c in _configurations(binding)} & set(changed):
            continue
        spec = binding["spec"]
        if "scalingConfiguration" in spec:
            fields = _fields(wanted[_target(spec["scalingConfiguration"])])
            yield _write(kind, binding, {"scalingConfiguration": fields})
        else:  # the list is atomic: an apply owns all of it
            params = _params(spec["optimizerConfiguration"]["params"], wanted)
            yield _write(kind, binding, {"optimizerConfiguration": {"params": params}})


def _params(
    params: Sequence[Mapping[str, Any]], wanted: Mapping[str, Bounds]
) -> list[dict[str, Any]]:
    return [
        {**param, **(_fields(wanted[_target(param)]) if _target(param) in wanted else {})}
        for param in params
    ]


def _fields(bounds: Bounds) -> dict[str, int]:
    return {"minReplicas": bounds.least, "maxReplicas": bounds.most}


def _write(kind: Kind, manifest: Manifest, spec: Manifest) -> Write:
    return Write(Reference.of(kind, manifest), spec)
