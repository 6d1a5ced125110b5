"""Cards: how many there are to hand out, and how many a plan uses."""

from collections import Counter
from collections.abc import Iterable, Mapping

from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Allocation, CapacityUse, MarginalValue, Server


def available_cards(catalogue: Catalogue, held: Iterable[Server]) -> Counter[str]:
    """Cards by type, less those on which servers run that are to be left as they are."""
    cards = Counter({t: max(count, 0) for t, count in catalogue.system.capacity.items()})
    for server in held:
        for card_type, count in cards_in_use(catalogue, server.model, server.current).items():
            cards[card_type] = max(cards[card_type] - count, 0)
    return cards


def cards_in_use(catalogue: Catalogue, model: str, allocation: Allocation) -> Mapping[str, int]:
    """Cards that an allocation of a model takes, by type; none on an unknown accelerator."""
    cards: Counter[str] = Counter()
    for part in allocation.parts:
        position = catalogue.accelerators.get(part.accelerator)
        if position is not None and part.replicas > 0:
            accelerator = catalogue.system.accelerators[position]
            count = catalogue.accelerators_per_replica(model, part.accelerator)
            cards[accelerator.type] += part.replicas * count * max(accelerator.multiplicity, 1)
    return cards


def capacity_use(
    available: Mapping[str, int], used: Mapping[str, int], marginal: Mapping[str, MarginalValue]
) -> tuple[CapacityUse, ...]:
    """Cards in use and available of every type that is listed or used, by name."""
    unknown = MarginalValue()
    worth = {name: marginal.get(name, unknown) for name in sorted({*used, *available})}
    return tuple(
        CapacityUse(name, used.get(name, 0), available.get(name, 0), value.price, value.gain)
        for name, value in worth.items()
    )
