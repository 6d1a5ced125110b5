"""Large neighbourhood search: parts of the problem are solved again, all others are as they are.

A part is a restricted mixed integer program of the columns that are open [P. Shaw, *Using
constraint programming and local search methods to solve vehicle routing problems*, CP 1998]. The
parts lie around the incumbent, around a vertex of the relaxation (RENS) [T. Berthold, *RENS: the
optimal rounding*, Mathematical Programming Computation 6 (2014) 33-54], or between both (RINS)
[E. Danna, E. Rothberg, C. Le Pape, *Exploring relaxation induced neighborhoods to improve MIP
solutions*, Mathematical Programming 102 (2005) 71-90]. Cases that lose the least by a change, as
the multipliers say, are open first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np

from inferno_optimizer.errors import SolverError
from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.goals import (
    Floor,
    Goal,
    GoalKind,
    least_of,
    least_shares,
    levels_of,
    with_sum,
)
from inferno_optimizer.solvers.incumbent import Incumbent
from inferno_optimizer.solvers.mixes import MixTable
from inferno_optimizer.solvers.problem import ReplicaProblem, rank_in_group
from inferno_optimizer.solvers.relaxation import Vertex
from inferno_optimizer.solvers.rounding import keep_whole
from inferno_optimizer.solvers.sparse import Entries, SparseMatrix

COVER = 1e3
"""Shares of mixes count in thousandths: HiGHS lets a row be short by more than we do."""

FEASIBLE_POINT = 2
"""HiGHS's word for a solution that satisfies every constraint."""

FAILURES = (
    highspy.HighsModelStatus.kModelError,
    highspy.HighsModelStatus.kPresolveError,
    highspy.HighsModelStatus.kSolveError,
    highspy.HighsModelStatus.kPostsolveError,
)


