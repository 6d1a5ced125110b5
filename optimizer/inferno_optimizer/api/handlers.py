"""What happens to a request: read it, ask the server, answer."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from inferno_optimizer.api.documents import OPTIONS, Document
from inferno_optimizer.api.endpoints import Edit, Look
from inferno_optimizer.api.limits import Limits, read_body
from inferno_optimizer.api.refusals import Refusal
from inferno_optimizer.api.replies import encoded_reply, json_reply
from inferno_optimizer.api.solving import Answer
from inferno_optimizer.api.stateful import Stateful
from inferno_optimizer.api.store import Contents
from inferno_optimizer.api.text import parse_json
from inferno_optimizer.errors import InputError
from inferno_optimizer.wire.fields import MisfitError, Object

CLIENT_CLOSED_REQUEST = 499
"""For the metrics: nobody is there any more to read it."""

Handler = Callable[[Request], Awaitable[Response]]


class Server(Protocol):
    """What every mode can do."""

    @property
    def contents(self) -> Contents:
        """What can be looked at."""

    async def optimize_one(self, body: bytes) -> Answer:
        """Answer optimizeOne."""


def look_handler(server: Server, look: Look) -> Handler:
    """Show something."""

    async def handle(request: Request) -> Response:
        return json_reply(look.show(server.contents, **request.path_params))

    return handle


def edit_handler(server: Stateful, edit: Edit, limits: Limits) -> Handler:
    """Change something."""

    async def handle(request: Request) -> Response:
        arguments = dict(request.path_params)
        if edit.body is not None:
            arguments["body"] = _read(edit.body, await read_body(request, limits))
        return json_reply(server.apply(partial(edit.change, **arguments)))

    return handle


def optimize_handler(server: Stateful, limits: Limits) -> Handler:
    """Optimize what is kept."""

    async def handle(request: Request) -> Response:
        options = _read(OPTIONS, await read_body(request, limits))
        return await _while_connected(request, server.optimize(options))

    return handle


def optimize_one_handler(server: Server, limits: Limits) -> Handler:
    """Optimize what is sent."""

    async def handle(request: Request) -> Response:
        body = await read_body(request, limits)
        return await _while_connected(request, server.optimize_one(body))

    return handle


def _read(kind: Object[Document], body: bytes) -> Document:
    document = parse_json(body)
    try:
        return kind.zero if document is None else kind.read(document)
    except MisfitError as misfit:
        raise InputError(str(misfit)) from None


async def _while_connected(request: Request, work: Coroutine[Any, Any, Answer]) -> Response:
    """Answer with what comes of the work; it ends when the client does not wait for it."""
    working = asyncio.create_task(work)
    hanging_up = asyncio.create_task(_disconnection(request))
    try:
        await asyncio.wait((working, hanging_up), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal.because(CLIENT_CLOSED_REQUEST, "the client is gone")
        status, text = working.result()
        return encoded_reply(text, status)
    finally:
        working.cancel()
        hanging_up.cancel()


async def _disconnection(request: Request) -> None:
    """Return when the client is gone; its body has been read already."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
