"""The table of candidates: what each server needs on each accelerator.

The table is a struct of arrays with one row for each pair of a server and a performance
profile of its model; solvers read the table and return row numbers. See `sizing.md`, section "From
rate to replicas".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.apart import SizedPairs
from inferno_optimizer.sizing.cards import Cards
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.demands import Demands, replicas_needed
from inferno_optimizer.sizing.latencies import Latencies
from inferno_optimizer.sizing.moves import (
    UNPAID_SHARE,
    demands_to_come,
    looks_ahead,
    passing_savings,
    penalty_shares,
)
from inferno_optimizer.sizing.pairs import (
    Pairs,
    accelerators_per_replica,
    build_pairs,
    integers,
    sorted_types,
)
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.sizing.rates import Sizing, size
from inferno_optimizer.system import (
    PAIR,
    Allocation,
    Generation,
    PerformanceProfile,
    RoleProfile,
    System,
    place_of_all,
)

DemandsOf = Callable[[IntArray, IntArray], Demands]
"""The demands of some rows, from the position of each among the queues that are sized."""

HARDLY_ANY = 1e-12
"""The rate at which an idle server is sized, for its first request [requests/ms]."""

NO_PAIR = -1

MAX_REPLICAS = 2**31 - 1
"""Most replicas of a plan: more can only follow from a wrong load, and do not fit into 32 bits."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The table: arrays of shape (rows,), sorted by case, then by name of accelerator.

    `usable` rows meet all targets with `replicas` replicas. `unit_cost` is the cost of one
    replica [cents/hour]; `value` is what solvers minimize: the change of cost, plus a penalty
    for another accelerator. `stays` tells rows that leave a server as it is. `needs` are the
    cards of one replica, by row. The last rows of a case are those with prefill and decode apart:
    `pair` is their position in `apart`, and -1 elsewhere. A replica of such a row is the smallest
    group of both roles with their ratio, and its accelerator in `pairs` is the number of both.
    """

    catalogue: Catalogue
    cases: tuple[Case, ...]
    types: tuple[str, ...]
    pairs: Pairs
    sizing: Sizing
    usable: npt.NDArray[np.bool_]
    replicas: IntArray
    unit_cost: FloatArray
    value: FloatArray
    stays: npt.NDArray[np.bool_]
    needs: Cards
    pair: IntArray
    apart: SizedPairs | None = None

    @property
    def system(self) -> System:
        """The system that the cases are of."""
        return self.catalogue.system

    @property
    def cost(self) -> FloatArray:
        """Cost of all replicas [cents/hour]."""
        return self.unit_cost * self.replicas

    @property
    def cards(self) -> IntArray:
        """Number of cards of all replicas, of whatever type."""
        return self.pairs.cards * self.replicas

    def fitting(self, capacity: IntArray) -> IntArray:
        """Replicas of each row that fit into the capacity, shape (types,), if alone."""
        return self.needs.room(capacity, len(self.usable))

    def running(self) -> IntArray:
        """Replicas that run of the case of each row, if they run on its accelerator.

        For roles apart, the groups that both roles make up.
        """
        current = [case.server.current for case in self.cases]
        now = integers(a.replicas for a in current)[self.pairs.case]
        for row in np.flatnonzero(self.pair != NO_PAIR).tolist():
            now[row] = self.replicas_of(row, current[self.pairs.case[row]])
        return now

    def replicas_of(self, row: int, allocation: Allocation) -> int:
        """Replicas of a row that an allocation on its accelerator has."""
        if self.apart is None or self.pair[row] == NO_PAIR:
            return allocation.replicas
        return self.apart.groups(int(self.pair[row]), allocation.roles)

    def cards_of(self, row: int) -> list[tuple[int, int]]:
        """Type and number of the cards of one replica of a row."""
        needs = self.needs
        of_row = slice(*needs.owner.searchsorted((row, row + 1)).tolist())
        return list(zip(needs.type[of_row].tolist(), needs.count[of_row].tolist(), strict=True))

    def roles(self, row: int, replicas: int) -> tuple[Allocation, ...]:
        """The prefill and the decode replicas of a row that has them apart; else nothing."""
        if self.apart is None or self.pair[row] == NO_PAIR:
            return ()
        pair = int(self.pair[row])
        counts, costs = self.apart.counts(pair, replicas), self.apart.costs(pair)
        return tuple(
            Allocation(
                accelerator=profile.accelerator,
                replicas=count,
                max_batch_size=batch,
                cost=cost * count,
                generation=Generation.STEPS,
                role=role,
            )
            for role, (profile, batch), count, cost in zip(
                PAIR, self.profiles(row), counts, costs, strict=True
            )
        )

    def profiles(self, row: int) -> list[tuple[PerformanceProfile | RoleProfile, int]]:
        """The profile of a row, or those of both roles; each with the batch of a replica."""
        if self.apart is None or self.pair[row] == NO_PAIR:
            own = self.system.profiles[int(self.pairs.profile[row])]
            return [(own, int(self.pairs.batch[row]))]
        pair = int(self.pair[row])
        roles = (self.system.roles[i] for i in self.apart.roles_of(pair))
        return list(zip(roles, self.apart.batches(pair), strict=True))

    def case_of(self, row: int) -> Case:
        """The case of a row."""
        return self.cases[int(self.pairs.case[row])]

    def placement(self, row: int) -> str:
        """The accelerator of a row; of both roles, if they are apart."""
        if self.apart is None or self.pair[row] == NO_PAIR:
            return self.system.accelerators[int(self.pairs.accelerator[row])].name
        roles = (self.system.roles[i] for i in self.apart.roles_of(int(self.pair[row])))
        return place_of_all([role.accelerator for role in roles])

    def ranked(self) -> IntArray:
        """Usable rows sorted by case, then value, then unit cost, then name of accelerator.

        Values are compared in single precision, as in the original, so that rounding errors of
        doubles do not decide between equal values.
        """
        rows = np.flatnonzero(self.usable)
        value = self.value[rows].astype(np.float32)
        keys = (rows, self.unit_cost[rows], value, self.pairs.case[rows])
        return rows[np.lexsort(keys)]

    def rows_of(self, case: int) -> IntArray:
        """The rows of one case."""
        first, last = np.searchsorted(self.pairs.case, (case, case + 1))
        return np.arange(first, last)

    def generation(self, row: int) -> Generation:
        """Generation of the performance data of a row."""
        if self.pair[row] != NO_PAIR:
            return Generation.STEPS
        return self.system.profiles[int(self.pairs.profile[row])].parameters.generation

    def latencies(self, rows: IntArray, replicas: IntArray | FloatArray) -> Latencies:
        """Latencies of rows at the given numbers of replicas, which share the demand equally.

        For a row of a mix, `replicas` is the number that would get the same load per replica if
        this row served the whole demand; it may be a fraction.

        An idle server gets the latencies of a single request, without percentiles, and a released
        row gets zeros. 0 replicas count as 1.
        """
        found = Latencies.zeros(len(rows))
        rate = self.pairs.demand[rows] / np.where(replicas > 0, replicas, 1)
        for group in self.pairs.groups:
            members, place = group.among(rows)
            if not members.size:
                continue
            queues, busy = group.replicas.take(place), np.flatnonzero(rate[members] > 0)
            kept = ~self.pairs.released[rows[members]]
            found.itl_ms[members] = np.where(kept, queues.model.idle_itl_ms(), 0.0)
            found.ttft_ms[members] = np.where(kept, queues.model.idle_ttft_ms(), 0.0)
            loaded = queues.take(busy).latencies(rate[members[busy]])
            for column, values in zip(found.columns(), loaded.columns(), strict=True):
                column[members[busy]] = values
        apart = np.flatnonzero((self.pair[rows] != NO_PAIR) & ~self.pairs.released[rows])
        if self.apart is not None and apart.size:
            loaded = self.apart.latencies(
                self.pair[rows[apart]], np.asarray(replicas, dtype=np.float64)[apart]
            )
            for column, values in zip(found.columns(), loaded.columns(), strict=True):
                column[apart] = values
        return found


def candidates_of_pairs(catalogue: Catalogue, cases: Sequence[Case], *, rates: bool) -> Candidates:
    """Size every case on every accelerator with a usable profile of its model."""
    pairs = build_pairs(catalogue, cases, sorted_types(catalogue.system))
    return candidates_of(catalogue, cases, *_sized_with_caches(cases, pairs, rates=rates))


def candidates_of(
    catalogue: Catalogue, cases: Sequence[Case], pairs: Pairs, sizing: Sizing
) -> Candidates:
    """The table of pairs that are sized."""
    system = catalogue.system
    usable, replicas = _replicas(cases, pairs, sizing)
    prices = np.array([a.cost for a in system.accelerators], dtype=np.float64)
    counts = accelerators_per_replica(system)[pairs.profile]
    unit_cost = prices[pairs.accelerator] * counts
    stays = _stays(cases, catalogue, pairs, replicas)
    value = changes_of_cost(cases, catalogue, pairs, stays, unit_cost * replicas)
    here = integers(catalogue.place(c.server.current) for c in cases)
    value += passing_savings(cases, pairs, np.where(usable, sizing.max_rate, 0.0), unit_cost, here)
    every = np.arange(len(pairs.case))
    return Candidates(
        catalogue,
        tuple(cases),
        sorted_types(system),
        pairs,
        sizing,
        usable,
        replicas,
        unit_cost,
        value,
        stays,
        Cards(every, pairs.type, pairs.cards),
        np.full_like(every, NO_PAIR),
    )


def _sized_with_caches(cases: Sequence[Case], pairs: Pairs, *, rates: bool) -> tuple[Pairs, Sizing]:
    """The pairs with the requests that their replicas compute, and what one replica carries.

    More replicas have more prompts to compute while the new ones are cold, so that more may be
    needed: from the fewest on, the least number is found that needs no more [Tarski, Pacific J.
    Math. 5 (1955) 285-309].
    """
    nothing = Sizing(*(np.full(len(pairs.case), fill) for fill in (np.inf, 0.0, 0.0, 0.0)))
    lone = (pairs.demand == 0) & ~pairs.released & (pairs.requests.tokens > 0)
    demands_of = None if rates else partial(_demands_of, cases, pairs)
    sizing = _size_each_once(pairs, (pairs.demand > 0) | lone, nothing, demands_of)
    sizing = _where_first_requests_keep_targets(pairs, len(cases), lone, sizing)
    while pairs.caches.warm.any():
        computed = pairs.caches.computed_tokens(_replicas(cases, pairs, sizing)[1])
        more = (pairs.demand > 0) & (computed > pairs.requests.computed_tokens)
        if not more.any():
            break
        pairs = pairs.computing(np.where(more, computed, pairs.requests.computed_tokens))
        sizing = _size_each_once(pairs, more, sizing, demands_of)
    return pairs, sizing


def _where_first_requests_keep_targets(
    pairs: Pairs, cases: int, lone: npt.NDArray[np.bool_], sizing: Sizing
) -> Sizing:
    """The sizing of idle servers: any rate where the first request would keep the targets.

    Where it would on no accelerator, it is any rate on all of them: an idle server misses nothing.
    """
    keeps = ~lone | (sizing.max_rate > 0)
    somewhere = np.bincount(pairs.case, keeps, cases)[pairs.case] > 0
    rate = np.where(lone & (keeps | ~somewhere), np.inf, sizing.max_rate)
    return replace(sizing, max_rate=rate)


def _size_each_once(
    pairs: Pairs, asked: npt.NDArray[np.bool_], known: Sizing, demands_of: DemandsOf | None
) -> Sizing:
    """Size the pairs that are asked for, equal pairs only once; of the others it is known.

    With `demands_of`, rates need be no higher than tells what these demands need.
    """
    sizing = Sizing(*(column.copy() for column in known.columns()))
    for group in pairs.groups:
        busy = np.flatnonzero(asked[group.rows])
        if not busy.size:
            continue
        queues = group.replicas.take(busy)
        rows, where = queues.distinct()
        demands = demands_of(group.rows[busy], where) if demands_of else None
        found = size(queues.take(rows), demands).take(where)
        for column, values in zip(sizing.columns(), found.columns(), strict=True):
            column[group.rows[busy]] = values
    return sizing


def _demands_of(cases: Sequence[Case], pairs: Pairs, rows: IntArray, queues: IntArray) -> Demands:
    """The demands of rows that are sized as some of the queues: those of now, and those to come.

    What a move saves at the loads to come follows from the replicas that these need.
    """
    demand, case = pairs.demand[rows], pairs.case[rows]
    ahead = np.flatnonzero(looks_ahead(cases)[case] & (demand > 0))
    to_come = demands_to_come(cases, case[ahead], demand[ahead])
    now = np.maximum(demand, HARDLY_ANY)
    where = np.append(queues, np.tile(queues[ahead], len(to_come)))
    return Demands(np.append(now, to_come.ravel()), where)


def _replicas(
    cases: Sequence[Case], pairs: Pairs, sizing: Sizing
) -> tuple[npt.NDArray[np.bool_], IntArray]:
    """Which rows meet their targets, and the number of replicas that this needs."""
    attainable = sizing.max_rate > 0
    needed = replicas_needed(pairs.demand, np.where(attainable, sizing.max_rate, 1.0))
    usable = attainable & (needed <= MAX_REPLICAS)
    fewest = integers(c.server.min_replicas for c in cases)[pairs.case]
    needed = np.where(usable, needed, 0.0).astype(np.int64)
    return usable, np.where(usable, np.maximum(needed, fewest), 0)


def _stays(
    cases: Sequence[Case], catalogue: Catalogue, pairs: Pairs, replicas: IntArray
) -> npt.NDArray[np.bool_]:
    """Rows with the accelerator and the replicas that a server has now, and no others."""
    current = [c.server.current for c in cases]
    mixed = np.array([bool(a.mix) for a in current], dtype=np.bool_)[pairs.case]
    equal = integers(a.replicas for a in current)[pairs.case] == replicas
    unchanged: npt.NDArray[np.bool_] = _same_accelerator(cases, catalogue, pairs) & equal & ~mixed
    return unchanged


def _same_accelerator(
    cases: Sequence[Case], catalogue: Catalogue, pairs: Pairs
) -> npt.NDArray[np.bool_]:
    """Rows with the accelerator that a server has now; released rows where it has none."""
    current = [c.server.current for c in cases]
    accelerator = integers(map(catalogue.place, current))
    nothing = np.array([not a.accelerator for a in current], dtype=np.bool_)
    return np.where(
        pairs.released, nothing[pairs.case], accelerator[pairs.case] == pairs.accelerator
    )


def changes_of_cost(
    cases: Sequence[Case],
    catalogue: Catalogue,
    pairs: Pairs,
    stays: npt.NDArray[np.bool_],
    cost: FloatArray,
) -> FloatArray:
    """Change of cost plus the penalty for another accelerator; 0 if nothing changes.

    For a server on several accelerators, the penalty counts each part that stops or starts. For
    one that is moving or has just moved, other accelerators than its destination cost more.
    """
    current = [c.server.current for c in cases]
    old_cost = np.array([a.cost for a in current], dtype=np.float64)[pairs.case]
    same_accelerator = _same_accelerator(cases, catalogue, pairs)
    shares = penalty_shares(cases)
    penalty = np.where(same_accelerator, 0.0, shares[pairs.case] * (old_cost + cost))
    for case in np.flatnonzero([bool(a.mix) for a in current]):
        rows = np.flatnonzero(pairs.case == case)
        kept = {catalogue.accelerators.get(a.accelerator, -1): a.cost for a in current[case].mix}
        for row, accelerator_of in zip(rows, pairs.accelerator[rows].tolist(), strict=True):
            started = 0.0 if accelerator_of in kept else cost[row]
            stopped = old_cost[row] - kept.get(accelerator_of, 0.0)
            penalty[row] = shares[case] * (stopped + started)
    destination = integers(catalogue.numbers.get(c.server.destination, -1) for c in cases)
    unpaid = (destination >= 0)[pairs.case]
    elsewhere = destination[pairs.case] != pairs.accelerator
    moving = np.where(elsewhere, UNPAID_SHARE * (old_cost + cost), 0.0)
    penalty = np.where(unpaid, moving, penalty)
    return np.where(stays, 0.0, penalty + cost - old_cost)
