"""Measurements of the optimizer in this process."""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from inferno_optimizer.errors import UnsupportedError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.system import Options, System
from inferno_optimizer.wire.codec import decode_system, encode_solution
from tests.bench import fleets
from tests.bench.errors import NotSupportedError
from tests.generate import JsonObject, fleet

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
NOTHING_SPENT = 1.0
"""Stands in for a cost of 0 in a ratio."""


def request(  # noqa: PLR0913 - the dimensions that are measured
    *,
    servers: int,
    accelerators: int = 20,
    demand: float = 1.0,
    solver: str = "greedy",
    generation: int = 1,
    batch: int = 0,
    queue: int = 10,
    percentile: float = 0.0,
    different: bool = False,
    time_limit: float = 30.0,
) -> Numbers:
    """A whole request: written as JSON, read, solved, its answer written as JSON."""
    document = fleet(servers, accelerators, SEED, demand)
    if different:
        document = fleets.with_different_lengths(document)
    document = fleets.of_generation(document, generation)
    document = fleets.with_percentiles(document, percentile)
    document = fleets.with_queue(fleets.with_batch(document, batch), queue)
    return timed_request(document, solver, time_limit)


def timed_request(document: JsonObject, solver: str, time_limit: float = 30.0) -> Numbers:
    """The same for a document; the median of several."""
    document["system"]["optimizerData"] = {"optimizer": SOLVERS[solver]}
    solutions: list[Solution] = []

    def whole() -> None:
        system = decode_system(json.loads(json.dumps(document)))
        options = replace(system.options, time_limit=time_limit)
        solutions.append(optimize(replace(system, options=options)))
        json.dumps(encode_solution(solutions[-1]))

    try:
        seconds = median_seconds(whole)
    except UnsupportedError as error:
        raise NotSupportedError(str(error)) from error
    certificate = solutions[-1].certificate
    gap = {} if certificate.gap is None else {"gap": certificate.gap}
    return {"seconds": seconds, **gap, "mib": peak_mib(), "served": _served_share(solutions[-1])}


def fleet_figures(*, servers: int, accelerators: int = 20, demand: float) -> Numbers:
    """How tight a fleet is, and what the greedy and the exact solver make of it."""
    document = fleet(servers, accelerators, SEED, demand)
    system = decode_system(document)
    table = fleets.table_of(system)
    greedy, exact = optimize(system), optimize(replace(system, options=Options(milp=True)))
    return {
        "cheapest": fleets.cheapest_share(table),
        "tightness": fleets.tightness(table),
        "greedy_served": _served_share(greedy),
        "greedy_load": _load_share(system, greedy),
        "milp_served": _served_share(exact),
        "milp_load": _load_share(system, exact),
        "seconds": exact.certificate.seconds,
        "gap": exact.certificate.gap or 0.0,
    }


def savings(*, servers: int, fleets_: int, demand: float) -> Numbers:
    """The exact solver beside the greedy one: mean saving where both serve the same."""
    saved, more = [], 0
    for seed in range(fleets_):
        system = decode_system(fleet(servers, 8, seed, demand))
        greedy, exact = optimize(system), optimize(replace(system, options=Options(milp=True)))
        if _entire(greedy) == _entire(exact):
            saved.append(1 - exact.cost / (greedy.cost or NOTHING_SPENT))
        else:
            more += 1
    return {
        "same": len(saved),
        "different": more,
        "mean": statistics.fmean(saved) if saved else 0.0,
        "least": min(saved, default=0.0),
        "most": max(saved, default=0.0),
    }


def _entire(solution: Solution) -> set[str]:
    return {d.server for d in solution.decisions if d.reason is Reason.ALLOCATED}


def _served_share(solution: Solution) -> float:
    return len(_entire(solution)) / len(solution.decisions)


def _load_share(system: System, solution: Solution) -> float:
    loads = {server.name: server.load.arrival_rate for server in system.servers}
    return sum(loads[name] for name in _entire(solution)) / sum(loads.values())


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
