"""List and watch: nothing is missed, whatever breaks in between, and all share one watch."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

import pytest

from inferno_operator.resources import Capacity, Server
from inferno_operator.resources.objects import Key, Kind, Manifest, Place, kind_of
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Area, Informers, Subscription
from inferno_operator.runtime.ports import GoneError, Listing, ObjectChange, RejectedError
from inferno_optimizer.errors import InfernoError, UnavailableError
from tests.controlplane.waiting import PATIENCE_S
from tests.fakes import FakeCluster
from tests.unit.operator.background import in_background
from tests.unit.operator.objects import server

SERVER, CAPACITY = kind_of(Server), kind_of(Capacity)


class Breaking(FakeCluster):
    """A cluster whose watches can be broken."""

    def __init__(self) -> None:
        super().__init__()
        self._broken = asyncio.Event()

    def break_watches(self) -> None:
        self._broken.set()
        self._broken = asyncio.Event()

    async def watch(
        self, kind: Kind, namespace: str, since: int
    ) -> AsyncGenerator[ObjectChange, None]:
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
    """Keeps what a subscription is told."""

    def __init__(self) -> None:
        self.objects: dict[Place, Manifest] = {}
        self.listings = 0
        self.errors: list[InfernoError] = []
        self._changed = asyncio.Event()

    def changed(self, difference: ObjectDifference) -> None:
        assert self.objects.pop(difference.place, None) == difference.before
        if difference.after is not None:
            self.objects[difference.place] = difference.after
        self._tell()

    def listed(self, area: Area) -> None:
        del area
        self.listings += 1
        self._tell()

    def lost(self, area: Area, error: InfernoError) -> None:
        del area
        self.errors.append(error)
        self._tell()

    def names(self) -> list[str]:
        return sorted(place.key.name for place in self.objects)

    async def until(self, *names: str) -> None:
        await self._until(lambda: self.names() == list(names))

    async def until_lost(self) -> None:
        await self._until(lambda: bool(self.errors))

    async def _until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not met():
                await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def following(
    informers: Informers, *kinds: Kind
) -> AsyncGenerator[tuple[Subscription, Seen]]:
    seen = Seen()
    subscription = informers.subscribe(kinds, seen.changed, listed=seen.listed, lost=seen.lost)
    async with in_background(subscription.run()):
        yield subscription, seen


def running(
    cluster: FakeCluster, *kinds: Kind
) -> AbstractAsyncContextManager[tuple[Subscription, Seen]]:
    return following(Informers(cluster), *kinds)


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
    subscription = Informers(FakeCluster(), ("one", "two")).subscribe([SERVER])

    assert subscription.missing == {(SERVER, "one"): None, (SERVER, "two"): None}


async def test_a_kind_that_is_not_served_is_missing_until_it_is() -> None:
    cluster = FakeCluster()
    cluster.unserved.add("Capacity")

    async with running(cluster, SERVER, CAPACITY) as (subscription, seen):
        await seen.until_lost()
        ((area, error),) = subscription.missing.items()
        assert area == (CAPACITY, "")
        assert isinstance(error, GoneError)
        cluster.unserved.clear()
        async with asyncio.timeout(PATIENCE_S):
            await subscription.complete()
        assert not subscription.missing


@pytest.mark.parametrize(
    ("failure", "level"),
    [(UnavailableError("away"), "INFO"), (RejectedError("no right"), "WARNING")],
)
async def test_a_list_that_fails_is_asked_for_again_and_logged_once(
    failure: InfernoError, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster()
    cluster.failures = [failure, failure]
    cluster.add(server("a"))

    with caplog.at_level("INFO"):
        async with running(cluster, SERVER) as (_, seen):
            await seen.until("a")

    assert seen.errors == [failure, failure]
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        (level, f"{failure}; listing again")
    ]


class Counting(Breaking):
    """Counts lists and watches, and those that run."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0
        self.watches = 0

    async def list(self, kind: Kind, namespace: str) -> Listing:
        self.lists += 1
        return await super().list(kind, namespace)

    async def watch(
        self, kind: Kind, namespace: str, since: int
    ) -> AsyncGenerator[ObjectChange, None]:
        self.watches += 1
        try:
            async with aclosing(super().watch(kind, namespace, since)) as changes:
                async for change in changes:
                    yield change
        finally:
            self.watches -= 1


async def test_all_who_follow_a_kind_share_its_watch() -> None:
    cluster = Counting()
    cluster.add(server("a"))
    informers = Informers(cluster)

    async with following(informers, SERVER) as (_, first):
        await first.until("a")
        async with following(informers, SERVER) as (subscription, second):
            await second.until("a")
            assert (second.listings, subscription.is_complete) == (1, True)
            cluster.add(server("b"))
            await first.until("a", "b")
            await second.until("a", "b")
            assert (cluster.lists, cluster.watches) == (1, 1)
        cluster.add(server("c"))
        await first.until("a", "b", "c")
        assert cluster.watches == 1

    assert cluster.watches == 0


async def test_who_comes_while_a_kind_is_not_known_is_told_why() -> None:
    cluster = Breaking()
    cluster.add(server("a"))
    informers = Informers(cluster)

    async with following(informers, SERVER) as (_, first):
        await first.until("a")
        cluster.rejected["Server"] = UnavailableError("away")
        cluster.break_watches()
        await first.until_lost()
        async with following(informers, SERVER) as (subscription, second):
            await second.until_lost()
            assert second.names() == ["a"]
            assert not subscription.is_complete
            cluster.rejected.clear()
            await subscription.complete()

    assert first.listings == 2


async def test_a_write_is_told_to_all_others_at_once_and_not_again_by_the_watch() -> None:
    cluster = Breaking()
    cluster.add(server("a"))
    informers = Informers(cluster)

    async with (
        following(informers, SERVER) as (writer, own),
        following(informers, SERVER) as (_, other),
    ):
        await other.until("a")
        key = cluster.add(server("b"))
        (difference,) = writer.written(SERVER, cluster.objects["Server", key])
        assert (own.names(), other.names()) == (["a"], ["a", "b"])
        own.changed(difference)
        await asyncio.sleep(1)

    assert (own.names(), other.names()) == (["a", "b"], ["a", "b"])


async def test_a_follower_that_fails_ends_all_who_share_the_watch() -> None:
    cluster = Breaking()
    informers = Informers(cluster)

    def fail(difference: ObjectDifference) -> None:
        raise ValueError(difference.place)

    failing = asyncio.create_task(informers.subscribe([SERVER], fail).run())
    sharing = asyncio.create_task(informers.subscribe([SERVER]).run())
    await asyncio.sleep(1)
    cluster.add(server("a"))

    for task in (failing, sharing):
        with pytest.raises(ValueError, match="Server default/a"):
            await task
