"""Following a cluster: nothing is told before all is known, and breaks are made good."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from inferno_operator.resources import Resource, Server
from inferno_operator.resources.objects import Manifest
from inferno_operator.runtime.cache import Mirror
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, Listing
from inferno_optimizer.errors import UnavailableError
from tests.unit.operator.objects import server


def versioned(manifest: Manifest, version: int) -> Manifest:
    metadata = {"namespace": "default", "uid": "u", "resourceVersion": str(version)}
    return {**manifest, "metadata": {**manifest["metadata"], **metadata}}


class Cluster:
    """Servers to list and to watch; a watch lasts until it is broken.

    `gate` keeps listings of Servers waiting.
    """

    def __init__(self) -> None:
        self.version = 1
        self.servers: dict[str, Manifest] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.listed = 0
        self._watch: asyncio.Queue[Change | None] = asyncio.Queue()

    def add(self, name: str) -> None:
        self.version += 1
        self.servers[name] = versioned(server(name), self.version)
        self._watch.put_nowait(Change(self.version, self.servers[name]))

    def lose(self, name: str) -> None:
        """Delete an object without telling, and break the watch."""
        self.version += 1
        del self.servers[name]
        self._watch.put_nowait(None)

    async def listing(self, resource: type[Resource], namespace: str) -> Listing:
        if resource is not Server:
            return Listing(resource, namespace, self.version, ())
        await self.gate.wait()
        self.listed += 1
        return Listing(resource, namespace, self.version, tuple(self.servers.values()))

    async def changes(self, listing: Listing, since: int) -> AsyncGenerator[Change, None]:
        if listing.resource is not Server:
            await asyncio.Event().wait()
        while (change := await self._watch.get()) is not None:
            if change.version > since:
                yield change
        raise UnavailableError("too old resource version")


class Following:
    """An informer at work, and the namespaces that it told of."""

    def __init__(self, cluster: Cluster, patience: float = 10.0) -> None:
        self.told: list[str] = []
        self._changed = asyncio.Event()
        self.informer = Informer(cluster, Mirror(), (), self._tell, patience)
        self._task = asyncio.create_task(self.informer.run())

    def _tell(self, namespace: str) -> None:
        self.told.append(namespace)
        self._changed.set()

    async def change(self) -> None:
        await asyncio.wait_for(self._changed.wait(), 10)
        self._changed.clear()

    async def names(self) -> list[str]:
        return sorted(o.reference.key.name for o in await self.informer.objects("default"))

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def test_objects_come_from_the_list_and_then_from_the_watch() -> None:
    cluster = Cluster()
    cluster.add("a")
    following = Following(cluster)
    await following.change()
    assert await following.names() == ["a"]

    cluster.add("b")
    await following.change()

    assert await following.names() == ["a", "b"]
    await following.end()


async def test_nothing_is_told_and_nobody_served_before_everything_is_known() -> None:
    cluster = Cluster()
    cluster.add("a")
    cluster.gate.clear()
    following = Following(cluster)
    asked = asyncio.create_task(following.names())
    await asyncio.wait([asked], timeout=0.05)
    assert not asked.done()
    assert not following.told

    cluster.gate.set()

    assert await asked == ["a"]
    await following.end()


async def test_who_waits_too_long_hears_what_is_missing() -> None:
    cluster = Cluster()
    cluster.gate.clear()
    following = Following(cluster, patience=0.01)

    with pytest.raises(UnavailableError, match=r"not known yet: .*servers"):
        await following.names()

    await following.end()


async def test_what_went_while_a_watch_was_broken_is_noticed() -> None:
    cluster = Cluster()
    cluster.add("a")
    cluster.add("b")
    following = Following(cluster)
    await following.change()

    cluster.lose("a")
    await following.change()

    assert await following.names() == ["b"]
    assert cluster.listed == 2
    await following.end()
