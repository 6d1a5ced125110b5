"""Connections as Go's net/http, on which the original is built, treats them; refusals in JSON."""

import gzip
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path

import httpx
import pytest

from tests.cli.program import SMALL
from tests.rest.serving import Served, connected, limited, sent_by_post
from tests.rest.test_limits import long_question


@contextmanager
def half_closed(server: Served, sent: bytes) -> Iterator[socket.socket]:
    """A connection on which the client has sent all that it will send."""
    with connected(server) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        yield connection


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of the next answer on a connection."""
    response = HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


HALF_CLOSED = {
    "a look": b"GET /getModels HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/1.0": b"GET /getModels HTTP/1.0\r\n\r\n",
    "an optimization": sent_by_post("/optimizeOne", SMALL.read_bytes()),
}


@pytest.mark.parametrize("request_bytes", HALF_CLOSED.values(), ids=HALF_CLOSED.keys())
def test_a_client_that_stops_sending_after_its_request_is_answered(
    stateless: Served, request_bytes: bytes
) -> None:
    with half_closed(stateless, request_bytes) as connection:
        status, body = answer(connection)
        closed = connection.recv(1) == b""

    assert (status, closed) == (200, True)
    assert json.loads(body) is not None


def test_a_client_that_stops_sending_after_two_requests_is_answered_twice(
    stateless: Served,
) -> None:
    with half_closed(stateless, 2 * HALF_CLOSED["a look"]) as connection:
        received = b"".join(iter(lambda: connection.recv(10_000), b""))

    assert received.count(b"HTTP/1.1 200 OK") == 2


def test_a_client_that_stops_sending_waits_for_a_long_optimization(tmp_path: Path) -> None:
    start = time.monotonic()
    question = sent_by_post("/optimizeOne", long_question())
    with limited(tmp_path, time_limit=2.0) as server, half_closed(server, question) as connection:
        status, text = answer(connection)
        seconds = time.monotonic() - start

    assert status == 200
    assert json.loads(text)["certificate"]["solver"] == "milp"
    assert seconds > 1


UNFINISHED = {
    "headers": b"GET /getModels HTTP/1.1\r\nHo",
    "body": b"POST /optimizeOne HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
}


@pytest.mark.parametrize("request_bytes", UNFINISHED.values(), ids=UNFINISHED.keys())
def test_a_client_that_stops_sending_within_its_request_is_told_so(
    stateless: Served, request_bytes: bytes
) -> None:
    with half_closed(stateless, request_bytes) as connection:
        status, body = answer(connection)

    assert status == 400
    assert "closed connection" in json.loads(body)["message"]


@pytest.mark.parametrize("origin", ["http://x", "HTTPS://user@x:1", "ftp://[::1]"])
@pytest.mark.parametrize(("path", "status"), [("/getModels?a=b", 200), ("/none", 404), ("", 404)])
def test_a_whole_url_in_the_request_line_counts_as_its_path(
    stateless: Served, origin: str, path: str, status: int
) -> None:
    with connected(stateless) as connection:
        connection.sendall(f"GET {origin}{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

        assert answer(connection)[0] == status


NO_HTTP = {
    "no request": (b"nonsense\r\n\r\n", 400, "request line"),
    "no header": (b"GET / HTTP/1.1\r\nHost: x\r\nno header\r\n\r\n", 400, "header line"),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400, "Host"),
    "no length": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400, "Length"),
    "no known coding": (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n", 501, "chunk"),
    "no end": (b"GET /" + 70_000 * b"x", 431, "too long"),
}


@pytest.mark.parametrize(("sent", "status", "why"), NO_HTTP.values(), ids=NO_HTTP.keys())
def test_what_is_no_http_is_refused_in_json(
    stateless: Served, sent: bytes, status: int, why: str
) -> None:
    with connected(stateless) as connection:
        connection.sendall(sent)
        found, body = answer(connection)

    assert found == status
    assert why in json.loads(body)["message"]


def test_a_compressed_body_is_refused(client: httpx.Client) -> None:
    body, headers = gzip.compress(SMALL.read_bytes()), {"Content-Encoding": "gzip"}
    reply = client.post("/optimizeOne", content=body, headers=headers)
    plain = client.post(
        "/optimizeOne", content=SMALL.read_bytes(), headers={"Content-Encoding": "Identity"}
    )

    assert (reply.status_code, reply.headers["accept-encoding"]) == (415, "identity")
    assert "gzip" in reply.json()["message"]
    assert plain.status_code == 200


def test_a_body_that_nobody_reads_does_not_hold_a_connection(tmp_path: Path) -> None:
    head = b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    with limited(tmp_path, body_seconds=0.5) as server, connected(server) as connection:
        connection.sendall(head)
        status, _ = answer(connection)
        with server.client() as client, suppress(ConnectionError):
            while True:  # until it is closed from the other side
                connection.sendall(b".")
                client.get("/healthz").raise_for_status()  # which goes on meanwhile

    assert status == 404
