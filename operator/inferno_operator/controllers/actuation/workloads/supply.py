"""The cards of a namespace, what one replica of each server needs, and what it carries; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from inferno_operator.resources import Server, ServerAllocation
from inferno_optimizer.explain.rates import Rates, rates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Role, System, place_of

UNLIMITED = 10**9
"""Cards of each type if the Optimizer ignores the capacity."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One replica of a model on an accelerator: the type of its cards and their number."""

    card_type: str
    cards: int


class Supply:
    """The cards, replicas and rates of a system."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._catalogue = Catalogue(system)

    @cached_property
    def _rates(self) -> Rates:
        return rates(self.system)

    @property
    def capacity(self) -> Mapping[str, int]:
        """The cards by type."""
        system = self.system
        if system.options.unlimited:
            return {accelerator.type: UNLIMITED for accelerator in system.accelerators}
        return system.capacity

    def unit(self, model: str, accelerator: str, role: Role = Role.BOTH) -> Unit:
        """Return what one replica needs."""
        return Unit(*self._catalogue.cards_per_replica(model, accelerator, role))

    def unit_costs(self, model: str) -> Mapping[str, float]:
        """Return the cost of one replica of a model by place [cents/hour]."""
        return {
            place_of(name, role): self._catalogue.unit_cost(model, name, role)
            for name in self._catalogue.accelerators
            for role in Role
        }

    def rate(self, server: Server, place: str) -> float | None:
        """Return what one replica carries [requests/min]; None if that is not known."""
        return self._rates.replica.get((server.spec.name, place))

    def demand(self, server: Server) -> float:
        """Return what the replicas of a server have to carry now [requests/min]."""
        current = server.spec.current_alloc
        load = current.load.arrival_rate if current and current.load else 0.0
        return self._rates.demand.get(server.spec.name, load)

    def priority(self, server: Server) -> int:
        """Return the priority of the class of a server; 1 is the most important."""
        return self._catalogue.priority(server.spec.service_class)

    def cards(self, server: Server) -> Counter[str]:
        """Return the cards by type of a server: for what runs, and for what was decided."""
        cards: Counter[str] = Counter()
        counts = _replicas(server.spec.current_alloc) | _replicas(server.spec.desired_alloc)
        for (accelerator, role), replicas in counts.items():
            unit = self.unit(server.spec.model, accelerator, role)
            cards[unit.card_type] += replicas * unit.cards
        return cards

    def urgent_replicas(
        self, server: Server, servers: Iterable[Server], places: Iterable[str]
    ) -> Mapping[str, int]:
        """Return the replicas by place whose cards more important servers need now.

        These servers lack them, and they are not free.
        """
        needed, free = Counter[str](), Counter(self.capacity)
        for other in servers:
            free.subtract(self._running_cards(other))
            if self.priority(other) < self.priority(server):
                needed.update(self.lacking_cards(other))
        needed.subtract({card_type: max(n, 0) for card_type, n in free.items()})
        return {
            place: ceil(max(needed[unit.card_type], 0) / max(unit.cards, 1))
            for place, unit in ((place, self._unit_at(server, place)) for place in places)
        }

    def _unit_at(self, server: Server, place: str) -> Unit:
        roles = {
            place_of(accelerator, role): (accelerator, role)
            for accelerator in self._catalogue.accelerators
            for role in Role
        }
        accelerator, role = roles.get(place, (place, Role.BOTH))
        return self.unit(server.spec.model, accelerator, role)

    def _running_cards(self, server: Server) -> Counter[str]:
        cards: Counter[str] = Counter()
        for (accelerator, role), replicas in _replicas(server.spec.current_alloc).items():
            unit = self.unit(server.spec.model, accelerator, role)
            cards[unit.card_type] += replicas * unit.cards
        return cards

    def lacking_cards(self, server: Server) -> Counter[str]:
        """Return the cards by type that were decided for a server and that it does not have."""
        cards: Counter[str] = Counter()
        running = _replicas(server.spec.current_alloc)
        for (accelerator, role), replicas in _replicas(server.spec.desired_alloc).items():
            unit = self.unit(server.spec.model, accelerator, role)
            missing = max(replicas - running[accelerator, role], 0)
            cards[unit.card_type] += missing * unit.cards
        return +cards


def _replicas(whole: ServerAllocation | None) -> Counter[tuple[str, Role]]:
    """Return the replicas on each accelerator, in each role."""
    counts: Counter[tuple[str, Role]] = Counter()
    if whole is not None and whole.roles is not None:
        for role, replicas in whole.roles.by_role.items():
            counts[replicas.accelerator, role] = replicas.num_replicas
    elif whole is not None:
        for part in whole.parts:
            counts[part.accelerator, Role.BOTH] += part.num_replicas
    return counts
