"""The objects of a namespace for open pages, and news of them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from inferno_operator.cli.kubectl.console.app import KEPT_S, SharedPages
from inferno_operator.cli.kubectl.console.news import (
    ALIVE_S,
    KINDS,
    DecodedObjects,
    News,
    WatchedNamespace,
)
from inferno_operator.resources import Resource, Server
from inferno_operator.resources.objects import Key, kind_of
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.cache import Decode
from inferno_operator.runtime.ports import RejectedError
from inferno_optimizer.errors import UnavailableError
from tests.fakes import FakeCluster
from tests.unit.operator.objects import server

LATE_S = 2.0
"""Within this time a change is told."""


class Place:
    """Stands in for a session: a namespace of a cluster."""

    def __init__(self) -> None:
        self.reader, self.namespace, self._changes = FakeCluster(), "default", 0
        self.busy_s = 0.0

    def change(self) -> None:
        self._changes += 1
        self.reader.add(server("S", labels={"number": str(self._changes)}))


@dataclass
class OpenPage:
    """A page that is told news, and when."""

    events: AsyncIterator[str]
    told_s: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    async def listen(self) -> None:
        async for text in self.events:
            self.said.append(text)
            if text.startswith("data"):
                self.told_s.append(asyncio.get_running_loop().time())


@asynccontextmanager
async def opened(place: Place, pages: int = 1) -> AsyncIterator[tuple[News, list[OpenPage]]]:
    """Yield news of a place, with pages that are open since it is quiet."""
    session: Any = place
    news = News(session, lambda: place.busy_s)
    async with news.follow():
        await asyncio.sleep(10)
        shown = [OpenPage(news.events()) for _ in range(pages)]
        tasks = [asyncio.create_task(page.listen()) for page in shown]
        await asyncio.sleep(0)
        yield news, shown
    await asyncio.gather(*tasks)


async def test_every_page_is_told_of_a_change_at_once_and_in_time() -> None:
    place = Place()
    async with opened(place, pages=3) as (_, shown):
        place.change()
        changed_s = asyncio.get_running_loop().time()
        await asyncio.sleep(LATE_S)

        (when,) = {page.told_s[1] for page in shown}
        assert changed_s < when <= changed_s + LATE_S
        assert all(len(page.told_s) == 2 for page in shown)


async def test_changes_in_a_row_are_one_piece_of_news() -> None:
    place = Place()
    async with opened(place) as (news, (page,)):
        for _ in range(100):
            place.change()
        await asyncio.sleep(LATE_S)

        assert page.said[1:] == [f"data: {news.version}\n\n"]


async def test_pages_that_cost_much_are_told_less_often() -> None:
    place, cost_s, span_s = Place(), 0.4, 120.0
    async with opened(place, pages=2) as (_, shown):
        begin_s = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < begin_s + span_s:
            place.change()
            made = len(shown[0].told_s) - 1
            place.busy_s = made * cost_s  # it takes a moment until a page is made
            await asyncio.sleep(0.1)

        assert made * cost_s < 0.1 * span_s
        assert made > 0.06 * span_s / cost_s  # and not much less often than is allowed
        assert shown[0].told_s == shown[1].told_s


async def test_work_for_somebody_else_does_not_hold_back_news_for_long() -> None:
    place = Place()
    async with opened(place) as (_, (page,)):
        place.change()
        await asyncio.sleep(LATE_S / 2)
        place.busy_s += 1000.0
        place.change()
        await asyncio.sleep(60 + LATE_S)

        assert len(page.told_s) == 3


async def test_a_quiet_connection_says_that_it_lives() -> None:
    async with opened(Place()) as (_, (page,)):
        await asyncio.sleep(2.5 * ALIVE_S)

        assert page.said[1:] == [": alive\n\n"] * 2


async def test_the_end_of_the_watch_ends_what_pages_are_told() -> None:
    place = Place()
    async with opened(place, pages=2) as (_, shown):
        pass

    assert [len(page.said) for page in shown] == [1, 1]


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


class Changes:
    """Stands in for the news."""

    def __init__(self) -> None:
        self.version = 0


class Site:
    """A page that counts how often it is made."""

    def __init__(self) -> None:
        self.news, self.time_s, self.made, self.fails = Changes(), 0.0, 0, False
        self.pages = SharedPages(self.news, lambda: self.time_s)  # type: ignore[arg-type]  # a double
        self.page = self.pages.share(self._make)

    async def _make(self, request: Request) -> Response:
        self.made += 1
        number = self.made
        await asyncio.sleep(0)
        if self.fails:
            raise ValueError("no answer")
        return PlainTextResponse(f"{request.url.path} {number}")

    async def ask(self, path: str = "/", query: bytes = b"") -> bytes:
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query}
        answer = await self.page(Request({**scope, "headers": [(b"host", b"here")]}))
        return bytes(answer.body)


async def test_equal_requests_are_answered_together() -> None:
    site = Site()

    answers = await asyncio.gather(site.ask(), site.ask(), site.ask("/plans"))

    assert list(answers) == [b"/ 1", b"/ 1", b"/plans 2"]
    assert await site.ask() == b"/ 1"
    assert await site.ask(query=b"q=x") == b"/ 3"
    assert site.made == 3


async def test_a_change_makes_every_page_old() -> None:
    site = Site()
    await site.ask()

    site.news.version += 1

    assert await site.ask() == b"/ 2"


async def test_a_page_is_made_anew_after_some_time_and_after_an_answer() -> None:
    site = Site()
    await site.ask()
    site.time_s = KEPT_S + 1
    assert await site.ask() == b"/ 2"

    site.pages.forget()

    assert await site.ask() == b"/ 3"


async def test_what_failed_is_tried_again() -> None:
    site = Site()
    site.fails = True
    with pytest.raises(ValueError, match="no answer"):
        await site.ask()
    site.fails = False

    assert await site.ask() == b"/ 2"
