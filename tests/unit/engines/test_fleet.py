"""Servers of simulated replicas over HTTP, at times that the test chooses."""

import math
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Server, Settings
from tests.engines.prometheus import Target
from tests.engines.workload import Fixed, Workload

ENGINE = Engine(8.0, 0.1, 20.0, 0.0008)
SETTINGS = Settings(
    ENGINE, Workload(Fixed(512), Fixed(200)), "granite", labels={"namespace": "prod"}
)


class Clock:
    """Unix time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fleet(clock: Clock) -> Iterator[Fleet]:
    with Fleet(seed=3, clock=clock) as fleet:
        yield fleet


@pytest.fixture
def server(fleet: Fleet) -> Server:
    return fleet.add("chat", SETTINGS, replicas=2, rate=4.0)


def get(target: Target) -> httpx.Response:
    return httpx.get(target.url, timeout=60.0)


def completions(target: Target) -> float:
    families = text_string_to_metric_families(get(target).text)
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "vllm:request_success_total"
    )


def test_time_passes_between_scrapes(fleet: Fleet, server: Server, clock: Clock) -> None:
    target, _ = fleet.targets()
    first = completions(target)
    clock.now += 100.0
    second = completions(target)

    assert first == 0
    assert second == pytest.approx(2.0 * 100, rel=0.2)
    assert server.truth(0.0, 100.0).arrivals > second


def test_the_truth_is_told_for_any_time_that_is_past(server: Server, clock: Clock) -> None:
    clock.now += 1000.0
    server.set_rate(10.0)
    clock.now += 1000.0

    before, after = server.truth(0.0, 1000.0), server.truth(1000.0, 2000.0)

    assert before.arrival_rate == pytest.approx(4.0, rel=0.05)
    assert after.arrival_rate == pytest.approx(10.0, rel=0.05)
    assert after.itl_ms > before.itl_ms > 8.0
    assert after.ttft_ms > 20.0
    assert (after.input_tokens, after.output_tokens) == (512, 200)
    assert math.isnan(server.truth(2000.0, 2001.0).itl_ms)


def test_the_same_seed_gives_the_same_numbers(clock: Clock) -> None:
    pages = []
    for _ in range(2):
        clock.now = 1_800_000_000.0
        with Fleet(seed=5, clock=clock) as fleet:
            fleet.add("chat", SETTINGS, replicas=2, rate=4.0)
            clock.now += 60.0
            pages.append([get(target).text for target in fleet.targets()])

    assert pages[0] == pages[1]
    assert pages[0][0] != pages[0][1]


def test_a_fleet_can_be_faster_than_the_clock(clock: Clock) -> None:
    with Fleet(seed=5, clock=clock, speed=60.0) as fleet:
        server = fleet.add("chat", SETTINGS, replicas=1, rate=4.0)
        clock.now += 10.0

        assert fleet.now == pytest.approx(600.0)
        assert server.truth(0.0, 600.0).arrival_rate == pytest.approx(4.0, rel=0.1)


def test_a_replica_that_drains_gets_nothing_and_completes_what_it_has(
    clock: Clock, server: Server
) -> None:
    clock.now += 10
    server.drain("chat-0")
    drained = server.pods["chat-0"].replica
    assert drained is not None
    received = drained.totals.arrivals

    clock.now += 60
    truth = server.truth(20.0, 70.0)

    assert drained.totals.arrivals == received == sum(drained.totals.completions.values())
    assert truth.arrival_rate == pytest.approx(4.0, rel=0.2)


def test_replicas_on_different_accelerators_share_the_load_by_their_speed(
    clock: Clock, server: Server
) -> None:
    server.start("chat-2", ENGINE.slowed(0.5))

    clock.now += 200
    truth = server.truth(0.0, 200.0)

    fast = server.pods["chat-2"].replica
    assert fast is not None
    assert fast.totals.arrivals / truth.arrivals == pytest.approx(0.5, rel=0.1)


def test_the_requests_within_targets_are_those_that_single_requests_show(
    clock: Clock, server: Server
) -> None:
    clock.now += 100

    all_, total = server.within_targets(0.0, 100.0, ttft_ms=math.inf, itl_ms=math.inf)
    none, _ = server.within_targets(0.0, 100.0, ttft_ms=math.inf, itl_ms=8.0)
    fast, _ = server.within_targets(0.0, 100.0, ttft_ms=25.0, itl_ms=math.inf)

    assert all_ == total == server.truth(0.0, 100.0).completions
    assert none == 0
    assert 0 < fast < total


def test_requests_that_wait_too_long_or_are_lost_are_not_within_targets(
    clock: Clock, server: Server
) -> None:
    server.set_rate(100.0)  # far more than it can serve
    clock.now += 100

    good, total = server.within_targets(0.0, 90.0, ttft_ms=1000.0, itl_ms=math.inf)

    truth = server.truth(0.0, 90.0)
    assert good < truth.completions < total == truth.arrivals
    server.kill("chat-0")
    server.kill("chat-1")
    assert server.within_targets(0.0, 90.0, ttft_ms=math.inf, itl_ms=math.inf) == (
        server.truth(0.0, 100.0).completions,
        truth.arrivals,
    )
