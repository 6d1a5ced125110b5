"""What pages are made of: the objects as they are now, for those who may still list them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from inferno_operator.cli.kubectl.console.news import KINDS, DecodedObjects, WatchedNamespace
from inferno_operator.resources import Resource, Server
from inferno_operator.resources.objects import Key, kind_of
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.cache import Decode
from inferno_operator.runtime.ports import RejectedError
from inferno_optimizer.errors import UnavailableError
from tests.fakes import FakeCluster
from tests.unit.operator.objects import server


class Person:
    """Stands in for a session: somebody who may list kinds, or not."""

    def __init__(self) -> None:
        self.reader, self.namespace, self.asked = FakeCluster(), "default", 0
        self.refusal: RejectedError | None = None

    async def check_rights(self, kinds: Iterable[type[Resource]]) -> None:
        assert tuple(kinds) == KINDS
        self.asked += 1
        if self.refusal:
            raise self.refusal


@asynccontextmanager
async def watched_by(person: Person, decode: Decode = observe) -> AsyncIterator[WatchedNamespace]:
    session: Any = person
    watched = WatchedNamespace(session, lambda _: None, decode)
    task = asyncio.create_task(watched.run())
    yield watched
    task.cancel()


async def names(watched: WatchedNamespace) -> list[str]:
    return [o.resource.spec.name for o in await watched.objects() if isinstance(o.resource, Server)]


async def test_objects_are_those_of_now_without_those_that_are_being_deleted() -> None:
    person = Person()
    person.reader.add(server("S"))
    person.reader.add(server("T", deletionTimestamp="2026-01-01T00:00:00Z"))
    async with watched_by(person) as watched:
        assert await names(watched) == ["S"]
        person.reader.add(server("U"))
        await asyncio.sleep(1)

        assert await names(watched) == ["S", "U"]


async def test_who_may_list_no_more_sees_nothing_of_what_is_known() -> None:
    person = Person()
    async with watched_by(person) as watched:
        await watched.objects()
        person.refusal = RejectedError("HTTP 403: cannot list")

        with pytest.raises(RejectedError, match="cannot list"):
            await watched.objects()
        assert person.asked == 2


async def test_why_objects_are_not_known_is_said() -> None:
    person = Person()
    person.reader.rejected["Server"] = RejectedError("HTTP 403: cannot watch")
    async with watched_by(person) as watched:
        await asyncio.sleep(1)

        with pytest.raises(RejectedError, match="cannot watch"):
            await watched.objects()


async def test_a_page_waits_for_an_api_server_that_has_just_started() -> None:
    person = Person()
    person.reader.add(server("S"))
    person.reader.rejected["Server"] = UnavailableError("watch of servers: HTTP 429")
    async with watched_by(person) as watched:
        await asyncio.sleep(20)
        with pytest.raises(UnavailableError, match=r"not known yet: servers: .*HTTP 429"):
            await watched.objects()

        page = asyncio.create_task(names(watched))
        await asyncio.sleep(1)
        del person.reader.rejected["Server"]

        assert await page == ["S"]


async def test_what_two_people_read_is_in_memory_once() -> None:
    ann, bob, decode = Person(), Person(), DecodedObjects().decode
    for person in (ann, bob):
        person.reader.add(server("S", uid="s"))
    async with watched_by(ann, decode) as first, watched_by(bob, decode) as second:
        (seen,), (same,) = await first.objects(), await second.objects()
        assert same is seen

        bob.reader.add(server("S", uid="s", labels={"is": "newer"}))
        await asyncio.sleep(1)

        (seen,), (newer,) = await first.objects(), await second.objects()
        assert int(newer.reference.version) > int(seen.reference.version)


async def test_nobody_sees_what_only_others_read() -> None:
    ann, bob, decode = Person(), Person(), DecodedObjects().decode
    bob.reader.add(server("S", uid="s"))
    for name in ("S", "T"):
        ann.reader.add(server(name, uid=name.lower()))
    async with watched_by(ann, decode) as first, watched_by(bob, decode) as second:
        assert (await names(first), await names(second)) == (["S", "T"], ["S"])


async def test_what_nobody_keeps_is_forgotten() -> None:
    person, decoded = Person(), DecodedObjects()
    person.reader.add(server("S", uid="s"))
    async with watched_by(person, decoded.decode) as watched:
        assert len(await watched.objects()) == len(decoded) == 1
        person.reader.remove(kind_of(Server), Key("default", "s"))
        await asyncio.sleep(1)

        assert len(await watched.objects()) == len(decoded) == 0
