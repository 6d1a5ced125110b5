"""Steps of an engine, one by one, for requests that arrive at random: what a short run may show.

The engine decodes first, then computes the prompts that fit into a step, the first come first.
What a step has is decided `ahead` steps before it begins. A place is free a step after the last
token. Nothing here knows of queueing theory.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

BUDGET = 2048
"""Most tokens of a step."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What a step takes [ms]: fixed, for each request, prompt token, and token in the cache.

    `decode` is of steps without a prompt, `mixed` of the others. What a step has is decided so many
    steps `ahead`, from 1 to 2.
    """

    decode: tuple[float, float, float, float]
    mixed: tuple[float, float, float, float]
    ahead: float = 1.0

    def ms(self, requests: int, prompt: int, kept: int) -> float:
        """The time of a step."""
        fixed, each, token, cached = self.mixed if prompt else self.decode
        return fixed + each * requests + token * prompt + cached * kept


@dataclass(slots=True)
class Arrival:
    """A request: when it comes [ms], its tokens, those that are cached, and its times [ms]."""

    came: float
    inputs: int
    outputs: int
    cached: int = 0
    left: int = 0
    """Tokens of its prompt that are not computed yet."""
    first: float = 0.0
    last: float = 0.0


@dataclass(slots=True)
class Engine:
    """Serves requests in the order of their arrival; `kept` tokens are in its cache."""

    times: StepTimes
    places: int
    waiting: deque[Arrival] = field(default_factory=deque)
    prefills: deque[Arrival] = field(default_factory=deque)
    ends: defaultdict[int, list[Arrival]] = field(default_factory=lambda: defaultdict(list))
    freed: Counter[int] = field(default_factory=Counter)
    decoding: int = 0
    kept: int = 0
    number: int = 0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.waiting or self.prefills or self.decoding)

    def step(self, now: float) -> float:
        """Make a step; when it is over [ms]."""
        self.places += self.freed.pop(self.number, 0)
        prompt, whole = self._compute()
        now += self.times.ms(self.decoding + len(whole) + len(self.prefills), prompt, self.kept)
        self.kept += self.decoding + prompt
        self._end(now)
        for request in whole:
            request.first = request.last = now
            self.decoding += 1
            self.ends[self.number + request.outputs - 1].append(request)
        self.number += 1
        return now

    def _compute(self) -> tuple[int, list[Arrival]]:
        """Prompt tokens of a step, and the requests whose prompt is whole then."""
        room = BUDGET - self.decoding
        left, whole = room, []
        while left > 0 and (self.prefills or (self.waiting and self.places)):
            if not self.prefills:
                self._admit(self.waiting.popleft())
            request = self.prefills[0]
            part = min(left, request.left)
            request.left -= part
            left -= part
            if not request.left:
                whole.append(self.prefills.popleft())
        return room - left, whole

    def _admit(self, request: Arrival) -> None:
        request.left = request.inputs - request.cached
        self.places -= 1
        self.kept += request.cached
        self.prefills.append(request)

    def _end(self, now: float) -> None:
        for request in self.ends.pop(self.number, ()):
            request.last = now
            self.decoding -= 1
            self.kept -= request.inputs + request.outputs - 1
            self.freed[self.number + 2] += 1


def serve(times: StepTimes, batch: int, arrivals: Sequence[Arrival]) -> None:
    """Serve requests, of at least two tokens each, and note when their tokens come."""
    engine, coming = Engine(times, batch), deque(arrivals)
    now = began = seen = 0.0  # the step before began; requests until then are in this one
    while coming or not engine.idle:
        if engine.idle:
            now = began = seen = max(now, coming[0].came)
        while coming and coming[0].came <= seen:
            engine.waiting.append(coming.popleft())
        seen, began = now - (times.ahead - 1.0) * (now - began), now
        now = engine.step(now)
