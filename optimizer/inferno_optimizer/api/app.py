"""The parts of a REST optimizer, put together."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from inferno_optimizer.api.endpoints import EDITS, LOOKS
from inferno_optimizer.api.handlers import (
    Handler,
    edit_handler,
    look_handler,
    optimize_handler,
    optimize_one_handler,
)
from inferno_optimizer.api.limits import Limits
from inferno_optimizer.api.metrics import Counted, Metrics
from inferno_optimizer.api.openapi import describe
from inferno_optimizer.api.refusals import Refusal
from inferno_optimizer.api.replies import json_reply, message_reply
from inferno_optimizer.api.solving import Solver
from inferno_optimizer.api.stateful import Stateful
from inferno_optimizer.api.stateless import Stateless
from inferno_optimizer.api.unrouted import answer_unrouted
from inferno_optimizer.errors import InputError

Call = tuple[str, str, Handler]
"""Method, path, and what answers."""


def create_app(limits: Limits, *, stateful: bool = False, guarded: bool = False) -> Starlette:
    """A REST optimizer.

    Parameters
    ----------
    limits
        How much and how long.
    stateful
        Whether it keeps a system that clients change.
    guarded
        Whether a guard before it asks for a token; its description says so.
    """
    solver = Solver(limits)
    metrics = Metrics(solver)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await solver.start()
        yield
        await solver.close()

    calls = _stateful_calls(solver, limits) if stateful else _stateless_calls(solver, limits)
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
            Refusal: _refused,
            InputError: _unreadable,
            Exception: _broken,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # `unrouted` does
    return app


def _stateless_calls(solver: Solver, limits: Limits) -> Iterator[Call]:
    server = Stateless(solver)
    yield "POST", "/optimizeOne", optimize_one_handler(server, limits)
    for look in LOOKS:
        yield "GET", look.path, look_handler(server, look)


def _stateful_calls(solver: Solver, limits: Limits) -> Iterator[Call]:
    server = Stateful(solver)
    yield "POST", "/optimizeOne", optimize_one_handler(server, limits)
    yield "POST", "/optimize", optimize_handler(server, limits)
    for look in LOOKS:
        yield "GET", look.path, look_handler(server, look)
    for edit in EDITS:
        method = "GET" if edit.body is None else "POST"
        yield method, edit.path, edit_handler(server, edit, limits)


def _own_calls(metrics: Metrics, description: object) -> Iterator[Call]:
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


def _route(call: Call, metrics: Metrics) -> Route:
    method, path, handler = call
    counted = Middleware(Counted, path=path, metrics=metrics)
    route = Route(path, handler, methods=[method], middleware=[counted])
    route.methods = {method}  # no HEAD: some calls by GET change things
    return route


async def _refused(_: Request, refusal: Exception) -> Response:
    if not isinstance(refusal, Refusal):
        raise refusal
    reply = json_reply(refusal.body, refusal.status)
    if refusal.status == HTTPStatus.REQUEST_TIMEOUT:
        reply.headers["Connection"] = "close"  # or the rest of the body would be waited for
    return reply


async def _unreadable(_: Request, error: Exception) -> Response:
    return message_reply(HTTPStatus.BAD_REQUEST, str(error))


async def _broken(_: Request, __: Exception) -> Response:
    message = "this should not have happened; the server's log tells more"
    return message_reply(HTTPStatus.INTERNAL_SERVER_ERROR, message)
