"""A replica of an inference server, simulated step by step.

The engine works in steps, as vLLM does. It admits waiting requests in the order of their arrival
as long as the batch and the KV cache have room; the prefill of each is a step of its own, and the
requests that decode wait meanwhile. Otherwise a step makes one token for each request of the
batch. If the KV cache is full, the newest request is preempted: it waits again, and its tokens
are computed anew.

Decode steps between two arrivals or completions are alike and simulated at once, so the time it
takes grows with the number of requests and not with the number of tokens. The result does not
depend on the times at which the simulation is looked at.
"""

import heapq
import itertools
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from tests.engines.engine import Engine
from tests.engines.truth import Record
from tests.engines.workload import Uniform, Workload


class Histogram:
    """Counts of values by bucket, and their sum.

    The histogram of `prometheus_client` takes one value at a time; a simulation that makes
    thousands of equal decode steps at once cannot afford that.

    Attributes
    ----------
    sum
        Sum of all values.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # the last one: greater than all bounds
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    @property
    def mean(self) -> float:
        """Mean of the values; NaN if there were none."""
        return self.sum / self.count if self.count else float("nan")

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound and cumulative count of each bucket, the last one `+Inf`."""
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(bounds, self.cumulative(), strict=True))

    def cumulative(self) -> list[int]:
        """How many values are in each bucket and those before."""
        return list(accumulate(self._counts))


@dataclass(slots=True, eq=False)
class Request:
    """A request and how far it is; times in seconds of the simulation."""

    number: int
    arrival: float
    input_tokens: int
    output_tokens: int
    truncated: bool
    made: int = 0
    """Output tokens so far."""

    scheduled: float = math.nan
    """When its first prefill began."""

    first_token: float = math.nan
    last_token: float = math.nan
    """When it made a token before the last decode step in which it took part."""

    joined: int = 0
    """How many decode steps there had been when it joined the batch."""


class Bounds(NamedTuple):
    """Bounds of the buckets in which an engine counts times [s] and lengths [tokens]."""

    inter_token: tuple[float, ...]
    first_token: tuple[float, ...]
    queue: tuple[float, ...]
    prefill: tuple[float, ...]
    tokens: tuple[float, ...]
    iteration: tuple[float, ...]


class Totals:
    """What an engine counts from its start on."""

    def __init__(self, bounds: Bounds) -> None:
        self.arrivals = 0
        self.rejections = 0
        self.completions = {"stop": 0, "length": 0, "abort": 0}
        self.preemptions = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.busy_s = 0.0
        self.inter_token = Histogram(bounds.inter_token)
        self.first_token = Histogram(bounds.first_token)
        self.queue = Histogram(bounds.queue)
        self.prefill = Histogram(bounds.prefill)
        self.request_input = Histogram(bounds.tokens)
        self.request_output = Histogram(bounds.tokens)
        self.computed_input = Histogram(bounds.tokens)
        self.iteration = Histogram(bounds.iteration)


@dataclass(slots=True)
class _Batch:
    """The requests that decode, in the order of their admission."""

    requests: dict[int, Request] = field(default_factory=dict)
    fresh: list[Request] = field(default_factory=list)
    """Those that joined after the last decode step."""

    ends: list[tuple[int, int]] = field(default_factory=list)
    """A heap: the decode step that makes a request's last token, and its number."""

    steps: int = 0
    """Decode steps so far."""

    def join(self, request: Request) -> None:
        request.joined = self.steps
        self.requests[request.number] = request
        self.fresh.append(request)
        last = self.steps + request.output_tokens - request.made
        heapq.heappush(self.ends, (last, request.number))

    def take_steps(self, number: int) -> list[Request]:
        """Count decode steps; the requests that are complete after the last of them."""
        self.steps += number
        self.fresh = []
        done = []
        while self.ends and self.ends[0][0] <= self.steps:
            request = self.requests.pop(heapq.heappop(self.ends)[1])
            request.made = request.output_tokens
            done.append(request)
        return done

    def drop_newest(self) -> Request:
        _, request = self.requests.popitem()
        self.ends = [end for end in self.ends if end[1] != request.number]
        heapq.heapify(self.ends)
        if request in self.fresh:
            self.fresh.remove(request)
        return request