@dataclass(frozen=True, slots=True)
class Opening:
    """Columns that are open, and replicas of all others; arrays of shape (columns,).

    Cases with open columns may have any mix of the items of a table, too, in which a case has the
    position that it has in the problem. `least` is the same with prices of cards, where the value
    of nothing is what any mix costs at least.
    """

    columns: BoolArray
    counts: IntArray
    items: MixTable | None = None
    least: MixTable | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A plan, if any was found in time; `bound` holds among the plans of the opening.

    `mixes` are replicas of the items that are open, 0 of cases that have columns.
    """

    counts: IntArray | None
    bound: float
    mixes: IntArray | None = None


def solve_opening(
    problem: ReplicaProblem,
    goal: Goal,
    floors: tuple[Floor, ...],
    opening: Opening,
    known: IntArray,
    budget: Budget,
    gap: float = 0.0,
) -> Found:
    """The plan of an opening that reaches most of a goal and keeps the floors.

    Parameters
    ----------
    problem, goal, floors
        What is maximized, and what is kept.
    opening
        Cases with an open column have nothing else.
    known
        A plan that keeps the floors, from which to begin if it is one of the opening.
    budget, gap
        When to stop; the gap in units of the goal.

    Raises
    ------
    SolverError
        HiGHS fails.
    """
    return _Program(problem, goal, floors, opening).solve(known, budget, gap)


@dataclass
class _Model:
    """Variables and constraints, added one kind after the other."""

    cost: list[FloatArray] = field(default_factory=list)
    most: list[FloatArray] = field(default_factory=list)
    entries: list[Entries] = field(default_factory=list)
    lower: list[FloatArray] = field(default_factory=list)
    upper: list[FloatArray] = field(default_factory=list)
    variables: int = 0
    rows: int = 0

    def add(self, cost: FloatArray, most: FloatArray) -> IntArray:
        """Add variables from 0; returns their places."""
        self.cost.append(cost)
        self.most.append(most)
        self.variables += len(cost)
        return np.arange(self.variables - len(cost), self.variables)

    def keep(self, lower: FloatArray, upper: FloatArray, entries: Iterable[Entries]) -> None:
        """Add constraints; their entries count rows from 0."""
        self.entries += [(rows + self.rows, columns, values) for rows, columns, values in entries]
        self.lower.append(lower)
        self.upper.append(upper)
        self.rows += len(lower)

    def of_highs(self, continuous: IntArray) -> highspy.HighsLp:
        """The same as HiGHS takes it; all other variables are whole."""
        model = highspy.HighsLp()
        SparseMatrix.of((self.rows, self.variables), self.entries).put_into(model)
        model.col_cost_ = np.concatenate(self.cost)
        model.col_lower_ = np.zeros(self.variables)
        model.col_upper_ = np.concatenate(self.most)
        model.row_lower_ = np.concatenate(self.lower)
        model.row_upper_ = np.concatenate(self.upper)
        kinds = np.full(self.variables, highspy.HighsVarType.kInteger)
        kinds[continuous] = highspy.HighsVarType.kContinuous
        model.integrality_ = list(kinds)
        return model


class _Program:
    """Variables: replicas, choices, columns that stand as they are, held and entire shares."""

    def __init__(
        self, problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...], opening: Opening
    ) -> None:
        self._problem, self._goal, self._floors = problem, goal, floors
        self._table, self._least = opening.items, opening.least
        self._open = columns = np.flatnonzero(opening.columns & (problem.most > 0))
        cases = np.zeros(len(problem.cases), dtype=np.bool_)
        cases[problem.case[opening.columns]] = True
        if self._table is not None:
            cases[self._table.case] = True
        self._cases = np.flatnonzero(cases)
        self._fixed = np.where(problem.columns_of(cases), 0, opening.counts)
        costs = problem.weight[self._cases]
        if goal.kind is GoalKind.VALUE:
            costs = np.abs(problem.fixed[columns]) + problem.unit[columns] * problem.most[columns]
        self._scale = float(costs.max(initial=0.0)) or 1.0
        self._model = _Model()
        self._add_columns()
        self._holding_cases, self._holding = self._add_shares(GoalKind.HELD, problem.held)
        every = np.ones(len(problem.cases))
        self._entire_cases, self._entire = self._add_shares(GoalKind.ENTIRE, every)
        if self._table is not None:
            self._add_items(self._table)
        self._add_constraints()

    def solve(self, known: IntArray, budget: Budget, gap: float) -> Found:
        """Run HiGHS."""
        solver = highspy.Highs()
        for option, setting in {
            "output_flag": False,
            "threads": 1,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": max(gap, 0.0) / self._scale,
        }.items():
            solver.setOptionValue(option, setting)
        solver.passModel(self._model.of_highs(continuous=self._holding))
        closed = np.ones(len(self._fixed), dtype=np.bool_)
        closed[self._open] = False
        if np.array_equal(known[closed], self._fixed[closed]):
            start = highspy.HighsSolution()
            start.col_value = self._values(known)
            solver.setSolution(start)
        status = budget.run_branch_and_bound(
            solver, None if self._table is None else self._problem.params.mix_look
        )
        if status in FAILURES:
            raise SolverError(f"HiGHS fails: {status.name}")
        info = solver.getInfo()
        fixed_worth = self._goal.worth(self._problem, self._fixed)
        bound = -info.mip_dual_bound * self._scale + fixed_worth
        if status == highspy.HighsModelStatus.kInfeasible:
            return Found(None, -np.inf)
        if info.primal_solution_status != FEASIBLE_POINT:
            return Found(None, bound)
        values = np.asarray(solver.getSolution().col_value)
        return Found(self._counts(values), bound, self._mixes(values))

    def _add_columns(self) -> None:
        """Replicas of open columns, whether one is chosen, and whether it stands as it is."""
        problem, goal, columns = self._problem, self._goal, self._open
        valued, nothing = goal.kind is GoalKind.VALUE, np.zeros(len(columns))
        self._place = np.searchsorted(self._cases, problem.case[columns])
        several = np.bincount(self._place, minlength=len(self._cases))[self._place] > 1
        if self._table is not None:
            several |= np.isin(problem.case[columns], self._table.case)
        # What stands as it is has a variable of its own where it costs something else.
        stands = problem.stands[columns]
        usual = problem.fixed[columns] + problem.unit[columns] * stands
        differs = np.abs(usual - problem.standing[columns]) > problem.params.rounding * np.maximum(
            usual, 1.0
        )
        self._standing = (stands > 0) & differs & (stands <= problem.most[columns]) & valued
        self._choosing = several | self._standing | (valued & (problem.fixed[columns] != 0))
        cost = nothing
        if valued:
            cost = problem.unit[columns] / self._scale
        elif goal.kind is GoalKind.SERVED:
            of_goal = problem.level[problem.case[columns]] == goal.level
            share = problem.served_share[columns] * problem.weight[problem.case[columns]]
            cost = np.where(of_goal, -share, 0.0) / self._scale
        add = self._model.add
        self._replicas = add(cost, problem.most[columns].astype(np.float64))
        fixed = problem.fixed[columns] / self._scale if valued else nothing
        self._choice = add(fixed[self._choosing], np.ones(np.count_nonzero(self._choosing)))
        standing = problem.standing[columns[self._standing]] / self._scale
        self._stand = add(standing, np.ones(len(standing)))
        stand_of_column = np.full(len(columns), -1)
        stand_of_column[self._standing] = self._stand
        # The variables of each open column, and the replicas for which they stand.
        self._amounts = ((self._replicas, nothing + 1.0), (stand_of_column, nothing + stands))

    def _add_shares(self, kind: GoalKind, most: FloatArray) -> tuple[IntArray, IntArray]:
        """Shares of the open cases of levels of which a sum of a kind matters; the cases, too."""
        problem, goal = self._problem, self._goal
        levels = [floor.goal.level for floor in with_sum(self._floors, kind)]
        if goal.kind is kind:
            levels.append(goal.level)
        cases = self._cases[np.isin(problem.level[self._cases], levels)]
        of_goal = (problem.level[cases] == goal.level) & (goal.kind is kind)
        cost = np.where(of_goal, -problem.weight[cases] / self._scale, 0.0)
        return cases, self._model.add(cost, most[cases])

    def _add_items(self, table: MixTable) -> None:
        """Replicas of items, whether a case is served by them, and which ones go on to run."""
        goal, problem, add = self._goal, self._problem, self._model.add
        valued, (place, item) = goal.kind is GoalKind.VALUE, np.nonzero(table.most > 0)
        of_goal = (problem.level[table.case] == goal.level) & (goal.kind is GoalKind.SERVED)
        worth = table.base if valued else np.where(of_goal, -problem.weight[table.case], 0.0)
        self._mixing = add(worth / self._scale, np.ones(len(worth)))
        unit = table.unit[place, item] if valued else np.zeros(len(place))
        self._items = add(unit / self._scale, table.most[place, item].astype(np.float64))
        stop = table.stop[place, item]
        self._goes_on = np.flatnonzero((stop > 0) & valued)
        self._going_on = add(-stop[self._goes_on] / self._scale, np.ones(len(self._goes_on)))

    def _add_constraints(self) -> None:
        problem, keep = self._problem, self._model.keep
        count, cases = np.count_nonzero(self._choosing), len(self._cases)
        most = problem.most[self._open][self._choosing].astype(np.float64)
        links = np.arange(count)
        keep(
            np.full(count, -np.inf),
            np.zeros(count),
            (
                (links, self._replicas[self._choosing], np.ones(count)),
                (links, self._choice, -most),
            ),
        )
        keep(
            np.full(cases, -np.inf),
            np.ones(cases),
            (
                (self._place[self._choosing], self._choice, np.ones(count)),
                (self._place[self._standing], self._stand, np.ones(len(self._stand))),
                self._by_mixes(self._rows_of(self._cases)),
            ),
        )
        if self._table is not None:
            self._add_covers(self._table)
        self._add_least(1.0 / problem.full, (GoalKind.HELD,))
        self._add_least(problem.served_share, (GoalKind.SERVED, GoalKind.ENTIRE))
        for shares, sharing, share in (
            (self._holding, self._holding_cases, 1.0 / problem.full),
            (self._entire, self._entire_cases, problem.served_share),
        ):
            lower = np.full(len(sharing), -problem.params.rounding)
            of_shares = np.arange(len(sharing)), shares, np.full(len(sharing), -1.0)
            keep(lower, lower + np.inf, [*self._shares(sharing, share), of_shares])
        self._add_cards()
        for floor in self._floors:
            if not floor.whole:
                self._add_floor(floor)

    def _rows_of(self, cases: IntArray) -> IntArray:
        """The row of each case where some have one after the other; -1 for others."""
        place = np.full(len(self._problem.cases), -1)
        place[cases] = np.arange(len(cases))
        return place

    def _shares(self, cases: IntArray, share: FloatArray) -> list[Entries]:
        """What columns and mixes serve of cases, one row for each of them."""
        rows = self._rows_of(cases)
        of_columns = self._by_columns(rows[self._problem.case[self._open]], share[self._open])
        return [*of_columns, self._by_mixes(rows)]

    def _by_columns(self, rows: IntArray, each: FloatArray) -> Iterator[Entries]:
        """What a replica of each open column adds to a row, if that is not negative."""
        for variable, replicas in self._amounts:
            some = (rows >= 0) & (variable >= 0)
            yield rows[some], variable[some], (each * replicas)[some]

    def _by_mixes(self, row: IntArray, share: FloatArray | None = None) -> Entries:
        """What mixes serve of cases, shape (cases,), each in a row if that is not negative."""
        if self._table is None:
            nothing = np.zeros(0, dtype=np.int64)
            return nothing, nothing, np.zeros(0)
        rows = row[self._table.case]
        some = rows >= 0
        values = np.ones(len(row)) if share is None else share
        return rows[some], self._mixing[some], values[self._table.case[some]]

    def _add_covers(self, table: MixTable) -> None:
        """Items carry the load of a case that has a mix, and are as many as its floor."""
        place, item = np.nonzero(table.most > 0)
        rows, nothing = np.arange(len(table.case)), np.zeros(len(table.case))
        share = np.minimum(table.share, table.need[:, None])[place, item]
        for each, least in (
            (share * COVER, table.need * COVER),
            (np.ones(len(place)), table.floor.astype(np.float64)),
        ):
            lower = (place, self._items, each), (rows, self._mixing, -least)
            self._model.keep(nothing, nothing + np.inf, lower)
        if self._least is not None:
            paid, least = self._least, (self._least.base - table.base) / self._scale
            least -= self._problem.params.rounding * (1.0 + np.abs(least))
            unit = paid.unit[place, item] / self._scale
            stop = paid.stop[place, item][self._goes_on] / self._scale
            costs = (
                (place, self._items, unit),
                (place[self._goes_on], self._going_on, -stop),
                (rows, self._mixing, -least),
            )
            self._model.keep(nothing, nothing + np.inf, costs)
        rows, nothing = np.arange(len(self._goes_on)), np.zeros(len(self._goes_on))
        for has in (self._items[self._goes_on], self._mixing[place[self._goes_on]]):
            entries = (rows, has, nothing + 1.0), (rows, self._going_on, nothing - 1.0)
            self._model.keep(nothing, nothing + np.inf, entries)

    def _add_least(self, share: FloatArray, kinds: tuple[GoalKind, ...]) -> None:
        problem = self._problem
        least = np.maximum.reduce([least_shares(problem, self._floors, kind) for kind in kinds])
        cases = self._cases[least[self._cases] > 0]
        lower = least[cases] * (1 - problem.params.rounding)
        self._model.keep(lower, np.full(len(cases), np.inf), self._shares(cases, share))

    def _add_cards(self) -> None:
        problem, cards = self._problem, self._problem.cards
        place = np.full(len(problem.case), -1)
        place[self._open] = np.arange(len(self._open))
        some = place[cards.owner] >= 0
        card_type, column, count = cards.type[some], place[cards.owner[some]], cards.count[some]
        entries = list[Entries]()
        for variable, replicas in self._amounts:
            has = variable[column] >= 0
            taken = (count * replicas[column])[has]
            entries.append((card_type[has], variable[column][has], taken))
        if (table := self._table) is not None:
            items = np.nonzero(table.most > 0)
            taken = table.cards[items].astype(np.float64)
            entries.append((table.type[items], self._items, taken))
        room = (problem.capacity - problem.used(self._fixed)).astype(np.float64)
        self._model.keep(np.full(len(room), -np.inf), room, entries)

    def _add_floor(self, floor: Floor) -> None:
        problem, goal = self._problem, floor.goal
        of_level = problem.level == goal.level
        unit = float(problem.weight[of_level].max())
        least = (floor.load - goal.worth(problem, self._fixed)) / unit
        entries = list[Entries]()
        if goal.kind is GoalKind.SERVED:
            case, row = problem.case[self._open], np.where(of_level, 0, -1)
            weight = problem.served_share[self._open] * problem.weight[case] / unit
            entries += self._by_columns(row[case], weight)
            entries.append(self._by_mixes(row, problem.weight / unit))
        else:
            cases, shares = self._entire_cases, self._entire
            if goal.kind is GoalKind.HELD:
                cases, shares = self._holding_cases, self._holding
            of_goal = of_level[cases]
            weight = problem.weight[cases[of_goal]] / unit
            entries.append((np.zeros(len(weight), np.int64), shares[of_goal], weight))
        self._model.keep(np.array([least]), np.array([np.inf]), entries)

    def _counts(self, values: FloatArray) -> IntArray:
        """The plan of a solution."""
        counts = self._fixed.copy()
        counts[self._open] = np.rint(values[self._replicas]).astype(np.int64)
        standing = self._open[self._standing][np.rint(values[self._stand]) > 0]
        counts[standing] = self._problem.stands[standing]
        return counts

    def _mixes(self, values: FloatArray) -> IntArray | None:
        """Replicas of each item in a solution, of cases that have a mix."""
        if self._table is None:
            return None
        mixes = np.zeros(self._table.most.shape, dtype=np.int64)
        mixes[self._table.most > 0] = np.rint(values[self._items]).astype(np.int64)
        mixes[np.rint(values[self._mixing]) == 0] = 0
        return mixes

    def _values(self, counts: IntArray) -> FloatArray:
        """The solution that a plan is."""
        problem, chosen = self._problem, counts[self._open]
        values = np.zeros(self._model.variables)
        stands = self._standing & (chosen == problem.stands[self._open])
        values[self._replicas] = np.where(stands, 0, chosen)
        values[self._choice] = (chosen > 0)[self._choosing] & ~stands[self._choosing]
        values[self._stand] = stands[self._standing]
        values[self._holding] = problem.holding(counts)[self._holding_cases]
        values[self._entire] = np.floor(problem.served(counts)[self._entire_cases])
        return values


def order_by_loss(
    problem: ReplicaProblem, vertex: Vertex, counts: IntArray, least: FloatArray
) -> IntArray:
    """The cases, those first that lose the least by a small change; of each type in turn.

    A case that has no more than its least share can only change to another column.
    """
    shares = np.bincount(problem.case, counts / problem.full, len(problem.cases))
    loss = np.maximum(vertex.lost, 0.0)
    loss = np.where(shares[problem.case] > 0, loss, loss / problem.full)
    fewer = np.maximum(vertex.share, 0.0)[problem.case] / problem.full
    spare = (shares > least * (1 + problem.params.rounding))[problem.case]
    loss = np.where(counts > 0, np.where(spare, fewer, np.inf), loss)
    entries = problem.cards
    case, loss = problem.case[entries.owner], loss[entries.owner]
    order = np.lexsort((problem.weight[case], loss, entries.type))
    order = order[np.isfinite(loss[order])]
    first = np.searchsorted(entries.type[order], np.arange(len(problem.capacity)))
    rank = np.arange(len(order)) - first[entries.type[order]]
    in_turn = case[order[np.lexsort((entries.type[order], rank))]]
    distinct, seen = np.unique(in_turn, return_index=True)
    return distinct[np.argsort(seen)]


def few_columns(problem: ReplicaProblem, vertex: Vertex, counts: IntArray, most: int) -> BoolArray:
    """The columns of each case that lose the least, and those that it has or that run."""
    loss: FloatArray = np.where((counts > 0) | (problem.runs > 0), -np.inf, vertex.lost)
    order = np.lexsort((loss, problem.case))
    few = np.zeros(len(order), dtype=np.bool_)
    few[order[rank_in_group(problem.case[order]) < most]] = True
    return few & np.isfinite(vertex.lost)


def open_between(problem: ReplicaProblem, vertex: Vertex, counts: IntArray, most: int) -> BoolArray:
    """Columns of the cases in which a plan and a vertex differ: what both have, and a few more.

    See `assignment.md`, section "Exact: one problem, one search".
    """
    differs = np.abs(vertex.amounts * problem.full - counts) > problem.params.whole
    cases = np.zeros(len(problem.cases), dtype=np.bool_)
    cases[problem.case[differs]] = True
    few = few_columns(problem, vertex, counts, most) | (vertex.amounts > problem.params.rounding)
    return few & problem.columns_of(cases)


def open_around(
    problem: ReplicaProblem,
    vertex: Vertex,
    least: FloatArray,
    matter: BoolArray,
    cases: int,
    most: int,
) -> tuple[BoolArray, IntArray]:
    """Columns of the cases that a vertex splits and of a few that lose little; what others have.

    See `assignment.md`, section "Exact: one problem, one search".

    Parameters
    ----------
    problem, vertex
        The problem, and a solution of its relaxation.
    least, matter
        Share that each case must have, and which ones are open at all; shape (cases,).
    cases, most
        How many cases that are not split are open, and columns of each.
    """
    counts, some = keep_whole(problem, vertex)
    order = order_by_loss(problem, vertex, counts, least)
    some[order[matter[order]][:cases]] = True
    few = few_columns(problem, vertex, counts, most) | (vertex.amounts > problem.params.rounding)
    return few & problem.columns_of(some & matter), counts


def order_largest_first(problem: ReplicaProblem, counts: IntArray, matter: BoolArray) -> IntArray:
    """The cases, those first that matter and have the largest part of the cards of a type."""
    parts = np.where(matter, problem.parts_of(counts), 0.0)
    return np.argsort(-parts, kind="stable")


def order_short_first(problem: ReplicaProblem, counts: IntArray, level: int) -> IntArray:
    """Cases of a level that are not served entirely, those first that miss the most load."""
    missing = problem.weight * (1 - problem.served(counts))
    short = np.flatnonzero((missing > 0) & (problem.level == level))
    return short[np.argsort(-missing[short], kind="stable")]


class LargeNeighbourhoods:
    """Improves an incumbent by solving parts of its problem again.

    Parameters
    ----------
    incumbent
        The plan, its goal and the floors.
    budget
        Work that remains.
    """

    def __init__(self, incumbent: Incumbent, budget: Budget) -> None:
        self._incumbent, self._problem = incumbent, incumbent.problem
        self._params = self._problem.params
        self._budget = budget

    def solve(self, opening: Opening, share: float) -> None:
        """Offer the best plan of an opening that is found with a share of the work that remains."""
        incumbent, budget = self._incumbent, self._budget.part(share)
        goal, floors, known = incumbent.goal, incumbent.floors, incumbent.counts
        budget.spend(self._params.plan * len(known))
        gap = incumbent.near * self._params.near_part
        found = solve_opening(self._problem, goal, floors, opening, known, budget, gap)
        if found.counts is not None:
            incumbent.offer(found.counts)

    def solve_around(self, vertices: Sequence[Vertex], bound: float) -> None:
        """Solve the cases that a vertex splits or that lose little, until that helps no more.

        All others are as in the vertex; of the last level also as in the plan.
        """
        incumbent, params = self._incumbent, self._params
        matter, least = incumbent.matter, least_of(self._problem, incumbent.floors)
        for vertex in vertices:
            before = incumbent.worth
            columns, counts = open_around(
                self._problem,
                vertex,
                least,
                matter,
                params.open_cases[0],
                params.open_columns_around,
            )
            self.solve(Opening(columns, counts), params.around)
            if incumbent.is_last and not incumbent.near_enough(bound):
                self.solve_between(vertex, params.around)
            if incumbent.worth < before + incumbent.near or incumbent.near_enough(bound):
                return

    def solve_close(self, vertex: Vertex) -> None:
        """Solve the few cases that lose the least by a change from a vertex that splits no case."""
        incumbent, params = self._incumbent, self._params
        columns, counts = open_around(
            self._problem,
            vertex,
            least_of(self._problem, incumbent.floors),
            incumbent.matter,
            params.close_cases,
            params.open_columns_around,
        )
        self.solve(Opening(columns, counts), params.close)

    def solve_between(self, vertex: Vertex, share: float) -> None:
        """Solve the cases again of which the plan has other replicas than a vertex."""
        problem, incumbent = self._problem, self._incumbent
        columns = open_between(problem, vertex, incumbent.counts, self._params.open_columns_around)
        columns &= problem.columns_of(incumbent.matter)
        self.solve(Opening(columns, incumbent.counts), share)

    def exchange(self, vertex: Vertex, bound: float) -> None:
        """Exchange replicas of a few cases at a time, until nothing improves any more."""
        problem, incumbent = self._problem, self._incumbent
        matter = levels_of(incumbent.goal, problem)
        # Less important ones may have what it takes.
        matter[problem.case[incumbent.counts > 0]] = True
        order = order_by_loss(
            problem, vertex, incumbent.counts, least_of(problem, incumbent.floors)
        )
        order = order[matter[order]]
        few, failures = self._params.exchanged, 0
        numbers = np.random.default_rng(len(incumbent.reached))
        while not incumbent.near_enough(bound) and not self._budget.is_over:
            cases = self._some_cases(order, matter, few, numbers)
            columns = (
                few_columns(problem, vertex, incumbent.counts, self._params.open_columns)
                & cases[problem.case]
            )
            before = incumbent.worth
            self.solve(Opening(columns, incumbent.counts), 1.0)
            failures = 0 if incumbent.worth > before else failures + 1
            if failures == self._params.exchange_patience:
                few, failures = few * 2, 0
                if few > len(order):
                    return

    def _some_cases(
        self, order: IntArray, matter: BoolArray, few: int, numbers: np.random.Generator
    ) -> BoolArray:
        """A few cases that lose little, that are large, or that are short; shape (cases,)."""
        problem, incumbent = self._problem, self._incumbent
        cases = np.zeros(len(problem.cases), dtype=np.bool_)
        largest = order_largest_first(problem, incumbent.counts, matter)
        short = order_short_first(problem, incumbent.counts, incumbent.goal.level)[
            : self._params.exchanged
        ]
        for among in (order, largest, short):
            some = among[: few * self._params.exchanged_among]
            cases[numbers.choice(some, min(few // 2, len(some)), replace=False)] = True
        return cases


def open_everything(incumbent: Incumbent) -> Opening:
    """All columns that matter to a goal."""
    problem = incumbent.problem
    nothing = np.zeros(len(problem.case), dtype=np.int64)
    return Opening(problem.columns_of(incumbent.matter), nothing)


def openings(
    incumbent: Incumbent,
    goal: Goal,
    floors: tuple[Floor, ...],
    vertex: Vertex,
    base: IntArray,
    touched: BoolArray,
) -> Iterator[Opening]:
    """More and more of the problem, around a plan; of the touched cases always all.

    Parameters
    ----------
    incumbent
        The plan around which it is, unless `base` has more of the goal.
    goal, floors
        What is maximized of the opening, and what is kept.
    vertex
        The vertex whose multipliers say which cases lose the least.
    base
        Another plan, which need not keep the floors; shape (columns,).
    touched
        Cases that are open in any case; shape (cases,).
    """
    problem = incumbent.problem
    matter = incumbent.matter
    order = order_by_loss(problem, vertex, base, least_of(problem, floors))
    order = order[matter[order]]
    for most in problem.params.open_cases:
        counts = incumbent.counts
        centre = base if incumbent.worth_of(goal) < goal.worth(problem, base) else counts
        cases = touched.copy()
        cases[order[:most]] = True
        few = few_columns(problem, vertex, centre + counts, problem.params.open_columns)
        yield Opening(few & cases[problem.case], centre)
        if most >= len(order):
            break
