"""The fields that hold the number of replicas of a backend, in the objects of all releases; pure.

=================  ========================================================================
object             fields of its spec
=================  ========================================================================
ModelBooster       `backends[]` (Kthena v0.1), `backend` (later releases); the number of a role
                   is that of its worker in the one group of such a backend
ModelServing       `replicas`
binding            `scalingConfiguration`, `optimizerConfiguration.params[]` (v0.1),
                   `homogeneousTarget`, `heterogeneousTarget.params[]` (v0.2 to v0.4)
AutoscalingPolicy  `homogeneousTarget`, `heterogeneousTarget.params[]` (v1.0)
=================  ========================================================================

The release of an object shows in the fields that it has.

To release fields, only the entry in `managedFields` is removed. An apply without the fields
would remove their values too: a ModelServing would fall back to one replica, and the API server
rejects a ModelBooster without bounds.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from inferno_operator.resources.dialects import DISAGGREGATED
from inferno_operator.resources.objects import Key, Kind, Manifest, Reference
from inferno_operator.runtime.ports import FieldManager

NOBODY: list[dict[str, Any]] = [{}]
"""The value that clears `managedFields`; the API server ignores an empty list."""


def owns(manifest: Manifest) -> bool:
    """Whether the scaler owns fields outside the status."""
    return any(map(_ours, manifest["metadata"].get("managedFields", ())))


def entries_of_others(manifest: Manifest) -> list[Any]:
    """Return the entries of all other managers, and that of the scaler for the status."""
    entries = manifest["metadata"].get("managedFields", ())
    return [entry for entry in entries if not _ours(entry)] or NOBODY


def owns_more(manifest: Manifest, spec: Manifest) -> bool:
    """Whether the scaler owns fields of the spec whose values an apply of `spec` would remove."""
    own = filter(_ours, manifest["metadata"].get("managedFields", ()))
    return any(_exceeds(entry.get("fieldsV1", {}).get("f:spec", {}), spec) for entry in own)


def _exceeds(fields: Manifest, value: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether a `fieldsV1` set has fields that a value lacks; items of lists have names."""
    own = {key: inner for key, inner in fields.items() if key != "."}
    if not own:
        return False
    if isinstance(value, list):
        parts = {backend_key(item["name"]): item for item in value}
    else:
        parts = {f"f:{name}": part for name, part in value.items()}
    return any(key not in parts or _exceeds(inner, parts[key]) for key, inner in own.items())


def owns_fields(manifest: Manifest, path: Sequence[str], names: Sequence[str]) -> bool:
    """Whether the scaler owns all of some fields.

    `path` leads to them, from the top of the object, in the keys of `managedFields`.
    """
    own = filter(_ours, manifest["metadata"].get("managedFields", ()))
    return any(_has(entry.get("fieldsV1", {}), path, names) for entry in own)


def _has(fields: Manifest, path: Sequence[str], names: Sequence[str]) -> bool:
    for key in path:
        fields = fields.get(key, {})
    return all(name in fields for name in names)


def backend_key(name: str) -> str:
    """Return the key of an item of `spec.backends` in `managedFields`."""
    return f'k:{{"name":"{name}"}}'


def _ours(entry: Manifest) -> bool:
    return entry.get("manager") == FieldManager.ACTUATION and not entry.get("subresource")


ONE_TARGET = ("scalingConfiguration", "homogeneousTarget")
"""Parts of a binding or policy with the bounds of one target."""

SEVERAL_TARGETS = ("optimizerConfiguration", "heterogeneousTarget")
"""Parts with the bounds of several targets, in the list `params`."""

PARAMS = "params"
"""An atomic list: an apply owns all of it."""

BOUNDS = ("minReplicas", "maxReplicas")

NUMBERS = frozenset({"replicas", *BOUNDS})
"""Fields of a part with its number of replicas or its bounds."""

WORKERS = "workers"
"""An atomic list of a backend: the workers of the role `type` have `replicas`, by default 1."""


@dataclass(frozen=True, slots=True)
class Write:
    """An apply of all fields of an object's spec that the scaler owns after it."""

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


