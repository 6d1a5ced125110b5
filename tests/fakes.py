"""The cluster, the optimizer and the store of leases, in memory."""

import asyncio
import pickle
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar, cast

from inferno_operator.resources import API_VERSION, RESOURCES
from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import Event, Key, Kind, Manifest, Reference, kind_of
from inferno_operator.runtime.leader_election import Lease
from inferno_operator.runtime.ports import (
    ConflictError,
    FieldManager,
    GoneError,
    Listing,
    ObjectChange,
    Scale,
    Served,
    StaleError,
    UnknownFieldError,
)
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System

T = TypeVar("T")

DEPLOYMENT = Kind("apps", "Deployment", "deployments", "v1")


class FakeCluster:
    """Objects in a dictionary, with the API server's rules for generations and versions.

    An apply sets the top-level fields of a spec, which its manager owns from then on, and keeps
    the others. An apply of a status sets its fields and conditions, and removes those that only
    its manager has set before.

    Attributes
    ----------
    objects
        The objects, by name of their kind and by key.
    writes
        The writes, in order, as "apply Server s": apply, status, merge, scale, role, managers or
        delete.
    failures
        Errors that the next calls raise, one each.
    failing
        Errors that every write on objects of a kind raises, by name of the kind.
    disputed
        Objects, as "ModelServing m-a", with fields of another manager: an apply needs force.
    rejected
        Errors that every list and scale of a kind raises, by name of the kind.
    undefined
        Fields of a status that no definition has: an apply that has one fails.
    unserved
        Names of kinds that the fake does not serve.
    workloads
        Kinds besides ours and those of boosters, and whether they can be scaled.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, Key], dict[str, Any]] = {}
        self.events: list[Event] = []
        self.writes: list[str] = []
        self.failures: list[InfernoError] = []
        self.failing: dict[str, InfernoError] = {}
        self.disputed: set[str] = set()
        self.rejected: dict[str, InfernoError] = {}
        self.undefined: set[str] = set()
        self.unserved: set[str] = set()
        self.terminating: set[str] = set()
        self.workloads: list[Served] = [Served(DEPLOYMENT, is_scalable=True)]
        self._owners: dict[str, dict[str, str]] = {}
        """Managers of the fields and conditions of a status, by uid of the object and by name."""
        self._version = 0
        self._changes: list[tuple[str, ObjectChange]] = []
        self._changed = asyncio.Event()

    async def something_changed(self) -> None:
        """Wait for the next change of an object, or event about one."""
        await self._changed.wait()

    def add(self, manifest: Mapping[str, Any], namespace: str | None = None) -> Key:
        """Create or replace an object, as a user would."""
        stored = _copied(dict(manifest))
        metadata = stored["metadata"]
        metadata["namespace"] = namespace or metadata.get("namespace", "default")
        key = Key.of(stored)
        old = self.objects.get((stored["kind"], key))
        metadata.setdefault("uid", f"{stored['kind']}/{key}")
        metadata["generation"] = 1 if old is None else old["metadata"]["generation"] + 1
        if old is not None:
            stored.setdefault("status", old.get("status", {}))
        metadata["resourceVersion"] = self._next_version()
        self.objects[stored["kind"], key] = {"apiVersion": API_VERSION, **stored}
        self._note(self.objects[stored["kind"], key])
        return key

    def remove(self, kind: Kind, key: Key) -> None:
        """Delete an object, as a user would."""
        stored = self.objects.pop((kind.kind, key))
        stored["metadata"]["resourceVersion"] = self._next_version()
        self._note(stored, gone=True)

    async def verbs(self, group: str, version: str) -> Mapping[str, frozenset[str]]:
        """Return all kinds but those that are not served; of terminating ones none is patched."""
        del version
        self._fail()
        ours = [kind_of(resource) for resource in RESOURCES]
        dialects = DIALECTS.values()
        others = [kind for d in dialects for kind in (d.booster, *d.children)]
        served = {
            kind.plural: frozenset({"get", "patch"})
            for kind in (*ours, *others)
            if kind.group == group and kind.kind not in self.unserved
        }
        return served | dict.fromkeys(self.terminating & served.keys(), frozenset({"get"}))

    async def find(self, api_version: str, kind: str) -> Served | None:
        self._fail()
        asked = api_version, kind
        matching = (s for s in self.workloads if (s.kind.api_version, s.kind.kind) == asked)
        return next((s for s in matching if s.kind.kind not in self.unserved), None)

    async def scale(self, kind: Kind, key: Key) -> Scale:
        """Return the scale subresource; the selector is that of the labels in the spec."""
        self._fail()
        self._reject(kind)
        return self._scale(kind, self._stored(kind, key))

    async def set_scale(self, scale: Scale, replicas: int, manager: str) -> Scale:
        """Set the number of replicas; `manager` owns it from then on."""
        reference = scale.reference
        if scale.role:
            return self._set_role(scale, replicas, manager)
        stored = self._for_write("scale", reference.kind, reference.manifest_at_version())
        self._set_spec(stored, {"spec": {"replicas": replicas}})
        fields: Manifest = {"f:spec": {"f:replicas": {}}}
        entry = {"manager": manager, "subresource": "scale", "fieldsV1": fields}
        stored["metadata"]["managedFields"] = [entry]
        return self._scale(reference.kind, self._written("scale", stored))

    def _set_role(self, scale: Scale, replicas: int, manager: str) -> Scale:
        kind = scale.reference.kind
        stored = self._for_write("role", kind, scale.reference.manifest())
        role = stored["spec"]["template"]["roles"][scale.index]
        if (role["name"], role["replicas"]) != (scale.role, scale.replicas):
            raise StaleError(f"{scale.place} changed")
        role["replicas"] = replicas
        stored["metadata"]["generation"] += 1
        fields: Manifest = {"f:spec": {"f:template": {"f:roles": {}}}}
        stored["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": fields}]
        answer = Scale.of_role(kind, self._written("role", stored), scale.role)
        if answer is None:
            raise GoneError(f"{scale.place} does not exist")
        return answer

    @staticmethod
    def _scale(kind: Kind, stored: Manifest) -> Scale:
        spec = stored["spec"]
        labels = spec.get("selector", {}).get("matchLabels", {})
        selector = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
        return Scale(Reference.of(kind, stored), spec.get("replicas", 1), selector)

    async def get(self, kind: Kind, key: Key) -> Manifest:
        """Return a copy of an object."""
        self._fail()
        return _copied(self._stored(kind, key))

    async def list(self, kind: Kind, namespace: str) -> Listing:
        """List all objects of a kind in a namespace, or in all namespaces ("")."""
        self._fail()
        self._reject(kind)
        if kind.kind in self.unserved:
            raise GoneError(f"{kind}: no such kind")
        manifests = tuple(
            _copied(manifest)
            for (name, key), manifest in self.objects.items()
            if name == kind.kind and namespace in ("", key.namespace)
        )
        return Listing(kind, namespace, self._version, manifests)

    async def watch(
        self, kind: Kind, namespace: str, since: int
    ) -> AsyncGenerator[ObjectChange, None]:
        """Yield the changes since a version; the watch never ends by itself."""
        seen = 0
        while True:
            for name, change in self._changes[seen:]:
                seen += 1
                if name == kind.kind and change.version > since and _is_in(namespace, change):
                    yield change
            if seen == len(self._changes):
                await self._changed.wait()

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        """Set fields of the spec, or the status; a changed spec increments the generation."""
        await asyncio.sleep(0)  # others go on during a write
        about = f"{kind.kind} {manifest['metadata']['name']}"
        verb = "status" if "status" in manifest else "apply"
        others = ["another"] if about in self.disputed else self._rivals(kind, manifest, manager)
        if others and not force:
            causes = [f'conflict with "{other}": .spec' for other in others]
            raise ConflictError(f"{about}: {causes[0]}", causes)
        self.disputed.discard(about)
        for field in self.undefined & manifest.get("status", {}).keys():
            raise UnknownFieldError(f"{about}: .status.{field}: field not declared in schema")
        stored = self._for_write(verb, kind, manifest)
        if "status" in manifest:
            self._set_status(stored, manifest["status"], manager)
        else:
            self._set_spec(stored, manifest)
            _own(stored, manifest["spec"], manager)
        return self._written(verb, stored)

    def _rivals(self, kind: Kind, manifest: Manifest, manager: str) -> Sequence[str]:
        """Return the other managers of fields that an apply would change."""
        stored = self.objects.get((kind.kind, Key.of(manifest)), {"metadata": {}, "spec": {}})
        changed = [k for k, v in manifest.get("spec", {}).items() if stored["spec"].get(k) != v]
        owned = [(e.get("manager", ""), e.get("fieldsV1", {})) for e in _entries(stored)]
        return [
            name
            for name, fields in owned
            if name != manager and any(f"f:{key}" in fields.get("f:spec", {}) for key in changed)
        ]

    async def merge(self, kind: Kind, manifest: Manifest, manager: str) -> None:
        """Set fields of the spec, or the finalizers.

        An object that is being deleted is removed when its last finalizer is.
        """
        del manager
        stored = self._for_write("merge", kind, manifest)
        self._set_spec(stored, manifest)
        metadata = manifest["metadata"]
        if "finalizers" in metadata:
            stored["metadata"]["finalizers"] = list(metadata["finalizers"])
        self._written("merge", stored)
        if not metadata.get("finalizers", True) and "deletionTimestamp" in stored["metadata"]:
            self.remove(kind, Key.of(stored))

    async def set_managers(self, reference: Reference, entries: Sequence[Any]) -> None:
        """Replace the `managedFields` of an object."""
        stored = self._for_write("managers", reference.kind, reference.manifest_at_version())
        stored["metadata"]["managedFields"] = _copied(list(entries))
        self._written("managers", stored)

    async def delete(self, reference: Reference) -> None:
        """Delete an object immediately."""
        stored = self._for_write("delete", reference.kind, reference.manifest())
        self.writes.append(f"delete {stored['kind']} {stored['metadata']['name']}")
        self.remove(reference.kind, reference.key)

    async def publish(self, event: Event) -> None:
        self.events.append(event)
        self._wake()

    def _stored(self, kind: Kind, key: Key) -> dict[str, Any]:
        try:
            return self.objects[kind.kind, key]
        except KeyError:
            raise GoneError(f"{kind.kind} {key} does not exist") from None

    def _for_write(self, verb: str, kind: Kind, manifest: Manifest) -> dict[str, Any]:
        """Return the stored object of a manifest; an apply of the spec creates it if needed."""
        self._fail()
        if kind.kind in self.failing:
            raise self.failing[kind.kind]
        metadata, key = manifest["metadata"], Key.of(manifest)
        if verb == "apply" and "uid" not in metadata and (kind.kind, key) not in self.objects:
            self.add({**manifest, "kind": kind.kind, "spec": {}})
        stored = self._stored(kind, key)
        if metadata.get("uid", stored["metadata"]["uid"]) != stored["metadata"]["uid"]:
            raise GoneError(f"{kind.kind} {key} has another uid")
        version = stored["metadata"]["resourceVersion"]
        if metadata.get("resourceVersion", version) != version:
            raise StaleError(f"{kind.kind} {key} changed")
        return stored

    def _set_status(self, stored: dict[str, Any], status: Manifest, manager: str) -> None:
        """Set fields of the status; conditions that no apply has set are those of decisions."""
        owners = self._owners.setdefault(stored["metadata"]["uid"], {})
        fields, own = _copied(dict(status)), list(status.get("conditions", ()))
        before = {k: v for k, v in stored.get("status", {}).items() if owners.get(k) != manager}
        others = [
            condition
            for condition in stored.get("status", {}).get("conditions", ())
            if owners.get(condition["type"], FieldManager.DECISIONS) != manager
        ]
        owners.update(dict.fromkeys([*fields, *(c["type"] for c in own)], manager))
        stored["status"] = {**before, **fields}
        if others or "conditions" in stored["status"]:
            stored["status"]["conditions"] = [*others, *_copied(own)]

    @staticmethod
    def _set_spec(stored: dict[str, Any], manifest: Manifest) -> None:
        changed = {**stored["spec"], **_copied(dict(manifest.get("spec", {})))}
        if changed != stored["spec"]:
            stored["spec"] = changed
            stored["metadata"]["generation"] += 1

    def _written(self, verb: str, stored: dict[str, Any]) -> Manifest:
        stored["metadata"]["resourceVersion"] = self._next_version()
        self.writes.append(f"{verb} {stored['kind']} {stored['metadata']['name']}")
        self._note(stored)
        return _copied(stored)

    def _note(self, stored: Mapping[str, Any], *, gone: bool = False) -> None:
        """Send a change to all watches."""
        manifest = _copied(stored)
        change = ObjectChange(int(manifest["metadata"]["resourceVersion"]), manifest, gone=gone)
        self._changes.append((manifest["kind"], change))
        self._wake()

    def _wake(self) -> None:
        """Wake those who wait for something to change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def _reject(self, kind: Kind) -> None:
        if kind.kind in self.rejected:
            raise self.rejected[kind.kind]


