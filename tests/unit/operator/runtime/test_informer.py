"""List and watch: nothing is missed, whatever breaks in between."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from inferno_operator.resources import Capacity, Server
from inferno_operator.resources.objects import Key, Kind, kind_of
from inferno_operator.runtime.cache import Cache
from inferno_operator.runtime.fakes import FakeCluster
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, GoneError, Listing
from inferno_optimizer.errors import InfernoError, UnavailableError
from tests.unit.operator.objects import server

SERVER, CAPACITY = kind_of(Server), kind_of(Capacity)
PATIENCE_S = 10.0


class Breaking(FakeCluster):
    """A cluster whose watches can be broken."""

    def __init__(self) -> None:
        super().__init__()
        self._broken = asyncio.Event()

    def break_watches(self) -> None:
        self._broken.set()
        self._broken = asyncio.Event()

    async def watch(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[Change, None]:
        broken, changes = self._broken, super().watch(kind, namespace, since)
        while True:
            following = asyncio.ensure_future(anext(changes))
            breaking = asyncio.ensure_future(broken.wait())
            await asyncio.wait([following, breaking], return_when=asyncio.FIRST_COMPLETED)
            breaking.cancel()
            if broken.is_set():
                following.cancel()
                raise UnavailableError("too old resource version")
            yield await following


class Seen:
    """Keeps what an informer sees."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.listings = 0
        self.errors: list[InfernoError] = []
        self._changed = asyncio.Event()

    def listed(self, listing: Listing) -> None:
        self.listings += 1
        self.cache.replace(listing)
        self._tell()

    def changed(self, kind: Kind, change: Change) -> None:
        self.cache.apply(kind, change)
        self._tell()

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        del kind, namespace
        self.errors.append(error)
        self._tell()

    def names(self) -> list[str]:
        return sorted(key.name for key in self.cache.keys(SERVER))

    async def until(self, *names: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.names() != list(names):
                await self._changed.wait()

    async def until_lost(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not self.errors:
                await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def running(cluster: FakeCluster, *kinds: Kind) -> AsyncGenerator[tuple[Informer, Seen]]:
    seen = Seen()
    informer = Informer(cluster, kinds, (), seen)
    task = asyncio.create_task(informer.run())
    yield informer, seen
    task.cancel()
    await asyncio.wait([task])


async def test_objects_come_from_the_list_and_then_from_the_watch() -> None:
    cluster = Breaking()
    cluster.add(server("a"))

    async with running(cluster, SERVER) as (_, seen):
        await seen.until("a")
        cluster.add(server("b"))
        await seen.until("a", "b")
        cluster.remove(SERVER, Key("default", "a"))
        await seen.until("b")

    assert seen.listings == 1


async def test_an_object_that_went_while_a_watch_was_broken_is_noticed() -> None:
    cluster = Breaking()
    cluster.add(server("a"))
    cluster.add(server("b"))

    async with running(cluster, SERVER) as (_, seen):
        await seen.until("a", "b")
        del cluster.objects["Server", Key("default", "a")]  # and no watch tells
        cluster.break_watches()
        await seen.until("b")

    assert [str(error) for error in seen.errors] == ["too old resource version"]


async def test_what_is_not_listed_yet_is_missing_without_a_reason() -> None:
    informer = Informer(FakeCluster(), [SERVER], ("one", "two"), Seen())

    assert informer.missing == {(SERVER, "one"): None, (SERVER, "two"): None}


async def test_a_kind_that_is_not_served_is_missing_until_it_is() -> None:
    cluster = FakeCluster()
    cluster.unserved.add("Capacity")

    async with running(cluster, SERVER, CAPACITY) as (informer, seen):
        await seen.until_lost()
        ((area, error),) = informer.missing.items()
        assert area == (CAPACITY, "")
        assert isinstance(error, GoneError)
        cluster.unserved.clear()
        async with asyncio.timeout(PATIENCE_S):
            await informer.complete()

    assert not informer.missing


async def test_an_api_server_that_does_not_answer_is_asked_again() -> None:
    cluster = FakeCluster()
    cluster.add(server("a"))
    cluster.failures = [UnavailableError("connection refused")]

    async with running(cluster, SERVER) as (_, seen):
        await seen.until("a")

    assert [str(error) for error in seen.errors] == ["connection refused"]


async def test_a_failure_is_logged_once_however_often_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster()
    cluster.failures = [UnavailableError("away") for _ in range(2)]
    cluster.add(server("a"))

    with caplog.at_level("INFO"):
        async with running(cluster, SERVER) as (_, seen):
            await seen.until("a")

    assert len(seen.errors) == 2
    assert caplog.messages == ["away; listing again"]
