"""Count the cards of nodes when nodes or pods change, for Capacities that ask for it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal

from inferno_operator.controllers.capacity.catalogue import CardCatalogue, read_built_in_cards
from inferno_operator.controllers.capacity.counts import (
    CardCount,
    Namespace,
    Policies,
    count_cards,
    find_cluster_queues,
)
from inferno_operator.controllers.capacity.inventory import NOT_OFFERED, Unmatched, group_unmatched
from inferno_operator.controllers.capacity.objects import (
    CapacityObjects,
    Selectors,
    find_owners,
    find_workloads,
)
from inferno_operator.resources import Accelerator, Capacity, CapacityStatus, CountedNode
from inferno_operator.resources.conditions import COUNTED, Verdict, is_new_verdict, merge_conditions
from inferno_operator.resources.objects import (
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    NODE_POOL,
    RESOURCE_FLAVOR,
    RESOURCE_QUOTA,
    Event,
    Kind,
    Manifest,
    Now,
    kind_of,
)
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.resources.pods import PodIndex
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import Cluster, FieldManager, GoneError, RejectedError
from inferno_operator.runtime.texts import join_names
from inferno_operator.runtime.updates import FieldUpdate, Writer, report_unknown_field, write_each
from inferno_operator.runtime.work_queue import Cycles, ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.placement import Node


@dataclass(frozen=True, slots=True)
class Requested:
    """The Capacities of the namespaces: those to count, and all others.

    `counted` has the oldest one with fromNodes by namespace, `refused` others with fromNodes and
    the name of the one that counts, `cleared` those without, `declared` cards by type by namespace.
    """

    counted: Mapping[str, tuple[Observation, Capacity]]
    refused: Sequence[tuple[Observation, str]]
    cleared: Sequence[Observation]
    declared: Mapping[str, Mapping[str, int]]

    def percent(self, namespace: str) -> int | None:
        """Return the share of a namespace [%]; None if it has none."""
        _, capacity = self.counted[namespace]
        return capacity.spec.share.percent if capacity.spec.share else None

    def rivals(self, namespace: str) -> Sequence[str]:
        """Return the namespaces that may hand out the same cards as this one."""
        others = self.counted.keys() - {namespace}
        unshared = {name for name in self.counted if self.percent(name) is None}
        return sorted(others if namespace in unshared else others & unshared)


def find_requested(observations: Iterable[Observation]) -> Requested:
    """Return which Capacities are to be counted."""
    valid = [(o, o.resource) for o in observations if isinstance(o.resource, Capacity)]
    counting: dict[str, tuple[Observation, Capacity]] = {}
    refused: list[tuple[Observation, str]] = []
    declared: dict[str, Counter[str]] = {}
    for observation, capacity in sorted(valid, key=lambda item: item[1].age):
        name = capacity.metadata.namespace
        for count in capacity.spec.count:
            declared.setdefault(name, Counter())[count.type] += count.count
        if not capacity.spec.from_nodes:
            continue
        if name in counting:
            refused.append((observation, counting[name][1].metadata.name))
        else:
            counting[name] = observation, capacity
    cleared = [o for o, capacity in valid if not capacity.spec.from_nodes]
    return Requested(counting, refused, cleared, {n: declared.get(n, {}) for n in counting})


NODES_LISTED = 2000
"""Most nodes in a status: about 300 KB, and an object may have 1.5 MB."""

GRANT = "grant the right with the Helm value capacity.fromNodes or the component capacity"
"""What to do if the API server rejects a list."""

NAMES_TOLD = 5
"""Most namespaces and Servers that a message names."""

ACTION = "CardCount"
"""The action in events of this controller."""

FIELDS = "counted", "nodes", "nodes_left_out", "unmatched"
"""The fields of the status that this controller owns, besides the condition."""


@dataclass(frozen=True, slots=True)
class Warnings:
    """What makes the counts of a namespace doubtful.

    `rivals` are namespaces that may use the same cards, because they or this one have no share; the
    pods of `unnamed` Servers are not known, so that they count as those of others.
    """

    rivals: Sequence[str] = ()
    unnamed: Sequence[str] = ()


def report_count(
    observation: Observation, count: CardCount, now: datetime, warnings: Warnings
) -> FieldUpdate | None:
    """Return the update after a count; None if nothing changed."""
    verdict = Verdict(COUNTED, holds=True, reason="Counted", message=_summarize(count, warnings))
    return _build_update(observation, _build_fields(count), verdict, now)


def report_count_failure(
    observation: Observation, error: InfernoError, now: datetime
) -> FieldUpdate | None:
    """Return the update if the nodes cannot be read: the last counts stay."""
    status = observation.status
    kept = isinstance(status, CapacityStatus) and status.counted
    stays = "the last counts stay" if kept else "nothing is planned until the cards are counted"
    remedy = f"; {GRANT}" if isinstance(error, RejectedError) else ""
    message = f"{error}{remedy}; {stays}"
    verdict = Verdict(COUNTED, holds=False, reason=error.reason, message=message)
    return _build_update(observation, _read_fields(observation), verdict, now)


def report_conflict(observation: Observation, older: str, now: datetime) -> FieldUpdate | None:
    """Return the update of a Capacity with fromNodes beside an older one of its namespace."""
    message = f"the older Capacity {older!r} counts the nodes already: remove one of the two"
    verdict = Verdict(COUNTED, holds=False, reason="Conflict", message=message)
    return _build_update(observation, {}, verdict, now)


def clear_count(observation: Observation) -> FieldUpdate | None:
    """Return the update of a Capacity that is not counted; None if it never was."""
    had = _read_fields(observation) or observation.status.condition(COUNTED)
    return FieldUpdate(observation.reference, {}) if had else None


def _build_update(
    observation: Observation, fields: Manifest, verdict: Verdict, now: datetime
) -> FieldUpdate | None:
    before = observation.status.condition(COUNTED)
    if fields == _read_fields(observation) and not is_new_verdict(observation.status, verdict):
        return None
    conditions = merge_conditions(observation.status, [verdict], observation.generation, now)
    status = {**fields, "conditions": [condition.to_json() for condition in conditions]}
    severity: Literal["Normal", "Warning"] = "Normal" if verdict.holds else "Warning"
    event = Event(observation.reference, severity, verdict.reason, verdict.message, ACTION)
    is_news = before is None or (before.status, before.reason) != (verdict.status, verdict.reason)
    otherwise = partial(report_unknown_field, observation, COUNTED, _read_fields(observation), now)
    news = (event,) if is_news else ()
    return FieldUpdate(observation.reference, status, news=news, otherwise=otherwise)


def _read_fields(observation: Observation) -> Manifest:
    return _to_json({name: getattr(observation.status, name, None) for name in FIELDS})


def _to_json(fields: Mapping[str, Any]) -> Manifest:
    """Return the fields that have a value as the status has them."""
    return CapacityStatus.model_construct(**{k: v for k, v in fields.items() if v}).to_json()


def _build_fields(count: CardCount) -> Manifest:
    nodes = [
        CountedNode(
            name=node.machine.name,
            type=node.type,
            total=node.total,
            others=node.others,
            ours=node.ours,
        )
        for node in count.view.nodes
    ]
    return _to_json(
        {
            "counted": tuple(count.cards),
            "nodes": tuple(nodes[:NODES_LISTED]),
            "nodes_left_out": max(len(nodes) - NODES_LISTED, 0),
            "unmatched": tuple(group_unmatched(count.view.unmatched)),
        }
    )


def _summarize(count: CardCount, warnings: Warnings) -> str:
    names = {node.machine.name for node in count.view.nodes}
    parts = [f"nodes: {len(names)}"]
    if count.view.left_out:
        reasons = ", ".join(f"{number} {why}" for why, number in count.view.left_out.items())
        parts.append(f"not counted: {reasons}")
    if count.view.unmatched:
        parts.append(_describe_unmatched(count.view.unmatched))
    parts += [
        f"{number} nodes selected for type {card_type!r} have parts of cards ({evidence}): each"
        f" part counts as a card"
        for (card_type, evidence), number in sorted(count.view.partial.items())
    ]
    if warnings.rivals:
        parts.append(
            f"{join_names(warnings.rivals, NAMES_TOLD)} may use the same cards:"
            " set spec.share in each"
        )
    if warnings.unnamed:
        parts.append(
            "pods of Servers that name neither workloads nor a modelBooster cannot be attributed"
            f" and count as foreign: {join_names(warnings.unnamed, NAMES_TOLD)}"
        )
    return "; ".join(parts)


def _describe_unmatched(unmatched: Sequence[Unmatched]) -> str:
    offered = [item for item in unmatched if item.resource != NOT_OFFERED]
    cards = sum(item.machine.cards[item.resource] for item in offered if item.is_known)
    unknown = sorted({item.resource for item in offered if not item.is_known})
    without = len(unmatched) - len(offered)
    parts = [f"{cards} cards match no Accelerator"] if cards else []
    if without:
        parts.append(f"{without} nodes with a label of cards offer none")
    if unknown:
        parts.append(f"resources that may be cards: {join_names(unknown, NAMES_TOLD)}")
    return f"{', '.join(parts)}: see status.unmatched"


ACCELERATOR, CAPACITY = kind_of(Accelerator), kind_of(Capacity)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What counts need.

    `namespaces` are those of the Capacities; if empty, all. `changed` is called with each
    namespace whose counts were written. `counts` has the last count of each namespace.
    """

    cluster: Cluster
    objects: CapacityObjects
    selectors: Selectors
    namespaces: Sequence[str]
    now: Now
    changed: Callable[[str], None]
    catalogue: CardCatalogue = field(default_factory=read_built_in_cards)
    counts: dict[str, CardCount] = field(default_factory=dict)

    def keep(self, counts: Mapping[str, CardCount], failed: Collection[str] = ()) -> None:
        """Remember counts; those of namespaces whose count failed stay as they were."""
        kept = {name: count for name, count in self.counts.items() if name in failed}
        self.counts.clear()
        self.counts.update({**kept, **counts})


