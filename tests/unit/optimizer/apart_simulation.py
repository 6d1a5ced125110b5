"""Steps of prefill replicas and of decode replicas, one by one: the judge of their sizing.

Requests come at random and go to a random prefill replica, whose steps compute the prompts that
wait, as many tokens as the budget allows. Then they are handed over to a random decode replica,
whose steps make a token for each of the requests in its batch.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.system import StepParameters, Transfer


@dataclass(frozen=True)
class Request:
    """When a request is there [ms], and its tokens."""

    time: float
    inputs: int
    outputs: int


@dataclass(frozen=True)
class Seen:
    """What clients see of each request [ms]."""

    ttft: FloatArray
    itl: FloatArray


@dataclass(frozen=True)
class Pools:
    """Replicas of both roles; a decode replica serves at most `batch` requests at a time.

    Prefill replicas have the share `cached` of each prompt in their caches.
    """

    prefill: StepParameters
    prefill_replicas: int
    decode: StepParameters
    decode_replicas: int
    batch: int
    transfer: Transfer
    cached: float = 0.0


def requests_of(
    rng: np.random.Generator, rate: float, inputs: int, outputs: int, cov: float, number: int
) -> list[Request]:
    """Random requests; `rate` is in requests/ms."""
    times = np.cumsum(rng.exponential(1 / rate, number))
    shape = 1 / cov**2
    lengths = [
        np.maximum(rng.gamma(shape, mean / shape, number).round(), 1).astype(int)
        for mean in (inputs, outputs)
    ]
    columns = (times, *lengths)
    return [Request(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


def simulate(rng: np.random.Generator, pools: Pools, requests: Sequence[Request]) -> Seen:
    """What each request sees, but for the first tenth."""
    number = len(requests)
    handed = np.zeros(number)
    for mine in _shared(rng, pools.prefill_replicas, number):
        left = (round(requests[i].inputs * (1.0 - pools.cached)) for i in mine)
        here = [
            replace(requests[i], inputs=max(computed, 1))
            for i, computed in zip(mine, left, strict=True)
        ]
        handed[mine] = _prefill(pools.prefill, here)
    for i, request in enumerate(requests):
        handed[i] += pools.transfer.request_ms + pools.transfer.token_ms * request.inputs
    first, last = np.zeros(number), np.zeros(number)
    for some in _shared(rng, pools.decode_replicas, number):
        mine = some[np.argsort(handed[some], kind="stable")]
        here = [Request(handed[i], requests[i].inputs, requests[i].outputs) for i in mine]
        first[mine], last[mine] = _decode(pools.decode, pools.batch, here)
    came = np.array([request.time for request in requests])
    outputs = np.array([request.outputs for request in requests])
    counted = np.arange(number) >= number // 10
    several = counted & (outputs > 1)
    itl = (last - first)[several] / (outputs[several] - 1)
    return Seen((first - came)[counted], itl)


def _shared(rng: np.random.Generator, replicas: int, number: int) -> list[np.ndarray]:
    replica = rng.integers(replicas, size=number)
    return [np.flatnonzero(replica == one) for one in range(replicas)]


def _prefill(law: StepParameters, requests: Sequence[Request]) -> list[float]:
    """When the prompt of each is computed [ms]."""
    ends, budget = [0.0] * len(requests), law.budget or float("inf")
    waiting: deque[list[float]] = deque()
    now, came = 0.0, 0
    while waiting or came < len(requests):
        if not waiting:
            now = max(now, requests[came].time)
        while came < len(requests) and requests[came].time <= now:
            waiting.append([came, requests[came].inputs])
            came += 1
        left, done = float(budget), list[int]()
        while waiting and left > 0:
            taken = min(left, waiting[0][1])
            waiting[0][1] -= taken
            left -= taken
            if waiting[0][1] == 0:
                done.append(int(waiting.popleft()[0]))
        tokens: float = sum(requests[i].inputs for i in done)
        if budget != float("inf"):
            tokens = budget - left
        now += law.alpha + law.delta * tokens
        for i in done:
            ends[i] = now
    return ends


def _decode(
    law: StepParameters, batch: int, requests: Sequence[Request]
) -> tuple[list[float], list[float]]:
    """When each has its first and its last token [ms]; requests come in order of time."""
    first, last = [0.0] * len(requests), [0.0] * len(requests)
    joined: deque[tuple[int, int]] = deque()  # the step that makes the first token, and who
    ending: list[tuple[int, int]] = []  # the step after the last token, and who
    waiting: deque[int] = deque()
    now, step, came, running, context = 0.0, 0, 0, 0, 0.0
    while came < len(requests) or waiting or running:
        if not running and not waiting:
            now = max(now, requests[came].time)
        while came < len(requests) and requests[came].time <= now:
            waiting.append(came)
            came += 1
        while waiting and running < batch:
            who = waiting.popleft()
            begins = step + round(law.ahead)
            joined.append((begins, who))
            heapq.heappush(ending, (begins + requests[who].outputs, who))
            running += 1
            context += requests[who].inputs + law.overhead
        now += law.alpha + law.kappa * context
        while joined and joined[0][0] <= step:
            first[joined.popleft()[1]] = now
        context += running
        step += 1
        while ending and ending[0][0] <= step:
            who = heapq.heappop(ending)[1]
            last[who] = now
            running -= 1
            context -= requests[who].inputs + law.overhead + requests[who].outputs
            context -= round(law.ahead)
    return first, last
