"""Limited capacity, exactly: a mixed integer linear program for PuLP and HiGHS.

The problem is that of `assignment.md`, section "The problem": for each case at most one row, or
one mix of rows where plans may be heterogeneous; cards within the capacity. Priority by priority
the served load is made as large as it can be, then the total value as small as it can be. Capacity
that is too short is an answer, not an error.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solution import Certificate, CurvePoint, Level, MarginalValue, SolverStatus
from inferno_optimizer.solvers.assignment import Assignment, SolverResult
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.curve import CurveRecorder
from inferno_optimizer.solvers.entire import (
    EntirePlan,
    Solve,
    solve_mixed,
    solve_whole,
    unproven,
)
from inferno_optimizer.solvers.failures import Failures
from inferno_optimizer.solvers.greedy import solve_greedy
from inferno_optimizer.solvers.loads import (
    is_better,
    levels_of,
    loads_served,
    loads_served_entirely,
    loads_wanted,
    share_given_up,
)
from inferno_optimizer.solvers.pairs_and_mixes import (
    has_mixes_and_pairs,
    solve_pairs_and_mixes,
    without_bounds,
)
from inferno_optimizer.solvers.params import SolveParams
from inferno_optimizer.solvers.partial.solve import PartialPlan, solve_partial, total_value
from inferno_optimizer.system import SaturationPolicy


def solve_milp(
    candidates: Candidates,
    capacity: IntArray,
    clock: Callable[[], float],
    start: float,
    params: SolveParams,
) -> SolverResult:
    """Serve as much as possible by priority at the least value, within the time limit from `start`.

    The plan of the greedy solver comes first, where most servers stay that may. It is the answer
    where there is time for no more, or where a search that fails finds nothing better.
    """

    def solve(some: Candidates, cards: IntArray) -> SolverResult:
        return _solve(some, cards, clock, start, params)

    if has_mixes_and_pairs(candidates):
        answer = solve_pairs_and_mixes(candidates, capacity, solve)
    else:
        answer = solve(candidates, capacity)
    return replace(answer, marginal=_with_new_rows(candidates, capacity, answer.marginal))


def _with_new_rows(
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


def _solve(
    candidates: Candidates,
    capacity: IntArray,
    clock: Callable[[], float],
    start: float,
    params: SolveParams,
) -> SolverResult:
    """The answer; the worth of one more card counts no rows that only this card makes possible."""
    options = candidates.system.options
    sized = clock()
    greedy = solve_greedy(
        candidates, capacity, params, stand=_stands(candidates, params)
    ).assignment
    sizing, filling = sized - start, clock() - sized  # what a search finds is filled up, too
    deadline = start + options.time_limit - params.decisions * sizing - filling
    budget = Budget.of(_work(candidates, params), lambda: deadline - clock(), params)
    budget = budget.without(_reserved(candidates, params))
    search = _Search(candidates, capacity, greedy, budget, CurveRecorder(clock), Failures(), params)
    if options.saturation_policy is SaturationPolicy.NONE:
        return search.entirely(sizing)
    return search.mixed(sizing) if options.heterogeneous else search.in_part()


@dataclass(frozen=True, slots=True)
class _Search:
    """The searches for a plan, and what they need; no answer is below the plan of greedy."""

    candidates: Candidates
    capacity: IntArray
    greedy: Assignment
    budget: Budget
    recorder: CurveRecorder
    failures: Failures
    params: SolveParams

    def entirely(self, sizing: float) -> SolverResult:
        """The answer that serves servers entirely; sizing took so many seconds."""
        plan = self._entire_plan(self.budget, sizing)
        return self._completed(self._entire_answer(plan), plan)

    def mixed(self, sizing: float) -> SolverResult:
        """The same with mixes; or single rows, some in part, where these serve more."""
        budget = self.budget
        plan = self._entire_plan(
            budget.without(self.params.mixes_share * budget.seconds_left), sizing
        )
        answer = self._entire_answer(plan)
        if self._leaves_some(answer):
            single = self._partial_answer()
            plans = single.assignment, answer.assignment
            if is_better(self.candidates, *plans, self.params, one_each=True):
                return self._with_curve(without_bounds(self.candidates, single))
        return self._completed(answer, plan)

    def in_part(self) -> SolverResult:
        """The answer with partial service."""
        return self._with_curve(self._partial_answer())

    def _entire_plan(self, budget: Budget, sizing: float) -> EntirePlan:
        """What a search finds; the plan of greedy where it fails, or where there is no time."""
        candidates, plan = self.candidates, None
        solve, least = _search_for(candidates, self.params)
        if self.budget.seconds_left > least * sizing:
            plan = self.failures.attempt(
                "search", lambda: solve(candidates, self.capacity, budget, self.recorder)
            )
        if plan is None:
            plan = unproven(candidates, self.greedy, out_of_time=not self.failures.texts)
        return plan

    def _entire_answer(self, plan: EntirePlan) -> SolverResult:
        """The answer of a plan; of greedy where that is better, as time may have ended early."""
        candidates, assignment = self.candidates, plan.assignment
        answer = SolverResult(
            "milp",
            SolverStatus.TIME_LIMIT if plan.out_of_time else SolverStatus.FEASIBLE,
            assignment,
            _at_most(assignment.objective(candidates), plan.least_value, self.params),
            self._levels(loads_served_entirely(candidates, assignment), plan.most_served),
        )
        if _distance(candidates, answer) <= self.params.optimal:
            return replace(answer, status=SolverStatus.OPTIMAL)
        if assignment is self.greedy or self._is_near(answer):
            return answer
        if not is_better(candidates, self.greedy, assignment, self.params):
            return answer
        served = loads_served_entirely(candidates, self.greedy)
        levels = self._levels(served, plan.most_served)
        return replace(answer, assignment=self.greedy, bound=None, levels=levels)

    def _is_near(self, answer: SolverResult) -> bool:
        """Whether no plan serves more than the answer by what counts."""
        given_up = share_given_up(self.candidates, self.params)
        return all(level.gap <= given_up for level in answer.levels)

    def _partial_answer(self) -> SolverResult:
        """An answer whose levels count partial service; that of greedy where nothing is better."""
        candidates, plan = self.candidates, None
        if not self.budget.is_over:
            plan = self.failures.attempt(
                "search", lambda: solve_partial(candidates, self.capacity, self.budget, self.greedy)
            )
        if plan is None:
            return self._greedy_in_part(loads_wanted(candidates))
        answer = self._answer_in_part(plan)
        proven = _distance(candidates, answer) <= self.params.optimal
        # That none is stopped for an equal one is not proven: the plan may hold less for it.
        may_hold_less = candidates.system.options.saturation_policy is SaturationPolicy.HOLD
        in_doubt = may_hold_less or not proven
        if in_doubt and is_better(candidates, self.greedy, plan.assignment, self.params):
            return replace(self._greedy_in_part(plan.most_served), status=answer.status)
        return replace(answer, status=SolverStatus.OPTIMAL) if proven else answer

    def _answer_in_part(self, plan: PartialPlan) -> SolverResult:
        return SolverResult(
            "milp",
            SolverStatus.TIME_LIMIT if plan.out_of_time else SolverStatus.FEASIBLE,
            plan.assignment,
            _at_most(plan.objective, plan.least_value, self.params),
            self._levels(plan.served, plan.most_served),
            plan.one_more,
            failures=(*plan.failures, *self.failures.texts),
            objective=plan.objective,
        )

    def _greedy_in_part(self, most: Mapping[int, float]) -> SolverResult:
        candidates, greedy = self.candidates, self.greedy
        return SolverResult(
            "milp",
            SolverStatus.TIME_LIMIT,
            greedy,
            levels=self._levels(loads_served(candidates, greedy), most),
            failures=self.failures.texts,
            objective=total_value(candidates, self.capacity, greedy),
        )

    def _levels(self, served: Mapping[int, float], most: Mapping[int, float]) -> tuple[Level, ...]:
        return levels_of(served, most, loads_wanted(self.candidates))

    def _leaves_some(self, answer: SolverResult) -> bool:
        """Whether some case that has a usable row is not served entirely."""
        candidates = self.candidates
        with_rows = np.unique(candidates.pairs.case[candidates.usable])
        return len(answer.assignment.served(candidates)) < len(with_rows)

    def _completed(self, answer: SolverResult, plan: EntirePlan) -> SolverResult:
        """The answer with what one more card is worth, in the time that remains."""
        marginal = self.failures.attempt("value of one more card", plan.one_more) or ()
        failures = (*plan.failures, *self.failures.texts)
        answer = replace(answer, marginal=marginal, failures=failures)
        return self._with_curve(answer, plan.curve)

    def _with_curve(self, answer: SolverResult, curve: tuple[CurvePoint, ...] = ()) -> SolverResult:
        """The answer with its curve, if one is asked for.

        The answer is the last point of it: steps after the search may change the plan.
        """
        if not self.candidates.system.options.trace:
            return answer
        served = {level.priority: level.served for level in answer.levels}
        seconds, value = self.recorder.seconds, answer.value(self.candidates)
        end = CurvePoint(seconds, None, served, value, answer.bound)
        is_told = bool(curve) and replace(curve[-1], seconds=seconds) == end
        return replace(answer, curve=curve if is_told else (*curve, end))


def _search_for(candidates: Candidates, params: SolveParams) -> tuple[Solve, float]:
    """The search for a plan, and its least time as a multiple of that of sizing."""
    if candidates.system.options.heterogeneous:
        return solve_mixed, params.mixes
    return solve_whole, 0.0


def _stands(candidates: Candidates, params: SolveParams) -> bool:
    """Whether there is a plan already: most of the cases may stay as they are."""
    staying = np.unique(candidates.pairs.case[candidates.stays & candidates.usable])
    return len(staying) > params.most_stand * len(candidates.cases)


def _work(candidates: Candidates, params: SolveParams) -> float:
    """Work of the search, in the units of `Budget`."""
    limit = candidates.system.options.time_limit
    rows = len(candidates.pairs.case)
    work = params.work_per_second * limit - params.work_per_row * rows
    return max(work, params.least_work_per_second * limit)


def _reserved(candidates: Candidates, params: SolveParams) -> float:
    """Seconds that the search leaves for what one more card is worth."""
    rows = len(candidates.pairs.case)
    takes = params.prices_seconds + params.prices_seconds_per_row * rows
    return min(params.prices_share * candidates.system.options.time_limit, takes)


def _at_most(objective: float, bound: float, params: SolveParams) -> float | None:
    """The bound of an objective, free of rounding; None where nothing is proven."""
    if not math.isfinite(bound):
        return None
    is_rounding = objective - bound <= params.same * max(abs(objective), 1.0)
    return objective if is_rounding else bound


def _distance(candidates: Candidates, answer: SolverResult) -> float:
    objective, bound = answer.value(candidates), answer.bound
    certificate = Certificate(answer.solver, answer.status, objective, bound, 0.0, answer.levels)
    return math.inf if certificate.gap is None else certificate.gap
