"""The worst times of a replay: when a server missed its targets, what was decided, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from inferno_optimizer.replay.account import ENOUGH, Account
from inferno_optimizer.replay.history import Counts
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.sizing.queueing import FloatArray

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


def worst_incidents(
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
        for first, end in runs_of(missed[:, server])
    ]
    worst = sorted(runs, key=lambda run: (-run.outside, run.server, run.first))[:count]
    return [_incident(account, trace, accelerators, run) for run in worst]


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


def runs_of(holds: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[tuple[int, int]]:
    """Yield the first step of each run of steps in which something holds, and the one after it."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], holds, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _incident(account: Account, trace: Trace, accelerators: tuple[str, ...], run: _Run) -> Incident:
    history, server, worst = account.history, run.server, run.worst
    place = history.place[worst, server]
    counts = history.replicas[: worst + 1, server]
    changed = _last_change(counts)
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
        cause=_cause(refused, replicas - ready, rate, able, waiting, trace.step_s),
    )


def _last_change(counts: Counts) -> int:
    """The last step with another number of replicas than the one before; 0 without any."""
    changes = np.flatnonzero(np.diff(counts)) + 1
    return int(changes[-1]) if changes.size else 0


def _cause(
    refused: int, starting: int, rate: float, able: float, waiting: float, step_s: float
) -> Cause:
    if refused:
        return Cause.NO_CARDS
    if starting:
        return Cause.STARTING
    if rate >= able:
        return Cause.TOO_FEW
    return Cause.BACKLOG if waiting > BACKLOG * rate * step_s else Cause.TOO_FULL
