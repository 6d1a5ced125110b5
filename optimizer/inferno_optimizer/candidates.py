"""System -> one table of candidates: what each server would need on each accelerator.

The table is a struct of arrays with one row for each pair of a server and a performance
profile of its model; solvers read it and answer with row numbers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferno_optimizer.cases import Case, Catalogue
from inferno_optimizer.performance import DecodeModel
from inferno_optimizer.queueing import FloatArray, IntArray
from inferno_optimizer.sizing import Replicas, Sizing, size
from inferno_optimizer.system import System

PENALTY_SHARE = 0.1
"""Share of both costs that moving to another accelerator counts extra."""

MAX_REPLICAS = 2**31 - 1
"""More than this is no plan but a slip in the load; it is also what 32-bit readers hold."""

ROUNDING = 1e-9
"""A quotient this little above an integer is that integer: 3.000000001 replicas are 3."""

MAX_BATCH = 2**16
"""No accelerator serves more requests together; bounds the states that are summed."""

MS_PER_MINUTE = 60_000.0
MS_PER_SECOND = 1_000.0


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of server and profile, as arrays of shape (rows,).

    `case`, `profile`, `accelerator` and `type` are positions in the cases, the system's
    profiles, its accelerators and the sorted types; `cards` are those of one replica;
    `demand` is the rate to provide for [requests/ms], 0 for an idle server.
    """

    case: IntArray
    profile: IntArray
    accelerator: IntArray
    type: IntArray
    cards: IntArray
    demand: FloatArray
    replicas: Replicas


