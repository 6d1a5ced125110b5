"""Where the numbers of replicas stand: in the ModelBooster, ModelServings, or bindings; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferno_operator.resources import ModelBoosterRef
from inferno_operator.resources.dialects import DIALECTS, Dialect
from inferno_operator.resources.objects import Key, Kind, Manifest, Place, Reference


@dataclass(frozen=True, slots=True)
class Write:
    """All fields of an object's spec that actuation owns from now on, with their values."""

    reference: Reference
    spec: Manifest


@dataclass(frozen=True, slots=True)
class Bounds:
    """Fewest and most replicas of a backend."""

    least: int
    most: int

    def covers(self, other: "Bounds") -> bool:
        """Whether neither number would have to grow."""
        return self.least >= other.least and self.most >= other.most

    def joined(self, other: "Bounds") -> "Bounds":
        """The larger of both numbers."""
        return Bounds(max(self.least, other.least), max(self.most, other.most))


@dataclass(frozen=True, slots=True)
class World:
    """What is there of a reference; servings and bindings by name."""

    booster: Manifest
    servings: Mapping[str, Manifest] = field(default_factory=dict)
    bindings: Mapping[str, Manifest] = field(default_factory=dict)

    @property
    def single(self) -> bool:
        """Whether the booster has the one `backend` of later releases of Kthena."""
        return "backend" in self.booster.get("spec", {})

    def backends(self) -> Mapping[str, Manifest]:
        """Backends of the booster, by name."""
        spec = self.booster.get("spec", {})
        items = [spec["backend"]] if self.single else spec.get("backends", ())
        return {item["name"]: item for item in items}


def dialect(reference: ModelBoosterRef) -> Dialect:
    """The dialect of a reference."""
    return DIALECTS[reference.dialect]


def serving_name(reference: ModelBoosterRef, backend: str) -> str:
    """Name of what runs a backend, and of its own binding."""
    return f"{reference.name}-{backend}"


def booster_place(reference: ModelBoosterRef, namespace: str) -> Place:
    """Where the booster is."""
    return Place(dialect(reference).booster, Key(namespace, reference.name))


def serving_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Where the servings of the backends are."""
    return _places(dialect(reference).serving, reference, namespace)


def binding_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Where bindings may be: of the whole model, or of each backend."""
    kind = dialect(reference).binding
    whole = Place(kind, Key(namespace, reference.name))
    return (whole, *_places(kind, reference, namespace))


