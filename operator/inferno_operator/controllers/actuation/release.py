"""Release the fields of objects that no Server refers to any more; their values stay."""

import logging
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from inferno_operator.controllers.actuation.booster_bounds import entries_of_others, owns
from inferno_operator.controllers.actuation.targets import (
    scaled_places,
    serving_places,
    written_places,
)
from inferno_operator.resources import ModelBoosterRef, Server
from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import Key, Kind, Manifest, Place, Reference, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.resources.serving_roles import kind_of_serving, serving_role
from inferno_operator.runtime.ports import Cluster, GoneError, Listing, RejectedError

SERVER = kind_of(Server)

SCALERS = frozenset(kind for dialect in DIALECTS.values() for kind in dialect.scalers)

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


@dataclass(frozen=True, slots=True)
class _Kept:
    """The objects that keep their fields."""

    places: set[Place] = field(default_factory=set)
    scaled: set[Place] = field(default_factory=set)
    """Servings whose bindings or policies keep theirs."""
    namespaces: set[str] = field(default_factory=set)
    """Namespaces with a Server that cannot be read: its reference is not known."""

    def has(self, kind: Kind, manifest: Manifest) -> bool:
        """Whether an object keeps its fields."""
        key = Key.of(manifest)
        if key.namespace in self.namespaces:
            return True
        if kind in SCALERS:
            return not self.scaled.isdisjoint(scaled_places(kind, manifest))
        return Place(kind, key) in self.places


async def release(namespace: str, cluster: Cluster) -> None:
    """Release the fields of all objects that no Server refers to any more.

    The objects are those of a namespace, or of all namespaces ("").
    """
    servers = await cluster.list(SERVER, namespace)
    kept = _referenced([observe(Server, manifest) for manifest in servers.manifests])
    await _release_unreferenced(servers, kept, cluster)
    for dialect in DIALECTS.values():
        for kind in (dialect.booster, dialect.serving, *dialect.scalers):
            try:
                listing = await cluster.list(kind, namespace)
            except (GoneError, RejectedError) as error:
                logger.debug("%s: nothing to release: %s", kind, error)
                continue
            await _release_unreferenced(listing, kept, cluster)


def _referenced(servers: Collection[Observation]) -> _Kept:
    """Return what Servers refer to."""
    kept = _Kept()
    for server in servers:
        reference, namespace = reference_of(server), server.reference.key.namespace
        if server.resource is None:
            kept.namespaces.add(namespace)
        if reference is not None or names_workloads(server):
            kept.places.add(server.reference.place)
        if reference is not None:
            kept.places.update(written_places(reference, namespace))
        kept.places.update(_servings_with_roles(server))
        if reference is not None and reference.target == "Binding":
            kept.scaled.update(serving_places(reference, namespace))
    return kept


def _servings_with_roles(server: Observation) -> Iterator[Place]:
    """Yield the servings whose roles a Server names as workloads, as it has their numbers."""
    resource, namespace = server.resource, server.reference.key.namespace
    for workload in resource.spec.workloads if isinstance(resource, Server) else ():
        kind = kind_of_serving(workload)
        if kind is not None and serving_role(workload):
            yield Place(kind, Key(namespace, workload.name))


async def _release_unreferenced(listing: Listing, kept: _Kept, cluster: Cluster) -> None:
    for manifest in listing.manifests:
        if owns(manifest) and not kept.has(listing.kind, manifest):
            with suppress(GoneError):  # deleted in the meantime
                await release_fields(listing.kind, manifest, cluster)


async def release_fields(kind: Kind, manifest: Manifest, cluster: Cluster) -> None:
    """Release the fields of an object's spec; `StaleError` if it changed since it was read."""
    reference = Reference.of(kind, manifest)
    await cluster.set_managers(reference, entries_of_others(manifest))
    logger.info("%s: released", reference)
