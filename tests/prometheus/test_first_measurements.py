"""The first measurements of many servers that begin, each with Poisson arrivals of its own."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean

import pytest

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.controllers.measurement.quality import judge_reading
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Measure
from inferno_operator.resources.objects import Key
from tests.controlplane.processes import Processes
from tests.engines.clocked import Clocked
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Server, Settings
from tests.engines.history import Change, Scraping, scraped
from tests.engines.workload import Uniform, Workload

ENGINE = Engine(alpha=6.0, beta=0.07, gamma=0.8, delta=0.00004, max_batch_size=32)
LENGTHS = Workload(Uniform(50, 150), Uniform(100, 300))

RATES = (2.0, 8.0, 16.0)
"""Requests/s."""

SEEDS = 40
"""Servers of each rate."""

SCRAPES = 6
"""Scrapes of a server up to the last look."""

MOST_MEASURED = 1.15
"""How many times the true load is measured at most, and 0.1 requests/s."""

LEAST_MEASURED = 0.85
"""How many times the true load is measured at least, on average."""


@dataclass(slots=True)
class Beginner:
    """A server, the second in which it begins, and its load [requests/s]."""

    server: Server
    begins: int
    rate: float


@dataclass(frozen=True, slots=True)
class Look:
    """What was measured, and what is true [requests/s], and how long the server has run [s]."""

    rate: float
    seconds: float
    found: float
    true: float


class Beginners:
    """Servers that begin within the first scrape interval, two replicas each."""

    def __init__(self, interval_s: int) -> None:
        self.servers: dict[str, Beginner] = {}
        self.began = 0.0
        self._interval_s = interval_s

    def populate(self, fleet: Fleet) -> Change:
        self.began = fleet.began
        for number, (rate, _) in enumerate(product(RATES, range(SEEDS))):
            name = f"s{number}"
            settings = Settings(ENGINE, LENGTHS, name, labels={"namespace": "prod"})
            begins = 1 + number % self._interval_s
            self.servers[name] = Beginner(fleet.add(name, settings, 0, rate), begins, rate)

        def change(now: float) -> None:
            for name, each in self.servers.items():
                if each.begins == round(now):
                    for replica in range(2):
                        each.server.start(f"{name}-{replica}")

        return change

    def look(self, name: str, now: float, found: float, short: float) -> Look:
        """Compare what was measured with the whole time and with the short window [s]."""
        each = self.servers[name]
        begins = (each.begins, max(now - short, each.begins))
        true = max(each.server.truth(begin, now).arrival_rate for begin in begins)
        return Look(each.rate, now - each.begins, found, true)


async def first_looks(url: str, beginners: Beginners, interval_s: int) -> Mapping[int, list[Look]]:
    """What an operator finds that starts at a time [s], for each of these times."""
    measures = {
        Key("prod", name): Measure(source="vLLM", labels={"model_name": name})
        for name in beginners.servers
    }
    looks: defaultdict[int, list[Look]] = defaultdict(list)
    step = max(1, interval_s // 3)
    async with connect(PrometheusEndpoint(url)) as client:
        clocked = Clocked(client)
        for time in range(step, SCRAPES * interval_s, step):
            clocked.now = beginners.began + time
            survey = Survey(clocked, read_built_in_sources(), lambda: clocked.now)
            for key, result in (await survey.ask(measures)).items():
                newest = judge_reading(result.reading, result.source, None, result.hint)
                if newest.arrival_rate is not None:
                    assert newest.quality == "Partial"
                    found, short = newest.arrival_rate / 60, result.reading.windows.short
                    looks[time].append(beginners.look(key.name, time, found, short))
    return looks


def ratios(looks: Sequence[Look]) -> list[float]:
    """The measured rates as shares of the true ones."""
    return [look.found / look.true for look in looks]


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("interval_s", [3, 15, 30])
def test_a_first_measurement_is_never_more_than_the_load_and_soon_not_much_less(
    processes: Processes, prometheus_program: Path, promtool: Path, interval_s: int
) -> None:
    beginners = Beginners(interval_s)
    options = (f"--query.lookback-delta={interval_s + 1}s",)
    with scraped(
        processes,
        (prometheus_program, promtool),
        SCRAPES * interval_s,
        beginners.populate,
        buckets=False,
        name=f"first-{interval_s}",
        scraping=Scraping(interval_s, 1, options),
    ) as prometheus:
        looks = asyncio.run(first_looks(prometheus.url, beginners, interval_s))

    for time, at_time in looks.items():
        shares = ratios(at_time)
        print(
            f"{interval_s:3} s  {time:4} s  {len(shares)} servers: mean {mean(shares):.2f},", end=""
        )
        print(f" largest {max(shares):.2f}")
    everything = [look for at_time in looks.values() for look in at_time]
    assert len(everything) > len(beginners.servers)
    for look in everything:
        assert look.found <= MOST_MEASURED * look.true + 0.1, look
    for rate in RATES:
        known = ratios([look for look in everything if look.rate == rate])
        assert not known or LEAST_MEASURED <= mean(known) <= 1.0
