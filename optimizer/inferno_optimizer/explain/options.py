"""Lists every option of one server with its numbers, and why an option is excluded."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from inferno_optimizer.capacity import cards_in_use
from inferno_optimizer.caveats import warnings_of
from inferno_optimizer.decisions import misses
from inferno_optimizer.errors import InputError
from inferno_optimizer.sizing.candidates import MAX_REPLICAS, Candidates
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.solution import Solution
from inferno_optimizer.suggestions import alternatives, cut
from inferno_optimizer.system import (
    Allocation,
    Generation,
    PerformanceProfile,
    Server,
    System,
    Tail,
)
from inferno_optimizer.units import MS_PER_MINUTE

USERS_NAMED = 3
"""Largest number of servers that are named for the cards that they use."""


@dataclass(frozen=True, slots=True)
class Option:
    """A server on one accelerator.

    `cards` of `type` and `cost` [cents/hour] count all replicas; latencies are means [ms] at the
    load of the server; `max_rate` is the highest rate at which one replica meets all targets
    [requests/min], 0 for an idle server. `reason` says why the option is excluded, empty if it is
    not; the numbers of an excluded option are 0. `warnings` say why the numbers may not hold, see
    `caveats`; `origin` and `error_percent` are those of the performance data. `place` is
    `Allocation.place`; `placement` has the replicas with their cards, and `needs` their cards by
    type. Of a plan, `chosen` are the replicas that the server gets of this option (0 if idle);
    `lost` says why it does not get the option; see `with_choice`.
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
    place: str = ""
    placement: str = ""
    needs: tuple[tuple[str, int], ...] = ()
    chosen: int | None = None
    lost: str = ""


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
        Option(
            profile.accelerator,
            reason=_left_out(catalogue, server, profile),
        )
        for profile in catalogue.system.profiles
        if profile.model == server.model and profile.accelerator not in sized
    ]
    return tuple(options)


def with_choice(
    options: Iterable[Option], system: System, solution: Solution, server_name: str
) -> tuple[Option, ...]:
    """The options of a server, with the ones that a plan has chosen, and why not the others.

    Parameters
    ----------
    options
        What `explain` returns for the server.
    system, solution
        The optimized system, and its solution.
    server_name
        The server.
    """
    server = next(s for s in system.servers if s.name == server_name)
    decision = next(d for d in solution.decisions if d.server == server_name)
    given = decision.allocation or Allocation()
    chosen = {part.place: part.replicas for part in given.mix or (given,) if part.place}
    catalogue = Catalogue(system)
    cards = _Cards.of(catalogue, solution, server)
    marked = [replace(o, chosen=chosen.get(o.place)) for o in options]
    best = min((o.value for o in marked if o.chosen is not None), default=math.inf)
    return tuple(
        o if o.chosen is not None or o.reason else replace(o, lost=_why_lost(o, best, cards))
        for o in marked
    )


def _why_lost(option: Option, best: float, cards: "_Cards") -> str:
    """Why a server does not get an option that would serve it; `best` is the value it gets."""
    if short := "; ".join(filter(None, (cards.short_of(*need) for need in option.needs))):
        return short
    if option.value >= best:
        return "higher score"
    return "no better plan of the whole fleet with it was found"


@dataclass(frozen=True, slots=True)
class _Cards:
    """Cards by type that a server may have, and by whom the others are used.

    `there` counts all of a type, `left` those that no other server uses.
    """

    there: Mapping[str, int]
    left: Mapping[str, int]
    users: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, catalogue: Catalogue, solution: Solution, server: Server) -> Self:
        """The cards that a plan leaves to a server."""
        system = catalogue.system
        there = {} if system.options.unlimited else {u.type: u.usable for u in solution.capacity}
        left, users = Counter(there), defaultdict[str, list[tuple[int, str]]](list)
        for other, decision in zip(system.servers, solution.decisions, strict=True):
            if decision.allocation is None or other is server:
                continue
            for card_type, count in cards_in_use(
                catalogue, other.model, decision.allocation
            ).items():
                left[card_type] -= count
                who = f"{other.name} ({other.service_class})"
                users[card_type].append((catalogue.priority(other.service_class), who))
        return cls(
            there, left, {t: [who for _, who in sorted(found)] for t, found in users.items()}
        )

    def short_of(self, card_type: str, needed: int) -> str:
        """Why there are not so many cards; "" if there are, or they are not counted."""
        if card_type not in self.there or needed <= self.left[card_type]:
            return ""
        cards = f"needs {needed} card{'s' if needed > 1 else ''} of {card_type}"
        if needed > self.there[card_type]:
            return f"{cards}, there are {self.there[card_type]}"
        users = self.users.get(card_type, ())
        more = f" and {len(users) - USERS_NAMED} more" if len(users) > USERS_NAMED else ""
        named = f"; they serve {', '.join(users[:USERS_NAMED])}{more}" if users else ""
        return f"{cards}, {max(self.left[card_type], 0)} left{named}"


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
        name = candidates.case_of(row).server.name
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
    catalogue, model = candidates.catalogue, candidates.case_of(row).server.model
    fixed = Option(name, types, max_batch_size=batch, generation=generation)
    if not candidates.usable[row]:
        return replace(fixed, reason=_out_of_reach(candidates, row))
    latencies = candidates.latencies(np.array([row]), candidates.replicas[[row]])
    replicas = int(candidates.replicas[row])
    roles = candidates.roles(row, replicas)
    placement = catalogue.placement(model, Allocation(name, replicas, roles=roles))
    worst = max((p for p, _ in candidates.profiles(row)), key=lambda p: p.error_percent)
    return replace(
        fixed,
        origin=worst.origin,
        error_percent=worst.error_percent,
        place=name,
        accelerator=" + ".join(part.placement for part in roles) or name,
        placement=placement,
        needs=tuple(
            (candidates.types[t], count * replicas) for t, count in candidates.cards_of(row)
        ),
        replicas=sum(part.replicas for part in roles) or replicas,
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
    case = candidates.case_of(row)
    for profile, batch in candidates.profiles(row):
        yield from warnings_of(case.server, profile, batch, case.target)


def _per_minute(max_rate: float) -> float:
    """Rate of a replica [requests/min]; 0 for an idle server, which is not sized."""
    return max_rate * MS_PER_MINUTE if math.isfinite(max_rate) else 0.0


def _out_of_reach(candidates: Candidates, row: int) -> str:
    """Message with the targets that a row cannot meet, each with its lowest attainable latency."""
    if candidates.sizing.max_rate[row] > 0:
        return f"takes more than {MAX_REPLICAS} replicas"
    return "cannot meet " + "; ".join(
        f"{miss.field}: {miss.floor:.4g} ms at best, target {miss.asked:g} ms"
        for miss in misses(candidates, row)
    )


def _left_out(catalogue: Catalogue, server: Server, profile: PerformanceProfile) -> str:
    problems = catalogue.profile_problems(profile.model, profile.accelerator)
    if problems:
        return "; ".join(str(problem) for problem in problems)
    return catalogue.exclusion(server, profile)
