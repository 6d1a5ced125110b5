"""Which type the cards of each node have, and who uses them, as one namespace sees it; pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from inferno_operator.controllers.capacity.catalogue import (
    CardCatalogue,
    CardParts,
    Words,
    words_of,
)
from inferno_operator.controllers.capacity.machines import Machine, Pod
from inferno_operator.resources import Accelerator, NodeSelection, UnmatchedCards
from inferno_operator.resources.objects import Key
from inferno_optimizer import placement

NOT_OFFERED = ""
"""In place of a resource, where a label names cards and the node offers none."""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Cards of a node that are of no accelerator's type, and the label that tells most of them.

    `parts` says what they are parts of cards by; `is_known` whether the resource is one of cards.
    """

    machine: Machine
    resource: str
    label: str
    parts: CardParts = field(default_factory=CardParts)
    is_known: bool = True


class CardTypes:
    """The types of cards of a namespace with these accelerators, and the nodes that have them."""

    def __init__(self, accelerators: Sequence[Accelerator], catalogue: CardCatalogue) -> None:
        selecting = [(a.spec.type, a.spec.nodes) for a in accelerators if a.spec.nodes]
        selected = {card_type for card_type, _ in selecting}
        self.names = sorted({a.spec.type for a in accelerators})
        self._catalogue = catalogue
        self._selections = sorted(selecting, key=lambda item: (-len(item[1].selector), item[0]))
        self._words = {name: words_of(name) for name in self.names if name not in selected}
        self._resources = {nodes.resource for _, nodes in selecting}
        self._selecting = {name for _, nodes in selecting for name in nodes.selector}
        self._labels: dict[str, tuple[str, ...]] = {}
        """The labels that matter, by resource."""
        self._known: dict[tuple[object, ...], tuple[str | None, CardParts]] = {}
        """Types and parts by all that matters: most nodes are like others."""
        self._tolerated = catalogue.tolerated_keys.union(*(n.tolerates for _, n in selecting))

    def resources(self, machine: Machine) -> list[str]:
        """Return the resources of a node that are cards."""
        own, is_other = self._resources, self._catalogue.is_other
        cards = filter(self._is_card, machine.cards)
        return [r for r in cards if r in own or not is_other(machine, r)]

    def unknown_resources(self, machine: Machine) -> list[str]:
        """Return the resources of a node that may be cards, as no rule knows them."""
        is_other = self._catalogue.is_other
        return [r for r in machine.cards if not self._is_card(r) and not is_other(machine, r)]

    def has_card_label(self, machine: Machine) -> bool:
        """Whether a label that only nodes with cards have names some."""
        return self._catalogue.has_card_label(machine)

    def _is_card(self, resource: str) -> bool:
        return resource in self._resources or self._catalogue.is_card(resource)

    def keep_away(self, machine: Machine) -> frozenset[str]:
        """Return the keys of a node's taints that the pods of Servers do not tolerate."""
        return machine.taints - self._tolerated - machine.cards.keys()

    def parts_of(self, machine: Machine, resource: str) -> CardParts:
        """Return whether the cards of a node are parts of cards."""
        return self._read(machine, resource)[1]

    def type_of(self, machine: Machine, resource: str) -> str | None:
        """Return the type of the cards of a node; None if it is no accelerator's."""
        return self._read(machine, resource)[0]

    def _read(self, machine: Machine, resource: str) -> tuple[str | None, CardParts]:
        if resource not in self._labels:
            named = self._selecting | self._catalogue.labels_of(resource)
            self._labels[resource] = tuple(sorted(named))
        labels = tuple(map(machine.labels.get, self._labels[resource]))
        annotations = tuple(sorted(machine.annotations.items()))
        key = resource, machine.cards.get(resource, 0), labels, annotations
        if key not in self._known:
            parts = self._catalogue.parts_of(machine, resource)
            self._known[key] = self._type_of(machine, resource, parts.words), parts
        return self._known[key]

    def _type_of(self, machine: Machine, resource: str, parts: Words) -> str | None:
        """Return the type of the cards of a node.

        Selections come before the words of labels, and those with more labels before others.
        """
        for card_type, nodes in self._selections:
            if _is_selected(nodes, machine, resource):
                return card_type
        for label in self._catalogue.labels:
            words = label.read(machine.labels)
            if words and (named := self._named(words | parts)):
                return named
        return None

    def has_words_of_parts(self, card_type: str, parts: CardParts) -> bool:
        """Whether a type says that its cards are parts of cards, as far as they are."""
        return parts.words & self._catalogue.must_be_named <= words_of(card_type)

    def _named(self, words: Words) -> str | None:
        """Return the type with the most words among some; None if no type has only such words."""
        needed = self._catalogue.needed(words)
        matching = [n for n, own in self._words.items() if own and needed <= own <= words]
        return max(matching, key=lambda name: (len(self._words[name]), name), default=None)

    def unmatched(self, machine: Machine, resource: str) -> Unmatched:
        """Return the cards of a node that has no type."""
        return Unmatched(
            machine,
            resource,
            self._catalogue.best_label(machine, resource),
            self.parts_of(machine, resource),
            self._is_card(resource),
        )


