"""Faulty answers of an optimizer, over real HTTP: what each sends instead of the right answer."""

import copy
import gzip
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, NamedTuple

from inferno_optimizer.optimize import optimize
from inferno_optimizer.wire.codec import decode_system, encode_solution

HOST = "127.0.0.1"
MEBIBYTE = 2**20

Document = dict[str, Any]
Send = Callable[["Handler", Document], None]


class Fault(NamedTuple):
    """What is sent to a client, given the right answer, and words of the message about it."""

    send: Send
    words: str


class Handler(BaseHTTPRequestHandler):
    """Answers each request with the fault of its server."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: "FaultyOptimizer"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = encode_solution(optimize(decode_system(asked)))
        with suppress(OSError):  # the client has seen enough
            self.server.fault.send(self, json.loads(json.dumps(answer)))
            self.wfile.flush()

    def do_GET(self) -> None:
        """Answer who follows a redirect."""
        self.server.followed.set()
        self.reply(b"{}")

    def reply(self, body: bytes, status: int = 200, **headers: str) -> None:
        """Send a whole response."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self, length: int) -> None:
        """Send the head of a response."""
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - as the base class
        """Say nothing."""


class FaultyOptimizer(ThreadingHTTPServer):
    """Serves on a port of loopback; `followed` is set when a client follows a redirect."""

    daemon_threads = True

    def __init__(self, fault: Fault) -> None:
        super().__init__((HOST, 0), Handler)
        self.fault = fault
        self.followed = Event()
        self.ended = Event()

    @property
    def port(self) -> int:
        port: int = self.server_address[1]
        return port

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke is what tests are about."""


@contextmanager
def serving(fault: Fault) -> Iterator[FaultyOptimizer]:
    with FaultyOptimizer(fault) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()


def text(body: str | bytes, status: int = 200, **headers: str) -> Send:
    encoded = body.encode() if isinstance(body, str) else body
    return lambda handler, _: handler.reply(encoded, status, **headers)


def changed(change: Callable[[Document], object], *, certificate: bool = False) -> Send:
    """Send the right answer with a change; as the original, unless there is to be a certificate."""

    def send(handler: Handler, answer: Document) -> None:
        told = answer if certificate else {"allocations": answer["allocations"]}
        change(told)
        handler.reply(json.dumps(told).encode())

    return send


def of_s(**fields: object) -> Send:
    """Send the right answer with other fields of the allocation of server S."""
    return changed(lambda answer: answer["allocations"]["S"].update(copy.deepcopy(fields)))


def replaced(before: str, after: str) -> Send:
    """Send the right answer with another text at one place."""

    def send(handler: Handler, answer: Document) -> None:
        body = json.dumps({"allocations": answer["allocations"]})
        assert before in body
        handler.reply(body.replace(before, after, 1).encode())

    return send


def large(piece: bytes, count: int, **headers: str) -> Send:
    """Send a piece again and again, with its length first."""

    def send(handler: Handler, _: Document) -> None:
        handler.send_response(200)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(piece) * count))
        handler.end_headers()
        for _number in range(count):
            handler.wfile.write(piece)

    return send


def endless(handler: Handler, _: Document) -> None:
    """Send spaces for ever, fast."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    chunk = b"10000\r\n" + b" " * 2**16 + b"\r\n"
    while not handler.server.ended.is_set():
        handler.wfile.write(chunk)


def slow(handler: Handler, answer: Document) -> None:
    """Send one byte of the right answer ten times a second."""
    body = json.dumps(answer).encode()
    handler.begin(len(body))
    for byte in body:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        if handler.server.ended.wait(0.1):
            return


