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

    `cost` is that of all replicas, with those that start [cents/hour], of shape (steps,);
    `on_accelerator` has the replicas on each one, of shape (steps, accelerators). `replicas` are
    those that there were, `ready` those of them that served, and `refused` those for which there
    was no card; `place` is the accelerator on which most of them served, or the last one on which
    any did. `able` is the highest rate at which they can work [requests/s], and `waiting` are the
    requests in line at the end. `delay_within` and `itl_within` are the shares of the requests
    within the targets of wait and TTFT, and within that of the ITL.
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
    """What happened in a replay; arrays have the shape (servers,), in the order of the names.

    `hours` is the length of the trace. `cost` is that of the replicas, with those that start and
    drain [cents]; `card_hours` are by type. Of the `requests` that arrived, `delay_within` and
    `itl_within` were within the targets of wait and TTFT, and within that of the ITL, `within` in
    both; in `missed_minutes` fewer than `ENOUGH` of them were. `replicas` is the mean number,
    `started` those that were started, and `moves` are changes of accelerator.
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


def build_account(
    plant: Plant, trace: Trace, history: History, present: IntArray, drain_s: float
) -> Account:
    """Sum up a replay of a trace.

    `present` is the sum of the replicas over the steps, of shape (servers, accelerators); a replica
    that is taken away costs for `drain_s` seconds more.
    """
    fleet, hours = plant.fleet, trace.step_s / SECONDS_PER_HOUR
    paid = present * hours + plant.drained * (drain_s / SECONDS_PER_HOUR)
    requests = trace.rate * trace.step_s
    missed = (history.within < ENOUGH) & (requests > 0)
    return Account(
        servers=tuple(server.name for server in fleet.servers),
        classes=tuple(server.service_class for server in fleet.servers),
        hours=trace.seconds / SECONDS_PER_HOUR,
        cost=fleet.cost(paid),
        card_hours=dict(zip(fleet.types, fleet.used_cards(paid).tolist(), strict=True)),
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

    The `accelerator` is "" where no replica has served yet. `first`, `last` and `worst` are steps;
    in the worst one most requests were outside the targets. `outside` counts these of all steps;
    what follows is of the worst step: the share `within` the targets, the requests/s that arrived
    and that the replicas could serve at most, the requests in line at the end; replicas that there
    were, those that served, and those for which there was no card. `before` is the number before
    the last change, which was in step `changed`; without any, in the first one.
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
    """At most so many incidents with the most requests outside the targets, the worst one first.

    The trace is the one that was replayed; names of accelerators are in the order of the fleet.
    """
    requests = trace.rate * trace.step_s
    outside = requests * (1.0 - account.history.within)
    missed = (account.history.within < ENOUGH) & (requests > 0)
    runs = [
        (-float(outside[first:end, server].sum()), server, first, end)
        for server in range(len(account.servers))
        for first, end in find_runs(missed[:, server])
    ]
    return [
        _describe_incident(account, trace, accelerators, outside, *run)
        for _, *run in sorted(runs)[:count]
    ]


def find_runs(holds: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[tuple[int, int]]:
    """Yield the first step of each run of steps in which something holds, and the one after it."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], holds, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _describe_incident(
    account: Account,
    trace: Trace,
    accelerators: tuple[str, ...],
    outside: FloatArray,
    server: int,
    first: int,
    end: int,
) -> Incident:
    """Describe the steps from `first` to the one before `end`."""
    history, own = account.history, outside[first:end, server]
    worst = first + int(own.argmax())
    place = history.place[worst, server]
    numbers = history.replicas[: worst + 1, server]
    changes = np.flatnonzero(np.diff(numbers)) + 1
    changed = int(changes[-1]) if changes.size else 0
    counts = (history.replicas, history.ready, history.refused)
    amounts = (history.within, trace.rate, history.able, history.waiting)
    replicas, ready, refused = (int(array[worst, server]) for array in counts)
    within, rate, able, waiting = (float(array[worst, server]) for array in amounts)
    cause = Cause.BACKLOG if waiting > BACKLOG * rate * trace.step_s else Cause.TOO_FULL
    if refused:
        cause = Cause.NO_CARDS
    elif replicas > ready:
        cause = Cause.STARTING
    elif rate >= able:
        cause = Cause.TOO_FEW
    return Incident(
        server=account.servers[server],
        service_class=account.classes[server],
        accelerator=accelerators[place] if place >= 0 else "",
        first=first,
        last=end - 1,
        worst=worst,
        outside=float(own.sum()),
        within=within,
        rate=rate,
        able=able,
        waiting=waiting,
        replicas=replicas,
        ready=ready,
        refused=refused,
        before=int(numbers[max(changed - 1, 0)]),
        changed=changed,
        cause=cause,
    )
