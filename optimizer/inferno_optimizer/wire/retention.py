"""Keeps what runs where an optimizer that does not know the policy `Hold` takes it away.

With `Hold` nothing that runs is reduced for lack of cards, but for a more important server that
gets them. The original shares cards out without looking at what runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from inferno_optimizer.caveats import warned
from inferno_optimizer.decisions import decide
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.solvers.assignment import Assignment
from inferno_optimizer.solvers.greedy import Entry, fill
from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.solvers.running import Running
from inferno_optimizer.system import SaturationPolicy
from inferno_optimizer.wire.answers import count_capacity
from inferno_optimizer.wire.plausibility import RowReplicas, Sizes

Decided = Mapping[int, Decision]
"""Decisions by case of the candidates."""

Parts = Mapping[int, RowReplicas]
"""Rows and replicas by case of the candidates."""


def keep_running(solution: Solution, sizes: Sizes) -> Solution:
    """Keep what runs of servers that get less for lack of cards.

    If a server gets less than what runs, the plan is made anew: the servers of a priority hold
    what runs, then get all that the optimizer decided, if that is all that they need and fits,
    and share what is left. Otherwise the solution stays as it is.

    Parameters
    ----------
    solution
        The solution of an optimizer that does not know `Hold`, with its best effort told.
    sizes
        The sizes of the servers of the system that was optimized.
    """
    options, candidates = sizes.system.options, sizes.candidates
    if options.unlimited or options.saturation_policy is not SaturationPolicy.HOLD:
        return solution
    by_server = {decision.server: decision for decision in solution.decisions}
    decided = {i: by_server[case.server.name] for i, case in enumerate(candidates.cases)}
    parts = dict(_list_parts(decided, sizes))
    if not _is_reduced(decided, parts, candidates):
        return solution
    anew = _plan_anew(solution, decided, parts, candidates)
    catalogue = Catalogue(sizes.system)
    decisions = warned(catalogue, ({**by_server, **anew}[name] for name in by_server))
    cost = sum(d.allocation.cost for d in decisions if d.allocation is not None)
    return replace(
        solution,
        decisions=decisions,
        certificate=replace(solution.certificate, objective=cost),
        capacity=count_capacity(catalogue, decisions, {}),
    )


def _plan_anew(
    solution: Solution, decided: Decided, parts: Parts, candidates: Candidates
) -> dict[str, Decision]:
    """Return the decisions of a plan that keeps what runs, by server."""
    cards = {use.type: use.usable for use in solution.capacity}
    capacity = np.array([cards.get(name, 0) for name in candidates.types], dtype=np.int64)
    served = {i: d for i, d in decided.items() if d.reason is Reason.ALLOCATED}
    plan = fill(candidates, capacity, partial(_follow, served, parts))
    left = np.maximum(capacity - plan.used(candidates), 0)
    new = {decision.server: decision for decision in decide(candidates, plan, left)}
    kept = {d.server: d for i, d in served.items() if _is_followed(plan, i, d, parts)}
    return {**new, **kept}


def _list_parts(decided: Decided, sizes: Sizes) -> Iterator[tuple[int, RowReplicas]]:
    """The rows and replicas of decisions for some replicas, at most those that a row needs."""
    for case, decision in decided.items():
        if decision.allocation is not None and decision.allocation.replicas:
            for row, replicas in sizes.parts(decision.server, decision.allocation):
                yield case, RowReplicas(row, min(replicas, int(sizes.candidates.replicas[row])))


def _is_reduced(decided: Decided, parts: Parts, candidates: Candidates) -> bool:
    """Whether a case gets a smaller part of what it needs than what runs."""
    running, needed = Running.of(candidates), candidates.replicas
    for case, decision in decided.items():
        if decision.reason not in (Reason.BEST_EFFORT, Reason.NO_CAPACITY):
            continue
        now = running.replicas[case] / max(needed[running.rows[case]], 1)
        part = parts.get(case)
        if (part.replicas / needed[part.row] if part else 0.0) < max(now, case in running.parts):
            return True
    return False


def _follow(served: Decided, parts: Parts, ledger: Ledger, entries: Sequence[Entry]) -> list[Entry]:
    """Give cases all that was decided, as far as it fits; returns the others.

    A case that moves gives back what it holds, so that one before it may fit after it.
    """
    waiting = [entry for entry in entries if entry.case in served and entry.case in parts]
    count = len(waiting) + 1
    while len(waiting) < count:
        count = len(waiting)
        waiting = [entry for entry in waiting if not _give_if_it_fits(parts[entry.case], ledger)]
    unmet = {entry.case for entry in waiting}
    return [entry for entry in entries if entry.case in unmet or entry.case not in served]


def _give_if_it_fits(part: RowReplicas, ledger: Ledger) -> bool:
    """Give a case its part, if it fits."""
    missing = part.replicas - ledger.given(part.row)
    if missing > ledger.room(part.row):
        return False
    if missing > 0:
        ledger.take(part.row, missing)
    return True


def _is_followed(plan: Assignment, case: int, decision: Decision, parts: Parts) -> bool:
    """Whether a case has in a plan what was decided, which may be nothing."""
    if case not in parts or decision.allocation is None:
        return True
    decided = (parts[case].row, decision.allocation.replicas)
    return decided == (int(plan.rows[case]), int(plan.replicas[case]))
