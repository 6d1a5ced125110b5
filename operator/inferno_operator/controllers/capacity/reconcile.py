"""One count: read Capacities and policies, count all namespaces, write what changed."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inferno_operator.controllers.capacity import status
from inferno_operator.controllers.capacity.bounds import Policies, cluster_queues
from inferno_operator.controllers.capacity.catalogue import CardCatalogue, built_in
from inferno_operator.controllers.capacity.counts import CardCount, Namespace, count_all
from inferno_operator.controllers.capacity.pod_owners import Selectors, owners_of, workloads_of
from inferno_operator.controllers.capacity.requested import Requested, requested_counts
from inferno_operator.controllers.capacity.status import Warnings
from inferno_operator.controllers.capacity.world import CapacityObjects
from inferno_operator.resources import Accelerator, Capacity
from inferno_operator.resources.objects import (
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    NODE_POOL,
    RESOURCE_FLAVOR,
    RESOURCE_QUOTA,
    Kind,
    Manifest,
    Now,
    kind_of,
)
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.resources.pods import PodIndex
from inferno_operator.runtime.ports import Cluster, FieldManager, GoneError
from inferno_operator.runtime.updates import FieldUpdate, Writer, write_each
from inferno_optimizer.errors import InfernoError

ACCELERATOR, CAPACITY = kind_of(Accelerator), kind_of(Capacity)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What counts need.

    `namespaces` are those of the Capacities; if empty, all. `changed` is called with each
    namespace whose counts were written. `counts` has the last count of each namespace.
    """

    cluster: Cluster
    world: CapacityObjects
    selectors: Selectors
    namespaces: Sequence[str]
    now: Now
    changed: Callable[[str], None]
    catalogue: CardCatalogue = field(default_factory=built_in)
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

    What fails is written on the Capacities: their last counts stay.

    Raises
    ------
    InfernoError
        The Capacities cannot be read or written.
    """
    requested = requested_counts(await _capacities(context))
    now = context.now()
    updates = [status.cleared(observation) for observation in requested.cleared]
    updates += [status.refused(observation, older, now) for observation, older in requested.refused]
    if requested.counted:
        context.world.watch()
        updates += await _count(requested, context)
    else:
        context.keep({})
    due = [update for update in updates if update is not None]
    await _write(due, context)
    is_awaited = not context.world.is_complete and context.world.trouble is None
    return CountResult(is_done=not (requested.counted and is_awaited), has_written=bool(due))


async def _count(requested: Requested, context: Context) -> list[FieldUpdate | None]:
    """Return the updates of the Capacities that are counted; none while a list is awaited."""
    world, now = context.world, context.now()
    if world.trouble is None and not world.is_complete:
        return []
    try:
        everywhere = await _everywhere(context)
    except InfernoError as error:
        logger.warning("the cards of nodes are not counted: %s", error)
        return [status.failed(o, error, now) for o, _ in requested.counted.values()]
    namespaces, failures = await _read(requested, everywhere, context)
    servers = [(key, server) for key, server in world.servers if key.namespace in namespaces]
    owners = owners_of(servers, context.selectors.known, world.pods_by_namespace)
    counted = list(namespaces.values())
    counts = count_all(counted, world.machines, world.pods, owners, context.catalogue)
    context.keep(counts, failures)
    return [
        status.failed(observation, failures[name], now)
        if name in failures
        else status.counted(observation, counts[name], now, _warnings(name, requested, world))
        for name, (observation, _) in requested.counted.items()
    ]


def _warnings(namespace: str, requested: Requested, world: CapacityObjects) -> Warnings:
    return Warnings(requested.rivals(namespace), _unnamed(namespace, world))


def _unnamed(namespace: str, world: CapacityObjects) -> Sequence[str]:
    """Return the Servers of a namespace whose pods are not known."""
    servers = (server for key, server in world.servers if key.namespace == namespace)
    return sorted(
        server.metadata.name
        for server in servers
        if not server.spec.workloads and server.spec.model_booster is None
    )


async def _everywhere(context: Context) -> Policies:
    """Read what limits the cards of all namespaces; raises if nodes or pods are not known."""
    if context.world.trouble is not None:
        raise context.world.trouble
    cluster = context.cluster
    return Policies(
        queues=await _installed(CLUSTER_QUEUE, "", cluster),
        flavors=await _installed(RESOURCE_FLAVOR, "", cluster),
        node_pools=await _installed(NODE_POOL, "", cluster),
    )


async def _read(
    requested: Requested, everywhere: Policies, context: Context
) -> tuple[dict[str, Namespace], dict[str, InfernoError]]:
    """Read the namespaces; those that cannot be read have an error."""
    namespaces: dict[str, Namespace] = {}
    failures: dict[str, InfernoError] = {}
    servers, pods = context.world.servers, context.world.pods_by_namespace
    for name in requested.counted:
        try:
            await context.selectors.read(
                name,
                workloads_of(item for item in servers if item[0].namespace == name),
                pods.get(name, PodIndex(())),
            )
            namespaces[name] = await _namespace(name, requested, everywhere, context.cluster)
        except InfernoError as error:
            logger.warning("namespace %s: the cards of nodes are not counted: %s", name, error)
            failures[name] = error
    failures = {**_of_pool(requested, failures), **failures}
    return {n: namespace for n, namespace in namespaces.items() if n not in failures}, failures


def _of_pool(
    requested: Requested, failures: Mapping[str, InfernoError]
) -> Mapping[str, InfernoError]:
    """Return the error of one namespace with a share for all of them.

    They are counted together or not at all: each count needs to know what the others have.
    """
    sharing = [name for name in requested.counted if requested.percent(name) is not None]
    failed = [failures[name] for name in sharing if name in failures]
    return dict.fromkeys(sharing, failed[0]) if failed else {}


async def _namespace(
    name: str, requested: Requested, everywhere: Policies, cluster: Cluster
) -> Namespace:
    """Read what a count of a namespace needs, besides the selectors of its pods."""
    _, capacity = requested.counted[name]
    accelerators = [observe(Accelerator, m) for m in await _all(ACCELERATOR, name, cluster)]
    local = await _installed(LOCAL_QUEUE, name, cluster)
    policies = replace(
        everywhere,
        declared=requested.declared[name],
        quotas=await _all(RESOURCE_QUOTA, name, cluster),
        queues=cluster_queues(everywhere.queues, local),
    )
    return Namespace(
        name,
        [o.resource for o in accelerators if isinstance(o.resource, Accelerator)],
        policies,
        requested.percent(name),
        {cards.type: cards.available for cards in capacity.status.counted},
    )


async def _capacities(context: Context) -> list[Observation]:
    observations = [
        observe(Capacity, manifest)
        for namespace in context.namespaces or ("",)
        for manifest in await _all(CAPACITY, namespace, context.cluster)
    ]
    return [observation for observation in observations if observation.deleted is None]


async def _all(kind: Kind, namespace: str, cluster: Cluster) -> Sequence[Manifest]:
    return (await cluster.list(kind, namespace)).manifests


async def _installed(kind: Kind, namespace: str, cluster: Cluster) -> Sequence[Manifest]:
    """Return the objects of a kind; none if it is not installed."""
    try:
        return await _all(kind, namespace, cluster)
    except GoneError:
        return ()


async def _write(updates: Sequence[FieldUpdate], context: Context) -> None:
    writer = Writer(context.cluster, FieldManager.CAPACITY, context.now)

    async def write(update: FieldUpdate) -> None:
        await writer.write(update)
        context.changed(update.reference.key.namespace)

    await write_each(updates, write)
