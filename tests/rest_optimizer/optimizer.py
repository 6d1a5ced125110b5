"""A REST optimizer in a thread: real HTTP, and failures on demand."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

from inferno_optimizer.errors import InfernoError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import SaturationPolicy, System
from inferno_optimizer.wire.codec import decode_system, encode_solution
from tests.rest_optimizer.store import MissingError, Store

HOST = "127.0.0.1"


class Failure(Enum):
    """How a request to solve can end instead of with its answer."""

    CUT = "the connection breaks"
    HALF = "the connection breaks in the middle of the answer"
    NO_JSON = "a page of another server"
    OTHERS = "the answer to another request"
    NOBODY = "nothing for anybody, without a reason"
    BROKEN = "HTTP 500"
    REFUSED = "HTTP 404 with a message"


class RestOptimizer:
    """A context manager that serves on a port of loopback.

    Attributes
    ----------
    store
        What it keeps; `restart_empty` forgets it.
    requests
        Method and path of every request.
    solved
        Bodies of the requests to solve.
    failures
        What the next requests to solve end with, one each.
    original
        Answer with allocations only and hold no cards back, as the original does.
    gate, passes
        Requests to solve wait while the gate is clear, but for as many as there are passes.
    arrived
        Set when one has come.
    held
        Set while one waits at the gate.
    at_once, most_at_once
        Requests to solve that are being answered, and the most that were.
    """

    def __init__(self) -> None:
        self.store = Store()
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.solved: list[Any] = []
        self.failures: list[Failure] = []
        self.original = False
        self.gate = threading.Event()
        self.gate.set()
        self.passes = threading.Semaphore(0)
        self.arrived = threading.Event()
        self.held = threading.Event()
        self.at_once = self.most_at_once = 0
        self._counting = threading.Lock()
        self._server: Server | None = None
        with socket.create_server((HOST, 0)) as probe:
            self.port: int = probe.getsockname()[1]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self.stop()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Serve, on the same port each time."""
        self._server = Server((HOST, self.port), Handler)
        self._server.owner = self
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections from now on; those that are open break."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.shutdown()
        server.cut_connections()
        server.server_close()

    def speak_tls(self, context: ssl.SSLContext) -> None:
        """Accept TLS only, from now on."""
        assert self._server is not None
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def restart_empty(self) -> None:
        """Be another process that knows nothing."""
        self.stop()
        self.store = Store()
        self.start()

    def answer(self, path: list[str], body: Any) -> Any:  # noqa: ANN401 - JSON
        """What a request is answered with, if nothing goes wrong."""
        if path == ["optimizeOne"]:
            return self._solution(body)
        if path == ["optimize"]:
            return self._solution(self.store.system(body))
        return self.store.call(path, body)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count a request to solve for as long as it is answered."""
        with self._counting:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            yield
        finally:
            with self._counting:
                self.at_once -= 1

    def _solution(self, document: Any) -> Any:  # noqa: ANN401 - JSON
        self.solved.append(document)
        system = decode_system(document)
        if not self.original:
            return encode_solution(optimize(system))
        return as_the_original_tells(optimize(as_the_original_reads(system)))


def as_the_original_reads(system: System) -> System:
    """A system without what the original does not know."""
    options = replace(system.options, hold_undecided=False, no_swaps=False)
    if options.saturation_policy is SaturationPolicy.HOLD:
        options = replace(options, saturation_policy=SaturationPolicy.NONE)
    return replace(
        system,
        options=options,
        profiles=tuple(replace(profile, max_tokens=0) for profile in system.profiles),
        servers=tuple(replace(server, accelerators=()) for server in system.servers),
    )


def as_the_original_tells(solution: Solution) -> Any:  # noqa: ANN401 - JSON
    """The answer of an optimizer that gives no reasons."""
    given = encode_solution(solution)["allocations"]
    unknown = ("reason", "message", "warnings", "percentiles")
    return {
        "allocations": {
            server: {key: value for key, value in allocation.items() if key not in unknown}
            for server, allocation in given.items()
        }
    }


class Server(ThreadingHTTPServer):
    """Knows its open connections."""

    daemon_threads = True
    allow_reuse_address = True
    owner: RestOptimizer

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - as the base class
        self._open: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base class
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as the base class
        self._open.discard(request)
        super().shutdown_request(request)

    def cut_connections(self) -> None:
        """End them as a crash would."""
        for connection in [*self._open]:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed by the other side

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke is what tests are about."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one piece
    server: Server

    def do_GET(self) -> None:
        self._respond(None)

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self._respond(json.loads(self.rfile.read(length)))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - as the base class
        """Say nothing."""

    def _respond(self, body: Any) -> None:  # noqa: ANN401 - JSON
        owner = self.server.owner
        owner.requests.append((self.command, self.path))
        owner.headers.append(dict(self.headers.items()))
        path = unquote(self.path).strip("/").split("/")
        if path[0] not in ("optimize", "optimizeOne"):
            self._send(*self._reply(path, body))
            return
        with owner.counting():
            owner.arrived.set()
            while not owner.gate.wait(0.02) and not owner.passes.acquire(blocking=False):
                owner.held.set()
            owner.held.clear()
            failure = owner.failures.pop(0) if owner.failures else None
            reply = (500, "") if failure else self._reply(path, body)
        if failure:
            self._fail(failure)
        else:
            self._send(*reply)

    def _reply(self, path: list[str], body: Any) -> tuple[int, str]:  # noqa: ANN401 - JSON
        try:
            return 200, json.dumps(self.server.owner.answer(path, body))
        except MissingError as error:
            return 404, json.dumps({"message": str(error)})
        except InfernoError as error:
            return 404, json.dumps({"message": f"optimization error: {error}"})

    def _send(self, status: int, text: str) -> None:
        payload = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _fail(self, failure: Failure) -> None:
        answers = {
            Failure.NO_JSON: (200, "<html>welcome</html>"),
            Failure.OTHERS: (200, json.dumps({"allocations": {"stranger": {"numReplicas": 1}}})),
            Failure.NOBODY: (200, json.dumps({"allocations": {}})),
            Failure.BROKEN: (500, ""),
            Failure.REFUSED: (404, json.dumps({"message": "optimization error: no luck"})),
        }
        if failure in answers:
            self._send(*answers[failure])
            return
        if failure is Failure.HALF:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"allocations": {"')
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
