"""Queries of a Server's own over a real Prometheus that has less than their window."""

import asyncio
from pathlib import Path

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.controllers.measurement.quality import judge_reading
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Measure, Measured
from inferno_operator.resources.objects import Key
from tests.controlplane.processes import Processes
from tests.engines.clocked import Clocked
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Settings
from tests.engines.history import Change, scraped
from tests.engines.workload import Uniform, Workload

ENGINE = Engine(alpha=6.0, beta=0.07, gamma=0.8, delta=0.00004, max_batch_size=32)
LENGTHS = Workload(Uniform(50, 150), Uniform(100, 300))
RATE = 8.0
LENGTH_S = 900
S = Key("prod", "s")


async def looks(url: str, began: float, window: str) -> dict[int, Measured]:
    """What is measured at times after the first scrape [s]."""
    query = f"sum(rate(vllm:request_success_total[{window}]))"
    measure = Measure.model_validate({"source": "Custom", "queries": {"arrivalRate": query}})
    found = {}
    async with connect(PrometheusEndpoint(url)) as client:
        clocked = Clocked(client)
        survey = Survey(clocked, read_built_in_sources(), lambda: clocked.now)
        for time in range(60, LENGTH_S, 60):
            clocked.now = began + time
            (result,) = (await survey.ask({S: measure})).values()
            found[time] = judge_reading(result.reading, result.source, None, result.hint)
    return found


def test_the_load_of_a_query_may_shrink_only_once_its_window_is_full(
    processes: Processes, prometheus_program: Path, promtool: Path
) -> None:
    began = 0.0

    def populate(fleet: Fleet) -> Change:
        nonlocal began
        began = fleet.began
        settings = Settings(ENGINE, LENGTHS, "m", labels={"namespace": "prod"})
        fleet.add("s", settings, 2, RATE)
        return lambda _: None

    programs = (prometheus_program, promtool)
    with scraped(processes, programs, LENGTH_S, populate, buckets=False, name="own") as prometheus:
        short = asyncio.run(looks(prometheus.url, began, "5m"))
        long = asyncio.run(looks(prometheus.url, began, "10m"))

    for found, seconds in ((short, 300), (long, 600)):
        for time, look in found.items():
            assert look.arrival_rate is not None
            ratio = look.arrival_rate / (60 * RATE)
            print(f"{seconds} s  {time:4} s  {look.quality:8} {ratio:.2f}")
            assert look.quality == ("Partial" if time <= seconds else "Fresh"), time
            assert look.quality == "Partial" or ratio > 0.85, time
