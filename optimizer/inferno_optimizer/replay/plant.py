"""The plant: replicas that start, serve, queue and drain under a load, one step after the other.

In a step, replicas that have started become ready, the wanted numbers are carried out as far as
there are cards, and then the requests flow: a fluid queue for each server, whose content and
latencies are those of the queueing model of the sizing, see `curves`.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from inferno_optimizer.replay.curves import (
    FIRST,
    ITL,
    KNOTS,
    RATE,
    REQUESTS,
    RUNNING,
    TTFT_P90,
    WAIT,
    WITHIN,
    Curves,
    Place,
    interpolated,
    located,
)
from inferno_optimizer.replay.fleet import ReplayFleet
from inferno_optimizer.sizing.queueing import FloatArray, IntArray

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


DEFAULT_LEAD = LeadTime()


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
    the full batches that run, as many replicas' worth of KV cache; latencies [ms] are
    those of a request that arrives at its end. `delay_within` and `itl_within` are the shares of
    the arrivals of the step within the targets of wait and TTFT, and of the ITL. All have the
    shape (servers,).
    """

    running: FloatArray
    waiting: FloatArray
    batch_use: FloatArray
    itl_ms: FloatArray
    wait_ms: FloatArray
    ttft_ms: FloatArray
    wait_p90_ms: FloatArray
    ttft_p90_ms: FloatArray
    delay_within: FloatArray
    itl_within: FloatArray


