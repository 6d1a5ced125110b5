"""Loads measured by a real Prometheus from simulated engines, and what a fault does to them."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.cli.measurement import Asked, QueryRecorder
from inferno_operator.controllers.measurement.catalogue import built_in
from inferno_operator.controllers.measurement.expressions import RateWindows
from inferno_operator.controllers.measurement.load import load
from inferno_operator.controllers.measurement.measured_servers import SERVER, Subjects
from inferno_operator.controllers.measurement.quality import measured
from inferno_operator.controllers.measurement.reconcile import Context
from inferno_operator.controllers.measurement.reconcile import reconcile as measure_servers
from inferno_operator.controllers.measurement.survey import Survey
from inferno_operator.resources import Load, Measure, Measured, Server
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.informers import Informers
from tests.cluster.connection import connected
from tests.cluster.scene import Mode, Scene, condition, in_mode
from tests.conftest import StartOperator
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import wait_until
from tests.engines.engine import Engine
from tests.engines.exposition import Dialect
from tests.engines.fleet import Fleet, Scrapes, Settings
from tests.engines.fleet import Server as Simulated
from tests.engines.prometheus import Access, Prometheus
from tests.engines.sglang import SGLANG
from tests.engines.vllm import VLLM, VLLM_OLD
from tests.engines.workload import Uniform, Workload
from tests.unit.operator.objects import (
    accelerator,
    capacity,
    model,
    observed,
    optimizer,
    performance,
    server,
    service_class,
)

WINDOWS = RateWindows(short=20, long=40)
"""Windows for replicas that are scraped every second."""

ENGINE = Engine(alpha=8.0, beta=0.1, gamma=20.0, delta=0.0008, max_batch_size=16)
LENGTHS = Workload(Uniform(200, 800), Uniform(50, 150))
OVERLOAD = 34.0
"""Requests/s that two replicas cannot serve: they complete about 23."""

PATIENCE_S = 60.0
PASSWORD = "secret"  # noqa: S105 - of the test's own Prometheus
BCRYPT = "$2b$04$qQ4FJAUznWjuOPjog/EWT.Q6d4w5OXoZ1SmL8U7if8ehAbtkYRSrO"
"""The hash of the password, as Prometheus wants it."""


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """What runs beside the control plane."""
    with Processes() as running:
        yield running


class World:
    """Simulated servers, a Prometheus that scrapes them, and surveys of it."""

    def __init__(self, fleet: Fleet, prometheus: Prometheus) -> None:
        self.fleet = fleet
        self.prometheus = prometheus
        self.servers: dict[str, Simulated] = {}

    def add(self, name: str, rate: float, dialect: Dialect = VLLM, replicas: int = 2) -> None:
        settings = Settings(ENGINE, LENGTHS, name, dialect, {"namespace": "prod"})
        self.servers[name] = self.fleet.add(name, settings, replicas, rate)

    def scrape(self) -> None:
        targets = self.fleet.targets()
        self.prometheus.set_targets(targets)

    async def survey(
        self, measures: Mapping[str, Measure], endpoint: PrometheusEndpoint | None = None
    ) -> dict[str, Measured]:
        """What one survey finds; nothing is remembered."""
        async with connect(endpoint or PrometheusEndpoint(self.prometheus.url)) as client:
            survey = Survey(client, built_in(), time.time, WINDOWS)
            results = await survey.ask({Key("prod", n): m for n, m in measures.items()})
        return {key.name: measured(r.reading, r.source, None, r.hint) for key, r in results.items()}

    def find(self, name: str, **fields: str) -> Measured:
        """What is found about one server."""
        return asyncio.run(self.survey({name: measure(name, **fields)}))[name]

    def wait(self, name: str, holds: Callable[[Measured], bool], what: str) -> Measured:
        return wait_until(lambda: self.find(name), holds, f"{name} {what}", PATIENCE_S)


def measure(name: str, source: str = "vLLM", **labels: str) -> Measure:
    return Measure(source=source, labels={"model_name": name, "namespace": "prod", **labels})


@pytest.fixture
def world(processes: Processes, prometheus_program: Path) -> Iterator[World]:
    """No servers yet."""
    name = f"prometheus-{time.monotonic_ns()}"
    with Fleet(seed=1) as fleet, Prometheus(processes, prometheus_program, name=name) as prometheus:
        yield World(fleet, prometheus)


@pytest.mark.slow
@pytest.mark.usefixtures("crds_installed")
def test_loads_are_within_5_percent_of_what_is_sent_also_of_overloaded_servers(
    world: World, scene: Scene
) -> None:
    for number in range(20):
        name = f"model-{number}"
        dialect, source = ((VLLM, "vLLM"), (VLLM_OLD, "vLLM"), (SGLANG, "SGLang"))[number % 3]
        world.add(name, OVERLOAD if number % 4 == 0 else 2.0 + number, dialect)
        spec = {"measure": measure(name, source).to_json(), "currentAlloc": None}
        scene.apply(server(name, spec=spec))
    world.scrape()
    began = time.monotonic()
    wait_until(
        lambda: time.monotonic() - began,
        lambda elapsed: elapsed > 2 * WINDOWS.long + 5,
        "two windows have passed",
        3 * WINDOWS.long,
    )

    asyncio.run(cycle(world, scene))

    end = world.fleet.now
    stored = scene.servers()
    for name, subject in world.servers.items():
        truth = subject.truth(end - WINDOWS.long, end)
        recent = subject.truth(end - WINDOWS.short, end)
        sent = [60 * truth.arrival_rate, 60 * recent.arrival_rate]
        seen = stored[name]["status"]["measured"]
        load = stored[name]["spec"]["currentAlloc"]["load"]
        assert seen["quality"] == "Fresh", seen["message"]
        assert min(sent) * 0.95 <= seen["arrivalRate"] <= max(sent) * 1.05
        assert load["arrivalRate"] == seen["load"]["arrivalRate"]
        assert load["arrivalRate"] == pytest.approx(seen["arrivalRate"] + seen["backlog"])
        assert seen["avgInTokens"] == pytest.approx(truth.input_tokens, rel=0.05)
        assert seen["avgOutTokens"] == pytest.approx(truth.output_tokens, rel=0.05)
        if subject.waiting() > 100:
            completed = world.prometheus.query(completions(name))[0].value * 60
            assert completed < 0.8 * sent[0]
    assert sum(subject.waiting() > 100 for subject in world.servers.values()) == 5


async def cycle(world: World, scene: Scene) -> None:
    """One measuring cycle of all Servers of the namespace."""

    def now() -> datetime:
        return datetime.now(UTC)

    async with (
        connected(scene.control_plane.kubeconfig, now) as api,
        connect(PrometheusEndpoint(world.prometheus.url)) as client,
    ):
        subjects = Subjects(Informers(api), lambda _: None)
        for manifest in (await api.list(SERVER, scene.namespace)).manifests:
            subjects.note(observe(Server, manifest))
        survey = Survey(client, built_in(), time.time, WINDOWS)
        await measure_servers(Context(api, subjects, survey, now))


def completions(name: str) -> str:
    selector = f'{{model_name="{name}"}}[{WINDOWS.long}s]'
    return (
        f"sum(rate(vllm:request_success_total{selector}) or rate(sglang:num_requests_total"
        f"{selector}))"
    )


def test_every_expression_of_the_catalogue_is_one_of_prometheus(world: World) -> None:
    measures = {
        name: Measure(source=name, labels={"model_name": 'a "quoted\\ \n name', "namespace": "p"})
        for name in built_in()
    }

    async def ask() -> list[Asked]:
        async with connect(PrometheusEndpoint(world.prometheus.url)) as client:
            recorder = QueryRecorder(client)
            survey = Survey(recorder, built_in(), time.time, WINDOWS)
            await survey.ask({Key("p", n): m for n, m in measures.items()})
            return recorder.asked

    asked = asyncio.run(ask())

    assert len(asked) > 5 * len(measures)
    assert [query.problem for query in asked if query.problem] == []
    assert all(world.prometheus.parse(query.expression) for query in asked)


@pytest.fixture(scope="module")
def warm(processes: Processes, prometheus_program: Path) -> Iterator[World]:
    """A server whose load is known: enough requests of it were counted."""
    with Fleet(seed=3) as fleet, Prometheus(processes, prometheus_program) as prometheus:
        world = World(fleet, prometheus)
        world.add("llama", 6.0)
        world.scrape()
        world.prometheus.wait_for_scrapes()
        world.wait("llama", lambda found: found.arrival_rate is not None, "has a first load")
        yield world


STANDING = Load(arrival_rate=300, avg_in_tokens=500, avg_out_tokens=100)


def planned(found: Measured) -> float:
    """The load of the next plan, after one for 300 requests/min."""
    place = {"accelerator": "A", "numReplicas": 2, "load": STANDING.to_json()}
    spec = {"measure": {"source": "vLLM", "labels": {"a": "b"}}, "desiredAlloc": place}
    resource = observed(server(spec={**spec, "currentAlloc": place})).resource
    assert isinstance(resource, Server)
    newest = load(resource, found)
    assert newest is not None
    return newest.arrival_rate


@pytest.fixture
def busy(world: World) -> World:
    """Servers with four replicas each."""
    for name in ("a", "b"):
        world.add(name, 8.0, replicas=4)
    world.scrape()
    world.wait("a", lambda m: bool(m.arrival_rate), "has a load")
    return world


def test_replicas_that_do_not_report_and_engines_that_died_lower_no_load(busy: World) -> None:
    half = ["a-0", "a-1"]
    busy.servers["a"].set_scrapes(Scrapes.REFUSED, *half)
    for name in list(busy.servers["b"].pods):
        busy.servers["b"].kill(name)

    partial = busy.wait("a", lambda m: "2 of 4" in m.message, "is partial")
    stale = busy.wait("b", lambda m: m.quality == "Stale", "is stale")

    assert "2 of 4 replicas report" in partial.message
    assert "no replica reports now: the newest sample is" in stale.message
    assert planned(partial) >= STANDING.arrival_rate
    assert planned(stale) == STANDING.arrival_rate


def test_a_prometheus_that_hangs_or_is_down_lowers_no_load(busy: World) -> None:
    quick = PrometheusEndpoint(busy.prometheus.url, timeout=2.0)
    busy.prometheus.suspend()
    hanging = asyncio.run(busy.survey({"a": measure("a")}, quick))["a"]
    busy.prometheus.resume()
    after = busy.wait("a", lambda m: m.quality == "Partial", "is back")
    busy.prometheus.stop()
    down = asyncio.run(busy.survey({"a": measure("a")}, quick))["a"]

    assert (hanging.quality, down.quality) == ("Stale", "Stale")
    assert "no answer within 2 s" in hanging.message
    assert "does not answer" in down.message
    assert after.arrival_rate is not None
    assert planned(hanging) == planned(down) == STANDING.arrival_rate


def test_a_wrong_label_is_missing_and_the_message_has_the_right_one(warm: World) -> None:
    found = warm.find("llama", namespace="prodd")

    assert found.quality == "Missing"
    assert 'there is {model_name="llama", namespace="prod"}' in found.message
    assert planned(found) == STANDING.arrival_rate


def test_a_wrong_source_is_missing_and_the_message_has_the_metrics(warm: World) -> None:
    found = warm.find("llama", source="SGLang")

    assert found.quality == "Missing"
    assert "but there are vllm:num_requests_running" in found.message


@pytest.mark.slow
def test_a_server_without_requests_is_idle_after_the_long_window(world: World) -> None:
    world.add("quiet", 0.0)
    world.scrape()

    young = world.wait("quiet", lambda m: m.arrival_rate is not None, "is known")
    idle = world.wait("quiet", lambda m: m.quality == "Idle", "is idle")

    assert (young.quality, young.arrival_rate) == ("Partial", 0)
    assert idle.arrival_rate == 0
    assert planned(young) == STANDING.arrival_rate
    assert planned(idle) == 0


def test_a_restarted_replica_whose_counters_begin_anew_is_no_peak(busy: World) -> None:
    before = busy.wait("a", lambda m: m.arrival_rate is not None, "has a load")
    busy.servers["a"].restart("a-0")

    after = busy.wait("a", lambda m: m.replicas is not None, "is there again")

    assert before.arrival_rate is not None
    assert after.arrival_rate is not None
    assert after.arrival_rate < 2 * 60 * 8


def test_a_wrong_password_is_refused_in_the_words_of_prometheus(
    processes: Processes, prometheus_program: Path, tmp_path: Path
) -> None:
    access = Access({"basic_auth_users": {"inferno": BCRYPT}}, {"auth": ("inferno", PASSWORD)})
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    with (
        Fleet(seed=2) as fleet,
        Prometheus(processes, prometheus_program, name="guarded", access=access) as prometheus,
    ):
        world = World(fleet, prometheus)
        world.add("a", 4.0)
        world.scrape()
        good = PrometheusEndpoint(prometheus.url, user="inferno", password=password)
        wait_until(
            lambda: asyncio.run(world.survey({"a": measure("a")}, good))["a"].quality,
            lambda quality: quality in ("Fresh", "Partial"),
            "the right password works",
            PATIENCE_S,
        )
        password.write_text("wrong")
        wrong = asyncio.run(world.survey({"a": measure("a")}, good))["a"]
        nobody = replace(good, user="", password=None)
        anonymous = asyncio.run(world.survey({"a": measure("a")}, nobody))["a"]

    assert (wrong.quality, anonymous.quality) == ("Refused", "Refused")
    assert "HTTP 401" in wrong.message
    assert str(password) in wrong.message
    assert "wrong" not in wrong.message.replace(str(password), "")
    assert planned(wrong) == STANDING.arrival_rate


@pytest.mark.parametrize(
    ("expression", "quality", "words"),
    [
        ("sum(rate(", "Refused", "parse error"),
        ("up[1m]", "Refused", "spec.measure.queries.arrivalRate"),
        ("up", "Refused", "series: aggregate them to one"),
        ("sum(nothing)", "Missing", "returns no number"),
        ("0 / 0", "Missing", "returns no number"),
        ("vector(2.5)", "Fresh", ""),
        ("2.5", "Fresh", ""),
    ],
)
def test_an_own_query_is_answered_by_a_number_or_a_message(
    warm: World, expression: str, quality: str, words: str
) -> None:
    own = Measure.model_validate({"source": "Custom", "queries": {"arrivalRate": expression}})

    found = asyncio.run(warm.survey({"own": own}))["own"]

    assert found.quality == quality
    assert words in found.message
    assert "\n" not in found.message
    assert found.arrival_rate == (150 if quality == "Fresh" else None)


@pytest.mark.usefixtures("crds_installed")
def test_an_optimization_uses_the_measured_load_in_every_mode(
    warm: World, scene: Scene, operator: StartOperator, mode: Mode
) -> None:
    spec = {"measure": measure("llama").to_json(), "currentAlloc": None}
    data = [performance(alpha=8, beta=0.1) | {"maxBatchSize": 16}]
    resources = [accelerator(), model(data=data), service_class(), capacity(100)]
    scene.apply(*resources, server(spec=spec), optimizer(optimize=False))
    environment = {"INFERNO_PROMETHEUS_URL": warm.prometheus.url, "INFERNO_MEASURE_INTERVAL": "1"}
    in_mode(operator, mode.environment)(environment=environment)

    scene.request("inferno")
    scene.wait_until_done("inferno")

    wait_until(
        lambda: condition(scene.servers()["s"], "Measured").get("reason"),
        lambda reason: reason in ("Fresh", "Partial"),
        "the measurement is written",
        PATIENCE_S,
    )
    stored = scene.servers()["s"]
    assert condition(stored, "Allocated")["status"] == "True"
    planned_for = stored["spec"]["desiredAlloc"]["load"]
    assert planned_for["arrivalRate"] > 0
    assert planned_for["avgOutTokens"] == pytest.approx(100, rel=0.3)
    assert stored["spec"]["currentAlloc"]["load"]["avgInTokens"] == pytest.approx(500, rel=0.3)


@pytest.mark.usefixtures("crds_installed")
def test_a_prometheus_that_stops_takes_no_replica_from_a_server(
    warm: World, scene: Scene, operator: StartOperator
) -> None:
    spec = {"measure": measure("llama").to_json(), "currentAlloc": None}
    data = [performance(alpha=8, beta=0.1) | {"maxBatchSize": 2}]
    resources = [accelerator(), model(data=data), service_class(), capacity(100)]
    scene.apply(*resources, server(spec=spec), optimizer(optimize=False))
    environment = {"INFERNO_PROMETHEUS_URL": warm.prometheus.url, "INFERNO_MEASURE_INTERVAL": "1"}
    operator(environment=environment)
    scene.request("inferno")
    scene.wait_until_done("inferno")
    before = scene.servers()["s"]["spec"]["desiredAlloc"]

    warm.prometheus.stop()
    wait_until(
        lambda: condition(scene.servers()["s"], "Measured").get("reason"),
        lambda reason: reason == "Stale",
        "the operator notices",
        PATIENCE_S,
    )
    scene.request("inferno")
    scene.wait_until_done("inferno")
    warm.prometheus.start()

    after = scene.servers()["s"]["spec"]["desiredAlloc"]
    assert before["numReplicas"] >= 2
    assert after["numReplicas"] >= before["numReplicas"]
    assert after["load"]["arrivalRate"] >= before["load"]["arrivalRate"]
