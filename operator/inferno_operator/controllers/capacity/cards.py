"""Which type the cards of a node have, for the accelerators of a namespace; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from inferno_operator.controllers.capacity.catalogue import CardCatalogue, Label, Words, words_of
from inferno_operator.controllers.capacity.machines import Machine
from inferno_operator.resources import Accelerator, NodeSelection, UnmatchedCards

MUST_BE_NAMED = words_of("MIG SHARED")
"""Words of a value that make a card another one: a part of it, or one for several pods."""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Cards of a node that are of no accelerator's type, and the label that tells most of them."""

    machine: Machine
    resource: str
    label: str


class CardTypes:
    """The types of cards of a namespace, and the nodes that have them.

    Parameters
    ----------
    accelerators
        The accelerators of the namespace.
    catalogue
        What is known of cards in general.
    """

    def __init__(self, accelerators: Sequence[Accelerator], catalogue: CardCatalogue) -> None:
        selecting = [(a.spec.type, a.spec.nodes) for a in accelerators if a.spec.nodes]
        selected = {card_type for card_type, _ in selecting}
        self.names = sorted({a.spec.type for a in accelerators})
        self._catalogue = catalogue
        self._selections = sorted(selecting, key=lambda item: (-len(item[1].selector), item[0]))
        self._words = {name: words_of(name) for name in self.names if name not in selected}
        self._resources = {nodes.resource for _, nodes in selecting}
        self._labels = sorted(
            {name for label in catalogue.labels for name in (label.label, label.memory)}
            | {name for _, nodes in selecting for name in nodes.selector}
        )
        self._known: dict[tuple[str | None, ...], str | None] = {}
        """Types by the resource and the labels that matter: most nodes are like others."""
        self._tolerated = catalogue.tolerated_keys.union(*(n.tolerates for _, n in selecting))

    def resources(self, machine: Machine) -> list[str]:
        """Return the resources of a node that are cards."""
        card_resources = self._resources
        return [r for r in machine.cards if r in card_resources or self._catalogue.is_card(r)]

    def keep_away(self, machine: Machine) -> frozenset[str]:
        """Return the keys of a node's taints that the pods of Servers do not tolerate."""
        return machine.taints - self._tolerated - machine.cards.keys()

    def type_of(self, machine: Machine, resource: str) -> str | None:
        """Return the type of the cards of a node; None if it is no accelerator's."""
        key = (resource, *(machine.labels.get(name) for name in self._labels))
        if key not in self._known:
            self._known[key] = self._type_of(machine, resource)
        return self._known[key]

    def _type_of(self, machine: Machine, resource: str) -> str | None:
        """Return the type of the cards of a node.

        Selections come before the words of labels, and those with more labels before others.
        """
        for card_type, nodes in self._selections:
            if _selects(nodes, machine, resource):
                return card_type
        for label in self._catalogue.labels:
            words = label.read(machine.labels)
            if words and (named := self._named(words | _part_words(resource))):
                return named
        return None

    def _named(self, words: Words) -> str | None:
        """Return the type with the most words among some; None if no type has only such words."""
        needed = words & MUST_BE_NAMED
        matching = [n for n, own in self._words.items() if own and needed <= own <= words]
        return max(matching, key=lambda name: (len(self._words[name]), name), default=None)

    def unmatched(self, machine: Machine, resource: str) -> Unmatched:
        """Return the cards of a node that has no type."""
        labels = (label for label in self._catalogue.labels if machine.labels.get(label.label))
        first: Label | None = next(labels, None)
        label = f"{first.label}={machine.labels[first.label]}" if first else ""
        return Unmatched(machine, resource, label)


def _selects(nodes: NodeSelection, machine: Machine, resource: str) -> bool:
    return nodes.resource == resource and nodes.selector.items() <= machine.labels.items()


def _part_words(resource: str) -> Words:
    """Return the words of a resource that is a part of a card, such as nvidia.com/mig-1g.10gb."""
    words = words_of(resource.partition("/")[2])
    return words if words & MUST_BE_NAMED else frozenset()


def unmatched_cards(unmatched: Iterable[Unmatched]) -> list[UnmatchedCards]:
    """Return the cards without a type, one item per resource and label, with what to write."""
    groups: dict[tuple[str, str], list[Unmatched]] = {}
    for item in unmatched:
        groups.setdefault((item.resource, item.label), []).append(item)
    return [
        UnmatchedCards(
            resource=resource,
            label=label,
            nodes=len(items),
            cards=sum(item.machine.cards[resource] for item in items),
            example=min(item.machine.name for item in items),
            message=_advice(resource, label),
        )
        for (resource, label), items in sorted(groups.items())
    ]


def _advice(resource: str, label: str) -> str:
    name, _, value = label.partition("=")
    selector: Mapping[str, str] = {name: value} if label else {"<label of these nodes>": "<value>"}
    written = ", ".join(f"{key}: {text}" for key, text in selector.items())
    return (
        "no Accelerator has this type of card; in the one that has, set"
        f" spec.nodes: {{selector: {{{written}}}, resource: {resource}}}"
    )
