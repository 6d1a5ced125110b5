"""A server in a thread that answers as Prometheus does, or as a test wants it to."""

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint

HOST = "127.0.0.1"
TIME = 1795299903.075
"""When the usual answers were evaluated, Unix time [s]."""

UP = {"metric": {"__name__": "up"}, "value": [TIME, "1"]}


@dataclass(frozen=True, slots=True)
class Reply:
    """A response; the connection is closed without one if the status is 0."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Act = Callable[[socket.socket], None]
"""Writes to the connection whatever it wants to, in place of a response."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: where it went, and the parameters in its URL and its form."""

    method: str
    path: str
    params: list[tuple[str, str]]
    form: list[tuple[str, str]]
    headers: dict[str, str]
    certificate: Mapping[str, Any]
    """That of the client, as `ssl` reads it; empty without one."""


def success(data: object, **more: object) -> Reply:
    """An answer with data."""
    document = {"status": "success", "data": data, **more}
    return Reply(200, json.dumps(document).encode(), {"Content-Type": "application/json"})


def vector(*result: object, **more: object) -> Reply:
    """An answer with a vector."""
    return success({"resultType": "vector", "result": result}, **more)


def error(status: int, kind: str, text: str, **headers: str) -> Reply:
    """An answer that refuses a query, as Prometheus words it."""
    document = {"status": "error", "errorType": kind, "error": text}
    return Reply(status, json.dumps(document).encode(), headers)


def compressed(reply: Reply) -> Reply:
    """The same answer, compressed."""
    headers = {**reply.headers, "Content-Encoding": "gzip"}
    return Reply(reply.status, gzip.compress(reply.body), headers)


NO_ANSWER = Reply(0, b"")
"""The connection breaks."""


class PrometheusServer:
    """A server on a port of loopback.

    Attributes
    ----------
    url
        Where it is.
    asked
        Every request.
    replies
        What the next requests are answered with, one each; then `usual` answers.
    gate
        Requests wait while it is clear.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Asked] = []
        self.replies: list[Reply] = []
        self.usual: Callable[[Asked], Reply | Act] = lambda _: vector(UP)
        self.gate = threading.Event()
        self.gate.set()

    @property
    def endpoint(self) -> PrometheusEndpoint:
        """Its address, without credentials."""
        return PrometheusEndpoint(self.url)

    def reply(self, asked: Asked) -> Reply | Act:
        """Note a request, and return what to answer."""
        self.asked.append(asked)
        self.gate.wait()
        return self.replies.pop(0) if self.replies else self.usual(asked)


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[PrometheusServer]:
    """A server in a thread; with a context it speaks TLS."""
    http = _Server((HOST, 0), _Handler)
    if context is not None:
        http.socket = context.wrap_socket(
            http.socket, server_side=True, do_handshake_on_connect=False
        )
    scheme = "http" if context is None else "https"
    http.owner = PrometheusServer(f"{scheme}://{HOST}:{http.server_port}")
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield http.owner
    finally:
        http.owner.gate.set()
        http.shutdown()
        http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: PrometheusServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that end a connection early are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or a body waits 40 ms for an acknowledgement of its headers
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Be quiet."""

    def _answer(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        shown = getattr(self.connection, "getpeercert", None)
        certificate: dict[str, Any] | None = shown() if shown else None
        reply = self.server.owner.reply(
            Asked(
                self.command,
                url.path,
                parse_qsl(url.query, keep_blank_values=True),
                parse_qsl(self.rfile.read(length).decode(), keep_blank_values=True),
                dict(self.headers),
                certificate or {},
            )
        )
        if not isinstance(reply, Reply):
            self.close_connection = True
            reply(self.connection)
            return
        if reply.status == 0:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)
