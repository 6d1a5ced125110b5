"""One goal of the problem as a mixed integer program of PuLP's: to read, and for any solver.

Each server i has one column j at most, and replicas of it within the cards of each type t:

    chosen_j + stands_j summed over the columns of i <= 1     replicas_j <= most_j chosen_j
    cards_jt (replicas_j + now_j stands_j) summed over j <= capacity_t

`stands_j` are the replicas that stay as they are, which cost something else. What goals before it
reached are floors. The search needs programs in milliseconds and hands arrays to HiGHS itself;
this one is written to a file for somebody else's solver, and goes to CBC where HiGHS fails.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pulp

from inferno_optimizer.errors import SolverError
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.partial.goals import Floor, Goal, GoalKind, least_shares
from inferno_optimizer.solvers.partial.problem import ReplicaProblem

ROUNDING = 1e-9
"""Relative: what a sum may be below what it has to be."""


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
            if variable.varValue > ROUNDING:
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
    add, total = program.add_variable, pulp.lpSum
    columns = [*range(len(problem.case))]
    of_case = [np.flatnonzero(problem.case == case).tolist() for case in range(len(problem.cases))]

    chosen = [add(f"chosen_{name(j)}", 0, 1, "Integer") for j in columns]
    replicas = [add(f"replicas_{name(j)}", 0, int(problem.most[j]), "Integer") for j in columns]
    may_stand = np.flatnonzero((problem.stands > 0) & (problem.stands <= problem.most)).tolist()
    stands = {j: add(f"stands_{name(j)}", 0, 1, "Integer") for j in may_stand}
    amount = [
        replicas[j] + (int(problem.stands[j]) * stands[j] if j in stands else 0) for j in columns
    ]

    for mine in of_case:
        program += total([chosen[j] for j in mine] + [stands[j] for j in mine if j in stands]) <= 1
    for j in columns:
        program += replicas[j] <= int(problem.most[j]) * chosen[j]
    for (owners, counts), room in zip(problem.by_type, problem.capacity.tolist(), strict=True):
        needs = zip(owners.tolist(), counts.tolist(), strict=True)
        program += total(count * amount[j] for j, count in needs) <= room

    served = [total(float(problem.served_share[j]) * amount[j] for j in mine) for mine in of_case]
    held, entire = dict[int, pulp.LpVariable](), dict[int, pulp.LpVariable]()
    for case, mine in enumerate(of_case):
        if problem.held[case] > 0:
            held[case] = add(f"held_{case}", 0, float(problem.held[case]))
            program += held[case] <= total(amount[j] / float(problem.full[j]) for j in mine)
    if any(each.kind is GoalKind.ENTIRE for each in (goal, *(floor.goal for floor in floors))):
        for case in range(len(of_case)):
            entire[case] = add(f"entire_{case}", 0, 1, "Integer")
            program += entire[case] <= served[case] + ROUNDING

    def load(of: Goal) -> pulp.LpAffineExpression:
        shares = {GoalKind.HELD: held, GoalKind.ENTIRE: entire}.get(
            of.kind, dict(enumerate(served))
        )
        cases = np.flatnonzero(problem.level == of.level).tolist()
        return total(float(problem.weight[i]) * shares[i] for i in cases if i in shares)

    for floor in floors:
        if not floor.whole:
            program += load(floor.goal) >= floor.load * (1 - ROUNDING)
    for kind in GoalKind:
        least = least_shares(problem, floors, kind)
        shares = {GoalKind.HELD: held}.get(kind, dict(enumerate(served)))
        for case in np.flatnonzero(least > 0).tolist():
            program += shares[case] >= float(least[case]) * (1 - ROUNDING)

    if goal.kind is GoalKind.VALUE:
        costs = [problem.fixed[j] * chosen[j] + problem.unit[j] * replicas[j] for j in columns]
        program.setObjective(
            total(costs + [float(problem.standing[j]) * variable for j, variable in stands.items()])
        )
    else:
        program.setObjective(-load(goal))
    return Formulation(program, problem, replicas, stands)
