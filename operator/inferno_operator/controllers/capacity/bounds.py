"""What limits the cards of a namespace besides its nodes: counts, quotas, pools, queues; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inferno_operator.controllers.capacity.inventory import NodeView, TypedNode
from inferno_operator.controllers.capacity.machines import Pod, number
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

    Parameters
    ----------
    declared
        Cards by type of all Capacity objects of the namespace.
    quotas
        ResourceQuotas of the namespace.
    queues
        ClusterQueues that the LocalQueues of the namespace lead to.
    flavors
        All ResourceFlavors.
    node_pools
        All NodePools.
    """

    declared: Mapping[str, int] = field(default_factory=dict)
    quotas: Sequence[Manifest] = ()
    queues: Sequence[Manifest] = ()
    flavors: Sequence[Manifest] = ()
    node_pools: Sequence[Manifest] = ()


def bounds(
    view: NodeView, card_type: str, policies: Policies, others: Iterable[Pod]
) -> Iterator[Bound]:
    """Yield what limits the cards of a type for the Servers of a namespace.

    Parameters
    ----------
    view, card_type
        The nodes of the namespace, and the type.
    policies
        The objects that limit it.
    others
        Pods of the namespace that do not belong to its Servers.
    """
    nodes = view.of_type(card_type)
    if policies.declared.get(card_type) is not None:
        yield Bound("spec.count", policies.declared[card_type])
    resources = sorted({node.resource for node in nodes})
    for quota in policies.quotas:
        yield from _quota(quota, resources, others)
    yield from _node_pools(policies.node_pools, nodes)
    yield from _queues(policies, nodes)


def _quota(quota: Manifest, resources: Iterable[str], others: Iterable[Pod]) -> Iterator[Bound]:
    """Yield what a ResourceQuota leaves; one with scopes is for some pods only, and is ignored."""
    spec = quota.get("spec", {})
    if spec.get("scopes") or spec.get("scopeSelector"):
        return
    for resource in resources:
        hard = spec.get("hard", {}).get(f"requests.{resource}")
        if hard is not None:
            used = sum(pod.cards.get(resource, 0) for pod in others)
            yield Bound(f"ResourceQuota {quota['metadata']['name']}", number(hard) - used)


def _node_pools(pools: Iterable[Manifest], nodes: Sequence[TypedNode]) -> Iterator[Bound]:
    """Yield the limits of NodePools: the most cards of their nodes that count."""
    others = sum(node.others for node in nodes)
    for pool in pools:
        name, limits = pool["metadata"]["name"], pool.get("spec", {}).get("limits", {})
        inside = [n for n in nodes if n.machine.labels.get(NODE_POOL_LABEL) == name]
        beyond = sum(node.total for node in nodes) - sum(node.total for node in inside)
        for resource in sorted({node.resource for node in inside} & limits.keys()):
            yield Bound(f"NodePool {name}", beyond + number(limits[resource]) - others)


def _queues(policies: Policies, nodes: Sequence[TypedNode]) -> Iterator[Bound]:
    """Yield the nominal quota of all ClusterQueues of the namespace, if they cover the cards."""
    flavors = {flavor["metadata"]["name"]: flavor for flavor in policies.flavors}
    quotas = [
        (queue["metadata"]["name"], quota)
        for queue in policies.queues
        for quota in _nominal(queue, flavors, nodes)
    ]
    if quotas:
        names = ", ".join(dict.fromkeys(name for name, _ in quotas))
        yield Bound(f"ClusterQueue {names}", sum(quota for _, quota in quotas))


def _nominal(
    queue: Manifest, flavors: Mapping[str, Manifest], nodes: Sequence[TypedNode]
) -> Iterator[int]:
    """Yield the nominal quotas of a ClusterQueue for the cards of some nodes."""
    for group in queue.get("spec", {}).get("resourceGroups", ()):
        for part in group.get("flavors", ()):
            labels = flavors.get(part["name"], {}).get("spec", {}).get("nodeLabels", {})
            inside = {n.resource for n in nodes if labels.items() <= n.machine.labels.items()}
            for resource in part.get("resources", ()):
                if resource["name"] in inside:
                    yield number(resource["nominalQuota"])


def cluster_queues(queues: Iterable[Manifest], local: Iterable[Manifest]) -> list[Manifest]:
    """Return the ClusterQueues that some LocalQueues lead to."""
    named = {item.get("spec", {}).get("clusterQueue") for item in local}
    return [queue for queue in queues if queue["metadata"]["name"] in named]


def of_others(pods: Iterable[Pod], namespace: str, owned: Iterable[Key]) -> list[Pod]:
    """Return the pods of a namespace that do not belong to Servers."""
    ours = set(owned)
    return [p for p in pods if p.key.namespace == namespace and p.key not in ours]
