"""The solver's rows -> a decision for each server, in words that tell what to change."""

from collections.abc import Iterable

import numpy as np

from inferno_optimizer.candidates import MAX_REPLICAS, Candidates
from inferno_optimizer.cases import Case
from inferno_optimizer.performance import WAIT_PERCENTILE_FACTOR
from inferno_optimizer.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment
from inferno_optimizer.system import Allocation, Decision, Reason

SECONDS_PER_MINUTE = 60.0

OPTIONS_NAMED = 3
"""How many of the options that a server has a message names."""


def unattainable(candidates: Candidates) -> list[Decision]:
    """Decisions for the cases that have no usable row: no number of replicas helps them."""
    with_rows = set(np.unique(candidates.pairs.case[candidates.usable]).tolist())
    return [
        _without_usable_row(candidates, case)
        for case in range(len(candidates.cases))
        if case not in with_rows
    ]


def _without_usable_row(candidates: Candidates, case: int) -> Decision:
    server, rows = candidates.cases[case].server, candidates.rows_of(case)
    if np.any(candidates.sizing.max_rate[rows] > 0):
        message = f"{_demand(candidates.cases[case])} takes more than {MAX_REPLICAS} replicas;"
        message += " correct it"
        return Decision(server.name, Reason.INVALID_SPEC, message)
    return Decision(server.name, Reason.UNATTAINABLE_SLO, _nearest_miss(candidates, rows))


def _demand(case: Case) -> str:
    """What is asked for, in the words of the larger of load and throughput target."""
    load, throughput = case.server.load, case.target.tokens_per_second
    if throughput / load.tokens_per_request > load.arrival_rate / SECONDS_PER_MINUTE:
        return f"a slo-tps of {throughput:g} tokens/s"
    return f"an arrival rate of {load.arrival_rate:g} requests/min"


def _nearest_miss(candidates: Candidates, rows: IntArray) -> str:
    """The target in the way on the accelerator that comes closest to it."""
    target = candidates.cases[int(candidates.pairs.case[rows[0]])].target
    limits = candidates.pairs.replicas
    itl, wait = candidates.sizing.itl_floor[rows], candidates.sizing.delay_floor[rows]
    itl_excess, wait_excess = itl / limits.itl_limit[rows], wait / limits.delay_limit[rows]
    best = int(np.argmin(np.maximum(itl_excess, wait_excess)))
    if itl_excess[best] >= wait_excess[best]:
        field, asked, floor = "slo-itl", target.itl_ms, itl[best]
    else:
        field, asked = "slo-ttw", target.wait_ms
        floor = wait[best] * WAIT_PERCENTILE_FACTOR
    accelerator = _accelerator(candidates, int(rows[best]))
    return (
        f"{field} of {asked:g} ms is out of reach at any number of replicas: the best,"
        f" {accelerator}, takes {floor:.4g} ms; raise {field} above that or add performance data"
        f" of a faster accelerator"
    )


def decide(candidates: Candidates, assignment: Assignment, left: IntArray) -> Iterable[Decision]:
    """A decision for each case that has a usable row; `left` are the cards left by type."""
    chosen = np.flatnonzero(assignment.rows != NO_ROW)
    rows, replicas = assignment.rows[chosen], assignment.replicas[chosen]
    itl, delay = candidates.latencies(rows, replicas)
    latencies = dict(
        zip(chosen.tolist(), zip(itl.tolist(), delay.tolist(), strict=True), strict=True)
    )
    ranked = candidates.ranked()
    owners = candidates.pairs.case[ranked]
    for rows_of_case in np.split(ranked, np.flatnonzero(np.diff(owners)) + 1):
        if not len(rows_of_case):
            continue
        case = int(candidates.pairs.case[rows_of_case[0]])
        if case in latencies:
            row, given = int(assignment.rows[case]), int(assignment.replicas[case])
            yield _served(candidates, row, given, latencies[case])
        else:
            yield _no_capacity(candidates, rows_of_case, left)


def _served(
    candidates: Candidates, row: int, replicas: int, latencies: tuple[float, float]
) -> Decision:
    server = candidates.cases[int(candidates.pairs.case[row])].server
    wanted, accelerator = int(candidates.replicas[row]), _accelerator(candidates, row)
    share = replicas / wanted if wanted else 1.0
    allocation = Allocation(
        accelerator=accelerator,
        replicas=replicas,
        max_batch_size=int(candidates.pairs.replicas.batch[row]),
        cost=float(candidates.cost[row]) * share,
        itl_ms=latencies[0],
        wait_ms=latencies[1],
        load=server.load,
    )
    if replicas == wanted:
        message = f"{replicas} x {accelerator}"
        return Decision(server.name, Reason.ALLOCATED, message, allocation)
    message = (
        f"{replicas} x {accelerator} of the {wanted} that its targets take: capacity is short;"
        f" expect an inter-token latency of {latencies[0]:.4g} ms and a wait of"
        f" {latencies[1]:.4g} ms"
    )
    return Decision(server.name, Reason.BEST_EFFORT, message, allocation)


def _no_capacity(candidates: Candidates, rows: IntArray, left: IntArray) -> Decision:
    """What a case would take, best first; `rows` are its usable ones in that order."""
    options = [_need(candidates, int(row), left) for row in rows[:OPTIONS_NAMED]]
    more = f" or {len(rows) - OPTIONS_NAMED} other options" if len(rows) > OPTIONS_NAMED else ""
    message = (
        f"not enough cards: it takes {', or '.join(options)}{more}; add capacity or lower the load"
    )
    server = candidates.cases[int(candidates.pairs.case[rows[0]])].server
    return Decision(server.name, Reason.NO_CAPACITY, message)


def _need(candidates: Candidates, row: int, left: IntArray) -> str:
    card_type = candidates.types[int(candidates.pairs.type[row])]
    return (
        f"{candidates.replicas[row]} x {_accelerator(candidates, row)}"
        f" (cards of {card_type}: {candidates.cards[row]},"
        f" left {left[candidates.pairs.type[row]]})"
    )


def _accelerator(candidates: Candidates, row: int) -> str:
    return candidates.system.accelerators[int(candidates.pairs.accelerator[row])].name
