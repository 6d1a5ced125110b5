"""Serve the console: on the loopback address until Ctrl-C, or to a proxy."""

import asyncio
import errno
import socket
import ssl
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
    """Where a console listens, and with which certificate; without one, it speaks plain HTTP."""

    host: str
    port: int = 0
    certificate: Path | None = None
    private_key: Path | None = None

    @property
    def files(self) -> str:
        """The options that name its files."""
        key = f", --private-key {self.private_key}" if self.private_key else ""
        return f"--certificate {self.certificate}{key}"


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
    with _listening(Listener(LOOPBACK, port)) as listening:
        access, news = LocalAccess(listening.getsockname()[1]), News(session, time.process_time)
        server = _server(console_app(session, access, news, settings))
        tell(access.address)
        if browser:
            await asyncio.to_thread(webbrowser.open, access.address)
        async with news.followed():
            await server.serve([listening])
    tell("the console has ended")


async def serve_proxied(console: ASGIApp, listener: Listener, tell: Callable[[str], None]) -> None:
    """Serve a console behind a proxy, until the process is told to end.

    Parameters
    ----------
    console
        What is served.
    listener
        Where, and with which certificate.
    tell
        Receives where it listens.

    Raises
    ------
    InputError
        The certificate or its key cannot be used, or the host or port.
    """
    server = _server(console, listener)
    try:
        server.config.load()
    except OSError as error:  # ssl.SSLError is one
        raise InputError(f"{listener.files}: {_why(error)}") from error
    with _listening(listener) as listening:
        tell(f"listening on {listener.host}, port {listening.getsockname()[1]}")
        await server.serve([listening])


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


def _why(error: OSError) -> str:
    """Why a certificate and its key cannot be used."""
    if isinstance(error, ssl.SSLError):
        return "no certificate with its private key, in PEM"
    return error.strerror or str(error)


def _listening(listener: Listener) -> socket.socket:
    """A socket at the address."""
    listening = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((listener.host, listener.port))
        listening.listen()  # whoever is told the address may come before the server runs
    except OSError as error:
        listening.close()
        where = f"--host {listener.host}, " if listener.host != LOOPBACK else ""
        advice = "; 0 takes a free one" if error.errno in (errno.EADDRINUSE, errno.EACCES) else ""
        raise InputError(f"{where}--port {listener.port}: {error.strerror}{advice}") from error
    return listening
