"""The programs of the comparison: tight fleets, by name."""

import math
import re
from pathlib import Path

import numpy as np

from inferno_optimizer.capacity import cards_to_hand_out
from inferno_optimizer.decisions import size_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solvers.exact.program import Program
from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet
from tests.solvers.levels import Rows

ACCELERATORS = 20
NAME = re.compile(r"(?P<kind>[bo])-(?P<servers>\d+)-(?P<demand>[\d.]+)")

LARGEST = (5.0, 60.0)
"""How many times its load a very large server has, evenly on a logarithmic scale."""


def save(name: str, seed: int, path: Path) -> int:
    """Write the program of a fleet to a file; returns the number of its rows.

    Parameters
    ----------
    name
        `b-SERVERS-DEMAND`, a fleet of the benchmarks; `o-SERVERS-DEMAND`, the same with half of
        the servers very large.
    seed
        Of the random choices.
    path
        The file.
    """
    found = NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name}: not of the form b-SERVERS-DEMAND or o-SERVERS-DEMAND")
    servers, demand = int(found["servers"]), float(found["demand"])
    document = fleet(servers, ACCELERATORS, seed, demand)
    if found["kind"] == "o":
        random = np.random.default_rng(seed)
        for server in document["system"]["serverData"]["servers"]:
            if random.random() < 0.5:
                factor = math.exp(random.uniform(math.log(LARGEST[0]), math.log(LARGEST[1])))
                server["currentAlloc"]["load"]["arrivalRate"] *= factor
    program = _program(decode_system(document))
    names = [*Rows.__slots__, "stays"]
    np.savez(path, **{name: getattr(program, name) for name in names})
    return len(program.case)


def _program(system: System) -> Program:
    """Return the rows that may be chosen, without those that another one beats."""
    catalogue = Catalogue(system.by_name())
    candidates, undecided = size_servers(catalogue, catalogue.system.servers)
    cards = cards_to_hand_out(catalogue, undecided)
    capacity = np.array([cards[name] for name in candidates.types], dtype=np.int64)
    room = capacity[candidates.pairs.type]
    rows = np.flatnonzero(candidates.usable & (candidates.cards <= room))
    whole = Program.of(candidates, rows, capacity)
    return whole.take(whole.undominated())
