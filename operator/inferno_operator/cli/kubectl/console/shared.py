"""Makes a page once for all who ask for it before anything changes: many pages may be open."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from inferno_operator.cli.kubectl.console.news import News

KEPT_S = 5.0
"""How long a page is good where nothing changes: it tells how long ago things were [s]."""

MOST = 64
"""Pages that are kept, at most."""

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _Made:
    version: int
    until_s: float
    answer: asyncio.Task[Response]


class SharedPages:
    """The pages that were made since the last change.

    Parameters
    ----------
    news
        What tells of changes.
    clock
        Seconds since some moment.
    """

    def __init__(self, news: News, clock: Callable[[], float]) -> None:
        self._news, self._clock = news, clock
        self._made: dict[str, _Made] = {}

    def forget(self) -> None:
        """Make every page anew."""
        self._made.clear()

    def shared(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint that answers equal requests together."""

        async def answer(request: Request) -> Response:
            address = f"{request.url.path}?{request.url.query}"
            made = self._made.get(address)
            if made is None or not self._is_new(made):
                made = self._begun(endpoint(request))
                self._made = {a: m for a, m in self._made.items() if self._is_new(m)}
                if len(self._made) >= MOST:
                    self.forget()
                self._made[address] = made
            return await asyncio.shield(made.answer)

        return answer

    def _begun(self, answer: Awaitable[Response]) -> _Made:
        task = asyncio.ensure_future(answer)
        return _Made(self._news.version, self._clock() + KEPT_S, task)

    def _is_new(self, made: _Made) -> bool:
        """Whether a page is as it would be made now; what failed is tried again."""
        failed = made.answer.done() and (made.answer.cancelled() or made.answer.exception())
        is_old = made.version != self._news.version or self._clock() > made.until_s
        return not failed and not is_old
