"""Prefill and decode apart, in every solver, against every plan of small systems."""

import math
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from inferno_optimizer.explain.options import Option, explain
from inferno_optimizer.optimize import optimize
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Reason, Solution, SolverStatus
from inferno_optimizer.system import Allocation, Options, SaturationPolicy, Server, System
from tests.tiers import sampled
from tests.unit.optimizer.apart_systems import random_apart, random_competition, sized

SYSTEMS = int(os.environ.get("SYSTEMS", "30"))
MOST = 12
"""Replicas of a role that are tried at most; capacities are below."""

EXACT = Options(milp=True)
MIXED = Options(milp=True, heterogeneous=True)

Choice = tuple[float, float, Counter[str]]
"""Load, value, and cards by type."""


def system_of(seed: int, options: Options) -> System:
    return random_apart(random.Random(seed), options)  # noqa: S311 - a repeatable choice, no secret


@cache
def solution_of(seed: int, options: Options) -> Solution:
    """The plan for a system; several tests look at it."""
    return optimize(system_of(seed, options))


def choices(system: System, server: Server, *, mixed: bool = False) -> Iterator[Choice]:
    """Whatever a server may get: replicas that do both, mixed if that is asked for, or pairs."""
    yield 0.0, 0.0, Counter()
    together = replace(system, roles=())
    if any(profile.model == server.model for profile in system.profiles):
        options = [option for option in explain(together, server.name) if not option.reason]
        for option in options:
            value = _value(server.current, (option.accelerator,), (option.replicas,), option.cost)
            yield server.load.arrival_rate, value, Counter({option.type: option.cards})
        if mixed:
            yield from _mixes(server.load.arrival_rate, options)
    yield from _pairs(system, server)


@cache
def choices_of(seed: int) -> list[list[Choice]]:
    """Whatever each server of a system may get, which no option changes."""
    system = system_of(seed, Options())
    return [list(choices(system, server)) for server in system.servers]


def _mixes(load: float, options: Sequence[Option]) -> Iterator[Choice]:
    """All numbers of replicas that carry the load of a server of which nothing runs."""
    for counts in product(*(range(option.replicas + 1) for option in options)):
        rates = (n * o.max_rate for n, o in zip(counts, options, strict=True))
        if any(counts) and sum(rates) >= load * (1 - 1e-9):
            cost, cards = 0.0, Counter[str]()
            for n, option in zip(counts, options, strict=True):
                cost += n * option.cost / option.replicas
                cards[option.type] += n * option.cards // option.replicas
            yield load, 1.1 * cost, cards


def _pairs(system: System, server: Server) -> Iterator[Choice]:
    """Pairs with their cheapest numbers."""
    alone = replace(system, servers=(server,))
    if not Catalogue(alone).apart.get(server.model):
        return
    found = sized(alone)
    roles = alone.by_name().roles
    units = {unit.name: unit for unit in system.accelerators}
    demand = server.load.arrival_rate / 60_000
    for pair, place in enumerate(found.order.tolist()):
        apart = found.apart.take(np.array([pair]))
        profiles = [roles[i] for i in found.roles_of(place)]
        costs = [units[p.accelerator].cost * p.accelerator_count for p in profiles]
        several = np.array([*product(range(1, MOST + 1), repeat=2)]).T
        excess = apart.take(np.zeros(MOST**2, dtype=np.int64)).excess(*(demand / several))
        numbers = [(a * costs[0] + b * costs[1], a, b) for a, b in several.T[excess <= 0].tolist()]
        if numbers:
            cost, a, b = min(numbers)
            cards: Counter[str] = Counter()
            for profile, count in zip(profiles, (a, b), strict=True):
                cards[units[profile.accelerator].type] += count * profile.accelerator_count
            names = tuple(profile.accelerator for profile in profiles)
            yield server.load.arrival_rate, _value(server.current, names, (a, b), cost), cards


def _undominated(system: System, every: list[Choice]) -> list[Choice]:
    """Choices that fit if alone, without those that take as many cards and cost more."""
    found: list[Choice] = []
    for load, value, cards in sorted(every, key=lambda choice: choice[:2]):
        better = (o for o in found if o[0] == load and all(o[2][t] <= cards[t] for t in o[2]))
        if cards <= Counter(system.capacity) and not any(better):
            found.append((load, value, cards))
    return found


def _value(
    current: Allocation, names: tuple[str, ...], replicas: tuple[int, ...], cost: float
) -> float:
    now = current.roles or (current,)
    if tuple(part.accelerator for part in now) != names:
        return 0.1 * (current.cost + cost) + cost - current.cost
    return 0.0 if tuple(p.replicas for p in now) == replicas else cost - current.cost


