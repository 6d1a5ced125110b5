"""Measurements of the optimizer in this process."""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution
from inferno_optimizer.wire.codec import decode_system, encode_solution
from tests.generate import fleet

Numbers = dict[str, float]

SEED = 1
REPEATS = 5
PATIENCE_S = 3.0
"""No further repeat starts after this time."""

SOLVERS = {
    "unlimited": {"unlimited": True},
    "greedy": {},
    "milp": {"milpSolver": True},
    "mixed": {"milpSolver": True, "heterogeneous": True},
}
MIB = 2**20


def request(
    *,
    servers: int,
    accelerators: int = 20,
    demand: float = 1.0,
    solver: str = "greedy",
    time_limit: float = 30.0,
) -> Numbers:
    """A whole request: written as JSON, read, solved, its answer written as JSON."""
    document = fleet(servers, accelerators, SEED, demand)
    document["system"]["optimizerData"] = {"optimizer": SOLVERS[solver]}
    solutions: list[Solution] = []

    def whole() -> None:
        system = decode_system(json.loads(json.dumps(document)))
        options = replace(system.options, time_limit=time_limit)
        solutions.append(optimize(replace(system, options=options)))
        json.dumps(encode_solution(solutions[-1]))

    seconds = median_seconds(whole)
    gap = solutions[-1].certificate.gap
    return {"seconds": seconds, **({} if gap is None else {"gap": gap}), "mib": peak_mib()}


def median_seconds(run: Callable[[], None]) -> float:
    """Median time of a few runs, or of as many as patience allows."""
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < PATIENCE_S:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def peak_mib() -> float:
    """Most memory that this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (MIB if sys.platform == "darwin" else 1024)
