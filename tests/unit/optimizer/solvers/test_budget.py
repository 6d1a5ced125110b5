"""A search ends when its work is done; what the clock says is of no matter until its time ends."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import highspy
import numpy as np
import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.params import SolveParams
from inferno_optimizer.solvers.sparse import SparseMatrix
from inferno_optimizer.system import SaturationPolicy
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet


def knapsacks(items: int = 60, sacks: int = 8) -> highspy.Highs:
    """A mixed integer program that takes HiGHS many nodes."""
    random, solver = np.random.default_rng(3), highspy.Highs()
    weights = random.uniform(1, 10, (sacks, items))
    rows, columns = (place.ravel() for place in np.indices(weights.shape))
    model = highspy.HighsLp()
    SparseMatrix.of(weights.shape, [(rows, columns, weights.ravel())]).put_into(model)
    model.col_cost_ = -random.uniform(1, 10, items)
    model.col_lower_, model.col_upper_ = np.zeros(items), np.full(items, 3.0)
    model.row_lower_, model.row_upper_ = np.full(sacks, -np.inf), weights.sum(axis=1) * 0.6
    model.integrality_ = [highspy.HighsVarType.kInteger] * items
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    return solver


def test_what_is_spent_of_a_part_is_spent_of_the_whole() -> None:
    whole = Budget.of(10.0)
    part = whole.part(0.4)
    first = part.part(0.5)
    first.spend(2.0)

    assert (whole.left, part.left, first.left) == pytest.approx((8.0, 2.0, 0.0))
    assert first.is_over
    assert not part.is_over
    whole.spend(3.0)
    assert part.is_over


def test_a_part_may_be_more_than_the_whole() -> None:
    budget = Budget.of(10.0).part(0.5)

    assert budget.part(1.2).left == pytest.approx(6.0)


def test_what_is_kept_for_later_remains_when_a_search_is_over() -> None:
    whole = Budget.of(10.0, lambda: 20.0)
    search = whole.without(1.0)
    search.spend(9.0)

    assert search.is_over
    assert search.seconds_left == 19.0
    assert (search.whole.left, search.whole.seconds_left) == pytest.approx((1.0, 20.0))


def test_the_time_ends_a_search_before_its_work_is_done() -> None:
    seconds = iter([2.0, 0.0])
    budget = Budget.of(10.0, lambda: next(seconds))

    assert not budget.is_over
    assert budget.is_over


def test_parts_that_come_first_get_more_of_the_time_than_of_the_work() -> None:
    budget = Budget.of(10.0, lambda: 8.0)

    assert budget.part(0.5).left == 5.0
    assert budget.part(0.5).seconds_left == 6.0
    assert budget.part(1.0).seconds_left == 8.0


def test_branch_and_bound_ends_at_the_same_place_each_time() -> None:
    runs = []
    for _ in range(2):
        solver, budget = knapsacks(), Budget.of(0.2)
        status = budget.run_branch_and_bound(solver)
        info = solver.getInfo()
        runs.append((info.simplex_iteration_count, info.mip_node_count, budget.left))

    assert status == highspy.HighsModelStatus.kInterrupt
    assert runs[0] == runs[1]


def test_a_linear_program_ends_when_there_is_no_more_work() -> None:
    solver, budget = knapsacks(), Budget.of(1e-9)
    solver.setOptionValue("solve_relaxation", True)
    solver.setOptionValue("presolve", "off")
    status = budget.run_simplex(solver)

    assert status == highspy.HighsModelStatus.kIterationLimit
    assert budget.is_over


def still() -> Callable[[], float]:
    """A clock that stands."""
    return lambda: 0.0


def jumping() -> Callable[[], float]:
    """A clock that jumps now and then, but not to the end."""
    looks = count()
    return lambda: next(looks) // 20 * 0.02


@pytest.mark.parametrize("policy", [SaturationPolicy.PRIORITY_EXHAUSTIVE, SaturationPolicy.HOLD])
def test_a_fleet_gets_the_same_plan_whatever_the_clock_says(
    policy: SaturationPolicy,
) -> None:
    # The work of a second, and a minute for it: HiGHS looks at the time of the machine.
    params = SolveParams(work_per_second=1 / 60, least_work_per_second=1 / 60)
    system = decode_system(fleet(150, 20, seed=4, demand=1.8))
    options = replace(system.options, milp=True, saturation_policy=policy, time_limit=60.0)
    system = replace(system, options=options)
    plans = [optimize(system, clock(), params) for clock in (still, jumping)]

    assert plans[0].allocations == plans[1].allocations
    assert plans[0].certificate.levels == plans[1].certificate.levels
