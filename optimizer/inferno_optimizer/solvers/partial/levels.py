"""Goal by goal: what is held and served of each level, then the value; with what is proven.

The linear relaxation of a goal proves a bound, and leaves few servers split: as many as there are
types of cards and floors. Large ones among them are decided in a tree, which makes the bound
closer; the others in a dive that ends with whole replicas. A mixed integer program then exchanges
replicas of these and of the cases that the multipliers say lose the least by a change; of all
cases, where they are few.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import OneMoreCard, Timer
from inferno_optimizer.solvers.exact.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.chains import EjectionChains
from inferno_optimizer.solvers.partial.dive import Diver
from inferno_optimizer.solvers.partial.entirely import cheapest, takes_one_type
from inferno_optimizer.solvers.partial.filling import filled
from inferno_optimizer.solvers.partial.goals import (
    SLACK,
    Floor,
    Goal,
    GoalKind,
    Reached,
    goals_of,
    least_of,
    least_shares,
    levels_of,
)
from inferno_optimizer.solvers.partial.margins import FloorMargins
from inferno_optimizer.solvers.partial.neighbourhood import (
    around,
    between,
    by_loss,
    few_columns,
    largest_first,
    part_of_cards,
    short_first,
)
from inferno_optimizer.solvers.partial.one_more import WorthOfCards
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Basis, Relaxation, Start, Vertex
from inferno_optimizer.solvers.partial.repair import is_kept, lifted
from inferno_optimizer.solvers.partial.rounding import WHOLE, in_turn, rounded
from inferno_optimizer.solvers.partial.tolerance import NEAR, GoalTolerance
from inferno_optimizer.solvers.partial.tree import Tree
from inferno_optimizer.solvers.partial.whole_replicas import Opening, best_of

SMALL = 1_500
"""Up to so many columns the mixed integer program has all of them, to the last digit."""

EXCHANGED, SPREAD, PATIENCE = 30, 10, 6
"""Cases that exchange replicas at first, among so many times as many; how often in vain before
they are twice as many."""

HALF = 0.5

CHAINED = 0.05
"""Share of the time that is left of a goal for ejection chains after each dive."""

SEARCHED, SEARCHED_LAST = 0.7, 0.5
"""Share of the time of a goal in which columns are decided; then replicas are exchanged. The last
level and the value leave more time for cases that are solved again."""

DECISIONS = 5
"""Decisions of the tree between two dives."""

PARTS = (5, 1, 3, 2, 10, 20)
"""Dive after dive, one of so many parts of the split cases is decided at a time."""

LARGE = 5e-3
"""Share of the cards of a type from which the first dive leaves a case where it is."""

ROUNDED = 0.2
"""How far above the floors a dive stays, as a part of the way to what was reached: whole replicas
miss them by a little."""

DECIDED, AROUND, SOLVED_AROUND = 0.15, 4, 0.2
"""Share of the time of a goal in which the tree decides columns at first; of how many of its nodes
the surroundings are solved at most, and the share of the time that is left for each."""

BETWEEN, MET = 2, 0.7
"""Columns of a case that are open around a vertex, or between it and a plan, and the share of the
time that is left of the last level for the latter."""

OPEN = (150, 500, 2_000)
"""Cases that are open in the mixed integer program, in turn, until the plan is near enough."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Replicas of each column, and what is proven of each goal, in their order."""

    counts: IntArray
    reached: tuple[Reached, ...]
    one_more: OneMoreCard
    out_of_time: bool

    def most_served(self) -> list[float]:
        """The most load that can be served of each level."""
        return [reached.bound for reached in self.reached if reached.goal.kind is GoalKind.SERVED]

    @property
    def least_value(self) -> float:
        """No plan has a lower value that serves of all levels what was reached in their turn."""
        return -self.reached[-1].bound


