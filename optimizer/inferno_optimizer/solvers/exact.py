"""Limited capacity, exactly: the story of a search, from its first plan to the certificate.

For each server there is at most one row, a part of one, or a mix; cards within the capacity.
Priority by priority the served load is made as large as it can be, then the total value as small as
it can be: lexicographic optimization [M. Ehrgott, *Multicriteria Optimization*, 2005, chapter 5].
Capacity that is too short is an answer, not an error. See `assignment.md`, section "The problem".
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.demands import ROUNDING
from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solution import Certificate, CurvePoint, Level, MarginalValue, SolverStatus
from inferno_optimizer.solvers.assignment import (
    NO_LEVEL,
    NO_ROW,
    SMALLEST_GAIN,
    Assignment,
    Mix,
    OneMoreCard,
    SolverResult,
    cost_kept,
)
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.goal_search import GoalProof, search_goal
from inferno_optimizer.solvers.goals import (
    Floor,
    Goal,
    GoalKind,
    GoalTolerance,
    Reached,
    goals_of,
    levels_of,
    served_entirely,
)
from inferno_optimizer.solvers.greedy import (
    at_most,
    entries_by_rank,
    hold,
    serve,
    share_out,
    solve_greedy,
)
from inferno_optimizer.solvers.incumbent import CurveRecorder, Incumbent, ProgressObserver
from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.solvers.loads import (
    add_loads,
    bounded_levels,
    find_loads,
    is_better,
    loads_served,
    loads_served_entirely,
    loads_wanted,
    priorities_of,
    share_given_up,
)
from inferno_optimizer.solvers.mixes import MixColumns, MixTable
from inferno_optimizer.solvers.neighbourhoods import Opening, solve_opening
from inferno_optimizer.solvers.params import DEFAULTS, SolveParams
from inferno_optimizer.solvers.problem import FIRST_MIX, NOBODY, Columns, ReplicaProblem
from inferno_optimizer.solvers.relaxation import Vertex, WarmStart
from inferno_optimizer.solvers.rounding import fill_columns
from inferno_optimizer.solvers.running import Running, lots_of
from inferno_optimizer.system import SaturationPolicy

Clock = Callable[[], float]
Result = TypeVar("Result")

logger = logging.getLogger(__name__)

LONGEST = 300
"""Characters of the text of an error that are told."""


def solve_exact(
    candidates: Candidates,
    capacity: IntArray,
    clock: Clock,
    start: float,
    params: SolveParams = DEFAULTS,
) -> SolverResult:
    """Serve as much as possible by priority at the least value, within the time limit from `start`.

    No answer is below the plan of the greedy solver, which comes first: it is the answer where
    there is time for no more, or where a search that fails finds nothing better.
    """
    answer = _solve(candidates, capacity, clock, start, params)
    return replace(answer, marginal=_mark_estimates(candidates, capacity, answer.marginal))


def _solve(
    candidates: Candidates, capacity: IntArray, clock: Clock, start: float, params: SolveParams
) -> SolverResult:
    """The incumbent of greedy, the search that fits the options, and the certificate."""
    options, running = candidates.system.options, Running.of(candidates)

    # The incumbent, and the work that the time limit leaves for a better plan.
    sized = clock()
    stand = _has_plan(candidates, params)
    greedy = solve_greedy(candidates, capacity, params, stand=stand).assignment
    sizing, filling = sized - start, clock() - sized  # what a search finds is filled up, too
    deadline = start + options.time_limit - params.decisions * sizing - filling
    budget = Budget.of(_count_work(candidates, params), lambda: deadline - clock(), params)
    budget = budget.without(_reserve_for_prices(candidates, params))
    recorder, failures = CurveRecorder(clock), Failures()

    # The problem that the policy has: columns of whole rows, or of any number of replicas.
    mixes, others = None, NOBODY
    if options.heterogeneous:
        whole = options.saturation_policy is SaturationPolicy.NONE
        mixes = MixTable.of(candidates, capacity, changes=whole)
        others = mixes.case
    problem = ReplicaProblem.of(candidates, capacity, running, params, others)

    # Goal by goal: bound, improve until near, keep.
    known = _describe_known_plan(candidates, greedy, problem)
    if budget.is_over:
        return _certify(candidates, replace(known, out_of_time=True), recorder, failures, params)
    table = _Table(candidates, capacity, running, problem, mixes)
    found = failures.attempt("search", lambda: _search_plan(table, budget, recorder, greedy))
    best = known if found is None else _choose(table, found, known, params)
    return _certify(candidates, best, recorder, failures, params)


def solve_goals(
    problem: ReplicaProblem,
    budget: Budget,
    tolerance: float | None,
    *,
    delayed: bool,
    observe: ProgressObserver | None = None,
    known: IntArray | None = None,
    mixes: MixTable | None = None,
) -> "Outcome":
    """Reach the goals of a problem one after the other; each keeps what those before it reached.

    Parameters
    ----------
    problem
        Columns and cases.
    budget
        Work that remains; when it is done, the best plan so far is the answer.
    tolerance
        Share of the most load of a level that later goals may take; None means that of
        `SolveParams`, or nothing of a small problem.
    delayed
        As in `goals_of`.
    observe
        Is told of every improvement; None where nobody wants to know.
    known
        A plan that fits, so that the answer is no worse: replicas of each column.
    mixes
        What the cases may have mixes of; None for no mixes.
    """
    goals = tuple(goals_of(problem, delayed=delayed))
    if not len(problem.case) and mixes is None:  # no card can be given to anybody
        reached = tuple(Reached(goal, 0.0) for goal in goals)
        unknown = OneMoreCard.unknown(len(problem.capacity))
        return Outcome(np.zeros(0, dtype=np.int64), reached, unknown, out_of_time=False)
    search = _GoalByGoal(problem, budget, tolerance, observe, known, mixes)
    for place, goal in enumerate(goals):
        ahead = sum(each.may_be_reached(problem) for each in goals[place:])
        search.begin(goal)
        search.keep(goal, search.improve(goal, ahead))
    return search.outcome()


class Failures:
    """The errors that ended steps of a search. Here, and nowhere else in it, is any error caught.

    A step only improves what is known before it: the plan is the best one found so far, and the
    certificate tells what went wrong.
    """

    def __init__(self) -> None:
        self.texts: tuple[str, ...] = ()
        """Each step that failed, with the type and the text of its error; one line each."""

    def attempt(self, step: str, work: Callable[[], Result]) -> Result | None:
        """Do the work of a step; None where it ends with an error, which is kept and logged."""
        try:
            return work()
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST]
            self.texts += (f"{step}: {text}",)
            logger.warning("a step of the search failed: %s", step, exc_info=error)
            return None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Replicas of each column, mixes, and what is proven of each goal, in their order."""

    counts: IntArray
    reached: tuple[Reached, ...]
    one_more: OneMoreCard
    out_of_time: bool
    failures: tuple[str, ...] = ()
    mixes: tuple[Mix, ...] = ()

    def most_served(self) -> list[float]:
        """The most load that can be served of each level."""
        return [reached.bound for reached in self.reached if reached.goal.kind is GoalKind.SERVED]

    @property
    def least_value(self) -> float:
        """No plan has a lower value that serves of all levels what was reached in their turn."""
        return -self.reached[-1].bound


