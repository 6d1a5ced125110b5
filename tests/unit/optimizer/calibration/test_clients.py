"""What clients see is what a simulation of their requests, one by one, gives."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from inferno_optimizer.calibration.clients import client_factors

ALPHA, BETA, GAMMA, DELTA = LINES = (8.0, 0.3, 12.0, 0.001)
INPUTS = 400
ANSWERS = 4000


@dataclass
class Request:
    """When it was asked for and got its first token [ms], and its output tokens."""

    asked: float
    first: float
    length: int
    made: int = 1


@dataclass
class Server:
    """Prefills go first; a request that comes when a step has begun waits for that step."""

    clients: int
    outputs: int
    now: float = 0.0
    decoding: list[Request] = field(default_factory=list)
    answers: list[tuple[float, float, int]] = field(default_factory=list)
    """TTFT, time for the other tokens [ms], and their number."""

    def run(self) -> None:
        self.chance = np.random.default_rng(self.clients)
        for _ in range(self.clients):
            self.prefill(0.0)
        while len(self.answers) < ANSWERS:
            asked: list[float] = []
            while not asked:
                asked = self.decode()
            if self.decoding:
                asked += self.decode()
            for time in asked:
                self.prefill(time)

    def decode(self) -> list[float]:
        """A step; return when the requests come that follow those that it ends."""
        self.now += ALPHA + BETA * len(self.decoding)
        for request in self.decoding:
            request.made += 1
        done = [r for r in self.decoding if r.made >= r.length]
        self.decoding = [r for r in self.decoding if r.made < r.length]
        self.answers += [(r.first - r.asked, self.now - r.first, r.length - 1) for r in done]
        return [self.now] * len(done)

    def prefill(self, asked: float) -> None:
        self.now += GAMMA + DELTA * INPUTS * (len(self.decoding) + 1)
        length = int(self.chance.integers(self.outputs // 2, 3 * self.outputs // 2 + 1))
        self.decoding.append(Request(asked, self.now, length))


@pytest.mark.parametrize("outputs", [20, 120])
@pytest.mark.parametrize("clients", [1, 2, 5, 16, 64])
def test_means_are_those_of_a_simulation(clients: int, outputs: int) -> None:
    server = Server(clients, outputs)
    server.run()
    firsts, others, tokens = np.array(server.answers[5 * clients :]).T

    requests = (np.array([float(value)]) for value in (clients, INPUTS, outputs))
    itl, ttft = (float(factors[0] @ np.array(LINES)) for factors in client_factors(*requests))

    assert itl == pytest.approx(others.sum() / tokens.sum(), rel=0.01)
    assert ttft == pytest.approx(firsts.mean(), rel=0.03)
