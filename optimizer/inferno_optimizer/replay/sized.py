"""What replicas carry at the lengths of requests that a trace has at a time."""

from collections.abc import Iterator

import numpy as np

from inferno_optimizer.replay.fleet import MS_PER_S, NOWHERE, ReplayFleet, loaded, rows_of
from inferno_optimizer.replay.trace import Trace, changed, epochs
from inferno_optimizer.sizing.candidates import build_candidates
from inferno_optimizer.sizing.queueing import FloatArray, IntArray

ROUNDING = 1e-9
"""Relative excess over an integer that is rounded down, as in the sizing."""


class SizedFleet:
    """The highest rates of replicas; only servers whose lengths have changed are sized anew.

    `max_rate` is the highest rate at which one replica meets the targets [requests/s], 0 if at
    none, and `requests` the requests in it at that rate; shape (servers, accelerators).
    """

    def __init__(self, fleet: ReplayFleet) -> None:
        self._fleet = fleet
        self._lengths = np.zeros((2, len(fleet.servers)))
        self.max_rate = np.zeros(fleet.shape)
        self.requests = np.zeros(fleet.shape)

    def at(self, lengths: FloatArray) -> "SizedFleet":
        """The same fleet, sized at lengths of shape (2, servers): input and output tokens."""
        servers = np.flatnonzero(changed(lengths, self._lengths))
        if servers.size:
            self._lengths[:, servers] = lengths[:, servers]
            self._size(servers)
        return self

    def _size(self, servers: IntArray) -> None:
        candidates = build_candidates(
            self._fleet.catalogue, loaded(self._fleet, servers, self._lengths)
        )
        rate = candidates.sizing.max_rate
        requests = np.zeros(len(rate))
        for group in candidates.pairs.groups:
            able = np.flatnonzero(rate[group.rows] > 0)
            able = able[np.argsort(-group.replicas.model.batch[able], kind="stable")]
            queue = group.replicas.take(able).averages(rate[group.rows[able]])
            requests[group.rows[able]] = queue.in_service + queue.waiting
        row = rows_of(candidates.pairs, (len(servers), self._fleet.shape[1]))
        possible = row != NOWHERE
        self.max_rate[servers] = np.where(possible, rate[row] * MS_PER_S, 0.0)
        self.requests[servers] = np.where(possible, requests[row], 0.0)

    def replicas_for(self, rate: FloatArray) -> IntArray:
        """Replicas that meet the targets at a rate of each server; -1 where none do."""
        able = self.max_rate > 0
        needed = rate[:, None] / np.where(able, self.max_rate, 1.0)
        rounded = np.ceil(needed * (1 - ROUNDING)).astype(np.int64)
        return np.where(able, np.maximum(rounded, self._fleet.least[:, None]), -1)


def sizings(fleet: ReplayFleet, trace: Trace) -> Iterator[tuple[slice, SizedFleet]]:
    """The sizing of a fleet in each epoch of a trace."""
    sized = SizedFleet(fleet)
    for steps in epochs(trace):
        yield steps, sized.at(trace.lengths[steps.start])