def solve_by_levels(
    problem: ReplicaProblem,
    timer: Timer,
    tolerance: float | None,
    *,
    delayed: bool,
    small: int = SMALL,
) -> Outcome:
    """Solve a problem.

    Parameters
    ----------
    problem
        Columns and cases.
    timer
        Time that remains; when it ends, the best plan so far is the answer.
    tolerance
        Share of the most load of a level that later goals may take; None means that of
        `GoalTolerance`, or nothing of a small problem.
    delayed
        As in `goals_of`.
    small
        Up to so many columns the problem is solved to the last digit.
    """
    goals = tuple(goals_of(problem, delayed=delayed))
    search = _Search(problem, timer, tolerance, exact=len(problem.case) <= small)
    if not len(problem.case):
        return search.nothing(goals)
    for place, goal in enumerate(goals):
        search.reach(goal, ahead=len(goals) - place)
    return search.outcome()


class _Search:
    """The goals reached so far: a plan, and what later goals keep."""

    def __init__(
        self, problem: ReplicaProblem, timer: Timer, tolerance: float | None, *, exact: bool
    ) -> None:
        self._problem, self._timer, self._exact = problem, timer, exact
        self._tolerance = GoalTolerance.of(tolerance, exact=exact)
        self._counts = np.zeros(len(problem.case), dtype=np.int64)
        self._lots = np.ones_like(self._counts)
        self._start = Start(np.zeros(len(problem.case), dtype=np.bool_), Basis.empty(problem))
        self._floors: tuple[Floor, ...] = ()
        self._reached: tuple[Reached, ...] = ()
        self._card_prices: dict[Goal, FloatArray] = {}
        self._ends_at = 0.0
        self._near = 0.0
        self._chains: EjectionChains | None = None
        self._everywhere = np.zeros(len(problem.case), dtype=np.bool_)

    def outcome(self) -> Outcome:
        """The plan and what is proven."""
        out_of_time = self._timer.to_search() <= 0
        return Outcome(self._counts * self._lots, self._reached, self._one_more(), out_of_time)

    def nothing(self, goals: tuple[Goal, ...]) -> Outcome:
        """The plan where no card can be given to anybody."""
        reached = tuple(Reached(goal, 0.0) for goal in goals)
        unknown = OneMoreCard.unknown(len(self._problem.capacity))
        return Outcome(self._counts, reached, unknown, out_of_time=False)

    def _one_more(self) -> OneMoreCard:
        """What one more card of each type is worth.

        A small problem that is solved to the end is solved again with each.
        """
        cards = WorthOfCards(self._problem, self._counts, self._reached, self._floors)
        found = cards.by_prices(self._prices)
        if self._exact and cards.plan_is_best():
            cards.by_solving_again(self._timer, found)
        return found

    def _prices(self, goal: Goal, floors: tuple[Floor, ...]) -> FloatArray | None:
        """What a card of each type is worth to a goal; None where there is no time to tell."""
        if goal not in self._card_prices:
            vertex = self._relaxation(goal, floors).solve(self._timer.seconds_left)
            if vertex is None:
                return None
            self._card_prices[goal] = vertex.prices
        return self._card_prices[goal]

    def reach(self, goal: Goal, ahead: int) -> None:
        """Reach the most of a goal, in its share of the time."""
        if goal.kind is GoalKind.VALUE:
            self._take_whole_rows()
        problem = self._problem
        shares = 1 if goal.kind is GoalKind.HELD else 2
        self._ends_at = self._timer.to_search() * (1 - shares / (ahead + 1))
        if goal.kind is GoalKind.HELD:
            self._extend(goal)
            self._hold_all(goal)
        most = goal.most(problem)
        if self._worth(goal) < most * (1 - SLACK) or goal.kind is GoalKind.VALUE:
            self._maximize(goal)
        else:
            self._keep(goal, most, self._floors)

    def _worth(self, goal: Goal) -> float:
        return goal.worth(self._problem, self._counts)

    def _seconds_left(self) -> float:
        """Seconds of the present goal's share of the time."""
        return self._timer.to_search() - self._ends_at

    def _extend(self, goal: Goal) -> None:
        """Give the cases of a level, which have nothing yet, what runs, then what fits."""
        problem, counts = self._problem, self._counts
        mine = problem.level == goal.level
        counts = filled(problem, counts, mine, only_hold=True)
        counts = filled(problem, counts, mine, only_hold=False)
        self._counts = counts

    def _hold_all(self, goal: Goal) -> None:
        """Look for a plan in which all of the level that runs is held, and most is served."""
        if self._done(goal):
            return
        serve = Goal(GoalKind.SERVED, goal.level)
        floors = (*self._floors, Floor(goal, goal.most(self._problem), whole=True))
        if self._exact:
            self._search(goal, self._everything(serve), serve, floors)
            return
        relaxation = self._relaxation(serve, floors)
        vertex = self._solved(relaxation)
        if vertex is None or vertex.missing > WHOLE:
            return
        for plan in self._roundings(serve, floors, vertex):
            if self._offer(goal, self._floors, plan) and self._done(goal):
                return
        base, before = self._counts, self._before(goal)
        diver = Diver(self._problem, relaxation, before, lambda: -np.inf, self._seconds_left)
        for plan in self._rounded(serve, floors, diver.dive(self._everywhere, PARTS[0])):
            base = plan
            self._offer(goal, self._floors, plan)
        for opening in self._openings(serve, floors, vertex, base, diver.touched):
            if self._done(goal) or self._seconds_left() <= 0:
                return
            self._search(goal, opening, serve, floors)

    def _search(
        self, goal: Goal, opening: Opening, sought: Goal, floors: tuple[Floor, ...]
    ) -> None:
        """Offer the first plan of an opening that has all of a goal, found as to another one."""
        limits = SearchLimits(self._seconds_left(), np.inf)
        found = best_of(self._problem, sought, floors, opening, limits, self._counts)
        if found.counts is not None:
            self._offer(goal, self._floors, found.counts)

    def _take_whole_rows(self) -> None:
        """From now on cases of levels that are served entirely have all of a column or none."""
        problem, cases = self._problem, self._entirely()
        mine = problem.columns_of(cases)
        self._lots = np.where(mine, problem.full, 1.0).astype(np.int64)
        self._counts = np.where(mine, self._counts > 0, self._counts).astype(np.int64)
        self._problem = problem.entirely(cases)

    def _entirely(self) -> BoolArray:
        """Cases of levels that are served entirely."""
        kinds = (GoalKind.SERVED, GoalKind.ENTIRE)
        least = [least_shares(self._problem, self._floors, kind) for kind in kinds]
        entirely: BoolArray = np.maximum(*least) >= 1
        return entirely

    def _maximize(self, goal: Goal) -> None:
        """Improve the plan as to a goal, and keep what is proven."""
        most = np.inf if goal.kind is GoalKind.VALUE else goal.most(self._problem)
        if self._exact:
            limits = SearchLimits(self._seconds_left(), 0.0)
            opening = self._everything(goal)
            found = best_of(self._problem, goal, self._floors, opening, limits, self._counts)
            if found.counts is not None:
                self._offer(goal, self._floors, found.counts)
            self._keep(goal, min(most, found.bound), self._floors)
            return
        if goal.kind is GoalKind.VALUE and self._are_rows:
            most = self._choose_rows(goal)
            if self._worth(goal) >= most - self._tolerance.near(goal, most):
                self._keep(goal, most, self._floors)
                return
        bound, floors = self._improve(goal)
        self._keep(goal, min(most, bound), floors)

    @property
    def _are_rows(self) -> bool:
        """Whether all is served entirely, and columns are rows with one type of cards each."""
        return bool(np.all(self._entirely())) and takes_one_type(self._problem)

    def _choose_rows(self, goal: Goal) -> float:
        """Improve the value in a program of rows; with its sign changed, what no plan exceeds."""
        ends_at = HALF * self._seconds_left()
        found, least = cheapest(self._problem, self._counts, lambda: self._seconds_left() - ends_at)
        self._offer(goal, self._floors, found)
        return -least

    def _relaxation(self, goal: Goal, floors: tuple[Floor, ...]) -> Relaxation:
        start = replace(self._start, known=self._start.known | (self._counts > 0))
        return Relaxation(self._problem, goal, floors, start)

    def _solved(self, relaxation: Relaxation) -> Vertex | None:
        """The best vertex; the next relaxation begins there."""
        vertex = relaxation.solve(self._seconds_left)
        if vertex is not None:
            basis = relaxation.basis()
            self._start = Start((vertex.amounts > 0) | basis.moved, basis)
        return vertex

    def _improve(self, goal: Goal) -> tuple[float, tuple[Floor, ...]]:
        """Decide columns, round, and exchange replicas; what no plan that keeps floors exceeds."""
        relaxation = self._relaxation(goal, self._floors)
        ends_at = self._seconds_left() * (1 - (SEARCHED_LAST if self._is_last(goal) else SEARCHED))
        bound, floors = self._bound_as_reached(relaxation)
        relaxation.keep(self._floors)
        vertex = self._solved(relaxation)
        if vertex is None or vertex.missing > WHOLE:
            return bound, floors
        tree = Tree(self._problem, relaxation, vertex, lambda: self._seconds_left() - ends_at)
        self._card_prices[goal] = vertex.prices
        self._near = self._tolerance.near(goal, vertex.bound)
        self._chains = self._chains_for(goal, vertex)
        self._offer_all(goal, self._roundings(goal, self._floors, vertex))
        before = self._before(goal)
        # A dive that has begun in time ends: half a dive is no plan.
        diver = Diver(
            self._problem, relaxation, before, lambda: self._worth(goal), self._seconds_left
        )
        self._solve_around(goal, tree)
        base = self._counts
        if self._worth(goal) < tree.bound - self._near / NEAR:  # else later levels need the time
            self._dive_around(goal, relaxation, diver)
            base = self._decide(goal, relaxation, tree, diver)
        bound = min(bound, max(tree.bound, self._worth(goal)))
        enough = tree.bound if self._is_last(goal) else bound
        best = tree.vertex or vertex
        if not self._near_enough(goal, enough):
            if self._is_last(goal):
                self._meet(goal, best, MET)
            self._chained(goal, (self._counts,), HALF)
        for opening in self._openings(goal, self._floors, best, base, diver.touched):
            if self._seconds_left() <= 0 or self._near_enough(goal, enough):
                break
            self._solve_part(goal, opening, HALF)
            self._exchange(goal, self._floors, vertex, enough)
        return bound, floors

    def _bound_as_reached(self, relaxation: Relaxation) -> tuple[float, tuple[Floor, ...]]:
        """What no plan exceeds that keeps what was reached before, and these floors.

        The last bit of load of a level may take many cards of the next one, so that this is less
        than with the floors as they are; but no plan keeps it where two goals exclude another.
        """
        raised = self._raised(1.0, self._was_reached)
        relaxation.keep(raised)
        vertex = self._solved(relaxation)
        if vertex is None or vertex.missing > WHOLE:
            return np.inf, self._floors
        return vertex.bound, raised

    def _solve_part(self, goal: Goal, opening: Opening, share: float) -> None:
        """Offer the best plan of an opening that is found in a share of the goal's time."""
        limits = SearchLimits(self._seconds_left() * share, self._near * HALF)
        found = best_of(self._problem, goal, self._floors, opening, limits, self._counts)
        if found.counts is not None:
            self._offer(goal, self._floors, found.counts)

    def _solve_around(self, goal: Goal, tree: Tree) -> None:
        """Decide columns, then solve the cases that a vertex splits or that lose little.

        All others are as in the vertex; of the last level also as in the plan.
        """
        problem, matter = self._problem, self._matter(goal)
        least = least_of(problem, self._floors)
        ends_at = self._seconds_left() * (1 - DECIDED)
        while self._seconds_left() > ends_at and tree.branch(self._worth(goal), self._near):
            if self._near_enough(goal, tree.bound):
                return
        for vertex in tree.vertices(AROUND):
            before = self._worth(goal)
            opening = Opening(*around(problem, vertex, least, matter, OPEN[0], BETWEEN))
            self._solve_part(goal, opening, SOLVED_AROUND)
            if self._is_last(goal) and not self._near_enough(goal, tree.bound):
                self._meet(goal, vertex, SOLVED_AROUND)
            if self._worth(goal) < before + self._near or self._near_enough(goal, tree.bound):
                return

    def _meet(self, goal: Goal, vertex: Vertex, share: float) -> None:
        """Solve the cases again of which the plan has other replicas than a vertex."""
        columns = between(self._problem, vertex, self._counts, BETWEEN)
        columns &= self._problem.columns_of(self._matter(goal))
        self._solve_part(goal, Opening(columns, self._counts), share)

    def _is_last(self, goal: Goal) -> bool:
        """Whether no other load follows."""
        return goal.level == self._problem.levels - 1 and goal.kind is not GoalKind.HELD

    def _chains_for(self, goal: Goal, vertex: Vertex) -> EjectionChains | None:
        """Ejection chains for a goal; a value has none."""
        if goal.kind is GoalKind.VALUE:
            return None
        numbers = np.random.default_rng(len(self._reached))
        return EjectionChains(self._problem, goal, self._floors, vertex, numbers)

    def _offer_all(self, goal: Goal, found: Iterable[IntArray]) -> list[IntArray]:
        """Offer plans, and what a few ejection chains make of the best one; all of them."""
        before, plans = self._counts, [*found]
        for plan in plans:
            self._offer(goal, self._floors, plan)
        starts = plans if self._counts is before else [*plans, self._counts]
        better = self._chained(goal, starts, CHAINED) if starts else None
        return plans if better is None else [*plans, better]

    def _chained(self, goal: Goal, plans: Sequence[IntArray], share: float) -> IntArray | None:
        """Offer what ejection chains make of the best plan in a share of the goal's time."""
        if self._chains is None:
            return None
        ends_at = self._seconds_left() * (1 - share)
        plan = self._chains.improved(plans, lambda: self._seconds_left() - ends_at)
        self._offer(goal, self._floors, plan)
        return plan

    def _raised(self, part: float, top: Callable[[Goal], float]) -> tuple[Floor, ...]:
        """Floors a part of the way up to a top."""
        return tuple(
            replace(floor, load=floor.load + part * max(top(floor.goal) - floor.load, 0.0))
            for floor in self._floors
        )

    def _was_reached(self, goal: Goal) -> float:
        """What was reached of a goal in its turn, or later."""
        reached = next(reached for reached in self._reached if reached.goal == goal)
        return min(reached.bound, max(reached.has, self._worth(goal)))

    def _before(self, goal: Goal) -> BoolArray:
        """Cases that only goals before this one serve."""
        before: BoolArray = (self._problem.level < goal.level) | (goal.kind is GoalKind.VALUE)
        return before

    def _dive_around(self, goal: Goal, relaxation: Relaxation, diver: Diver) -> None:
        """Offer what a dive finds in which large cases of earlier goals stay in their columns.

        There is always such a plan, whatever the floors are.
        """
        problem = self._problem
        stays = self._before(goal) & (part_of_cards(problem, self._counts) > LARGE)
        if np.any(stays):
            forbidden = problem.columns_of(stays) & (self._counts == 0)
            relaxation.keep(self._raised(ROUNDED, self._worth))
            self._offer_all(
                goal, self._rounded(goal, self._floors, diver.dive(forbidden, PARTS[0]))
            )

    def _decide(self, goal: Goal, relaxation: Relaxation, tree: Tree, diver: Diver) -> IntArray:
        """Decide columns of large cases, and dive; the best plan, if it does not keep a floor."""
        base, best, in_vain = self._counts, -np.inf, 0
        margins = self._margins(ROUNDED)
        for number in count():
            relaxation.keep(self._floors)
            self._branch(goal, tree)
            place, parts = divmod(number, len(PARTS))
            forbidden, before = tree.best(place), self._worth(goal)
            done = in_vain == len(PARTS) or self._near_enough(goal, tree.bound)
            if done or tree.out_of_time:
                break
            relaxation.keep(margins.raised())
            dive = diver.dive(self._everywhere if forbidden is None else forbidden, PARTS[parts])
            plans = self._offer_all(goal, self._rounded(goal, self._floors, dive))
            for plan in plans:
                worth = goal.worth(self._problem, plan)
                base, best = (plan, worth) if worth > best else (base, best)
            margins.learn(self._problem, plans)
            in_vain = 0 if self._worth(goal) > before else in_vain + 1
        return base

    def _margins(self, part: float) -> FloorMargins:
        """Margins of the floors at first: at least a part of the way to what was reached."""
        raised = {floor.goal: floor.load for floor in self._raised(part, self._was_reached)}
        return FloorMargins(self._floors, self._reached, lambda floor: raised[floor.goal])

    def _branch(self, goal: Goal, tree: Tree) -> None:
        """Make the bound closer by a few decisions."""
        for _ in range(DECISIONS):
            if tree.out_of_time or self._near_enough(goal, tree.bound):
                return
            if not tree.branch(self._worth(goal), self._near):
                return

    def _near_enough(self, goal: Goal, bound: float) -> bool:
        worth, most = self._worth(goal), goal.most(self._problem)
        if self._is_last(goal) and bound >= most * (1 - SLACK):
            return worth >= most * (1 - SLACK)  # where all might be served, that is looked for
        return worth >= bound - self._near

    def _rounded(
        self, goal: Goal, floors: tuple[Floor, ...], vertices: Iterator[Vertex]
    ) -> Iterator[IntArray]:
        """Plans close to the vertices of a dive."""
        for vertex in vertices:
            yield from self._roundings(goal, floors, vertex)

    def _roundings(
        self, goal: Goal, floors: tuple[Floor, ...], vertex: Vertex
    ) -> Iterator[IntArray]:
        """Plans close to a vertex."""
        problem = self._problem
        least, lowest = least_of(problem, floors), problem.level == goal.level
        plan = rounded(problem, vertex, least, lowest, self._seconds_left)
        if plan is not None:
            yield plan
        if self._seconds_left() > 0:
            yield in_turn(problem, vertex)

    def _everything(self, goal: Goal) -> Opening:
        """All columns that matter to a goal."""
        matter = self._matter(goal)
        nothing = np.zeros(len(self._problem.case), dtype=np.int64)
        return Opening(self._problem.columns_of(matter), nothing)

    def _matter(self, goal: Goal) -> BoolArray:
        """Cases that matter to a goal and to the floors."""
        matter = levels_of(goal, self._problem)
        for floor in self._floors:
            matter = matter | (self._problem.level == floor.goal.level)
        return matter

    def _exchange(
        self, goal: Goal, floors: tuple[Floor, ...], vertex: Vertex, bound: float
    ) -> None:
        """Exchange replicas of a few cases at a time, until nothing improves any more."""
        problem = self._problem
        matter = levels_of(goal, problem)
        matter[problem.case[self._counts > 0]] = True  # less important ones may have what it takes
        order = by_loss(problem, vertex, self._counts, least_of(problem, floors))
        order = order[matter[order]]
        few, failures = EXCHANGED, 0
        numbers = np.random.default_rng(len(self._reached))
        while not self._near_enough(goal, bound) and self._seconds_left() > 0:
            cases = np.zeros(len(problem.cases), dtype=np.bool_)
            largest = largest_first(problem, self._counts, matter)
            short = short_first(problem, self._counts, goal.level)[:EXCHANGED]
            for among in (order, largest, short):
                some = among[: few * SPREAD]
                cases[numbers.choice(some, min(few // 2, len(some)), replace=False)] = True
            columns = few_columns(problem, vertex, self._counts) & cases[problem.case]
            before = self._worth(goal)
            self._solve_part(goal, Opening(columns, self._counts), 1.0)
            failures = 0 if self._worth(goal) > before else failures + 1
            if failures == PATIENCE:
                few, failures = few * 2, 0
                if few > len(order):
                    return

    def _done(self, goal: Goal) -> bool:
        """Whether there is no more of a goal to have."""
        return self._worth(goal) >= goal.most(self._problem) * (1 - SLACK)

    def _openings(
        self,
        goal: Goal,
        floors: tuple[Floor, ...],
        vertex: Vertex,
        counts: IntArray,
        touched: BoolArray,
    ) -> Iterator[Opening]:
        """More and more of the problem, around a plan; of the touched cases always all."""
        problem, matter = self._problem, self._matter(goal)
        order = by_loss(problem, vertex, counts, least_of(problem, floors))
        order = order[matter[order]]
        for most in OPEN:
            around = counts if self._worth(goal) < goal.worth(problem, counts) else self._counts
            cases = touched.copy()
            cases[order[:most]] = True
            few = few_columns(problem, vertex, around + self._counts)
            yield Opening(few & cases[problem.case], around)
            if most >= len(order):
                break

    def _offer(self, goal: Goal, floors: tuple[Floor, ...], counts: IntArray) -> bool:
        """Accept a plan that fits, keeps the floors and has more of the goal; whether it does.

        Where it misses a floor, less important levels make room.
        """
        problem = self._problem
        if goal.kind is not GoalKind.VALUE:
            counts = filled(problem, counts, levels_of(goal, problem), only_hold=False)
        if np.any(problem.used(counts) > problem.capacity):
            return False
        if not all(is_kept(problem, floor, counts) for floor in floors):
            repaired = self._lifted(goal, floors, counts)
            if repaired is None:
                return False
            counts = repaired
        better = goal.worth(problem, counts) > self._worth(goal)
        if better:
            self._counts = counts
        return better

    def _lifted(self, goal: Goal, floors: tuple[Floor, ...], counts: IntArray) -> IntArray | None:
        """A plan that misses a floor with more replicas for it; None if there is none better."""
        problem = self._problem
        if goal.kind is GoalKind.VALUE or goal.worth(problem, counts) <= self._worth(goal):
            return None
        repaired = lifted(problem, counts, floors, goal.level)
        if repaired is None or goal.worth(problem, repaired) <= self._worth(goal):
            return None
        return filled(problem, repaired, levels_of(goal, problem), only_hold=False)

    def _keep(self, goal: Goal, bound: float, floors: tuple[Floor, ...]) -> None:
        """Record what is proven of plans that keep floors, and what later goals keep."""
        has, most = self._worth(goal), goal.most(self._problem)
        bound = max(bound, has)
        self._reached = (*self._reached, Reached(goal, bound, has, floors))
        if goal.kind is GoalKind.VALUE:
            return
        if has >= most * (1 - SLACK):
            self._floors = (*self._floors, Floor(goal, most, whole=True))
            return
        load = self._tolerance.kept(goal, has * (1 - SLACK), bound)
        if load > 0:
            self._floors = (*self._floors, Floor(goal, load, whole=False))
