"""The application: handlers, metrics and the description behind their paths."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from inferno_optimizer.api.handlers import (
    RequestHandler,
    Stateful,
    Stateless,
    edit_handler,
    look_handler,
    optimize_handler,
    optimize_one_handler,
)
from inferno_optimizer.api.limits import ServerLimits
from inferno_optimizer.api.messages import (
    Refusal,
    answer_defect,
    answer_input_error,
    answer_refusal,
    answer_unrouted,
    json_reply,
)
from inferno_optimizer.api.metrics import Counted, OptimizerMetrics
from inferno_optimizer.api.openapi import describe
from inferno_optimizer.api.pool import WorkerPool
from inferno_optimizer.api.routes import EDITS, LOOKS
from inferno_optimizer.errors import InputError

Call = tuple[str, str, RequestHandler]
"""Method, path, and what answers."""


def create_app(limits: ServerLimits, *, stateful: bool = False, guarded: bool = False) -> Starlette:
    """A REST optimizer.

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

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await workers.start()
        yield

    calls = _stateful_calls(workers, limits) if stateful else _stateless_calls(workers, limits)
    description = describe(stateful=stateful, guarded=guarded)
    routes = [
        *(_route(call, metrics) for call in calls),
        *(_route(call, metrics) for call in _own_calls(metrics, description)),
    ]

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


def _stateless_calls(workers: WorkerPool, limits: ServerLimits) -> Iterator[Call]:
    server = Stateless(workers)
    yield "POST", "/optimizeOne", optimize_one_handler(server, limits)
    for look in LOOKS:
        yield "GET", look.path, look_handler(server, look)


def _stateful_calls(workers: WorkerPool, limits: ServerLimits) -> Iterator[Call]:
    server = Stateful(workers)
    yield "POST", "/optimizeOne", optimize_one_handler(server, limits)
    yield "POST", "/optimize", optimize_handler(server, limits)
    for look in LOOKS:
        yield "GET", look.path, look_handler(server, look)
    for edit in EDITS:
        method = "GET" if edit.body is None else "POST"
        yield method, edit.path, edit_handler(server, edit, limits)


def _own_calls(metrics: OptimizerMetrics, description: object) -> Iterator[Call]:
    async def fine(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def measured(_: Request) -> Response:
        return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def described(_: Request) -> Response:
        return json_reply(description)

    yield "GET", "/healthz", fine
    yield "GET", "/readyz", fine  # it listens only after the first worker is there
    yield "GET", "/metrics", measured
    yield "GET", "/openapi.json", described


def _route(call: Call, metrics: OptimizerMetrics) -> Route:
    method, path, handler = call
    counted = Middleware(Counted, path=path, metrics=metrics)
    route = Route(path, handler, methods=[method], middleware=[counted])
    route.methods = {method}  # no HEAD: some calls by GET change things
    return route