def _places(kind: Kind, reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    names = (serving_name(reference, backend.name) for backend in reference.backends)
    return tuple(Place(kind, Key(namespace, name)) for name in names)


def read_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Everything that has to do with a reference."""
    bindings = binding_places(reference, namespace) if reference.target == "Binding" else ()
    places = booster_place(reference, namespace), *serving_places(reference, namespace)
    return places + bindings


def written_places(reference: ModelBoosterRef, namespace: str) -> tuple[Place, ...]:
    """Everything that may have fields of ours."""
    if reference.target == "ModelBooster":
        return (booster_place(reference, namespace),)
    if reference.target == "ModelServing":
        return serving_places(reference, namespace)
    return binding_places(reference, namespace)


def floor(reference: ModelBoosterRef, world: World, backend: str) -> int:
    """Fewest replicas that a backend may have.

    A backend with a policy of its own is refused below one replica, for its autoscaler would
    never come back from none.
    """
    if reference.target == "ModelServing":
        return 0
    of_model = "autoscalingPolicy" in world.booster["spec"]
    if world.single:  # the policy beside its backend is its own
        return int(of_model)
    return int("autoscalingPolicy" in world.backends()[backend] and not of_model)


def is_ceiling(reference: ModelBoosterRef, world: World, backend: str) -> bool:
    """Whether an autoscaler works below the plan; in a booster it needs a policy to do so."""
    if reference.bounds == "Pin":
        return False
    holders = world.booster["spec"], world.backends().get(backend, {})
    return reference.target != "ModelBooster" or any("autoscalingPolicy" in h for h in holders)


def bounds_for(
    reference: ModelBoosterRef, world: World, backend: str, now: Bounds, replicas: int
) -> Bounds:
    """What a backend is to have for so many replicas.

    The schema wants a maximum of 1 at least; one number is both bounds. Below a ceiling the
    minimum stays as it is, but a backend that is wanted has one replica: no autoscaler comes
    back from none.
    """
    lowest = floor(reference, world, backend)
    replicas = least = max(replicas, lowest)
    if is_ceiling(reference, world, backend):
        least = max(lowest, min(max(now.least, 1), replicas))
    if _is_number(_holder(reference, world, backend) or {}):
        return Bounds(least, least)
    return Bounds(least, max(replicas, 1))


def _is_number(holder: Manifest) -> bool:
    """Whether there is one number of replicas instead of bounds."""
    return "replicas" in holder or "minReplicas" not in holder


def read_bounds(reference: ModelBoosterRef, world: World) -> Mapping[str, Bounds]:
    """The bounds as they are, by name of backend; those that stand nowhere are left out."""
    found = {
        backend.name: _bounds(reference, world, backend.name) for backend in reference.backends
    }
    return {name: bounds for name, bounds in found.items() if bounds is not None}


def _bounds(reference: ModelBoosterRef, world: World, backend: str) -> Bounds | None:
    holder = _holder(reference, world, backend)
    if holder is None:
        return None
    if _is_number(holder):
        replicas = holder.get("replicas", 1)
        return Bounds(replicas, replicas)
    return Bounds(holder["minReplicas"], holder["maxReplicas"])


def _holder(reference: ModelBoosterRef, world: World, backend: str) -> Manifest | None:
    """The part of an object in which the numbers of a backend stand."""
    name = serving_name(reference, backend)
    if backend not in world.backends():
        return None
    if reference.target == "ModelBooster":
        return world.backends()[backend]
    if reference.target == "ModelServing":
        serving = world.servings.get(name)
        return None if serving is None else serving["spec"]
    for binding in world.bindings.values():
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
    reference: ModelBoosterRef, world: World, wanted: Mapping[str, Bounds]
) -> tuple[Write, ...]:
    """What to write for bounds by name of backend; only objects that differ are there."""
    now = read_bounds(reference, world)
    changed = {name for name, bounds in wanted.items() if now[name] != bounds}
    if not changed:
        return ()
    if reference.target == "ModelBooster":
        return (_booster_write(reference, world, wanted),)
    by_target = {serving_name(reference, name): wanted[name] for name in wanted}
    targets = {serving_name(reference, name) for name in changed}
    if reference.target == "ModelServing":
        kind = dialect(reference).serving
        return tuple(
            _write(kind, world.servings[name], {"replicas": by_target[name].least})
            for name in sorted(targets)
        )
    return tuple(_binding_writes(dialect(reference).binding, world, by_target, targets))


def _booster_write(reference: ModelBoosterRef, world: World, wanted: Mapping[str, Bounds]) -> Write:
    kind = dialect(reference).booster
    if world.single:
        ((name, bounds),) = wanted.items()
        is_one = _is_number(world.backends()[name])
        fields = {"replicas": bounds.least} if is_one else _fields(bounds)
        return _write(kind, world.booster, {"backend": fields})
    backends = [{"name": name, **_fields(bounds)} for name, bounds in wanted.items()]
    return _write(kind, world.booster, {"backends": backends})


def _binding_writes(
    kind: Kind, world: World, wanted: Mapping[str, Bounds], changed: Iterable[str]
) -> Iterator[Write]:
    for binding in world.bindings.values():
        if not {_target(c) for c in _configurations(binding)} & set(changed):
            continue
        spec = binding["spec"]
        if "scalingConfiguration" in spec:
            fields = _fields(wanted[_target(spec["scalingConfiguration"])])
            yield _write(kind, binding, {"scalingConfiguration": fields})
        else:  # a list without keys has one owner: all of it, or nothing
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
