"""What statuses say of the cards that a plan counts for each replica; pure.

Objects that refer to each other say the same: a Model says it of its Accelerators, and a Server of
what it runs on. Of an object that is deleted and made anew, which has no status then, the others
still tell it, also to an operator that has just started. See `cards_in_use`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from inferno_operator.controllers.optimization.cards_in_use import counted_replicas
from inferno_operator.controllers.optimization.placements import placements
from inferno_operator.controllers.optimization.profiles import Place
from inferno_operator.resources import (
    Accelerator,
    AcceleratorStatus,
    HeldCards,
    Model,
    ReplicaCards,
    Server,
)
from inferno_optimizer import system as core
from inferno_optimizer.system import System


class CardsOfReplicas:
    """What a plan counts, for the status of each object.

    Parameters
    ----------
    system
        The system as plans count it.
    """

    def __init__(self, system: System) -> None:
        self._accelerators = {each.name: each for each in system.accelerators}
        self._counts = dict(counted_replicas(system))
        self._places = defaultdict[str, list[Place]](list)
        for place in self._counts:
            self._places[place[0]].append(place)

    def of_accelerator(self, accelerator: Accelerator) -> AcceleratorStatus:
        """Return what an Accelerator of the system counts as."""
        found = self._accelerators[accelerator.spec.name]
        return AcceleratorStatus(type=found.type, multiplicity=found.multiplicity)

    def of_model(self, model: Model) -> tuple[ReplicaCards, ...]:
        """Return what the replicas of a Model of the system count as."""
        before = {cards.acc: cards for cards in model.status.replica_cards}
        return tuple(
            ReplicaCards(**self._fields(place, before)) for place in self._places[model.spec.name]
        )

    def of_server(self, server: Server, decided: core.Allocation | None) -> tuple[HeldCards, ...]:
        """Return what the replicas count as that a Server has, or gets by a decision.

        What its status said before stays for places that the system does not have any more.
        Nothing is said where no replicas follow from the decisions: an operator that does not see
        them cannot hold them, and a large plan is written in a tenth less of bytes.
        """
        if not server.is_actuated:
            return ()
        model, status = server.spec.model, server.status.replica_cards
        known = {(c.model, c.acc, core.Role(c.role)): c for c in status}
        before = {cards.acc: cards for cards in status}
        places = {(model, *place) for place in _places(server, decided)}
        counted = {
            place: HeldCards(model=model, **self._fields(place, before))
            for place in places & self._counts.keys()
        }
        kept = {place: known[place] for place in places & known.keys()}
        return tuple(cards for _, cards in sorted((kept | counted).items()))

    def _fields(self, place: Place, before: Mapping[str, ReplicaCards]) -> dict[str, Any]:
        """The fields of a place; the cards of an accelerator that is deleted are as before."""
        _, acc, role = place
        fields = {"acc": acc, "role": role.value, "acc_count": self._counts[place]}
        found = self._accelerators.get(acc) or before.get(acc)
        cards = {"type": found.type, "multiplicity": found.multiplicity} if found else {}
        return fields | cards


def _places(server: Server, decided: core.Allocation | None) -> Iterator[tuple[str, core.Role]]:
    """Yield the accelerators and roles of what runs, of what was decided, and of what is now."""
    for whole in (server.spec.current_alloc, server.spec.desired_alloc):
        yield from ((p.accelerator, core.Role(p.role)) for p in placements(whole))
    if decided is not None:
        yield from ((p.accelerator, p.role) for p in decided.parts if p.replicas > 0)
