"""What a measuring cycle costs: queries, processor time and memory.

Prometheus is replaced by answers that were encoded before: only the operator's side is measured,
from the bytes of an answer to what is written on the Servers.
"""

import asyncio
import gc
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from json import dumps, loads
from pathlib import Path

import httpx

from inferno_operator.adapters.prometheus.client import PrometheusClient
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.controllers.measurement.controller import Context, reconcile
from inferno_operator.controllers.measurement.lookahead import Lookahead
from inferno_operator.controllers.measurement.measured_servers import SERVER, MeasuredServers
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.survey import Survey
from inferno_operator.main import COLLECTION
from inferno_operator.resources import API_VERSION, Server
from inferno_operator.resources.objects import Key, Kind, Manifest
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import Listing
from tests.bench.library import Numbers
from tests.fakes import FakeCluster

INTERVAL_S = 30.0
CYCLES = 5
"""Cycles of which the costs are averaged; the first one, which asks more, is not among them."""

PARTS = {
    "delta": {"0": 5.0},
    "histogram_quantile": {"itlAverage": 0.03, "ttftAverage": 0.3, "waitAverage": 0.1},
    "count_over_time": {"running": 8.0, "waiting": 0.0, "kvCacheUsage": 0.5, "reporting": 2.0},
    "request_prompt_tokens_sum": {
        "avgInTokens": 500.0,
        "avgOutTokens": 100.0,
        "itlAverage": 0.02,
        "ttftAverage": 0.1,
        "waitAverage": 0.01,
    },
}
"""Parts of an answer, by a word of the query; the first word that it has counts."""

BUCKETS = ("1", "2", "5", "10", "20", "50", "100", "200", "500", "1000", "2000", "+Inf")


def measurement(*, servers: int) -> Numbers:
    """Cycles that measure so many Servers of one source."""
    gc.set_threshold(*COLLECTION)  # as the operator has it
    return asyncio.run(_cycles(servers))


async def _cycles(servers: int) -> Numbers:
    cluster, asked = Written(), list[str]()
    for number in range(servers):
        cluster.add(_server(number))
    for words in (*((word,) for word in PARTS), ()):
        _body(servers, words)
    measured = MeasuredServers(Informers(cluster), lambda _: None)
    await _note(cluster, measured)
    transport = httpx.MockTransport(lambda request: _answer(request, servers, asked))
    _high_water_mib()
    before = _high_water_mib()  # of now: the last call began a new mark
    async with httpx.AsyncClient(base_url="http://prometheus", transport=transport) as client:
        prometheus = PrometheusClient(client, PrometheusEndpoint("http://prometheus"), Observer())
        survey = Survey(prometheus, read_built_in_sources(), time.time)
        context = Context(cluster, measured, survey, lambda: datetime.now(UTC), Lookahead(30.0))
        await reconcile(context)
        more = _high_water_mib() - before
        await _note(cluster, measured)
        writes = cluster.count
        asked.clear()
        began = time.process_time()
        for _ in range(CYCLES):
            await reconcile(context)
        seconds = (time.process_time() - began) / CYCLES
    return {
        "queries": len(asked) / CYCLES,
        "seconds": seconds,
        "cpu_percent": 100 * seconds / INTERVAL_S,
        "more_mib": more,
        "writes": cluster.count - writes,
    }


async def _note(cluster: FakeCluster, servers: MeasuredServers) -> None:
    """Let the Servers be known as they are now."""
    for manifest in (await cluster.list(SERVER, "")).manifests:
        servers.note(observe(Server, manifest))


class Written(FakeCluster):
    """Counts writes, and keeps what was written, with little memory of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._parts_of: dict[tuple[str, Key], dict[str, str]] = {}

    async def list(self, kind: Kind, namespace: str) -> Listing:
        found = await super().list(kind, namespace)
        manifests = tuple(self._with_written(kind, manifest) for manifest in found.manifests)
        return replace(found, manifests=manifests)

    def _with_written(self, kind: Kind, manifest: Manifest) -> Manifest:
        parts = self._parts_of.get((kind.kind, Key.of(manifest)), {})
        spec = {**manifest["spec"], **loads(parts.get("spec", "{}"))}
        return {**manifest, "spec": spec, "status": loads(parts.get("status", "{}"))}

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        """Set the fields of a manifest."""
        del manager, force
        self.count += 1
        place = kind.kind, Key.of(manifest)
        parts = self._parts_of.setdefault(place, {})
        parts |= {part: dumps(manifest[part]) for part in ("spec", "status") if part in manifest}
        return self.objects[place]


def _high_water_mib() -> float:
    """The most memory since the last call [MiB]; needs Linux."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _server(number: int) -> dict[str, object]:
    spec = {
        "name": f"server-{number}",
        "class": "Premium",
        "model": f"model-{number}",
        "measure": {"source": "vLLM", "labels": _labels(number)},
    }
    metadata = {"name": f"server-{number}", "namespace": "prod"}
    return {"apiVersion": API_VERSION, "kind": "Server", "metadata": metadata, "spec": spec}


def _labels(number: int) -> dict[str, str]:
    return {"model_name": f"model-{number}", "namespace": "prod"}


def _answer(request: httpx.Request, servers: int, asked: list[str]) -> httpx.Response:
    query = httpx.QueryParams(request.content.decode())["query"]
    asked.append(query)
    by_bucket = re.match(r"sum by \(le", query) is not None
    words = () if by_bucket else tuple(word for word in PARTS if word in query)
    return httpx.Response(200, content=_body(servers, words[:1]))


@cache
def _body(servers: int, words: Sequence[str]) -> bytes:
    """An answer with the parts of a word for each server, or with buckets."""
    now = time.time()
    rows: list[tuple[dict[str, str], float]] = [
        ({"le": le}, 10.0 * number) for number, le in enumerate(BUCKETS, 1)
    ]
    if words:
        rows = [({"inferno_part": part}, value) for part, value in PARTS[words[0]].items()]
    result = [
        {"metric": _labels(number) | labels, "value": [now, str(value)]}
        for number in range(servers)
        for labels, value in rows
    ]
    data = {"resultType": "vector", "result": result}
    return dumps({"status": "success", "data": data}).encode()
