"""The program that is there to be read has the same best plans as the one that is solved."""

import sys
from pathlib import Path
from random import Random

import highspy
import numpy as np
import pulp
import pytest

from inferno_optimizer.errors import SolverError
from inferno_optimizer.optimize import formulate_lp, optimize
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.formulation import Formulation, formulate
from inferno_optimizer.solvers.goals import Floor, GoalKind, goals_of
from inferno_optimizer.solvers.neighbourhoods import Opening, solve_opening
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.system import SaturationPolicy
from tests.unit.optimizer.solvers.partial_plans import problem_of, random_fleet, with_policy

AMPLE = Budget.of(30.0)


def random_problem(seed: int, policy: SaturationPolicy) -> ReplicaProblem:
    fleet = random_fleet(Random(seed), 5, running=True)  # noqa: S311 - repeatable, no secret
    return problem_of(fleet.system(with_policy(policy)))


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("policy", [SaturationPolicy.HOLD, SaturationPolicy.PRIORITY_EXHAUSTIVE])
@pytest.mark.parametrize("seed", range(8))
def test_each_goal_has_the_same_optimum(
    seed: int, policy: SaturationPolicy, *, delayed: bool
) -> None:
    problem, floors = random_problem(seed, policy), tuple[Floor, ...]()
    nothing = np.zeros(len(problem.case), dtype=np.int64)
    everything = Opening(np.ones(len(problem.case), dtype=np.bool_), nothing)
    for goal in goals_of(problem, delayed=delayed):
        found = solve_opening(problem, goal, floors, everything, nothing, AMPLE).counts

        program = formulate(problem, goal, floors).program
        program.solve(pulp.HiGHS(msg=False, gapRel=0.0))

        assert found is not None
        reached = goal.worth(problem, found)
        assert -pulp.value(program.objective) == pytest.approx(reached, abs=1e-4)
        whole = goal.kind is not GoalKind.VALUE and reached >= goal.most(problem) * (1 - 1e-9)
        floors = (*floors, Floor(goal, reached * (1 - 1e-9), whole))


def served(seed: int) -> tuple[ReplicaProblem, Formulation, float]:
    """A problem, the program of its first served load, and the most of it."""
    problem = random_problem(seed, SaturationPolicy.PRIORITY_EXHAUSTIVE)
    goal = next(g for g in goals_of(problem, delayed=False) if g.kind is GoalKind.SERVED)
    program = formulate(problem, goal, ())
    program.program.solve(pulp.HiGHS(msg=False, gapRel=0.0))
    return problem, formulate(problem, goal, ()), -pulp.value(program.program.objective)


@pytest.mark.parametrize("seed", range(3))
def test_cbc_finds_the_same_plan(seed: int) -> None:
    problem, formulation, most = served(seed)

    counts = formulation.solve_with_cbc(30.0)

    assert counts is not None
    assert np.all(problem.used(counts) <= problem.capacity)
    assert problem.load(problem.served(counts))[0] == pytest.approx(most)


@pytest.mark.parametrize("policy", [SaturationPolicy.NONE, SaturationPolicy.HOLD])
@pytest.mark.parametrize("seed", [3, 4, 8])
def test_where_highs_fails_the_plan_is_that_of_cbc(
    seed: int, policy: SaturationPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = random_fleet(Random(seed), 4, running=True)  # noqa: S311 - repeatable, no secret
    system = fleet.system(with_policy(policy))
    expected = optimize(system)

    def fail(*_: object) -> highspy.HighsModelStatus:
        return highspy.HighsModelStatus.kSolveError

    monkeypatch.setattr(Budget, "run_branch_and_bound", fail)
    plan = optimize(system)

    assert plan.certificate.objective == pytest.approx(expected.certificate.objective)
    assert [level.served for level in plan.certificate.levels] == pytest.approx(
        [level.served for level in expected.certificate.levels]
    )
    of_cards = "value of one more card: "  # which CBC does not tell
    assert [text for text in plan.certificate.failures if not text.startswith(of_cards)] == []


def test_where_cbc_is_not_installed_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cbcbox", None)  # Python's own way to hide a module

    with pytest.raises(SolverError, match=r"HiGHS failed.*install inferno-operator\[cbc\]"):
        served(0)[1].solve_with_cbc(1.0)


@pytest.mark.parametrize("policy", [SaturationPolicy.NONE, SaturationPolicy.PRIORITY_EXHAUSTIVE])
def test_the_file_for_another_solver_has_the_least_value_of_the_plan(
    policy: SaturationPolicy, tmp_path: Path
) -> None:
    fleet = random_fleet(Random(3), 6, running=False)  # noqa: S311 - repeatable, no secret
    system, path = fleet.system(with_policy(policy)), tmp_path / "plan.lp"
    solution = optimize(system)

    path.write_text(formulate_lp(system, solution))

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.readModel(str(path))
    solver.run()
    least = solver.getInfo().objective_function_value
    assert least == pytest.approx(solution.certificate.objective, abs=1e-3)
    assert "s0_" in path.read_text()