def half(handler: Handler, answer: Document) -> None:
    """End the connection in the middle of the answer."""
    body = json.dumps(answer).encode()
    handler.begin(len(body))
    handler.wfile.write(body[: len(body) // 2])
    handler.wfile.flush()
    cut(handler, answer)


def cut(handler: Handler, _: Document) -> None:
    """End the connection."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def silent(handler: Handler, _: Document) -> None:
    """Send nothing at all."""
    handler.server.ended.wait(60)


def no_http(handler: Handler, _: Document) -> None:
    """Send what is not HTTP."""
    handler.wfile.write(b"\x16\x03\x01\x02\x00 not HTTP at all\r\n\r\n")
    handler.wfile.flush()
    cut(handler, {})


def twice(handler: Handler, answer: Document) -> None:
    """Send two documents, one after the other."""
    handler.reply(json.dumps(answer).encode() * 2)


def elsewhere(status: int) -> Send:
    """Send the client to another address."""

    def send(handler: Handler, answer: Document) -> None:
        where = f"http://{HOST}:{handler.server.port}/elsewhere"
        handler.reply(json.dumps(answer).encode(), status, Location=where)

    return send


def with_status(status: int) -> Send:
    """Send the right answer with a wrong status."""
    return lambda handler, answer: handler.reply(json.dumps(answer).encode(), status)


def swap(answer: Document) -> None:
    """Exchange the allocations of two servers."""
    given = answer["allocations"]
    given["S"], given["T"] = given["T"], given["S"]


def other_rates(answer: Document) -> None:
    """Make it the answer of a minute ago."""
    for given in answer["allocations"].values():
        given["load"]["arrivalRate"] *= 0.5


def starve(answer: Document) -> None:
    """Refuse everybody, with reasons."""
    names = list(answer["allocations"])
    answer["allocations"] = {}
    answer["unserved"] = {name: {"reason": "NoCapacity", "message": "none"} for name in names}


ZEROS = gzip.compress(b" " * 64 * MEBIBYTE, 9) * 16

FAULTS = {
    "an empty body": Fault(text(""), "an empty answer is no JSON"),
    "half of a document": Fault(text('{"allocations": {"S": {"acc'), "is no JSON"),
    "a page of another server": Fault(text("<html>\n<b>welcome</b></html>"), "<html> <b>welcome"),
    "a plain text": Fault(text("Done"), "is no JSON"),
    "text that is not UTF-8": Fault(text(b'{"allocations": "\xff\xfe"}'), "is no JSON"),
    "two documents": Fault(twice, "is no JSON"),
    "null": Fault(text("null"), "expected an object with allocations"),
    "a list": Fault(text("[1, 2]"), "expected an object with allocations"),
    "a number": Fault(text("42"), "expected an object with allocations"),
    "another document": Fault(text('{"message": "hello"}'), "expected an object with allocations"),
    "a list of allocations": Fault(
        text('{"allocations": [{}]}'), "allocations: expected an object"
    ),
    "NaN": Fault(replaced('"numReplicas": 2', '"numReplicas": NaN'), "NaN is no number"),
    "infinity": Fault(replaced('"cost": 20.0', '"cost": -Infinity'), "-Infinity is no number"),
    "a number beyond doubles": Fault(replaced('"cost": 20.0', '"cost": 1e999'), "a finite number"),
    "thousands of digits": Fault(replaced('"cost": 20.0', f'"cost": {"9" * 9000}'), "is no JSON"),
    "a cost of 1e308": Fault(of_s(cost=1e308), "'S': cost: 1e+308, where 2 x A cost 20"),
    "negative replicas": Fault(of_s(numReplicas=-2), "'S': numReplicas: -2 is negative"),
    "half a replica": Fault(of_s(numReplicas=2.5), "'S': numReplicas: expected an integer"),
    "numbers as strings": Fault(of_s(numReplicas="2"), "'S': numReplicas: expected an integer"),
    "true as a number": Fault(of_s(cost=True), "'S': cost: expected a number, not true"),
    "a number as a name": Fault(of_s(accelerator=7), "'S': accelerator: expected a string"),
    "a load that is a list": Fault(of_s(load=[]), "'S': load: expected an object"),
    "a negative part of a mix": Fault(
        of_s(mix=[{"accelerator": "A", "numReplicas": n, "cost": 10 * n} for n in (4, -2)]),
        "'S': numReplicas: -2 is negative",
    ),
    "an unknown server": Fault(
        changed(lambda answer: answer["allocations"].update(stranger={})), "server 'stranger'"
    ),
    "a missing server": Fault(
        changed(lambda answer: answer["allocations"].pop("S")), "nothing to server 'S'"
    ),
    "a missing server beside a certificate": Fault(
        changed(lambda answer: answer["allocations"].pop("S"), certificate=True),
        "server 'S' is neither in allocations nor in unserved",
    ),
    "a repeated key": Fault(
        replaced('"allocations": {', '"allocations": {"S": {"numReplicas": 9}, '),
        "key 'S' occurs twice",
    ),
    "an unknown accelerator": Fault(of_s(accelerator="B9"), "no performance data for 'B9'"),
    "more cards than there are": Fault(of_s(numReplicas=99, cost=990), "it uses 103 cards"),
    "swapped servers": Fault(changed(swap), "requests/min, not the"),
    "the answer to an earlier load": Fault(changed(other_rates), "requests/min, not the"),
    "another system": Fault(text('{"allocations": {"web": {"numReplicas": 1}}}'), "server 'web'"),
    "an unknown reason": Fault(of_s(reason="Because"), "'Because' is not a reason"),
    "half of a surrogate pair": Fault(text(r'{"allocations": {"\ud800": {}}}'), r"'\ud800'"),
    "deep nesting": Fault(text('{"allocations":' + "[" * 60_000), "is nested too deeply"),
    "millions of empty objects": Fault(
        large(b"[" + b"{}," * 5_000_000 + b"{}]", 1), "too many lists and objects"
    ),
    "300 MiB": Fault(large(b" " * MEBIBYTE, 300), "it is larger than 16 MiB"),
    "a gzip bomb": Fault(large(ZEROS, 8, Content_Encoding="gzip"), "it is compressed ('gzip')"),
    "an endless body": Fault(endless, "it is larger than 16 MiB"),
    "a slow body": Fault(slow, "no answer within 1.5 s"),
    "no answer": Fault(silent, "no answer within 1.5 s"),
    "half of a body": Fault(half, "does not answer: peer closed connection"),
    "a connection that ends": Fault(cut, "does not answer"),
    "what is not HTTP": Fault(no_http, "does not answer"),
    "201 with the right answer": Fault(with_status(201), "(HTTP 201)"),
    "204": Fault(text("", 204), "(HTTP 204)"),
    "301 to another address": Fault(elsewhere(301), "(HTTP 301)"),
    "302 to another address": Fault(elsewhere(302), "(HTTP 302)"),
    "307 to another address": Fault(elsewhere(307), "(HTTP 307)"),
    "400 with a traceback": Fault(text("Traceback:\n  File x\n" * 99, 400), "Traceback: File x"),
    "404 with half of a surrogate pair": Fault(text(r'{"message": "a\ud800b"}', 404), "a?b (HTTP"),
    "429": Fault(text("", 429), "(HTTP 429)"),
    "500": Fault(text("", 500), "(HTTP 500)"),
    "503 with the right answer": Fault(with_status(503), "(HTTP 503)"),
}
"""Faulty answers by name."""

TOO_LITTLE = {
    "no accelerator and no replicas": Fault(
        of_s(accelerator="", numReplicas=0, cost=0), "'S': numReplicas: 0, although it has a load"
    ),
    "the answer of version 0.6.0 to data of generation 1": Fault(
        of_s(
            accelerator="",
            numReplicas=0,
            cost=0,
            load={"arrivalRate": 90, "avgInTokens": 0, "avgOutTokens": 0},
        ),
        "'S': load: it is for requests without tokens, as if the server were idle; does the"
        " optimizer read performance data of generation 1?",
    ),
    "an empty allocation": Fault(
        changed(lambda answer: answer["allocations"].update(S={})),
        "'S': load.arrivalRate: it is for 0 requests/min, not the 90 that were asked for",
    ),
    "nobody": Fault(
        text('{"allocations": {}}'), "does the optimizer read performance data of generation 1?"
    ),
    "fewer than minNumReplicas": Fault(
        changed(lambda answer: answer["allocations"]["floor"].update(numReplicas=1, cost=10)),
        "'floor': numReplicas: 1, although minNumReplicas is 3",
    ),
    "another accelerator despite keepAccelerator": Fault(
        changed(lambda answer: answer["allocations"]["T"].update(accelerator="B")),
        "'T': accelerator: 'B': the server stays on another accelerator: by keepAccelerator",
    ),
    "other token counts": Fault(
        of_s(load={"arrivalRate": 90, "avgLength": 2}),
        "'S': load.avgLength: it is for 2 tokens, not the 1 that were asked for",
    ),
    "another load": Fault(
        of_s(load={"arrivalRate": 9, "avgLength": 1}), "it is for 9 requests/min, not the 90"
    ),
    "no cost": Fault(of_s(cost=0), "'S': cost: 0, where 2 x A cost 20"),
    "the cost of one replica": Fault(of_s(cost=10), "'S': cost: 10, where 2 x A cost 20"),
    "too few replicas": Fault(
        of_s(numReplicas=1, cost=10),
        "'S': numReplicas: 1, although 1 x A carry 66.7 % of its load within the targets",
    ),
    "best effort without a saturation policy": Fault(
        of_s(numReplicas=1, cost=10, reason="BestEffort"), "carry 66.7 % of its load"
    ),
    "a certificate and nothing else": Fault(
        changed(lambda answer: answer.update(allocations={}, unserved={}), certificate=True),
        "is neither in allocations nor in unserved",
    ),
    "a certificate and reasons for nobody": Fault(
        changed(starve, certificate=True), "although there are cards for"
    ),
}
"""Answers that give too little."""
