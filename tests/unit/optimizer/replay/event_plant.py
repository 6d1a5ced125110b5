"""A second plant, to check the first one: it simulates each request of a server by events.

Requests arrive at random and go to a replica by chance. A replica serves as many as fit into its
batch, first come, first served, and they leave at the rates of the law of the sizing, which
depend on how many are served. So it has the waits of single requests and their chance, which the
fluid of `plant` has only on average. It is exact and slow: for hours of one server.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from inferno_optimizer.replay.fleet import ReplayFleet, build_cases
from inferno_optimizer.sizing.pairs import build_pairs
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.units import MS_PER_SECOND


@dataclass(frozen=True, slots=True)
class EventPhase:
    """A time with one rate [requests/s] and one number of replicas."""

    seconds: float
    rate: float
    replicas: int


@dataclass(frozen=True, slots=True)
class WatchedPhase:
    """What was seen in a phase.

    `waits_s` are the waits of the requests whose service began in it; `running` is the mean number
    in service; `waiting` is how many wait at its end.
    """

    waits_s: FloatArray
    running: float
    waiting: int


@dataclass(slots=True)
class _EventReplica:
    """The requests of a replica: how many are served, and when those arrived that wait."""

    serving: int = 0
    line: deque[float] = field(default_factory=deque)


class EventPlant:
    """A server whose replicas have the departure rates of `departure_rates`."""

    def __init__(self, departures: Sequence[float], random: np.random.Generator) -> None:
        self._departures, self._random = [*departures], random
        self._replicas: list[_EventReplica] = []
        self._time = 0.0
        self._waits: list[float] = []

    def run(self, phases: Iterable[EventPhase]) -> list[WatchedPhase]:
        """Let the time of some phases pass."""
        return [self._run(phase) for phase in phases]

    def _run(self, phase: EventPhase) -> WatchedPhase:
        self._waits, running, end = [], 0.0, self._time + phase.seconds
        if phase.replicas != len(self._replicas):
            self._deal(phase.replicas)
        while True:
            rates = [self._departures[replica.serving] for replica in self._replicas]
            total = phase.rate + sum(rates)
            next_time = self._time + (self._random.exponential() / total if total else np.inf)
            serving = sum(replica.serving for replica in self._replicas)
            running += serving * (min(next_time, end) - self._time)
            self._time = min(next_time, end)
            if next_time >= end:
                waiting = sum(len(replica.line) for replica in self._replicas)
                return WatchedPhase(np.array(self._waits), running / phase.seconds, waiting)
            self._happen(self._random.random() * total, rates)

    def _happen(self, chance: float, rates: Sequence[float]) -> None:
        """Let a request leave the replica that the chance falls on, or else one arrive."""
        for replica, rate in zip(self._replicas, rates, strict=True):
            if chance < rate:
                replica.serving -= 1
                return self._begin(replica)
            chance -= rate
        replica = self._replicas[self._random.integers(len(self._replicas))]
        replica.line.append(self._time)
        return self._begin(replica)

    def _begin(self, replica: _EventReplica) -> None:
        """Begin with those that wait, as far as they fit into the batch."""
        while replica.line and replica.serving < len(self._departures) - 1:
            self._waits.append(self._time - replica.line.popleft())
            replica.serving += 1

    def _deal(self, count: int) -> None:
        """Share all requests out to another number of replicas."""
        serving = sum(replica.serving for replica in self._replicas)
        line = sorted(chain.from_iterable(replica.line for replica in self._replicas))
        self._replicas = [
            _EventReplica(len(range(place, serving, count)), deque(line[place::count]))
            for place in range(count)
        ]
        for replica in self._replicas:
            over = replica.serving - (len(self._departures) - 1)
            if over > 0:  # they begin again, without a wait that counts twice
                replica.serving -= over
                replica.line.extendleft([self._time] * over)
            self._begin(replica)


def departure_rates(
    fleet: ReplayFleet, server: int, accelerator: int, lengths: FloatArray, rate: float
) -> list[float]:
    """Rates at which requests leave a replica that serves 0, 1, ... of them [requests/s].

    `lengths` has the shape (2, servers), and `rate` is what a replica gets [requests/s].
    """
    cases = build_cases(fleet, np.array([server]), lengths)
    pairs = build_pairs(fleet.catalogue, cases, fleet.types)
    row = np.flatnonzero(pairs.accelerator == accelerator)
    for group in pairs.groups:
        at, place = group.among(row)
        if at.size:
            model = group.replicas.take(place).model
            states = np.arange(1.0, float(model.batch[0]) + 1.0)[:, None]
            intervals = model.loaded(np.array([rate / MS_PER_SECOND]))(slice(0, 1), states)
            return [0.0, *(MS_PER_SECOND / intervals[:, 0]).tolist()]
    return [0.0]
