"""The account of a replay: what it cost, what it kept of its targets, what it moved."""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.replay.fleet import ReplayFleet
from inferno_optimizer.replay.history import History
from inferno_optimizer.replay.plant import Plant, StepResult
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.units import SECONDS_PER_HOUR

ENOUGH = 0.95
"""Share of the requests of a step that must be within the targets, else the step counts as missed.
"""


@dataclass(frozen=True, slots=True)
class Account:
    """What happened in a replay; sums and means over the whole trace.

    Attributes
    ----------
    servers, classes
        Names of the servers, and of their classes; arrays of shape (servers,) are in this order.
    hours
        Length of the trace.
    cost
        What the replicas of each server cost, with those that start and drain [cents].
    card_hours
        Hours of cards by type.
    requests
        Requests that arrived.
    delay_within, itl_within, within
        Requests within the targets of wait and TTFT, within that of the ITL, and within both.
    missed_minutes
        Minutes in which fewer than `ENOUGH` of the requests were within both.
    replicas
        Mean number of replicas.
    started
        Replicas that were started.
    moves
        Changes of accelerator.
    history
        What happened in each step.
    """

    servers: tuple[str, ...]
    classes: tuple[str, ...]
    hours: float
    cost: FloatArray
    card_hours: dict[str, float]
    requests: FloatArray
    delay_within: FloatArray
    itl_within: FloatArray
    within: FloatArray
    missed_minutes: FloatArray
    replicas: FloatArray
    started: IntArray
    moves: IntArray
    history: History

    @property
    def total_cost(self) -> float:
        """Cost of all servers [cents]."""
        return float(self.cost.sum())

    @property
    def attainment(self) -> float:
        """Share of all requests within both targets; 1 without requests."""
        return share(self.within, self.requests)


def share(part: FloatArray, whole: FloatArray) -> float:
    """Share of a sum; 1 of nothing."""
    total = float(whole.sum())
    return float(part.sum()) / total if total > 0 else 1.0


@dataclass(slots=True)
class Recorder:
    """Writes down each step of a replay.

    `present` is the sum of the replicas over the steps, of shape (servers, accelerators); a replica
    that is taken away costs for `drain_s` seconds more.
    """

    fleet: ReplayFleet
    trace: Trace
    drain_s: float
    present: IntArray
    history: History

    @classmethod
    def of(cls, fleet: ReplayFleet, trace: Trace, drain_s: float) -> "Recorder":
        """An empty record."""
        nothing = np.zeros(fleet.shape, dtype=np.int64)
        return cls(fleet, trace, drain_s, nothing, History.empty(fleet, trace.steps))

    def record(self, step: int, plant: Plant, served: StepResult) -> None:
        """Write down a step, after the plant has served it."""
        self.present += plant.present
        self.history.record(step, plant, served)

    def account(self, plant: Plant) -> Account:
        """The sums, with what the plant has counted."""
        trace, history, hours = self.trace, self.history, self.trace.step_s / SECONDS_PER_HOUR
        paid = self.present * hours + plant.drained * (self.drain_s / SECONDS_PER_HOUR)
        cards = self.fleet.used_cards(paid).tolist()
        requests = trace.rate * trace.step_s
        missed = (history.within < ENOUGH) & (requests > 0)
        return Account(
            servers=tuple(server.name for server in self.fleet.servers),
            classes=tuple(server.service_class for server in self.fleet.servers),
            hours=trace.seconds / SECONDS_PER_HOUR,
            cost=self.fleet.cost(paid),
            card_hours=dict(zip(self.fleet.types, cards, strict=True)),
            requests=requests.sum(axis=0),
            delay_within=(requests * history.delay_within).sum(axis=0),
            itl_within=(requests * history.itl_within).sum(axis=0),
            within=(requests * history.within).sum(axis=0),
            missed_minutes=missed.sum(axis=0) * trace.step_s / 60,
            replicas=history.replicas.mean(axis=0),
            started=plant.started.sum(axis=1),
            moves=history.moves,
            history=history,
        )
