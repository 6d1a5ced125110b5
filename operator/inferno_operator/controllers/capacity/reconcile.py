"""One count: read Capacities and policies, count all namespaces, write what changed."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from inferno_operator.controllers.capacity import status
from inferno_operator.controllers.capacity.bounds import Policies, cluster_queues
from inferno_operator.controllers.capacity.catalogue import Catalogue, built_in
from inferno_operator.controllers.capacity.ours import Selectors, owners_of, workloads_of
from inferno_operator.controllers.capacity.plan import Count, Namespace, count_all
from inferno_operator.controllers.capacity.requested import Requested, requested_counts
from inferno_operator.controllers.capacity.status import Update
from inferno_operator.controllers.capacity.world import World
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
from inferno_operator.runtime.concurrency import write_each
from inferno_operator.runtime.ports import Cluster, GoneError, StaleError
from inferno_optimizer.errors import InfernoError

FIELD_MANAGER = "inferno-capacity"
"""The field manager of counts and of the condition Counted."""

ACCELERATOR, CAPACITY = kind_of(Accelerator), kind_of(Capacity)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What counts need.

    `namespaces` are those of the Capacities; if empty, all. `changed` is called with each
    namespace whose counts were written. `counts` has the last count of each namespace.
    """

    cluster: Cluster
    world: World
    selectors: Selectors
    namespaces: Sequence[str]
    now: Now
    changed: Callable[[str], None]
    catalogue: Catalogue = field(default_factory=built_in)
    counts: dict[str, Count] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """Whether a count is done, or awaits the first list of objects; and whether it was written."""

    is_done: bool
    has_written: bool


async def recount(context: Context) -> Result:
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
        context.counts.clear()
    due = [update for update in updates if update is not None]
    await _write(due, context)
    is_awaited = not context.world.is_complete and context.world.trouble is None
    return Result(is_done=not (requested.counted and is_awaited), has_written=bool(due))


async def _count(requested: Requested, context: Context) -> list[Update | None]:
    """Return the updates of the Capacities that are counted; none while a list is awaited."""
    world, now = context.world, context.now()
    observations = [observation for observation, _ in requested.counted.values()]
    try:
        if world.trouble is not None:
            raise world.trouble
        if not world.is_complete:
            return []
        counts = await _counts(requested, context)
    except InfernoError as error:
        logger.warning("the cards of nodes are not counted: %s", error)
        return [status.failed(observation, error, now) for observation in observations]
    context.counts.clear()
    context.counts.update(counts)
    return [
        status.counted(
            observation,
            counts[name],
            now,
            status.Warnings(requested.rivals(name), _unnamed(name, world)),
        )
        for name, (observation, _) in requested.counted.items()
    ]


def _unnamed(namespace: str, world: World) -> Sequence[str]:
    """Return the Servers of a namespace whose pods are not known."""
    servers = (server for key, server in world.servers if key.namespace == namespace)
    return sorted(
        server.metadata.name
        for server in servers
        if not server.spec.workloads and server.spec.model_booster is None
    )


async def _counts(requested: Requested, context: Context) -> dict[str, Count]:
    world, cluster = context.world, context.cluster
    servers = [item for item in world.servers if item[0].namespace in requested.counted]
    selectors = await context.selectors.read(workloads_of(servers))
    owners = owners_of(servers, selectors, world.pods_by_namespace)
    node_pools, queues, flavors = [
        await _installed(kind, "", cluster) for kind in (NODE_POOL, CLUSTER_QUEUE, RESOURCE_FLAVOR)
    ]
    policies = Policies(queues=queues, flavors=flavors, node_pools=node_pools)
    namespaces = [
        await _namespace(name, requested, policies, cluster) for name in requested.counted
    ]
    return count_all(namespaces, world.machines, world.pods, owners, context.catalogue)


async def _namespace(
    name: str, requested: Requested, everywhere: Policies, cluster: Cluster
) -> Namespace:
    """Read a namespace; `everywhere` has all ClusterQueues, ResourceFlavors and NodePools."""
    _, capacity = requested.counted[name]
    accelerators = [observe(Accelerator, m) for m in await _all(ACCELERATOR, name, cluster)]
    local = await _installed(LOCAL_QUEUE, name, cluster)
    return Namespace(
        name,
        [o.resource for o in accelerators if isinstance(o.resource, Accelerator)],
        replace(
            everywhere,
            declared=requested.declared[name],
            quotas=await _all(RESOURCE_QUOTA, name, cluster),
            queues=cluster_queues(everywhere.queues, local),
        ),
        capacity.spec.share.percent if capacity.spec.share else None,
        {cards.type: cards.available for cards in capacity.status.counted},
    )


async def _capacities(context: Context) -> list[Observation]:
    found = [
        observe(Capacity, manifest)
        for namespace in context.namespaces or ("",)
        for manifest in await _all(CAPACITY, namespace, context.cluster)
    ]
    return [observation for observation in found if observation.deleted is None]


async def _all(kind: Kind, namespace: str, cluster: Cluster) -> Sequence[Manifest]:
    return (await cluster.list(kind, namespace)).manifests


async def _installed(kind: Kind, namespace: str, cluster: Cluster) -> Sequence[Manifest]:
    """Return the objects of a kind; none if it is not installed."""
    try:
        return await _all(kind, namespace, cluster)
    except GoneError:
        return ()


async def _write(updates: Sequence[Update], context: Context) -> None:
    async def write(update: Update) -> None:
        manifest = update.reference.manifest_at_version(status=update.status)
        try:
            await context.cluster.apply(CAPACITY, manifest, FIELD_MANAGER)
        except (StaleError, GoneError) as error:
            logger.debug("%s; the next count writes it", error)
            return
        context.changed(update.reference.key.namespace)
        for event in update.events:
            await context.cluster.publish(event)

    await write_each(updates, write)
