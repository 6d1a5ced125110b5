"""The application: from a request to an optimization in a worker process, and to its answer.

    request --> body, within the limits --> what is kept: shown, changed
                                        --> WorkerPool --> `worker.answer` in a process --> answer

All paths but those of `_own_calls` are in the tables of `state`, of which `openapi` describes them.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from anyio import BrokenWorkerProcess
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferno_optimizer.api.messages import (
    Refusal,
    ServerLimits,
    answer_defect,
    answer_input_error,
    answer_refusal,
    answer_unrouted,
    reply_encoded,
    reply_json,
)
from inferno_optimizer.api.openapi import describe
from inferno_optimizer.api.state import (
    EDITS,
    LOOKS,
    Edit,
    Look,
    StateChange,
    StoredSystem,
    build_question,
    store_answer,
    store_system,
)
from inferno_optimizer.api.worker import answer
from inferno_optimizer.errors import InputError
from inferno_optimizer.wire.codec import parse_json
from inferno_optimizer.wire.fields import Document, MisfitError, Object
from inferno_optimizer.wire.tables import OPTIONS
from inferno_optimizer.workers import call_in_worker

CLIENT_CLOSED_REQUEST = 499
"""Status in the metrics when the client is gone and nobody reads the answer."""

Reply = tuple[int, bytes]
"""Status and JSON."""

RequestHandler = Callable[[Request], Awaitable[Response]]

Call = tuple[str, str, RequestHandler]
"""Method, path, and what answers."""


def create_app(limits: ServerLimits, *, stateful: bool = False, guarded: bool = False) -> Starlette:
    """Create a REST optimizer.

    Parameters
    ----------
    limits
        Sizes, times and counts.
    stateful
        Whether it keeps a system that clients change.
    guarded
        Whether a guard before it asks for a token; its description says so.
    """
    workers = WorkerPool(limits)
    metrics = OptimizerMetrics(workers)
    calls = (
        *_published_calls(Stateful(workers) if stateful else Stateless(workers), limits),
        *_own_calls(metrics, describe(stateful=stateful, guarded=guarded)),
    )
    routes = [
        Route(path, handler, middleware=[Middleware(RequestCounter, path=path, metrics=metrics)])
        for _, path, handler in calls
    ]
    for (method, *_), route in zip(calls, routes, strict=True):
        route.methods = {method}  # no HEAD: some calls by GET change things

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await workers.start()
        yield

    async def unrouted(request: Request, _: Exception) -> Response:
        return answer_unrouted(routes, request)

    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: unrouted,
            Refusal: answer_refusal,
            InputError: answer_input_error,
            Exception: answer_defect,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # `unrouted` does
    return app


def _published_calls(server: "Stateful | Stateless", limits: ServerLimits) -> Iterator[Call]:
    yield "POST", "/optimizeOne", handle_optimize_one(server, limits)
    for look in LOOKS:
        yield "GET", look.path, handle_look(server, look)
    if isinstance(server, Stateful):
        yield "POST", "/optimize", handle_optimize(server, limits)
        for edit in EDITS:
            yield edit.method, edit.path, handle_edit(server, edit, limits)


def _own_calls(metrics: "OptimizerMetrics", description: object) -> Iterator[Call]:
    async def show_health(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def show_metrics(_: Request) -> Response:
        return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def show_description(_: Request) -> Response:
        return reply_json(description)

    yield "GET", "/healthz", show_health
    yield "GET", "/readyz", show_health  # it listens only after the first worker is there
    yield "GET", "/metrics", show_metrics
    yield "GET", "/openapi.json", show_description


def handle_look(server: "Stateful | Stateless", look: Look) -> RequestHandler:
    """Show something."""

    async def handle(request: Request) -> Response:
        return reply_json(look.show(server.contents, **request.path_params))

    return handle


def handle_edit(server: "Stateful", edit: Edit, limits: ServerLimits) -> RequestHandler:
    """Change something."""

    async def handle(request: Request) -> Response:
        arguments = dict(request.path_params)
        if edit.body is not None:
            arguments["body"] = _read_document(edit.body, await read_body(request, limits))
        return reply_json(server.apply(partial(edit.change, **arguments)))

    return handle


def handle_optimize(server: "Stateful", limits: ServerLimits) -> RequestHandler:
    """Optimize what is kept."""

    async def handle(request: Request) -> Response:
        options = _read_document(OPTIONS, await read_body(request, limits))
        return await _answer_while_connected(request, server.optimize(options))

    return handle


def handle_optimize_one(server: "Stateful | Stateless", limits: ServerLimits) -> RequestHandler:
    """Optimize what is sent."""

    async def handle(request: Request) -> Response:
        body = await read_body(request, limits)
        return await _answer_while_connected(request, server.optimize_one(body))

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
    too_large = Refusal.because(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {limits.body_bytes} bytes"
    )
    announced = request.headers.get("content-length", "")
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            if announced.isdecimal() and int(announced) > limits.body_bytes:
                raise too_large
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body_bytes:
                    raise too_large
    except TimeoutError as error:
        message = f"the body did not arrive within {limits.body_seconds:g} s"
        raise Refusal.because(HTTPStatus.REQUEST_TIMEOUT, message) from error
    except ClientDisconnect as error:
        raise Refusal.because(
            HTTPStatus.BAD_REQUEST, "the connection closed before the end of the body"
        ) from error
    return bytes(body)


def _read_document(kind: Object[Any], body: bytes) -> Document:
    try:
        return kind.keep(parse_json(body))
    except MisfitError as misfit:
        raise InputError(str(misfit)) from None


async def _answer_while_connected(
    request: Request, optimization: Coroutine[Any, Any, Reply]
) -> Response:
    """Answer with what an optimization gives; it ends when the client does not wait for it."""

    async def wait_for_disconnection() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass  # the body has been read already

    solving = asyncio.create_task(optimization)
    hanging_up = asyncio.create_task(wait_for_disconnection())
    try:
        await asyncio.wait((solving, hanging_up), return_when=asyncio.FIRST_COMPLETED)
        if not solving.done():
            raise Refusal.because(CLIENT_CLOSED_REQUEST, "the client is gone")
        status, text = solving.result()
        return reply_encoded(text, status)
    finally:
        solving.cancel()
        hanging_up.cancel()


class Stateful:
    """Keeps a system, which clients change bit by bit, and optimizes it.

    Nothing is awaited between reading `contents` and replacing it, and there is one thread:
    so there is one writer at a time, without a lock.
    """

    def __init__(self, workers: "WorkerPool") -> None:
        self._workers = workers
        self.contents = StoredSystem()

    async def optimize_one(self, body: bytes) -> Reply:
        """Answer optimizeOne; what is kept has no part in it."""
        return await self._workers.solve(body)

    async def optimize(self, options: Document) -> Reply:
        """Optimize what is kept now, and keep what is decided."""
        asked = self.contents
        status, text = await self._workers.solve(build_question(asked, options))
        if status == HTTPStatus.OK:
            self.contents = store_answer(self.contents, asked, json.loads(text))
        return status, text

    def apply(self, change: Callable[[StoredSystem], StateChange]) -> object:
        """Change what is kept, and answer."""
        self.contents, answer = change(self.contents)
        return answer


class Stateless:
    """Optimizes whole systems; as in the original, the last one can be looked at."""

    def __init__(self, workers: "WorkerPool") -> None:
        self._workers = workers
        self._body, self._answer = b"null", b""
        self._contents: StoredSystem | None = None

    @property
    def contents(self) -> StoredSystem:
        """The system of the last optimizeOne that could be read; read only when somebody looks."""
        if self._contents is None:
            contents = store_system(parse_json(self._body))
            if self._answer:
                contents = store_answer(contents, contents, json.loads(self._answer))
            self._contents = contents
        return self._contents

    async def optimize_one(self, body: bytes) -> Reply:
        """Answer optimizeOne."""
        status, text = await self._workers.solve(body)
        if status != HTTPStatus.BAD_REQUEST:
            self._body, self._answer = body, text if status == HTTPStatus.OK else b""
            self._contents = None
        return status, text


class WorkerPool:
    """Optimizes on a bounded number of workers, which are started when they are needed.

    A process can be killed when it takes too long, or when nobody waits for its answer any more;
    another one takes about a second to start.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.workers)
        self.running = 0
        self.waiting = 0

    async def start(self) -> None:
        """Start the first worker and see that it works, so that nobody has to wait for it."""
        await self._free.acquire()
        await self._run(b"null")

    async def solve(self, question: bytes | Document) -> Reply:
        """Answer a question of `worker.answer`; when cancelled that ends too.

        Raises
        ------
        Refusal
            Too many optimizations wait, or this one took too long, or its process ended.
        """
        await self._wait_in_line()
        self.running += 1
        try:
            async with asyncio.timeout(self._limits.solve_seconds):
                return await self._run(question)
        except TimeoutError as error:
            message = f"the optimization took longer than {self._limits.solve_seconds:g} s"
            raise Refusal.because(HTTPStatus.GATEWAY_TIMEOUT, f"{message}; send less") from error
        except BrokenWorkerProcess as error:
            message = "the optimization broke off; is there enough memory?"
            raise Refusal.because(HTTPStatus.INTERNAL_SERVER_ERROR, message) from error
        finally:
            self.running -= 1

    async def _wait_in_line(self) -> None:
        if self._free.locked() and self.waiting >= self._limits.waiting:
            raise _refuse_as_busy(f"{self.waiting} optimizations are waiting already")
        self.waiting += 1
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await self._free.acquire()
        except TimeoutError as error:
            message = f"others took all of {self._limits.queue_seconds:g} s"
            raise _refuse_as_busy(message) from error
        finally:
            self.waiting -= 1

    async def _run(self, question: bytes | Document) -> Reply:
        return await call_in_worker(self._free, answer, question, self._limits.time_limit)


def _refuse_as_busy(why: str) -> Refusal:
    return Refusal.because(HTTPStatus.SERVICE_UNAVAILABLE, f"busy: {why}; try again later")


class OptimizerMetrics:
    """What a server counts, for Prometheus, in a registry of its own."""

    def __init__(self, workers: WorkerPool) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "inferno_http_requests",
            "Requests that were answered.",
            ["path", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "inferno_http_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["path"],
            registry=self._registry,
        )
        running = Gauge("inferno_solves_running", "Optimizations at work.", registry=self._registry)
        running.set_function(lambda: workers.running)
        waiting = Gauge("inferno_solves_waiting", "Optimizations in line.", registry=self._registry)
        waiting.set_function(lambda: workers.waiting)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def page(self) -> bytes:
        """What a scraper gets."""
        return generate_latest(self._registry)


class RequestCounter:
    """Counts what is answered on a path."""

    def __init__(self, app: ASGIApp, path: str, metrics: OptimizerMetrics) -> None:
        self._app, self._path, self._metrics = app, path, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request and count it."""
        start = time.perf_counter()

        async def watch(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                self._metrics.count(self._path, message["status"], time.perf_counter() - start)

        await self._app(scope, receive, watch)
