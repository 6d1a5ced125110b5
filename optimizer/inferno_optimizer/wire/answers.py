"""Checks the answer of another optimizer and turns it into a Solution.

If the answer does not fit the system, the whole answer is rejected, so that no part of a wrong
plan is used.
"""

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from inferno_optimizer.capacity import capacity_use, cards_in_use, held_cost
from inferno_optimizer.caveats import warned
from inferno_optimizer.decisions import size_servers
from inferno_optimizer.errors import InputError
from inferno_optimizer.sizing.cases import NOWHERE_TO_RUN, Catalogue
from inferno_optimizer.solution import (
    IDLE,
    CapacityUse,
    Certificate,
    Decision,
    MarginalValue,
    Reason,
    Solution,
    SolverStatus,
)
from inferno_optimizer.system import (
    PAIR,
    Allocation,
    Load,
    PerformanceProfile,
    Role,
    SaturationPolicy,
    Server,
    System,
)
from inferno_optimizer.wire.plausibility import describe_data

ROUNDED = 1e-4
"""Relative difference of loads and costs that may result from rounding to 32 bits."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of another optimizer, before it is checked.

    `given` are decisions with an allocation, `refused` decisions without one. If the optimizer
    gives no reasons, `refused` is empty and there is no certificate. `marginal` is the value of
    one more card by type.
    """

    given: tuple[Decision, ...]
    refused: tuple[Decision, ...] = ()
    certificate: Certificate | None = None
    marginal: Mapping[str, MarginalValue] = field(default_factory=lambda: MappingProxyType({}))


def build_solution(answer: Answer, system: System) -> Solution:
    """The solution for a system from an answer.

    Where an optimizer gives no reasons, a server that is missing from the answer gets the reason
    NoCapacity, unless it needs no replicas, cannot be sized or cannot attain its targets.
    `plausibility` checks whether enough cards were left for such a server, and whether those
    with replicas have enough of them. Raises InputError if the answer does not fit the system.
    """
    catalogue = Catalogue(system)
    decided = {d.server: d for d in (*answer.refused, *answer.given)}
    for contradiction in _find_contradictions(answer, catalogue, decided):
        raise InputError(contradiction)
    silent = [server for server in system.servers if server.name not in decided]
    decided |= {each.server: each for each in _decide_missing_servers(catalogue, silent)}
    for server in system.servers:
        decision = decided[server.name]
        if allocation := decision.allocation:
            placed = catalogue.placement(server.model, allocation) if allocation.replicas else IDLE
            decided[server.name] = replace(
                decision,
                message=decision.message or placed,
                allocation=replace(allocation, load=server.load),
            )
    decisions = warned(catalogue, (decided[server.name] for server in system.servers))
    capacity = count_capacity(catalogue, decisions, answer.marginal)
    for use in () if system.options.unlimited else capacity:
        if use.used > use.usable:
            cards = f"{use.used} cards of type {use.type!r}"
            raise InputError(f"it uses {cards}, where there are {use.usable}")
    for wrong_cost in _find_wrong_costs(answer.given, catalogue):
        raise InputError(wrong_cost)
    cost = sum(d.allocation.cost for d in decisions if d.allocation is not None)
    unproven = Certificate("unknown", SolverStatus.FEASIBLE, cost, None, 0.0)
    certificate = answer.certificate or unproven
    return Solution(decisions, certificate, capacity, held_cost(system, decisions))


def _find_contradictions(
    answer: Answer, catalogue: Catalogue, decided: Mapping[str, Decision]
) -> Iterator[str]:
    servers = {server.name: server for server in catalogue.system.servers}
    for name in sorted(decided.keys() - servers.keys()):
        yield f"there is a decision for server {name!r}, which it was not asked about"
    counts = Counter(decision.server for decision in (*answer.refused, *answer.given))
    for name, count in counts.items():
        if count > 1:
            yield f"server {name!r} is both served and unserved"
    for decision in answer.given:
        allocation = decision.allocation or Allocation()
        server = servers[decision.server]
        is_held = _is_held(decision, catalogue.system)
        stays = {part.accelerator for part in server.current.parts} if is_held else set()
        for problem in _find_misfits(server, allocation, stays, catalogue):
            yield f"allocation of server {server.name!r}: {problem}"
    if answer.certificate is not None:
        for name in sorted(servers.keys() - decided.keys()):
            yield f"server {name!r} is neither in allocations nor in unserved"


def _is_held(decision: Decision, system: System) -> bool:
    """Whether a decision may leave what runs where it is, at its cost."""
    holds = system.options.saturation_policy is SaturationPolicy.HOLD
    return holds and decision.reason is Reason.BEST_EFFORT


def _find_misfits(
    server: Server, allocation: Allocation, stays: Container[str], catalogue: Catalogue
) -> Iterator[str]:
    role_names = [part.role for part in allocation.roles]
    if role_names and role_names != [*PAIR]:
        yield "roles: expected one for prefill and one for decode"
    for part in allocation.parts:
        numbers = {
            "numReplicas": part.replicas,
            "maxBatch": part.max_batch_size,
            "cost": part.cost,
            "itlAverage": part.itl_ms,
            "waitAverage": part.wait_ms,
            "ttftAverage": part.ttft_ms,
        }
        yield from (f"{name}: {n:g} is negative" for name, n in numbers.items() if n < 0)
        if part.replicas and part.accelerator not in stays:
            yield from _find_unusable_accelerator(server, part, catalogue)
    yield from _find_wrong_load(server, allocation.load, catalogue)


