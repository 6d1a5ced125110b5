"""Servers of simulated replicas, whose metrics Prometheus can scrape.

One HTTP server on loopback answers for all replicas, each under a path of its own. It runs in
threads of the test, which changes loads and causes faults by calls. A replica is simulated when
it is looked at, up to the present time.
"""

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from threading import Event, RLock

import numpy as np

from tests.engines.engine import Engine
from tests.engines.exposition import Dialect, Page
from tests.engines.prometheus import Target
from tests.engines.replica import Replica
from tests.engines.scrape_server import Scraped, ScrapeServer
from tests.engines.truth import Record, Truth, truth_of, within_targets
from tests.engines.vllm import VLLM
from tests.engines.workload import Workload

LONGEST_HANG_S = 120.0


class Scrapes(Enum):
    """What becomes of the scrapes of a replica."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """With status 503."""

    HANGING = "hanging"
    """There is no answer until this is changed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the replicas of a server have in common.

    Attributes
    ----------
    engine, workload
        How fast they are, and what they are sent.
    model_name
        Value of the label `model_name`.
    dialect
        Whose metrics they serve.
    labels
        Labels of the target, which Prometheus adds to each series; `pod` is added to them.
    """

    engine: Engine
    workload: Workload
    model_name: str
    dialect: Dialect = VLLM
    labels: Mapping[str, str] = field(default_factory=dict)


class Pod:
    """The place of a replica, which may be killed and started again.

    Attributes
    ----------
    replica
        What runs there; None after it was killed.
    labels
        Those of the target.
    scrapes
        What becomes of its scrapes.
    drains
        Whether it gets no more requests and serves those that it has.
    """

    def __init__(self, name: str, labels: dict[str, str], page: Page) -> None:
        self.name = name
        self.labels = labels
        self.replica: Replica | None = None
        self.drains = False
        self._page = page
        self._scrapes = Scrapes.ANSWERED
        self._hangs_no_more = Event()
        self._hangs_no_more.set()

    @property
    def path(self) -> str:
        return f"/replicas/{self.name}/metrics"

    @property
    def scrapes(self) -> Scrapes:
        return self._scrapes

    @scrapes.setter
    def scrapes(self, scrapes: Scrapes) -> None:
        self._scrapes = scrapes
        if scrapes is Scrapes.HANGING:
            self._hangs_no_more.clear()
        else:
            self._hangs_no_more.set()

    def hang(self) -> None:
        """Wait as long as its scrapes hang."""
        self._hangs_no_more.wait(LONGEST_HANG_S)

    def page(self, now: float) -> bytes | None:
        """Its metrics at a time; None if nothing runs there."""
        if self.replica is None:
            return None
        self.replica.advance(now)
        return self._page.write(self.replica)


class Server:
    """Replicas that share the load of one server; made by `Fleet.add`.

    Times are those of `Fleet.now`.

    Attributes
    ----------
    pods
        Its pods by name.
    """

    def __init__(self, fleet: "Fleet", settings: Settings) -> None:
        self.pods: dict[str, Pod] = {}
        self._fleet = fleet
        self._settings = settings
        self._engine = settings.engine
        self._page = Page(settings.dialect, settings.model_name)
        self._rate = 0.0
        self._records: list[Record] = []

    def start(self, name: str, engine: Engine | None = None) -> None:
        """Start a replica in a new pod, or again in the pod of a killed one.

        Its engine is that of the server, unless it is on another accelerator.
        """
        with self._fleet.lock:
            pod = self.pods.setdefault(name, self._new_pod(name))
            pod.replica = self._new_replica(name, engine or self._engine)
            pod.drains = False
            self._records.append(pod.replica.record)
            self._share_load()

    def drain(self, name: str) -> None:
        """Send a replica no more requests; it serves those that it has."""
        with self._fleet.lock:
            self.pods[name].drains = True
            self._share_load()

    def kill(self, name: str) -> None:
        """End a replica: its requests are lost, and the others get its load."""
        with self._fleet.lock:
            replica = self.pods[name].replica
            if replica is not None:
                replica.advance(self._fleet.now)
            self.pods[name].replica = None
            self._share_load()

    def restart(self, name: str) -> None:
        """Kill a replica and start another one in its place; its counters begin at 0."""
        self.kill(name)
        self.start(name)

    def remove(self, name: str) -> None:
        """Kill a replica and remove its pod from the targets."""
        self.kill(name)
        del self.pods[name]

    def set_rate(self, rate: float) -> None:
        """Send another load from now on, shared by the speed of replicas [requests/s]."""
        with self._fleet.lock:
            self._rate = rate
            self._share_load()

    def set_engine(self, engine: Engine) -> None:
        """Change how fast the replicas are, from now on."""
        with self._fleet.lock:
            self._engine = engine
            for replica in self._replicas():
                replica.set_engine(engine, self._fleet.now)

    def set_scrapes(self, scrapes: Scrapes, *names: str) -> None:
        """Change what becomes of the scrapes of pods, while their replicas go on serving."""
        for name in names:
            self.pods[name].scrapes = scrapes

    def waiting(self) -> int:
        """Requests that wait in the queues of all replicas now."""
        with self._fleet.lock:
            return sum(replica.waiting for replica in self._replicas())

    def truth(self, start: float, end: float) -> Truth:
        """What really happened between two times that are past, on all its replicas."""
        with self._fleet.lock:
            for _ in self._replicas():
                pass  # now they are up to date
            return truth_of(self._records, start, end)

    def within_targets(
        self, start: float, end: float, *, ttft_ms: float, itl_ms: float
    ) -> tuple[int, int]:
        """Requests that arrived between two times that are past: those within targets, and all.

        Who waits too long, or is lost with a replica, is not within targets; who is served and
        may still be is not counted.
        """
        with self._fleet.lock:
            undecided = sum(
                replica.undecided(start, end, ttft_ms / 1000) for replica in self._replicas()
            )
            good, arrived = within_targets(
                self._records, start, end, ttft_ms=ttft_ms, itl_ms=itl_ms
            )
            return good, arrived - undecided

    def _replicas(self) -> Iterator[Replica]:
        """The replicas that run, simulated up to now."""
        for pod in self.pods.values():
            if pod.replica is not None:
                pod.replica.advance(self._fleet.now)
                yield pod.replica

    def _share_load(self) -> None:
        """Give each replica its part of the load, in proportion to the tokens that it can make.

        If all replicas drain, they share the load: it has nowhere else to go.
        """
        replicas = list(self._replicas())
        drained = {id(pod.replica) for pod in self.pods.values() if pod.drains}
        serving = [replica for replica in replicas if id(replica) not in drained] or replicas
        speeds = {id(replica): replica.engine.tokens_per_second for replica in serving}
        for replica in replicas:
            share = speeds.get(id(replica), 0.0) / sum(speeds.values())
            replica.set_rate(self._rate * share, self._fleet.now)

    def _new_pod(self, name: str) -> Pod:
        return Pod(name, {**self._settings.labels, "pod": name}, self._page)

    def _new_replica(self, name: str, engine: Engine) -> Replica:
        seed = (self._fleet.seed, zlib.crc32(name.encode()), len(self._records))
        settings = self._settings
        return Replica(
            engine,
            settings.workload,
            settings.dialect.bounds,
            np.random.default_rng(seed),
            self._fleet.now,
        )


class Fleet(Scraped):
    """Simulated servers behind one HTTP server; a context manager.

    Parameters
    ----------
    seed
        Of all arrivals and lengths.
    clock
        The present time, Unix time [s].
    speed
        How many seconds are simulated in a second of the clock. Prometheus, which knows the clock
        only, sees rates that are `speed` times as high; durations are those simulated.

    Attributes
    ----------
    lock
        Held while something is simulated.
    began
        When it was made, Unix time [s].
    """

    def __init__(
        self, seed: int, clock: Callable[[], float] = time.time, speed: float = 1.0
    ) -> None:
        self.seed = seed
        self.lock = RLock()
        self.began = clock()
        self._clock = clock
        self._speed = speed
        self._servers: list[Server] = []
        self._http = ScrapeServer(self.answer)

    @property
    def now(self) -> float:
        """The time simulated since it began [s]."""
        return (self._clock() - self.began) * self._speed

    def add(self, name: str, settings: Settings, replicas: int, rate: float) -> Server:
        """Add a server with pods `<name>-0`, `<name>-1`...; send it a load [requests/s]."""
        server = Server(self, settings)
        self._servers.append(server)
        for number in range(replicas):
            server.start(f"{name}-{number}")
        server.set_rate(rate)
        return server

    def targets(self) -> list[Target]:
        """What Prometheus has to scrape."""
        return [Target(self._http.address, pod.path, dict(pod.labels)) for pod in self._pods()]

    def answer(self, path: str) -> bytes | HTTPStatus | None:
        """Answer a scrape; None if nothing runs there."""
        pod = next((pod for pod in self._pods() if pod.path == path), None)
        if pod is None:
            return HTTPStatus.NOT_FOUND
        pod.hang()
        if pod.scrapes is Scrapes.REFUSED:
            return HTTPStatus.SERVICE_UNAVAILABLE
        with self.lock:
            return pod.page(self.now)

    def _pods(self) -> list[Pod]:
        return [pod for server in self._servers for pod in list(server.pods.values())]
