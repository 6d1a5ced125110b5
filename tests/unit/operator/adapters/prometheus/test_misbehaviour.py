"""A Prometheus that misbehaves: real HTTP, the real client, measuring cycles and decisions.

Each misbehaviour is tried twice: once all answers are affected for one cycle, and once for ever
those to queries that name the servers of one namespace. Nobody's load or replicas become less,
and the servers of the other namespace are measured in the next cycle at the latest.
"""

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from inferno_operator.adapters.prometheus.client import PrometheusClient, connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.controllers.measurement.controller import Context, reconcile
from inferno_operator.controllers.measurement.lookahead import Lookahead
from inferno_operator.controllers.measurement.measured_servers import SERVER, MeasuredServers
from inferno_operator.controllers.planning.ports import Context as PlanningContext
from inferno_operator.controllers.planning.ports import OnDemand
from inferno_operator.controllers.planning.reconcile import reconcile as optimize_namespace
from inferno_operator.engines.catalogue import built_in
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.informers import Informers
from inferno_optimizer.forecast import first_ratio
from tests.fakes import FakeCluster, FakeOptimizer
from tests.tiers import extended, sampled
from tests.unit.operator.adapters.prometheus.misbehaviour import MIB, MISBEHAVIOURS, Series
from tests.unit.operator.adapters.prometheus.serving import (
    Act,
    Asked,
    PrometheusServer,
    Reply,
    serving,
    vector,
)
from tests.unit.operator.objects import (
    Manifest,
    optimizer,
    server,
    system,
)

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
        survey = Survey(prometheus, built_in(), time.time)
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
            context = PlanningContext(
                self.cluster, OnDemand(self.cluster), FakeOptimizer(), self.now, self.now
            )
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


@pytest.mark.parametrize("name", sampled(MISBEHAVIOURS))
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


@pytest.mark.parametrize("name", sampled(sorted(MISBEHAVIOURS.keys() - {"too many requests"})))
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
    "bomb packed twice": lambda: MISBEHAVIOURS["bomb packed twice"]((), ()),
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
