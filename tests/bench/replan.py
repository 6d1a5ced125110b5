"""A new plan after small changes of the loads, beside one with much more time."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import Allocation, Server, System
from inferno_optimizer.wire.codec import decode_system
from tests.bench.library import SEED, SOLVERS, Numbers
from tests.generate import fleet

CHANGED = 0.1
CHANGE = 0.01
"""Share of the servers whose load changes, and by how much, up or down."""

FIRST_S = 28.0
"""Time limit of the first plan [s]."""

LONGER = 10.0
"""How many times its limit the plan has that shows how few moves there can be."""


def replan(*, servers: int, time_limit: float) -> Numbers:
    """Time and moves of a second plan, and how many times the fewest moves known these are."""
    document = fleet(servers, 20, SEED, 2.0)
    document["system"]["optimizerData"] = {"optimizer": SOLVERS["milp"]}
    system = decode_system(document)
    first = optimize(_within(system, FIRST_S))
    changed = replace(system, servers=_changed(system.servers, first))
    start = time.perf_counter()
    second = optimize(_within(changed, time_limit))
    seconds = time.perf_counter() - start
    moves = _moves(changed, second)
    fewest = min(moves, _moves(changed, optimize(_within(changed, LONGER * time_limit))))
    return {"seconds": seconds, "moves": moves, "of_fewest": moves / fewest}


def _within(system: System, time_limit: float) -> System:
    return replace(system, options=replace(system.options, time_limit=time_limit))


def _changed(servers: Sequence[Server], plan: Solution) -> tuple[Server, ...]:
    """The servers as the plan has them, some with another load."""
    random = np.random.default_rng(SEED)
    decided = {decision.server: decision.allocation for decision in plan.decisions}
    changed = []
    for server in servers:
        factor = 1.0 + random.choice((-CHANGE, CHANGE)) * (random.random() < CHANGED)
        load = replace(server.load, arrival_rate=server.load.arrival_rate * factor)
        now = decided[server.name] or Allocation()
        changed.append(replace(server, current=replace(now, load=load)))
    return tuple(changed)


def _moves(system: System, plan: Solution) -> int:
    """How many servers get another accelerator or number of replicas."""
    now = {server.name: server.current for server in system.servers}
    pairs = [(d.allocation or Allocation(), now[d.server]) for d in plan.decisions]
    return sum((a.accelerator, a.replicas) != (b.accelerator, b.replicas) for a, b in pairs)
