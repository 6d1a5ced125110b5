"""News of changes, in virtual time: when open pages are told, and what their answers may cost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from inferno_operator.cli.kubectl.console.news import ALIVE_S, News
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
    async with news.followed():
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
