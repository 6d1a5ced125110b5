"""Computes the highest arrival rate at which one replica meets all of its targets.

Latencies hardly ever decrease with the arrival rate, so the highest rate is where the first latency
reaches its target: a single root per replica, found by bracketing for all replicas at once.
In generation 4 the time to first token and percentiles may decrease where prefills take most of
the time; lower rates are tried there, so that targets hold at all rates up to the highest one. (In
generation 3, a latency may decrease slightly at some rates, see `TokenBudgetModel`; the search
finds one of several roots.) See `sizing.md`, section "The highest rate".
"""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.demands import Demands
from inferno_optimizer.sizing.queueing import ArrayTable, FloatArray
from inferno_optimizer.sizing.replicas import Replicas
from inferno_optimizer.sizing.search import Search, Tried

LOWEST_SHARE = 0.001
"""The search starts at this share of the service rate of a single request."""

HIGHEST_SHARE = 0.999
"""The search ends at this share of the service rate of a full batch: a stable queue."""

THROUGHPUT_SHARE = 0.9
"""Share of the highest stable rate that is used if there is a throughput target."""


@dataclass(frozen=True, slots=True)
class Sizing(ArrayTable):
    """The capacity of one replica, per pair of server and accelerator.

    `max_rate` is the highest rate at which the replica meets all targets [requests/ms], 0 if it
    meets them at no rate; from generation 2 on it counts accepted requests. The floors are the
    latencies [ms] at the lowest rate, computed as the targets define them; no number of replicas
    gets below them.
    """

    max_rate: FloatArray
    itl_floor: FloatArray
    wait_floor: FloatArray
    ttft_floor: FloatArray


def size(replicas: Replicas, demands: Demands | None = None) -> Sizing:
    """The highest rate and the lowest latencies of every replica.

    With `demands`, rates are such that the demands need no more replicas than at the highest
    rates; the search ends as soon as that is known.
    """
    lowest, highest = _ends(replicas)
    queue = replicas.averages(lowest)
    floors = replicas.limited(queue)
    least = Tried(lowest, queue, floors.excess(replicas.limits))
    search = Search.done(replicas, least, highest, demands)
    if replicas.limits.throughput.any():
        search.limit(np.where(replicas.limits.throughput, THROUGHPUT_SHARE, 1.0) * highest)
    return Sizing(search.counted, floors.itl.ms(), floors.wait.ms(), floors.ttft.ms())


def _ends(replicas: Replicas) -> tuple[FloatArray, FloatArray]:
    """The rates between which the highest one is looked for [requests/ms]."""
    model = replicas.model
    batch = model.batch.astype(np.float64)
    every = slice(0, len(batch))
    highest = HIGHEST_SHARE / model.intervals(every, batch)
    alone = model.intervals(every, np.ones_like(batch))
    return np.minimum(LOWEST_SHARE / alone, highest), highest


def highest_rate(replicas: Replicas, lowest: FloatArray, highest: FloatArray) -> FloatArray:
    """Highest rate in the interval at which every target is met; 0 if there is none.

    If all targets are met at the highest rate, no search is needed.
    """
    queue = replicas.averages(lowest)
    excess = replicas.limited(queue).excess(replicas.limits)
    return Search.done(replicas, Tried(lowest, queue, excess), highest).rate
