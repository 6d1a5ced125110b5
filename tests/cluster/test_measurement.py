"""Loads measured by a real Prometheus from simulated engines, and what a fault does to them."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.controllers.measurement.load import find_load
from inferno_operator.controllers.measurement.quality import judge_reading
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.series_groups import RateWindows
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Load, Measure, Measured, Server
from inferno_operator.resources.objects import Key
from tests.cluster.motion import ENGINES, Mover, PodTimes, manifests, moving
from tests.cluster.scene import Manifest, Mode, Scene, condition, in_mode, in_opposite_modes
from tests.conftest import StartOperator
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import wait_until
from tests.engines.clocked import Clocked
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Settings
from tests.engines.history import Change, Scraping, scraped
from tests.engines.prometheus import Access, Prometheus
from tests.engines.vllm import VLLM
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
PASSWORD = "secret"  # noqa: S105 - of the test's own Prometheus
BCRYPT = "$2b$04$qQ4FJAUznWjuOPjog/EWT.Q6d4w5OXoZ1SmL8U7if8ehAbtkYRSrO"
"""The hash of the password, as Prometheus wants it."""


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """What runs beside the control plane."""
    with Processes() as running:
        yield running


class World:
    """Simulated servers, a Prometheus that scrapes them, and surveys of it.

    Parameters
    ----------
    fleet
        Simulates them.
    clock
        Unix time [s] of which Prometheus is asked.

    Attributes
    ----------
    prometheus
        Set by who starts it.
    """

    prometheus: Prometheus

    def __init__(self, fleet: Fleet, clock: Callable[[], float] = time.time) -> None:
        self.fleet = fleet
        self.clock = clock

    def add(self, name: str, rate: float, replicas: int = 2) -> None:
        settings = Settings(ENGINE, LENGTHS, name, VLLM, {"namespace": "prod"})
        self.fleet.add(name, settings, replicas, rate)

    def scrape(self) -> None:
        targets = self.fleet.targets()
        self.prometheus.set_targets(targets)

    async def survey(
        self, measures: Mapping[str, Measure], endpoint: PrometheusEndpoint | None = None
    ) -> dict[str, Measured]:
        """What one survey finds; nothing is remembered."""
        async with connect(endpoint or PrometheusEndpoint(self.prometheus.url)) as client:
            clocked = Clocked(client, self.clock())
            survey = Survey(clocked, read_built_in_sources(), self.clock, WINDOWS)
            results = await survey.ask({Key("prod", n): m for n, m in measures.items()})
        return {
            key.name: judge_reading(r.reading, r.source, None, r.hint) for key, r in results.items()
        }

    def find(self, name: str, **fields: str) -> Measured:
        """What is found about one server."""
        return asyncio.run(self.survey({name: measure(name, **fields)}))[name]

    def wait(self, name: str, holds: Callable[[Measured], bool], what: str) -> Measured:
        return wait_until(lambda: self.find(name), holds, f"{name} {what}")


EVERY_SECOND = Scraping(1, 1, ("--query.lookback-delta=2s",))
"""As if the ends of series were marked."""


@contextmanager
def past(
    processes: Processes,
    programs: tuple[Path, Path],
    seconds: int,
    add: Callable[[World], None],
    scraping: Scraping = EVERY_SECOND,
) -> Iterator[World]:
    """Yield a world whose past Prometheus has, in virtual time; one looks at its end."""
    worlds: list[World] = []

    def populate(fleet: Fleet) -> Change:
        worlds.append(World(fleet, lambda: fleet.began + seconds))
        add(worlds[0])
        return lambda _: None

    name = f"past-{time.monotonic_ns()}"
    with scraped(
        processes,
        programs,
        seconds,
        populate,
        buckets=False,
        name=name,
        scraping=scraping,
    ) as prometheus:
        worlds[0].prometheus = prometheus
        yield worlds[0]


def measure(name: str, source: str = "vLLM", **labels: str) -> Measure:
    return Measure(source=source, labels={"model_name": name, "namespace": "prod", **labels})


@pytest.fixture(scope="session")
def programs(prometheus_program: Path, promtool: Path) -> tuple[Path, Path]:
    """What a past takes."""
    return prometheus_program, promtool


def add_llama(world: World) -> None:
    world.add("llama", 6.0)


@pytest.fixture(scope="module")
def warm(processes: Processes, programs: tuple[Path, Path]) -> Iterator[World]:
    """A server whose load is known, and that goes on."""
    scraping = Scraping(1, 1, goes_on=True)
    with past(processes, programs, 320, add_llama, scraping) as world:
        world.prometheus.wait_for_scrapes()
        yield world


@pytest.fixture(scope="module")
def known(processes: Processes, programs: tuple[Path, Path]) -> Iterator[World]:
    """The same server, of which nothing is scraped any more."""
    with past(processes, programs, 30, add_llama) as world:
        yield world


STANDING = Load(arrival_rate=300, avg_in_tokens=500, avg_out_tokens=100)


def planned(found: Measured) -> float:
    """The load of the next plan, after one for 300 requests/min."""
    place = {"accelerator": "A", "numReplicas": 2, "load": STANDING.to_json()}
    spec = {"measure": {"source": "vLLM", "labels": {"a": "b"}}, "desiredAlloc": place}
    resource = observed(server(spec={**spec, "currentAlloc": place})).resource
    assert isinstance(resource, Server)
    newest = find_load(resource, found)
    assert newest is not None
    return newest.arrival_rate


def busy(world: World) -> None:
    world.add("a", 8.0, replicas=4)


def test_a_prometheus_that_hangs_or_is_down_lowers_no_load(
    processes: Processes, programs: tuple[Path, Path]
) -> None:
    with past(processes, programs, 20, busy) as world:
        quick = PrometheusEndpoint(world.prometheus.url, timeout=2.0)
        world.prometheus.suspend()
        hanging = asyncio.run(world.survey({"a": measure("a")}, quick))["a"]
        world.prometheus.resume()
        after = world.wait("a", lambda m: m.quality == "Partial", "is back")
        world.prometheus.stop()
        down = asyncio.run(world.survey({"a": measure("a")}, quick))["a"]

    assert (hanging.quality, down.quality) == ("Stale", "Stale")
    assert "no answer within 2 s" in hanging.message
    assert "does not answer" in down.message
    assert after.arrival_rate is not None
    assert planned(hanging) == planned(down) == STANDING.arrival_rate


def test_a_wrong_label_is_missing_and_the_message_has_the_right_one(known: World) -> None:
    found = known.find("llama", namespace="prodd")

    assert found.quality == "Missing"
    assert 'there is {model_name="llama", namespace="prod"}' in found.message
    assert planned(found) == STANDING.arrival_rate


def test_a_wrong_source_is_missing_and_the_message_has_the_metrics(known: World) -> None:
    found = known.find("llama", source="SGLang")

    assert found.quality == "Missing"
    assert "but there are vllm:num_requests_running of source vLLM" in found.message


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
        world = World(fleet)
        world.prometheus = prometheus
        world.add("a", 4.0)
        world.scrape()
        good = PrometheusEndpoint(prometheus.url, user="inferno", password=password)
        wait_until(
            lambda: asyncio.run(world.survey({"a": measure("a")}, good))["a"].quality,
            lambda quality: quality in ("Fresh", "Partial"),
            "the right password works",
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
    known: World, expression: str, quality: str, words: str
) -> None:
    own = Measure.model_validate({"source": "Custom", "queries": {"arrivalRate": expression}})

    found = asyncio.run(known.survey({"own": own}))["own"]

    assert found.quality == quality
    assert words in found.message
    assert "\n" not in found.message
    assert found.arrival_rate == (150 if quality == "Fresh" else None)


def wait_for_measurement(scene: Scene, *reasons: str) -> None:
    """Wait until the operator says this of the measurement."""
    wait_until(
        lambda: condition(scene.servers()["s"], "Measured").get("reason"),
        lambda reason: reason in reasons,
        f"a measurement that is {reasons}",
    )


def with_a_measured_server(warm: World, scene: Scene, *, max_batch_size: int) -> dict[str, str]:
    """Apply a Server and all that it needs; the variables of an operator that measures it."""
    spec = {"measure": measure("llama").to_json(), "currentAlloc": None}
    data = [performance(alpha=8, beta=0.1) | {"maxBatchSize": max_batch_size}]
    resources = [accelerator(), model(data=data), service_class(), capacity(100)]
    scene.apply(*resources, server(spec=spec), optimizer(optimize=False))
    return {"INFERNO_PROMETHEUS_URL": warm.prometheus.url, "INFERNO_MEASURE_INTERVAL": "1"}


@in_opposite_modes
@pytest.mark.usefixtures("crds_installed")
def test_an_optimization_uses_the_measured_load(
    warm: World, scene: Scene, operator: StartOperator, mode: Mode
) -> None:
    environment = with_a_measured_server(warm, scene, max_batch_size=16)
    in_mode(operator, mode.environment)(environment=environment)

    scene.optimize()

    wait_for_measurement(scene, "Fresh", "Partial")
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
    environment = with_a_measured_server(warm, scene, max_batch_size=2)
    operator(environment=environment)
    wait_for_measurement(scene, "Fresh", "Partial")
    scene.optimize()
    before = scene.servers()["s"]["spec"]["desiredAlloc"]

    warm.prometheus.stop()
    wait_for_measurement(scene, "Stale")
    scene.optimize()
    warm.prometheus.start()

    after = scene.servers()["s"]["spec"]["desiredAlloc"]
    assert before["numReplicas"] >= 2
    assert after["numReplicas"] >= before["numReplicas"]
    assert after["load"]["arrivalRate"] >= before["load"]["arrivalRate"]


CROWD_S, CROWD, CROWD_RATE = 20, 5, 12.0
"""Window of all rates [s], and the replicas for a load [requests/s]: each serves 3 in a second."""


def crowd_manifests() -> Iterator[Manifest]:
    """Yield all objects of a Server that needs five replicas, with short windows."""
    mover = Mover("crowd", lambda _: CROWD_RATE, ("A100",), CROWD)
    for manifest in manifests([mover], {"A100": 20}, interval=2):
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Model":
            (data,) = (item for item in spec["data"] if item["acc"] == "A100")
            data["decodeParms"] = {"alpha": CROWDED.alpha, "beta": CROWDED.beta}
        if manifest["kind"] == "Server":
            windows = {"shortSeconds": CROWD_S // 2, "longSeconds": CROWD_S}
            spec["measure"]["windows"] = windows
            spec["scaleDown"] = {"windowSeconds": CROWD_S}
        yield manifest


CROWDED = replace(ENGINES["A100"], beta=1.0)
"""A step takes 20 ms with 12 requests."""


@pytest.mark.minutes
@pytest.mark.usefixtures("crds_installed", "deployment_controllers")
def test_pods_that_prometheus_loses_take_no_replica_from_a_server_under_full_load(
    scene: Scene, operator: StartOperator, prometheus_program: Path
) -> None:
    mover = Mover("crowd", lambda _: CROWD_RATE, ("A100",), CROWD, CROWDED)
    times = PodTimes(cold_start_s=3.0, ending_s=2.0)

    def is_fresh() -> str:
        return str(condition(scene.servers()["crowd"], "Measured").get("reason"))

    with moving(scene, prometheus_program, [mover], scrape_s=1.0, pods=times) as motion:
        scene.apply(*crowd_manifests())
        wait_until(motion.all_serve, bool, "replicas that serve")
        operator(environment=motion.environment(measure_s=2.0))
        motion.begin()

        def is_steady() -> bool:
            """Whether what the first windows wanted more is gone."""
            server, placements = scene.servers()["crowd"], motion.seen["crowd"].placements
            quiet_s = motion.elapsed - placements[-1][0] if placements else 0.0
            told = condition(server, "Actuated").get("reason"), is_fresh()
            return told == ("Actuated", "Fresh") and quiet_s > 1.2 * CROWD_S

        wait_until(is_steady, bool, "replicas for the load", 15 * CROWD_S)
        motion.begin()
        first = sum(motion.seen["crowd"].placements[-1][1].values())
        _, *lost = sorted(motion.servers["crowd"].pods)
        motion.lose(lost)
        told = wait_until(
            lambda: str(condition(scene.servers()["crowd"], "Measured").get("message")),
            lambda message: f"1 of {first} ready pods report" in message,
            "pods that are not discovered",
        )
        reason = condition(scene.servers()["crowd"], "Measured")["reason"]
        replicas = scene.servers()["crowd"]["status"]["measured"]["replicas"]
        wait_until(lambda: motion.elapsed, lambda s: s > 2.5 * CROWD_S, "longer than both windows")
        placements = motion.seen["crowd"].placements
        motion.lose(())
        wait_until(is_fresh, lambda reason: reason == "Fresh", "pods that are discovered again")

    assert first >= CROWD
    assert (reason, told[:32]) == ("Partial", "the load may grow but not shrink")
    assert replicas == {"ready": first, "reporting": 1}
    assert all(sum(each.values()) >= first for _, each in placements)
