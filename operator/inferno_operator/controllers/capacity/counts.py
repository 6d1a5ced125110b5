"""From nodes, pods and policies to the counts of each namespace; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inferno_operator.controllers.capacity.bounds import Bound, Policies, bounds, of_others
from inferno_operator.controllers.capacity.cards import CardTypes
from inferno_operator.controllers.capacity.catalogue import CardCatalogue
from inferno_operator.controllers.capacity.inventory import Fleet, NodeView, PodOwner, view
from inferno_operator.controllers.capacity.machines import Machine, Pod
from inferno_operator.controllers.capacity.shares import divide, granted
from inferno_operator.resources import Accelerator, CountedCards
from inferno_operator.resources.objects import Key


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace whose Capacity is counted.

    Parameters
    ----------
    name
        Its name.
    accelerators
        Its accelerators.
    policies
        What limits its cards besides the nodes.
    percent
        Its part of a pool [%]; None if it has no share.
    assigned
        Cards by type that its Capacity has now.
    """

    name: str
    accelerators: Sequence[Accelerator]
    policies: Policies = field(default_factory=Policies)
    percent: int | None = None
    assigned: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CardCount:
    """The counted cards of a namespace, and the nodes that they are on."""

    view: NodeView
    cards: tuple[CountedCards, ...]


def count_all(
    namespaces: Sequence[Namespace],
    machines: Iterable[Machine],
    pods: Sequence[Pod],
    owners: Mapping[Key, PodOwner],
    catalogue: CardCatalogue,
) -> dict[str, CardCount]:
    """Return the counts of all namespaces.

    Parameters
    ----------
    namespaces
        The namespaces, with their accelerators and policies.
    machines, pods
        All nodes, and all pods that request cards.
    owners
        The Servers of these namespaces, by the pods that belong to them.
    catalogue
        What is known of cards in general.
    """
    fleet = Fleet.of(machines, pods, owners)
    views = {n.name: view(n.name, CardTypes(n.accelerators, catalogue), fleet) for n in namespaces}
    pool = _Pool(namespaces, views)
    counts: dict[str, CardCount] = {}
    for namespace in sorted(namespaces, key=lambda item: item.name):
        seen = views[namespace.name]
        others = of_others(pods, namespace.name, owners)
        cards = tuple(_counted(seen, name, namespace, pool, others) for name in seen.types)
        counts[namespace.name] = CardCount(seen, cards)
    return counts


def _counted(
    seen: NodeView, card_type: str, namespace: Namespace, pool: "_Pool", others: Iterable[Pod]
) -> CountedCards:
    """Return the cards of a type: the least of all bounds is available."""
    nodes = seen.of_type(card_type)
    usable = Bound("nodes", sum(node.usable for node in nodes))
    limits = [usable, *bounds(seen, card_type, namespace.policies, others)]
    if namespace.percent is not None:
        limits.append(pool.bound(namespace, seen, card_type))
    least = min(limits, key=lambda bound: max(bound.cards, 0))
    return CountedCards(
        type=card_type,
        total=sum(node.total for node in nodes),
        others=sum(node.others for node in nodes),
        ours=sum(node.ours for node in nodes),
        free=sum(node.free for node in nodes),
        available=max(least.cards, 0),
        bound_by=least.name,
    )


class _Pool:
    """The cards that namespaces with a share have together."""

    def __init__(self, namespaces: Sequence[Namespace], views: Mapping[str, NodeView]) -> None:
        sharing = [namespace for namespace in namespaces if namespace.percent is not None]
        self._percents = {n.name: n.percent for n in sharing if n.percent is not None}
        self._held = {
            (n.name, card_type): max(
                n.assigned.get(card_type, 0),
                sum(node.ours for node in views[n.name].of_type(card_type)),
            )
            for n in sharing
            for card_type in views[n.name].types
        }

    def bound(self, namespace: Namespace, seen: NodeView, card_type: str) -> Bound:
        """Return what a namespace may use now; the next ones then get what is left."""
        members = frozenset(self._percents)
        pool = sum(
            max(node.total - node.holdings.beyond(members), 0) for node in seen.of_type(card_type)
        )
        held = {name: count for (name, of), count in self._held.items() if of == card_type}
        parts = divide(pool, {name: self._percents[name] for name in held})
        cards = granted(pool, parts, held, namespace.name)
        place = namespace.name, card_type
        self._held[place] = max(self._held[place], cards)
        return Bound("spec.share", cards)