@dataclass(frozen=True, slots=True)
class Holder:
    """The part of an object that has the number of replicas of one backend, or its bounds.

    Parameters
    ----------
    kind, manifest
        The object.
    path
        The fields that lead from its spec to the part, or to the list with the part.
    item
        The position in that list; None if there is no list.
    worker
        The position in the workers of the part if the number is that of a role of it.
    """

    kind: Kind
    manifest: Manifest
    path: tuple[str, ...] = ()
    item: int | None = None
    worker: int | None = None

    @property
    def part(self) -> Manifest:
        """The part itself."""
        value = _at(self.manifest["spec"], self.path)
        part: Manifest = value if self.item is None else value[self.item]
        return part

    @property
    def is_number(self) -> bool:
        """Whether there is one number of replicas instead of bounds."""
        return self.worker is not None or self._has_number

    @property
    def _has_number(self) -> bool:
        return "replicas" in self.part or "minReplicas" not in self.part

    @property
    def number(self) -> str:
        """The field of the part with its replicas, or the fewest of them."""
        return "replicas" if self._has_number else BOUNDS[0]

    @property
    def groups(self) -> int:
        """The fewest replicas of the part, of which each has all replicas of all roles."""
        groups: int = self.part.get(self.number, 1)
        return groups

    @property
    def bounds(self) -> Bounds:
        """The present bounds; a number of replicas is both."""
        if self.worker is not None:
            replicas = self.groups * self.part[WORKERS][self.worker].get("replicas", 1)
            return Bounds(replicas, replicas)
        most = self.groups if self._has_number else self.part[BOUNDS[1]]
        return Bounds(self.groups, most)

    @property
    def is_ours(self) -> bool:
        """Whether the scaler has set the numbers last, and no other manager has."""
        path = ["f:spec", *(f"f:{name}" for name in self.path)]
        if self.path[-1:] == (PARAMS,):
            return owns_fields(self.manifest, path[:-1], path[-1:])
        if self.item is not None:
            path.append(backend_key(self.part["name"]))
        names = [f"f:{name}" for name in _fields([(self, self.bounds)])]
        return owns_fields(self.manifest, path, names)

    @property
    def writer(self) -> str:
        """Who else has set the numbers, or the list with them; "" if nobody knows."""
        top = f"f:{(self.path or (self.number,))[0]}"
        entries = self.manifest["metadata"].get("managedFields", ())
        others = (each for each in entries if each.get("manager") != FieldManager.ACTUATION)
        found = [each for each in others if top in each.get("fieldsV1", {}).get("f:spec", {})]
        return f"field manager {found[-1].get('manager', '')!r}" if found else ""

    def fields(self, bounds: Bounds) -> Manifest:
        """Return the numbers of the part that say these bounds; a role needs one group, or none."""
        least, most = bounds.least, bounds.most
        if self.worker is not None:
            least, most = min(least, 1), 1
        return {"replicas": least} if self._has_number else {BOUNDS[0]: least, BOUNDS[1]: most}


def _at(fields: Any, path: Iterable[str]) -> Any:  # noqa: ANN401 - JSON
    for name in path:
        fields = fields[name]
    return fields


def booster_holders(kind: Kind, booster: Manifest) -> dict[str, Holder]:
    """Return the holders of a booster by name of the backend."""
    spec = booster.get("spec", {})
    if "backend" in spec:
        return {spec["backend"]["name"]: Holder(kind, booster, ("backend",))}
    return {
        backend["name"]: Holder(kind, booster, ("backends",), position)
        for position, backend in enumerate(spec.get("backends", ()))
    }


def target_holders(kind: Kind, scaler: Manifest, target: Kind) -> dict[str, Holder]:
    """Return the holders of a binding or policy by name of the object that it scales.

    Targets of other kinds than `target` and of other namespaces are left out. So are targets that
    scale a role of the object, as the bounds of a role do not determine its number of replicas.
    """
    by_name = {}
    for holder in _parts(kind, scaler):
        scaled = holder.part.get("target", {})
        reference = scaled.get("targetRef", {})
        if _is_beside(scaler, reference, target) and not scaled.get("subTargets"):
            by_name[reference.get("name", "")] = holder
    return by_name


def _is_beside(scaler: Manifest, reference: Manifest, target: Kind) -> bool:
    """Whether a reference names an object of a kind in the scaler's namespace.

    An empty kind or namespace is like one that is left out: the usual kind, the same namespace.
    """
    namespace = Key.of(scaler).namespace
    named = (reference.get("kind") or target.kind, reference.get("namespace") or namespace)
    return named == (target.kind, namespace)


def _parts(kind: Kind, scaler: Manifest) -> Iterator[Holder]:
    """Yield the parts of a binding or policy that have bounds."""
    spec = scaler.get("spec", {})
    yield from (Holder(kind, scaler, (name,)) for name in ONE_TARGET if name in spec)
    for name in SEVERAL_TARGETS:
        for position in range(len(spec.get(name, {}).get(PARAMS, ()))):
            yield Holder(kind, scaler, (name, PARAMS), position)


