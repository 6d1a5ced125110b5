"""The curve of the exact solver: it never gets worse, and the plan is at least its best point."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import CurvePoint
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.exact import solve_goals
from inferno_optimizer.solvers.incumbent import UNKNOWN, CurveRecorder, SearchProgress
from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import decode_solution, decode_system, encode_solution
from tests.generate import fleet
from tests.solvers.ours import problem_of
from tests.tiers import sampled
from tests.unit.optimizer.programs import random_rows
from tests.unit.optimizer.solvers.partial_plans import tuned

ROUNDING = 1e-6


def ticking(seconds: float) -> Callable[[], float]:
    """A clock on which so much time passes with every reading."""
    readings = itertools.count()
    return lambda: next(readings) * seconds


def jumping(readings: int) -> Callable[[], float]:
    """A clock that stands still for some readings, and then jumps beyond any limit."""
    times = itertools.chain([0.0] * readings, itertools.repeat(1e6))
    return lambda: next(times)


def traced(seed: int, time_limit: float, *, heterogeneous: bool = False) -> System:
    """A tight fleet for the exact solver, with the option to trace."""
    system = decode_system(fleet(8 if heterogeneous else 25, 6, seed, 3.0))
    options = replace(
        system.options,
        unlimited=False,
        milp=True,
        heterogeneous=heterogeneous,
        time_limit=time_limit,
        priority_tolerance=0.0,
        trace=True,
    )
    return replace(system, options=options)


def ranks(curve: Sequence[CurvePoint]) -> Iterator[tuple[float, ...]]:
    """What the points are compared by: smaller is better."""
    for point in curve:
        loads = [-round(load, 6) for _, load in sorted(point.served.items())]
        yield (*loads, round(point.value, 6) if point.priority is None else math.inf)


def gaps(curve: Sequence[CurvePoint]) -> Iterator[float]:
    """How far plans are from what is proven; negative would be better than that."""
    for point in curve:
        if point.bound is not None and point.priority is None:
            yield point.value - point.bound
        elif point.bound is not None and point.priority is not None:
            yield point.bound - point.served[point.priority]


@pytest.mark.parametrize("heterogeneous", [False, True])
@pytest.mark.parametrize("seed", sampled(range(3)))
def test_a_curve_never_gets_worse_and_ends_with_the_plan(
    seed: int,
    heterogeneous: bool,
) -> None:
    certificate = optimize(traced(seed, 60.0, heterogeneous=heterogeneous)).certificate

    curve = certificate.curve
    stages = [point.priority for point in curve]
    assert [stage for stage, _ in itertools.groupby(stages)] == [1, 2, 3, None]
    assert list(ranks(curve)) == sorted(ranks(curve), reverse=True)
    assert [point.seconds for point in curve] == sorted(point.seconds for point in curve)
    assert min(gaps(curve)) >= -ROUNDING
    assert curve[-1].served == {level.priority: level.served for level in certificate.levels}
    assert (curve[-1].value, curve[-1].bound) == (certificate.objective, certificate.bound)


@pytest.mark.parametrize("heterogeneous", [False, True])
def test_without_the_request_there_is_no_curve_and_the_plan_is_the_same(
    heterogeneous: bool,
) -> None:
    system = traced(1, 60.0, heterogeneous=heterogeneous)
    untraced = replace(system, options=replace(system.options, trace=False))

    solution, expected = optimize(system), optimize(untraced)

    assert expected.certificate.curve == ()
    assert solution.decisions == expected.decisions


@pytest.mark.parametrize("heterogeneous", [False, True])
@pytest.mark.parametrize("time_limit", [0.0, 0.02, 0.05, 0.1, 0.3, 1.0])
def test_whatever_the_time_limit_no_point_of_the_curve_is_better_than_the_plan(
    time_limit: float,
    heterogeneous: bool,
) -> None:
    solution = optimize(traced(2, time_limit, heterogeneous=heterogeneous), ticking(0.01))

    *_, last = order = list(ranks(solution.certificate.curve))
    assert last == min(order)
    assert all(use.used <= use.usable for use in solution.capacity)


def test_a_curve_survives_its_way_through_json() -> None:
    system = traced(0, 60.0)
    solution = optimize(system)

    assert decode_solution(encode_solution(solution), system).certificate.curve == (
        solution.certificate.curve
    )


@pytest.mark.parametrize("small", [0, 10_000])
@pytest.mark.parametrize("readings", sampled([0, 1, 2, 3, 5, 8, 13, 21, 34, 55]))
def test_wherever_time_ends_the_plan_is_at_least_the_incumbent(readings: int, small: int) -> None:
    rows, seen = random_rows(5, cases=60), list[SearchProgress]()
    clock = jumping(readings)

    outcome = solve_goals(
        tuned(problem_of(rows), small=small),
        Budget.of(20.0, lambda: 20.0 - clock()),
        0.0,
        delayed=False,
        observe=seen.append,
    )

    plan, best = outcome.counts > 0, max(tuple(p.served) for p in seen)
    assert rows.fits(plan)
    assert tuple(rows.served(plan) + ROUNDING) >= best
    assert float(rows.value[plan].sum()) <= seen[-1].value + ROUNDING


def test_what_a_curve_has_already_is_no_new_point() -> None:
    recorder, served = CurveRecorder(lambda: 0.0), np.array([5.0])
    first = SearchProgress(0, served, 3.0, UNKNOWN)
    proven = replace(first, bound=-5.0)

    for progress in (first, first, proven, proven, first):
        recorder.observe(progress)

    assert [point.bound for point in recorder.curve([1], {1: 0.0}, 0.0)] == [None, 5.0]
