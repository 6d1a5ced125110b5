"""How many cards a namespace may use: those of its nodes, what limits them, and its share; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inferno_operator.controllers.capacity.catalogue import CardCatalogue
from inferno_operator.controllers.capacity.inventory import (
    CardTypes,
    Fleet,
    NodeView,
    PodOwner,
    TypedNode,
    view_nodes,
)
from inferno_operator.controllers.capacity.machines import Machine, Pod, parse_quantity
from inferno_operator.resources import Accelerator, CountedCards
from inferno_operator.resources.objects import Key, Manifest

NODE_POOL_LABEL = "karpenter.sh/nodepool"
"""Label of a node with the name of its NodePool."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit of the cards of one type, and who sets it."""

    name: str
    cards: int


@dataclass(frozen=True, slots=True)
class Policies:
    """The objects that limit the cards of a namespace.

    `declared` has the cards by type of all its Capacity objects; `quotas` are its ResourceQuotas,
    `queues` the ClusterQueues that its LocalQueues lead to; `flavors` and `node_pools` are all that
    there are.
    """

    declared: Mapping[str, int] = field(default_factory=dict)
    quotas: Sequence[Manifest] = ()
    queues: Sequence[Manifest] = ()
    flavors: Sequence[Manifest] = ()
    node_pools: Sequence[Manifest] = ()


def find_bounds(
    view: NodeView, card_type: str, policies: Policies, others: Iterable[Pod]
) -> Iterator[Bound]:
    """Yield what limits the cards of a type for the Servers of a namespace.

    `others` are the pods of the namespace that do not belong to its Servers.
    """
    nodes = view.of_type(card_type)
    if policies.declared.get(card_type) is not None:
        yield Bound("spec.count", policies.declared[card_type])
    resources = sorted({node.resource for node in nodes})
    for quota in policies.quotas:
        yield from _read_quota(quota, resources, others)
    yield from _read_node_pools(policies.node_pools, nodes)
    yield from _read_queues(policies, nodes)


def _read_quota(
    quota: Manifest, resources: Iterable[str], others: Iterable[Pod]
) -> Iterator[Bound]:
    """Yield what a ResourceQuota leaves; one with scopes is for some pods only, and is ignored."""
    spec = quota.get("spec", {})
    if spec.get("scopes") or spec.get("scopeSelector"):
        return
    for resource in resources:
        hard = spec.get("hard", {}).get(f"requests.{resource}")
        if hard is not None:
            used = sum(pod.cards.get(resource, 0) for pod in others)
            yield Bound(f"ResourceQuota {quota['metadata']['name']}", parse_quantity(hard) - used)


def _read_node_pools(pools: Iterable[Manifest], nodes: Sequence[TypedNode]) -> Iterator[Bound]:
    """Yield the limits of NodePools: the most cards of their nodes that count."""
    others = sum(node.others for node in nodes)
    for pool in pools:
        name, limits = pool["metadata"]["name"], pool.get("spec", {}).get("limits", {})
        inside = [n for n in nodes if n.machine.labels.get(NODE_POOL_LABEL) == name]
        beyond = sum(node.total for node in nodes) - sum(node.total for node in inside)
        for resource in sorted({node.resource for node in inside} & limits.keys()):
            yield Bound(f"NodePool {name}", beyond + parse_quantity(limits[resource]) - others)


def _read_queues(policies: Policies, nodes: Sequence[TypedNode]) -> Iterator[Bound]:
    flavors = {flavor["metadata"]["name"]: flavor for flavor in policies.flavors}
    quotas = [
        (queue["metadata"]["name"], quota)
        for queue in policies.queues
        for quota in _read_nominal_quotas(queue, flavors, nodes)
    ]
    if quotas:
        names = ", ".join(dict.fromkeys(name for name, _ in quotas))
        yield Bound(f"ClusterQueue {names}", sum(quota for _, quota in quotas))


