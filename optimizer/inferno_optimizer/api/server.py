"""The server of `inferno serve`: where it listens, TLS and token from files, how it stops."""

import hmac
import logging
import os
import re
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Generic, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from inferno_optimizer.api.app import create_app
from inferno_optimizer.api.connection import (
    EndingRequests,
    OriginForm,
    QuietServer,
    configure_http,
    send_at_once,
)
from inferno_optimizer.api.messages import ServerLimits, reply_message
from inferno_optimizer.errors import InputError

T = TypeVar("T")

Signature = list[tuple[int, int, int]]

logger = logging.getLogger(__name__)

OPEN = ("/healthz", "/readyz")
"""Paths that need no token."""


@dataclass(frozen=True, slots=True)
class Files:
    """Files that secure a server; with an authority, clients need a certificate of it."""

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    token: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InputError(
                "TLS takes both a certificate (INFERNO_TLS_CERT, --tls-cert) and its key"
                " (INFERNO_TLS_KEY, --tls-key)"
            )
        if self.authority is not None and self.certificate is None:
            message = "INFERNO_TLS_CA takes INFERNO_TLS_CERT and INFERNO_TLS_KEY as well"
            raise InputError(message)


class FileCache(Generic[T]):
    """A value that is made from files, and made anew when they change.

    Parameters
    ----------
    paths
        The files.
    load
        Makes the value, or raises an InputError; its message is logged and must hold no
        secrets.

    Raises
    ------
    InputError
        The value cannot be made to begin with.
    """

    def __init__(self, paths: Sequence[Path], load: Callable[[], T]) -> None:
        self._paths = paths
        self._load = load
        self._signature = self._sign()
        self._value = load()

    def current(self) -> T:
        """The value, or the last one that could be made: files may be half replaced."""
        signature = self._sign()
        if signature != self._signature:
            try:
                self._value = self._load()
            except InputError as error:
                logger.warning("%s; what was there before is still used", error)
            self._signature = signature
        return self._value

    def _sign(self) -> Signature:
        """A value that changes with the files."""
        try:
            states = [path.stat() for path in self._paths]
        except OSError:
            return []
        return [(state.st_mtime_ns, state.st_size, state.st_ino) for state in states]


def read_token(path: Path) -> bytes:
    """Read a bearer token.

    Raises
    ------
    InputError
        The file cannot be read, or holds none.
    """
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise InputError(f"INFERNO_TOKEN_FILE: {path}: {error.strerror}") from error
    if not token:
        raise InputError(f"INFERNO_TOKEN_FILE: {path}: is empty")
    return token


class TokenGuard:
    """Lets only requests with the token through, and probes."""

    def __init__(self, app: ASGIApp, path: Path) -> None:
        self._app = app
        self._token = FileCache([path], lambda: read_token(path))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http" or scope["path"] in OPEN or self._is_authorized(scope):
            await self._app(scope, receive, send)
            return
        reply = reply_message(HTTPStatus.UNAUTHORIZED, "send the token: Authorization: Bearer ...")
        reply.headers["WWW-Authenticate"] = "Bearer"
        await reply(scope, receive, send)

    def _is_authorized(self, scope: Scope) -> bool:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        sent = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, token = sent.partition(b" ")
        matches = hmac.compare_digest(token.strip(), self._token.current())
        return matches and scheme.lower() == b"bearer"


def create_tls_context(files: Files) -> ssl.SSLContext | None:
    """A context whose certificate is read anew for a handshake after it changed; None without.

    Raises
    ------
    InputError
        The files cannot be used.
    """
    if files.certificate is None:
        return None
    paths = [path for path in (files.certificate, files.key, files.authority) if path is not None]
    cache = FileCache(paths, lambda: _load_context(files))
    listening = _load_context(files)

    def choose(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        connection.context = cache.current()

    listening.sni_callback = choose
    return listening


def _load_context(files: Files) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(files.certificate or "", files.key, password="")
        if files.authority is not None:
            context.load_verify_locations(files.authority)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:  # an SSLError is one too
        raise InputError(f"TLS: {_describe_tls_error(files, error)}") from error
    return context


def _describe_tls_error(files: Files, error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        names = ", ".join(str(p) for p in (files.certificate, files.key, files.authority) if p)
        return f"{names}: {error.reason or error}"
    missing = [p for p in (files.certificate, files.key, files.authority) if p and not p.is_file()]
    return f"{missing[0] if missing else files.certificate}: {error.strerror}"


PORT = re.compile("[0-9]{1,5}")
LARGEST_PORT = 65535
STOPPING = "the server is stopping; send it again"


def run_server(
    host: str,
    port: int,
    limits: ServerLimits,
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
        Sizes, times and counts.
    files
        Certificates and token.
    say
        Called with the line that tells where it listens.
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
    # At the end anyio kills a worker twice, and asyncio tells when it was gone the second time.
    logging.getLogger("asyncio").addFilter(lambda record: "Unknown child process" not in record.msg)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of each worker: they are many
    guarded = files.token is not None
    app: ASGIApp = create_app(limits, stateful=stateful, guarded=guarded)
    if files.token is not None:
        app = TokenGuard(app, files.token)
    app = OriginForm(app)
    tls = create_tls_context(files)
    with listen(host, port) as listening:
        mode = "stateful" if stateful else "stateless"
        where = build_url(listening, secure=tls is not None)
        app = EndingRequests(app, reply_message(HTTPStatus.SERVICE_UNAVAILABLE, STOPPING))
        config = configure_http(app, limits, tls, lifespan=True)
        QuietServer(config, partial(say, f"listening on {where} ({mode})")).run([listening])


def read_port(text: str) -> int:
    """Read a port.

    Raises
    ------
    InputError
        It is not a port; the message explains the value that Kubernetes may have put there.
    """
    if "://" in text:
        raise InputError(
            f"INFERNO_PORT: {text!r} is the address of a Service called inferno, which Kubernetes"
            " put into the environment (a service link); set enableServiceLinks: false in the"
            " pod, or INFERNO_PORT or --port to a number"
        )
    if not PORT.fullmatch(text) or int(text) > LARGEST_PORT:
        raise InputError(f"INFERNO_PORT or --port: {text!r} is no port: 0 to {LARGEST_PORT}")
    return int(text)


def listen(host: str, port: int) -> socket.socket:
    """Listen; on port 0 on one that is free.

    Raises
    ------
    InputError
        Nobody can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except socket.gaierror as error:
        raise InputError(f"cannot listen on {host}: {error.strerror}") from error
    except OSError as error:
        reason = os.strerror(error.errno or 0)  # without the address, which is there already
        raise InputError(f"cannot listen on {host}, port {port}: {reason}") from error
    except UnicodeError as error:
        raise InputError(f"cannot listen on {host}: no name of a host") from error
    send_at_once(listening)
    return listening


def build_url(listening: socket.socket, *, secure: bool) -> str:
    """The address of a server, as people write it."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
