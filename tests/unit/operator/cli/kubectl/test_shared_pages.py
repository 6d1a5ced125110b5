"""Pages are made once for all who ask for them before anything changes."""

import asyncio

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from inferno_operator.cli.kubectl.console.app import KEPT_S, SharedPages


class Changes:
    """Stands in for the news."""

    def __init__(self) -> None:
        self.version = 0


class Site:
    """A page that counts how often it is made."""

    def __init__(self) -> None:
        self.news, self.time_s, self.made, self.fails = Changes(), 0.0, 0, False
        self.pages = SharedPages(self.news, lambda: self.time_s)  # type: ignore[arg-type]  # a double
        self.page = self.pages.shared(self._make)

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