@dataclass(frozen=True, slots=True)
class Candidates:
    """The table: arrays of shape (rows,), sorted by case, then by name of accelerator.

    `usable` rows keep all targets with `replicas` replicas. `unit_cost` is that of one
    replica [cents/hour]; `value` is what solvers minimize: the change of cost, and a penalty
    for another accelerator.
    """

    system: System
    cases: tuple[Case, ...]
    types: tuple[str, ...]
    pairs: Pairs
    sizing: Sizing
    usable: npt.NDArray[np.bool_]
    replicas: IntArray
    unit_cost: FloatArray
    value: FloatArray

    @property
    def cost(self) -> FloatArray:
        """Cost of all replicas [cents/hour]."""
        return self.unit_cost * self.replicas

    @property
    def cards(self) -> IntArray:
        """Cards of all replicas."""
        return self.pairs.cards * self.replicas

    def ranked(self) -> IntArray:
        """Usable rows by case; in a case by value, then price, then name of accelerator."""
        rows = np.flatnonzero(self.usable)
        keys = (rows, self.unit_cost[rows], self.value[rows], self.pairs.case[rows])
        return rows[np.lexsort(keys)]

    def rows_of(self, case: int) -> IntArray:
        """The rows of one case."""
        first, last = np.searchsorted(self.pairs.case, (case, case + 1))
        return np.arange(first, last)

    def latencies(self, rows: IntArray, replicas: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean inter-token latency and delay [ms] of rows at these numbers of replicas.

        Idle servers have the latency of a single request. 0 replicas count as 1.
        """
        rate = self.pairs.demand[rows] / np.maximum(replicas, 1)
        queues = self.pairs.replicas.take(rows)
        itl, delay = queues.model.idle_itl_ms(), np.zeros(len(rows))
        busy = np.flatnonzero(rate > 0)
        busy = busy[np.argsort(-queues.batch[busy], kind="stable")]
        loaded = queues.take(busy)
        averages = loaded.averages(rate[busy])
        itl[busy], delay[busy] = loaded.model.itl_ms(averages), loaded.model.delay_ms(averages)
        return itl, delay


def build_candidates(catalogue: Catalogue, cases: Sequence[Case]) -> Candidates:
    """Size every case on every accelerator that its model has a usable profile for."""
    system = catalogue.system
    types = tuple(sorted({a.type for a in system.accelerators}))
    pairs = _pairs(system, cases, catalogue, types)
    sizing = _size_each_once(pairs)
    usable, replicas = _replicas(cases, pairs, sizing)
    prices = np.array([a.cost for a in system.accelerators], dtype=np.float64)
    counts = _accelerators_per_replica(system)[pairs.profile]
    unit_cost = prices[pairs.accelerator] * counts
    value = _value(cases, catalogue, pairs, replicas, unit_cost * replicas)
    return Candidates(
        system, tuple(cases), types, pairs, sizing, usable, replicas, unit_cost, value
    )


def _pairs(
    system: System, cases: Sequence[Case], catalogue: Catalogue, types: tuple[str, ...]
) -> Pairs:
    case = np.repeat(np.arange(len(cases)), [len(c.profiles) for c in cases])
    profile = np.fromiter((i for c in cases for i in c.profiles), dtype=np.int64, count=len(case))
    accelerator = _integers(catalogue.accelerators.get(p.accelerator, -1) for p in system.profiles)[
        profile
    ]
    multiplicity = _integers(a.multiplicity for a in system.accelerators)[accelerator]
    return Pairs(
        case=case,
        profile=profile,
        accelerator=accelerator,
        type=_integers(types.index(a.type) for a in system.accelerators)[accelerator],
        cards=_accelerators_per_replica(system)[profile] * multiplicity,
        demand=np.array([_demand(c) for c in cases], dtype=np.float64)[case],
        replicas=_replicas_to_size(system, cases, case, profile),
    )


def _replicas_to_size(
    system: System, cases: Sequence[Case], case: IntArray, profile: IntArray
) -> Replicas:
    parameters = [p.parameters for p in system.profiles]
    tokens = _integers(c.server.load.tokens_per_request for c in cases)[case]
    itl = np.array([c.target.itl_ms for c in cases], dtype=np.float64)
    delay = np.array([DecodeModel.delay_target_ms(c.target) for c in cases], dtype=np.float64)
    throughput = np.array([c.target.tokens_per_second > 0 for c in cases], dtype=np.bool_)
    return Replicas(
        model=DecodeModel.of(parameters, profile, tokens),
        batch=_batch(system, cases, case, profile),
        itl_limit=np.where(itl > 0, itl, np.inf)[case],
        delay_limit=delay[case],
        throughput_target=throughput[case],
    )


def _batch(system: System, cases: Sequence[Case], case: IntArray, profile: IntArray) -> IntArray:
    """Largest batch: the server's own, or the profile's, scaled to the request length."""
    most = np.array([p.max_batch_size for p in system.profiles], dtype=np.float64)[profile]
    tokens = np.array([p.max_batch_size * p.at_tokens for p in system.profiles], dtype=np.float64)
    length = _integers(0 if c.server.load.idle else c.server.load.tokens_per_request for c in cases)
    scaled = np.where(length[case] > 0, tokens[profile] // np.maximum(length[case], 1), most)
    own = np.array([c.server.max_batch_size for c in cases], dtype=np.float64)[case]
    return np.clip(np.where(own > 0, own, scaled), 1, MAX_BATCH).astype(np.int64)


def _demand(case: Case) -> float:
    """Rate to provide for: of load and throughput target the larger, 0 when idle."""
    load = case.server.load
    if load.idle:
        return 0.0
    throughput = case.target.tokens_per_second / (MS_PER_SECOND * load.tokens_per_request)
    return max(load.arrival_rate / MS_PER_MINUTE, throughput)


def _size_each_once(pairs: Pairs) -> Sizing:
    """Size the pairs that have a demand, equal ones once; an idle one has no limit."""
    busy = np.flatnonzero(pairs.demand > 0)
    queues = pairs.replicas.take(busy)
    rows, where = queues.distinct()
    found = size(queues.take(rows))
    sizing = Sizing(*(np.full(len(pairs.case), fill) for fill in (np.inf, 0.0, 0.0)))
    sizing.max_rate[busy] = found.max_rate[where]
    sizing.itl_floor[busy] = found.itl_floor[where]
    sizing.delay_floor[busy] = found.delay_floor[where]
    return sizing


def _replicas(
    cases: Sequence[Case], pairs: Pairs, sizing: Sizing
) -> tuple[npt.NDArray[np.bool_], IntArray]:
    """Which rows keep their targets, and with how many replicas."""
    attainable = sizing.max_rate > 0
    with np.errstate(over="ignore"):  # more than any number is too many as well
        needed = pairs.demand / np.where(attainable, sizing.max_rate, np.inf)
    usable = attainable & (needed <= MAX_REPLICAS)
    fewest = _integers(c.server.min_replicas for c in cases)[pairs.case]
    rounded = np.ceil(np.where(usable, needed, 0.0) * (1 - ROUNDING)).astype(np.int64)
    rounded = np.where(pairs.demand > 0, np.maximum(rounded, 1), rounded)
    return usable, np.where(usable, np.maximum(rounded, fewest), 0)


def _value(
    cases: Sequence[Case],
    catalogue: Catalogue,
    pairs: Pairs,
    replicas: IntArray,
    cost: FloatArray,
) -> FloatArray:
    """Change of cost; moving to another accelerator counts extra, staying as is counts 0."""
    current = [c.server.current for c in cases]
    accelerator = _integers(catalogue.accelerators.get(a.accelerator, -1) for a in current)
    same_accelerator = accelerator[pairs.case] == pairs.accelerator
    same = same_accelerator & (_integers(a.replicas for a in current)[pairs.case] == replicas)
    old_cost = np.array([a.cost for a in current], dtype=np.float64)[pairs.case]
    penalty = np.where(same_accelerator, 0.0, PENALTY_SHARE * (old_cost + cost))
    return np.where(same, 0.0, penalty + cost - old_cost)


def _accelerators_per_replica(system: System) -> IntArray:
    return _integers(max(p.accelerator_count, 1) for p in system.profiles)


def _integers(values: Iterable[int]) -> IntArray:
    return np.fromiter(values, dtype=np.int64)
