"""A replica event by event: requests come, wait in line, are served together, and leave.

Nothing here knows of stationary probabilities. Many independent runs go in step, each a row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from inferno_optimizer.sizing.queueing import FloatArray
from tests.unit.optimizer.oracles import AnyReplica, Queue

WARM_UP = 0.2
"""Share of the events that is left out, while the queue forgets that it began empty."""

CONFIDENCE = 0.999


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Run:
    """One run after its warm-up: the wait of each request, and the averages of the queue."""

    waits_ms: FloatArray
    queue: Queue


def interval(samples: Sequence[float]) -> Interval:
    """Where the mean lies that independent runs have samples of."""
    mean, deviation = float(np.mean(samples)), float(np.std(samples, ddof=1))
    width = student.ppf((1 + CONFIDENCE) / 2, len(samples) - 1) * deviation
    return Interval(*(mean + sign * float(width) / math.sqrt(len(samples)) for sign in (-1, 1)))


def simulate(
    replicas: Sequence[AnyReplica], rates: Sequence[float], runs: int, events: int, seed: int
) -> list[list[Run]]:
    """So many independent runs of each replica under its Poisson arrivals."""
    random = np.random.default_rng(seed)
    batch, limit, arrivals = (
        np.repeat(column, runs)
        for column in ([r.batch for r in replicas], [r.limit for r in replicas], rates)
    )
    departures = np.zeros((len(batch), batch.max() + 1))
    for place, replica in enumerate(replicas):
        rows = slice(place * runs, (place + 1) * runs)
        departures[rows, 1 : replica.batch + 1] = [
            replica.rate(n + 1) for n in range(replica.batch)
        ]
    every = np.arange(len(batch))
    present = np.zeros(len(batch), dtype=np.int64)
    times = np.zeros((events, len(batch)))
    changes = np.zeros((events, len(batch)), dtype=np.int8)
    for step in range(events):
        leaving = departures[every, np.minimum(present, batch)]
        times[step] = random.exponential(size=len(batch)) / (arrivals + leaving)
        comes = random.random(len(batch)) * (arrivals + leaving) < arrivals
        changes[step] = np.where(comes, np.where(present < limit, 1, 0), -1)
        present += changes[step]
    times = np.cumsum(times, axis=0)
    found = [_run(times[:, row], changes[:, row], int(batch[row])) for row in every]
    return [found[place * runs : (place + 1) * runs] for place in range(len(replicas))]


def _run(times: FloatArray, changes: npt.NDArray[np.int8], batch: int) -> Run:
    """First come, first served: the i-th request starts when the (i - batch)-th one has left."""
    came, left = times[changes > 0], times[changes < 0]
    known = min(len(came), len(left) + batch)
    starts = came[:known].copy()
    starts[batch:] = np.maximum(starts[batch:], left[: known - batch])
    begin = times[int(WARM_UP * len(times))]
    after = times[:-1] >= begin
    lasting, present = np.diff(times)[after], np.cumsum(changes)[:-1][after]
    duration = float(lasting.sum())
    served = np.minimum(present, batch)
    queue = Queue(
        np.count_nonzero(left > begin) / duration,
        float(served @ lasting) / duration,
        float((present - served) @ lasting) / duration,
    )
    return Run((starts - came[:known])[came[:known] >= begin], queue)
