"""Counts of all namespaces, against a counter that adds up one card after the other."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.capacity.catalogue import read_built_in_cards
from inferno_operator.controllers.capacity.counts import Namespace, Policies, count_cards
from inferno_operator.controllers.capacity.inventory import PodOwner
from inferno_operator.controllers.capacity.machines import Machine, Pod
from inferno_operator.resources import Accelerator, CountedCards
from inferno_operator.resources.objects import Key
from tests.unit.operator import objects
from tests.unit.operator.controllers.capacity.making import (
    GPU,
    H100,
    PRODUCT,
    card_pod,
    machine,
)

Manifest = dict[str, Any]

KINDS: Mapping[str, Mapping[str, str]] = {"H100": H100, "L4": {PRODUCT: "NVIDIA-L4"}, "": {}}
"""Labels of nodes by the type of their cards; the last one has no type."""


def accelerators(*types: str) -> list[Accelerator]:
    specs = ({"name": name, "type": name, "cost": 1} for name in types)
    found = (objects.manifest("Accelerator", spec, name="a") for spec in specs)
    return [Accelerator.model_validate(each) for each in found]


def namespace(name: str = "ns", **fields: Any) -> Namespace:  # noqa: ANN401 - handed on
    return Namespace(name, accelerators("H100", "L4"), **fields)


def counted(
    machines: Sequence[Machine],
    pods: Sequence[Pod] = (),
    owners: Mapping[Key, PodOwner] | None = None,
    **fields: Any,  # noqa: ANN401 - handed on
) -> CountedCards:
    """The H100 of one namespace."""
    counts = count_cards([namespace(**fields)], machines, pods, owners or {}, read_built_in_cards())
    return next(cards for cards in counts["ns"].cards if cards.type == "H100")


def owner(namespace: str = "ns") -> PodOwner:
    return PodOwner(namespace, "server", "H100")


@st.composite
def clusters(
    draw: st.DrawFn,
) -> tuple[list[Machine], list[Pod], dict[Key, PodOwner], dict[str, str]]:
    """Nodes in every state, pods of two namespaces and of others, and the types of the nodes."""
    types = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=6))
    machines = [
        machine(
            name=f"n{place}",
            cards=draw(st.integers(0, 8)),
            labels=KINDS[card_type],
            ready=draw(st.integers(0, 5)) > 0,
            cordoned=draw(st.integers(0, 5)) == 0,
            taints=draw(st.sampled_from([(), (), (GPU,), ("dedicated",)])),
        )
        for place, card_type in enumerate(types)
    ]
    pods, owners, free = [], {}, {m.name: m.cards.get(GPU, 0) for m in machines}
    for place in range(draw(st.integers(0, 12))):
        node = draw(st.sampled_from(["", *free]))
        cards = draw(st.integers(1, 4))
        if node and cards > free[node]:
            continue
        if node:
            free[node] -= cards
        where = draw(st.sampled_from(["ns", "other", "elsewhere"]))
        pods.append(card_pod(name=f"p{place}", node=node, cards=cards, namespace=where))
        if where != "elsewhere" and draw(st.booleans()):
            owners[Key(where, f"p{place}")] = owner(where)
    return machines, pods, owners, {f"n{place}": name for place, name in enumerate(types)}


def added_up(
    cluster: tuple[list[Machine], list[Pod], dict[Key, PodOwner], dict[str, str]], card_type: str
) -> tuple[int, int, int]:
    """Total, of others and ours, in the namespace `ns`."""
    machines, pods, owners, types = cluster
    total = others = ours = 0
    for each in machines:
        tainted = each.taints - {GPU}
        if types[each.name] != card_type or not each.is_ready or each.is_cordoned or tainted:
            continue
        total += each.cards.get(GPU, 0)
        for pod in pods:
            if pod.node == each.name:
                found = owners.get(pod.key)
                is_ours = found is not None and found.namespace == "ns"
                ours += pod.cards[GPU] * is_ours
                others += pod.cards[GPU] * (not is_ours)
    return total, others, ours


@given(clusters())
def test_every_card_is_counted_once(
    cluster: tuple[list[Machine], list[Pod], dict[Key, PodOwner], dict[str, str]],
) -> None:
    machines, pods, owners, _ = cluster
    counts = count_cards([namespace()], machines, pods, owners, read_built_in_cards())

    for cards in counts["ns"].cards:
        total, others, ours = added_up(cluster, cards.type)
        assert (cards.total, cards.others, cards.ours) == (total, others, ours)
        assert cards.free == total - others - ours
        assert (cards.available, cards.bound_by) == (total - others, "nodes")


@given(clusters(), st.integers(1, 100), st.integers(1, 100), st.data())
def test_two_namespaces_that_share_never_exceed_the_pool(
    cluster: tuple[list[Machine], list[Pod], dict[Key, PodOwner], dict[str, str]],
    first: int,
    second: int,
    data: st.DataObject,
) -> None:
    machines, pods, owners, _ = cluster
    pool, *_ = added_up(cluster, "H100")
    assigned = {"ns": data.draw(st.integers(0, pool))}
    assigned["other"] = data.draw(st.integers(0, pool - assigned["ns"]))
    for _ in range(3):
        sharing = [
            namespace("ns", percent=first, assigned={"H100": assigned["ns"]}),
            namespace("other", percent=second, assigned={"H100": assigned["other"]}),
        ]
        counts = count_cards(sharing, machines, pods, owners, read_built_in_cards())
        for name in data.draw(st.permutations(sorted(assigned))):
            assigned[name] = counts[name].cards[0].available

            assert sum(assigned.values()) <= pool


def test_the_least_bound_wins_and_is_named() -> None:
    nodes = [machine(name=f"n{i}", labels={**H100, "karpenter.sh/nodepool": "gpu"}) for i in "ab"]
    theirs = [card_pod(namespace="ns", cards=3)]
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {f"requests.{GPU}": "14"}}}
    pool = {"metadata": {"name": "gpu"}, "spec": {"limits": {GPU: "10"}}}
    flavor = {"metadata": {"name": "fast"}, "spec": {"nodeLabels": H100}}
    quotas = [{"name": "cpu", "nominalQuota": "99"}, {"name": GPU, "nominalQuota": "9"}]
    groups = [{"flavors": [{"name": "fast", "resources": quotas}]}]
    queue = {"metadata": {"name": "all"}, "spec": {"resourceGroups": groups}}

    def least(**policies: Any) -> tuple[int, str]:  # noqa: ANN401 - handed on
        cards = counted(nodes, theirs, policies=Policies(**policies))
        return cards.available, cards.bound_by

    assert least() == (16, "nodes")
    assert least(declared={"H100": 12}) == (12, "spec.count")
    assert least(declared={"H100": 12}, quotas=[quota]) == (11, "ResourceQuota team")
    assert least(quotas=[quota], node_pools=[pool]) == (10, "NodePool gpu")
    assert least(node_pools=[pool], queues=[queue], flavors=[flavor]) == (9, "ClusterQueue all")
    assert least(declared={"L4": 1}) == (16, "nodes")
    scoped = {**quota, "spec": {"hard": {f"requests.{GPU}": "1"}, "scopes": ["BestEffort"]}}
    assert least(quotas=[scoped]) == (16, "nodes")
    others = {**flavor, "spec": {"nodeLabels": KINDS["L4"]}}
    assert least(queues=[queue], flavors=[others]) == (16, "nodes")
    none = counted([])
    assert (none.total, none.available, none.bound_by) == (0, 0, "nodes")


def test_pods_of_a_namespace_that_shares_are_not_held_by_others() -> None:
    pods = [card_pod(name=name, cards=2, namespace=name) for name in ("ns", "other", "third")]
    owners = {pod.key: owner(pod.key.namespace) for pod in pods}
    sharing = [namespace(name, percent=50) for name in ("ns", "other")]
    counts = count_cards(sharing, [machine()], pods, owners, read_built_in_cards())
    cards = counts["ns"].cards[0]

    assert (cards.others, cards.ours, cards.free) == (4, 2, 2)
    assert (cards.available, cards.bound_by) == (3, "spec.share")
