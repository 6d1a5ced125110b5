"""Arrivals that a real Prometheus measures while replicas begin, end, drain and restart."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.controllers.measurement.load import SHRINKS
from inferno_operator.controllers.measurement.quality import judge_reading
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Measure, Measured
from inferno_operator.resources.objects import Key
from tests.controlplane.processes import Processes
from tests.engines.clocked import Clocked
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Scrapes, Server, Settings
from tests.engines.history import Change, Scraping, VirtualClock, answering, write_past
from tests.engines.workload import LogNormal, Workload

ENGINE = Engine(alpha=40.0, beta=0.02, gamma=5.0, delta=0.0001, max_batch_size=512)
"""Requests run for about 40 s: many are in flight when something happens."""

SLOW = replace(ENGINE, max_batch_size=100)
"""Four of them complete half of what is sent: the rest waits."""

FAST = replace(ENGINE, alpha=1.0, beta=0.0005, gamma=0.1)
"""Requests run for about a second."""

LENGTHS = Workload(LogNormal(300, 0.5), LogNormal(800, 0.5))
RATE = 24.0
"""Requests/s, always, whatever the replicas do."""

EVENT_S = 607
"""When something happens: between two scrapes."""

LENGTH_S = 1320
LOOKS_EVERY_S = 11
LOW, HIGH = 0.85, 1.15

Step = tuple[Callable[[Server, str], None], Iterable[int]]
"""What is done to a server, and to which of its pods."""

Timeline = Mapping[int, Sequence[Step]]
"""What happens to a server, and when [s]."""

START, KILL, REMOVE, DRAIN, RESTART = (
    Server.start, Server.kill, Server.remove, Server.drain, Server.restart,
)  # fmt: skip


def hide(server: Server, pod: str) -> None:
    server.set_scrapes(Scrapes.REFUSED, pod)


def show(server: Server, pod: str) -> None:
    server.set_scrapes(Scrapes.ANSWERED, pod)


FOUR, EIGHT = range(4), range(8)
UNSEEN = "two of four are scraped for the first time"
"""Before that nobody can know half of the load."""
OVERLOADED = "of four that are overloaded one restarts and one ends"
CRASHING = "all restart every five seconds, requests are long"
CRASHING_FAST = "all restart every five seconds"
ENGINES = {OVERLOADED: SLOW, CRASHING_FAST: FAST, "all restart every half minute": FAST}

SCENES: Mapping[str, Timeline] = {
    "steady": {0: [(START, FOUR)]},
    "four begin": {0: [(START, FOUR)], EVENT_S: [(START, range(4, 8))]},
    "three of four begin": {0: [(START, [0])], EVENT_S: [(START, range(1, 4))]},
    "they begin one by one": {
        0: [(START, FOUR)],
        **{EVENT_S + 20 * n: [(START, [4 + n])] for n in FOUR},
    },
    "half end at once": {0: [(START, EIGHT)], EVENT_S: [(REMOVE, FOUR)]},
    "half drain and end": {
        0: [(START, EIGHT)],
        EVENT_S: [(DRAIN, FOUR)],
        EVENT_S + 40: [(REMOVE, FOUR)],
    },
    "one restarts twice": {
        0: [(START, FOUR)],
        EVENT_S: [(RESTART, [0])],
        EVENT_S + 95: [(RESTART, [0])],
    },
    "one is down for a minute": {
        0: [(START, FOUR)],
        EVENT_S: [(KILL, [0])],
        EVENT_S + 61: [(START, [0])],
    },
    "all are replaced": {
        0: [(START, FOUR)],
        **{EVENT_S + 40 * n: [(START, [4 + n]), (DRAIN, [n])] for n in FOUR},
        **{EVENT_S + 40 * n + 30: [(REMOVE, [n])] for n in FOUR},
    },
    "a new server begins one by one": {EVENT_S + 25 * n: [(START, [n])] for n in FOUR},
    "an old server is scraped for the first time": {
        0: [(START, FOUR), (hide, FOUR)],
        EVENT_S: [(show, FOUR)],
    },
    "nothing is scraped for eight minutes": {
        0: [(START, FOUR)],
        EVENT_S - 400: [(hide, FOUR)],
        EVENT_S + 80: [(show, FOUR)],
    },
    UNSEEN: {
        0: [(START, FOUR), (hide, [2, 3])],
        EVENT_S: [(show, [2, 3])],
    },
    OVERLOADED: {0: [(START, FOUR)], EVENT_S: [(RESTART, [0])], EVENT_S + 200: [(KILL, [1])]},
    **{
        name: {0: [(START, FOUR)], **dict.fromkeys(range(EVENT_S, LENGTH_S, every_s), again)}
        for name, every_s, again in (
            (CRASHING, 5, [(RESTART, FOUR)]),
            (CRASHING_FAST, 5, [(RESTART, FOUR)]),
            ("all restart every half minute", 31, [(RESTART, FOUR)]),
        )
    },
}


@dataclass(frozen=True, slots=True)
class Look:
    """What was measured at a time [s] of the history."""

    time: int
    found: Measured

    @property
    def ratio(self) -> float | None:
        rate = self.found.arrival_rate
        return None if rate is None else rate / (60 * RATE)


class History:
    """Servers to which everything in `SCENES` happens; `began` is their begin, Unix time [s]."""

    def __init__(self) -> None:
        self.began = 0.0

    def populate(self, fleet: Fleet) -> Change:
        self.began = fleet.began
        servers = {name: self._add(fleet, name) for name in SCENES}
        due = sorted(
            (time, name, steps) for name, scene in SCENES.items() for time, steps in scene.items()
        )

        def change(now: float) -> None:
            while due and due[0][0] <= now:
                _, name, steps = due.pop(0)
                for act, pods in steps:
                    for pod in pods:
                        act(servers[name], f"{name.replace(' ', '-')}-{pod}")

        return change

    def _add(self, fleet: Fleet, name: str) -> Server:
        settings = Settings(ENGINES.get(name, ENGINE), LENGTHS, name, labels={"namespace": "prod"})
        return fleet.add(name, settings, 0, RATE)


INTERVALS_S = (15, 30)
"""Between scrapes; of three seconds see the first measurements."""


def scraping(interval_s: int) -> Scraping:
    """Scrapes at an interval; as if the ends of series were marked."""
    return Scraping(interval_s, 1, (f"--query.lookback-delta={interval_s + 1}s",))


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was scraped of the servers, by the interval [s], and their begin, Unix time [s]."""

    texts: Mapping[int, Path]
    began: float


