"""Are plans of this checkout better than those of another? On fleets that nobody has chosen.

The seeds are drawn when it runs. A plan is better that serves more of the first class that differs
by more than the tolerance, or else costs less by more than a thousandth: what less important
classes get after such a difference is chance. Of several runs the median counts.
"""

import argparse
import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle, islice, product
from pathlib import Path
from random import SystemRandom
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import SaturationPolicy
from inferno_optimizer.wire.codec import decode_system
from tests.generate import JsonObject
from tests.reference.shown import ROOT
from tests.solvers.fleets import KINDS
from tests.solvers.levels import TOLERANCE

POLICIES = ("PriorityExhaustive", "Hold", "None")
DEMAND = (1.3, 2.6)
"""How often the servers of a fleet want the cards, evenly drawn."""

CHEAPER = 1e-3
"""Relative difference of costs that counts."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Share of the load of each class that is served, the most important first, and the cost."""

    served: Sequence[float]
    cost: float

    @classmethod
    def between(cls, plans: Sequence["Plan"]) -> "Plan":
        """The median of each number."""
        served = zip(*(plan.served for plan in plans), strict=True)
        return cls([median(shares) for shares in served], median(plan.cost for plan in plans))


def main() -> None:
    """Compare, and print a line for each fleet as it is measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.solvers.judge", description=__doc__)
    parser.add_argument("before", type=Path, help="the other checkout, with its .venv")
    parser.add_argument("--fleets", type=int, default=30)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--policies", nargs="+", default=POLICIES, choices=POLICIES)
    arguments = parser.parse_args()
    random, verdicts = SystemRandom(), Counter[str]()
    for policy, kind in islice(cycle(product(arguments.policies, KINDS)), arguments.fleets):
        seed, demand = random.randrange(10**6), round(random.uniform(*DEMAND), 2)
        document = KINDS[kind](arguments.servers, seed, demand)
        if policy == "Hold":
            _let_run(document, seed)
        before, after = _plans(document, arguments, policy)
        verdict = compare(before, after)
        verdicts[verdict] += 1
        name = f"{kind}-{arguments.servers}-{demand} seed {seed} {policy}"
        print(f"{name:42} {_shown(before)} -> {_shown(after)}  {verdict}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))


def compare(before: Plan, after: Plan) -> str:
    """Return whether a plan is better, worse, or equal."""
    for old, new in zip(before.served, after.served, strict=True):
        if abs(new - old) > TOLERANCE:
            return "better" if new > old else "worse"
    if abs(after.cost - before.cost) <= CHEAPER * before.cost:
        return "equal"
    return "better" if after.cost < before.cost else "worse"


def _let_run(document: JsonObject, seed: int) -> None:
    """Let each server have what a greedy plan gave it for another load."""
    random, system = np.random.default_rng((seed, 5)), decode_system(document)
    servers = []
    for server in system.servers:
        load = server.current.load
        rate = load.arrival_rate * float(random.uniform(0.3, 1.2))
        other = replace(server.current, load=replace(load, arrival_rate=rate))
        servers.append(replace(server, current=other))
    policy = SaturationPolicy.PRIORITY_EXHAUSTIVE
    options = replace(system.options, saturation_policy=policy)
    runs = optimize(replace(system, servers=tuple(servers), options=options)).allocations
    for item in document["system"]["serverData"]["servers"]:
        if (given := runs.get(item["name"])) and given.replicas:
            item["currentAlloc"] |= {
                "accelerator": given.accelerator,
                "numReplicas": given.replicas,
                "maxBatch": given.max_batch_size,
                "cost": given.cost,
            }


def _plans(document: JsonObject, arguments: argparse.Namespace, policy: str) -> list[Plan]:
    """The plans of the other checkout and of this one, which run side by side."""
    checkouts = arguments.before.resolve(), ROOT
    with TemporaryDirectory() as folder, ThreadPoolExecutor(len(checkouts)) as pool:
        file = Path(folder) / "system.json"
        file.write_text(json.dumps(document))
        call = [str(ROOT / "tests/solvers/planned.py"), str(file), policy, f"{arguments.seconds}"]
        runs = [
            list(pool.map(lambda checkout: _plan(checkout, call), checkouts))
            for _ in range(arguments.runs)
        ]
    return [Plan.between(plans) for plans in zip(*runs, strict=True)]


def _plan(checkout: Path, call: Sequence[str]) -> Plan:
    program = [str(checkout / ".venv/bin/python"), *call]
    printed = subprocess.run(program, cwd=checkout, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(printed.stdout)
    return Plan(found["served"], found["cost"])


def _shown(plan: Plan) -> str:
    served = " / ".join(f"{100 * share:.2f}" for share in plan.served)
    return f"{served} at {plan.cost:.0f}"


if __name__ == "__main__":
    main()