@dataclass(frozen=True, slots=True)
class CountResult:
    """Whether a count is done, or awaits the first list of objects; and whether it was written."""

    is_done: bool
    has_written: bool


async def reconcile(context: Context) -> CountResult:
    """Count the cards of all namespaces that ask for it, and write the counts that changed.

    What fails is written on the Capacities, whose last counts stay; `InfernoError` if they
    themselves cannot be read or written.
    """
    requested = find_requested(await _read_capacities(context))
    now = context.now()
    updates = [clear_count(observation) for observation in requested.cleared]
    updates += [
        report_conflict(observation, older, now) for observation, older in requested.refused
    ]
    if requested.counted:
        context.objects.watch()
        updates += await _count(requested, context)
    else:
        context.keep({})
    due = [update for update in updates if update is not None]
    await _write(due, context)
    is_awaited = not context.objects.is_complete and context.objects.trouble is None
    return CountResult(is_done=not (requested.counted and is_awaited), has_written=bool(due))


async def _count(requested: Requested, context: Context) -> list[FieldUpdate | None]:
    """Return the updates of the Capacities that are counted; none while a list is awaited."""
    objects, now = context.objects, context.now()
    if objects.trouble is None and not objects.is_complete:
        return []
    try:
        if objects.trouble is not None:
            raise objects.trouble
        everywhere = Policies(
            queues=await _list_if_installed(CLUSTER_QUEUE, "", context.cluster),
            flavors=await _list_if_installed(RESOURCE_FLAVOR, "", context.cluster),
            node_pools=await _list_if_installed(NODE_POOL, "", context.cluster),
        )
    except InfernoError as error:
        logger.warning("the cards of nodes are not counted: %s", error)
        return [report_count_failure(o, error, now) for o, _ in requested.counted.values()]
    namespaces, failures = await _read_namespaces(requested, everywhere, context)
    servers = [(key, server) for key, server in objects.servers if key.namespace in namespaces]
    owners = find_owners(servers, context.selectors.known, objects.pods_by_namespace)
    counted = list(namespaces.values())
    counts = count_cards(counted, objects.machines, objects.pods, owners, context.catalogue)
    context.keep(counts, failures)
    return [
        report_count_failure(observation, failures[name], now)
        if name in failures
        else report_count(
            observation,
            counts[name],
            now,
            Warnings(requested.rivals(name), _list_unattributed(name, objects)),
        )
        for name, (observation, _) in requested.counted.items()
    ]


