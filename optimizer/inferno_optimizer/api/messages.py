"""The limits of a server, and the form of its answers: documents, messages, unknown paths."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match

from inferno_optimizer.wire.codec import write_json

MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server; times in seconds.

    Attributes
    ----------
    head_seconds
        Until the headers of a request have arrived.
    body_bytes, body_seconds
        Size of a request's body, and until it has arrived.
    time_limit
        When the exact solver stops and gives the best plan found.
    solve_seconds
        For a whole optimization, with the start of its process; it is broken off then.
    queue_seconds
        Until an optimization begins.
    workers
        Optimizations at once.
    waiting
        Optimizations that may wait for others to end.
    stop_seconds
        For requests that run when the server is told to stop; then they get 503.
    connections
        Open connections; a new one closes that which waits longest for its client.
    """

    head_seconds: float = 10.0
    body_bytes: int = 64 * MEBIBYTE
    body_seconds: float = 30.0
    time_limit: float = 30.0
    solve_seconds: float = 60.0
    queue_seconds: float = 30.0
    workers: int = 2
    waiting: int = 100
    stop_seconds: float = 5.0
    connections: int = 400

    @classmethod
    def for_solver(cls, time_limit: float) -> "ServerLimits":
        """Limits that leave an exact solver its time, on this machine's cores."""
        workers = max(2, len(os.sched_getaffinity(0)))
        return cls(time_limit=time_limit, solve_seconds=2 * time_limit + 10, workers=workers)


JSON = "application/json; charset=utf-8"

HEADERS = {
    HTTPStatus.REQUEST_TIMEOUT: {"Connection": "close"},  # or the rest of the body is waited for
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: {"Accept-Encoding": "identity"},
}
"""Headers of refusals, by status."""


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault
    """A request is answered with this status and this JSON instead."""

    def __init__(self, status: int, body: object) -> None:
        super().__init__(body)
        self.status = status
        self.body = body

    @classmethod
    def because(cls, status: int, message: str) -> "Refusal":
        """Refuse with a message for a person."""
        return cls(status, {"message": message})


def reply_json(document: object, status: int = HTTPStatus.OK) -> Response:
    """Answer with a document."""
    return reply_encoded(write_json(document), status)


def reply_encoded(text: bytes, status: int = HTTPStatus.OK) -> Response:
    """Answer with JSON that is written already."""
    return Response(text, status, media_type=JSON)


def reply_message(status: int, message: str) -> Response:
    """Answer with a message for a person."""
    return reply_json({"message": message}, status)


async def answer_refusal(_: Request, refusal: Exception) -> Response:
    """Answer a request that was refused."""
    if not isinstance(refusal, Refusal):
        raise refusal
    reply = reply_json(refusal.body, refusal.status)
    reply.headers.update(HEADERS.get(HTTPStatus(refusal.status), {}))
    return reply


async def answer_input_error(_: Request, error: Exception) -> Response:
    """Answer a request whose body cannot be read."""
    return reply_message(HTTPStatus.BAD_REQUEST, str(error))


async def answer_defect(_: Request, __: Exception) -> Response:
    """Answer a request that met a defect of the server; the log has the traceback."""
    message = "this should not have happened; the server's log tells more"
    return reply_message(HTTPStatus.INTERNAL_SERVER_ERROR, message)


def answer_unrouted(routes: Sequence[BaseRoute], request: Request) -> Response:
    """Answer for an unknown path, or another verb on a known one, as the original does.

    A path with a slash too many is redirected to the one that was meant.
    """
    meant = {**request.scope, "path": request.scope["path"].removesuffix("/")}
    slash = meant["path"] != request.scope["path"]
    if not slash or not any(route.matches(meant)[0] is Match.FULL for route in routes):
        plain = {"Content-Type": "text/plain"}
        return Response("404 page not found", HTTPStatus.NOT_FOUND, plain)
    location = request.scope["raw_path"].decode().removesuffix("/")
    if request.method != "GET":
        return RedirectResponse(location, HTTPStatus.TEMPORARY_REDIRECT)
    page = f'<a href="{escape(location)}">Moved Permanently</a>.\n\n'
    return HTMLResponse(page, HTTPStatus.MOVED_PERMANENTLY, {"Location": location})
