"""Serve `/healthz`, `/readyz`, `/metrics` and the decisions over HTTP."""

import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from inferno_operator.adapters.http.decisions import Decisions
from inferno_operator.adapters.http.tokens import CHALLENGE, shows_token
from inferno_optimizer.api.connection import serve_in_loop
from inferno_optimizer.api.messages import ServerLimits
from inferno_optimizer.errors import InputError, UnavailableError

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
    routes = [*_probes(*probes), _metrics(metrics, metrics_token), *decisions.routes()]
    application = Starlette(routes=routes)
    application.router.redirect_slashes = False
    with _listen(host, port) as listening:
        bound: int = listening.getsockname()[1]
        async with serve_in_loop(application, listening, LIMITS):
            logger.info("health and metrics on http://%s:%d", host or LOOPBACK, bound)
            yield bound


def _listen(host: str, port: int) -> socket.socket:
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
    return [Route("/healthz", _answer(healthy)), Route("/readyz", _answer(ready))]


def _metrics(page: Page, token: Path | None) -> Route:
    async def scrape(request: Request) -> Response:
        try:
            if token is not None and not shows_token(request, token):
                message = f"the bearer token is not the one in {token}"
                return JSONResponse({"error": message}, HTTPStatus.UNAUTHORIZED, CHALLENGE)
        except UnavailableError as error:
            return JSONResponse({"error": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)
        content_type, body = page(request.headers.get("Accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    return Route("/metrics", scrape)


def _answer(probe: Probe) -> Callable[[Request], Awaitable[Response]]:
    async def respond(_: Request) -> Response:
        problem = probe()
        status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
        return PlainTextResponse(problem or "ok", status)

    return respond
