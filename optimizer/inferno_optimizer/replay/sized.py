"""What replicas carry at the lengths of requests that a trace has at a time."""

from collections.abc import Iterator

import numpy as np

from inferno_optimizer.replay.fleet import NOWHERE, ReplayFleet, loaded, rows_of
from inferno_optimizer.replay.remembered import Remembered, rounded
from inferno_optimizer.replay.trace import Trace, changed, epochs
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.pairs import Pairs
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.units import MS_PER_SECOND

ROUNDING = 1e-9
"""Relative excess over an integer that is rounded down, as in the sizing."""

MOST_KNOWN = 100_000
"""Servers and lengths whose sizing is remembered."""


class SizedFleet:
    """The highest rates of replicas; only servers whose lengths have changed are sized anew.

    `max_rate` is the highest rate at which one replica meets the targets [requests/s], 0 if at
    none or if no request fits into its memory; `least_rate` is the rate of the server that a
    target of throughput asks for; `full_rate` is the rate of a full batch, whatever the targets
    are, 0 where no request fits; shape (servers, accelerators). What was sized is remembered,
    because loads come back to the same lengths.
    """

    def __init__(self, fleet: ReplayFleet) -> None:
        self._fleet = fleet
        self._lengths = np.zeros((2, len(fleet.servers)))
        self._known = Remembered(MOST_KNOWN)
        self.max_rate = np.zeros(fleet.shape)
        self.least_rate = np.zeros(fleet.shape)
        self.full_rate = np.zeros(fleet.shape)

    def at(self, lengths: FloatArray) -> "SizedFleet":
        """The same fleet, sized at lengths of shape (2, servers): input and output tokens."""
        servers = np.flatnonzero(changed(lengths, self._lengths))
        if not servers.size:
            return self
        self._lengths[:, servers] = lengths[:, servers]
        keys = [*zip(servers.tolist(), *rounded(lengths[:, servers]), strict=True)]
        rates = self._known.of(keys, lambda new: self._sized(servers[new]))
        known = rates.transpose(1, 0, 2)
        self.max_rate[servers], self.least_rate[servers], self.full_rate[servers] = known
        return self

    def _sized(self, servers: IntArray) -> FloatArray:
        """The highest, the least and the full rates; shape (these servers, 3, accelerators)."""
        candidates = _candidates(self._fleet, servers, self._lengths)
        row = rows_of(candidates.pairs, (len(servers), self._fleet.shape[1]))
        fits = _fits(candidates)
        able = np.where(fits, candidates.sizing.max_rate, 0.0)
        full = np.where(fits, _full_rates(candidates.pairs), 0.0)
        rates = np.stack((able, candidates.pairs.demand, full))[:, row] * MS_PER_SECOND
        return np.where(row != NOWHERE, rates, 0.0).transpose(1, 0, 2)

    def demand(self, rate: FloatArray) -> FloatArray:
        """The rate to provide for on each accelerator, from that of each server [requests/s]."""
        return np.where(rate[:, None] > 0, np.maximum(rate[:, None], self.least_rate), 0.0)

    def replicas_for(self, rate: FloatArray) -> IntArray:
        """Replicas that meet the targets at a rate of each server; -1 where none do."""
        able = self.max_rate > 0
        needed = self.demand(rate) / np.where(able, self.max_rate, 1.0)
        rounded = np.ceil(needed * (1 - ROUNDING)).astype(np.int64)
        return np.where(able, np.maximum(rounded, self._fleet.least[:, None]), -1)

    def replicas_carrying(self, rate: FloatArray) -> IntArray:
        """Replicas that meet the targets; where none do, those that carry the rate."""
        needed = self.replicas_for(rate)
        able = self.full_rate > 0
        carrying = np.ceil(self.demand(rate) / np.where(able, self.full_rate, 1.0))
        carrying = np.maximum(carrying.astype(np.int64), self._fleet.least[:, None])
        return np.where((needed < 0) & able, carrying, needed)


def requests_held(fleet: ReplayFleet, lengths: FloatArray) -> FloatArray:
    """Requests in a replica at the highest rate at which it meets the targets.

    Where it meets them at none, those of a full batch; shape (servers, accelerators).
    """
    servers = np.arange(len(fleet.servers))
    candidates = _candidates(fleet, servers, lengths)
    rate = candidates.sizing.max_rate
    requests = np.zeros(len(rate))
    for group in candidates.pairs.groups:
        able = np.flatnonzero(rate[group.rows] > 0)
        able = able[np.argsort(-group.replicas.model.batch[able], kind="stable")]
        queue = group.replicas.take(able).averages(rate[group.rows[able]])
        requests[group.rows[able]] = queue.in_service + queue.waiting
        unable = np.flatnonzero(rate[group.rows] <= 0)
        requests[group.rows[unable]] = group.replicas.model.batch[unable]
    row = rows_of(candidates.pairs, fleet.shape)
    return np.where(row != NOWHERE, requests[row], 0.0)


def _full_rates(pairs: Pairs) -> FloatArray:
    """The rate of a full batch of each pair [requests/ms]."""
    rates = np.zeros(len(pairs.case))
    for group in pairs.groups:
        order = np.argsort(-group.replicas.model.batch, kind="stable")
        model = group.replicas.take(order).model
        batch = model.batch.astype(np.float64)
        rates[group.rows[order]] = 1.0 / model.intervals(slice(0, len(batch)), batch)
    return rates


def sizings(fleet: ReplayFleet, trace: Trace) -> Iterator[tuple[slice, SizedFleet]]:
    """The sizing of a fleet in each epoch of a trace."""
    sized = SizedFleet(fleet)
    for steps in epochs(trace):
        yield steps, sized.at(trace.lengths[steps.start])


def _candidates(fleet: ReplayFleet, servers: IntArray, lengths: FloatArray) -> Candidates:
    return build_candidates(fleet.catalogue, loaded(fleet, servers, lengths))


def _fits(candidates: Candidates) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows whose replicas have memory for a request."""
    memory = np.array([profile.max_tokens for profile in candidates.system.profiles])
    kept = np.array([case.server.load.tokens_kept for case in candidates.cases])
    most = memory[candidates.pairs.profile]
    fits: np.ndarray[tuple[int], np.dtype[np.bool_]] = (most <= 0) | (
        kept[candidates.pairs.case] <= most
    )
    return fits
