"""Serve the console on the loopback address until Ctrl-C."""

import asyncio
import errno
import socket
import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.cli.kubectl.console.access import LocalAccess, said
from inferno_operator.cli.kubectl.console.app import console_app
from inferno_operator.cli.kubectl.console.news import News
from inferno_operator.cli.kubectl.console.page import ConsoleSettings
from inferno_optimizer.api.stopping import RunningRequests, StoppingServer
from inferno_optimizer.errors import InputError

LOOPBACK = "127.0.0.1"
CLOSE_S = 1
"""How long open pages may end what they do [s]."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a console listens, and with which certificate; without one, a proxy ends TLS."""

    host: str
    port: int = 0
    certificate: Path | None = None
    private_key: Path | None = None


LOCAL = Listener(LOOPBACK)


async def serve(
    session: Session,
    port: int,
    settings: ConsoleSettings,
    tell: Callable[[str], None],
    *,
    browser: bool,
) -> None:
    """Serve the console.

    Parameters
    ----------
    session
        The namespace, and the rights of the user.
    port
        Where to listen on the loopback address; 0 takes a free one.
    settings
        What pages show costs in, and where the operator runs.
    tell
        Receives the address.
    browser
        Whether to open it in the browser, too.

    Raises
    ------
    InputError
        The port is in use.
    InfernoError
        The namespace cannot be read.
    """
    await session.optimizers()
    with _listening(port) as listening:
        access, news = LocalAccess(listening.getsockname()[1]), News(session, time.process_time)
        server = _server(console_app(session, access, news, settings))
        tell(access.address)
        if browser:
            await asyncio.to_thread(webbrowser.open, access.address)
        async with news.followed():
            await server.serve([listening])
    tell("the console has ended")


async def serve_hosted(console: ASGIApp, listener: Listener) -> None:
    """Serve a console that people log in to, until the process is told to end.

    Raises
    ------
    InputError
        The certificate or its key cannot be used.
    """
    server = _server(console, listener)
    try:
        server.config.load()
    except OSError as error:  # ssl.SSLError is one
        raise InputError(f"--certificate {listener.certificate}: {error}") from error
    await server.serve()


def _server(console: ASGIApp, listener: Listener = LOCAL) -> StoppingServer:
    """A server that ends without a word, whatever it serves then."""
    requests = RunningRequests(console, said(HTTPStatus.SERVICE_UNAVAILABLE, "the console ends"))
    config = uvicorn.Config(
        requests,
        host=listener.host,
        port=listener.port,
        ssl_certfile=listener.certificate,
        ssl_keyfile=listener.private_key,
        lifespan="off",
        access_log=False,  # addresses hold the token
        log_level="warning",
        server_header=False,
    )
    return StoppingServer(config, requests, CLOSE_S)


def _listening(port: int) -> socket.socket:
    """A socket at the port."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen()  # whoever is told the address may come before the server runs
    except OSError as error:
        listening.close()
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise InputError(f"--port {port}: {error.strerror}; 0 takes a free one") from error
    return listening