def _copied(value: T) -> T:
    """Return a copy of what JSON can hold; `copy.deepcopy` takes three times as long."""
    if isinstance(value, dict):
        return cast("T", {name: _copied(item) for name, item in value.items()})
    return cast("T", [*map(_copied, value)]) if isinstance(value, list) else value


def _entries(stored: Manifest) -> Sequence[Any]:
    entries: Sequence[Any] = stored["metadata"].get("managedFields", ())
    return entries


def _own(stored: dict[str, Any], spec: Manifest, manager: str) -> None:
    """Make a manager the only owner of the fields of a spec, and of no others."""
    fields_of_spec = {f"f:{name}": _fields(value) for name, value in spec.items()}
    entries = _copied(_entries(stored))
    others = [entry for entry in entries if entry.get("manager") != manager]
    for entry in others:
        fields = entry.get("fieldsV1", {}).get("f:spec", {})
        for name in fields_of_spec.keys() & fields.keys():
            del fields[name]
    entry = {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": fields_of_spec}}
    stored["metadata"]["managedFields"] = [*others, entry]


def _fields(value: object) -> Manifest:
    """Return the fields of a value as `managedFields` has them; lists have items by name."""
    if isinstance(value, Mapping):
        return {f"f:{name}": _fields(inner) for name, inner in value.items()}
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        named = (each for each in value if "name" in each)
        return {f'k:{{"name":"{each["name"]}"}}': _fields(each) for each in named}
    return {}


def _is_in(namespace: str, change: ObjectChange) -> bool:
    return change.manifest is not None and namespace in (
        "",
        change.manifest["metadata"]["namespace"],
    )


class FakeOptimizer:
    """Solves in this process, equal systems once; the next calls raise `failures`, one each."""

    def __init__(self) -> None:
        self.failures: list[InfernoError] = []
        self.systems: list[System] = []

    async def optimize(self, system: System) -> Solution:
        """Solve a system, and store it in `systems`."""
        self.systems.append(system)
        if self.failures:
            raise self.failures.pop(0)
        return _solution_of(pickle.dumps(system))


@lru_cache(maxsize=128)
def _solution_of(pickled_system: bytes) -> Solution:
    """Solve a system; pickled, for it cannot be hashed."""
    return optimize(pickle.loads(pickled_system))  # noqa: S301 - our own


class FakeLeaseStore:
    """A Lease in memory, with the API server's rule for versions.

    The next calls raise `failures`, one each.
    """

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.failures: list[InfernoError] = []
        self._version = 0

    async def read(self) -> Lease:
        self._fail()
        if self.lease is None:
            raise GoneError("there is no lease")
        return self.lease

    async def create(self, lease: Lease) -> Lease:
        self._fail()
        if self.lease is not None:
            raise StaleError("there is a lease already")
        return self._written(lease)

    async def update(self, lease: Lease) -> Lease:
        """Replace the Lease, if it still has the version that was read."""
        self._fail()
        if self.lease is None:
            raise GoneError("there is no lease")
        if lease.version != self.lease.version:
            raise StaleError("there is a newer lease")
        return self._written(lease)

    def _written(self, lease: Lease) -> Lease:
        self._version += 1
        self.lease = replace(lease, version=str(self._version))
        return self.lease

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
