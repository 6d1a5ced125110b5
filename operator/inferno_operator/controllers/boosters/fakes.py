"""A cluster in memory, for tests without an API server."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from inferno_operator.controllers.boosters.ports import Listed, Notice
from inferno_operator.resources.objects import Key, Kind, Manifest
from inferno_operator.runtime.ports import Change, GoneError
from inferno_optimizer.errors import InfernoError


@dataclass
class FakeBoosters:
    """Keeps objects, and tells what was written; changes are not watched.

    An apply sets the fields of the spec that it has and keeps the others.
    """

    objects: dict[tuple[Kind, Key], dict[str, Any]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    unserved: set[Kind] = field(default_factory=set)
    failing: dict[Kind, InfernoError] = field(default_factory=dict)
    """What happens to writes on objects of a kind."""
    _versions: "count[int]" = field(default_factory=lambda: count(1))
    _written: asyncio.Event = field(default_factory=asyncio.Event)

    async def something_written(self) -> None:
        """Wait for the next write."""
        self._written.clear()
        await self._written.wait()

    def put(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Have an object, as if somebody else had written it."""
        key = Key.of(manifest)
        version = next(self._versions)
        defaults = {"uid": f"uid-{version}", "generation": 1}
        metadata = {**defaults, **manifest["metadata"], "resourceVersion": str(version)}
        self.objects[kind, key] = {**manifest, "metadata": metadata}
        self._written.set()
        return self.objects[kind, key]

    async def listed(self, kind: Kind, namespace: str) -> Listed:
        """All objects of a kind."""
        if kind in self.unserved:
            raise GoneError(f"{kind}: no such kind")
        found = tuple(
            manifest
            for (of_kind, key), manifest in self.objects.items()
            if of_kind == kind and namespace in ("", key.namespace)
        )
        return Listed(next(self._versions), found)

    async def changes(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[Change, None]:
        """None, for as long as anybody waits."""
        del kind, namespace
        await asyncio.Event().wait()
        yield Change(since)

    async def apply(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Set these fields."""
        self._note("apply", kind, manifest["metadata"]["name"])
        key = Key.of(manifest)
        before = self.objects.get((kind, key), {"metadata": {}, "spec": {}})
        metadata = {**before["metadata"], **manifest["metadata"]}
        spec = {**before["spec"], **manifest["spec"]}
        return self.put(kind, {**before, **manifest, "metadata": metadata, "spec": spec})

    async def delete(self, kind: Kind, key: Key, uid: str) -> None:
        """Delete it at once."""
        self._note("delete", kind, key.name)
        if self.objects.get((kind, key), {}).get("metadata", {}).get("uid") != uid:
            raise GoneError(f"{kind} {key}: not there")
        del self.objects[kind, key]

    async def apply_status(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Set the status."""
        self._note("status", kind, manifest["metadata"]["name"])
        return self.put(kind, manifest)

    async def publish(self, kind: Kind, about: Manifest, notice: Notice) -> None:
        """Keep it."""
        del kind, about
        self.notices.append(notice)

    def _note(self, what: str, kind: Kind, name: str) -> None:
        if kind in self.failing:
            raise self.failing[kind]
        self.writes.append(f"{what} {kind.kind} {name}")
