"""Counts of cards by type: available, held and used by a plan; and the cost of what is held."""

from collections import Counter
from collections.abc import Iterable, Mapping

from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import CapacityUse, Decision, MarginalValue
from inferno_optimizer.system import Allocation, Server, System


def cards_to_hand_out(catalogue: Catalogue, decisions: Iterable[Decision]) -> Counter[str]:
    """Cards by type that a plan may use: the available cards minus the held ones."""
    cards = _all_cards(catalogue)
    for card_type, count in held_cards(catalogue, decisions).items():
        cards[card_type] = max(cards[card_type] - count, 0)
    return cards


def held_cards(catalogue: Catalogue, decisions: Iterable[Decision]) -> Counter[str]:
    """Cards by type that a plan must not use, because servers that it does not change run on them.

    These servers are the ones without a decision, if the option `hold_undecided` is set, and
    the ones that are not part of the system.
    """
    system = catalogue.system
    held = Counter(system.held)
    if system.options.hold_undecided:
        undecided = {decision.server for decision in decisions if not decision.reason.decided}
        held += cards_of_servers(catalogue, (s for s in system.servers if s.name in undecided))
    return held


def held_cost(system: System, decisions: Iterable[Decision]) -> float:
    """Cost of what keeps running because no decision is possible [cents/hour]."""
    undecided = {decision.server for decision in decisions if not decision.reason.decided}
    costs = (server.current.cost for server in system.servers if server.name in undecided)
    return system.held_cost + sum(costs)


def cards_of_servers(catalogue: Catalogue, servers: Iterable[Server]) -> Counter[str]:
    """Cards by type that the current allocations of servers use."""
    cards: Counter[str] = Counter()
    for server in servers:
        cards.update(cards_in_use(catalogue, server.model, server.current))
    return cards


def _all_cards(catalogue: Catalogue) -> Counter[str]:
    return Counter({t: max(count, 0) for t, count in catalogue.system.capacity.items()})


def cards_in_use(catalogue: Catalogue, model: str, allocation: Allocation) -> Mapping[str, int]:
    """Cards by type that an allocation of a model uses; 0 of a type that nothing names."""
    cards: Counter[str] = Counter()
    for part in allocation.parts:
        card_type, count = catalogue.cards_per_replica(model, part.accelerator, part.role)
        is_known = part.accelerator in catalogue.accelerators
        if part.replicas > 0 and (is_known or card_type in catalogue.system.capacity):
            cards[card_type] += part.replicas * count
    return cards


def capacity_use(
    catalogue: Catalogue,
    decisions: Iterable[Decision],
    used: Mapping[str, int],
    marginal: Mapping[str, MarginalValue],
) -> tuple[CapacityUse, ...]:
    """Capacity and use of every card type that is listed, used or held, sorted by type.

    Parameters
    ----------
    catalogue, decisions
        The system, and the decision for each of its servers.
    used, marginal
        Cards that the plan uses, and the value of one more card, by type.
    """
    cards, held = _all_cards(catalogue), held_cards(catalogue, decisions)
    worth = {t: marginal.get(t, MarginalValue()) for t in sorted({*cards, *held, *used})}
    return tuple(
        CapacityUse(t, used.get(t, 0), cards[t], value.price, value.gain, held[t], value.estimated)
        for t, value in worth.items()
    )
