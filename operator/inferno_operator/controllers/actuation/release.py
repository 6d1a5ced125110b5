"""Release the fields of objects that no Server refers to any more; their values stay."""

import logging
from collections.abc import Collection

from inferno_operator.controllers.actuation.ownership import entries_of_others, owns
from inferno_operator.controllers.actuation.targets import written_places
from inferno_operator.resources import ModelBoosterRef, Server
from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import Kind, Manifest, Place, Reference, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.ports import Cluster, GoneError, Listing

SERVER = kind_of(Server)

logger = logging.getLogger(__name__)


def reference_of(observation: Observation) -> ModelBoosterRef | None:
    """Return the reference of a Server; None if it cannot be read or is being deleted."""
    resource = observation.resource
    if not isinstance(resource, Server) or observation.deleted is not None:
        return None
    return resource.spec.model_booster


def names_workloads(observation: Observation) -> bool:
    """Whether a Server names workloads, which are scaled without a ModelBooster."""
    resource = observation.resource
    return isinstance(resource, Server) and bool(resource.spec.workloads)


async def release(namespace: str, cluster: Cluster) -> None:
    """Release the fields of all objects in a namespace that no Server refers to any more."""
    servers = await cluster.list(SERVER, namespace)
    kept = _referenced([observe(Server, manifest) for manifest in servers.manifests])
    if kept is None:
        return
    await _release_unreferenced(servers, kept, cluster)
    for dialect in DIALECTS.values():
        for kind in (dialect.booster, dialect.serving, dialect.binding):
            try:
                listing = await cluster.list(kind, namespace)
            except GoneError:  # not served
                continue
            await _release_unreferenced(listing, kept, cluster)


def _referenced(servers: Collection[Observation]) -> set[Place] | None:
    """Return the places of objects that keep their fields.

    None if a Server cannot be read, since its reference is not known.
    """
    if any(server.resource is None for server in servers):
        return None
    kept: set[Place] = set()
    for server in servers:
        reference = reference_of(server)
        if names_workloads(server):
            kept.add(server.reference.place)
        if reference is not None:
            kept.add(server.reference.place)
            kept.update(written_places(reference, server.reference.key.namespace))
    return kept


async def _release_unreferenced(
    listing: Listing, kept: Collection[Place], cluster: Cluster
) -> None:
    for manifest in listing.manifests:
        if Reference.of(listing.kind, manifest).place not in kept and owns(manifest):
            await release_fields(listing.kind, manifest, cluster)


async def release_fields(kind: Kind, manifest: Manifest, cluster: Cluster) -> None:
    """Release the fields of an object's spec; `StaleError` if it changed since it was read."""
    reference = Reference.of(kind, manifest)
    await cluster.set_managers(reference, entries_of_others(manifest))
    logger.info("%s: released", reference)