def _list_unattributed(namespace: str, objects: CapacityObjects) -> Sequence[str]:
    return sorted(
        server.metadata.name
        for key, server in objects.servers
        if key.namespace == namespace
        and not server.spec.workloads
        and server.spec.model_booster is None
    )


async def _read_namespaces(
    requested: Requested, everywhere: Policies, context: Context
) -> tuple[dict[str, Namespace], dict[str, InfernoError]]:
    namespaces: dict[str, Namespace] = {}
    failures: dict[str, InfernoError] = {}
    servers, pods = context.objects.servers, context.objects.pods_by_namespace
    for name in requested.counted:
        try:
            await context.selectors.read(
                name,
                find_workloads(item for item in servers if item[0].namespace == name),
                pods.get(name, PodIndex(())),
            )
            namespaces[name] = await _read_namespace(name, requested, everywhere, context.cluster)
        except InfernoError as error:
            logger.warning("namespace %s: the cards of nodes are not counted: %s", name, error)
            failures[name] = error
    failures = {**_share_failure(requested, failures), **failures}
    return {n: namespace for n, namespace in namespaces.items() if n not in failures}, failures


def _share_failure(
    requested: Requested, failures: Mapping[str, InfernoError]
) -> Mapping[str, InfernoError]:
    """Return the error of one namespace with a share for all of them.

    They are counted together or not at all: each count needs to know what the others have.
    """
    sharing = [name for name in requested.counted if requested.percent(name) is not None]
    failed = [failures[name] for name in sharing if name in failures]
    return dict.fromkeys(sharing, failed[0]) if failed else {}


