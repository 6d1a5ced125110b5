"""The plant: replicas that start, serve, queue and drain under a load, one step after the other.

In a step, replicas that have started become ready, the wanted numbers are carried out as far as
there are cards, and then the requests flow: a fluid queue for each server.

The plant knows how many requests are in a replica, not at which rate they come. A stationary
queue at rate r holds L(r) requests, so a replica that holds L(r) departs at r: a fluid whose
stationary state is that of the queue [Wang, Tipper and Banerjee, IEEE INFOCOM 1996, pointwise
stationary fluid flow approximation]. Beyond the highest stable rate, what is more waits in line
and is served at that rate.
"""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.replay.fleet import (
    ReplayFleet,
    ResultCache,
    SizedFleet,
    build_cases,
    find_rows,
    round_lengths,
)
from inferno_optimizer.replay.trace import have_lengths_changed
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
        self._profile = np.full(fleet.shape, -1)  # its place; -1 without one
        for row, case in enumerate(fleet.cases):
            for profile in case.profiles:
                accelerator = fleet.system.profiles[profile].accelerator
                self._profile[row, fleet.catalogue.accelerators[accelerator]] = profile
        self._known = ResultCache(MOST_KNOWN)
        self._filled = np.zeros(fleet.shape, dtype=np.bool_)
        self.table = np.zeros((*fleet.shape, COLUMNS, KNOTS))

    def ask(self, lengths: FloatArray, server: IntArray, accelerator: IntArray) -> bool:
        """Fill the tables of pairs, in the order of servers, at lengths of shape (2, servers).

        Returns whether any of them is another one than before.
        """
        if not np.array_equal(lengths, self._asked):
            self._asked = lengths
            other = have_lengths_changed(lengths, self._lengths)
            self._lengths = np.where(other, lengths, self._lengths)
            self._filled[other] = False
        missing = ~self._filled[server, accelerator]
        if not missing.any():
            return False
        server, accelerator = server[missing], accelerator[missing]
        columns = (server.tolist(), accelerator.tolist(), *round_lengths(self._lengths[:, server]))
        self.table[server, accelerator] = self._known.of(
            [*zip(*columns, strict=True)],
            lambda new: self._tabulate(server[new], accelerator[new]),
        )
        self._filled[server, accelerator] = True
        return True

    def _tabulate(self, server: IntArray, accelerator: IntArray) -> FloatArray:
        servers, first, case = np.unique(server, return_index=True, return_inverse=True)
        profiles = np.split(self._profile[server, accelerator], first[1:])
        cases = build_cases(self._fleet, servers, self._lengths, [own.tolist() for own in profiles])
        pairs = build_pairs(self._fleet.catalogue, cases, self._fleet.types)
        row = find_rows(pairs, (len(servers), self._fleet.shape[1]))[case, accelerator]
        tables = np.empty((len(row), COLUMNS, KNOTS))
        for group in pairs.groups:
            at, place = group.among(row)
            if at.size:
                asked = group.replicas.take(place)
                rows, where = asked.distinct()
                tables[at] = tabulate_response(asked.take(rows), percentiles=self._percentiles)[
                    where
                ]
        return tables


def tabulate_response(replicas: Replicas, *, percentiles: bool) -> FloatArray:
    """The tables of replicas in descending order of batch; shape (rows, columns, knots)."""
    count, knots = len(replicas.model.batch), len(LOADS)
    every = replicas.take(np.repeat(np.arange(count), knots))
    batch = every.model.batch.astype(np.float64)
    loads = np.tile(np.maximum(LOADS, LEAST_LOAD), count)
    rate = loads / every.model.intervals(slice(0, len(batch)), batch)
    stable = (
        _tabulate_stable(every, rate, percentiles=percentiles)
        .reshape(COLUMNS, count, knots)
        .transpose(1, 0, 2)
    )
    stable[:, [REQUESTS, RATE, RUNNING, WAIT], 0] = 0.0
    return np.concatenate((stable, _tabulate_overloaded(replicas, stable[:, :, -1])), axis=2)


def _tabulate_stable(replicas: Replicas, rate: FloatArray, *, percentiles: bool) -> FloatArray:
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
            _share_within(replicas, queue, first, 0.0),
        )
    )


def _share_within(
    replicas: Replicas, queue: Averages, first: FloatArray, delay_ms: FloatArray | float
) -> FloatArray:
    """Share of requests within the limits of wait and TTFT, if each waits for a delay more."""
    limits = replicas.limits
    slack = np.minimum(limits.wait, limits.ttft - first) - delay_ms
    free = np.isinf(slack)
    missed = np.exp(log_tail(queue, np.where(free, 0.0, slack)))
    return np.where(free, 1.0, 1.0 - missed)