@dataclass(slots=True)
class Plant:
    """The state of a fleet; matrices have the shape (servers, accelerators).

    `ready` replicas serve; `starting` has, for each of the next steps, those that become ready
    then. `requests` are those in each server. `started` and `drained` count the replicas
    that were started, and those that were taken away while they served. Without `percentiles`,
    it is faster and tells none.
    """

    fleet: ReplayFleet
    step_s: float
    lead: LeadTime
    random: np.random.Generator
    percentiles: bool = True
    ready: IntArray = field(init=False)
    starting: IntArray = field(init=False)
    requests: FloatArray = field(init=False)
    started: IntArray = field(init=False)
    drained: IntArray = field(init=False)
    curves: Curves = field(init=False)

    def __post_init__(self) -> None:
        servers = len(self.fleet.servers)
        self.ready = np.zeros(self.fleet.shape, dtype=np.int64)
        self.starting = np.zeros((0, *self.fleet.shape), dtype=np.int64)
        self.requests = np.zeros(servers)
        self.started = np.zeros(self.fleet.shape, dtype=np.int64)
        self.drained = np.zeros(self.fleet.shape, dtype=np.int64)
        self.curves = Curves(self.fleet, percentiles=self.percentiles)

    @property
    def present(self) -> IntArray:
        """Replicas that are ready or start."""
        total: IntArray = self.ready + self.starting.sum(axis=0)
        return total

    def begin(self, wanted: IntArray) -> None:
        """Let these replicas be ready at the beginning, as far as there are cards."""
        self.ready = self._granted(wanted)

    def begin_step(self) -> None:
        """Replicas whose lead time is over become ready."""
        if len(self.starting):
            self.ready = self.ready + self.starting[0]
            self.starting = self.starting[1:]
            while len(self.starting) and not self.starting[-1].any():
                self.starting = self.starting[:-1]

    def carry_out(self, wanted: IntArray) -> None:
        """Change the replicas as wanted: reductions first, then what the free cards allow.

        While replicas of a server start on one accelerator, it keeps those on others; where there
        are no cards to start any, it gives up the others first.
        """
        present = self.present
        if np.array_equal(present, wanted):
            return
        fewer, more = np.maximum(present - wanted, 0), np.maximum(wanted - present, 0)
        elsewhere = self._starts_elsewhere() | (_others(more) > 0)
        self._shrink(np.where(elsewhere, 0, fewer))
        self._start(self._granted(more))
        self._shrink(np.where(elsewhere & ~self._starts_elsewhere(), fewer, 0))

    def _starts_elsewhere(self) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        return _others(self.starting.sum(axis=0)) > 0

    def _granted(self, more: IntArray) -> IntArray:
        """As many of the additional replicas as there are cards for, in the order of servers."""
        fleet, granted = self.fleet, np.zeros_like(more)
        free = fleet.capacity - fleet.used_cards(self.present)
        for server, accelerator in zip(*np.nonzero(more * fleet.cards), strict=True):
            kind, cards = fleet.card_type[accelerator], fleet.cards[server, accelerator]
            count = min(more[server, accelerator], max(free[kind] // cards, 0))
            granted[server, accelerator] = count
            free[kind] -= count * cards
        return granted

    def _start(self, granted: IntArray) -> None:
        """Start replicas, which are ready after a lead time; at once if that is 0."""
        self.started += granted
        pairs = np.nonzero(granted)
        for server, accelerator, lead_s in zip(
            *pairs, self.lead.draw(len(pairs[0]), self.random), strict=True
        ):
            count = granted[server, accelerator]
            steps = math.ceil(lead_s / self.step_s - ROUNDING)
            if steps == 0:
                self.ready[server, accelerator] += count
                continue
            missing = max(steps - len(self.starting), 0)
            later = np.zeros((missing, *self.fleet.shape), dtype=np.int64)
            self.starting = np.concatenate((self.starting, later))
            self.starting[steps - 1, server, accelerator] += count

    def _shrink(self, fewer: IntArray) -> None:
        """Take replicas away, those first that would be ready last."""
        for server, accelerator in zip(*np.nonzero(fewer), strict=True):
            count = fewer[server, accelerator]
            for step in reversed(range(len(self.starting))):
                cancelled = min(count, self.starting[step, server, accelerator])
                self.starting[step, server, accelerator] -= cancelled
                count -= cancelled
            self.ready[server, accelerator] -= count
            self.drained[server, accelerator] += count

    def serve(self, load: StepLoad) -> StepResult:
        """Let the requests of a step come, be served and leave."""
        server, accelerator = np.nonzero(self.ready)
        self.curves.ask(load.lengths, server, accelerator)
        table, count = self.curves.table[server, accelerator], self.ready[server, accelerator]
        share = self._shares(server, count * table[:, RATE, KNOTS - 1])
        held = self._shares(server, count * table[:, RUNNING, KNOTS - 1])
        before = self.requests[server] * held / count
        arriving = load.rate[server] * share / count
        place = _place_after(table, before, arriving, self.step_s)
        after = interpolated(table, REQUESTS, *place)
        left = np.bincount(server, after * count, len(self.requests))
        idle = np.bincount(server, minlength=len(self.requests)) == 0
        self.requests = np.where(idle, self.requests + load.rate * self.step_s, left)
        midway = located(table[:, REQUESTS], (before + after) / 2)
        return self._served(server, (share, count), table, (midway, place))

    def _shares(self, server: IntArray, weight: FloatArray) -> FloatArray:
        """Shares of the parts of a server on one accelerator each, by their weights.

        Of what arrives they get as much as they are able to serve; of what is there they hold as
        much as fits into their batches.
        """
        share: FloatArray = weight / np.bincount(server, weight, len(self.requests))[server]
        return share

    def _served(
        self,
        server: IntArray,
        parts: tuple[FloatArray, IntArray],
        table: FloatArray,
        places: tuple[Place, Place],
    ) -> StepResult:
        """What the servers did, of their parts on one accelerator each.

        Parts are their shares of the requests and their replicas; places in their tables are those
        in the middle of the step and at its end.
        """
        size, (share, count), (midway, at_end) = len(self.requests), parts, places
        on = np.bincount(server, minlength=size) > 0

        def mean(values: FloatArray, missing: float) -> FloatArray:
            return np.where(on, np.bincount(server, values * share, size), missing)

        def last(column: int) -> FloatArray:
            return interpolated(table, column, *at_end)

        itl = interpolated(table, ITL, *midway)
        in_service = last(RUNNING) * count
        running = np.bincount(server, in_service, size).astype(np.float64)
        batches = in_service / table[:, RUNNING, KNOTS - 1]
        wait, first = last(WAIT), last(FIRST)
        return StepResult(
            running=running,
            waiting=np.maximum(self.requests - running, 0.0),
            batch_use=np.bincount(server, batches, size).astype(np.float64),
            itl_ms=mean(last(ITL), np.inf),
            wait_ms=mean(wait, np.inf),
            ttft_ms=mean(wait + first, np.inf),
            wait_p90_ms=mean(last(TTFT_P90) - first, np.inf),
            ttft_p90_ms=mean(last(TTFT_P90), np.inf),
            delay_within=mean(np.clip(interpolated(table, WITHIN, *midway), 0.0, 1.0), 0.0),
            itl_within=mean((itl <= self.fleet.itl_limit[server]).astype(np.float64), 0.0),
        )


def _others(matrix: IntArray) -> IntArray:
    """For each server and accelerator, the sum over its other accelerators."""
    total: IntArray = matrix.sum(axis=1, keepdims=True) - matrix
    return total


def _place_after(
    table: FloatArray, content: FloatArray, arriving: FloatArray, step_s: float
) -> Place:
    """Where the requests in replicas are in their tables after a step, by implicit Euler.

    It solves content' + step departures(content') = content + step arrivals, which is exact where
    nothing changes and where all arrivals above a constant rate of departures pile up.
    """
    balance = table[:, REQUESTS] + step_s * table[:, RATE]
    return located(balance, content + step_s * arriving)