class Replica:
    """One replica and the clients that send requests to it, in a Poisson process.

    Times are seconds of the simulation, from 0.

    Parameters
    ----------
    engine, workload
        How fast it is, and how long the requests are.
    bounds
        Buckets of its histograms.
    random
        Source of arrivals and lengths.
    start
        When it starts; nothing arrives until `set_rate`.

    Attributes
    ----------
    totals
        What it has counted since it was started.
    record
        What happened, for comparisons.
    started
        When it started.
    """

    def __init__(
        self,
        engine: Engine,
        workload: Workload,
        bounds: Bounds,
        random: np.random.Generator,
        start: float = 0.0,
    ) -> None:
        self.engine = engine
        self.totals = Totals(bounds)
        self.record = Record()
        self._workload = workload
        self._random = random
        self._rate = 0.0
        self.started = self._now = start  # begin of the step that is not finished yet
        self._waiting: deque[Request] = deque()
        self._prefilled: Request | None = None
        self._prefill_end = math.inf
        self._batch = _Batch()
        self._last_step_end = start
        self._kv_tokens = 0
        self._next = self._draw(0)

    @property
    def decoding(self) -> int:
        """Requests in the batch whose prefill is over."""
        return len(self._batch.requests)

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return self.decoding + (self._prefilled is not None)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def undecided(self, start: float, end: float, ttft: float) -> int:
        """Requests that arrived between two times and whose first token is not late yet [s]."""
        prefilled = [] if self._prefilled is None else [self._prefilled]
        requests = itertools.chain(self._waiting, prefilled, self._batch.requests.values())
        return sum(
            start <= request.arrival < end
            and (self._now if math.isnan(request.first_token) else request.first_token)
            <= request.arrival + ttft
            for request in requests
        )

    @property
    def kv_tokens(self) -> int:
        return self._kv_tokens

    def set_rate(self, rate: float, now: float) -> None:
        """Have requests arrive at another rate [requests/s] from a time on."""
        self.advance(now)
        self._rate = rate
        self._next.arrival = now + self._time_between_arrivals()

    def set_engine(self, engine: Engine, now: float) -> None:
        """Change how fast it is from a time on, as a new release of the engine may."""
        self.advance(now)
        self.engine = engine

    def advance(self, until: float) -> None:
        """Simulate up to a time."""
        while self._finish_step(until):
            pass
        self._receive(until)

    def _finish_step(self, until: float) -> bool:
        """Finish the present step if it ends in time, and tell whether it did."""
        if self._prefilled is not None:
            return self._finish_prefill(self._prefilled, until)
        self._receive(self._now)
        if self._next_candidate().arrival <= self._now and self._has_room():
            self._start_prefill(self._waiting.popleft())
            return True
        if self._batch.requests:
            return self._decode(until)
        if self._next.arrival > until:
            return False
        self._now = self._next.arrival
        return True

    def _draw(self, number: int) -> Request:
        longest = self.engine.max_model_length
        wanted = self._workload.input_tokens.draw(self._random)
        input_tokens = min(wanted, longest - 1)
        wanted = self._workload.output_tokens.draw(self._random)
        output_tokens = min(wanted, longest - input_tokens)
        return Request(number, math.inf, input_tokens, output_tokens, output_tokens < wanted)

    def _time_between_arrivals(self) -> float:
        return self._random.exponential(1 / self._rate) if self._rate > 0 else math.inf

    def _receive(self, until: float) -> None:
        """Put what arrived into the queue."""
        while self._next.arrival <= until:
            request, self._next = self._next, self._draw(self._next.number + 1)
            self._next.arrival = request.arrival + self._time_between_arrivals()
            self.totals.arrivals += 1
            self.record.input_tokens.add(request.arrival, request.input_tokens)
            self.record.output_tokens.add(request.arrival, request.output_tokens)
            limit = self.engine.max_queued
            if limit is not None and len(self._waiting) >= limit:
                self.totals.rejections += 1
            else:
                self._waiting.append(request)

    def _next_candidate(self) -> Request:
        """The request that is admitted next; it may not have arrived yet."""
        return self._waiting[0] if self._waiting else self._next

    def _has_room(self) -> bool:
        """Whether batch and KV cache have room for the next request and a decode step with it."""
        request, size = self._next_candidate(), self.decoding
        needed = request.input_tokens + request.made + size + 1
        return (
            size < self.engine.max_batch_size and self._kv_tokens + needed <= self.engine.kv_tokens
        )

    def _start_prefill(self, request: Request) -> None:
        tokens = request.input_tokens + request.made
        self._kv_tokens += tokens
        self._prefilled = request
        duration = self.engine.prefill_s(tokens, self.running)
        self._prefill_end = self._now + duration
        self.totals.busy_s += duration
        if math.isnan(request.scheduled):
            request.scheduled = self._now
            self.record.waits.add(self._now, self._now - request.arrival)

    def _finish_prefill(self, request: Request, until: float) -> bool:
        if self._prefill_end > until:
            return False
        self._now, self._prefilled = self._prefill_end, None
        if math.isnan(request.first_token):
            self._count_first_token(request)
        else:  # it was preempted
            self._count_intervals(self._now - request.last_token, 1)
            self.totals.iteration.observe(1)
        self.totals.generation_tokens += 1
        request.made += 1
        request.last_token = self._now
        if request.made == request.output_tokens:
            self._complete(request)
        else:
            self._batch.join(request)
        return True

    def _count_first_token(self, request: Request) -> None:
        request.first_token = self._now
        self.totals.first_token.observe(self._now - request.arrival)
        self.totals.prompt_tokens += request.input_tokens
        self.totals.iteration.observe(request.input_tokens + 1)
        self.record.first_tokens.add(self._now, self._now - request.arrival)

    def _decode(self, until: float) -> bool:
        """Make all decode steps until something else can happen, in time."""
        batch, size = self._batch, self.decoding
        if self._kv_tokens + size > self.engine.kv_tokens:
            self._preempt()
            return True
        duration = self.engine.decode_s(size)
        steps = min(self._steps_until_change(duration), int((until - self._now) / duration))
        if steps < 1:
            return False
        self._count_decode(size, steps, duration)
        self._now += steps * duration
        self._last_step_end = self._now
        self._kv_tokens += size * steps
        for request in batch.take_steps(steps):
            self._complete(request)
        return True

    def _steps_until_change(self, duration: float) -> int:
        """How many decode steps the batch stays as it is."""
        batch, size = self._batch, self.decoding
        steps = min(
            batch.ends[0][0] - batch.steps,
            (self.engine.kv_tokens - self._kv_tokens) // size,
        )
        arrival = self._next_candidate().arrival
        if arrival < math.inf and self._has_room():
            steps = min(steps, max(1, math.ceil((arrival - self._now) / duration)))
        return steps

    def _count_decode(self, size: int, steps: int, duration: float) -> None:
        """Count the tokens of decode steps; the first ones may have waited for prefills.

        Who did not wait gets the step's exact duration, wherever a look has split the steps: it
        may be the bound of a bucket.
        """
        first_end, fresh = self._now + duration, self._batch.fresh
        if size > len(fresh):
            waited = self._now - self._last_step_end
            self._count_intervals(waited + duration, size - len(fresh), first_end)
        for request in fresh:
            self._count_intervals(self._now - request.last_token + duration, 1, first_end)
        if steps > 1:
            self._count_intervals(duration, size * (steps - 1), first_end)
        self.totals.generation_tokens += size * steps
        self.totals.iteration.observe(size, steps)
        self.totals.busy_s += steps * duration

    def _count_intervals(self, interval: float, times: int, time: float | None = None) -> None:
        self.totals.inter_token.observe(interval, times)
        self.record.intervals.add(self._now if time is None else time, interval, times)

    def _preempt(self) -> None:
        request = self._batch.drop_newest()
        steps = self._batch.steps - request.joined
        self._kv_tokens -= request.input_tokens + request.made - 1 + steps
        if steps:
            request.made += steps
            request.last_token = self._last_step_end
        self._waiting.appendleft(request)
        self.totals.preemptions += 1

    def _complete(self, request: Request) -> None:
        self._kv_tokens -= request.input_tokens + request.output_tokens - 1
        totals = self.totals
        totals.completions["length" if request.truncated else "stop"] += 1
        totals.queue.observe(request.scheduled - request.arrival)
        totals.prefill.observe(request.first_token - request.scheduled)
        totals.request_input.observe(request.input_tokens)
        totals.request_output.observe(request.output_tokens)
        totals.computed_input.observe(request.input_tokens)
        self.record.completions.add(self._now, self._now - request.arrival)
        first = request.first_token
        intervals = max(request.output_tokens - 1, 1)
        self.record.response_starts.add(self._now, first - request.arrival)
        self.record.response_intervals.add(self._now, (self._now - first) / intervals)


def loaded_replica(bounds: Bounds) -> Replica:
    """A replica that has got 5 requests/s for a minute."""
    lengths = Workload(Uniform(256, 768), Uniform(100, 300))
    replica = Replica(Engine(8.0, 0.1, 20.0, 0.0008), lengths, bounds, np.random.default_rng(1))
    replica.set_rate(5.0, 0.0)
    replica.advance(60.0)
    return replica
