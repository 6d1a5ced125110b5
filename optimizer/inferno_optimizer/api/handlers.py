"""Handlers of requests: read the request, ask a server, answer; and the servers of both modes."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from inferno_optimizer.api.limits import ServerLimits
from inferno_optimizer.api.messages import Refusal, encoded_reply, json_reply
from inferno_optimizer.api.pool import Reply, WorkerPool
from inferno_optimizer.api.routes import Edit, Look
from inferno_optimizer.api.state import StateChange, StoredSystem, body_of, contents_of, with_answer
from inferno_optimizer.errors import InputError
from inferno_optimizer.wire.documents import OPTIONS, Document, parse_json, write_json
from inferno_optimizer.wire.fields import MisfitError, Object

CLIENT_CLOSED_REQUEST = 499
"""Status in the metrics when the client is gone and nobody reads the answer."""

RequestHandler = Callable[[Request], Awaitable[Response]]


class RestServer(Protocol):
    """What every mode can do."""

    @property
    def contents(self) -> StoredSystem:
        """What can be looked at."""

    async def optimize_one(self, body: bytes) -> Reply:
        """Answer optimizeOne."""


class Stateful:
    """Keeps a system, which clients change bit by bit, and optimizes it.

    Nothing is awaited between reading `contents` and replacing it, and there is one thread:
    so there is one writer at a time, without a lock.
    """

    def __init__(self, workers: WorkerPool) -> None:
        self._workers = workers
        self.contents = StoredSystem()

    async def optimize_one(self, body: bytes) -> Reply:
        """Answer optimizeOne; what is kept has no part in it."""
        return await self._workers.solve(body)

    async def optimize(self, options: Document) -> Reply:
        """Optimize what is kept now, and keep what is decided."""
        asked = self.contents
        status, text = await self._workers.solve(write_json(body_of(asked, options)))
        if status == HTTPStatus.OK:
            self.contents = with_answer(self.contents, asked, json.loads(text))
        return status, text

    def apply(self, change: Callable[[StoredSystem], StateChange]) -> object:
        """Change what is kept, and answer."""
        self.contents, answer = change(self.contents)
        return answer


class Stateless:
    """Optimizes whole systems; as in the original, the last one can be looked at."""

    def __init__(self, workers: WorkerPool) -> None:
        self._workers = workers
        self._last = _Optimized()

    @property
    def contents(self) -> StoredSystem:
        """The system of the last optimizeOne that could be read."""
        return self._last.contents

    async def optimize_one(self, body: bytes) -> Reply:
        """Answer optimizeOne."""
        status, text = await self._workers.solve(body)
        if status != HTTPStatus.BAD_REQUEST:
            self._last = _Optimized(body, text if status == HTTPStatus.OK else None)
        return status, text


class _Optimized:
    """A system and what was decided on it; parsed only when somebody looks."""

    def __init__(self, body: bytes = b"null", answer: bytes | None = None) -> None:
        self._body = body
        self._answer = answer

    @cached_property
    def contents(self) -> StoredSystem:
        contents = contents_of(parse_json(self._body))
        if self._answer is None:
            return contents
        return with_answer(contents, contents, json.loads(self._answer))


def look_handler(server: RestServer, look: Look) -> RequestHandler:
    """Show something."""

    async def handle(request: Request) -> Response:
        return json_reply(look.show(server.contents, **request.path_params))

    return handle


def edit_handler(server: Stateful, edit: Edit, limits: ServerLimits) -> RequestHandler:
    """Change something."""

    async def handle(request: Request) -> Response:
        arguments = dict(request.path_params)
        if edit.body is not None:
            arguments["body"] = _read(edit.body, await read_body(request, limits))
        return json_reply(server.apply(partial(edit.change, **arguments)))

    return handle


def optimize_handler(server: Stateful, limits: ServerLimits) -> RequestHandler:
    """Optimize what is kept."""

    async def handle(request: Request) -> Response:
        options = _read(OPTIONS, await read_body(request, limits))
        return await _while_connected(request, server.optimize(options))

    return handle


def optimize_one_handler(server: RestServer, limits: ServerLimits) -> RequestHandler:
    """Optimize what is sent."""

    async def handle(request: Request) -> Response:
        body = await read_body(request, limits)
        return await _while_connected(request, server.optimize_one(body))

    return handle


async def read_body(request: Request, limits: ServerLimits) -> bytes:
    """Read the body of a request.

    Raises
    ------
    Refusal
        It is compressed, too large, too slow, or it ends too soon.
    """
    coding = ", ".join(request.headers.getlist("content-encoding"))
    if coding.strip().lower() not in ("", "identity"):
        message = f"Content-Encoding: {coding}: send the body as it is, not compressed"
        raise Refusal.because(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _bounded(request, limits.body_bytes)
    except TimeoutError as error:
        message = f"the body did not arrive within {limits.body_seconds:g} s"
        raise Refusal.because(HTTPStatus.REQUEST_TIMEOUT, message) from error
    except ClientDisconnect as error:
        raise Refusal.because(
            HTTPStatus.BAD_REQUEST, "the connection closed before the end of the body"
        ) from error


async def _bounded(request: Request, most: int) -> bytes:
    too_large = Refusal.because(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {most} bytes"
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise too_large
    return bytes(body)


def _read(kind: Object[Document], body: bytes) -> Document:
    document = parse_json(body)
    try:
        return kind.zero if document is None else kind.read(document)
    except MisfitError as misfit:
        raise InputError(str(misfit)) from None


async def _while_connected(request: Request, work: Coroutine[Any, Any, Reply]) -> Response:
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
