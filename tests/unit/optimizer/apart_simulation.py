"""Steps of prefill replicas and of decode replicas, one by one: the judge of their sizing.

Requests come at random and go to a random prefill replica, whose steps compute the prompts that
wait, as many tokens as the budget allows. Then they are handed over to a random decode replica,
whose steps make a token for each of the requests in its batch.
"""

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.system import StepParameters, Transfer


@dataclass(frozen=True)
class Requests:
    """When each request is there [ms], in this order, and its tokens; each of shape (number,)."""

    times: FloatArray
    inputs: FloatArray
    outputs: FloatArray


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
) -> Requests:
    """Random requests; `rate` is in requests/ms."""
    times = np.cumsum(rng.exponential(1 / rate, number))
    shape = 1 / cov**2
    lengths = [
        np.maximum(rng.gamma(shape, mean / shape, number).round(), 1) for mean in (inputs, outputs)
    ]
    return Requests(times, *lengths)


def simulate(rng: np.random.Generator, pools: Pools, requests: Requests) -> Seen:
    """What each request sees, but for the first tenth."""
    inputs, outputs = requests.inputs, requests.outputs
    number = len(inputs)
    computed = np.maximum((inputs * (1.0 - pools.cached)).round(), 1)
    handed, first, last = np.zeros((3, number))
    for mine in _shared(rng, pools.prefill_replicas, number):
        handed[mine] = _prefill(pools.prefill, requests.times[mine], computed[mine])
    handed += pools.transfer.request_ms + pools.transfer.token_ms * inputs
    for some in _shared(rng, pools.decode_replicas, number):
        mine = some[np.argsort(handed[some], kind="stable")]
        here = Requests(handed[mine], inputs[mine], outputs[mine])
        first[mine], last[mine] = _decode(pools.decode, pools.batch, here)
    counted = np.arange(number) >= number // 10
    several = counted & (outputs > 1)
    itl = (last - first)[several] / (outputs[several] - 1)
    return Seen((first - requests.times)[counted], itl)


def _shared(rng: np.random.Generator, replicas: int, number: int) -> list[np.ndarray]:
    replica = rng.integers(replicas, size=number)
    return [np.flatnonzero(replica == one) for one in range(replicas)]


def _until_the_end(times: FloatArray) -> list[float]:
    """Times in a list, which takes a tenth of an array's time, and one that never comes."""
    return [*times.tolist(), float("inf")]


def _prefill(law: StepParameters, times: FloatArray, tokens: FloatArray) -> list[float]:
    """When the prompt of each is computed [ms]; they are computed in their order."""
    number, budget = len(times), law.budget or float("inf")
    there, left = _until_the_end(times), tokens.tolist()
    ends: list[float] = []
    now, who = 0.0, 0
    while who < number:
        now = max(now, there[who])
        computed = 0.0
        while computed < budget and there[who] <= now:
            taken = min(left[who], budget - computed)
            computed += taken
            left[who] -= taken
            who += left[who] == 0
        now += law.alpha + law.delta * computed
        ends += [now] * (who - len(ends))
    return ends


def _decode(law: StepParameters, batch: int, requests: Requests) -> tuple[list[float], list[float]]:
    """When each has its first and its last token [ms]; they begin in their order."""
    number, alpha, kappa, ahead = len(requests.times), law.alpha, law.kappa, round(law.ahead)
    there = _until_the_end(requests.times)
    lengths, held = requests.outputs.tolist(), (requests.inputs + law.overhead).tolist()
    first, last = [0.0] * number, [0.0] * number
    joined: deque[tuple[int, int]] = deque()  # the step that makes the first token, and who
    ending: list[tuple[float, int]] = []  # the step after the last token, and who
    now, step, who, running, context = 0.0, 0, 0, 0, 0.0
    while who < number or running:
        if not running:
            now = max(now, there[who])
        while running < batch and there[who] <= now:
            joined.append((step + ahead, who))
            heapq.heappush(ending, (step + ahead + lengths[who], who))
            context += held[who]
            running += 1
            who += 1
        now += alpha + kappa * context
        while joined and joined[0][0] <= step:
            first[joined.popleft()[1]] = now
        context += running
        step += 1
        while ending and ending[0][0] <= step:
            done = heapq.heappop(ending)[1]
            last[done] = now
            running -= 1
            context -= held[done] + lengths[done] + ahead
    return first, last
