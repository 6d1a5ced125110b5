"""Count the cards of nodes for one namespace; pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from inferno_operator.controllers.capacity.cards import NOT_OFFERED, CardTypes, Unmatched
from inferno_operator.controllers.capacity.machines import Machine, Pod
from inferno_operator.resources.objects import Key
from inferno_optimizer import placement


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

    Parameters
    ----------
    machine, resource, type
        The node, and the name and the type of its cards.
    total, others, ours
        All cards; those requested by pods of others than the Servers of the namespace; and
        those that pods of its Servers request.
    holdings
        The cards by who uses them.
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
    """The nodes as the accelerators of one namespace see them.

    Parameters
    ----------
    namespace
        The namespace.
    types
        The types of its accelerators, sorted.
    nodes
        The nodes with cards of these types that take new pods, by name.
    unmatched
        Cards of no type, of nodes that take new pods.
    left_out
        Numbers of nodes with cards that take no new pods, by the reason.
    partial
        Numbers of nodes whose cards are parts of cards and were selected for a type that does not
        say so, by the type and by what the nodes say.
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


def view(namespace: str, types: CardTypes, fleet: Fleet) -> NodeView:
    """Return the nodes as the accelerators of a namespace see them."""
    nodes: list[TypedNode] = []
    unmatched: list[Unmatched] = []
    left_out: Counter[str] = Counter()
    partial: Counter[tuple[str, str]] = Counter()
    for machine in fleet.machines:
        resources, unknown = types.resources(machine), types.unknown_resources(machine)
        if obstacle := _obstacle(machine, types):
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


def _obstacle(machine: Machine, types: CardTypes) -> str:
    """Return why a node takes no new pods; "" if it does."""
    if not machine.is_ready:
        return "not ready"
    if machine.is_cordoned:
        return "cordoned"
    taints = types.keep_away(machine)
    return f"tainted with {min(taints)}" if taints else ""
