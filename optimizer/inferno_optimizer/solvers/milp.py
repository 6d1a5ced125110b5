"""Limited capacity, exactly: a mixed integer linear program for PuLP and HiGHS.

The problem is that of `assignment.md`, section "The problem": for each case at most one row, or
one mix of rows where plans may be heterogeneous; cards within the capacity. Priority by priority
the served load is made as large as it can be, then the total value as small as it can be. Capacity
that is too short is an answer, not an error.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.candidates import NO_PAIR, Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, Mix, SolverResult, Timer
from inferno_optimizer.solvers.curve import CurveRecorder
from inferno_optimizer.solvers.exact.lexicographic import solve_by_levels
from inferno_optimizer.solvers.exact.program import Program, weight_of
from inferno_optimizer.solvers.exact.settings import DEFAULTS as EXACT
from inferno_optimizer.solvers.failures import Failures
from inferno_optimizer.solvers.greedy import entries_by_rank, serve, solve_greedy
from inferno_optimizer.solvers.heterogeneous.levels import solve_mixes
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable
from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.solvers.partial.levels import GIVEN_UP as GIVEN_UP_IN_PART
from inferno_optimizer.solvers.partial.levels import solve_by_levels as solve_partial_by_levels
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.solve import (
    loads_held,
    loads_served,
    solve_partial,
    total_value,
)
from inferno_optimizer.solvers.saturation import share_out
from inferno_optimizer.system import (
    Certificate,
    CurvePoint,
    Level,
    MarginalValue,
    SaturationPolicy,
    SolverStatus,
)

ROUNDING = 1e-12
"""Relative distance of an objective from its bound that counts as 0: it is rounding."""

OPTIMAL = 1e-4
"""Gap up to which a plan counts as optimal, as is usual with MILP solvers."""

PRICES, PRICES_SECONDS, PRICES_PER_ROW = 0.07, 0.14, 5e-5
"""Time kept for the worth of one more card: this share of the time limit at most, or these seconds
and so many more for each row of the candidate table."""

DECISIONS = 1.2
"""Time kept for the decisions, as a multiple of the time that sizing took: both go through all
servers, and a busy machine slows both down alike."""

MIXES = 2.0
"""Least time for a search for mixes, as a multiple of the time that sizing took."""

FIRST_OF_PAIRS, FEW_PAIRS = 0.3, 6
"""Where mixes and roles apart compete: share of the time of the search without mixes; and up to how
many servers with roles apart each is tried without."""

HALF = 0.5


def solve_milp(
    candidates: Candidates, capacity: IntArray, clock: Callable[[], float], start: float
) -> SolverResult:
    """Serve as much as possible by priority at the least value, within the time limit from `start`.

    The plan of the greedy solver comes first, where most servers stay that may. It is the answer
    where there is time for no more, or where a search that fails finds nothing better.
    """
    solve = _solve_beside_pairs if _has_mixes_and_pairs(candidates) else _solve
    answer = solve(candidates, capacity, clock, start)
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


def _has_mixes_and_pairs(candidates: Candidates) -> bool:
    """Whether plans may have mixes, and rows with prefill and decode apart, which are in none."""
    return candidates.system.options.heterogeneous and candidates.apart is not None


def _solve_beside_pairs(
    candidates: Candidates, capacity: IntArray, clock: Callable[[], float], start: float
) -> SolverResult:
    """The best of some plans; nothing is proven of it, as mixes have no rows with roles apart.

    They are one of single rows, some of them apart; one of mixes without these; and mixes beside
    what the first has apart, or beside all of that but one.
    """

    def solved(some: Candidates, cards: IntArray, share: float, *, mixes: bool) -> SolverResult:
        options = some.system.options
        options = replace(options, heterogeneous=mixes, time_limit=share * options.time_limit)
        system = replace(some.system, options=options)
        return _solve(replace(some, system=system), cards, clock, start)

    best = single = solved(candidates, capacity, FIRST_OF_PAIRS, mixes=False)
    kept = _kept_apart(candidates, single.assignment)
    for number, rows in enumerate(kept, 1):
        apart = Assignment.of_rows(candidates, rows)
        others = candidates.usable & (rows == NO_ROW)[candidates.pairs.case]
        left = capacity - apart.used(candidates)
        share = FIRST_OF_PAIRS + (1.0 - FIRST_OF_PAIRS) * number / len(kept)
        found = solved(replace(candidates, usable=others), left, share, mixes=True)
        answer = _joined(candidates, found, apart)
        if _is_better_or_cheaper(candidates, answer.assignment, best.assignment):
            best = answer
    return _unbound(candidates, best)


def _kept_apart(candidates: Candidates, plan: Assignment) -> list[IntArray]:
    """Rows of each case, of several plans that keep some of what a plan has apart, -1 elsewhere.

    One of them keeps nothing and one keeps all; with few, there is one without each of them.
    """
    rows = plan.rows.copy()
    chosen = np.flatnonzero(rows != NO_ROW)
    whole = plan.replicas[chosen] == candidates.replicas[rows[chosen]]
    rows[chosen[(candidates.pair[rows[chosen]] == NO_PAIR) | ~whole]] = NO_ROW
    apart = np.flatnonzero(rows != NO_ROW).tolist()
    left_out = [apart, []] if apart else [[]]
    if 1 < len(apart) <= FEW_PAIRS:
        left_out.extend([case] for case in apart)
    kept = []
    for cases in left_out:
        kept.append(rows.copy())
        kept[-1][cases] = NO_ROW
    return kept


def _joined(candidates: Candidates, answer: SolverResult, kept: Assignment) -> SolverResult:
    """An answer for some cases, and the others as they are kept."""
    own, mine = kept.rows != NO_ROW, answer.assignment
    assignment = replace(
        mine,
        rows=np.where(own, kept.rows, mine.rows),
        replicas=np.where(own, kept.replicas, mine.replicas),
        mixes={**mine.mixes, **kept.mixes},
    )
    wanted = _loads(candidates, range(len(candidates.cases)))
    return replace(
        answer,
        assignment=assignment,
        levels=_with_bounds(loads_served(candidates, assignment), wanted, wanted),
        marginal=tuple(replace(m, estimated=m != MarginalValue()) for m in answer.marginal),
        curve=(),
        objective=None,
    )


def _solve(
    candidates: Candidates, capacity: IntArray, clock: Callable[[], float], start: float
) -> SolverResult:
    """The answer; the worth of one more card counts no rows that only this card makes possible."""
    options = candidates.system.options
    sized = clock()
    greedy = solve_greedy(candidates, capacity, stand=_stands(candidates)).assignment
    sizing, filling = sized - start, clock() - sized  # what a search finds is filled up, too
    deadline = start + options.time_limit - DECISIONS * sizing - filling
    solve, least = _search(candidates)
    timer = Timer(lambda: deadline - clock(), _reserved(candidates))
    recorder, failures = CurveRecorder(clock), Failures()
    in_part = options.saturation_policy is not SaturationPolicy.NONE
    if in_part and not options.heterogeneous:
        answer = _with_partial_service(candidates, capacity, timer, greedy, failures)
        return replace(answer, curve=_curve(candidates, answer, recorder))
    plan, first = None, timer
    if in_part:
        first = Timer(timer.seconds_left, timer.reserved + HALF * timer.to_search())
    if timer.to_search() > least * sizing:
        plan = failures.attempt("search", lambda: solve(candidates, capacity, first, recorder))
    if plan is None:
        plan = _unproven(candidates, greedy, out_of_time=not failures.texts)
    levels = _levels(candidates, plan.assignment, plan.most_served)
    bound = _at_most(plan.assignment.objective(candidates), plan.least_value)
    unproven = SolverStatus.TIME_LIMIT if plan.out_of_time else SolverStatus.FEASIBLE
    answer = SolverResult("milp", unproven, plan.assignment, bound, levels)
    if _distance(candidates, answer) <= OPTIMAL:
        answer = replace(answer, status=SolverStatus.OPTIMAL)
    elif any(level.gap > _given_up(candidates) for level in levels):
        answer = _or_greedy(candidates, greedy, answer)
    if in_part and _leaves_some(candidates, answer):
        single = _with_partial_service(candidates, capacity, timer, greedy, failures)
        if _is_better(candidates, single.assignment, answer.assignment):
            return replace(_unbound(candidates, single), curve=_curve(candidates, single, recorder))
    marginal = failures.attempt("value of one more card", plan.one_more) or ()
    answer = replace(answer, marginal=marginal, failures=(*plan.failures, *failures.texts))
    if options.trace:
        answer = replace(answer, curve=_ended(candidates, answer, plan.curve, recorder.seconds))
    return answer


def _search(candidates: Candidates) -> tuple["_Solve", float]:
    """The search for a plan, and its least time as a multiple of that of sizing."""
    if candidates.system.options.heterogeneous:
        return _solve_mixed, MIXES
    return (_solve_whole if candidates.several_types else _solve_single), 0.0


def _with_partial_service(
    candidates: Candidates,
    capacity: IntArray,
    timer: Timer,
    greedy: Assignment,
    failures: Failures,
) -> SolverResult:
    """An answer whose levels count partial service."""
    plan = None
    if timer.to_search() > 0:
        plan = failures.attempt("search", lambda: solve_partial(candidates, capacity, timer))
    wanted, fallback = (
        _loads(candidates, range(len(candidates.cases))),
        SolverResult(
            "milp",
            SolverStatus.TIME_LIMIT,
            greedy,
            objective=total_value(candidates, capacity, greedy),
        ),
    )
    if plan is None:
        levels = _with_bounds(loads_served(candidates, greedy), wanted, wanted)
        return replace(fallback, levels=levels, failures=failures.texts)
    levels = _with_bounds(plan.served, plan.most_served, wanted)
    answer = SolverResult(
        "milp",
        SolverStatus.TIME_LIMIT if plan.out_of_time else SolverStatus.FEASIBLE,
        plan.assignment,
        _at_most(plan.objective, plan.least_value),
        levels,
        plan.one_more,
        failures=failures.texts,
        objective=plan.objective,
    )
    if _distance(candidates, answer) <= OPTIMAL:
        return replace(answer, status=SolverStatus.OPTIMAL)
    if _is_better(candidates, greedy, plan.assignment):
        levels = _with_bounds(loads_served(candidates, greedy), plan.most_served, wanted)
        return replace(fallback, levels=levels, failures=failures.texts)
    return answer


def _leaves_some(candidates: Candidates, answer: SolverResult) -> bool:
    """Whether some case that has a usable row is not served entirely."""
    return len(answer.assignment.served(candidates)) < len(np.unique(_cases_with_rows(candidates)))


def _cases_with_rows(candidates: Candidates) -> IntArray:
    return candidates.pairs.case[candidates.usable]


def _is_better(candidates: Candidates, one: Assignment, another: Assignment) -> bool:
    """Whether the first of two plans holds or serves more by priority, in part or entirely."""
    held, served = (
        [loads(candidates, plan) for plan in (one, another)] for loads in (loads_held, loads_served)
    )
    for priority in served[0]:
        for first, second in (held, served):
            mine, its = first[priority], second[priority]
            if abs(mine - its) > _given_up(candidates) * max(mine, its):
                return mine > its
    return False


def _is_better_or_cheaper(candidates: Candidates, one: Assignment, another: Assignment) -> bool:
    """Whether the first of two plans holds or serves more, or the same at a lower value."""
    if _is_better(candidates, one, another):
        return True
    cheaper = one.objective(candidates) < another.objective(candidates)
    return cheaper and not _is_better(candidates, another, one)


def _unbound(candidates: Candidates, answer: SolverResult) -> SolverResult:
    """The answer without its bounds, which do not hold for mixes that serve a case in part."""
    wanted = _loads(candidates, range(len(candidates.cases)))
    levels = tuple(replace(level, bound=wanted[level.priority]) for level in answer.levels)
    return replace(answer, status=SolverStatus.FEASIBLE, bound=None, levels=levels)


def _with_bounds(
    served: Mapping[int, float], most: Mapping[int, float], wanted: Mapping[int, float]
) -> tuple[Level, ...]:
    """Load served of each priority, with the most that is proven to be possible."""
    return tuple(
        Level(priority, load, max(load, most.get(priority, 0.0)), wanted[priority])
        for priority, load in served.items()
    )


def _curve(
    candidates: Candidates, answer: SolverResult, recorder: CurveRecorder
) -> tuple[CurvePoint, ...]:
    """A curve of one point, the end of the search; empty if no curve is asked for."""
    trace = candidates.system.options.trace
    return _ended(candidates, answer, (), recorder.seconds) if trace else ()


def _stands(candidates: Candidates) -> bool:
    """Whether there is a plan already: most of the cases may stay as they are."""
    staying = np.unique(candidates.pairs.case[candidates.stays & candidates.usable])
    return len(staying) > HALF * len(candidates.cases)


def _reserved(candidates: Candidates) -> float:
    """Seconds that the search leaves for what one more card is worth."""
    takes = PRICES_SECONDS + PRICES_PER_ROW * len(candidates.pairs.case)
    return min(PRICES * candidates.system.options.time_limit, takes)


@dataclass(frozen=True, slots=True)
class _Plan:
    """An assignment, and what is proven: the most load by priority, and the least value.

    `one_more` tells what one more card of each type is worth, in the time that remains.
    `failures` are steps that ended with an error.
    """

    assignment: Assignment
    most_served: Mapping[int, float]
    least_value: float
    one_more: Callable[[], tuple[MarginalValue, ...]]
    out_of_time: bool
    curve: tuple[CurvePoint, ...] = ()
    failures: tuple[str, ...] = ()


_Solve = Callable[[Candidates, IntArray, Timer, CurveRecorder], _Plan]


def _unproven(candidates: Candidates, assignment: Assignment, *, out_of_time: bool) -> _Plan:
    """An assignment of which nothing is proven."""
    most = _loads(candidates, range(len(candidates.cases)))
    return _Plan(assignment, most, -math.inf, tuple, out_of_time)


def _at_most(objective: float, bound: float) -> float | None:
    """The bound of an objective, free of rounding; None where nothing is proven."""
    if not math.isfinite(bound):
        return None
    is_rounding = objective - bound <= ROUNDING * max(abs(objective), 1.0)
    return objective if is_rounding else bound


def _solve_single(
    candidates: Candidates, capacity: IntArray, timer: Timer, recorder: CurveRecorder
) -> _Plan:
    """One row for each case."""
    options = candidates.system.options
    room = candidates.fitting(capacity)
    rows = np.flatnonzero(candidates.usable & (candidates.replicas <= room))
    if not len(rows):
        return _Plan(_filled(candidates, capacity, rows), {}, 0.0, tuple, out_of_time=False)
    program = Program.of(candidates, rows, capacity)
    undominated = program.undominated()
    rows = rows[undominated]
    outcome = solve_by_levels(
        program.take(undominated),
        timer,
        tolerance=options.priority_tolerance,
        observe=recorder.observe if options.trace else None,
    )
    priorities = _priorities(candidates, candidates.pairs.case[rows])
    return _Plan(
        _filled(candidates, capacity, rows[outcome.plan]),
        dict(zip(priorities, outcome.most_served.tolist(), strict=True)),
        outcome.least_value,
        lambda: outcome.one_more().described(priorities),
        outcome.out_of_time,
        recorder.curve(priorities, _loads(candidates, ()), 0.0),
        outcome.failures,
    )


def _solve_whole(
    candidates: Candidates, capacity: IntArray, timer: Timer, recorder: CurveRecorder
) -> _Plan:
    """One row for each case, where some take cards of several types.

    Cases that need no replicas are not in the program; `_filled` serves them.
    """
    problem = ReplicaProblem.whole(candidates, capacity)
    tolerance = candidates.system.options.priority_tolerance
    outcome = solve_partial_by_levels(problem, timer, tolerance, delayed=False)
    assignment = _filled(candidates, capacity, problem.row[outcome.counts > 0])
    priorities = _priorities(candidates, problem.cases)
    most = dict(zip(priorities, outcome.most_served(), strict=True))
    besides, value = _served_besides(candidates, assignment, problem.cases)
    return _Plan(
        assignment,
        {p: most.get(p, 0.0) + load for p, load in besides.items()},
        outcome.least_value + value,
        lambda: outcome.one_more.described(priorities),
        outcome.out_of_time,
        recorder.curve(priorities, besides, value),
    )


def _solve_mixed(
    candidates: Candidates, capacity: IntArray, timer: Timer, recorder: CurveRecorder
) -> _Plan:
    """A mix of rows for each case.

    Cases that need no replicas are not in the program; `_filled` serves them.
    """
    table, options = MixTable.of(candidates, capacity), candidates.system.options
    observe = recorder.observe if options.trace else None
    outcome = solve_mixes(table, capacity, timer, options.priority_tolerance, observe)
    singles, mixes = table.given(outcome.plan)
    assignment = _filled(candidates, capacity, singles, mixes)
    priorities = _priorities(candidates, table.case)
    most = dict(zip(priorities, outcome.most_served.tolist(), strict=True))
    besides, value = _served_besides(candidates, assignment, table.case)
    return _Plan(
        assignment,
        {p: most.get(p, 0.0) + load for p, load in besides.items()},
        outcome.least_value + value,
        lambda: outcome.one_more().described(priorities),
        outcome.out_of_time,
        recorder.curve(priorities, besides, value),
        outcome.failures,
    )


def _served_besides(
    candidates: Candidates, assignment: Assignment, cases: IntArray
) -> tuple[dict[int, float], float]:
    """Load by priority, and value, of what is served besides the cases of a program."""
    others = np.setdiff1d(assignment.served(candidates), cases)
    value = float(candidates.value[assignment.rows[others]].sum())
    return _loads(candidates, others.tolist()), value


def _ended(
    candidates: Candidates, answer: SolverResult, curve: tuple[CurvePoint, ...], seconds: float
) -> tuple[CurvePoint, ...]:
    """The curve with the answer as its last point: steps after the search may change the plan."""
    served = {level.priority: level.served for level in answer.levels}
    value = answer.value(candidates)
    end = CurvePoint(seconds, None, served, value, answer.bound)
    return curve if curve and replace(curve[-1], seconds=seconds) == end else (*curve, end)


def _levels(
    candidates: Candidates, assignment: Assignment, most: Mapping[int, float]
) -> tuple[Level, ...]:
    """Load served of each priority, with the most that is proven to be possible."""
    wanted = _loads(candidates, range(len(candidates.cases)))
    return _with_bounds(_served(candidates, assignment), most, wanted)


def _distance(candidates: Candidates, answer: SolverResult) -> float:
    objective, bound = answer.value(candidates), answer.bound
    certificate = Certificate(answer.solver, answer.status, objective, bound, 0.0, answer.levels)
    return math.inf if certificate.gap is None else certificate.gap


def _or_greedy(candidates: Candidates, greedy: Assignment, answer: SolverResult) -> SolverResult:
    """What greedy finds, where that serves more: time may have ended before anything good."""
    mine, other = _served(candidates, answer.assignment), _served(candidates, greedy)
    if not _serves_more(candidates, other, mine):
        return answer
    levels = tuple(replace(level, served=other[level.priority]) for level in answer.levels)
    return replace(answer, assignment=greedy, bound=None, levels=levels)


def _serves_more(
    candidates: Candidates, other: Mapping[int, float], mine: Mapping[int, float]
) -> bool:
    """Whether another plan serves more of the first priority of which it serves something else."""
    given_up = _given_up(candidates) * (1 + ROUNDING)
    differs = [
        p for p, load in mine.items() if abs(other[p] - load) > given_up * max(other[p], load)
    ]
    return bool(differs) and other[differs[0]] > mine[differs[0]]


def _given_up(candidates: Candidates) -> float:
    """Share of the load of a priority that later goals may take."""
    options = candidates.system.options
    entirely = options.saturation_policy is SaturationPolicy.NONE
    by_default = EXACT.given_up if entirely else GIVEN_UP_IN_PART
    return max(by_default, options.priority_tolerance or 0.0)


def _filled(
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


def _served(candidates: Candidates, plan: Assignment) -> dict[int, float]:
    """Load served entirely, by priority; the most important first."""
    return _loads(candidates, plan.served(candidates).tolist())


def _loads(candidates: Candidates, cases: Iterable[int]) -> dict[int, float]:
    """Load of some cases, by priority; the most important first."""
    load = dict.fromkeys(_priorities(candidates, np.arange(len(candidates.cases))), 0.0)
    for case in cases:
        load[candidates.cases[case].priority] += weight_of(candidates.cases[case])
    return load


def _priorities(candidates: Candidates, cases: IntArray) -> list[int]:
    """Those of some cases, the most important first."""
    return sorted({candidates.cases[case].priority for case in cases.tolist()})