def _is_selected(nodes: NodeSelection, machine: Machine, resource: str) -> bool:
    return nodes.resource == resource and nodes.selector.items() <= machine.labels.items()


def group_unmatched(unmatched: Iterable[Unmatched]) -> list[UnmatchedCards]:
    """Return the cards without a type, one item per resource and label, with what to write."""
    groups: dict[tuple[str, str, str], list[Unmatched]] = {}
    for item in unmatched:
        words = "-".join(sorted(item.parts.words))
        groups.setdefault((item.resource, item.label, words), []).append(item)
    return [
        UnmatchedCards(
            resource=resource,
            label=label,
            nodes=len(items),
            cards=sum(item.machine.cards.get(resource, 0) for item in items),
            example=min(item.machine.name for item in items),
            message=_advise(items[0]),
        )
        for (resource, label, _), items in sorted(groups.items())
    ]


def _advise(item: Unmatched) -> str:
    name, _, value = item.label.partition("=")
    selector = f"{name}: {value}" if name else "<label of these nodes>: <value>"
    selection = f"spec.nodes: {{selector: {{{selector}}}, resource: {item.resource}}}"
    if item.resource == NOT_OFFERED:
        return (
            "these nodes offer no cards as extended resources: their device plugin does not run,"
            " all cards are unhealthy, or they are given out by dynamic resource allocation (DRA),"
            " which is not counted"
        )
    if not item.is_known:
        return (
            f"{item.resource} is not known as a resource of cards, so it is not counted; if it is"
            f" one, set {selection} in the Accelerator that has them"
        )
    if item.parts.words:
        words = "-".join(sorted(item.parts.words))
        return (
            f"these are parts of cards ({item.parts.evidence}): only an Accelerator whose type has"
            f" the words {words} counts them, or one with {selection}"
        )
    return f"no Accelerator has this type of card; in the one that has, set {selection}"


@dataclass(frozen=True, slots=True)
class PodOwner:
    """The Server that a pod belongs to, by its spec.name, and the accelerator it runs on."""

    namespace: str
    server: str
    accelerator: str


@dataclass(frozen=True, slots=True)
class Holdings:
    """Cards on a node that pods request, by who they belong to; None for pods of no Server."""

    by_owner: Mapping[PodOwner | None, int]

    @property
    def total(self) -> int:
        """All cards that pods request."""
        return sum(self.by_owner.values())

    def of(self, namespace: str) -> int:
        """Return the cards of the Servers of a namespace."""
        return sum(
            n for o, n in self.by_owner.items() if o is not None and o.namespace == namespace
        )

    def beyond(self, namespaces: frozenset[str]) -> int:
        """Return the cards of all but the Servers of some namespaces."""
        return sum(
            n for o, n in self.by_owner.items() if o is None or o.namespace not in namespaces
        )


NOTHING = Holdings({})


@dataclass(frozen=True, slots=True)
class Fleet:
    """All nodes, and what pods request on them by node and resource."""

    machines: Sequence[Machine]
    holdings: Mapping[tuple[str, str], Holdings]

    @classmethod
    def of(
        cls, machines: Iterable[Machine], pods: Iterable[Pod], owners: Mapping[Key, PodOwner]
    ) -> "Fleet":
        """Return the fleet; `owners` has the Servers by the pods that belong to them."""
        held: defaultdict[tuple[str, str], Counter[PodOwner | None]] = defaultdict(Counter)
        for pod in pods:
            if pod.node:
                for resource, count in pod.cards.items():
                    held[pod.node, resource][owners.get(pod.key)] += count
        in_order = sorted(machines, key=lambda machine: machine.name)
        return cls(in_order, {place: Holdings(counts) for place, counts in held.items()})


