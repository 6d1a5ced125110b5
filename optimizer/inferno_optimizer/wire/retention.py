"""Keeps what runs where an optimizer that does not know the policy `Hold` takes it away.

With `Hold` nothing that runs is reduced for lack of cards, but for a more important server that
gets them. The original shares cards out without looking at what runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from inferno_optimizer.caveats import warned
from inferno_optimizer.decisions import decide
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision, Reason, Solution
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
    and share what is left. Otherwise the solution stays as it is. It is that of an optimizer that
    does not know `Hold`, with its best effort told; the sizes are those of the system.
    """
    options, candidates = sizes.system.options, sizes.candidates
    if options.unlimited or options.saturation_policy is not SaturationPolicy.HOLD:
        return solution
    by_server = {decision.server: decision for decision in solution.decisions}
    decided = {i: by_server[case.server.name] for i, case in enumerate(candidates.cases)}
    parts = {  # at most the replicas that a row needs
        case: RowReplicas(row, min(replicas, int(candidates.replicas[row])))
        for case, decision in decided.items()
        if decision.allocation is not None and decision.allocation.replicas
        for row, replicas in sizes.parts(decision.server, decision.allocation)
    }
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
    for case, decision in served.items():
        planned = int(plan.rows[case]), int(plan.replicas[case])
        replicas = decision.allocation.replicas if decision.allocation else 0
        is_followed = case not in parts or planned == (parts[case].row, replicas)
        if is_followed:  # as it was decided, which may be nothing
            new[decision.server] = decision
    return new


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
        for entry in tuple(waiting):
            row, replicas = parts[entry.case]
            missing = replicas - ledger.given(row)
            if missing <= ledger.room(row):
                waiting.remove(entry)
                if missing > 0:
                    ledger.take(row, missing)
    unmet = {entry.case for entry in waiting}
    return [entry for entry in entries if entry.case in unmet or entry.case not in served]
