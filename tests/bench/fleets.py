"""The fleets of `tests.generate`, varied along one dimension each; and how tight they are."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_array, hstack

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.system import System
from tests.generate import AT_TOKENS, JsonObject

SHORTEST, LONGEST = 100, 1100
"""Tokens of a request, where no two servers have requests of the same length."""


def with_batch(document: JsonObject, batch: int) -> JsonObject:
    """Every server has a largest batch of its own."""
    return _each_server(document, lambda _, server: server.update(maxBatchSize=batch))


def with_queue(document: JsonObject, queue: int) -> JsonObject:
    """Every server lets so many requests wait; generation 3 alone heeds it."""
    return _each_server(document, lambda _, server: server.update(maxQueueSize=queue))


def with_different_lengths(document: JsonObject) -> JsonObject:
    """No two servers can be sized together."""
    span = LONGEST - SHORTEST

    def lengthen(place: int, server: JsonObject) -> None:
        server["currentAlloc"]["load"]["avgLength"] = SHORTEST + place * 7919 % span

    return _each_server(document, lengthen)


def with_percentiles(document: JsonObject, percentile: float) -> JsonObject:
    """The targets of the wait are meant of a percentile; 0: the mean, as in the original."""
    changed = deepcopy(document)
    for service_class in changed["system"]["serviceClassData"]["serviceClasses"]:
        for target in service_class["modelTargets"]:
            target["slo-ttw-percentile"] = percentile
    return changed


def of_generation(document: JsonObject, generation: int) -> JsonObject:
    """The same fleet, with performance data of another generation made from the first."""
    if generation == 1:
        return document
    changed = deepcopy(document)
    for profile in changed["system"]["modelData"]["models"]:
        profile.update(_PARAMETERS[generation](profile.pop("alpha"), profile.pop("beta")))
    for service_class in changed["system"]["serviceClassData"]["serviceClasses"]:
        for target in service_class["modelTargets"]:
            target["slo-ttft"] = target.pop("slo-ttw")
    return _each_server(changed, _split_tokens)


def _split_tokens(_: int, server: JsonObject) -> None:
    load = server["currentAlloc"]["load"]
    tokens = load.pop("avgLength")
    load.update(avgInTokens=tokens // 2, avgOutTokens=tokens - tokens // 2)
    server["maxQueueSize"] = 10


_PARAMETERS: Mapping[int, Callable[[float, float], JsonObject]] = MappingProxyType(
    {
        2: lambda alpha, beta: {
            "decodeParms": {"alpha": alpha, "beta": beta},
            "prefillParms": {"gamma": alpha, "delta": 0.001 * alpha},
        },
        3: lambda alpha, beta: {
            "perfParms": {"alpha": alpha, "beta": beta / 10, "gamma": beta / AT_TOKENS}
        },
        4: lambda alpha, beta: {
            "stepParms": {
                "alpha": alpha,
                "kappa": beta / AT_TOKENS,
                "delta": beta / 10,
                "u": beta / AT_TOKENS,
                "ahead": 1,
                "budget": 2048,
            }
        },
    }
)


def _each_server(document: JsonObject, change: Callable[[int, JsonObject], Any]) -> JsonObject:
    changed = deepcopy(document)
    for place, server in enumerate(changed["system"]["serverData"]["servers"]):
        change(place, server)
    return changed


def table_of(system: System) -> Candidates:
    """The candidate table of a system."""
    catalogue = Catalogue(system.by_name())
    outcomes = [catalogue.case(server) for server in catalogue.system.servers]
    return build_candidates(catalogue, [o for o in outcomes if isinstance(o, Case)])


def cheapest_share(table: Candidates) -> float:
    """Cards that all servers take where each has its cheapest choice, over all cards."""
    capacity = _capacity(table)
    order = np.lexsort((table.cost, table.pairs.case))
    order = order[table.usable[order]]
    _, first = np.unique(table.pairs.case[order], return_index=True)
    return float(table.cards[order[first]].sum() / capacity.sum())


def tightness(table: Candidates) -> float:
    """By how much all capacity must grow before every server fits; shares are allowed.

    The optimum of a linear program: above 1 no plan serves everybody.
    """
    rows, capacity = np.flatnonzero(table.usable), _capacity(table)
    cards = _matrix(table.pairs.type[rows], table.cards[rows], len(capacity))
    places = np.unique(table.pairs.case[rows], return_inverse=True)[1]
    ones = _matrix(places, np.ones(len(rows)), int(places.max()) + 1)
    found = milp(
        np.append(np.zeros(len(rows)), 1.0),
        constraints=[
            LinearConstraint(hstack([cards, csr_array(-capacity[:, None])]), -np.inf, 0.0),
            LinearConstraint(hstack([ones, csr_array((ones.shape[0], 1))]), 1.0, 1.0),
        ],
    )
    if found.fun is None:
        raise RuntimeError(found.message)
    return float(found.fun)


def _matrix(places: IntArray, values: FloatArray | IntArray, height: int) -> csr_array:
    columns = np.arange(len(places))
    return csr_array((values.astype(np.float64), (places, columns)), shape=(height, len(places)))


def _capacity(table: Candidates) -> FloatArray:
    cards = table.system.capacity
    return np.array([cards.get(name, 0) for name in table.types], dtype=np.float64)
