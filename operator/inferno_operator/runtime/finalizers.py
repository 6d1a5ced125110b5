"""The operator's finalizer: added to objects that a remote optimizer stores, and removed again.

Only the stateful mode with a remote optimizer adds the finalizer. At the start, every mode
removes finalizers that it does not use: those of a run in another mode, and those of the
original operator, which adds them to Optimizers too.

While a definition of our kinds is being deleted, no object gets or loses the finalizer. The
finalizer is all that keeps the objects, and the deletion may be a mistake, such as that of the
original operator together with its definitions. A person removes the finalizers with
`make release`. One definition counts for all: the API server deletes a few at once, and does
not report the others before their turn.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from inferno_operator.resources import GROUP, VERSION, Resource
from inferno_operator.resources.objects import Reference, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.ports import Cluster, FieldManager, StaleError
from inferno_operator.runtime.updates import write_each
from inferno_operator.runtime.work_queue import Backoff
from inferno_optimizer.errors import InfernoError

FINALIZER = "inferno.platform.ai/finalizer"

logger = logging.getLogger(__name__)


class DefinitionTerminatingError(InfernoError):
    """Definitions are being deleted: without the finalizer all their objects would be deleted."""

    reason = "DefinitionTerminating"


async def add_finalizer(observations: Iterable[Observation], cluster: Cluster) -> None:
    """Add the finalizer to the objects that are not being deleted.

    While definitions are being deleted, nothing is done.
    """
    missing = [o for o in observations if o.deleted is None and FINALIZER not in o.finalizers]
    if missing and not await _list_terminating_kinds(cluster):
        await write_each(
            missing, lambda o: _change_finalizers(o, cluster, lambda names: (*names, FINALIZER))
        )


async def remove_finalizer(observations: Iterable[Observation], cluster: Cluster) -> None:
    """Remove the finalizer from objects.

    Raises
    ------
    DefinitionTerminatingError
        Definitions are being deleted; nothing was done.
    """
    held = [observation for observation in observations if FINALIZER in observation.finalizers]
    if held and (kinds := await _list_terminating_kinds(cluster)):
        raise DefinitionTerminatingError(
            f"the definitions of {', '.join(sorted(kinds))} are being deleted, and all objects"
            f" would go with them: they keep the finalizer {FINALIZER}; save them, then run"
            " 'make release'"
        )
    await write_each(held, lambda o: _change_finalizers(o, cluster, _drop_own))


async def clean_up(
    kinds: Iterable[type[Resource]], namespaces: Sequence[str], cluster: Cluster
) -> None:
    """Remove finalizers that an earlier run left on objects of these kinds.

    Without namespaces, the objects of all namespaces are cleaned up.
    """
    for kind in kinds:
        for namespace in namespaces or ("",):
            await _clean_up(kind, namespace, cluster)


async def _clean_up(kind: type[Resource], namespace: str, cluster: Cluster) -> None:
    backoff = Backoff()
    for failures in count(1):
        try:
            listing = await cluster.list(kind_of(kind), namespace)
            await remove_finalizer([observe(kind, m) for m in listing.manifests], cluster)
        except InfernoError as error:
            logger.warning("finalizers of an earlier run are not removed yet: %s", error)
            await asyncio.sleep(backoff.seconds(failures))
        else:
            return


async def _list_terminating_kinds(cluster: Cluster) -> frozenset[str]:
    """Return our kinds whose definitions are being deleted, in the plural.

    The API server takes `patch` from the verbs that it lists for such a kind. Unlike the
    definition itself, everybody may read that list, also an operator of one namespace.
    """
    verbs = await cluster.verbs(GROUP, VERSION)
    return frozenset(name for name in verbs if "/" not in name and "patch" not in verbs[name])


def _drop_own(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name != FINALIZER)


async def _change_finalizers(
    observation: Observation,
    cluster: Cluster,
    change: Callable[[tuple[str, ...]], tuple[str, ...]],
) -> None:
    """Change the finalizers of an object, at its newest version; a deleted object has none."""
    reference = observation.reference
    while True:
        wanted = change(_drop_own(observation.finalizers))
        if wanted == observation.finalizers:
            return
        try:
            await _set(observation.reference, wanted, cluster)
        except StaleError:
            manifest = await cluster.get(reference.kind, reference.key)
            observation = observe(observation.kind, manifest)
            if observation.reference.uid != reference.uid:
                return
        else:
            return


async def _set(reference: Reference, finalizers: Sequence[str], cluster: Cluster) -> None:
    """Replace the finalizers; `StaleError` if the object changed since it was read."""
    manifest = reference.manifest_at_version()
    manifest["metadata"]["finalizers"] = list(finalizers)
    await cluster.merge(reference.kind, manifest, FieldManager.DECISIONS)
