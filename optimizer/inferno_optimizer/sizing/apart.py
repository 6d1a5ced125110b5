"""Sizes prefill and decode apart: the fewest replicas of both roles that meet the targets together.

A prompt waits for a prefill replica, is computed, and is handed over to a decode replica, whose
steps have no prompts in them. The time to first token is all of it up to the first step there; the
inter-token latency is that of the decode replica alone. Of all numbers that meet the targets the
cheapest are taken. See `sizing.md`, section "Prefill and decode apart".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from inferno_optimizer.sizing.cards import Cards
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.latencies import MEAN_FACTOR, PERCENTILES, Delay, Latencies
from inferno_optimizer.sizing.pairs import Pairs, build_pairs, integers
from inferno_optimizer.sizing.prefill import PrefillModel
from inferno_optimizer.sizing.prompt_cache import PromptCaches
from inferno_optimizer.sizing.queueing import ArrayTable, Averages, BoolArray, FloatArray, IntArray
from inferno_optimizer.sizing.rates import HIGHEST_SHARE, LOWEST_SHARE, THROUGHPUT_SHARE
from inferno_optimizer.sizing.replicas import ROUNDING, Replicas
from inferno_optimizer.sizing.spread import Spread
from inferno_optimizer.system import Allocation, PerformanceProfile, RoleProfile

MORE_DECODE = 4
"""Up to so many times the fewest decode replicas are tried, to spare prefill replicas."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Pairs of a prefill and a decode replica, by falling batch of the latter.

    `transfer_ms` is the time to hand a prompt over [ms].
    """

    prefill: PrefillModel
    decode: Replicas
    transfer_ms: FloatArray

    def take(self, rows: IntArray) -> Self:
        """Some of the pairs, in the given order."""
        return type(self)(self.prefill.take(rows), self.decode.take(rows), self.transfer_ms[rows])

    @property
    def lowest(self) -> tuple[FloatArray, FloatArray]:
        """Rates of prefill and decode replicas that hardly do anything [requests/ms]."""
        model = self.decode.model
        lone = model.intervals(slice(0, len(model.batch)), np.ones(len(model.batch)))
        return LOWEST_SHARE / self.prefill.lone_ms, LOWEST_SHARE / lone

    def excess(self, prefill: FloatArray, decode: FloatArray) -> FloatArray:
        """Logarithm of the largest ratio of a latency to its target, see `Replicas.excess`.

        It is infinite where a replica cannot keep up with its rate [requests/ms].
        """
        result = np.full(len(prefill), np.inf)
        rows = np.flatnonzero(self._keeps_up(prefill, decode))
        result[rows] = self.take(rows).stable_excess(prefill[rows], decode[rows])
        return result

    def _keeps_up(self, prefill: FloatArray, decode: FloatArray) -> BoolArray:
        model, limits = self.decode.model, self.decode.limits
        batch = model.batch.astype(np.float64)
        share = HIGHEST_SHARE * np.where(limits.throughput, THROUGHPUT_SHARE, 1.0)
        most = share / model.intervals(slice(0, len(batch)), batch)
        keeps: BoolArray = (decode <= most) & (prefill <= share * self.prefill.highest_rate)
        return keeps

    def stable_excess(self, prefill: FloatArray, decode: FloatArray) -> FloatArray:
        """The same at rates that the replicas keep up with."""
        limits, queue = self.decode.limits, self.decode.averages(decode)
        wait, first = self._delays(prefill, queue, limits.wait_share, limits.ttft_share)
        itl = self.decode.itl(queue).excess(limits.itl)
        delay = np.maximum(wait.excess(limits.wait), first.excess(limits.ttft))
        return np.maximum(itl, delay) - ROUNDING

    def _delays(
        self, prefill: FloatArray, queue: Averages, wait_share: FloatArray, share: FloatArray
    ) -> tuple[Delay, Delay]:
        """The waits in both queues, and the time to first token."""
        before, model = self.prefill.delays(prefill), self.decode.model
        first = before.total_ms + self.transfer_ms + model.first_token_ms(queue)
        return (
            Delay(queue, before.wait_ms, wait_share, MEAN_FACTOR, before.wait_spread),
            Delay(queue, first, share, 1.0, _sum(before.total_spread, self._first_spread(queue))),
        )

    def _first_spread(self, queue: Averages) -> Spread:
        nothing = np.zeros_like(queue.throughput)
        return self.decode.model.first_token_spread(queue) or Spread(nothing, nothing)

    def latencies(self, prefill: FloatArray, decode: FloatArray) -> Latencies:
        """Latencies at the rates of a prefill and of a decode replica [requests/ms].

        Of a rate that is too high they are those of the highest one.
        """
        prefill = np.minimum(prefill, HIGHEST_SHARE * self.prefill.highest_rate)
        queue, model = self.decode.averages(decode), self.decode.model
        none = np.zeros(len(prefill))
        wait, first = self._delays(prefill, queue, none, none)
        around = model.itl_spread(queue) or Spread(none, none)
        itl, shares = model.itl_ms(queue), [np.full(len(prefill), p) for p in PERCENTILES]
        return Latencies(
            itl_ms=itl,
            wait_ms=queue.wait_ms + wait.after,
            ttft_ms=queue.wait_ms + first.after,
            wait_percentiles=np.stack([replace(wait, share=s).ms() for s in shares], axis=1),
            ttft_percentiles=np.stack([replace(first, share=s).ms() for s in shares], axis=1),
            itl_percentiles=np.stack([itl + around.quantile(s) for s in shares], axis=1),
        )


def _sum(one: Spread, other: Spread) -> Spread:
    """The spread of the sum of two independent times."""
    return Spread(one.variance + other.variance, one.third + other.third)


@dataclass(frozen=True, slots=True)
class PairRows(ArrayTable):
    """Pairs of each case, by case; arrays of shape (pairs,).

    `prefill` and `decode` are rows of the pairs of a case and a role, and `place` is the number of
    both accelerators in the catalogue. `floor` is the fewest replicas of each role.
    """

    case: IntArray
    place: IntArray
    prefill: IntArray
    decode: IntArray
    floor: IntArray


@dataclass(frozen=True, slots=True)
class SizedPairs:
    """Pairs with the cheapest numbers of replicas that meet the targets; 0 where none do.

    The floors are the latencies [ms] of replicas that hardly do anything, see `Sizing`. A group
    is the smallest number of both roles with their ratio; costs are those of one replica
    [cents/hour].
    """

    rows: PairRows
    roles: Pairs
    apart: Apart
    order: IntArray
    prefill: IntArray
    decode: IntArray
    itl_floor: FloatArray
    wait_floor: FloatArray
    ttft_floor: FloatArray
    prefill_cost: FloatArray
    decode_cost: FloatArray

    @property
    def group_cost(self) -> FloatArray:
        """Cost of the smallest group of each pair [cents/hour]."""
        whole = self.prefill * self.prefill_cost + self.decode * self.decode_cost
        cost: FloatArray = whole / self.units
        return cost

    def costs(self, pair: int) -> tuple[float, float]:
        """Cost of a prefill and of a decode replica of a pair [cents/hour]."""
        return float(self.prefill_cost[pair]), float(self.decode_cost[pair])

    def groups(self, pair: int, roles: Sequence[Allocation]) -> int:
        """Groups of a pair that replicas of both roles make up; 0 if there are none."""
        if not roles:
            return 0
        sides = zip(roles, (self.prefill, self.decode), strict=True)
        several = int(self.units[pair])
        return min(part.replicas * several // max(int(numbers[pair]), 1) for part, numbers in sides)

    def counts(self, pair: int, groups: int) -> tuple[int, int]:
        """Prefill and decode replicas of so many groups of a pair."""
        several = int(self.units[pair])
        return (
            int(self.prefill[pair]) * groups // several,
            int(self.decode[pair]) * groups // several,
        )

    def batches(self, pair: int) -> tuple[int, int]:
        """Most prompts in a step of a prefill replica, and requests in one of decode."""
        place = int(np.flatnonzero(self.order == pair)[0])
        prompts = max(int(self.apart.prefill.most[place]), 1)
        return prompts, int(self.apart.decode.model.batch[place])

    def roles_of(self, pair: int) -> tuple[int, int]:
        """Positions in the system's roles of a pair."""
        prefill, decode = self.rows.prefill[pair], self.rows.decode[pair]
        return int(self.roles.profile[prefill]), int(self.roles.profile[decode])

    @property
    def units(self) -> IntArray:
        """How many smallest groups with the same ratio of both roles there are; at least 1."""
        return np.maximum(np.gcd(self.prefill, self.decode), 1)

    @property
    def _groups(self) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
        """The rows of each role, and its replicas in the smallest group."""
        return (
            (self.rows.prefill, self.prefill // self.units),
            (self.rows.decode, self.decode // self.units),
        )

    def group_cards(self) -> Cards:
        """The cards of the smallest group of each pair; of one type, those of both roles."""
        every = np.arange(len(self.prefill))
        (prefill, several), (decode, many) = self._groups
        first, second = self.roles.type[prefill], self.roles.type[decode]
        counts = several * self.roles.cards[prefill], many * self.roles.cards[decode]
        alike = first == second
        apart = np.flatnonzero(~alike)
        return Cards(
            np.append(every, every[apart]),
            np.append(first, second[apart]),
            np.append(counts[0] + np.where(alike, counts[1], 0), counts[1][apart]),
        )

    def latencies(self, rows: IntArray, units: FloatArray) -> Latencies:
        """Latencies of some pairs with numbers of their groups that share the demand equally."""
        place = np.argsort(self.order)[rows]
        order = np.argsort(place, kind="stable")
        back = np.argsort(order)
        pairs, several = rows[order], np.maximum(units[order], 1) / self.units[rows[order]]
        demand = self.roles.demand[self.rows.decode[pairs]]
        apart = self.apart.take(place[order])
        rates = (
            np.maximum(demand / (several * np.maximum(numbers[pairs], 1)), least)
            for numbers, least in zip((self.prefill, self.decode), apart.lowest, strict=True)
        )
        return apart.latencies(*rates).take(back)


def size_pairs(
    catalogue: Catalogue, cases: Sequence[Case], types: tuple[str, ...], unit_cost: FloatArray
) -> SizedPairs:
    """Size each case on each of its pairs.

    Parameters
    ----------
    catalogue, cases, types
        The system, its cases, and the sorted types of the cards.
    unit_cost
        Cost of a replica of each of the system's roles [cents/hour].
    """
    roles = _roles(catalogue, cases, types)
    rows = _rows(catalogue, cases, roles)
    order = np.argsort(-roles.batch[rows.decode], kind="stable")
    ordered = rows.take(order)
    floor = np.maximum(ordered.floor, 1)
    caches = roles.caches.take(ordered.prefill)
    search = _Search(
        _apart(catalogue, roles, ordered, caches.computed_tokens(floor)),
        roles.demand[ordered.decode],
        floor,
        *(unit_cost[roles.profile[side]] for side in (ordered.prefill, ordered.decode)),
    )
    search, numbers = _with_caches(
        search, caches, lambda computed: _apart(catalogue, roles, ordered, computed)
    )
    apart, back = search.apart, np.argsort(order)
    busy = search.demand > 0
    prefill, decode = (np.where(busy, number, ordered.floor)[back] for number in numbers)
    least = apart.latencies(*apart.lowest)
    floors = (least.itl_ms[back], least.wait_ms[back], least.ttft_ms[back])
    costs = unit_cost[roles.profile[rows.prefill]], unit_cost[roles.profile[rows.decode]]
    return SizedPairs(rows, roles, apart, order, prefill, decode, *floors, *costs)


def _with_caches(
    search: "_Search", caches: PromptCaches, apart_of: Callable[[IntArray], Apart]
) -> tuple["_Search", tuple[IntArray, IntArray]]:
    """The search with the prompts that so many prefill replicas compute, and what it finds.

    More of them have more to compute while the new ones are cold, see `candidates`.
    """
    computed, (prefill, decode) = caches.computed_tokens(search.floor), search.cheapest()
    while (more := caches.computed_tokens(prefill) > computed).any():
        computed = np.where(more, caches.computed_tokens(prefill), computed)
        search = replace(search, apart=apart_of(computed))
        rows = np.flatnonzero(more)
        prefill[rows], decode[rows] = search.take(rows).cheapest()
    return search, (prefill, decode)


def _roles(catalogue: Catalogue, cases: Sequence[Case], types: tuple[str, ...]) -> Pairs:
    """The pairs of a case and a role, sized as if a replica did nothing else than its role."""
    profiles = tuple(map(_without_prompts, catalogue.system.roles))
    system = replace(catalogue.system, profiles=profiles)
    alike = [
        replace(c, profiles=tuple(sorted({i for pair in c.apart for i in pair}))) for c in cases
    ]
    return build_pairs(Catalogue(system), alike, types, [role.role for role in system.roles])


def _without_prompts(role: RoleProfile) -> PerformanceProfile:
    """The profile of a role as if its replicas computed no prompts; not used for prefill."""
    return PerformanceProfile(
        role.model,
        role.accelerator,
        replace(role.parameters, delta=0.0, u=0.0, budget=0.0),
        role.max_batch_size,
        role.at_tokens,
        role.accelerator_count,
        role.max_tokens,
        role.max_sequences,
    )


def _rows(catalogue: Catalogue, cases: Sequence[Case], roles: Pairs) -> PairRows:
    case = np.repeat(np.arange(len(cases)), [len(c.apart) for c in cases])
    pairs = np.array([pair for c in cases for pair in c.apart], dtype=np.int64).reshape(-1, 2)
    keys = roles.case * len(catalogue.system.roles) + roles.profile
    prefill, decode = (
        np.searchsorted(keys, case * len(catalogue.system.roles) + column).astype(np.int64)
        for column in pairs.T
    )
    names = [role.accelerator for role in catalogue.system.roles]
    place = integers(catalogue.places[names[p], names[d]] for p, d in pairs.tolist())
    floor = integers(c.server.min_replicas for c in cases)[case]
    return PairRows(case, place, prefill, decode, floor)


def _apart(catalogue: Catalogue, roles: Pairs, rows: PairRows, computed: IntArray) -> Apart:
    """Pairs whose prefill replicas compute so many of the input tokens, and hand all of them over.

    The prefill replicas alone have caches of prompts: a decode replica takes what they hand over.
    """
    profiles, which = catalogue.system.roles, roles.profile[rows.prefill]
    requests = replace(roles.requests.take(rows.prefill), computed_tokens=computed)
    most = integers(max(p.max_batch_size, 1) for p in profiles)[which]
    request_ms, token_ms = (
        np.array([getattr(p.transfer, name) for p in profiles], dtype=np.float64)[which]
        for name in ("request_ms", "token_ms")
    )
    return Apart(
        PrefillModel.of([p.parameters for p in profiles], which, requests, most),
        roles.groups[0].replicas.take(rows.decode),
        request_ms + token_ms * requests.input_tokens,
    )


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for the cheapest numbers of replicas; `floor` is the fewest of each role."""

    apart: Apart
    demand: FloatArray
    floor: IntArray
    prefill_cost: FloatArray
    decode_cost: FloatArray

    def cheapest(self) -> tuple[IntArray, IntArray]:
        """The cheapest numbers; 0 where none meet the targets, or there is no demand."""
        attainable = self.apart.excess(*self.apart.lowest) <= 0
        rows = np.flatnonzero(attainable & (self.demand > 0))
        prefill, decode = np.zeros_like(self.floor), np.zeros_like(self.floor)
        prefill[rows], decode[rows] = self.take(rows).cheapest_attainable()
        return prefill, decode

    def take(self, rows: IntArray) -> "_Search":
        """The search of some of the pairs, in the given order."""
        return _Search(
            self.apart.take(rows),
            self.demand[rows],
            self.floor[rows],
            self.prefill_cost[rows],
            self.decode_cost[rows],
        )

    def cheapest_attainable(self) -> tuple[IntArray, IntArray]:
        """The same where some numbers meet the targets.

        More decode replicas than the fewest may spare prefill replicas: they leave these more time.
        """
        idle_prefill, idle_decode = np.minimum(self.apart.lowest, self.demand)
        demand, floor, meets = self.demand, self.floor, self._meets
        fewest = _least(lambda rows, n: meets(rows, demand[rows] / n, idle_decode[rows]), floor)
        decode = _least(lambda rows, n: meets(rows, idle_prefill[rows], demand[rows] / n), floor)
        most, best = MORE_DECODE * decode, np.full(len(decode), np.inf)
        found = np.zeros_like(decode), np.zeros_like(decode)
        rows = np.arange(len(decode))
        while rows.size:
            prefill = self._fewest_prefill(rows, fewest[rows], decode[rows])
            cost = prefill * self.prefill_cost[rows] + decode[rows] * self.decode_cost[rows]
            better = cost < best[rows]
            best[rows] = np.minimum(cost, best[rows])
            found[0][rows[better]], found[1][rows[better]] = prefill[better], decode[rows[better]]
            decode[rows] += 1
            least = fewest[rows] * self.prefill_cost[rows] + decode[rows] * self.decode_cost[rows]
            more = (least < best[rows]) & (prefill > fewest[rows]) & (decode[rows] <= most[rows])
            rows = rows[more]
        return found

    def _fewest_prefill(self, rows: IntArray, first: IntArray, decode: IntArray) -> IntArray:
        """The fewest prefill replicas, from the first number on, with these decode replicas."""
        demand = self.demand[rows]

        def meets(some: IntArray, number: IntArray) -> BoolArray:
            return self._meets(rows[some], demand[some] / number, demand[some] / decode[some])

        return _least(meets, first)

    def _meets(self, rows: IntArray, prefill: FloatArray, decode: FloatArray) -> BoolArray:
        """Whether replicas at these rates [requests/ms] meet the targets."""
        met: BoolArray = self.apart.take(rows).excess(prefill, decode) <= 0
        return met


def _least(feasible: Callable[[IntArray, IntArray], BoolArray], first: IntArray) -> IntArray:
    """The least number from `first` on that is feasible, for each row; larger ones are as well.

    `feasible` takes rows, ascending, and a number for each.
    """
    low, high = first - 1, first.copy()
    rows = np.arange(len(first))
    while rows.size:
        rows = rows[~feasible(rows, high[rows])]
        low[rows] = high[rows]
        high[rows] = 2 * high[rows]
    while (rows := np.flatnonzero(high - low > 1)).size:
        middle = (low[rows] + high[rows]) // 2
        met = feasible(rows, middle)
        high[rows[met]], low[rows[~met]] = middle[met], middle[~met]
    return high
