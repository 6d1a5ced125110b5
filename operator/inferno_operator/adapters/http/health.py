"""Serve `/healthz`, `/readyz`, `/metrics` and the decisions over HTTP."""

import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from inferno_operator.adapters.http.decisions import Decisions
from inferno_optimizer.errors import InputError

LOOPBACK = "127.0.0.1"

Probe = Callable[[], str]
"""Returns a message about a problem; "" if there is none."""

Page = Callable[[str], tuple[str, bytes]]
"""Returns content type and body for the Accept header of a request."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def serve(
    host: str, port: int, healthy: Probe, ready: Probe, metrics: Page, decisions: Decisions
) -> AsyncIterator[int]:
    """Serve until the context is left; yields the port.

    Parameters
    ----------
    host
        Address to listen on; "" for all addresses.
    port
        Port to listen on; 0 for any free port.
    healthy, ready
        The probes; they answer 200, or 503 with the message if there is a problem.
    metrics
        The page of metrics.
    decisions
        The handlers of requests for decisions.

    Raises
    ------
    InputError
        The port cannot be opened.
    """
    runner = web.AppRunner(_application(healthy, ready, metrics, decisions), access_log=None)
    listening = _listen(host, port)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        bound: int = listening.getsockname()[1]
        logger.info("health and metrics on http://%s:%d", host or LOOPBACK, bound)
        yield bound
    finally:
        await runner.cleanup()
        listening.close()


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


def _application(
    healthy: Probe, ready: Probe, metrics: Page, decisions: Decisions
) -> web.Application:
    async def scrape(request: web.Request) -> web.Response:
        content_type, body = metrics(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    application = web.Application()
    application.router.add_get("/healthz", _answer(healthy))
    application.router.add_get("/readyz", _answer(ready))
    application.router.add_get("/metrics", scrape)
    application.add_routes(decisions.routes())
    return application


def _answer(probe: Probe) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(_: web.Request) -> web.Response:
        problem = probe()
        status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
        return web.Response(status=status, text=problem or "ok")

    return respond
