"""Steps that mix prefill and decode, one by one: the judge of generation 4 at long prompts."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.system import StepParameters
from tests.unit.optimizer.apart_simulation import Requests, Seen


@dataclass
class Served:
    """A request in the batch: steps before its prompt may be computed, and what is left of it."""

    came: float
    inputs: float
    outputs: float
    ahead: int
    prompt: float
    made: int = 0
    first: float = 0.0
    last: float = 0.0


def serve(law: StepParameters, batch: int, requests: Requests) -> Seen:
    """What each request sees, but for the first tenth.

    A step makes a token for each request that decodes, and computes prompts with what is left of
    the budget, first come, first served. A request that has ended stays for the steps ahead.
    """
    rows = zip(
        *(a.tolist() for a in (requests.times, requests.inputs, requests.outputs)), strict=True
    )
    waiting, running = deque(rows), list[Served]()
    ended: list[Served] = []
    now = 0.0
    while waiting or running:
        if all(one.made == one.outputs for one in running) and waiting:
            now = max(now, waiting[0][0])
        while waiting and len(running) < batch and waiting[0][0] <= now:
            came, inputs, outputs = waiting.popleft()
            running.append(Served(came, inputs, outputs, int(law.ahead), prompt=inputs))
        now += _step(law, running)
        for one in running:
            if one.made and not one.first:
                one.first = now
            if one.made == one.outputs and not one.last:
                one.last, one.ahead = now, int(law.ahead) + 1
                ended.append(one)
        running = [one for one in running if not one.last or one.ahead > 0]
    counted = ended[len(ended) // 10 :]
    ttft = np.array([one.first - one.came for one in counted])
    itl = np.array([(one.last - one.first) / (one.outputs - 1) for one in counted])
    return Seen(ttft, itl)


def _step(law: StepParameters, running: Sequence[Served]) -> float:
    """Do a step, and return how long it takes [ms]."""
    decoding = [one for one in running if 0 < one.made < one.outputs]
    cached = sum(one.inputs + one.made + law.overhead for one in decoding)
    left = law.budget - len(decoding)
    computed = 0.0
    for one in running:
        if one.ahead == 0 and one.prompt > 0 and left > 0:
            taken = min(left, one.prompt)
            one.prompt -= taken
            left, computed = left - taken, computed + taken
            one.made = int(one.prompt == 0)
        one.ahead = max(one.ahead - 1, 0)
    for one in decoding:
        one.made += 1
    extra = law.u * cached if computed else 0.0
    return law.alpha + law.kappa * cached + extra + law.delta * computed
