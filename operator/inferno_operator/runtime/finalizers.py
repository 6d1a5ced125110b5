"""Our finalizer: put on objects that somebody outside is told of, and taken off again.

It is there in one way to run only, stateful with a remote optimizer. In every way to run what
others left behind is taken off at the start: other modes, and the original, which puts it on
Optimizers too.

While a definition of ours is being deleted, no object gets or loses the finalizer. It is all that
keeps the objects, and the deletion can be a mistake, such as that of the original together with its
definitions. A person takes the finalizer off, with `make release`. One definition counts for all:
the API server works on a few at once, and does not tell of the others before their turn.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from inferno_operator.observation import Observation, observe
from inferno_operator.ports import Cluster, StaleError
from inferno_operator.resources import Resource
from inferno_operator.runtime.concurrently import write_each
from inferno_operator.runtime.work_queue import Backoff
from inferno_optimizer.errors import InfernoError

FINALIZER = "inferno.platform.ai/finalizer"

logger = logging.getLogger(__name__)


class DefinitionTerminatingError(InfernoError):
    """Definitions are being deleted: without our finalizer all their objects would go."""

    reason = "DefinitionTerminating"


async def hold(observations: Iterable[Observation], cluster: Cluster) -> None:
    """Put the finalizer on objects that are to stay, unless definitions are being deleted."""
    missing = [o for o in observations if o.deleted is None and FINALIZER not in o.finalizers]
    if missing and not await cluster.terminating():
        await write_each(missing, lambda o: _change(o, cluster, lambda names: (*names, FINALIZER)))


async def release(observations: Iterable[Observation], cluster: Cluster) -> None:
    """Take the finalizer off objects.

    Raises
    ------
    DefinitionTerminatingError
        Definitions are being deleted; nothing was done.
    """
    held = [observation for observation in observations if FINALIZER in observation.finalizers]
    if held and (kinds := await cluster.terminating()):
        raise DefinitionTerminatingError(
            f"the definitions of {', '.join(sorted(kinds))} are being deleted, and all objects"
            f" would go with them: they keep the finalizer {FINALIZER}; save them, then run"
            " 'make release'"
        )
    await write_each(held, lambda o: _change(o, cluster, _without))


async def clean_up(
    kinds: Iterable[type[Resource]], namespaces: Sequence[str], cluster: Cluster
) -> None:
    """Take off what other ways to run left on objects of these kinds; no namespaces: of all."""
    for kind in kinds:
        for namespace in namespaces or ("",):
            await _clean_up(kind, namespace, cluster)


async def _clean_up(kind: type[Resource], namespace: str, cluster: Cluster) -> None:
    backoff = Backoff()
    for failures in count(1):
        try:
            await release([observe(kind, m) for m in await cluster.list(kind, namespace)], cluster)
        except InfernoError as error:
            logger.warning("finalizers that others left are not taken off yet: %s", error)
            await asyncio.sleep(backoff.seconds(failures))
        else:
            return


def _without(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name != FINALIZER)


async def _change(
    observation: Observation,
    cluster: Cluster,
    change: Callable[[tuple[str, ...]], tuple[str, ...]],
) -> None:
    """Write the finalizers of an object as it is now; one that is gone has none."""
    reference = observation.reference
    while True:
        wanted = change(_without(observation.finalizers))
        if wanted == observation.finalizers:
            return
        try:
            await cluster.set_finalizers(observation.reference, wanted)
        except StaleError:
            manifest = await cluster.get(reference.resource, reference.key)
            observation = observe(reference.resource, manifest)
            if observation.reference.uid != reference.uid:
                return
        else:
            return