def _read_nominal_quotas(
    queue: Manifest, flavors: Mapping[str, Manifest], nodes: Sequence[TypedNode]
) -> Iterator[int]:
    for group in queue.get("spec", {}).get("resourceGroups", ()):
        for part in group.get("flavors", ()):
            labels = flavors.get(part["name"], {}).get("spec", {}).get("nodeLabels", {})
            inside = {n.resource for n in nodes if labels.items() <= n.machine.labels.items()}
            for resource in part.get("resources", ()):
                if resource["name"] in inside:
                    yield parse_quantity(resource["nominalQuota"])


def find_cluster_queues(queues: Iterable[Manifest], local: Iterable[Manifest]) -> list[Manifest]:
    """Return the ClusterQueues that some LocalQueues lead to."""
    named = {item.get("spec", {}).get("clusterQueue") for item in local}
    return [queue for queue in queues if queue["metadata"]["name"] in named]


def find_pods_of_others(pods: Iterable[Pod], namespace: str, owned: Iterable[Key]) -> list[Pod]:
    """Return the pods of a namespace that do not belong to Servers."""
    ours = set(owned)
    return [p for p in pods if p.key.namespace == namespace and p.key not in ours]


WHOLE = 100
"""Sum of the parts up to which nobody's part is reduced [%]."""


def divide_cards(cards: int, percents: Mapping[str, int]) -> dict[str, int]:
    """Return the cards of each namespace by its part [%]; their sum is at most the pool.

    If the parts exceed 100 together, each is reduced in proportion.

    Notes
    -----
    Largest remainders: each gets the whole cards of its part; cards that are left over from
    fractions go to the largest fractions, and among equal ones to the first names.
    """
    whole = max(sum(percents.values()), WHOLE)
    parts = {name: divmod(max(cards, 0) * percent, whole) for name, percent in percents.items()}
    left = max(cards, 0) * sum(percents.values()) // whole - sum(n for n, _ in parts.values())
    first = sorted(parts, key=lambda name: (-parts[name][1], name))[:left]
    return {name: count + (name in first) for name, (count, _) in parts.items()}


def grant_cards(
    cards: int, parts: Mapping[str, int], held: Mapping[str, int], namespace: str
) -> int:
    """Return the cards of a pool that a namespace may use now.

    It gets its part as soon as the others have given up what exceeds theirs: `held` are the cards
    that each namespace has been told that it may use, or uses, whichever is more.
    """
    others = sum(count for name, count in held.items() if name != namespace)
    return max(min(parts[namespace], cards - others), 0)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace whose Capacity is counted.

    `policies` limit its cards besides the nodes, `percent` is its part of a pool [%]; None if it
    has no share. `assigned` has the cards by type that its Capacity has now.
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


def count_cards(
    namespaces: Sequence[Namespace],
    machines: Iterable[Machine],
    pods: Sequence[Pod],
    owners: Mapping[Key, PodOwner],
    catalogue: CardCatalogue,
) -> dict[str, CardCount]:
    """Return the counts of all namespaces.

    `machines` and `pods` are all nodes, and all pods that request cards; `owners` has the Servers
    of these namespaces by the pods that belong to them.
    """
    fleet = Fleet.of(machines, pods, owners)
    views = {
        n.name: view_nodes(n.name, CardTypes(n.accelerators, catalogue), fleet) for n in namespaces
    }
    pool = _Pool(namespaces, views)
    counts: dict[str, CardCount] = {}
    for namespace in sorted(namespaces, key=lambda item: item.name):
        seen = views[namespace.name]
        others = find_pods_of_others(pods, namespace.name, owners)
        cards = tuple(_count_type(seen, name, namespace, pool, others) for name in seen.types)
        counts[namespace.name] = CardCount(seen, cards)
    return counts


def _count_type(
    seen: NodeView, card_type: str, namespace: Namespace, pool: "_Pool", others: Iterable[Pod]
) -> CountedCards:
    """Return the cards of a type: the least of all bounds is available."""
    nodes = seen.of_type(card_type)
    usable = Bound("nodes", sum(node.usable for node in nodes))
    limits = [usable, *find_bounds(seen, card_type, namespace.policies, others)]
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
        parts = divide_cards(pool, {name: self._percents[name] for name in held})
        cards = grant_cards(pool, parts, held, namespace.name)
        place = namespace.name, card_type
        self._held[place] = max(self._held[place], cards)
        return Bound("spec.share", cards)