def writes(
    holders: Mapping[str, Holder], wanted: Mapping[str, Bounds], ignored: Collection[str] = ()
) -> tuple[Write, ...]:
    """Return the writes that set bounds by name, for the objects that have others, or are ignored.

    The servings of names in `ignored` do not follow their holder. A write has the bounds of all
    holders of its object, because an apply gives up the fields that it leaves out.
    """
    changed = [
        holders[name]
        for name, bounds in wanted.items()
        if holders[name].bounds != bounds or name in ignored
    ]
    found = []
    for reference, each in {Reference.of(h.kind, h.manifest): h for h in changed}.items():
        own = [(holders[n], b) for n, b in wanted.items() if holders[n].manifest is each.manifest]
        found.append(Write(reference, _spec(own)))
    return tuple(found)


def _spec(changes: Sequence[tuple[Holder, Bounds]]) -> Manifest:
    """Return the spec with the bounds of all holders of one object."""
    first, _ = changes[0]
    value: Any
    if first.path[-1:] == (PARAMS,):
        given = {holder.item: holder.fields(wanted) for holder, wanted in changes}
        params = _at(first.manifest["spec"], first.path)
        value = [{**param, **given.get(i, {})} for i, param in enumerate(params)]
    elif first.item is not None:
        by_item: dict[int | None, list[tuple[Holder, Bounds]]] = {}
        for change in changes:
            by_item.setdefault(change[0].item, []).append(change)
        value = [{"name": own[0][0].part["name"], **_fields(own)} for own in by_item.values()]
    else:
        value = _fields(changes)
    for name in reversed(first.path):
        value = {name: value}
    return dict(value)


def _fields(changes: Sequence[tuple[Holder, Bounds]]) -> Manifest:
    """Return the fields of one part that say the bounds of its holders.

    Without replicas there is no group, and the number of a role stays as it is.
    """
    fields = dict(item for holder, bounds in changes for item in holder.fields(bounds).items())
    numbers = {h.worker: bounds.least for h, bounds in changes if h.worker is not None}
    if not numbers:
        return fields
    workers = changes[0][0].part[WORKERS]
    written = [
        {**worker, "replicas": numbers[i]} if numbers.get(i) else worker
        for i, worker in enumerate(workers)
    ]
    return {**fields, WORKERS: written}


POLICY = "autoscalingPolicy"
"""The field of a booster, and of its backends before v0.2, with an autoscaling policy."""


class RoleProblem(NamedTuple):
    """Why the number of a role cannot be set: the reason of the condition, and a sentence."""

    reason: str
    message: str


def role_holder(backend: Holder, role: str) -> Holder | None:
    """Return what has the number of a role; None if it cannot be set, see `role_problem`."""
    if role_problem(backend, role) is not None:
        return None
    return replace(backend, worker=_worker(backend, role))


def role_problem(backend: Holder, role: str) -> RoleProblem | None:
    """Return why the number of a role of a backend cannot be set, if it cannot."""
    booster = f"{backend.kind.kind} {Key.of(backend.manifest).name!r}"
    problem = next(_problems(backend, role), None)
    return problem and problem._replace(message=f"{booster}: {problem.message}")


def _problems(backend: Holder, role: str) -> Iterator[RoleProblem]:
    part, path = backend.part, _path(backend)
    if part.get("type") != DISAGGREGATED:
        wrong = f"{path}.type is {part.get('type')}: a backend with roles is {DISAGGREGATED}"
        yield RoleProblem("NoBackend", wrong)
    elif _worker(backend, role) is None:
        yield RoleProblem("NoBackend", f"{path}.workers: none is of the type {role!r}: add one")
    for place, fields in ((path, part), ("spec", backend.manifest["spec"])):
        if POLICY in fields:
            text = f"{place}.{POLICY} scales whole groups, not roles: remove it"
            yield RoleProblem("Conflict", text)
    if backend.groups > 1:
        name = backend.number
        text = f"{path}.{name} is {backend.groups}: set it to 1, as roles are scaled in one group"
        yield RoleProblem("SeveralGroups", text)


def _worker(backend: Holder, role: str) -> int | None:
    """Return the place of the last worker of a role, which is the one that counts."""
    types = [worker.get("type") for worker in backend.part.get(WORKERS, ())]
    return max((i for i, each in enumerate(types) if each == role), default=None)


def _path(backend: Holder) -> str:
    item = "" if backend.item is None else f"[{backend.item}]"
    return ".".join(("spec", *backend.path)) + item