@pytest.fixture(scope="module")
def recorded(processes: Processes) -> Recorded:
    """One simulation, scraped at each interval."""
    texts = {each: processes.folder / f"arrivals-{each}.openmetrics" for each in INTERVALS_S}
    history, clock = History(), VirtualClock(time.time() - LENGTH_S)
    scrapings = {text: scraping(each) for each, text in texts.items()}
    with Fleet(1, clock) as fleet:
        write_past(fleet, clock, LENGTH_S, history.populate(fleet), scrapings, buckets=False)
    return Recorded(texts, history.began)


async def looks(url: str, began: float) -> Mapping[str, Sequence[Look]]:
    """What surveys find while time passes; each remembers what the one before found."""
    measures = {
        Key("prod", name): Measure(source="vLLM", labels={"model_name": name}) for name in SCENES
    }
    found: defaultdict[str, list[Look]] = defaultdict(list)
    before: dict[Key, Measured] = {}
    async with connect(PrometheusEndpoint(url)) as client:
        clocked = Clocked(client)
        survey = Survey(clocked, read_built_in_sources(), lambda: clocked.now)
        for time in range(EVENT_S - 60, LENGTH_S, LOOKS_EVERY_S):
            clocked.now = began + time
            for key, result in (await survey.ask(measures)).items():
                newest = judge_reading(result.reading, result.source, before.get(key), result.hint)
                before[key] = newest
                found[key.name].append(Look(time, newest))
    return found


def summary(seen: Sequence[Look]) -> str:
    """How often each quality was found, with the least and the largest ratio."""
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    for look in seen:
        ratios[look.found.quality].append(look.ratio or 0.0)
    return ", ".join(f"{q} {len(r)}: {min(r):.2f} to {max(r):.2f}" for q, r in ratios.items())


@pytest.mark.minutes
@pytest.mark.extended
@pytest.mark.parametrize("interval_s", INTERVALS_S)
def test_a_constant_load_is_measured_as_constant_whatever_the_replicas_do(
    processes: Processes,
    prometheus_program: Path,
    promtool: Path,
    recorded: Recorded,
    interval_s: int,
) -> None:
    programs, text = (prometheus_program, promtool), recorded.texts[interval_s]
    with answering(processes, programs, text, scraping(interval_s)) as prometheus:
        found = asyncio.run(looks(prometheus.url, recorded.began))

    for name, seen in found.items():
        print(f"{interval_s:3} s  {name:55} {summary(seen)}")
    for name, seen in found.items():
        least = 0.0 if name == UNSEEN else LOW
        new = [look for look in seen if look.ratio is not None and look.found.quality != "Stale"]
        assert new
        for look in new:
            assert look.ratio is not None
            assert look.ratio <= HIGH, (name, look)
            assert look.found.quality not in SHRINKS or look.ratio >= least, (name, look)
