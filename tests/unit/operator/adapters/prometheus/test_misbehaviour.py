"""A Prometheus that misbehaves: real HTTP, the real client, measuring cycles and decisions.

Each misbehaviour is tried twice: once all answers are affected for one cycle, and once for ever
those to queries that name the servers of one namespace. Nobody's load or replicas become less,
and the servers of the other namespace are measured in the next cycle at the latest.
"""

import json
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from inferno_operator.adapters.prometheus.client import PrometheusClient, connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.controllers.measurement.controller import Context, reconcile
from inferno_operator.controllers.measurement.lookahead import Lookahead
from inferno_operator.controllers.measurement.measured_servers import SERVER, MeasuredServers
from inferno_operator.controllers.planning.reconcile import reconcile as optimize_namespace
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.informers import Informers
from inferno_optimizer.forecast import first_ratio
from tests.fakes import FakeCluster
from tests.tiers import extended
from tests.unit.operator.adapters.prometheus.serving import (
    Act,
    Asked,
    PrometheusServer,
    Reply,
    error,
    serving,
    vector,
)
from tests.unit.operator.controllers.planning.scene import context_of
from tests.unit.operator.objects import (
    Manifest,
    optimizer,
    server,
    system,
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


def text_in_place_of(labels: dict[str, str], text: str) -> dict[str, str]:
    return {**labels, "model_name": text}


def body(template: bytes) -> Misbehaviour:
    return always(Reply(200, template))


MISBEHAVIOURS: dict[str, Misbehaviour] = {
    "connection reset at once": always(reset),
    "connection reset in the middle": always(reset_in_the_middle),
    "no headers": always(silent),
    "slow body": always(slow_body),
    "endless body": sends(endless_body),
    "endless headers": sends(endless_headers),
    "64 MiB of spaces": body(b" " * 64 * MIB),
    "64 MiB of series": many,
    "bomb": packed,
    "encoding that nobody asked for": always(Reply(200, b"?", {"Content-Encoding": "br"})),
    "millions of lists": body(b'{"status":"success","data":[' + b"[]," * (MIB // 2) + b"[]]}"),
    "number of 100,000 digits": body(b'{"status":"success","data":' + b"9" * 100_000 + b"}"),
    "status error": always(Reply(200, error(400, "execution", "query failed").body)),
    "no status": body(b'{"data":{"resultType":"vector","result":[]}}'),
    "too many requests": always(Reply(429, b"too many requests", {"Retry-After": "3600"})),
    "other content type": lambda series, others: Reply(
        200, vector(*series, *others).body, {"Content-Type": "text/html"}
    ),
    "series twice": twice,
    "series of labels that nobody asked for": with_other_labels,
    "series of another tenant": labelled(as_of_another_tenant),
    "no labels": labelled(without_labels),
    "NaN": valued(lambda time, _: [time, "NaN"]),
    "infinity": valued(lambda time, _: [time, "+Inf"]),
    "negative": valued(lambda time, _: [time, "-5"]),
    "1e308": valued(lambda time, _: [time, "1e308"]),
    "in the year 33658": valued(lambda _, __: [1e12, "0.1"]),
    "label of 1 MB": labelled(lambda labels: text_in_place_of(labels, "x" * MIB)),
    "warning of 5 MB": lambda series, others: vector(*series, *others, warnings=["w" * FIVE_MB]),
    "thousands of warnings": lambda series, others: vector(
        *series, *others, warnings=["a store is down"] * 9000
    ),
    "partial data": lambda series, others: vector(
        *series[: len(series) // 2], *others, warnings=["store 1: partial response"]
    ),
    "no series": lambda _, others: vector(*others),
    "every second server": every_second_server,
}
"""By name; one refusal is as good as another, and `test_client` has those of other forms."""


ROOT = Path(__file__).parents[5]
NAMESPACES = ("good", "bad")
GROWTH = round(first_ratio(120.0 + 30.0), 3)
"""That of loads without history, over the lead time and a cycle."""

TIMEOUT_S = 60.0
SHORT_TIMEOUT_S = 3.0
HANGS = {"no headers", "slow body"}
"""What only the time limit of a query ends."""

LONGEST_MESSAGE = 2500

PARTS = {
    "count_over_time": {"running": 4.0, "waiting": 1.0, "reporting": 2.0},
    "request_success_total": {"0": 1.0},
    "request_prompt_tokens_sum": {"avgInTokens": 1.0, "avgOutTokens": 1.0, "itlAverage": 0.9},
}
"""Parts of right answers, by the first word that a query has; the rate is in units of the true
load.
"""

PARTLY_RIGHT = {"other content type", "series of another tenant", "every second server"}
"""What leaves the answers about some servers right."""


class World:
    """Two servers in each of two namespaces, and a Prometheus that knows their true load."""

    def __init__(self, http: PrometheusServer, prometheus: PrometheusClient) -> None:
        self.rate = 5.0
        self.elapsed = timedelta(0)
        self.cluster = FakeCluster()
        for namespace in NAMESPACES:
            shared = (*system(1000), optimizer())
            for item in shared:
                self.cluster.add(in_namespace(item, namespace))
            for number in range(2):
                self.cluster.add(in_namespace(measured_server(namespace, number), namespace))
        self._servers = MeasuredServers(Informers(self.cluster), lambda _: None)
        survey = Survey(prometheus, read_built_in_sources(), time.time)
        self._context = Context(self.cluster, self._servers, survey, self.now, Lookahead(30.0))
        http.usual = self.right
        self.http = http

    def now(self) -> datetime:
        return datetime.now(UTC) + self.elapsed

    def right(self, asked: Asked) -> Reply:
        """A right answer to a query about the servers that it names."""
        return vector(*self.series(asked))

    def series(self, asked: Asked, having: str = "") -> list[Series]:
        expression = asked.form[0][1] if asked.form else ""
        parts = next((rows for word, rows in PARTS.items() if word in expression), {})
        interval = {"metric": {"inferno_part": "interval"}, "value": [time.time(), "15"]}
        return [interval] * ("reporting" in parts and having != "bad") + [
            {
                "metric": {"model_name": name, "namespace": namespace, "inferno_part": part},
                "value": [time.time(), str(value * self.rate if part == "0" else value)],
            }
            for namespace in NAMESPACES
            for name in (f"{namespace}0", f"{namespace}1")
            if name in expression and having in name
            for part, value in parts.items()
        ]

    async def cycle(self) -> None:
        """Measure and optimize; two minutes pass, so that numbers may be written again."""
        self.elapsed += timedelta(minutes=2)
        for manifest in (await self.cluster.list(SERVER, "")).manifests:
            self._servers.note(observe(Server, manifest))
        await reconcile(self._context)
        for namespace in NAMESPACES:
            context = context_of(self.cluster, now=self.now)
            request = self.cluster.objects["Optimizer", Key(namespace, "inferno")]
            self.cluster.add({**request, "spec": {**request["spec"], "optimize": True}})
            await optimize_namespace(Key(namespace, "inferno"), context)

    def servers(self, namespace: str = "") -> dict[Key, Manifest]:
        return {
            key: stored
            for (kind, key), stored in self.cluster.objects.items()
            if kind == "Server" and namespace in ("", key.namespace)
        }

    def decisions(self, namespace: str = "") -> dict[Key, tuple[float, int]]:
        """Load [requests/min] and replicas of each server."""
        return {
            key: (
                stored["spec"]["currentAlloc"]["load"]["arrivalRate"],
                stored["spec"]["desiredAlloc"]["numReplicas"],
            )
            for key, stored in self.servers(namespace).items()
        }

    def condition(self, stored: Manifest) -> tuple[str, str]:
        (found,) = (c for c in stored["status"]["conditions"] if c["type"] == "Measured")
        return found["reason"], found.get("message", "")

    def reasons(self, namespace: str = "") -> set[str]:
        return {self.condition(stored)[0] for stored in self.servers(namespace).values()}


def in_namespace(item: Manifest, namespace: str) -> Manifest:
    return {**item, "metadata": {**item["metadata"], "namespace": namespace}}


def measured_server(namespace: str, number: int) -> Manifest:
    labels = {"model_name": f"{namespace}{number}", "namespace": namespace}
    spec = {"measure": {"source": "vLLM", "labels": labels}, "currentAlloc": None}
    return server(f"S{number}", spec=spec)


@pytest.fixture
def http() -> Iterator[PrometheusServer]:
    with serving() as running:
        yield running


@asynccontextmanager
async def world(http: PrometheusServer, misbehaviour: str) -> AsyncIterator[World]:
    """A world that was measured and decided once, while all went well."""
    timeout = SHORT_TIMEOUT_S if misbehaviour in HANGS else TIMEOUT_S
    async with connect(PrometheusEndpoint(http.url, timeout=timeout)) as prometheus:
        found = World(http, prometheus)
        await found.cycle()
        assert found.reasons() == {"Fresh"}
        assert set(found.decisions().values()) == {(round(300 * GROWTH, 6), 6)}
        yield found


def assert_told(found: World) -> None:
    """What is said is one readable line, and nothing unless there is something to say."""
    for stored in found.servers().values():
        reason, message = found.condition(stored)
        assert (message == "") == (reason == "Fresh")
        assert "\n" not in message
        assert len(message) < LONGEST_MESSAGE
        message.encode()


def tried(each: Iterable[str], *names: str) -> list[object]:
    """Misbehaviours, of which `make test` has those that take ways of their own."""
    return [name if name in names else extended(name)[0] for name in each]


@pytest.mark.parametrize(
    "name", tried(MISBEHAVIOURS, "connection reset at once", "no labels", "1e308")
)
async def test_no_misbehaviour_of_a_prometheus_makes_a_decision_smaller(
    http: PrometheusServer, name: str
) -> None:
    async with world(http, name) as found:
        before = found.decisions()
        http.usual = lambda asked: MISBEHAVIOURS[name](found.series(asked), ())
        await found.cycle()

        assert found.decisions() == before
        assert_told(found)
        assert ("Fresh" in found.reasons()) == (name in PARTLY_RIGHT)

        found.rate, http.usual = 8.0, found.right
        await found.cycle()
        assert found.reasons() == {"Fresh"}
        assert {load for load, _ in found.decisions().values()} == {round(480 * GROWTH, 6)}


ABOUT_SERVERS = sorted(MISBEHAVIOURS.keys() - {"too many requests"})


@pytest.mark.parametrize("name", tried(ABOUT_SERVERS, "infinity", "no series", "slow body"))
async def test_a_misbehaviour_about_one_namespace_leaves_the_others_measured(
    http: PrometheusServer, name: str
) -> None:
    async with world(http, name) as found:
        before = found.decisions("bad")
        http.usual = about_bad(found, name)
        found.rate = 8.0
        for _ in range(2):
            await found.cycle()

        assert {load for load, _ in found.decisions("good").values()} == {round(480 * GROWTH, 6)}
        assert found.reasons("good") <= {"Fresh", "Partial"}
        for key, (load, replicas) in found.decisions("bad").items():
            assert load >= before[key][0]
            assert replicas >= before[key][1]
        assert_told(found)


def about_bad(found: World, name: str) -> Callable[[Asked], Reply | Act]:
    """Misbehave if a query names a server of namespace `bad`, about these servers if possible."""

    def answer(asked: Asked) -> Reply | Act:
        series = found.series(asked, "bad")
        is_about_bad = any(name in text for _, text in asked.form for name in ("bad0", "bad1"))
        if not is_about_bad:
            return found.right(asked)
        return MISBEHAVIOURS[name](series, found.series(asked, "good"))

    return answer


LARGEST_MEMORY_MIB = 512


def just_small_enough() -> Reply:
    """As many series as an answer may have, and their time."""
    moment = time.time()
    series = ({"metric": {"a": f"{n:06}"}, "value": [moment, "1"]} for n in range(130_000))
    return vector(*series)


LARGE: dict[str, Callable[[], Reply | Act]] = {
    "bomb": lambda: MISBEHAVIOURS["bomb"]((), ()),
    "64 MiB of series": lambda: MISBEHAVIOURS["64 MiB of series"]((), ()),
    "series, just small enough": just_small_enough,
    "lists, just small enough": lambda: Reply(200, b"[" + b"[]," * (8 * MIB // 3 - 2) + b"[]]"),
    "warning, just small enough": lambda: vector(warnings=["w" * (8 * MIB - 200)]),
}
"""Answers by name, some of them the largest that are read."""


@pytest.mark.parametrize("name", ["bomb", *extended(*[*LARGE][1:])])
def test_large_answers_take_little_memory_also_many_at_once(
    http: PrometheusServer, name: str
) -> None:
    reply = LARGE[name]()
    http.usual = lambda _: reply

    command = [sys.executable, "-m", f"{__package__}.memory", http.url]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)

    assert int(ended.stdout) < LARGEST_MEMORY_MIB
    print(name, ended.stdout)