@dataclass(frozen=True, slots=True)
class TypedNode:
    """The cards of one type on a node that takes new pods, as one namespace sees them.

    `others` are requested by pods of others than its Servers, `ours` by pods of these; `holdings`
    has all by who uses them.
    """

    machine: Machine
    resource: str
    type: str
    total: int
    others: int
    ours: int
    holdings: Holdings

    @property
    def usable(self) -> int:
        """Cards that Servers of the namespace use or may use."""
        return max(self.total - self.others, 0)

    @property
    def free(self) -> int:
        """Cards that no pod requests."""
        return max(self.total - self.others - self.ours, 0)

    def for_placement(self, namespace: str) -> placement.Node:
        """Return the cards that Servers of a namespace may use, and what they use now."""
        held = {
            (owner.server, owner.accelerator): count
            for owner, count in self.holdings.by_owner.items()
            if owner is not None and owner.namespace == namespace
        }
        return placement.Node(self.type, self.usable, held)


@dataclass(frozen=True)
class NodeView:
    """The nodes as the accelerators of one namespace see them, by name.

    `types` are those of its accelerators, sorted; `nodes` have cards of these types and take new
    pods, `unmatched` are cards of no type on such nodes. `left_out` has the numbers of nodes with
    cards that take no new pods, by the reason; `partial` those of nodes whose cards are parts of
    cards and were selected for a type that does not say so, by the type and by what the nodes say.
    """

    namespace: str
    types: Sequence[str]
    nodes: Sequence[TypedNode]
    unmatched: Sequence[Unmatched] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    partial: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @cached_property
    def _by_type(self) -> Mapping[str, Sequence[TypedNode]]:
        by_type: defaultdict[str, list[TypedNode]] = defaultdict(list)
        for node in self.nodes:
            by_type[node.type].append(node)
        return by_type

    def of_type(self, card_type: str) -> Sequence[TypedNode]:
        """Return the nodes with cards of a type."""
        return self._by_type.get(card_type, ())


def view_nodes(namespace: str, types: CardTypes, fleet: Fleet) -> NodeView:
    """Return the nodes as the accelerators of a namespace see them."""
    nodes: list[TypedNode] = []
    unmatched: list[Unmatched] = []
    left_out: Counter[str] = Counter()
    partial: Counter[tuple[str, str]] = Counter()
    for machine in fleet.machines:
        resources, unknown = types.resources(machine), types.unknown_resources(machine)
        if obstacle := _find_obstacle(machine, types):
            if resources or unknown or types.has_card_label(machine):
                left_out[obstacle] += 1
            continue
        unmatched += [types.unmatched(machine, resource) for resource in unknown]
        if not resources and not unknown and types.has_card_label(machine):
            unmatched.append(types.unmatched(machine, NOT_OFFERED))
        for resource in resources:
            card_type = types.type_of(machine, resource)
            if card_type is None:
                unmatched.append(types.unmatched(machine, resource))
                continue
            parts = types.parts_of(machine, resource)
            if not types.has_words_of_parts(card_type, parts):
                partial[card_type, parts.evidence] += 1
            held = fleet.holdings.get((machine.name, resource), NOTHING)
            ours = held.of(namespace)
            total, others = machine.cards[resource], held.total - ours
            nodes.append(TypedNode(machine, resource, card_type, total, others, ours, held))
    by_reason = dict(sorted(left_out.items()))
    return NodeView(namespace, types.names, nodes, unmatched, by_reason, partial)


def _find_obstacle(machine: Machine, types: CardTypes) -> str:
    """Return why a node takes no new pods; "" if it does."""
    if not machine.is_ready:
        return "not ready"
    if machine.is_cordoned:
        return "cordoned"
    taints = types.keep_away(machine)
    return f"tainted with {min(taints)}" if taints else ""
