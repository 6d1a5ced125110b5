"""Lists every option of one server with its numbers, and why an option is excluded."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.caveats import warnings_of
from inferno_optimizer.decisions import misses
from inferno_optimizer.errors import InputError
from inferno_optimizer.sizing.candidates import MAX_REPLICAS, Candidates
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.suggestions import alternatives, cut
from inferno_optimizer.system import Generation, PerformanceProfile, Server, System, Tail
from inferno_optimizer.units import MS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class Option:
    """A server on one accelerator.

    `cards` of `type` and `cost` [cents/hour] count all replicas; latencies are means [ms] at the
    load of the server; `max_rate` is the highest rate at which one replica meets all targets
    [requests/min], 0 for an idle server. `reason` says why the option is excluded, empty if it is
    not; the numbers of an excluded option are 0. `warnings` say why the numbers may not hold, see
    `caveats`; `origin` and `error_percent` are those of the performance data.
    """

    accelerator: str
    type: str = ""
    replicas: int = 0
    max_batch_size: int = 0
    cards: int = 0
    cost: float = 0.0
    value: float = 0.0
    itl_ms: float = 0.0
    wait_ms: float = 0.0
    max_rate: float = 0.0
    reason: str = ""
    ttft_ms: float = 0.0
    tail: Tail | None = None
    generation: Generation = Generation.DECODE
    warnings: tuple[str, ...] = ()
    origin: str = ""
    error_percent: float = 0.0


def explain(system: System, server_name: str) -> tuple[Option, ...]:
    """The options of one server: usable ones in the order of the solvers, then the excluded ones.

    Raises
    ------
    InputError
        The server does not exist or cannot be sized; the message says why.
    """
    server = next((s for s in system.servers if s.name == server_name), None)
    if server is None:
        raise unknown_server(system, server_name)
    catalogue = Catalogue(system.by_name())
    case = catalogue.case(server)
    if not isinstance(case, Case):
        raise InputError(f"server {server_name!r}: {case.reason}: {case.message}")
    candidates = build_candidates(catalogue, [case])
    ranked = candidates.ranked().tolist()
    others = np.flatnonzero(~candidates.usable).tolist()
    options = [_option(candidates, row) for row in (*ranked, *others)]
    sized = {option.accelerator for option in options}
    options += [
        Option(profile.accelerator, reason=_left_out(catalogue, server, profile))
        for profile in catalogue.system.profiles
        if profile.model == server.model and profile.accelerator not in sized
    ]
    return tuple(options)


def next_best(system: System, chosen: Mapping[str, str]) -> Mapping[str, Option]:
    """The best option of some servers on another accelerator than the chosen one, by server.

    Parameters
    ----------
    system
        The servers, as they were sized.
    chosen
        By name of a server the accelerator that it gets, "" for none; of several, one.

    Returns
    -------
    Mapping[str, Option]
        Without the servers that have no other option, or cannot be sized. An option says what a
        server needs, not whether there are cards for it.
    """
    catalogue = Catalogue(system.by_name())
    sized = (catalogue.case(s) for s in catalogue.system.servers if s.name in chosen)
    cases = [case for case in sized if isinstance(case, Case)]
    candidates = build_candidates(catalogue, cases)
    others: dict[str, Option] = {}
    for row in candidates.ranked().tolist():
        name = cases[int(candidates.pairs.case[row])].server.name
        if name not in others and candidates.placement(row) != chosen[name]:
            others[name] = _option(candidates, row)
    return others


def unknown_server(system: System, name: str) -> InputError:
    """The error for a server that does not exist; the message suggests similar names."""
    names = [server.name for server in system.servers]
    return InputError(f"no server is named {cut(name)!r}{alternatives(name, names)}")


def _option(candidates: Candidates, row: int) -> Option:
    batch, generation = int(candidates.pairs.batch[row]), candidates.generation(row)
    types = " + ".join(candidates.types[t] for t, _ in candidates.cards_of(row))
    name = candidates.placement(row)
    fixed = Option(name, types, max_batch_size=batch, generation=generation)
    if not candidates.usable[row]:
        return replace(fixed, reason=_out_of_reach(candidates, row))
    latencies = candidates.latencies(np.array([row]), candidates.replicas[[row]])
    roles = candidates.roles(row, int(candidates.replicas[row]))
    worst = max((p for p, _ in candidates.profiles(row)), key=lambda p: p.error_percent)
    return replace(
        fixed,
        origin=worst.origin,
        error_percent=worst.error_percent,
        accelerator=" + ".join(part.placement for part in roles) or name,
        replicas=sum(part.replicas for part in roles) or int(candidates.replicas[row]),
        cards=int(candidates.cards[row]),
        cost=float(candidates.cost[row]),
        value=float(candidates.value[row]),
        itl_ms=float(latencies.itl_ms[0]),
        wait_ms=float(latencies.wait_ms[0]),
        max_rate=_per_minute(float(candidates.sizing.max_rate[row])),
        ttft_ms=float(latencies.ttft_ms[0]),
        tail=latencies.tail(0),
        warnings=tuple(_warnings(candidates, row)),
    )


def _warnings(candidates: Candidates, row: int) -> Iterator[str]:
    """Warnings about each profile of a row."""
    case = candidates.cases[int(candidates.pairs.case[row])]
    for profile, batch in candidates.profiles(row):
        yield from warnings_of(case.server, profile, batch, case.target)


def _per_minute(max_rate: float) -> float:
    """Rate of a replica [requests/min]; 0 for an idle server, which is not sized."""
    return max_rate * MS_PER_MINUTE if math.isfinite(max_rate) else 0.0


def _out_of_reach(candidates: Candidates, row: int) -> str:
    """Message with the targets that a row cannot meet, each with its lowest attainable latency."""
    if candidates.sizing.max_rate[row] > 0:
        return f"takes more than {MAX_REPLICAS} replicas"
    return "out of reach: " + "; ".join(
        f"{miss.field} {miss.asked:g} ms, at least {miss.floor:.4g} ms"
        for miss in misses(candidates, row)
    )


def _left_out(catalogue: Catalogue, server: Server, profile: PerformanceProfile) -> str:
    problems = catalogue.profile_problems(profile.model, profile.accelerator)
    if problems:
        return "; ".join(str(problem) for problem in problems)
    return catalogue.exclusion(server, profile)
