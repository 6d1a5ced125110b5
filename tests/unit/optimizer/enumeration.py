"""Every plan of a small system, tried one after the other: plain Python from end to end."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.system import (
    Accelerator,
    DecodeParameters,
    Generation,
    Load,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    Server,
    System,
    Target,
    TokenBudgetParameters,
)
from tests.unit.optimizer.oracles import (
    BudgetReplica,
    PrefillReplica,
    Queue,
    Replica,
    highest_rate,
    queue_of,
    value,
)

Served = tuple[float, ...]
AnyOfThree = Replica | PrefillReplica | BudgetReplica


@dataclass(frozen=True)
class Choice:
    """What one server may get: load that is served by it, its value, cards of a type."""

    load: float = 0.0
    value: float = 0.0
    type: str = ""
    cards: int = 0


NOTHING = Choice()


def best_plan(system: System) -> tuple[Served, float]:
    """The most load of each priority, the most important one first; then the least value."""
    options = [list(choices(system, server)) for server in system.servers]
    cards = _cards_to_hand_out(system, options)
    plans = product(*([NOTHING, *its_options] for its_options in options))
    served, lost = max(_worth(system, plan) for plan in plans if _fits(plan, cards))
    return served, -lost


def served_by_priority(system: System, loads: Sequence[float]) -> Served:
    """Sums of what the servers of each priority get, the most important one first."""
    priorities = {c.name: c.priority for c in system.classes}
    total = dict.fromkeys(sorted(priorities.values()), 0.0)
    for server, load in zip(system.servers, loads, strict=True):
        total[priorities[server.service_class]] += load
    return tuple(total.values())


def served(system: System, solution: Solution) -> Served:
    """Load of the servers that got all that they need, by priority."""
    entire = {d.server for d in solution.decisions if d.reason is Reason.ALLOCATED}
    loads = [weight(server) if server.name in entire else 0.0 for server in system.servers]
    return served_by_priority(system, loads)


def weight(server: Server) -> float:
    """What counts as served of it."""
    return server.load.arrival_rate or 1.0


def choices(system: System, server: Server) -> Iterator[Choice]:
    """All replicas that it takes, on each of its accelerators; none if it runs on a strange one."""
    units = {unit.name: unit for unit in system.accelerators}
    if system.options.hold_undecided and server.current.accelerator not in {"", *units}:
        return
    classes = {c.name: c for c in system.classes}
    target = classes[server.service_class].targets[server.model]
    kept = server.current.accelerator if server.keep_accelerator else ""
    own = [
        profile
        for profile in system.profiles
        if profile.model == server.model and kept in {"", profile.accelerator}
    ]
    good = [profile for profile in own if _keeps_targets_alone(server, profile, target)]
    for profile in good or own if server.load.idle else own:
        replicas = replicas_for(server, profile, target)
        if replicas is not None:
            yield _choice(server, profile, units[profile.accelerator], replicas)


def _keeps_targets_alone(server: Server, profile: PerformanceProfile, target: Target) -> bool:
    """Whether the first request of an idle server keeps the targets, or none runs there."""
    generation = profile.parameters.generation
    released = not server.min_replicas and generation is not Generation.DECODE
    if released or not server.load.tokens_of(generation):
        return True
    return rate_of(replica_of(server, profile), target) > 0


def _choice(
    server: Server, profile: PerformanceProfile, unit: Accelerator, replicas: int
) -> Choice:
    cost = unit.cost * profile.accelerator_count * replicas
    cards = profile.accelerator_count * unit.multiplicity * replicas
    first = profile.parameters.generation is Generation.DECODE
    name = unit.name if replicas or first else ""  # later generations let go of it
    return Choice(weight(server), value(server.current, name, replicas, cost), unit.type, cards)


def replicas_for(server: Server, profile: PerformanceProfile, target: Target) -> int | None:
    """Replicas that keep the targets; None where no number does."""
    load = server.load
    if load.idle:
        return server.min_replicas
    tokens = load.tokens_of(profile.parameters.generation)
    demand = max(load.arrival_rate / 60_000, target.tokens_per_second / (1000 * tokens))
    rate = rate_of(replica_of(server, profile), target)
    if rate == 0:
        return None
    return max(math.ceil(demand / rate * (1 - 1e-9)), server.min_replicas, 1)


def replica_of(server: Server, profile: PerformanceProfile) -> AnyOfThree:
    """A replica of a profile as it serves a server's requests."""
    tokens = server.load.tokens_of(profile.parameters.generation)
    fitting = profile.max_batch_size * profile.at_tokens // tokens
    batch = server.max_batch_size or max(fitting, 1)
    return _replica(profile.parameters, batch, tokens, server.load, server.max_queue_size)


def _replica(
    parameters: PerformanceParameters, batch: int, tokens: int, load: Load, queue_size: int
) -> AnyOfThree:
    match parameters:
        case DecodeParameters(alpha, beta):
            return Replica(alpha, beta, batch, tokens)
        case PrefillDecodeParameters(alpha, beta, gamma, delta):
            inputs = load.input_tokens
            return PrefillReplica(alpha, beta, gamma, delta, batch, inputs, tokens)
        case TokenBudgetParameters(alpha, beta, gamma):
            inputs = load.input_tokens
            return BudgetReplica(alpha, beta, gamma, batch, inputs, tokens, queue_size)
        case _:
            raise TypeError(parameters)


@cache
def rate_of(replica: AnyOfThree, target: Target) -> float:
    """Requests/ms that a replica counts for."""
    rate = highest_rate(
        replica, lambda queue: holds(replica, queue, target), target.tokens_per_second > 0
    )
    if rate == 0 or isinstance(replica, Replica):
        return rate
    return queue_of(replica, rate).throughput


def holds(replica: AnyOfThree, queue: Queue, target: Target) -> bool:
    """Whether every target is kept; 0 is no target, and the limit of a wait is 20 to 1."""
    itl, first = replica.itl_of(queue), replica.first_token_of(queue)
    pairs = (
        (itl, target.itl_ms),
        (queue.wait_ms * math.log(20), target.wait_ms),
        (queue.wait_ms + first, target.ttft_ms),
    )
    return all(limit <= 0 or told <= limit * (1 + 1e-12) for told, limit in pairs)


def _cards_to_hand_out(system: System, options: Sequence[Sequence[Choice]]) -> Counter[str]:
    """The capacity, less what servers hold that nothing can be decided for."""
    cards = Counter(system.capacity)
    units = {unit.name: unit for unit in system.accelerators}
    counts = {(p.model, p.accelerator): p.accelerator_count for p in system.profiles}
    for server, its_options in zip(system.servers, options, strict=True):
        unit = units.get(server.current.accelerator)
        if unit and not its_options and system.options.hold_undecided:
            each = counts.get((server.model, unit.name), 1) * unit.multiplicity
            cards[unit.type] = max(cards[unit.type] - server.current.replicas * each, 0)
    return cards


def _fits(plan: Sequence[Choice], cards: Counter[str]) -> bool:
    used: Counter[str] = Counter()
    for choice in plan:
        used[choice.type] += choice.cards
    return all(count <= cards[card_type] for card_type, count in used.items())


def _worth(system: System, plan: Sequence[Choice]) -> tuple[Served, float]:
    served = served_by_priority(system, [choice.load for choice in plan])
    return served, -math.fsum(choice.value for choice in plan)
