"""What holds for any system of any generation, whoever solves it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason, Solution, SolverStatus
from inferno_optimizer.system import (
    Allocation,
    DecodeParameters,
    Options,
    PerformanceProfile,
    SaturationPolicy,
    Server,
    System,
    Target,
)
from tests.examples import several
from tests.unit.optimizer.enumeration import holds, replica_of, replicas_for, served
from tests.unit.optimizer.oracles import queue_of, value
from tests.unit.optimizer.random_systems import Kind, random_options, random_system

pytestmark = pytest.mark.slow

REAL = Kind(servers=8, batches=(4, 8, 24), tokens=(128, 512))
ROUNDING = 1e-6
"""Relative: what a latency may be above its target, or a sum above another one."""

GREEDY, MILP, UNLIMITED = Options(), Options(milp=True), Options(unlimited=True)
some = several(25)


def systems(*solvers: Options) -> st.SearchStrategy[System]:
    """Real ones to be solved in one of these ways, with any saturation policy."""

    def system(random: Random, solver: Options) -> System:
        options = random_options(random, milp=solver.milp, unlimited=solver.unlimited)
        return random_system(random, REAL, options)

    return st.builds(system, st.randoms(use_true_random=False), st.sampled_from(solvers))


LIMITED = systems(GREEDY, MILP)
ANY = systems(GREEDY, MILP, UNLIMITED)


def profile_of(system: System, server: Server, allocation: Allocation) -> PerformanceProfile:
    """What a server that has an allocation performs like on its accelerator.

    Where nobody knows and it runs there, a replica is on one accelerator.
    """
    pair = (server.model, allocation.accelerator)
    known = (p for p in system.profiles if (p.model, p.accelerator) == pair)
    nobody_knows = PerformanceProfile(*pair, DecodeParameters(0.0, 0.0), 0, 0)
    return next(known, nobody_knows)


def keeps_what_runs(system: System, server: Server, allocation: Allocation) -> bool:
    """Whether it stays on an accelerator on which no number of replicas keeps its targets."""
    profile = profile_of(system, server, allocation)
    if profile.max_batch_size and replicas_for(server, profile, target_of(system, server)):
        return False
    return allocation.accelerator == server.current.accelerator


def target_of(system: System, server: Server) -> Target:
    classes = {c.name: c for c in system.classes}
    return classes[server.service_class].targets[server.model]


def running(
    system: System, solution: Solution
) -> Iterator[tuple[Server, Reason, Allocation, PerformanceProfile]]:
    """The servers that have replicas, why, which, and how these perform."""
    for server, decision in zip(system.servers, solution.decisions, strict=True):
        given_to = decision.allocation
        if given_to is not None and given_to.replicas:
            profile = profile_of(system, server, given_to)
            yield server, decision.reason, given_to, profile


def cards_used(system: System, solution: Solution) -> Counter[str]:
    """Cards of each type that the allocations alone say."""
    units = {unit.name: unit for unit in system.accelerators}
    used: Counter[str] = Counter()
    for _, _, given_to, profile in running(system, solution):
        unit = units.get(given_to.accelerator)
        if unit is None:  # what runs stays, on cards that nobody counts
            continue
        used[unit.type] += given_to.replicas * profile.accelerator_count * unit.multiplicity
    return used


@some
@given(system=LIMITED)
def test_no_plan_takes_more_cards_than_there_are(system: System) -> None:
    solution = optimize(system)

    used = cards_used(system, solution)
    left = {use.type: use.available for use in solution.capacity}
    assert all(count <= left[card_type] for card_type, count in used.items())
    assert all(left[card_type] <= system.capacity[card_type] for card_type in left)


@some
@given(system=ANY)
def test_the_cards_told_are_those_of_the_allocations(system: System) -> None:
    solution = optimize(system)

    told = {use.type: use.used for use in solution.capacity if use.used}
    assert told == dict(+cards_used(system, solution))


@some
@given(system=ANY)
def test_what_is_served_keeps_its_targets_under_its_whole_load(system: System) -> None:
    solution = optimize(system)

    for server, reason, given_to, profile in running(system, solution):
        if reason is Reason.ALLOCATED and not server.load.idle:
            target, replica = target_of(system, server), replica_of(server, profile)
            arrival_rate = server.load.arrival_rate / 60_000 / given_to.replicas
            limits = replace(
                target,
                **{
                    name: getattr(target, name) * (1 + ROUNDING)
                    for name in ("itl_ms", "wait_ms", "ttft_ms")
                },
            )
            tokens = server.load.tokens_of(profile.parameters.generation)
            throughput = given_to.replicas * replica.rate(replica.batch) * tokens * 1000
            assert holds(replica, queue_of(replica, arrival_rate), limits)
            assert arrival_rate < replica.rate(replica.batch)
            assert throughput > target.tokens_per_second
            assert given_to.max_batch_size == replica.batch


@some
@given(system=LIMITED)
def test_a_share_is_smaller_than_what_the_targets_take(system: System) -> None:
    solution = optimize(system)

    for server, reason, given_to, profile in running(system, solution):
        if keeps_what_runs(system, server, given_to):
            assert reason is Reason.BEST_EFFORT
            assert system.options.saturation_policy is SaturationPolicy.HOLD
            assert given_to.replicas <= server.current.replicas
            continue
        wanted = replicas_for(server, profile, target_of(system, server))
        assert wanted is not None
        if reason is Reason.BEST_EFFORT:
            assert given_to.replicas < wanted
            assert system.options.saturation_policy is not SaturationPolicy.NONE
        else:
            assert reason is Reason.ALLOCATED
            assert given_to.replicas == wanted


def loads_from_nothing(system: System, policy: SaturationPolicy) -> tuple[float, ...]:
    """Load served of each class, in part included, where nothing runs yet.

    What runs is held first: to hold more may serve less.
    """
    options = replace(system.options, saturation_policy=policy, delayed_best_effort=False)
    solution = optimize(replace(under_load(system, 1.0), options=options))
    return tuple(round(level.served, 6) for level in solution.certificate.levels)


@some
@given(system=systems(MILP))
def test_service_in_part_serves_no_less_of_an_important_class(system: System) -> None:
    entirely = loads_from_nothing(system, SaturationPolicy.NONE)

    in_part = loads_from_nothing(system, SaturationPolicy.PRIORITY_EXHAUSTIVE)

    assert in_part >= entirely


@some
@given(system=ANY)
def test_no_plan_is_better_than_its_bound(system: System) -> None:
    certificate = optimize(system).certificate

    if certificate.bound is None:
        assert not system.options.milp
    else:
        slack = ROUNDING * max(1.0, abs(certificate.objective))
        assert certificate.bound <= certificate.objective + slack


@some
@given(system=ANY)
def test_a_plan_is_called_optimal_where_a_small_gap_is_proven_and_nowhere_else(
    system: System,
) -> None:
    certificate = optimize(system).certificate

    proven = certificate.gap is not None and certificate.gap <= 1e-4
    assert (certificate.status is SolverStatus.OPTIMAL) is proven


@some
@given(system=ANY)
def test_the_objective_is_the_value_of_what_is_served(system: System) -> None:
    solution = optimize(system)

    options = system.options
    in_part = options.milp and options.saturation_policy is not SaturationPolicy.NONE
    total = 0.0
    for server, d in zip(system.servers, solution.decisions, strict=True):
        a = d.allocation
        if a is not None and (in_part or d.reason is Reason.ALLOCATED):
            total += value(server.current, a.accelerator, a.replicas, a.cost)
        elif a is None and in_part and d.reason.decided:
            total -= server.current.cost
    assert abs(solution.certificate.objective - total) <= ROUNDING * max(1.0, abs(total))


def under_load(system: System, factor: float) -> System:
    """All loads times a factor, and nothing runs yet."""
    servers = (
        replace(
            server,
            current=Allocation(
                load=replace(server.load, arrival_rate=server.load.arrival_rate * factor)
            ),
        )
        for server in system.servers
    )
    return replace(system, servers=tuple(servers))


@some
@given(system=systems(UNLIMITED), percent=st.integers(0, 100))
def test_less_load_never_costs_more(system: System, percent: int) -> None:
    less = optimize(under_load(system, percent / 100)).allocations

    for name, allocation in optimize(under_load(system, 1.0)).allocations.items():
        assert less[name].cost <= allocation.cost * (1 + ROUNDING)


def loosened(system: System, factor: float) -> System:
    """Every target easier to keep."""

    def easier(target: Target) -> Target:
        return replace(
            target,
            itl_ms=target.itl_ms * factor,
            wait_ms=target.wait_ms * factor,
            ttft_ms=target.ttft_ms * factor,
            tokens_per_second=target.tokens_per_second / factor,
        )

    classes = (
        replace(c, targets={model: easier(t) for model, t in c.targets.items()})
        for c in system.classes
    )
    return replace(system, classes=tuple(classes))


@some
@given(system=systems(UNLIMITED), factor=st.floats(1, 5))
def test_looser_targets_never_cost_more(system: System, factor: float) -> None:
    new = under_load(system, 1.0)

    loose = optimize(loosened(new, factor)).allocations

    for name, allocation in optimize(new).allocations.items():
        assert loose[name].cost <= allocation.cost * (1 + ROUNDING)


@some
@given(system=systems(MILP), factor=st.floats(1, 5))
def test_looser_targets_serve_no_less_of_an_important_class(system: System, factor: float) -> None:
    """Each row takes no more replicas then, so that any plan serves no less: in part, too."""
    policy = system.options.saturation_policy
    strict = loads_from_nothing(system, policy)

    assert loads_from_nothing(loosened(system, factor), policy) >= strict


@some
@given(system=systems(MILP), factor=st.floats(1, 5))
def test_looser_targets_serve_no_fewer_entirely_where_none_is_served_in_part(
    system: System, factor: float
) -> None:
    options = replace(system.options, saturation_policy=SaturationPolicy.NONE)
    entirely = replace(system, options=options)
    looser = loosened(entirely, factor)

    assert served(looser, optimize(looser)) >= served(entirely, optimize(entirely))
