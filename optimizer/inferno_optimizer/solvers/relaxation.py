"""The linear relaxation of a goal: columns with amounts from 0 to 1, by column generation.

The restricted master gets the columns of the last goal and of the known plan. Pricing adds those of
all others with a negative reduced cost, at the multipliers that HiGHS finds, until there are none.
The multipliers prove a bound at any time: that of a Lagrangian relaxation [A. M. Geoffrion,
*Lagrangean relaxation for integer programming*, Mathematical Programming Study 2 (1974) 82-114].

A relaxation begins at the columns and the basis of the one that was solved last; one of many cases
at those of a sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import highspy
import numpy as np

from inferno_optimizer.sizing.demands import ROUNDING
from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.budget import UNLIMITED, Budget
from inferno_optimizer.solvers.goals import Floor, Goal, GoalKind, with_sum
from inferno_optimizer.solvers.problem import ReplicaProblem, rank_in_group
from inferno_optimizer.solvers.restricted_master import KINDS, RestrictedMaster, unit_of

OPTIMAL = highspy.HighsModelStatus.kOptimal
TOO_MANY_STEPS = highspy.HighsModelStatus.kIterationLimit
ENDED = (OPTIMAL, highspy.HighsModelStatus.kObjectiveBound)
"""How a run ends that tells multipliers. That there is less than is of use is then known of the
columns of the program only: others may improve it."""


@dataclass(frozen=True, slots=True)
class Vertex:
    """A best solution of the relaxation.

    Attributes
    ----------
    amounts
        Share of its case that each column serves, shape (columns,).
    bound
        No plan that keeps the floors has more of the goal; a value with its sign changed.
    lost
        What a whole share of each column loses of the goal, at the multipliers; (columns,).
    share
        What a whole share of each case is worth, shape (cases,).
    prices
        What a card of each type is worth, shape (types,).
    floor_prices
        What a unit of load of each floor costs of the goal, where the floor is a sum.
    missing
        What least shares and floors cannot have: no plan keeps them unless this is 0.
    gain
        What a column gains that serves all of a case, shape (cases,), without its value and what
        its cards are worth; minus infinity where the case does not matter.
    """

    amounts: FloatArray
    bound: float
    lost: FloatArray
    share: FloatArray
    prices: FloatArray
    floor_prices: Mapping[Goal, float]
    missing: float
    gain: FloatArray


AT_LOWER, BASIC, AT_UPPER = 0, 1, 2
"""What HiGHS calls a row or a column that is as small as it may be, one of the basis, and one that
is as large as it may be."""


@dataclass(frozen=True, slots=True)
class Basis:
    """Where a relaxation ended, as HiGHS tells it of all rows and columns that there could be."""

    rows: IntArray
    columns: IntArray
    cases: int
    count: int

    @classmethod
    def empty(cls, problem: ReplicaProblem) -> "Basis":
        """All columns at 0."""
        cases, floors = len(problem.cases), len(KINDS) * problem.levels
        rows = np.full(3 * cases + len(problem.capacity) + floors, BASIC)
        columns = np.zeros(2 * cases + len(problem.case) + floors, dtype=np.int64)
        return cls(rows, columns, cases, len(problem.case))

    def add_part(self, part: "Basis", cases: BoolArray, columns: BoolArray) -> "Basis":
        """The same where some cases, and what they share, are as in the relaxation of these alone.

        Parameters
        ----------
        part
            The basis of the relaxation of these cases.
        cases, columns
            Which cases and columns these are, of all; shape (cases,) and (columns,).
        """
        rows, all_columns = self.rows.copy(), self.columns.copy()
        first, of_part = 3 * self.cases, 3 * part.cases
        rows[:first].reshape(3, -1)[:, cases] = part.rows[:of_part].reshape(3, -1)
        rows[first:] = part.rows[of_part:]
        first, of_part = 2 * self.cases, 2 * part.cases
        all_columns[:first].reshape(2, -1)[:, cases] = part.columns[:of_part].reshape(2, -1)
        last, last_of_part = first + self.count, of_part + part.count
        all_columns[first:last][columns] = part.columns[of_part:last_of_part]
        all_columns[last:] = part.columns[last_of_part:]
        return replace(self, rows=rows, columns=all_columns)

    def move(self, place: IntArray, count: int) -> "Basis":
        """The same where the columns are at other places, of so many; new ones are at 0."""
        first, last = 2 * self.cases, 2 * self.cases + self.count
        columns = np.zeros(count, dtype=np.int64)
        columns[place] = self.columns[first:last]
        parts = (self.columns[:first], columns, self.columns[last:])
        return replace(self, columns=np.concatenate(parts), count=count)

    def add_columns(
        self, cases: IntArray, columns: IntArray, tight: IntArray, held: IntArray
    ) -> "Basis":
        """The same where each of these cases has one column.

        Parameters
        ----------
        cases, columns
            The cases, and the column of each.
        tight
            What ends at its limit of each of them: 0 the amount of the column, 1 the share that the
            case must have, 2 what is held of it.
        held
            Those of which all that runs is held.
        """
        rows, all_columns = self.rows.copy(), self.columns.copy()
        rows[tight * self.cases + cases] = np.where(tight == 0, AT_UPPER, AT_LOWER)
        all_columns[2 * self.cases + columns] = BASIC
        all_columns[held] = AT_UPPER
        return replace(self, rows=rows, columns=all_columns)

    @property
    def moved(self) -> BoolArray:
        """Columns that are not at 0, shape (columns,)."""
        first = 2 * self.cases
        moved: BoolArray = self.columns[first : first + self.count] != 0
        return moved


@dataclass(frozen=True, slots=True)
class Start:
    """Columns to begin with, shape (columns,), and a basis."""

    known: BoolArray
    basis: Basis


class Relaxation:
    """The relaxation of a goal that keeps floors.

    Parameters
    ----------
    problem, goal, floors
        What is maximized, and what is kept at first.
    start
        Columns and the basis to begin with.
    """

    def __init__(
        self,
        problem: ReplicaProblem,
        goal: Goal,
        floors: tuple[Floor, ...],
        start: Start,
    ) -> None:
        self.problem, self.goal, self.floors = problem, goal, floors
        self._program = program = RestrictedMaster(problem, goal, floors)
        self._active = (start.known | self._first_of_each_case()) & program.open
        self._order = np.flatnonzero(self._active)
        self._forbidden = np.zeros_like(program.open)
        self._lower, self._upper = np.zeros_like(program.limit), program.limit
        self._solver = program.solver(self._order)
        self._begin_at(start.basis)

    def solve(
        self,
        budget: Budget,
        forbidden: BoolArray | None = None,
        fixed: Mapping[int, float] = MappingProxyType({}),
        least: float = -np.inf,
        steps: int = UNLIMITED,
    ) -> Vertex | None:
        """Solve it; None where too little work remains, or there is no solution.

        Parameters
        ----------
        budget
            Work that remains.
        forbidden
            Columns that nobody has, shape (columns,).
        fixed
            Amounts of some columns.
        least
            A solution with less of the goal is none; but not each such solution is recognized.
        steps
            Steps of HiGHS at most until columns are added; None where it needs more.
        """
        self._solver.setOptionValue("objective_bound", -least / self._program.scale)
        self._bound(np.zeros_like(self._program.open) if forbidden is None else forbidden, fixed)
        best, vertex, params = np.inf, None, self.problem.params
        for _ in range(params.pricing_rounds):
            if budget.is_over:
                break
            status = budget.run_simplex(self._solver, steps)
            if status == TOO_MANY_STEPS and not budget.is_over:
                return None
            if status not in ENDED:
                break
            budget.spend(params.pricing * len(self._program.matrix.values))
            solution = self._solver.getSolution()
            duals = np.asarray(solution.row_dual)
            reduced = self._program.cost - self._program.matrix.combined(duals)
            outside = (
                self._program.open
                & ~self._active
                & ~self._forbidden
                & (reduced < -params.reduced_cost)
            )
            new = self._most_promising(reduced, outside)
            if status == OPTIMAL:
                objective = self._solver.getInfo().objective_function_value
                best = min(best, -(objective + self._still_possible(reduced, outside)))
                vertex = self._vertex(solution, best, reduced, duals)
            if not len(new):
                break
            self._activate(new)
        return vertex

    def _bound(self, forbidden: BoolArray, fixed: Mapping[int, float]) -> None:
        """Give each column its least and its largest amount."""
        lower, upper = (
            np.zeros_like(self._program.limit),
            np.where(forbidden, 0.0, self._program.limit),
        )
        columns = np.array([*fixed], dtype=np.int64)
        lower[columns] = upper[columns] = [*fixed.values()]
        differs = (lower != self._lower) | (upper != self._upper)
        changed = np.flatnonzero(differs[self._order])
        places, columns = (self._program.before + changed).astype(np.int32), self._order[changed]
        self._solver.changeColsBounds(len(changed), places, lower[columns], upper[columns])
        self._forbidden, self._lower, self._upper = forbidden, lower, upper

    def _activate(self, columns: IntArray) -> None:
        """Add columns to the program."""
        self._program.activate(self._solver, columns, self._upper)
        self._active[columns] = True
        self._order = np.append(self._order, columns)

    @property
    def open(self) -> BoolArray:
        """Columns that there may be, shape (columns,)."""
        return self._program.open

    @property
    def matter(self) -> BoolArray:
        """Cases that have a row, shape (cases,)."""
        return self._are(self._program.rows.cases)

    @property
    def must(self) -> BoolArray:
        """Cases that must have a share, shape (cases,)."""
        return self._are(self._program.rows.must)

    @property
    def least(self) -> FloatArray:
        """Amount of each column that its case must have if it has no other, shape (columns,)."""
        program, case = self._program, self.problem.case
        columns = np.flatnonzero(self._are(program.rows.least)[case])
        least = np.where(self.must[case], program.limit, 0.0)
        least[columns] = program.least[case[columns]] / program.towards_least(columns)
        return least

    @property
    def holds(self) -> BoolArray:
        """Cases of which it counts what is held, shape (cases,)."""
        return self._are(self._program.rows.holding)

    def _are(self, some: IntArray) -> BoolArray:
        """Which cases are among some, shape (cases,)."""
        among = np.zeros(len(self.problem.cases), dtype=np.bool_)
        among[some] = True
        return among

    def begin_at(self, start: Start) -> None:
        """Begin with these columns, besides those that it has, and at this basis."""
        self._activate(np.flatnonzero(start.known & self._program.open & ~self._active))
        self._begin_at(start.basis)

    def perturb(self, amount: float) -> None:
        """Let HiGHS change costs a little while it solves, so that equal ones differ.

        Without it a first solution may need thousands of steps that change nothing; with it many
        solutions in turn need more.
        """
        self._solver.setOptionValue("dual_simplex_cost_perturbation_multiplier", amount)

    @property
    def active(self) -> BoolArray:
        """Columns that the program has, shape (columns,)."""
        return self._active.copy()

    def keep(self, floors: tuple[Floor, ...]) -> None:
        """Change the loads of the floors, which are the same else."""
        self.floors = floors
        kinds = (GoalKind.HELD, GoalKind.SERVED, GoalKind.ENTIRE)
        sums = [floor for kind in kinds for floor in with_sum(floors, kind)]
        for place, floor in enumerate(sums):
            least = floor.load / unit_of(self.problem, floor)
            self._solver.changeRowBounds(self._program.rows.first_floor + place, least, np.inf)

    def basis(self) -> Basis:
        """Where the solver stands."""
        known = self._solver.getBasis()
        basis = Basis.empty(self.problem)
        basis.rows[self._program.row_keys()] = [int(status) for status in known.row_status]
        basis.columns[self._program.column_keys(self._order)] = [
            int(status) for status in known.col_status
        ]
        return basis

    def _begin_at(self, basis: Basis) -> None:
        """Begin where another relaxation ended, if that is possible."""
        rows, columns = (
            basis.rows[self._program.row_keys()],
            basis.columns[self._program.column_keys(self._order)],
        )
        if np.count_nonzero(rows == BASIC) + np.count_nonzero(columns == BASIC) != len(rows):
            return
        start = highspy.HighsBasis()
        start.valid = True
        start.row_status = [highspy.HighsBasisStatus(status) for status in rows.tolist()]
        start.col_status = [highspy.HighsBasisStatus(status) for status in columns.tolist()]
        self._solver.setBasis(start)

    def _first_of_each_case(self) -> BoolArray:
        """The column of each case that takes the smallest part of the cards that there are."""
        problem = self.problem
        part = problem.scarcest_part
        columns = np.flatnonzero(self._program.open)
        columns = columns[np.lexsort((part[columns], problem.case[columns]))]
        first = np.zeros(len(problem.case), dtype=np.bool_)
        first[columns[np.flatnonzero(np.diff(problem.case[columns], prepend=-1))]] = True
        return first

    def _still_possible(self, reduced: FloatArray, outside: BoolArray) -> float:
        """What columns that are not in the program could still improve, at most one a case."""
        columns = np.flatnonzero(outside)
        least = np.zeros(len(self.problem.cases))
        np.minimum.at(least, self.problem.case[columns], reduced[columns])
        return float(least.sum())

    def _most_promising(self, reduced: FloatArray, outside: BoolArray) -> IntArray:
        """The columns that improve the most, a few of each case."""
        columns = np.flatnonzero(outside)
        case = self.problem.case[columns]
        order = np.lexsort((reduced[columns], case))
        return columns[order][rank_in_group(case[order]) < self.problem.params.columns_per_case]

    def _vertex(
        self,
        solution: highspy.HighsSolution,
        bound: float,
        reduced: FloatArray,
        duals: FloatArray,
    ) -> Vertex:
        problem, program, scale = self.problem, self._program, self._program.scale
        amounts = np.zeros(len(problem.case))
        values = np.asarray(solution.col_value)
        short, first = len(program.rows.holding), program.before
        amounts[self._order] = values[first:]
        share = np.zeros(len(problem.cases))
        share[program.rows.cases] = -duals[: len(program.rows.cases)] * scale
        types = duals[program.rows.first_type : program.rows.first_floor]
        lost = np.where(program.open, reduced, np.inf)
        missing = float(values[short:first].sum())
        floors = duals[program.rows.first_floor :].tolist()
        floor_prices = {
            floor.goal: price * scale / unit_of(problem, floor)
            for floor, price in zip(program.sums, floors, strict=True)
        }
        return Vertex(
            amounts,
            bound * scale,
            lost * scale,
            share,
            -types * scale,
            floor_prices,
            missing,
            program.gain_of_all(duals) * scale,
        )


@dataclass(frozen=True, slots=True)
class SampledProblem:
    """The problem of a sample.

    Attributes
    ----------
    problem, whole
        The problem of the sample, whose small cases stand for several, and that of all.
    cases
        Which cases of the whole belong to it, shape (cases,).
    """

    problem: ReplicaProblem
    whole: ReplicaProblem
    cases: BoolArray

    @classmethod
    def of(cls, problem: ReplicaProblem, matter: BoolArray) -> "SampledProblem":
        """A sample of the cases that matter, and one case of each level.

        Parameters
        ----------
        problem, matter
            The whole, and the cases that a goal or a floor counts; shape (cases,).
        """
        stands_for = _stands_for(problem, matter)
        cases = stands_for > 0
        alone = problem.of_cases(cases, problem.capacity)
        times = stands_for[cases]
        of_column = times[alone.case]
        several = replace(
            alone,
            most=alone.most * of_column,
            full=alone.full * of_column,
            runs=alone.runs * of_column,
            stands=alone.stands * of_column,
            weight=alone.weight * times,
        )
        return cls(several, problem, cases)

    def relaxation(self, goal: Goal, floors: tuple[Floor, ...]) -> Relaxation:
        """That of the sample, whose floors are as large a part of all load as in the whole."""
        nothing = np.zeros(len(self.problem.case), dtype=np.bool_)
        part = tuple(replace(floor, load=self._part(floor)) for floor in floors)
        return Relaxation(self.problem, goal, part, Start(nothing, Basis.empty(self.problem)))

    def _part(self, floor: Floor) -> float:
        most = floor.goal.most(self.whole)
        return floor.load * floor.goal.most(self.problem) / most if most > 0 else floor.load

    def start(self, sampled: Relaxation, vertex: Vertex, whole: Relaxation) -> Start:
        """Where the relaxation of all begins: the columns that are the best at the same prices.

        Parameters
        ----------
        sampled, vertex
            The relaxation of the sample, and its best vertex.
        whole
            The relaxation of all.
        """
        problem, of_sample = self.whole, self.whole.columns_of(self.cases)
        basis = Basis.empty(problem).add_part(sampled.basis(), self.cases, of_sample)
        offers = Offers.of(whole, vertex)
        gain = offers.gain
        order = np.lexsort((-gain, problem.case))
        rank = rank_in_group(problem.case[order])
        known = np.zeros(len(order), dtype=np.bool_)
        known[order[rank < problem.params.sample_columns]] = True
        known[of_sample] |= sampled.basis().moved | (vertex.amounts > 0)
        best = order[rank == 0]
        case = problem.case[best]
        taken = np.isfinite(gain[best]) & ((gain[best] > 0) | whole.must[case])
        best = best[taken & whole.matter[case] & ~self.cases[case]]
        case, holds = problem.case[best], offers.holds_all[best]
        basis = basis.add_columns(case, best, offers.tight[best], case[holds])
        return Start(known & np.isfinite(gain), basis)


@dataclass(frozen=True, slots=True)
class Offers:
    """What each column gains at prices, as much as is best of it; arrays of shape (columns,).

    Attributes
    ----------
    gain
        Of the goal; minus infinity where the relaxation does not have the column.
    tight
        What ends there at its limit, as `Basis.add_columns` has it: a part of what there may be
        is best where more costs more than it serves.
    holds_all
        Whether it counts what is held, and all that runs is.
    """

    gain: FloatArray
    tight: IntArray
    holds_all: BoolArray

    @classmethod
    def of(cls, relaxation: Relaxation, vertex: Vertex) -> "Offers":
        """At the prices of a vertex, which may be that of another relaxation."""
        problem = relaxation.problem
        held, slope = _per_share(relaxation, vertex)
        runs = np.where(relaxation.holds, problem.held, 0.0)[problem.case]
        per_amount = np.minimum(runs * problem.full, 1.0)
        limit, least = problem.most / problem.full, relaxation.least
        to_hold = np.divide(runs, per_amount, out=np.zeros_like(runs), where=per_amount > 0)
        wanted = np.where(slope < 0, np.maximum(least, to_hold), limit)
        amount = np.minimum(wanted, limit)
        holding = np.minimum(per_amount * amount, runs)
        tight = np.where(amount >= limit, 0, np.where(least >= to_hold, 1, 2))
        gain = np.where(relaxation.open, slope * amount + held * holding, -np.inf)
        return cls(gain, tight, (runs > 0) & (holding >= runs * (1 - ROUNDING)))


def _per_share(relaxation: Relaxation, vertex: Vertex) -> tuple[FloatArray, FloatArray]:
    """What a share that is held of each column gains; and an amount of it, without that."""
    problem, goal = relaxation.problem, relaxation.goal
    prices = dict(vertex.floor_prices)
    held, served = np.zeros(problem.levels), np.zeros(problem.levels)
    if goal.kind is not GoalKind.VALUE:
        prices[goal] = prices.get(goal, 0.0) + 1.0
    for of, price in prices.items():
        (held if of.kind is GoalKind.HELD else served)[of.level] += price
    level, weight = problem.level[problem.case], problem.weight[problem.case]
    slope = np.where(problem.serves, weight * served[level], 0.0)
    if goal.kind is GoalKind.VALUE:
        slope -= problem.least_value * problem.full
    entries = problem.cards
    cards = entries.count * problem.full[entries.owner]
    slope -= np.bincount(entries.owner, vertex.prices[entries.type] * cards, len(slope))
    return weight * held[level], slope


def _stands_for(problem: ReplicaProblem, matter: BoolArray) -> IntArray:
    """For how many cases each one stands, 0 where it is not in the sample; shape (cases,)."""
    large, most = problem.params.sample_large, problem.params.sample
    size = np.where(matter, _smallest_part(problem), -1.0)
    order = np.argsort(-size, kind="stable")
    others = order[large : np.count_nonzero(matter)]
    others = others[np.argsort(problem.level[others], kind="stable")]
    each = max(-(-len(others) // (most - large)), 1)
    stands_for = np.zeros(len(problem.cases), dtype=np.int64)
    stands_for[np.unique(problem.level, return_index=True)[1]] = 1
    stands_for[others[each // 2 :: each]] = each
    stands_for[order[:large]] = 1
    return stands_for


def _smallest_part(problem: ReplicaProblem) -> FloatArray:
    """Part of the cards of a type that each case takes at least, shape (cases,); else minus 1."""
    entries, capacity = problem.cards, np.maximum(problem.capacity, 1)
    part = problem.most[entries.owner] * entries.count / capacity[entries.type]
    of_column = np.bincount(entries.owner, part, len(problem.case))
    least = np.full(len(problem.cases), np.inf)
    np.minimum.at(least, problem.case, of_column)
    return np.where(np.isfinite(least), least, -1.0)


class WarmStart:
    """Where the next relaxation begins.

    Parameters
    ----------
    problem
        The columns that relaxations may have.
    """

    def __init__(self, problem: ReplicaProblem) -> None:
        nothing = np.zeros(len(problem.case), dtype=np.bool_)
        self._start = Start(nothing, Basis.empty(problem))
        self._params = problem.params

    def move(self, place: IntArray, count: int) -> None:
        """The columns are at other places now, of so many."""
        known = np.zeros(count, dtype=np.bool_)
        known[place] = self._start.known
        self._start = Start(known, self._start.basis.move(place, count))

    def relaxation(
        self, problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...], counts: IntArray
    ) -> Relaxation:
        """The relaxation of a goal, which begins with the columns of a plan, too."""
        start = replace(self._start, known=self._start.known | (counts > 0))
        return Relaxation(problem, goal, floors, start)

    def solve(self, relaxation: Relaxation, budget: Budget) -> Vertex | None:
        """The best vertex; the next relaxation begins there."""
        many = int(np.count_nonzero(relaxation.matter)) >= self._params.sampled_from
        vertex = relaxation.solve(budget, steps=self._params.few_steps if many else UNLIMITED)
        if vertex is None and many:
            vertex = _near_sample(relaxation, budget)
        if vertex is not None:
            basis = relaxation.basis()
            self._start = Start((vertex.amounts > 0) | basis.moved, basis)
        return vertex


def _near_sample(relaxation: Relaxation, budget: Budget) -> Vertex | None:
    """The best vertex, from that of a sample; None where too little work remains."""
    params = relaxation.problem.params
    sample = SampledProblem.of(relaxation.problem, relaxation.matter)
    sampled = sample.relaxation(relaxation.goal, relaxation.floors)
    vertex = sampled.solve(budget)
    if vertex is None:
        return relaxation.solve(budget)
    relaxation.begin_at(sample.start(sampled, vertex, relaxation))
    # Where all of a load can be had, its costs are of no use: most steps change nothing.
    if vertex.bound < relaxation.goal.most(sample.problem) * (1 - params.solved):
        found = relaxation.solve(budget, steps=params.sample_steps)
        if found is not None:
            return found
    relaxation.perturb(1.0)
    found = relaxation.solve(budget)
    relaxation.perturb(0.0)
    return found
