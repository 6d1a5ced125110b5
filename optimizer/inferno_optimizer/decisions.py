"""Turns the solver's assignment into a decision for each server, with a message for users."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace
from typing import NamedTuple

import numpy as np

from inferno_optimizer.card_types import without_count
from inferno_optimizer.sizing.candidates import MAX_REPLICAS, Candidates
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.latencies import Latencies
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.solution import IDLE, Decision, Reason
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, KeptReplicas, Mix
from inferno_optimizer.system import Allocation, Generation, SaturationPolicy, Server, Tail
from inferno_optimizer.units import MS_PER_MINUTE

OPTIONS_NAMED = 3
"""Largest number of options of a server that a message lists."""

TARGETS = ("slo-itl", "slo-ttw", "slo-ttft")
"""Fields of the latency targets, in the order of the arrays below."""


def size_servers(
    catalogue: Catalogue, servers: Iterable[Server], *, rates: bool = True
) -> tuple[Candidates, list[Decision]]:
    """Size servers on their accelerators; see `build_candidates` for `rates`.

    Returns
    -------
    The candidates of all servers that can be sized, and a decision for each server that no
    plan can serve: it cannot be sized, or no number of replicas meets its targets.
    """
    outcomes = [catalogue.case(server) for server in servers]
    cases = [outcome for outcome in outcomes if isinstance(outcome, Case)]
    candidates = build_candidates(catalogue, cases, rates=rates)
    not_sized = [o for o in outcomes if isinstance(o, Decision)]
    return candidates, not_sized + _unattainable(candidates)


def _unattainable(candidates: Candidates) -> list[Decision]:
    """Decisions for the cases without a usable row: no number of replicas meets their targets."""
    with_rows = set(np.unique(candidates.pairs.case[candidates.usable]).tolist())
    return [
        _without_usable_row(candidates, case)
        for case in range(len(candidates.cases))
        if case not in with_rows
    ]


def _without_usable_row(candidates: Candidates, case: int) -> Decision:
    server, rows = candidates.cases[case].server, candidates.rows_of(case)
    attainable = rows[candidates.sizing.max_rate[rows] > 0]
    if len(attainable):
        message = f"{_demand(candidates, int(attainable[0]))} takes more than {MAX_REPLICAS}"
        message += " replicas; correct it"
        return Decision(server.name, Reason.INVALID_SPEC, message)
    return Decision(server.name, Reason.UNATTAINABLE_SLO, _nearest_miss(candidates, rows))


def _demand(candidates: Candidates, row: int) -> str:
    """The demand of a row as text: its load or its throughput target, whichever is larger."""
    case = candidates.case_of(row)
    if _is_sized_by_throughput(candidates, row):
        return f"a slo-tps of {case.target.tokens_per_second:g} tokens/s"
    return f"an arrival rate of {case.server.load.arrival_rate:g} requests/min"


def _is_sized_by_throughput(candidates: Candidates, row: int) -> bool:
    """Whether the throughput target needs more capacity than the load."""
    load = candidates.case_of(row).server.load
    return bool(candidates.pairs.demand[row] > load.arrival_rate / MS_PER_MINUTE)


class Miss(NamedTuple):
    """The field of a target, the target itself and the lowest attainable latency [ms]."""

    field: str
    asked: float
    floor: float


def misses(candidates: Candidates, row: int) -> list[Miss]:
    """The targets that a row misses at any number of replicas, worst first."""
    asked, floors = _asked(candidates, row), _floors(candidates, np.array([row]))[:, 0]
    missed = [
        Miss(field, *numbers)
        for field, *numbers in zip(TARGETS, asked.tolist(), floors.tolist(), strict=True)
    ]
    missed.sort(key=lambda miss: miss.asked / miss.floor if miss.floor > 0 else np.inf)
    return [miss for miss in missed if miss.asked < miss.floor] or missed[:1]


def _asked(candidates: Candidates, row: int) -> FloatArray:
    """Targets of the case of a row in the order of `TARGETS` [ms]; infinite where not set."""
    target = candidates.case_of(row).target
    asked = np.array((target.itl_ms, target.wait_ms, target.ttft_ms), dtype=np.float64)
    return np.where(asked > 0, asked, np.inf)


def _floors(candidates: Candidates, rows: IntArray) -> FloatArray:
    """Lowest attainable latency for each target [ms]; shape (targets, rows)."""
    sizing = candidates.sizing
    return np.stack((sizing.itl_floor[rows], sizing.wait_floor[rows], sizing.ttft_floor[rows]))


def _nearest_miss(candidates: Candidates, rows: IntArray) -> str:
    """Message about the most exceeded target, on the accelerator that exceeds it least."""
    excess = _floors(candidates, rows) / _asked(candidates, int(rows[0]))[:, None]
    row = int(rows[np.argmin(excess.max(axis=0))])
    field, asked, floor = misses(candidates, row)[0]
    return (
        f"{field} of {asked:g} ms is out of reach at any number of replicas: the best,"
        f" {_accelerator(candidates, row)}, takes {floor:.4g} ms; raise {field} above that or add"
        f" performance data of a faster accelerator"
    )


def decide(candidates: Candidates, assignment: Assignment, left: IntArray) -> Iterable[Decision]:
    """A decision for each case that has a usable row; `left` counts the unused cards by type."""
    chosen = np.flatnonzero(assignment.rows != NO_ROW)
    latencies = candidates.latencies(assignment.rows[chosen], assignment.replicas[chosen])
    place = {case: position for position, case in enumerate(chosen.tolist())}
    mixed = {case: _mixed(candidates, mix) for case, mix in assignment.mixes.items()}
    ranked = candidates.ranked()
    owners = candidates.pairs.case[ranked]
    rest = _rest(candidates, left)
    for rows_of_case in np.split(ranked, np.flatnonzero(np.diff(owners)) + 1):
        if not len(rows_of_case):
            continue
        case = int(candidates.pairs.case[rows_of_case[0]])
        if case in mixed:
            yield mixed[case]
        elif case in assignment.kept:
            yield _kept(candidates, rows_of_case, assignment.kept[case], rest)
        elif case in place:
            row, given = int(assignment.rows[case]), int(assignment.replicas[case])
            yield _served(candidates, row, given, latencies, place[case])
        else:
            yield _no_capacity(candidates, rows_of_case, rest)


def decide_rows(
    candidates: Candidates, rows: Sequence[int], replicas: Sequence[int]
) -> list[Decision]:
    """The decisions for cases that got replicas of rows; BestEffort where they are too few."""
    latencies = candidates.latencies(np.array(rows), np.array(replicas))
    return [
        _served(candidates, row, given, latencies, place)
        for place, (row, given) in enumerate(zip(rows, replicas, strict=True))
    ]


def _served(
    candidates: Candidates, row: int, replicas: int, latencies: Latencies, place: int
) -> Decision:
    """The decision for a case that got replicas of a row; `place` is its index in the latencies."""
    server = candidates.case_of(row).server
    if candidates.pairs.released[row]:
        generation = candidates.generation(row)
        nothing = Allocation(load=server.load, tail=Tail(), generation=generation)
        return Decision(server.name, Reason.ALLOCATED, IDLE, nothing)
    wanted = int(candidates.replicas[row])
    allocation = _allocation(candidates, row, replicas, latencies, place)
    placement = candidates.catalogue.placement(server.model, allocation)
    if replicas == wanted:
        return Decision(server.name, Reason.ALLOCATED, placement, allocation)
    gets = placement if allocation.roles else str(replicas)
    message = (
        f"gets {gets} of the {_all_of(candidates, row)} it needs:"
        f" {_shortage(candidates, row, allocation)};"
        f" at {_forecast_load(candidates, row)} expect an inter-token latency of"
        f" {_ms(allocation.itl_ms)} and {_delay(allocation)}"
    )
    return Decision(server.name, Reason.BEST_EFFORT, message, allocation)


def _shortage(candidates: Candidates, row: int, allocation: Allocation) -> str:
    """Why a server gets no more replicas, and, where it holds what runs, what to do."""
    current = candidates.case_of(row).server.current
    holds = candidates.system.options.saturation_policy is SaturationPolicy.HOLD
    if not holds or current.mix or current.placement != allocation.placement:
        return "not enough cards"
    types = " and ".join(candidates.types[t] for t, _ in candidates.cards_of(row))
    return f"not enough cards of {types}, so it keeps what runs; add cards or lower the load"


def _kept(
    candidates: Candidates, rows: IntArray, parts: Sequence[KeptReplicas], rest: Sequence[str]
) -> Decision:
    """The decision for a case that keeps parts of what runs; `rows` are its usable rows."""
    server = candidates.case_of(rows[0]).server
    runs = zip(server.current.parts, parts, strict=True)
    stay = [_shrunk(before, part.replicas) for before, part in runs if part.replicas]
    first = replace(stay[0], load=server.load)
    kept = (
        first
        if len(stay) == 1
        else replace(
            server.current,
            replicas=sum(part.replicas for part in stay),
            cost=sum(part.cost for part in stay),
            mix=() if server.current.roles else tuple(stay),
            roles=tuple(stay) if server.current.roles else (),
        )
    )
    placement = candidates.catalogue.placement(server.model, kept)
    message = (
        f"{placement}: it keeps what runs, which misses its targets; not enough cards: it takes"
        f" {_needs(candidates, rows, rest)}; add capacity or lower the load"
    )
    return Decision(server.name, Reason.BEST_EFFORT, message, kept)


def _shrunk(allocation: Allocation, replicas: int) -> Allocation:
    """The same with fewer replicas."""
    cost = allocation.cost * replicas / allocation.replicas
    return replace(allocation, replicas=replicas, cost=cost)


def _forecast_load(candidates: Candidates, row: int) -> str:
    """The load as text at which latencies are predicted: the demand of the row."""
    case = candidates.case_of(row)
    load = f"{case.server.load.arrival_rate:g} requests/min"
    if not _is_sized_by_throughput(candidates, row):
        return load
    asked = candidates.pairs.demand[row] * MS_PER_MINUTE
    return f"the {asked:.4g} requests/min that slo-tps asks for (the load is {load})"


def _allocation(
    candidates: Candidates, row: int, replicas: int, latencies: Latencies, place: int
) -> Allocation:
    """Replicas of a row that get the whole load; `place` is their index in the latencies."""
    roles = candidates.roles(row, replicas)
    return Allocation(
        accelerator=roles[-1].accelerator if roles else _accelerator(candidates, row),
        replicas=sum(part.replicas for part in roles) or replicas,
        max_batch_size=int(candidates.pairs.batch[row]),
        cost=float(candidates.unit_cost[row]) * replicas,
        itl_ms=float(latencies.itl_ms[place]),
        wait_ms=float(latencies.wait_ms[place]),
        load=candidates.case_of(row).server.load,
        ttft_ms=float(latencies.ttft_ms[place]),
        tail=latencies.tail(place),
        generation=candidates.generation(row),
        roles=roles,
    )


def _all_of(candidates: Candidates, row: int) -> str:
    """All the replicas of a row, as text."""
    server = candidates.case_of(row).server
    wanted = int(candidates.replicas[row])
    part = Allocation(_accelerator(candidates, row), wanted)
    whole = replace(part, roles=candidates.roles(row, wanted))
    return candidates.catalogue.placement(server.model, whole)


def _mixed(candidates: Candidates, mix: Mix) -> Decision:
    """The decision for a case on several rows; each row gets load in proportion to its capacity."""
    rows, replicas = np.array(mix.rows), np.array(mix.replicas)
    capacity = _capacity(candidates, rows) * replicas
    shares = capacity / capacity.sum()
    latencies = candidates.latencies(rows, replicas / shares)
    parts = [
        _with_share(_allocation(candidates, row, given, latencies, place), float(shares[place]))
        for place, (row, given) in enumerate(zip(mix.rows, mix.replicas, strict=True))
    ]
    # Equal shares are sorted by name, so that the order is deterministic.
    order = sorted(range(len(parts)), key=lambda i: (-shares[i], parts[i].accelerator))
    server = candidates.case_of(mix.rows[0]).server
    allocation = replace(
        parts[order[0]],
        replicas=sum(mix.replicas),
        cost=sum(part.cost for part in parts),
        itl_ms=float(shares @ latencies.itl_ms),
        wait_ms=float(shares @ latencies.wait_ms),
        load=server.load,
        ttft_ms=float(shares @ latencies.ttft_ms),
        tail=_longest(part.tail for part in parts if part.tail),
        mix=tuple(parts[i] for i in order),
    )
    placement = candidates.catalogue.placement(server.model, allocation)
    return Decision(server.name, Reason.ALLOCATED, placement, allocation)


def _capacity(candidates: Candidates, rows: IntArray) -> FloatArray:
    """Share of the demand that a replica of each row can carry; 1 for each row of an idle case."""
    demand = candidates.pairs.demand[rows]
    if not demand.all():
        return np.ones(len(rows))
    capacity: FloatArray = candidates.sizing.max_rate[rows] / demand
    return capacity


def _with_share(part: Allocation, share: float) -> Allocation:
    """The allocation with a share of its load."""
    load = part.load
    less = replace(load, arrival_rate=share * load.arrival_rate, throughput=share * load.throughput)
    return replace(part, load=less)


def _longest(tails: Iterable[Tail]) -> Tail:
    """The maximum of each percentile over the parts: an upper bound for all requests together."""
    return Tail(*map(max, *map(astuple, tails)))


def _delay(allocation: Allocation) -> str:
    """The delay before the first token as text: wait in generation 1, else time to first token."""
    if allocation.generation is Generation.DECODE:
        return f"a wait of {_ms(allocation.wait_ms)}"
    return f"a time to first token of {_ms(allocation.ttft_ms)}"


def _ms(latency: float) -> str:
    """A latency [ms] as text: four digits, or all before the point; no less than a µs."""
    latency = round(latency, 3)
    return f"{latency:.4g} ms" if latency < 9999.5 else f"{latency:.0f} ms"  # noqa: PLR2004 - four digits


def _no_capacity(candidates: Candidates, rows: IntArray, rest: Sequence[str]) -> Decision:
    """The decision NoCapacity with what a case needs; `rows` are its usable rows, best first."""
    needs = _needs(candidates, rows, rest)
    message = f"not enough cards: it takes {needs}; add capacity or lower the load"
    server = candidates.case_of(rows[0]).server
    return Decision(server.name, Reason.NO_CAPACITY, message)


def _rest(candidates: Candidates, left: IntArray) -> list[str]:
    """What is left of the cards of each type, as text; or that the capacity does not name it."""
    missing = without_count(candidates.system)
    counts = zip(candidates.types, left.tolist(), strict=True)
    return [missing.get(card_type, f"left {count}") for card_type, count in counts]


def _needs(candidates: Candidates, rows: IntArray, rest: Sequence[str]) -> str:
    """What a case needs, as text; `rows` are its usable rows, best first."""
    options = [_need(candidates, int(row), rest) for row in rows[:OPTIONS_NAMED]]
    others = len(rows) - OPTIONS_NAMED
    if others > 0:
        options.append(f"{others} other option{'s' if others > 1 else ''}")
    return ", or ".join(options)


def _need(candidates: Candidates, row: int, rest: Sequence[str]) -> str:
    wanted = int(candidates.replicas[row])
    cards = [
        f"cards of {candidates.types[card_type]}: {count * wanted}, {rest[card_type]}"
        for card_type, count in candidates.cards_of(row)
    ]
    return f"{_all_of(candidates, row)} ({'; '.join(cards)})"


def _accelerator(candidates: Candidates, row: int) -> str:
    return candidates.placement(row)
