"""`inferno serve`: listen, and serve until told to stop."""

import asyncio
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from inferno_optimizer.api.app import create_app
from inferno_optimizer.api.draining import Requests
from inferno_optimizer.api.limits import Limits
from inferno_optimizer.api.listening import listen, url_of
from inferno_optimizer.api.patience import patient
from inferno_optimizer.api.security import Files, TokenGuard, tls_context

KEEP_ALIVE = 30
"""Seconds until an idle connection is closed."""


def serve(
    host: str,
    port: int,
    limits: Limits,
    files: Files,
    say: Callable[[str], None],
    *,
    stateful: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Parameters
    ----------
    host, port
        Where to listen; port 0 for a free one.
    limits
        How much and how long.
    files
        Certificates and token.
    say
        Told where it listens.
    stateful
        Whether to keep a system that clients change.

    Raises
    ------
    InputError
        It cannot listen there, or the files cannot be used.
    """
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    guarded = files.token is not None
    app: ASGIApp = create_app(limits, stateful=stateful, guarded=guarded)
    if files.token is not None:
        app = TokenGuard(app, files.token)
    tls = tls_context(files)
    with listen(host, port) as listening:
        mode = "stateful" if stateful else "stateless"
        where = url_of(listening, secure=tls is not None)
        server = _Server(Requests(app), tls, limits, lambda: say(f"listening on {where} ({mode})"))
        server.run([listening])


class _Server(uvicorn.Server):
    """Ends quietly: what runs gets a while, then it is told that there is no more."""

    def __init__(
        self,
        requests: Requests,
        tls: ssl.SSLContext | None,
        limits: Limits,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(
            uvicorn.Config(
                requests,
                http=patient(limits.head_seconds),
                ws="none",
                lifespan="on",
                ssl_context_factory=None if tls is None else lambda _, __: tls,
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE,
            )
        )
        self._requests = requests
        self._stop_seconds = limits.stop_seconds
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell when it listens."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what runs when it had its time."""
        ending = asyncio.create_task(self._requests.end_after(self._stop_seconds))
        await super().shutdown(sockets)
        await ending

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on signals; unlike the base, which raises them again when all is done."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.should_exit = True