def _find_unusable_accelerator(
    server: Server, part: Allocation, catalogue: Catalogue
) -> Iterator[str]:
    """Why a server cannot run on the accelerator of a part, if it cannot."""
    accelerator, role = part.accelerator, part.role
    profile = catalogue.profile(server.model, accelerator, role)
    if profile is None:
        words = "" if role is Role.BOTH else f" in the role {role}"
        model = server.model
        yield f"accelerator: model {model!r} has no performance data for {accelerator!r}{words}"
    elif isinstance(profile, PerformanceProfile):
        if why := catalogue.exclusion(server, profile):
            yield f"accelerator: {accelerator!r}: {why}"
    elif not server.has_place(accelerator, role):
        yield f"accelerator: {accelerator!r}: {NOWHERE_TO_RUN}"


def _find_wrong_load(server: Server, answered: Load, catalogue: Catalogue) -> Iterator[str]:
    """What the load of an allocation has other than that of its server, if anything."""
    asked = server.load
    if not _is_same(answered.arrival_rate, asked.arrival_rate):
        yield (
            f"load.arrivalRate: it is for {answered.arrival_rate:g} requests/min, not the"
            f" {asked.arrival_rate:g} that were asked for"
        )
    counts = {
        "avgLength": (answered.tokens_per_request, asked.tokens_per_request),
        "avgInTokens": (answered.input_tokens, asked.input_tokens),
        "avgOutTokens": (answered.output_tokens, asked.output_tokens),
        "cachedTokens": (answered.cached_tokens, asked.cached_tokens),
    }
    for name, (count, expected) in counts.items():
        if count not in (0, expected):  # an optimizer tells the fields of its generation
            yield f"load.{name}: it is for {count} tokens, not the {expected} that were asked for"
    steps, expected_steps = answered.tokens_per_step, max(asked.tokens_per_step, 1.0)
    if steps and not _is_same(steps, expected_steps):
        yield (
            f"load.tokensPerStep: it is for {steps:g} tokens, not the {expected_steps:g} that were"
            " asked for"
        )
    if not (asked.idle or any(count for count, _ in counts.values())):
        yield (
            "load: it is for requests without tokens, as if the server were idle; does the"
            f" optimizer read {describe_data(server, catalogue)}?"
        )


def _decide_missing_servers(catalogue: Catalogue, servers: Iterable[Server]) -> Iterator[Decision]:
    """Decisions for servers that are missing from the answer."""
    candidates, undecided = size_servers(catalogue, servers, rates=False)
    for case in candidates.cases:
        server = case.server
        if server.load.idle and server.min_replicas == 0:
            yield Decision(server.name, Reason.ALLOCATED, "", Allocation())
        else:
            message = "the optimizer found no allocation for it; add capacity or lower the load"
            yield Decision(server.name, Reason.NO_CAPACITY, message)
    yield from undecided  # servers that cannot be sized or cannot attain their targets


def count_capacity(
    catalogue: Catalogue, decisions: Sequence[Decision], marginal: Mapping[str, MarginalValue]
) -> tuple[CapacityUse, ...]:
    """Capacity and use of every card type by decisions; `marginal` is the value of one more."""
    models = {server.name: server.model for server in catalogue.system.servers}
    used: Counter[str] = Counter()
    for decision in decisions:
        if decision.allocation is not None:
            used.update(cards_in_use(catalogue, models[decision.server], decision.allocation))
    return capacity_use(catalogue, decisions, used, marginal)


def _find_wrong_costs(decisions: Iterable[Decision], catalogue: Catalogue) -> Iterator[str]:
    """Allocations whose cost is not the price of their replicas."""
    servers = {server.name: server for server in catalogue.system.servers}
    for decision in decisions:
        allocation, server = decision.allocation or Allocation(), servers[decision.server]
        price = sum(
            part.replicas * catalogue.unit_cost(server.model, part.accelerator, part.role)
            for part in allocation.parts
        )
        prices = [price]
        if _is_held(decision, catalogue.system):  # at what the replicas cost that run now
            now = {
                p.accelerator: p.cost / p.replicas for p in server.current.parts if p.replicas > 0
            }
            kept = (part for part in allocation.parts if part.replicas)
            prices.append(sum(p.replicas * now.get(p.accelerator, math.inf) for p in kept))
        if not any(_is_same(allocation.cost, expected) for expected in prices):
            yield (
                f"allocation of server {decision.server!r}: cost: {allocation.cost:g}, where"
                f" {catalogue.placement(server.model, allocation)} cost {price:g}"
            )


def _is_same(given: float, expected: float) -> bool:
    return math.isclose(given, expected, rel_tol=ROUNDED, abs_tol=ROUNDED)
