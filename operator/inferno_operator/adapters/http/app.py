"""Serve `/healthz`, `/readyz`, `/metrics` and the decisions over HTTP.

An error is never a number: an autoscaler that gets no decision changes nothing. Tokens are in files
that may change at any time.
"""

import hmac
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from inferno_operator.controllers.scaling.publication import Published
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.ports import GoneError
from inferno_optimizer.api.connection import serve_in_loop
from inferno_optimizer.api.messages import ServerLimits
from inferno_optimizer.errors import InfernoError, InputError, UnavailableError

SCHEME = "bearer "

CHALLENGE = {"WWW-Authenticate": "Bearer"}

NAMESPACE = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def has_token(request: Request, file: Path) -> bool:
    """Whether a request has the token in a file; compared in constant time.

    Raises
    ------
    UnavailableError
        The file cannot be read, or is empty.
    """
    authorization = request.headers.get("Authorization", "")
    given = authorization[len(SCHEME) :] if authorization.lower().startswith(SCHEME) else ""
    return hmac.compare_digest(given.strip().encode("latin-1"), _read_token(file))


def find_token_file(namespace: str, tokens: Path) -> Path | None:
    """The file with the token of a namespace: one for all, or its own in a folder.

    None if the folder has no file for the namespace.
    """
    if not tokens.is_dir():
        return tokens
    file = tokens / namespace
    return file if NAMESPACE.fullmatch(namespace) and file.is_file() else None


def _read_token(file: Path) -> bytes:
    """Return the token; no message has a part of it."""
    try:
        token = file.read_bytes().strip()
    except OSError as error:
        raise UnavailableError(f"{file}: {error.strerror}") from error
    if not token:
        raise UnavailableError(f"{file} is empty: write a token into it")
    return token


Decide = Callable[[Key], Published]
"""Returns what is published of a Server, or raises `UnavailableError` or `GoneError`."""

SERVER = "/v1/desired/{namespace}/{server}"
ACCELERATOR = SERVER + "/{accelerator:path}"

OFF = "decisions are not published: set INFERNO_PUBLISH_TOKEN_FILE"


class Decisions:
    """The handlers of requests for decisions.

    Parameters
    ----------
    decide
        Returns what is published of a Server.
    tokens
        The file with the bearer token, or a folder with a file for each namespace, named after it;
        read for each request. Without it, nothing is published.
    """

    def __init__(self, decide: Decide, tokens: Path | None) -> None:
        self._decide = decide
        self._tokens = tokens

    def routes(self) -> list[Route]:
        """Return the routes of the handlers."""
        return [Route(path, self._answer) for path in (SERVER, ACCELERATOR)]

    async def _answer(self, request: Request) -> Response:
        if self._tokens is None:
            return _build_error(HTTPStatus.NOT_FOUND, OFF)
        namespace = request.path_params["namespace"]
        try:
            file = find_token_file(namespace, self._tokens)
            if file is None or not has_token(request, file):
                message = f"the bearer token is not the one of the namespace in {self._tokens}"
                return _build_error(HTTPStatus.UNAUTHORIZED, message)
            return JSONResponse(self._document(request.path_params))
        except GoneError as error:
            return _build_error(HTTPStatus.NOT_FOUND, str(error))
        except InfernoError as error:
            return _build_error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _document(self, asked: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the replicas on one accelerator, or those of the whole decision."""
        published = self._decide(Key(asked["namespace"], asked["server"]))
        if "accelerator" in asked:
            accelerator = asked["accelerator"]
            return {"replicas": published.on(accelerator), "accelerator": accelerator}
        decided = published.decided
        whole = {"replicas": sum(decided.values()), "accelerator": next(iter(decided), "")}
        mix = [{"replicas": count, "accelerator": name} for name, count in decided.items()]
        return {**whole, "mix": mix} if len(mix) > 1 else whole


def _build_error(status: HTTPStatus, message: str) -> Response:
    challenge = CHALLENGE if status == HTTPStatus.UNAUTHORIZED else None
    return JSONResponse({"error": message}, status, challenge)


LOOPBACK = "127.0.0.1"

Probe = Callable[[], str]
"""Returns a message about a problem; "" if there is none."""

Page = Callable[[str], tuple[str, bytes]]
"""Returns content type and body for the Accept header of a request."""

logger = logging.getLogger(__name__)


LIMITS = ServerLimits(connections=200)
"""Limits of clients; probes and scrapers need few connections."""


@asynccontextmanager
async def serve(
    host: str,
    port: int,
    probes: tuple[Probe, Probe],
    metrics: Page,
    decisions: Decisions,
    metrics_token: Path | None = None,
) -> AsyncIterator[int]:
    """Serve until the context is left; yields the port.

    Parameters
    ----------
    host
        Address to listen on; "" for all addresses.
    port
        Port to listen on; 0 for any free port.
    probes
        Those of `/healthz` and `/readyz`; they answer 200, or 503 with the message if there is a
        problem.
    metrics
        The page of metrics.
    decisions
        The handlers of requests for decisions.
    metrics_token
        The file with the bearer token of those who read metrics; without it everybody may.

    Raises
    ------
    InputError
        The port cannot be opened.
    """
    routes = [*_probes(*probes), _build_metrics_route(metrics, metrics_token), *decisions.routes()]
    application = Starlette(routes=routes)
    application.router.redirect_slashes = False
    with _open_socket(host, port) as listening:
        bound: int = listening.getsockname()[1]
        async with serve_in_loop(application, listening, LIMITS):
            logger.info("health and metrics on http://%s:%d", host or LOOPBACK, bound)
            yield bound


def _open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; for all addresses, it accepts IPv4 and IPv6."""
    try:
        if host or not socket.has_dualstack_ipv6():
            return socket.create_server((host, port))
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    except OSError as error:
        raise InputError(
            f"cannot listen on port {port} for health and metrics: {os.strerror(error.errno or 0)};"
            " choose another port with --health-port (0: any free port)"
        ) from error


def _probes(healthy: Probe, ready: Probe) -> list[Route]:
    return [Route("/healthz", _answer_probe(healthy)), Route("/readyz", _answer_probe(ready))]


def _build_metrics_route(page: Page, token: Path | None) -> Route:
    async def scrape(request: Request) -> Response:
        try:
            if token is not None and not has_token(request, token):
                message = f"the bearer token is not the one in {token}"
                return JSONResponse({"error": message}, HTTPStatus.UNAUTHORIZED, CHALLENGE)
        except UnavailableError as error:
            return JSONResponse({"error": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)
        content_type, body = page(request.headers.get("Accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    return Route("/metrics", scrape)


def _answer_probe(probe: Probe) -> Callable[[Request], Awaitable[Response]]:
    async def respond(_: Request) -> Response:
        problem = probe()
        status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
        return PlainTextResponse(problem or "ok", status)

    return respond