async def _read_namespace(
    name: str, requested: Requested, everywhere: Policies, cluster: Cluster
) -> Namespace:
    _, capacity = requested.counted[name]
    accelerators = [observe(Accelerator, m) for m in await _list(ACCELERATOR, name, cluster)]
    local = await _list_if_installed(LOCAL_QUEUE, name, cluster)
    policies = replace(
        everywhere,
        declared=requested.declared[name],
        quotas=await _list(RESOURCE_QUOTA, name, cluster),
        queues=find_cluster_queues(everywhere.queues, local),
    )
    return Namespace(
        name,
        [o.resource for o in accelerators if isinstance(o.resource, Accelerator)],
        policies,
        requested.percent(name),
        {cards.type: cards.available for cards in capacity.status.counted},
    )


async def _read_capacities(context: Context) -> list[Observation]:
    observations = [
        observe(Capacity, manifest)
        for namespace in context.namespaces or ("",)
        for manifest in await _list(CAPACITY, namespace, context.cluster)
    ]
    return [observation for observation in observations if observation.deleted is None]


async def _list(kind: Kind, namespace: str, cluster: Cluster) -> Sequence[Manifest]:
    return (await cluster.list(kind, namespace)).manifests


async def _list_if_installed(kind: Kind, namespace: str, cluster: Cluster) -> Sequence[Manifest]:
    try:
        return await _list(kind, namespace, cluster)
    except GoneError:
        return ()


async def _write(updates: Sequence[FieldUpdate], context: Context) -> None:
    writer = Writer(context.cluster, FieldManager.CAPACITY, context.now)

    async def write(update: FieldUpdate) -> None:
        await writer.write(update)
        context.changed(update.reference.key.namespace)

    await write_each(updates, write)


CYCLE = "count all cards"
"""The name of the cycle."""

INTERVAL_SECONDS = 30.0
"""Seconds until what is not watched is read again: accelerators, quotas, pools and queues."""

DEBOUNCE_SECONDS = 1.0
"""Seconds that a count waits for further changes."""

PATIENCE_SECONDS = 10.0
"""Seconds that an optimization waits for the first count."""


class CapacityController:
    """Counts the cards of nodes for Capacities with `spec.fromNodes`.

    `changed` is called with each namespace whose counts changed.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        now: Now,
        changed: Callable[[str], None],
    ) -> None:
        self._objects = CapacityObjects(informers, self._something_changed)
        namespaces = informers.namespaces
        self._context = Context(
            cluster, self._objects, Selectors(cluster), namespaces, now, changed
        )
        self._counted = asyncio.Event()
        self.queue = Cycles({CYCLE: self._cycle})

    async def run(self) -> None:
        """Count until cancelled."""
        await self._objects.run()

    async def stop(self) -> None:
        """Stop counting and watching."""
        await self.queue.close()
        await self._objects.stop()

    async def nodes(self, namespace: str) -> Sequence[Node]:
        """Return the nodes whose cards a namespace may use; none if they are not counted.

        Waits for the first count, for a limited time.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._counted.wait()
        except TimeoutError:
            return ()
        count = self._context.counts.get(namespace)
        return [] if count is None else [node.for_placement(namespace) for node in count.view.nodes]

    def _something_changed(self) -> None:
        self.queue.request(CYCLE)

    async def _cycle(self) -> ReconcileResult:
        if self._counted.is_set():
            await asyncio.sleep(DEBOUNCE_SECONDS)
        try:
            result = await reconcile(self._context)
        except InfernoError as error:
            logger.warning("no count of the cards of nodes: %s", error)
            return ReconcileResult.FAILED
        if result.is_done:
            self._counted.set()
        return ReconcileResult.due_after(0.0 if result.has_written else INTERVAL_SECONDS)
