"""Ways in which a Prometheus misbehaves: each turns the series of a right answer into a reply.

The series that are affected come first, and then those of others, which stay as they are if the
answer has any.
"""

import gzip
import json
import socket
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import Any

from tests.unit.operator.adapters.prometheus.serving import (
    NO_ANSWER,
    Act,
    Reply,
    error,
    success,
    vector,
)

Series = dict[str, Any]
Misbehaviour = Callable[[Sequence[Series], Sequence[Series]], Reply | Act]

MIB = 2**20
FIVE_MB = 5_000_000
HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEADERS + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = {"Content-Encoding": "gzip"}


def each(change: Callable[[Series], Series]) -> Misbehaviour:
    """Change each series of the answer."""
    return lambda series, others: vector(*map(change, series), *others)


def valued(change: Callable[[float, str], object]) -> Misbehaviour:
    """Change the pair of time and value of each series."""
    return each(lambda item: {**item, "value": change(*item["value"])})


def labelled(change: Callable[[dict[str, str]], object]) -> Misbehaviour:
    """Change the labels of each series."""
    return each(lambda item: {**item, "metric": change(item["metric"])})


def always(reply: Reply | Act) -> Misbehaviour:
    return lambda _, __: reply


def sends(pieces: Callable[[], Iterator[bytes]]) -> Misbehaviour:
    """Send pieces until the client ends the connection."""

    def act(connection: socket.socket) -> None:
        for piece in pieces():
            connection.sendall(piece)

    return always(act)


