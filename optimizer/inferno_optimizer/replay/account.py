"""The account of a replay: what it cost, what it kept of its targets, and its worst times."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from inferno_optimizer.replay.fleet import ReplayFleet
from inferno_optimizer.replay.plant import Plant, StepResult
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.units import SECONDS_PER_HOUR

Counts = npt.NDArray[np.int32]
"""Half as long as the integers of a plant: weeks of many servers are kept for each policy."""

Amounts = npt.NDArray[np.float32]
"""Half as long as the numbers of a plant."""

NO_PLACE = -1
"""The accelerator of a server of which no replica serves yet."""


@dataclass(frozen=True, slots=True)
class History:
    """What happened, step by step; arrays have the shape (steps, servers), if nothing else is said.

    Attributes
    ----------
    cost
        Cost of all replicas, with those that start [cents/hour]; shape (steps,).
    on_accelerator
        Replicas on each accelerator; shape (steps, accelerators).
    replicas, ready, refused
        Replicas that there were, those of them that served, and those for which there was no card.
    place
        The accelerator on which most of them served, or the last one on which any did.
    able
        The highest rate at which those that served can work [requests/s].
    waiting
        Requests in line at the end of the step.
    delay_within, itl_within
        Shares of the requests within the targets of wait and TTFT, and within that of the ITL.
    """

    cost: FloatArray
    on_accelerator: IntArray
    replicas: Counts
    ready: Counts
    refused: Counts
    place: Counts
    able: Amounts
    waiting: Amounts
    delay_within: Amounts
    itl_within: Amounts

    @classmethod
    def empty(cls, fleet: ReplayFleet, steps: int) -> "History":
        """A history to be written, in which nothing has happened yet."""
        servers, accelerators = fleet.shape

        def counts(value: int = 0) -> Counts:
            return np.full((steps, servers), value, dtype=np.int32)

        def amounts() -> Amounts:
            return np.zeros((steps, servers), dtype=np.float32)

        return cls(
            cost=np.zeros(steps),
            on_accelerator=np.zeros((steps, accelerators), dtype=np.int64),
            replicas=counts(),
            ready=counts(),
            refused=counts(),
            place=counts(NO_PLACE),
            able=amounts(),
            waiting=amounts(),
            delay_within=amounts(),
            itl_within=amounts(),
        )

    @property
    def within(self) -> Amounts:
        """Shares of the requests within both targets."""
        return self.delay_within * self.itl_within

    @property
    def moves(self) -> IntArray:
        """How often each server changed its accelerator; shape (servers,)."""
        before, after = self.place[:-1], self.place[1:]
        changed: IntArray = ((after != before) & (before != NO_PLACE)).sum(axis=0)
        return changed

    def record(self, step: int, plant: Plant, served: StepResult) -> None:
        """Write down a step, after the plant has served it."""
        present, ready = plant.present, plant.ready
        self.cost[step] = plant.fleet.cost(present).sum()
        self.on_accelerator[step] = present.sum(axis=0)
        self.replicas[step], self.ready[step] = present.sum(axis=1), ready.sum(axis=1)
        self.refused[step] = plant.refused
        most = ready.argmax(axis=1)
        before = self.place[step - 1] if step else NO_PLACE
        self.place[step] = np.where(ready[np.arange(len(most)), most] > 0, most, before)
        self.able[step], self.waiting[step] = served.able, served.waiting
        self.delay_within[step], self.itl_within[step] = served.delay_within, served.itl_within


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
        return divide_sums(self.within, self.requests)


def divide_sums(part: FloatArray, whole: FloatArray) -> float:
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


BACKLOG = 0.05
"""Requests that wait are a backlog if they are more than arrive in this share of a step."""


class Cause(StrEnum):
    """Why a server missed its targets; the first one that holds.

    There were no cards for more replicas; replicas were still starting; more arrived than the
    replicas could serve; requests waited from before; or the batches were too large.
    """

    NO_CARDS = "NoCards"
    STARTING = "Starting"
    TOO_FEW = "TooFew"
    BACKLOG = "Backlog"
    TOO_FULL = "TooFull"


@dataclass(frozen=True, slots=True)
class Incident:
    """Steps in a row in which a server missed its targets, and how it was in the worst of them.

    Attributes
    ----------
    server, service_class, accelerator
        Names; the accelerator is "" where no replica has served yet.
    first, last, worst
        Steps; in the worst one most requests were outside the targets.
    outside
        Requests outside the targets in all of these steps.
    within
        Share of the requests within the targets in the worst step.
    rate, able
        Requests/s that arrived, and those that the replicas could serve at most.
    waiting
        Requests in line at the end.
    replicas, ready, refused
        Replicas that there were, those that served, and those for which there was no card.
    before, changed
        The number before the last change, and the step of that change; without any, the first step.
    cause
        Why targets were missed.
    """

    server: str
    service_class: str
    accelerator: str
    first: int
    last: int
    worst: int
    outside: float
    within: float
    rate: float
    able: float
    waiting: float
    replicas: int
    ready: int
    refused: int
    before: int
    changed: int
    cause: Cause


def find_worst_incidents(
    account: Account, trace: Trace, accelerators: tuple[str, ...], count: int
) -> list[Incident]:
    """The incidents with the most requests outside the targets, the worst one first.

    Parameters
    ----------
    account
        Of the replay of the trace.
    trace
        The load of its servers.
    accelerators
        Their names, in the order of the fleet.
    count
        So many at most.
    """
    requests = trace.rate * trace.step_s
    outside = requests * (1.0 - account.history.within)
    missed = (account.history.within < ENOUGH) & (requests > 0)
    runs = [
        _Run.of(outside[:, server], server, first, end)
        for server in range(len(account.servers))
        for first, end in find_runs(missed[:, server])
    ]
    worst = sorted(runs, key=lambda run: (-run.outside, run.server, run.first))[:count]
    return [_describe_run(account, trace, accelerators, run) for run in worst]


@dataclass(frozen=True, slots=True)
class _Run:
    """Steps in a row, from `first` to the one before `end`; in `worst` most requests missed."""

    server: int
    first: int
    end: int
    worst: int
    outside: float

    @classmethod
    def of(cls, outside: FloatArray, server: int, first: int, end: int) -> "_Run":
        own = outside[first:end]
        return cls(server, first, end, first + int(own.argmax()), float(own.sum()))


def find_runs(holds: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[tuple[int, int]]:
    """Yield the first step of each run of steps in which something holds, and the one after it."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], holds, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _describe_run(
    account: Account, trace: Trace, accelerators: tuple[str, ...], run: _Run
) -> Incident:
    history, server, worst = account.history, run.server, run.worst
    place = history.place[worst, server]
    counts = history.replicas[: worst + 1, server]
    changed = _find_last_change(counts)
    replicas, ready, refused = (
        int(array[worst, server]) for array in (history.replicas, history.ready, history.refused)
    )
    rate, able, waiting, within = (
        float(array[worst, server])
        for array in (trace.rate, history.able, history.waiting, history.within)
    )
    return Incident(
        server=account.servers[server],
        service_class=account.classes[server],
        accelerator=accelerators[place] if place >= 0 else "",
        first=run.first,
        last=run.end - 1,
        worst=worst,
        outside=run.outside,
        within=within,
        rate=rate,
        able=able,
        waiting=waiting,
        replicas=replicas,
        ready=ready,
        refused=refused,
        before=int(counts[max(changed - 1, 0)]),
        changed=changed,
        cause=_find_cause(refused, replicas - ready, rate, able, waiting, trace.step_s),
    )


def _find_last_change(counts: Counts) -> int:
    """The last step with another number of replicas than the one before; 0 without any."""
    changes = np.flatnonzero(np.diff(counts)) + 1
    return int(changes[-1]) if changes.size else 0


def _find_cause(
    refused: int, starting: int, rate: float, able: float, waiting: float, step_s: float
) -> Cause:
    if refused:
        return Cause.NO_CARDS
    if starting:
        return Cause.STARTING
    if rate >= able:
        return Cause.TOO_FEW
    return Cause.BACKLOG if waiting > BACKLOG * rate * step_s else Cause.TOO_FULL