def _tabulate_overloaded(replicas: Replicas, last: FloatArray) -> FloatArray:
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
    within = _share_within(replicas.take(each), queue.take(each), last[each, FIRST], delay.ravel())
    curves[:, WITHIN] = within.reshape(count, knots)
    return curves


KnotPosition = tuple[IntArray, FloatArray]
"""Where rows are in their tables: the knots below, and the shares of the way to the next ones."""


def interpolate(table: FloatArray, place: KnotPosition) -> FloatArray:
    """All columns of tables (rows, columns, knots) at some places; shape (columns, rows)."""
    knot, share = place
    rows = np.arange(len(table))
    low, high = table[rows, :, knot], table[rows, :, knot + 1]
    value: FloatArray = (low + share[:, None] * (high - low)).T
    return value


def locate(values: FloatArray, wanted: FloatArray) -> KnotPosition:
    """Where values are in rising rows of shape (rows, knots)."""
    beyond = values[:, 1:] > wanted[:, None]
    beyond[:, -1] = True
    knot, rows = beyond.argmax(axis=1), np.arange(len(values))
    low, high = values[rows, knot], values[rows, knot + 1]
    return knot, (wanted - low) / (high - low)


ROUNDING = 1e-9
"""Steps by which a lead time may exceed a whole number of them."""


