"""Requests in flight, so that they can be ended."""

import asyncio
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferno_optimizer.api.replies import message_reply


class Requests:
    """Serves requests as tasks; those that are cancelled are answered with 503."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or tell that there is no more time for it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        task = asyncio.create_task(self._serve(scope, receive, watch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        elif not begun:
            stopping = "the server is stopping; send it again"
            await message_reply(HTTPStatus.SERVICE_UNAVAILABLE, stopping)(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def end_after(self, seconds: float) -> None:
        """Let requests finish for a while, then end those that are still there."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
