"""The programs of the comparison: tight fleets, by name."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import numpy as np

from inferno_optimizer.capacity import cards_to_hand_out
from inferno_optimizer.decisions import size_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solvers.loads import weight_of
from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import decode_system
from tests.generate import JsonObject, fleet
from tests.solvers.levels import Rows
from tests.solvers.markets import drawn, heavy_tailed, mixed

ACCELERATORS = 20
NAME = re.compile(r"(?P<kind>[bohmrg])-(?P<servers>\d+)-(?P<demand>[\d.]+)")

LARGEST = (5.0, 60.0)
"""How many times its load a very large server has, evenly on a logarithmic scale."""


def save(name: str, seed: int, path: Path) -> int:
    """Write the program of a fleet to a file; returns the number of its rows.

    Parameters
    ----------
    name
        `KIND-SERVERS-DEMAND`: `b`, a fleet of the benchmarks; `o`, the same with half of the
        servers very large; `h`, loads with a heavy tail, and few types scarce; `m`, five classes,
        and most cards of a few types; `r`, all of that drawn by the seed; `g`, a few giants, and
        any number of cards of each type.
    seed
        Of the random choices.
    path
        The file.
    """
    found = NAME.fullmatch(name)
    if found is None:
        raise ValueError(
            f"{name}: not of the form KIND-SERVERS-DEMAND with a kind of b, o, h, m, r, g"
        )
    document = KINDS[found["kind"]](int(found["servers"]), seed, float(found["demand"]))
    program = _program(decode_system(document))
    np.savez(path, **{name: getattr(program, name) for name in Rows.__slots__})
    return len(program.case)


def _plain(servers: int, seed: int, demand: float) -> JsonObject:
    return fleet(servers, ACCELERATORS, seed, demand)


def _with_large_servers(servers: int, seed: int, demand: float) -> JsonObject:
    document, random = _plain(servers, seed, demand), np.random.default_rng(seed)
    for server in document["system"]["serverData"]["servers"]:
        if random.random() < 0.5:
            factor = math.exp(random.uniform(math.log(LARGEST[0]), math.log(LARGEST[1])))
            server["currentAlloc"]["load"]["arrivalRate"] *= factor
    return document


def _with_giants(servers: int, seed: int, demand: float) -> JsonObject:
    document, random = _plain(servers, seed, demand), np.random.default_rng((seed, 4))
    for server in document["system"]["serverData"]["servers"]:
        if random.random() < 0.06:
            server["currentAlloc"]["load"]["arrivalRate"] *= float(random.uniform(10, 50))
    for item in document["system"]["capacityData"]["count"]:
        item["count"] = max(1, int(item["count"] * math.exp(1.2 * random.standard_normal())))
    return document


KINDS: MappingProxyType[str, Callable[[int, int, float], JsonObject]] = MappingProxyType(
    {
        "b": _plain,
        "o": _with_large_servers,
        "h": heavy_tailed,
        "m": mixed,
        "r": drawn,
        "g": _with_giants,
    }
)


def _program(system: System) -> Rows:
    """Return the rows that may be chosen."""
    catalogue = Catalogue(system.by_name())
    candidates, undecided = size_servers(catalogue, catalogue.system.servers)
    cards = cards_to_hand_out(catalogue, undecided)
    capacity = np.array([cards[name] for name in candidates.types], dtype=np.int64)
    room, pairs = capacity[candidates.pairs.type], candidates.pairs
    rows = np.flatnonzero(candidates.usable & (candidates.cards <= room))
    case = pairs.case[rows]
    priority = np.array([case.priority for case in candidates.cases], dtype=np.int64)[case]
    weight = np.array([weight_of(case) for case in candidates.cases], dtype=np.float64)[case]
    return Rows(
        case=case,
        type=pairs.type[rows],
        cards=candidates.cards[rows].astype(np.float64),
        value=candidates.value[rows],
        level=np.unique(priority, return_inverse=True)[1],
        weight=weight,
        capacity=capacity.astype(np.float64),
    )
