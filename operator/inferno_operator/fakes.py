"""Stand-ins for what `ports` describes, in memory: for tests and for trying things out."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from inferno_operator.ports import (
    Event,
    GoneError,
    Key,
    Manifest,
    Reference,
    StaleError,
)
from inferno_operator.resources import API_VERSION, RESOURCES, Resource
from inferno_operator.runtime.leadership import Lease
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import Solution, System


class FakeCluster:
    """Objects in a dictionary, with the API server's rules for generations and versions.

    `failures` are raised by the next calls, one each; `writes` names the objects written;
    `deleted_definitions` are kinds, in the plural.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, Key], dict[str, Any]] = {}
        self.events: list[Event] = []
        self.writes: list[tuple[str, Key]] = []
        self.failures: list[InfernoError] = []
        self.deleted_definitions: set[str] = set()
        self._version = 0

    def add(self, manifest: Mapping[str, Any], namespace: str = "default") -> Key:
        """Create an object, or change its spec."""
        stored = copy.deepcopy(dict(manifest))
        key = Key(namespace, stored["metadata"]["name"])
        old = self.objects.get((stored["kind"], key))
        metadata = stored["metadata"]
        metadata.update(namespace=namespace, uid=f"{stored['kind']}/{key}", generation=1)
        if old is not None:
            metadata["generation"] = old["metadata"]["generation"] + 1
            stored.setdefault("status", old.get("status", {}))
        metadata["resourceVersion"] = self._next_version()
        self.objects[stored["kind"], key] = {"apiVersion": API_VERSION, **stored}
        return key

    async def served(self) -> frozenset[str]:
        """All kinds."""
        self._fail()
        return frozenset(resource.plural for resource in RESOURCES)

    async def terminating(self) -> frozenset[str]:
        """Kinds whose definitions are being deleted."""
        self._fail()
        return frozenset(self.deleted_definitions)

    async def get(self, resource: type[Resource], key: Key) -> Manifest:
        """One object."""
        self._fail()
        if (resource.kind, key) not in self.objects:
            raise GoneError(f"{resource.kind} {key} is not there")
        return copy.deepcopy(self.objects[resource.kind, key])

    async def list(self, resource: type[Resource], namespace: str) -> Sequence[Manifest]:
        """All objects of a kind in a namespace."""
        self._fail()
        return [
            copy.deepcopy(manifest)
            for (kind, key), manifest in self.objects.items()
            if kind == resource.kind and namespace in ("", key.namespace)
        ]

    async def apply_spec(self, reference: Reference, spec: Manifest) -> Manifest:
        """Change fields of the spec; a change raises the generation."""
        stored = self._stored(reference)
        changed = {**stored["spec"], **copy.deepcopy(dict(spec))}
        if changed != stored["spec"]:
            stored["spec"] = changed
            stored["metadata"]["generation"] += 1
        return self._written(reference)

    async def apply_status(self, reference: Reference, status: Manifest) -> Manifest:
        """Replace the status: all of it is ours, and what is left out is removed."""
        stored = self._stored(reference)
        stored["status"] = copy.deepcopy(dict(status))
        return self._written(reference)

    async def clear_request(self, reference: Reference) -> None:
        """Set `optimize` to false, unless the object changed since."""
        stored = self._stored(reference)
        if stored["metadata"]["resourceVersion"] != reference.version:
            raise StaleError(f"{reference} changed")
        await self.apply_spec(reference, {"optimize": False})

    async def set_finalizers(self, reference: Reference, finalizers: Sequence[str]) -> None:
        """Replace the finalizers; an object that is to go does so with the last one."""
        stored = self._stored(reference)
        if stored["metadata"]["resourceVersion"] != reference.version:
            raise StaleError(f"{reference} changed")
        stored["metadata"]["finalizers"] = list(finalizers)
        self._written(reference)
        if not finalizers and "deletionTimestamp" in stored["metadata"]:
            del self.objects[reference.resource.kind, reference.key]

    async def publish(self, event: Event) -> None:
        """Keep the event."""
        self.events.append(event)

    def _stored(self, reference: Reference) -> dict[str, Any]:
        self._fail()
        try:
            return self.objects[reference.resource.kind, reference.key]
        except KeyError:
            raise GoneError(f"{reference} is not there") from None

    def _written(self, reference: Reference) -> Manifest:
        stored = self.objects[reference.resource.kind, reference.key]
        stored["metadata"]["resourceVersion"] = self._next_version()
        self.writes.append((reference.resource.kind, reference.key))
        return copy.deepcopy(stored)

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


class FakeOptimizer:
    """Solves in place; `failures` are raised by the next calls, one each."""

    def __init__(self) -> None:
        self.failures: list[InfernoError] = []
        self.systems: list[System] = []

    async def optimize(self, system: System) -> Solution:
        """Solve, and remember what was asked."""
        self.systems.append(system)
        if self.failures:
            raise self.failures.pop(0)
        return optimize(system)


class FakeLeaseStore:
    """A Lease in memory, with the API server's rule for versions.

    `failures` are raised by the next calls, one each.
    """

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.failures: list[InfernoError] = []
        self._version = 0

    async def read(self) -> Lease:
        """The Lease as it is."""
        self._fail()
        if self.lease is None:
            raise GoneError("there is no lease")
        return self.lease

    async def create(self, lease: Lease) -> Lease:
        """Make it."""
        self._fail()
        if self.lease is not None:
            raise StaleError("there is a lease already")
        return self._written(lease)

    async def update(self, lease: Lease) -> Lease:
        """Replace the version that was read."""
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