@dataclass(frozen=True, slots=True)
class LeadTime:
    """Time from the start of a replica until it serves: mean [s] and coefficient of variation.

    It has a lognormal distribution; all replicas of a server that start together are ready
    together.
    """

    mean_s: float = 120.0
    cov: float = 0.0

    def draw(self, count: int, random: np.random.Generator) -> FloatArray:
        """Independent lead times [s]."""
        if self.cov == 0:
            return np.full(count, self.mean_s)
        sigma = np.sqrt(np.log1p(self.cov**2))
        return random.lognormal(np.log(self.mean_s) - sigma**2 / 2, sigma, count)


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What arrives in a step: requests/s of each server.

    `lengths` has the shape (2, servers): mean input and output tokens.
    """

    rate: FloatArray
    lengths: FloatArray


@dataclass(frozen=True, slots=True)
class StepResult:
    """How the servers did in a step.

    `running` and `waiting` are requests in service and in line at its end, and `batch_use` are
    the full batches that run, as many replicas' worth of KV cache; `able` is the highest rate at
    which the replicas that serve can work [requests/s]; latencies [ms] are those of a request that
    arrives at its end. `delay_within` and `itl_within` are the shares of the arrivals of the step
    within the targets of wait and TTFT, and of the ITL. All have the shape (servers,).
    """

    running: FloatArray
    waiting: FloatArray
    batch_use: FloatArray
    able: FloatArray
    itl_ms: FloatArray
    wait_ms: FloatArray
    ttft_ms: FloatArray
    wait_p90_ms: FloatArray
    ttft_p90_ms: FloatArray
    delay_within: FloatArray
    itl_within: FloatArray


class Plant:
    """The state of a fleet after steps of `step_s`; matrices are of servers and accelerators.

    `ready` replicas serve; `starting` has, for each of the next steps, those that become ready
    then, and `coming` all of them; their lead times are drawn at `random`. `requests` are those in
    each server. `started` and `drained` count the replicas that were started, and those that were
    taken away while they served; `refused` are those of each server that were wanted last and found
    no card. Without `percentiles` steps tell none, and it is faster.
    """

    def __init__(
        self,
        fleet: ReplayFleet,
        step_s: float,
        lead: LeadTime,
        random: np.random.Generator,
        *,
        percentiles: bool = True,
    ) -> None:
        servers = len(fleet.servers)
        self.fleet, self.step_s = fleet, step_s
        self._lead, self._random = lead, random
        self.ready = np.zeros(fleet.shape, dtype=np.int64)
        self.starting = np.zeros((0, *fleet.shape), dtype=np.int64)
        self.coming = np.zeros_like(self.ready)
        self.requests = np.zeros(servers)
        self.started, self.drained = np.zeros_like(self.ready), np.zeros_like(self.ready)
        self.refused = np.zeros(servers, dtype=np.int64)
        self.curves = Curves(fleet, percentiles=percentiles)
        self._sized = SizedFleet(fleet)
        self._load = StepLoad(np.zeros(servers), np.ones((2, servers)))
        self._on = self.ready > 0
        self._pairs = np.nonzero(self._on)
        self._parts = _Parts.of(self._pairs[0], self.curves.table[self._pairs], servers, step_s)

    @property
    def present(self) -> IntArray:
        """Replicas that are ready or start."""
        total: IntArray = self.ready + self.coming
        return total

    def begin(self, wanted: IntArray) -> None:
        """Let these replicas be ready at the beginning, as far as there are cards."""
        self.ready = self._grant_cards(wanted)

    def begin_step(self) -> None:
        """Replicas whose lead time is over become ready."""
        if len(self.starting):
            self.ready = self.ready + self.starting[0]
            self.coming -= self.starting[0]
            self.starting = self.starting[1:]
            while len(self.starting) and not self.starting[-1].any():
                self.starting = self.starting[:-1]

    def carry_out(self, wanted: IntArray) -> None:
        """Change the replicas as wanted: reductions first, then what the free cards allow.

        While replicas of a server start on one accelerator, it keeps those on others. Where there
        are no cards to start any, it gives up one of the others if those that remain carry the load
        of the last step, but not the last that serves: it may be that somebody waits for its card
        who has another for it.
        """
        change = wanted - self.present
        if not change.any():
            self.refused = np.zeros_like(self.refused)
            return
        fewer, more = np.maximum(-change, 0), np.maximum(change, 0)
        elsewhere = _sum_elsewhere(self.coming + more) > 0
        self._shrink(np.where(elsewhere, 0, fewer))
        granted = self._grant_cards(more)
        self.refused = (more - granted).sum(axis=1)
        self._start(granted)
        held = np.where(elsewhere, fewer, 0)
        if held.any():
            self._make_room(held)

    def _make_room(self, held: IntArray) -> None:
        """Take one replica of servers of which none starts elsewhere and which can spare it."""
        fewer = np.where(_sum_elsewhere(self.coming) == 0, np.minimum(held, 1), 0)
        left, able = self.ready - fewer, self._sized.at(self._load.lengths).max_rate
        spared = left.any(axis=1) & ((left * able).sum(axis=1) >= self._load.rate)
        self._shrink(np.where(spared[:, None], fewer, 0))

    def _grant_cards(self, more: IntArray) -> IntArray:
        """As many of the additional replicas as there are cards for, in the order of servers."""
        fleet = self.fleet
        free = fleet.capacity - fleet.used_cards(self.present)
        if (fleet.used_cards(more) <= free).all():
            return np.where(fleet.cards > 0, more, 0)
        granted = np.zeros_like(more)
        for server, accelerator in zip(*np.nonzero(more * fleet.cards), strict=True):
            kind, cards = fleet.card_type[accelerator], fleet.cards[server, accelerator]
            count = min(more[server, accelerator], max(free[kind] // cards, 0))
            granted[server, accelerator] = count
            free[kind] -= count * cards
        return granted

    def _start(self, granted: IntArray) -> None:
        """Start replicas, which are ready after a lead time; at once if that is 0."""
        server, accelerator = np.nonzero(granted > 0)
        if not len(server):
            return
        self.started += granted
        count = granted[server, accelerator]
        leads = self._lead.draw(len(server), self._random) / self.step_s
        steps = np.maximum(np.ceil(leads - ROUNDING), 0).astype(np.int64)
        missing = int(steps.max()) - len(self.starting)
        if missing > 0:
            later = np.zeros((missing, *self.fleet.shape), dtype=np.int64)
            self.starting = np.concatenate((self.starting, later))
        soon = steps == 0
        self.ready[server[soon], accelerator[soon]] += count[soon]
        late = ~soon
        self.coming[server[late], accelerator[late]] += count[late]
        self.starting[steps[late] - 1, server[late], accelerator[late]] += count[late]

    def _shrink(self, fewer: IntArray) -> None:
        """Take replicas away, those first that would be ready last."""
        if not fewer.any():
            return
        for step in reversed(range(len(self.starting))):
            cancelled = np.minimum(fewer, self.starting[step])
            self.starting[step] -= cancelled
            self.coming -= cancelled
            fewer = fewer - cancelled
        self.ready = self.ready - fewer
        self.drained += fewer

    def serve(self, load: StepLoad) -> StepResult:
        """Let the requests of a step come, be served and leave."""
        self._load = load
        parts = self._update_parts(load.lengths)
        server, count, table = parts.server, parts.replicas, parts.table
        before = self.requests[server] * parts.held / count
        arriving = load.rate[server] * parts.share / count
        place = locate(parts.balance, before + self.step_s * arriving)
        at_end = interpolate(table, place)
        after = at_end[REQUESTS]
        left = parts.sums(after * count)
        self.requests = np.where(parts.on, left, self.requests + load.rate * self.step_s)
        midway = interpolate(table, locate(table[:, REQUESTS], (before + after) / 2))
        return self._report(parts, midway, at_end)

    def _update_parts(self, lengths: FloatArray) -> "_Parts":
        """The parts of the servers; where only numbers of replicas change, their tables stay."""
        on = self.ready > 0
        moved = not np.array_equal(on, self._on)
        if moved:
            self._on, self._pairs = on, np.nonzero(on)
        if self.curves.ask(lengths, *self._pairs) or moved:
            tables = self.curves.table[self._pairs]
            self._parts = _Parts.of(self._pairs[0], tables, len(self.requests), self.step_s)
        self._parts.count(self.ready[self._pairs])
        return self._parts

    def _report(self, parts: "_Parts", midway: FloatArray, at_end: FloatArray) -> StepResult:
        """What the servers did, from the columns in the middle of the step and at its end."""

        def mean(values: FloatArray, missing: float) -> FloatArray:
            if parts.is_complete:
                return values
            return np.where(parts.on, parts.sums(values * parts.share), missing)

        itl = midway[ITL]
        in_service = at_end[RUNNING] * parts.replicas
        running = parts.sums(in_service)
        wait, first = at_end[WAIT], at_end[FIRST]
        within = (itl <= self.fleet.itl_limit[parts.server]).astype(np.float64)
        return StepResult(
            running=running,
            waiting=np.maximum(self.requests - running, 0.0),
            batch_use=parts.sums(in_service / parts.table[:, RUNNING, KNOTS - 1]),
            able=parts.sums(parts.table[:, RATE, KNOTS - 1] * parts.replicas),
            itl_ms=mean(at_end[ITL], np.inf),
            wait_ms=mean(wait, np.inf),
            ttft_ms=mean(wait + first, np.inf),
            wait_p90_ms=mean(at_end[TTFT_P90] - first, np.inf),
            ttft_p90_ms=mean(at_end[TTFT_P90], np.inf),
            delay_within=mean(np.minimum(np.maximum(midway[WITHIN], 0.0), 1.0), 0.0),
            itl_within=mean(within, 0.0),
        )


@dataclass(slots=True)
class _Parts:
    """The parts of servers on one accelerator each, which share what arrives.

    A part has replicas with the same table, of shape (parts, columns, knots). `balance` is what a
    replica holds and serves in a step: by implicit Euler, content' + step departures(content') =
    content + step arrivals, which is exact where nothing changes and where all arrivals above a
    constant rate of departures pile up. `on` says which servers have a part, `is_whole` whether
    each part is all of its server, and `is_complete` whether also each server has one.

    Of what arrives a part gets as much as it is able to serve (`share`); of what is there it holds
    as much as fits into its batches (`held`). It has `replicas`.
    """

    server: IntArray
    table: FloatArray
    balance: FloatArray
    on: np.ndarray[tuple[int], np.dtype[np.bool_]]
    is_whole: bool
    is_complete: bool
    share: FloatArray
    held: FloatArray
    replicas: IntArray

    @classmethod
    def of(cls, server: IntArray, table: FloatArray, servers: int, step_s: float) -> "_Parts":
        """The parts of servers, in their order, with one replica each."""
        ones, is_whole = np.ones(len(server)), bool((np.diff(server) > 0).all())
        return cls(
            server=server,
            table=table,
            balance=table[:, REQUESTS] + step_s * table[:, RATE],
            on=np.bincount(server, minlength=servers) > 0,
            is_whole=is_whole,
            is_complete=is_whole and len(server) == servers,
            share=ones,
            held=ones,
            replicas=np.ones(len(server), dtype=np.int64),
        )

    def count(self, replicas: IntArray) -> None:
        """Set the numbers of replicas, and what follows from them."""
        self.replicas = replicas
        if not self.is_whole:
            able, room = (replicas * self.table[:, column, KNOTS - 1] for column in (RATE, RUNNING))
            self.share, self.held = (part / self.sums(part)[self.server] for part in (able, room))

    def sums(self, values: FloatArray) -> FloatArray:
        """The sum of the parts of each server; 0 of those that have none."""
        if self.is_complete:
            return values
        if not self.is_whole:
            return np.bincount(self.server, values, len(self.on)).astype(np.float64)
        total = np.zeros(len(self.on))
        total[self.server] = values
        return total


def _sum_elsewhere(matrix: IntArray) -> IntArray:
    """For each server and accelerator, the sum over its other accelerators."""
    total: IntArray = matrix.sum(axis=1, keepdims=True) - matrix
    return total