class _GoalByGoal:
    """The goals reached so far: a plan, and what later goals keep."""

    def __init__(
        self,
        problem: ReplicaProblem,
        budget: Budget,
        tolerance: float | None,
        observe: ProgressObserver | None,
        known: IntArray | None,
        mixes: MixTable | None,
    ) -> None:
        small = problem.params.small
        self._pool = None if mixes is None else MixColumns(mixes, problem)
        every = None
        if self._pool is not None:
            every = self._pool.list_all(problem, small, budget.part(problem.params.mix_pricing))
        if every is not None:
            problem, place = problem.add_columns(every)
            known = None if known is None else _move_counts(known, place, len(problem.case))
        # What is left to be priced.
        self._mixes = self._pool if every is None else None
        self._numbers = np.random.default_rng(0)
        self._problem, self._budget, self._observe = problem, budget, observe
        exact = self._mixes is None and len(problem.case) <= small
        self._tolerance = GoalTolerance.of(tolerance, problem.params, exact=exact)
        self._counts = np.zeros(len(problem.case), dtype=np.int64)
        self._lots = np.ones_like(self._counts)
        self._entire = np.zeros(len(problem.cases), dtype=np.bool_)
        self._known = known
        self._start = WarmStart(problem)
        self._floors: tuple[Floor, ...] = ()
        self._reached: tuple[Reached, ...] = ()
        self._card_prices: dict[Goal, FloatArray] = {}
        self._failures = Failures()

    def begin(self, goal: Goal) -> None:
        """Give the cases of a level, which have nothing yet, what runs, then what fits.

        Before other goals, cases of levels that are served entirely get all of a column or none
        from now on.
        """
        problem = self._problem
        if goal.kind is GoalKind.HELD:
            of_level = problem.level == goal.level
            counts = fill_columns(problem, self._counts, of_level, only_hold=True)
            self._counts = fill_columns(problem, counts, of_level, only_hold=False)
            return
        cases = served_entirely(problem, self._floors)
        if np.array_equal(cases, self._entire):  # a new problem would count its cards again
            return
        self._entire, of_cases = cases, problem.columns_of(cases)
        self._lots *= np.where(of_cases, problem.full, 1.0).astype(np.int64)
        self._counts = np.where(of_cases, self._counts > 0, self._counts).astype(np.int64)
        self._problem = problem.serve_all_or_nothing(cases)

    def _incumbent(self, goal: Goal) -> Incumbent:
        """The best plan of a goal so far."""
        problem, floors = self._problem, self._floors
        incumbent = Incumbent(problem, goal, floors, self._reached, self._counts, self._observe)
        if self._known is not None:
            incumbent.offer(self._known // self._lots)
        return incumbent

    def improve(self, goal: Goal, ahead: int) -> GoalProof:
        """Improve the plan in its share of the work of the goals ahead; what is proven."""
        shares = 1 if goal.kind is GoalKind.HELD else 2
        if (mixes := self._mixes) is None or not self._is_open(goal):
            return self._search(goal, self._budget.part(shares / (ahead + 1)))
        budget, few = self._budget.part(1 / ahead), self._problem.params.mix_rounds
        if not self._may_price(mixes, budget, few):
            rows = self._budget.part(shares / (ahead + 1))
            proof = self._search(goal, rows, self._most_of(goal))
            if not self._is_open(goal) or not self._may_price(mixes, budget, 1):
                return proof
        found = self._failures.attempt("mixes", lambda: self._search_mixes(mixes, goal, budget))
        return found or self._search(goal, budget, self._most_of(goal))

    def _may_price(self, mixes: MixColumns, budget: Budget, rounds: int) -> bool:
        """Whether there is work for so many rounds of pricing.

        In a large fleet it takes all the work, and leaves none to find a plan among the columns.
        """
        params = self._problem.params
        return budget.part(params.mix_pricing).left >= rounds * mixes.size * params.mix_item

    def _search_mixes(self, mixes: MixColumns, goal: Goal, budget: Budget) -> GoalProof:
        """Price mixes and search among columns; then solve with any mixes, all or a few cases.

        Columns come first: where time is short, nothing else finds a plan of a large fleet.
        """
        params, bound = self._problem.params, self._price(mixes, goal, budget)
        proof = self._search(goal, budget.part(params.mix_search), bound)
        if goal.kind is GoalKind.VALUE:
            self._solve_parts(mixes, goal, bound, budget.part(params.mix_parts_value))
            bound = self._solve_all(mixes, goal, bound, budget)
        else:
            bound = self._solve_all(mixes, goal, bound, budget.part(params.mix_program))
            self._solve_parts(mixes, goal, bound, budget.part(params.mix_parts))
        incumbent = self._incumbent(goal)
        incumbent.report(max(bound, incumbent.worth))
        return replace(proof, bound=bound)

    def _search(self, goal: Goal, budget: Budget, bound: float | None = None) -> GoalProof:
        """Search among the columns; what is proven.

        A bound that holds for all mixes takes the place of what is proven of those that are
        columns. Nothing is proven where a step fails: the plan is the best one so far.
        """
        incumbent = self._incumbent(goal)
        search = partial(search_goal, incumbent, self._tolerance, self._start, budget)
        proof = self._failures.attempt(str(goal), search)
        if proof is None:
            proof = GoalProof(self._most_of(goal), self._floors)
        if bound is not None:
            proof = replace(proof, bound=bound)
        incumbent.report(max(proof.bound, incumbent.worth))
        self._counts = incumbent.counts
        return proof

    def _most_of(self, goal: Goal) -> float:
        """What no plan exceeds, whatever cards there are; infinite for the value."""
        return np.inf if goal.kind is GoalKind.VALUE else goal.most(self._problem)

    def _is_open(self, goal: Goal) -> bool:
        """Whether there may be more of a goal to have."""
        has, most = goal.worth(self._problem, self._counts), goal.most(self._problem)
        return goal.kind is GoalKind.VALUE or has < most * (1 - self._problem.params.rounding)

    def _solve_relaxation(self, goal: Goal, budget: Budget) -> Vertex | None:
        """The best vertex of the relaxation with the mixes that are columns."""
        relaxation = self._start.relaxation(self._problem, goal, self._floors, self._counts)
        return self._start.solve(relaxation, budget)

    def _price(self, mixes: MixColumns, goal: Goal, budget: Budget) -> float:
        """Add the mixes that improve the relaxation as columns; what no plan exceeds.

        It ends within a part of the distance that is near enough, or where it gains less twice.
        """
        params = self._problem.params
        pricing = budget.part(params.mix_pricing)
        bound, before, in_vain = self._most_of(goal), -np.inf, 0
        mixes.least = None  # prices of another goal prove nothing of this one
        while (vertex := self._solve_relaxation(goal, pricing)) is not None:
            pricing.spend(mixes.size * params.mix_item)
            columns, priced = mixes.price(self._problem, goal, vertex)
            bound = min(bound, priced)
            self._add(columns)
            enough = params.mix_near * self._tolerance.near(goal, bound)
            in_vain = in_vain + 1 if vertex.bound - before < enough else 0
            is_near = bound - vertex.bound <= enough or in_vain == params.mix_idle_rounds
            if is_near or not len(columns.case):
                break
            before = vertex.bound
        return bound

    def _solve_all(self, mixes: MixColumns, goal: Goal, bound: float, budget: Budget) -> float:
        """Solve all cases that matter at once; what no plan exceeds."""
        if budget.is_over or self._is_near(goal, bound):
            return bound
        matter = levels_of(goal, self._problem)
        nothing = np.zeros_like(self._counts)
        found = self._solve_items(mixes, goal, matter, nothing, budget)
        return bound if found is None else min(bound, found)

    def _is_near(self, goal: Goal, bound: float) -> bool:
        has = goal.worth(self._problem, self._counts)
        return has >= bound - self._tolerance.near(goal, bound)

    def _solve_parts(self, mixes: MixColumns, goal: Goal, bound: float, budget: Budget) -> None:
        """Solve a few cases again and again, with any mixes; all others have what they have."""
        params = self._problem.params
        few, failures = float(params.mix_cases), 0
        matter = levels_of(goal, self._problem)
        vertex = self._solve_relaxation(goal, budget)
        while vertex is not None and not budget.is_over and failures < params.mix_patience:
            problem, before = self._problem, goal.worth(self._problem, self._counts)
            # A part of all cases is what `_solve_all` does, once.
            if self._is_near(goal, bound) or few >= np.count_nonzero(matter):
                break
            loss = np.where(matter, self._measure_loss(goal, vertex), 0.0)
            loss = np.where(matter, loss + max(params.mix_any_case * float(loss.max()), 1e-9), 0.0)
            chosen = self._numbers.choice(
                len(loss),
                min(int(few), int(np.count_nonzero(loss))),
                replace=False,
                p=loss / loss.sum(),
            )
            cases = np.zeros(len(problem.cases), dtype=np.bool_)
            cases[chosen] = True
            share = min(1.0, params.mix_part_work / max(budget.left, params.mix_part_work))
            part = budget.part(share)
            if self._solve_items(mixes, goal, cases, self._counts, part) is None:
                break  # nor is there time for a later part, which is no smaller
            failures = 0 if goal.worth(self._problem, self._counts) > before else failures + 1
            if failures % params.mix_more_cases_after == 0 < failures:
                few *= params.mix_more_cases

    def _measure_loss(self, goal: Goal, vertex: Vertex) -> FloatArray:
        """What each case loses of a goal by what it has, at the multipliers of a vertex."""
        problem = self._problem
        has = problem.case[self._counts > 0]
        worth = np.zeros(len(self._counts))
        if goal.kind is GoalKind.VALUE:
            worth = problem.values(self._counts)
        entries = problem.cards
        paid = self._counts[entries.owner] * entries.count * vertex.prices[entries.type]
        worth = worth + np.bincount(entries.owner, paid, len(worth))
        cost = np.bincount(problem.case, worth, len(problem.cases))
        loss = np.maximum(cost - vertex.gain, 0.0)
        unserved = np.ones(len(loss), dtype=np.bool_)
        unserved[has] = False
        loss[~np.isfinite(vertex.gain)] = 0.0
        return np.where(unserved, np.maximum(vertex.share, 0.0), loss)

    def _solve_items(
        self, mixes: MixColumns, goal: Goal, cases: BoolArray, others: IntArray, budget: Budget
    ) -> float | None:
        """Take the best plan where some cases have any mixes; what no such plan exceeds.

        Where the whole search has too little time left, nothing is begun: None.
        """
        problem, items = self._problem, mixes.items(cases)
        columns = problem.columns_of(cases) & (~mixes.find_replaced(problem) | (self._counts > 0))
        is_all = goal.kind is GoalKind.VALUE and bool(cases.all())
        params, size = problem.params, int(np.count_nonzero(columns) + np.count_nonzero(items.most))
        if budget.whole.seconds_left < params.mix_seconds * size:
            return None
        enough = params.mix_near_value if is_all else params.mix_near
        opening = Opening(columns, others, items, mixes.least if is_all else None)
        gap = enough * self._tolerance.near(goal, goal.worth(problem, self._counts))
        budget.spend(params.plan * len(problem.case))
        found = solve_opening(problem, goal, self._floors, opening, self._counts, budget, abs(gap))
        if found.counts is not None and found.mixes is not None:
            counts = items.trim(found.mixes)
            counts[~items.are_enough(counts)] = 0
            place = self._add(mixes.columns_of(items, counts, len(problem.capacity)))
            plan = _move_counts(found.counts, place, len(self._problem.case))
            mixes.put(self._problem, items, counts, plan)
            incumbent = Incumbent(
                self._problem, goal, self._floors, self._reached, self._counts, self._observe
            )
            incumbent.offer(plan)
            self._counts = incumbent.counts
        return found.bound

    def _add(self, more: Columns) -> IntArray:
        """Add columns to the problem; where those that it had are."""
        self._problem, place = self._problem.add_columns(more)
        count = len(self._problem.case)
        self._counts = _move_counts(self._counts, place, count)
        self._lots = np.maximum(_move_counts(self._lots, place, count), 1)
        if self._known is not None:
            self._known = _move_counts(self._known, place, count)
        self._start.move(place, count)
        return place

    def keep(self, goal: Goal, proof: GoalProof) -> None:
        """Record what is proven of a goal, and what later goals keep."""
        if proof.prices is not None:
            self._card_prices[goal] = proof.prices
        has, most = goal.worth(self._problem, self._counts), goal.most(self._problem)
        bound = max(proof.bound, has)
        self._reached = (*self._reached, Reached(goal, bound, has, proof.floors))
        if goal.kind is GoalKind.VALUE:
            return
        rounding = self._problem.params.rounding
        stays_whole = goal.kind is GoalKind.HELD or self._tolerance.keeps_whole
        if stays_whole and has >= most * (1 - rounding):
            self._floors = (*self._floors, Floor(goal, most, whole=True))
            return
        load = self._tolerance.kept(goal, has * (1 - rounding), bound)
        if load > 0:
            self._floors = (*self._floors, Floor(goal, load, whole=False))

    def outcome(self) -> Outcome:
        """The plan and what is proven."""
        is_over = self._budget.is_over
        counts, problem, pool = self._counts * self._lots, self._problem, self._pool
        chosen = problem.row[problem.mixed & (counts > 0)].tolist()
        one_more = self._failures.attempt("value of one more card", self._value_one_more_card)
        return Outcome(
            counts[~problem.mixed],
            self._reached,
            one_more or OneMoreCard.unknown(len(self._problem.capacity)),
            is_over,
            self._failures.texts,
            tuple(pool.mixes[FIRST_MIX - row] for row in chosen) if pool else (),
        )

    def _value_one_more_card(self) -> OneMoreCard:
        """What one more card of each type is worth.

        The multipliers of the relaxations estimate it [A. M. Geoffrion, *Lagrangean relaxation for
        integer programming*, Mathematical Programming Study 2 (1974) 82-114]. A small problem of
        which no plan has more of any goal is solved again with each.
        """
        types = len(self._problem.capacity)
        found = OneMoreCard.unknown(types)
        for goal, floors in self._goals_with_floors():
            if goal.kind not in (GoalKind.SERVED, GoalKind.VALUE) or not self._is_open(goal):
                continue
            if (prices := self._card_prices.get(goal)) is None:
                counts = self._counts
                relaxation = self._start.relaxation(self._problem, goal, floors, counts)
                if (vertex := relaxation.solve(self._budget.whole)) is None:
                    break
                prices = vertex.prices
            if goal.kind is GoalKind.VALUE:
                found.add_price(prices)
            else:
                found.add_gain(goal.level, prices)
        if self._tolerance.exact and self._has_most_of_all():
            for card_type in range(types):
                capacity = self._problem.capacity + (np.arange(types) == card_type)
                grown = replace(self._problem, capacity=capacity)
                gain = self._gain(grown, self._budget.whole.part(1 / (types - card_type)))
                if gain is not None:
                    found.tell(card_type, *gain)
        return found

    def _has_most_of_all(self) -> bool:
        """Whether it is proven of every goal that no plan has more of it."""
        solved = self._problem.params.solved
        return all(
            reached.bound - reached.goal.worth(self._problem, self._counts)
            <= solved * max(1.0, abs(reached.bound))
            for reached in self._reached
        )

    def _gain(self, problem: ReplicaProblem, budget: Budget) -> tuple[int, float] | None:
        """The first level that serves more in another problem, or none, and how much better it is.

        None where there is no time to prove it, or where more is held, or served entirely.
        """
        for goal, floors in self._goals_with_floors():
            if not self._is_open(goal):
                continue
            saved = None if budget.is_over else self._saved(goal, floors, problem, budget)
            if saved is None or goal.kind is GoalKind.VALUE:
                return None if saved is None else (NO_LEVEL, saved)
            if saved > SMALLEST_GAIN:
                return (goal.level, saved) if goal.kind is GoalKind.SERVED else None
        return None

    def _saved(
        self, goal: Goal, floors: tuple[Floor, ...], problem: ReplicaProblem, budget: Budget
    ) -> float | None:
        """How much more of a goal another problem has; None where that is not proven in time."""
        before = goal.worth(self._problem, self._counts)
        matter = problem.columns_of(levels_of(goal, problem))
        opening = Opening(matter, np.zeros_like(self._counts))
        best = solve_opening(problem, goal, floors, opening, self._counts, budget)
        after = before if best.counts is None else goal.worth(problem, best.counts)
        rounding = problem.params.solved * max(1.0, abs(before))
        if best.bound - after > rounding:
            return None
        return after - before if after - before > rounding else 0.0

    def _goals_with_floors(self) -> Iterator[tuple[Goal, tuple[Floor, ...]]]:
        """The goals, each with what is kept of those before it."""
        goals = [reached.goal for reached in self._reached]
        for place, goal in enumerate(goals):
            yield goal, tuple(floor for floor in self._floors if floor.goal in goals[:place])


def _move_counts(counts: IntArray, place: IntArray, count: int) -> IntArray:
    """Counts at other places, of so many; 0 at the new ones."""
    moved = np.zeros(count, dtype=np.int64)
    moved[place] = counts
    return moved


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """An assignment, and what is proven of it.

    Attributes
    ----------
    assignment
        Who gets what; with a round robin, after what serves nobody entirely is shared out evenly.
    entirely
        Whether only what is served entirely counts.
    served, most_served
        Load that the plan serves before that, and the most that is possible; by priority
        [requests/min].
    objective, least_value
        Value of what counts, and the least possible.
    marginal
        What one more card of each type is worth; empty where that is not known.
    out_of_time
        Whether the time ended first.
    curve
        How the search improved the plan.
    failures
        Steps that ended with an error.
    """

    assignment: Assignment
    entirely: bool
    served: Mapping[int, float]
    most_served: Mapping[int, float]
    objective: float
    least_value: float = -math.inf
    marginal: tuple[MarginalValue, ...] = ()
    out_of_time: bool = False
    curve: tuple[CurvePoint, ...] = ()
    failures: tuple[str, ...] = ()

    def levels(self, candidates: Candidates) -> tuple[Level, ...]:
        """What is served of each priority, with the most that is possible."""
        return bounded_levels(self.served, self.most_served, loads_wanted(candidates))

    def bound(self, params: SolveParams) -> float | None:
        """The bound of the objective, free of rounding; None where nothing is proven."""
        if not math.isfinite(self.least_value):
            return None
        is_same = self.objective - self.least_value <= params.same * max(abs(self.objective), 1.0)
        return self.objective if is_same else self.least_value

    def is_optimal(self, candidates: Candidates, params: SolveParams) -> bool:
        """Whether no plan is better by what counts."""
        bound, levels = self.bound(params), self.levels(candidates)
        certificate = Certificate("", SolverStatus.FEASIBLE, self.objective, bound, 0.0, levels)
        return certificate.gap is not None and certificate.gap <= params.optimal


@dataclass(frozen=True, slots=True)
class _Table:
    """A candidate table, its cards, what runs, the problem of its rows, and what mixes are of."""

    candidates: Candidates
    capacity: IntArray
    running: Running
    problem: ReplicaProblem
    mixes: MixTable | None


def _search_plan(
    table: _Table, budget: Budget, recorder: CurveRecorder, known: Assignment
) -> FoundPlan:
    """One row for each case, all of it or any number of its replicas; or a mix.

    The plan is no worse than a known one, but for what that keeps as it is. Cases that
    need no replicas are not in the problem.
    """
    candidates, problem = table.candidates, table.problem
    options, whole = candidates.system.options, problem.all_or_nothing
    outcome = solve_goals(
        problem,
        budget,
        options.priority_tolerance,
        delayed=options.delayed_best_effort and not whole,
        observe=recorder.observe if options.trace and whole else None,
        known=problem.counts_of(known),
        mixes=table.mixes,
    )
    priorities = priorities_of(candidates, problem.cases)
    most = dict(zip(priorities, outcome.most_served(), strict=True))
    curve = tuple[CurvePoint, ...]()
    if whole:
        assignment = _fill_up(
            candidates, table.capacity, problem.row[outcome.counts > 0], outcome.mixes
        )
        cases = np.setdiff1d(assignment.served(candidates), problem.cases)
        served = loads_served_entirely(candidates, assignment)
        objective, least = assignment.objective(candidates), outcome.least_value
        besides = find_loads(candidates, cases.tolist())
        others = float(candidates.value[assignment.rows[cases]].sum())
        curve = recorder.curve(priorities, besides, others)
    else:
        assignment = _assign_replicas(table, outcome)
        cases = np.setdiff1d(np.flatnonzero(assignment.rows != NO_ROW), problem.cases)
        besides, served = (
            find_loads(candidates, cases.tolist()),
            loads_served(candidates, assignment),
        )
        if options.saturation_policy.takes_turns:
            assignment = _share_out_in_turns(table, assignment)
        others = _sum_other_value(candidates, problem, assignment)
        value = _sum_value(candidates, problem, assignment)
        objective, least = value + others, min(outcome.least_value, value)
    return FoundPlan(
        assignment,
        entirely=whole,
        served=served,
        most_served=add_loads(most, besides),
        objective=objective,
        least_value=least + others,
        marginal=outcome.one_more.described(priorities),
        out_of_time=outcome.out_of_time,
        curve=curve,
        failures=outcome.failures,
    )


def _describe_known_plan(
    candidates: Candidates, known: Assignment, problem: ReplicaProblem
) -> FoundPlan:
    """A known plan of which nothing is proven; shares count with a problem that has any."""
    most = loads_wanted(candidates)
    if problem.all_or_nothing:
        served = loads_served_entirely(candidates, known)
        return FoundPlan(known, True, served, most, known.objective(candidates))
    objective = _sum_value(candidates, problem, known) + _sum_other_value(
        candidates, problem, known
    )
    return FoundPlan(known, False, loads_served(candidates, known), most, objective)


def _choose(table: _Table, found: FoundPlan, known: FoundPlan, params: SolveParams) -> FoundPlan:
    """What a search finds, or the known plan where that is better, as time may have ended early.

    Better is also what costs less, where neither holds or serves more. No load is given up for it
    in a small problem, or where a person says how much later goals may take: the search took that.
    """
    candidates = table.candidates
    options, policy = candidates.system.options, candidates.system.options.saturation_policy
    may_serve_more = True
    if found.is_optimal(candidates, params):
        # That none is stopped for an equal one is not proven: the plan may hold less for it.
        if found.entirely or policy is not SaturationPolicy.HOLD:
            return found
    elif found.entirely:
        given_up = share_given_up(candidates, params)
        may_serve_more = any(level.gap > given_up for level in found.levels(candidates))
    costs_less = found.objective - known.objective > params.rounding * abs(found.objective)
    is_chosen = may_serve_more and is_better(candidates, known.assignment, found.assignment, params)
    if not is_chosen and costs_less and not found.is_optimal(candidates, params):
        keeps_all = (
            options.priority_tolerance is not None or len(table.problem.case) <= params.small
        )
        is_chosen = not any(
            is_better(candidates, found.assignment, known.assignment, params, exactly=exactly)
            for exactly in {False, keeps_all}
        )
    if not is_chosen:
        return found
    return replace(
        found,
        assignment=known.assignment,
        served=known.served,
        objective=known.objective,
        least_value=-math.inf,
        marginal=found.marginal if found.entirely else (),
    )


def _certify(
    candidates: Candidates,
    plan: FoundPlan,
    recorder: CurveRecorder,
    failures: Failures,
    params: SolveParams,
) -> SolverResult:
    """The answer: a plan, what is proven of it, and what one more card is worth.

    The answer is the last point of its curve: steps after the search may change the plan.
    """
    status = SolverStatus.TIME_LIMIT if plan.out_of_time else SolverStatus.FEASIBLE
    bound, curve = plan.bound(params), tuple[CurvePoint, ...]()
    if candidates.system.options.trace:
        seconds = recorder.seconds
        end = CurvePoint(seconds, None, plan.served, plan.objective, bound)
        is_told = bool(plan.curve) and replace(plan.curve[-1], seconds=seconds) == end
        curve = plan.curve if is_told else (*plan.curve, end)
    return SolverResult(
        "milp",
        SolverStatus.OPTIMAL if plan.is_optimal(candidates, params) else status,
        plan.assignment,
        bound,
        plan.levels(candidates),
        plan.marginal,
        curve,
        (*plan.failures, *failures.texts),
        plan.objective,
    )


def _mark_estimates(
    candidates: Candidates, capacity: IntArray, marginal: tuple[MarginalValue, ...]
) -> tuple[MarginalValue, ...]:
    """What one more card of each type is worth; an estimate where more replicas fit with it.

    The programs have no rows, and no replicas of a row, that take more cards than there are.
    """
    needs = candidates.needs
    available, cards = capacity[needs.type], np.maximum(needs.count, 1)
    wanted = cards * candidates.replicas[needs.owner]
    new = candidates.usable[needs.owner] & (wanted > available) & ((available + 1) % cards == 0)
    affected = np.bincount(needs.type[new], minlength=len(capacity)) > 0
    return tuple(
        replace(worth, estimated=worth.estimated or (worth != MarginalValue() and bool(more)))
        for worth, more in zip(marginal, affected.tolist(), strict=False)
    )


def _has_plan(candidates: Candidates, params: SolveParams) -> bool:
    """Whether there is a plan already: most of the cases may stay as they are."""
    staying = np.unique(candidates.pairs.case[candidates.stays & candidates.usable])
    return len(staying) > params.most_stand * len(candidates.cases)


def _count_work(candidates: Candidates, params: SolveParams) -> float:
    """Work of the search, in the units of `Budget`."""
    limit, rows = candidates.system.options.time_limit, len(candidates.pairs.case)
    work = params.work_per_second * limit - params.work_per_row * rows
    return max(work, params.least_work_per_second * limit)


def _reserve_for_prices(candidates: Candidates, params: SolveParams) -> float:
    """Seconds that the search leaves for what one more card is worth."""
    limit, rows = candidates.system.options.time_limit, len(candidates.pairs.case)
    takes = params.prices_seconds + params.prices_seconds_per_row * rows
    return min(params.prices_share * limit, takes)


def _fill_up(
    candidates: Candidates, capacity: IntArray, chosen: IntArray, mixes: Iterable[Mix] = ()
) -> Assignment:
    """The chosen rows, and what fits besides: rounding or time may have left it behind."""
    ledger = Ledger(candidates, capacity)
    for mix in mixes:
        ledger.take_mix(mix)
    for row in chosen.tolist():
        if ledger.fits(row):  # a solver's tolerance could let a card too many pass
            ledger.take_all(row)
    unserved = serve(ledger, entries_by_rank(candidates, ledger.unserved()))
    share_out(ledger, unserved, candidates.system.options.saturation_policy)
    return ledger.assignment()


def _assign_replicas(table: _Table, outcome: Outcome) -> Assignment:
    """The plan as an assignment; cases that need no replicas get their best row.

    With the policy `Hold` no case that runs is stopped for an equal one that has several replicas,
    or that does not run: each of a level that runs has one before any has more, or a mix. Then
    those that carry the most load with a replica come first, whether it is served or held.
    """
    candidates, running, problem = table.candidates, table.running, table.problem
    ledger, counts = Ledger(candidates, table.capacity), outcome.counts
    mixes = {int(candidates.pairs.case[mix.rows[0]]): mix for mix in outcome.mixes}
    holds = candidates.system.options.saturation_policy is SaturationPolicy.HOLD
    columns = np.flatnonzero(counts)
    load = problem.weight[problem.case] / problem.full
    columns = columns[np.lexsort((-load[columns], problem.level[problem.case[columns]]))]
    levels, planned = problem.level[problem.case[columns]], np.unique(problem.case[columns])
    mixed = np.flatnonzero(np.isin(problem.cases, [*mixes]))
    stopped = np.setdiff1d(np.arange(len(problem.cases)), [*planned, *mixed])
    for level in range(problem.levels):
        of_level = columns[levels == level].tolist()
        mixing = problem.cases[mixed[problem.level[mixed] == level]].tolist()
        if holds:
            for column in of_level:
                if problem.held[problem.case[column]] > 0:
                    _give(ledger, problem, column, int(counts[column]), running, most=1)
            for case in problem.cases[stopped[problem.level[stopped] == level]].tolist():
                hold(ledger, case, running, most=1)
            if not ledger.fits_mixes(mixes[case] for case in mixing):
                for case in mixing:
                    hold(ledger, case, running, most=1)
        short = _take_mixes(ledger, {case: mixes[case] for case in mixing})
        for column in of_level:
            _give(ledger, problem, column, int(counts[column]), running)
        for case in short if holds else ():  # what it lacks is held by an equal one, or by better
            hold(ledger, case, running)
    free = np.ones(len(candidates.cases), dtype=np.bool_)
    free[problem.cases] = False
    serve(ledger, entries_by_rank(candidates, free))
    return ledger.assignment()


def _take_mixes(ledger: Ledger, mixes: Mapping[int, Mix]) -> list[int]:
    """Give cases their mixes as far as they fit; returns the cases for which they do not.

    One may fit once another case gives back what it holds.
    """
    short, before = list(mixes), len(mixes) + 1
    while len(short) < before:
        before, short = len(short), [case for case in short if not ledger.takes_mix(mixes[case])]
    return short


def _give(
    ledger: Ledger,
    problem: ReplicaProblem,
    column: int,
    count: int,
    running: Running,
    most: int | None = None,
) -> None:
    """Give a case what a column has, or so many replicas of that at most."""
    row, case = int(problem.row[column]), int(problem.cases[problem.case[column]])
    if row != NO_ROW:
        ledger.hold(row, count if most is None else min(count, most))
        return
    parts = lots_of(running.parts[case], problem.params)[int(problem.lot[column])].times(count)
    ledger.keep(case, parts if most is None else tuple(at_most(most, parts)))


def _share_out_in_turns(table: _Table, assignment: Assignment) -> Assignment:
    """The same where what serves nobody entirely is given in turns to those that are short."""
    candidates, running = table.candidates, table.running
    policy = candidates.system.options.saturation_policy
    ledger, entire = Ledger(candidates, table.capacity), assignment.served(candidates)
    short = np.ones(len(candidates.cases), dtype=np.bool_)
    short[entire] = False
    for case in entire.tolist():
        if case in assignment.mixes:
            ledger.take_mix(assignment.mixes[case])
        else:
            ledger.take_all(int(assignment.rows[case]))
    line = entries_by_rank(candidates, short)
    if policy.protects_what_runs:
        held = running.held(policy)
        for entry in line:
            row, given = int(assignment.rows[entry.case]), int(assignment.replicas[entry.case])
            if row != NO_ROW:
                carry = np.ceil(held[entry.case] * candidates.replicas[row] * (1 - ROUNDING))
                ledger.hold(row, min(given, int(carry)))
    share_out(ledger, line, policy)
    return ledger.assignment()


def _sum_value(candidates: Candidates, problem: ReplicaProblem, assignment: Assignment) -> float:
    """What the cases of a problem cost with an assignment, with the penalties of moves."""
    case = problem.cases[problem.case]
    chosen = (assignment.rows[case] == problem.row) & problem.serves
    counts = np.where(chosen, assignment.replicas[case], 0)
    kept = sum(map(cost_kept, assignment.kept.values()))
    current = (candidates.cases[case].server.current.cost for case in assignment.mixes)
    mixed = sum(mix.value for mix in assignment.mixes.values()) + sum(current)
    return float(problem.values(counts).sum()) + kept + mixed


def _sum_other_value(
    candidates: Candidates, problem: ReplicaProblem, assignment: Assignment
) -> float:
    """The value of cases that need no replicas, less what all the others cost now."""
    besides = np.setdiff1d(np.flatnonzero(assignment.rows != NO_ROW), problem.cases)
    costs = [candidates.cases[case].server.current.cost for case in problem.cases.tolist()]
    return float(candidates.value[assignment.rows[besides]].sum()) - float(np.sum(costs))
