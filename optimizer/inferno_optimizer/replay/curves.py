"""How a replica responds to the number of requests in it, as tables of the queueing model.

The plant knows how many requests are in a replica, not at which rate they come. A stationary
queue at rate r holds L(r) requests, so a replica that holds L(r) departs at r: a fluid whose
stationary state is that of the queue [Wang, Tipper and Banerjee, IEEE INFOCOM 1996, pointwise
stationary fluid flow approximation]. Beyond the highest stable rate, what is more waits in line
and is served at that rate.
"""

import numpy as np

from inferno_optimizer.replay.fleet import ReplayFleet, loaded, rows_of
from inferno_optimizer.replay.remembered import Remembered, rounded
from inferno_optimizer.replay.trace import changed
from inferno_optimizer.sizing.pairs import build_pairs
from inferno_optimizer.sizing.queueing import Averages, FloatArray, IntArray
from inferno_optimizer.sizing.replicas import Replicas
from inferno_optimizer.sizing.waiting import log_tail, wait_percentile
from inferno_optimizer.units import MS_PER_SECOND

LOADS = np.concatenate((np.linspace(0.0, 0.8, 17), 1.0 - np.geomspace(0.18, 0.001, 24)))
"""Knots: shares of the rate of a full batch; the first one stands for an empty replica."""

LEAST_LOAD = 1e-4
"""The share at which an empty replica is evaluated."""

DELAYS = np.array([0.125, 0.25, 0.5, 0.75, 1.0, 1000.0])
"""Knots beyond the last load: waits in line, as shares of the tightest limit of a delay."""

NO_LIMIT_MS = 60_000.0
"""Stands for the limit of a server that has no target of a delay."""

KNOTS = len(LOADS) + len(DELAYS)

P90 = 0.9

REQUESTS, RATE, RUNNING, ITL, TTFT_P90, WAIT, FIRST, WITHIN = range(8)
"""The columns: requests in a replica; departures [requests/s]; requests in service; ITL [ms];
90th percentile of the TTFT, mean wait, mean time from the start of service to the first token
[ms]; share of requests within the targets of wait and TTFT."""

COLUMNS = 8

MOST_KNOWN = 20_000
"""Tables that are remembered: 60 MB."""


class Curves:
    """Tables of the replicas of each server on each accelerator, made when they are needed.

    `table` has the shape (servers, accelerators, `COLUMNS`, `KNOTS`); what it has of other pairs
    than those asked for last means nothing. Without `percentiles`, which take a third of the time,
    the 90th percentile is NaN.
    """

    def __init__(self, fleet: ReplayFleet, *, percentiles: bool = False) -> None:
        self._fleet, self._percentiles = fleet, percentiles
        self._lengths = self._asked = np.zeros((2, len(fleet.servers)))
        self._profile = _profiles(fleet)
        self._known = Remembered(MOST_KNOWN)
        self._filled = np.zeros(fleet.shape, dtype=np.bool_)
        self.table = np.zeros((*fleet.shape, COLUMNS, KNOTS))

    def ask(self, lengths: FloatArray, server: IntArray, accelerator: IntArray) -> bool:
        """Fill the tables of pairs, in the order of servers, at lengths of shape (2, servers).

        Returns whether any of them is another one than before.
        """
        if not np.array_equal(lengths, self._asked):
            self._asked = lengths
            other = changed(lengths, self._lengths)
            self._lengths = np.where(other, lengths, self._lengths)
            self._filled[other] = False
        new = np.flatnonzero(~self._filled[server, accelerator])
        if new.size:
            self._fill(server[new], accelerator[new])
        return new.size > 0

    def _fill(self, server: IntArray, accelerator: IntArray) -> None:
        columns = (server.tolist(), accelerator.tolist(), *rounded(self._lengths[:, server]))
        keys = [*zip(*columns, strict=True)]
        self.table[server, accelerator] = self._known.of(
            keys, lambda new: self._tables(server[new], accelerator[new])
        )
        self._filled[server, accelerator] = True

    def _tables(self, server: IntArray, accelerator: IntArray) -> FloatArray:
        servers, first, case = np.unique(server, return_index=True, return_inverse=True)
        profiles = np.split(self._profile[server, accelerator], first[1:])
        cases = loaded(self._fleet, servers, self._lengths, [own.tolist() for own in profiles])
        pairs = build_pairs(self._fleet.catalogue, cases, self._fleet.types)
        row = rows_of(pairs, (len(servers), self._fleet.shape[1]))[case, accelerator]
        tables = np.empty((len(row), COLUMNS, KNOTS))
        for group in pairs.groups:
            at, place = group.among(row)
            if at.size:
                asked = group.replicas.take(place)
                rows, where = asked.distinct()
                tables[at] = response(asked.take(rows), percentiles=self._percentiles)[where]
        return tables


