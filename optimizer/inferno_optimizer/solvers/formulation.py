"""One goal of the problem as a mixed integer program of PuLP's: to read, and for any solver.

Each server i has one column j at most, and replicas of it within the cards of each type t:

    chosen_j + stands_j summed over the columns of i <= 1     replicas_j <= most_j chosen_j
    cards_jt (replicas_j + now_j stands_j) summed over j <= capacity_t

`stands_j` are the replicas that stay as they are, which cost something else. What goals before it
reached are floors. The search needs programs in milliseconds and hands arrays to HiGHS itself;
this one is written to a file for somebody else's solver, and goes to CBC where HiGHS fails.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pulp

from inferno_optimizer.errors import SolverError
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW
from inferno_optimizer.solvers.goals import Floor, Goal, GoalKind, least_shares
from inferno_optimizer.solvers.loads import find_loads, loads_wanted, priorities_of
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.running import Running


@dataclass(frozen=True, slots=True)
class Formulation:
    """A program, and its variables by column; `stands` only where something may stay as it is."""

    program: pulp.LpProblem
    problem: ReplicaProblem
    replicas: list[pulp.LpVariable]
    stands: dict[int, pulp.LpVariable]

    def solve_with_cbc(self, seconds: float) -> IntArray | None:
        """Return the plan that CBC finds, shape (columns,); None where it finds none in time.

        Raises
        ------
        SolverError
            CBC is not installed, or fails.
        """
        try:
            import cbcbox  # noqa: PLC0415 - 600 MB that most installations do without
        except ModuleNotFoundError as missing:
            hint = "HiGHS failed, and CBC is not installed: install inferno-operator[cbc]"
            raise SolverError(hint) from missing
        path = str(cbcbox.cbc_bin_path())
        cbc = pulp.COIN_CMD(path=path, msg=False, threads=1, timeLimit=seconds, gapRel=0.0)
        try:
            self.program.solve(cbc)
        except pulp.PulpSolverError as error:
            raise SolverError(f"HiGHS failed, and so does CBC: {error}") from error
        known = (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
        if self.program.sol_status not in known:
            return None
        counts = np.rint([each.varValue or 0.0 for each in self.replicas]).astype(np.int64)
        for column, variable in self.stands.items():
            if variable.varValue > self.problem.params.rounding:
                counts[column] = self.problem.stands[column]
        return counts


def formulate(
    problem: ReplicaProblem,
    goal: Goal,
    floors: tuple[Floor, ...],
    name: Callable[[int], str] = str,
) -> Formulation:
    """Formulate a goal that keeps floors; `name` tells what a column is called."""
    program = pulp.LpProblem(str(goal).replace(" ", "_"), pulp.LpMinimize)
    chosen, replicas, stands = _add_columns(program, problem, name)
    amount = [
        variable + (int(problem.stands[j]) * stands[j] if j in stands else 0)
        for j, variable in enumerate(replicas)
    ]
    for (owners, counts), room in zip(problem.by_type, problem.capacity.tolist(), strict=True):
        needs = zip(owners.tolist(), counts.tolist(), strict=True)
        program += pulp.lpSum(count * amount[j] for j, count in needs) <= room
    is_entire = GoalKind.ENTIRE in {goal.kind, *(floor.goal.kind for floor in floors)}
    shares = _add_shares(program, problem, amount, is_entire=is_entire)
    _keep_floors(program, problem, floors, shares)
    if goal.kind is GoalKind.VALUE:
        costs = [
            fixed * has + unit * count
            for fixed, has, unit, count in zip(
                problem.fixed, chosen, problem.unit, replicas, strict=True
            )
        ]
        standing = [float(problem.standing[j]) * variable for j, variable in stands.items()]
        program.setObjective(pulp.lpSum(costs + standing))
    else:
        program.setObjective(-_load(problem, goal, shares))
    return Formulation(program, problem, replicas, stands)


def _add_columns(
    program: pulp.LpProblem, problem: ReplicaProblem, name: Callable[[int], str]
) -> tuple[list[pulp.LpVariable], list[pulp.LpVariable], dict[int, pulp.LpVariable]]:
    """Whether a column is chosen, its replicas, and whether it stands; one of each case."""
    add, columns = program.add_variable, [*range(len(problem.case))]
    chosen = [add(f"chosen_{name(j)}", 0, 1, "Integer") for j in columns]
    replicas = [add(f"replicas_{name(j)}", 0, int(problem.most[j]), "Integer") for j in columns]
    may_stand = np.flatnonzero((problem.stands > 0) & (problem.stands <= problem.most)).tolist()
    stands = {j: add(f"stands_{name(j)}", 0, 1, "Integer") for j in may_stand}
    for mine in _columns_by_case(problem):
        has = [chosen[j] for j in mine] + [stands[j] for j in mine if j in stands]
        program += pulp.lpSum(has) <= 1
    for j in columns:
        program += replicas[j] <= int(problem.most[j]) * chosen[j]
    return chosen, replicas, stands


def _columns_by_case(problem: ReplicaProblem) -> list[list[int]]:
    cases = range(len(problem.cases))
    return [np.flatnonzero(problem.case == case).tolist() for case in cases]


Shares = Mapping[GoalKind, Mapping[int, pulp.LpAffineExpression]]
"""Share of each case that is held, served, or served entirely."""


def _add_shares(
    program: pulp.LpProblem,
    problem: ReplicaProblem,
    amount: Sequence[pulp.LpAffineExpression],
    *,
    is_entire: bool,
) -> Shares:
    """What counts of each case, by the amounts of columns; entire shares where they matter."""
    add, of_case = program.add_variable, _columns_by_case(problem)
    served = {
        case: pulp.lpSum(float(problem.served_share[j]) * amount[j] for j in mine)
        for case, mine in enumerate(of_case)
    }
    held = {
        case: add(f"held_{case}", 0, float(problem.held[case]))
        for case in np.flatnonzero(problem.held > 0).tolist()
    }
    for case, share in held.items():
        program += share <= pulp.lpSum(amount[j] / float(problem.full[j]) for j in of_case[case])
    entire = served
    if is_entire:
        entire = {case: add(f"entire_{case}", 0, 1, "Integer") for case in served}
        for case, share in entire.items():
            program += share <= served[case] + problem.params.rounding
    return {
        GoalKind.HELD: held,
        GoalKind.SERVED: served,
        GoalKind.ENTIRE: entire,
        GoalKind.VALUE: served,
    }


def formulate_least_value(
    candidates: Candidates, capacity: IntArray, served: Mapping[int, float]
) -> pulp.LpProblem:
    """Formulate the least value that serves so much load of each priority [requests/min]."""
    problem = ReplicaProblem.of(candidates, capacity, Running.of(candidates))
    others = np.setdiff1d(candidates.pairs.case[candidates.usable], problem.cases)
    wanted, besides = loads_wanted(candidates), find_loads(candidates, others.tolist())
    floors = tuple(
        Floor(Goal(GoalKind.SERVED, level), load - besides[priority], whole=False)
        for level, priority in enumerate(priorities_of(candidates, problem.cases))
        for load in (served.get(priority, wanted[priority]),)
    )
    accelerators = [accelerator.name for accelerator in candidates.system.accelerators]

    def name(column: int) -> str:
        row, case = int(problem.row[column]), int(problem.cases[problem.case[column]])
        on = "as_it_is" if row == NO_ROW else accelerators[candidates.pairs.accelerator[row]]
        return f"{column}_{candidates.cases[case].server.name}_{on}"

    return formulate(problem, Goal(GoalKind.VALUE, problem.levels - 1), floors, name).program


def _keep_floors(
    program: pulp.LpProblem, problem: ReplicaProblem, floors: tuple[Floor, ...], shares: Shares
) -> None:
    for floor in floors:
        if not floor.whole:
            program += _load(problem, floor.goal, shares) >= floor.load * (
                1 - problem.params.rounding
            )
    for kind in GoalKind:
        least = least_shares(problem, floors, kind)
        for case in np.flatnonzero(least > 0).tolist():
            program += shares[kind][case] >= float(least[case]) * (1 - problem.params.rounding)


def _load(problem: ReplicaProblem, goal: Goal, shares: Shares) -> pulp.LpAffineExpression:
    """The load of a level that a goal counts."""
    cases, share = np.flatnonzero(problem.level == goal.level).tolist(), shares[goal.kind]
    return pulp.lpSum(float(problem.weight[case]) * share[case] for case in cases if case in share)
