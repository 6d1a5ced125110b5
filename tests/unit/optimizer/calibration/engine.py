"""An engine that works step by step, and the windows that it would be seen to have.

It is written without the formulas of the fit: a clock, requests that arrive at random, steps in
which every running request gets a token, and prefills for which all running requests wait.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from inferno_optimizer.calibration.windows import Window, batch_at_poisson_arrivals, lagged

WINDOW_MS = 60_000.0


def repeatable(seed: int) -> Random:
    """Random numbers that are the same in each run."""
    return Random(seed)  # noqa: S311 - a repeatable choice, not a secret


@dataclass
class Counts:
    """What an engine counts, as its metrics do."""

    itl_sum: float = 0.0
    itl_count: int = 0
    prefill_sum: float = 0.0
    prefill_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass
class Request:
    """A running request: tokens that are left, and what is counted of its prefill."""

    left: int
    inputs: int
    outputs: int
    prefill_ms: float


@dataclass
class Engine:
    """One replica with known parameters [ms]; requests have a fixed or a random length.

    `counts_at_end` says whether prefills are counted when their request ends, as vLLM does.
    """

    alpha: float
    beta: float
    gamma: float
    delta: float
    inputs: tuple[int, ...] = (512,)
    outputs: tuple[int, ...] = (200,)
    counts_at_end: bool = False
    chance: Random = field(default_factory=lambda: repeatable(1))
    now: float = 0.0
    running: list[Request] = field(default_factory=list)
    since_token: float = 0.0
    next_arrival: float = 0.0

    def run(self, rate: float, until: float) -> Counts:
        """Serve Poisson arrivals at a rate [1/ms] until a time [ms]; what was counted."""
        counts = Counts()
        self.next_arrival = self.now + self.chance.expovariate(rate)
        while self.now < until:
            if self.next_arrival <= self.now:
                self._prefill(counts)
                self.next_arrival += self.chance.expovariate(rate)
            elif self.running:
                self._decode(counts)
            else:
                self.now = min(self.next_arrival, until)
        return counts

    def serve(self, concurrency: int, until: float) -> Counts:
        """Serve so many users, who each send the next request at once; what was counted."""
        counts = Counts()
        while self.now < until:
            if len(self.running) < concurrency:
                self._prefill(counts)
            else:
                self._decode(counts)
        return counts

    def _prefill(self, counts: Counts) -> None:
        """All running requests wait meanwhile."""
        inputs, outputs = self.chance.choice(self.inputs), self.chance.choice(self.outputs)
        time = self.gamma + self.delta * inputs * (len(self.running) + 1)
        self.now += time
        self.since_token += time * len(self.running)
        request = Request(outputs - 1, inputs, outputs, time)
        self.running.append(request)
        if not self.counts_at_end:
            self._count(request, counts)

    def _decode(self, counts: Counts) -> None:
        """Every running request gets a token."""
        batch = len(self.running)
        time = self.alpha + self.beta * batch
        self.now += time
        counts.itl_sum += self.since_token + time * batch
        counts.itl_count += batch
        self.since_token = 0.0
        for request in self.running:
            request.left -= 1
            if self.counts_at_end and not request.left:
                self._count(request, counts)
        self.running = [request for request in self.running if request.left]

    @staticmethod
    def _count(request: Request, counts: Counts) -> None:
        counts.prefill_sum += request.prefill_ms
        counts.prefill_count += 1
        counts.input_tokens += request.inputs
        counts.output_tokens += request.outputs


@dataclass
class MixedEngine(Engine):
    """An engine that computes the prompts that came meanwhile in the next decode step.

    A step takes alpha, beta for each token in the cache, and delta for each prompt token.
    """

    def run(self, rate: float, until: float) -> Counts:
        """Serve Poisson arrivals at a rate [1/ms] until a time [ms]; what was counted."""
        counts = Counts()
        self.next_arrival = self.now + self.chance.expovariate(rate)
        while self.now < until:
            fresh = []
            while self.next_arrival <= self.now:
                inputs, outputs = self.chance.choice(self.inputs), self.chance.choice(self.outputs)
                fresh.append(Request(outputs - 1, inputs, outputs, 0.0))
                self.next_arrival += self.chance.expovariate(rate)
            if fresh or self.running:
                self._step(fresh, counts)
            else:
                self.now = min(self.next_arrival, until)
        return counts

    def _step(self, fresh: list[Request], counts: Counts) -> None:
        """Every running request gets a token, and every fresh one its first."""
        cached = sum(request.inputs + request.outputs - request.left for request in self.running)
        prompts = sum(request.inputs for request in fresh)
        time = self.alpha + self.beta * cached + self.delta * prompts
        self.now += time
        counts.itl_sum += time * len(self.running)
        counts.itl_count += len(self.running)
        for request in fresh:
            request.prefill_ms = time
            self._count(request, counts)
        for request in self.running:
            request.left -= 1
        self.running = [request for request in (*self.running, *fresh) if request.left]


def windows(
    engine: Engine,
    rates: list[float],
    *,
    noise: float = 0.0,
    outliers: float = 0.0,
    seed: int = 2,
    shape: str = "",
    first: int = 0,
) -> list[Window]:
    """One window for each rate [requests/s], with noise and outliers of the measured times."""
    errors = repeatable(seed)
    engine.run(rates[0] / 1000, engine.now + WINDOW_MS)  # warm up
    found = []
    for number, rate in enumerate(rates, first + 1):
        counts = engine.run(rate / 1000, engine.now + WINDOW_MS)
        found.append(_window(counts, number * WINDOW_MS / 1000, shape, errors, noise, outliers))
    if engine.counts_at_end:
        return [found[0], *(lagged(window, before) for before, window in pairwise(found))]
    return found


def _window(
    counts: Counts, end: float, shape: str, errors: Random, noise: float, outliers: float
) -> Window:
    def disturbed(value: float) -> float:
        factor = errors.uniform(1.5, 4.0) if errors.random() < outliers else 1.0
        return value * factor * (1 + errors.gauss(0.0, noise))

    itl = counts.itl_sum / counts.itl_count
    running = counts.itl_count / WINDOW_MS * itl  # Little's law
    return Window(
        end=end,
        itl_ms=disturbed(itl),
        intervals=counts.itl_count,
        batch=batch_at_poisson_arrivals(running),
        prefill_ms=disturbed(counts.prefill_sum / counts.prefill_count),
        prefills=counts.prefill_count,
        input_tokens=counts.input_tokens / counts.prefill_count,
        output_tokens=counts.output_tokens / counts.prefill_count,
        shape=shape,
    )