def best_plan(system: System, every: list[list[Choice]]) -> tuple[list[float], float]:
    """The most load by priority, and the least value of it, with these choices of servers."""
    classes = {c.name: c.priority for c in system.classes}
    plans = product(*(_undominated(system, own) for own in every))

    def worth(plan: tuple[Choice, ...]) -> tuple[list[float], float]:
        loads = dict.fromkeys(sorted(classes.values()), 0.0)
        for server, (load, _, _) in zip(system.servers, plan, strict=True):
            loads[classes[server.service_class]] += load
        return [*loads.values()], -math.fsum(value for _, value, _ in plan)

    def fits(plan: tuple[Choice, ...]) -> bool:
        used: Counter[str] = sum((cards for _, _, cards in plan), Counter())
        return all(n <= system.capacity.get(t, 0) for t, n in used.items())

    loads, lost = max(worth(plan) for plan in plans if fits(plan))
    return loads, -lost


@pytest.mark.parametrize("seed", sampled(range(SYSTEMS)))
def test_the_exact_solver_finds_the_best_of_all_plans(seed: int) -> None:
    loads, value = best_plan(system_of(seed, EXACT), choices_of(seed))

    solution = solution_of(seed, EXACT)

    assert [level.served for level in solution.certificate.levels] == pytest.approx(loads)
    assert solution.certificate.objective == pytest.approx(value, rel=1e-9, abs=1e-6)
    assert solution.certificate.status is SolverStatus.OPTIMAL


@pytest.mark.parametrize("seed", sampled(range(SYSTEMS)))
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(Options(), id="greedy"),
        pytest.param(EXACT, id="exact"),
        pytest.param(Options(milp=True, saturation_policy=SaturationPolicy.HOLD), id="in part"),
        pytest.param(Options(saturation_policy=SaturationPolicy.ROUND_ROBIN), id="in turns"),
        pytest.param(MIXED, id="heterogeneous"),
    ],
)
def test_no_plan_takes_more_cards_than_there_are(seed: int, options: Options) -> None:
    system = system_of(seed, options)
    counts = {(r.model, r.accelerator, r.role): r.accelerator_count for r in system.roles}
    types = {unit.name: unit.type for unit in system.accelerators}
    models = {server.name: server.model for server in system.servers}

    solution = solution_of(seed, options)

    used: Counter[str] = Counter()
    for name, allocation in solution.allocations.items():
        for part in allocation.parts:
            key = models[name], part.accelerator, part.role
            used[types[part.accelerator]] += part.replicas * counts.get(key, 1)
            assert part.replicas > 0
    assert {t: n for t, n in used.items() if n} == {
        use.type: use.used for use in solution.capacity if use.used
    }
    assert all(use.used <= use.available for use in solution.capacity)


@pytest.mark.parametrize("seed", sampled(range(SYSTEMS)))
def test_without_a_limit_each_server_has_its_best_choice(seed: int) -> None:
    system = system_of(seed, Options(unlimited=True))

    solution = optimize(system)

    every = zip(system.servers, choices_of(seed), solution.decisions, strict=True)
    for server, own, decision in every:
        found = [value for load, value, _ in own if load]
        if decision.reason is Reason.ALLOCATED:
            assert decision.allocation is not None
            now = decision.allocation.roles or (decision.allocation,)
            names = tuple(part.accelerator for part in now)
            replicas = tuple(part.replicas for part in now)
            value = _value(server.current, names, replicas, decision.allocation.cost)
            if max(replicas) <= MOST:
                assert value == pytest.approx(min(found))
        else:
            assert found == []


@pytest.mark.parametrize("seed", sampled(range(SYSTEMS)))
def test_with_mixes_the_plan_serves_at_least_what_single_rows_serve(seed: int) -> None:
    single, found = solution_of(seed, EXACT), solution_of(seed, MIXED)

    served = [
        [level.served for level in solution.certificate.levels] for solution in (found, single)
    ]
    assert served[0] >= served[1]
    if served[0] == served[1]:
        assert found.certificate.objective <= single.certificate.objective + 1e-6


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(SYSTEMS))
def test_where_mixes_and_pairs_compete_the_plan_is_the_best_of_all(seed: int) -> None:
    system = random_competition(random.Random(seed), MIXED)  # noqa: S311 - repeatable
    every = [list(choices(system, server, mixed=True)) for server in system.servers]
    loads, value = best_plan(system, every)

    certificate = optimize(system).certificate

    assert [level.served for level in certificate.levels] == pytest.approx(loads)
    assert certificate.objective == pytest.approx(value)
    assert certificate.status is SolverStatus.OPTIMAL