def _profiles(fleet: ReplayFleet) -> IntArray:
    """The profile of each server on each accelerator, by its place; -1 without one."""
    profiles = np.full(fleet.shape, -1)
    system, places = fleet.system, fleet.catalogue.accelerators
    for row, case in enumerate(fleet.cases):
        for profile in case.profiles:
            profiles[row, places[system.profiles[profile].accelerator]] = profile
    return profiles


def response(replicas: Replicas, *, percentiles: bool) -> FloatArray:
    """The tables of replicas in descending order of batch; shape (rows, columns, knots)."""
    count, knots = len(replicas.model.batch), len(LOADS)
    every = replicas.take(np.repeat(np.arange(count), knots))
    batch = every.model.batch.astype(np.float64)
    loads = np.tile(np.maximum(LOADS, LEAST_LOAD), count)
    rate = loads / every.model.intervals(slice(0, len(batch)), batch)
    stable = (
        _stable(every, rate, percentiles=percentiles)
        .reshape(COLUMNS, count, knots)
        .transpose(1, 0, 2)
    )
    stable[:, [REQUESTS, RATE, RUNNING, WAIT], 0] = 0.0
    return np.concatenate((stable, _overloaded(replicas, stable[:, :, -1])), axis=2)


def _stable(replicas: Replicas, rate: FloatArray, *, percentiles: bool) -> FloatArray:
    """The columns of queues at rates [requests/ms]; shape (columns, rows)."""
    queue = replicas.averages(rate)
    first = replicas.model.first_token_ms(queue)
    share = np.full(len(rate), P90)
    percentile = wait_percentile(queue, share) if percentiles else np.full(len(rate), np.nan)
    return np.stack(
        (
            queue.in_service + queue.waiting,
            rate * MS_PER_SECOND,
            queue.in_service,
            replicas.model.itl_ms(queue),
            percentile + first,
            queue.wait_ms,
            first,
            _within(replicas, queue, first, 0.0),
        )
    )


def _within(
    replicas: Replicas, queue: Averages, first: FloatArray, delay_ms: FloatArray | float
) -> FloatArray:
    """Share of requests within the limits of wait and TTFT, if each waits for a delay more."""
    limits = replicas.limits
    slack = np.minimum(limits.wait, limits.ttft - first) - delay_ms
    free = np.isinf(slack)
    missed = np.exp(log_tail(queue, np.where(free, 0.0, slack)))
    return np.where(free, 1.0, 1.0 - missed)


def _overloaded(replicas: Replicas, last: FloatArray) -> FloatArray:
    """The columns beyond the last stable knot, whose columns are `last`."""
    count, knots = len(last), len(DELAYS)
    limit = np.minimum(replicas.limits.wait, replicas.limits.ttft)
    limit = np.where(np.isinf(limit), NO_LIMIT_MS, limit)
    delay = DELAYS * limit[:, None]
    queue = replicas.averages(last[:, RATE] / MS_PER_SECOND)
    full = 1.0 / queue.interval[:, None]  # the rate of a full batch [requests/ms]
    curves = np.repeat(last[:, :, None], knots, axis=2)
    curves[:, REQUESTS] += delay * full
    curves[:, RATE] = full * MS_PER_SECOND
    curves[:, [TTFT_P90, WAIT]] += delay[:, None]
    each = np.repeat(np.arange(count), knots)
    within = _within(replicas.take(each), queue.take(each), last[each, FIRST], delay.ravel())
    curves[:, WITHIN] = within.reshape(count, knots)
    return curves


Place = tuple[IntArray, FloatArray]
"""Where rows are in their tables: the knots below, and the shares of the way to the next ones."""


def interpolated(table: FloatArray, place: Place) -> FloatArray:
    """All columns of tables (rows, columns, knots) at some places; shape (columns, rows)."""
    knot, share = place
    rows = np.arange(len(table))
    low, high = table[rows, :, knot], table[rows, :, knot + 1]
    value: FloatArray = (low + share[:, None] * (high - low)).T
    return value


def located(values: FloatArray, wanted: FloatArray) -> Place:
    """Where values are in rising rows of shape (rows, knots)."""
    beyond = values[:, 1:] > wanted[:, None]
    beyond[:, -1] = True
    knot, rows = beyond.argmax(axis=1), np.arange(len(values))
    low, high = values[rows, knot], values[rows, knot + 1]
    return knot, (wanted - low) / (high - low)