def reset(connection: socket.socket) -> None:
    """End the connection in the way that a process that dies does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def reset_in_the_middle(connection: socket.socket) -> None:
    connection.sendall(HEADERS + b'Content-Length: 5000\r\n\r\n{"status":"success","data":{')
    reset(connection)


def silent(connection: socket.socket) -> None:
    """Say nothing until the client ends the connection."""
    connection.recv(1)


def slow_body(connection: socket.socket) -> None:
    """A byte now and then, which keeps every limit for a single byte."""
    connection.sendall(CHUNKED)
    connection.settimeout(0.05)
    while True:
        try:
            if connection.recv(1) == b"":
                return
        except TimeoutError:
            connection.sendall(b"1\r\n \r\n")


def endless_body() -> Iterator[bytes]:
    piece = b" " * 2**16
    yield CHUNKED
    yield from repeat(b"10000\r\n" + piece + b"\r\n")


def endless_headers() -> Iterator[bytes]:
    yield HEADERS
    yield from repeat(b"X-More: " + b"x" * 1000 + b"\r\n")


@cache
def bomb() -> bytes:
    """64 MiB of JSON in 64 KiB; it takes half a second, so only who wants it makes it."""
    pack = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    start = b'{"status":"success","data":{"resultType":"vector","result":['
    return b"".join(
        [pack.compress(start), *(pack.compress(b" " * MIB) for _ in range(64)), pack.flush()]
    )


def packed(series: Sequence[Series], others: Sequence[Series]) -> Reply:
    del series, others
    return Reply(200, bomb(), GZIP)


def packed_twice(series: Sequence[Series], others: Sequence[Series]) -> Reply:
    del series, others
    return Reply(200, gzip.compress(bomb()), {"Content-Encoding": "gzip, gzip"})


def many(series: Sequence[Series], others: Sequence[Series]) -> Reply:
    """64 MiB of series in the right form."""
    item = json.dumps({"metric": {"padding": "x" * 900}, "value": [0, "1"]}).encode()
    start = b'{"status":"success","data":{"resultType":"vector","result":['
    del series, others
    return Reply(200, start + b",".join([item] * (64 * MIB // len(item))) + b"]}}")


def twice(series: Sequence[Series], others: Sequence[Series]) -> Reply:
    """Every series, and after it another value for the same labels."""
    half = [{**item, "value": [item["value"][0], "0.5"]} for item in series]
    return vector(*series, *half, *others)


def with_other_labels(series: Sequence[Series], others: Sequence[Series]) -> Reply:
    """The same series for several values of a label that nobody asked for."""
    return vector(
        *(
            {**item, "metric": {**item["metric"], "replica": replica}}
            for item in series
            for replica in ("a", "b")
        ),
        *others,
    )


def as_of_another_tenant(labels: dict[str, str]) -> dict[str, str]:
    model = labels.get("model_name", "").replace("bad", "good")
    return {**labels, "model_name": model, "namespace": "good"}


def without_labels(labels: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in labels.items() if name == "inferno_part"}


def every_second_server(series: Sequence[Series], others: Sequence[Series]) -> Reply:
    """Leave out all that is known of the servers with an odd number."""
    odd = (item["metric"].get("model_name", "").endswith("1") for item in series)
    known = (item for item, is_odd in zip(series, odd, strict=True) if not is_odd)
    return vector(*known, *others)


def half_of_the_bytes(series: Sequence[Series], others: Sequence[Series]) -> Reply:
    reply = vector(*series, *others)
    return Reply(200, reply.body[: len(reply.body) // 2])


def text_in_place_of(labels: dict[str, str], text: str) -> dict[str, str]:
    return {**labels, "model_name": text}


def body(template: bytes) -> Misbehaviour:
    return always(Reply(200, template))


MISBEHAVIOURS: dict[str, Misbehaviour] = {
    "connection reset at once": always(reset),
    "connection closed without an answer": always(NO_ANSWER),
    "connection reset in the middle": always(reset_in_the_middle),
    "no headers": always(silent),
    "slow body": always(slow_body),
    "endless body": sends(endless_body),
    "endless headers": sends(endless_headers),
    "64 MiB of spaces": body(b" " * 64 * MIB),
    "64 MiB of series": many,
    "bomb": packed,
    "bomb packed twice": packed_twice,
    "broken compression": always(Reply(200, b"no gzip", GZIP)),
    "encoding that nobody asked for": always(Reply(200, b"?", {"Content-Encoding": "br"})),
    "page": body(b"<html><title>Sign in</title></html>"),
    "empty body": body(b""),
    "half of the bytes": half_of_the_bytes,
    "deep nesting": body(b'{"status":"success","data":' + b"[" * 200_000),
    "millions of lists": body(b'{"status":"success","data":[' + b"[]," * (MIB // 2) + b"[]]}"),
    "number of 100,000 digits": body(b'{"status":"success","data":' + b"9" * 100_000 + b"}"),
    "status error": always(Reply(200, error(400, "execution", "query failed").body)),
    "no status": body(b'{"data":{"resultType":"vector","result":[]}}'),
    "bad request": always(error(400, "bad_data", "parse error: " + "x" * 100_000)),
    "unauthorized": always(Reply(401, b"Unauthorized")),
    "forbidden": always(Reply(403, b"namespace bad is not allowed")),
    "not found": always(Reply(404, b"404 page not found")),
    "unprocessable": always(error(422, "execution", "many-to-many matching not allowed")),
    "too many requests": always(Reply(429, b"too many requests", {"Retry-After": "3600"})),
    "internal error": always(Reply(500, b"panic")),
    "unavailable": always(error(503, "timeout", "query timed out in expression evaluation")),
    "redirect": always(Reply(302, b"", {"Location": "http://169.254.169.254/latest"})),
    "no content": always(Reply(204, b"")),
    "other content type": lambda series, others: Reply(
        200, vector(*series, *others).body, {"Content-Type": "text/html"}
    ),
    "series twice": twice,
    "series of labels that nobody asked for": with_other_labels,
    "series of another tenant": labelled(as_of_another_tenant),
    "no labels": labelled(without_labels),
    "no metric": each(lambda item: {"value": item["value"]}),
    "text as metric": labelled(lambda _: "up"),
    "list as metric": labelled(lambda labels: list(labels.items())),
    "number as label": labelled(lambda labels: {**labels, "model_name": 7}),
    "no value": each(lambda item: {"metric": item["metric"]}),
    "text as pair": valued(lambda _, __: "12"),
    "three in a pair": valued(lambda time, text: [time, text, text]),
    "NaN": valued(lambda time, _: [time, "NaN"]),
    "infinity": valued(lambda time, _: [time, "+Inf"]),
    "negative": valued(lambda time, _: [time, "-5"]),
    "1e308": valued(lambda time, _: [time, "1e308"]),
    "number beside spaces": valued(lambda time, _: [time, " 0.1 "]),
    "number that is no text": valued(lambda time, _: [time, 0.1]),
    "hexadecimal number": valued(lambda time, _: [time, "0x1"]),
    "an hour ahead": valued(lambda time, _: [time + 3600, "0.1"]),
    "an hour late": valued(lambda time, _: [time - 3600, "0.1"]),
    "in the year 33658": valued(lambda _, __: [1e12, "0.1"]),
    "half a surrogate": labelled(lambda labels: text_in_place_of(labels, "\ud800")),
    "no UTF-8": body(b'{"status":"success","data":{"resultType":"vector","result":["\xff"]}}'),
    "label of 1 MB": labelled(lambda labels: text_in_place_of(labels, "x" * MIB)),
    "warning of 5 MB": lambda series, others: vector(*series, *others, warnings=["w" * FIVE_MB]),
    "thousands of warnings": lambda series, others: vector(
        *series, *others, warnings=["a store is down"] * 9000
    ),
    "partial data": lambda series, others: vector(
        *series[: len(series) // 2], *others, warnings=["store 1: partial response"]
    ),
    "text as warnings": lambda series, others: vector(*series, *others, warnings="beware"),
    "null as data": always(success(None)),
    "list as data": lambda series, others: success([*series, *others]),
    "object as series": lambda series, _: success(
        {"resultType": "vector", "result": {"a": [*series]}}
    ),
    "matrix": lambda series, _: success(
        {"resultType": "matrix", "result": [{**s, "values": [s["value"]]} for s in series]}
    ),
    "text": always(success({"resultType": "string", "result": [0, "0.1"]})),
    "native histogram": each(lambda item: {**item, "histogram": [0, {"count": "1"}]}),
    "number in place of a type": lambda series, _: success({"resultType": 1, "result": [*series]}),
    "no series": lambda _, others: vector(*others),
    "every second server": every_second_server,
}
"""By name."""
