"""Watch Servers, and tell those at once that name what does not exist."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from itertools import count

from inferno_operator.controllers.optimization.names import check_names
from inferno_operator.controllers.optimization.source import Source
from inferno_operator.controllers.optimization.writer import Writer
from inferno_operator.resources import Server
from inferno_operator.resources.conditions import ALLOCATED
from inferno_operator.resources.objects import Key, Kind, Manifest, Now, kind_of
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, Cluster, Listing
from inferno_operator.runtime.work_queue import Outcome, WorkQueue
from inferno_optimizer.errors import InfernoError

SETTLE_SECONDS = 1.0
"""How long other Servers are awaited, which are often applied together, and with their classes."""

SERVER = kind_of(Server)
NAMES = "name", "class", "model"

logger = logging.getLogger(__name__)


class NameCheck:
    """Checks the names of Servers that are new or name something else than before.

    Parameters
    ----------
    cluster, source
        Where Servers are watched and written, and where the other objects are read.
    namespaces
        The namespaces to watch; if empty, all.
    now
        The time of day.
    locks
        Allow one writer of conditions per namespace at a time.
    """

    def __init__(
        self,
        cluster: Cluster,
        source: Source,
        namespaces: Sequence[str],
        now: Now,
        locks: defaultdict[str, asyncio.Lock],
    ) -> None:
        self._source = source
        self._writer = Writer(cluster, now)
        self._locks = locks
        self._informer = Informer(cluster, [SERVER], namespaces, self)
        self._names: dict[Key, tuple[object, ...]] = {}
        self._rounds = count()
        self.queue: WorkQueue[str] = WorkQueue(self._check, settle=SETTLE_SECONDS)

    async def run(self) -> None:
        """Watch Servers until cancelled."""
        await self._informer.run()

    async def stop(self) -> None:
        """Stop checking."""
        await self.queue.close()

    def listed(self, listing: Listing) -> None:
        """Take a list of all Servers."""
        found = {Key.of(manifest) for manifest in listing.manifests}
        for key in self._names.keys() - found:
            if listing.namespace in ("", key.namespace):
                del self._names[key]
        for manifest in listing.manifests:
            self._take(manifest)

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of a Server."""
        del kind
        if change.manifest is None:
            return
        if change.gone:
            self._names.pop(Key.of(change.manifest), None)
        else:
            self._take(change.manifest)

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Do nothing: the next list has what was missed."""

    def _take(self, manifest: Manifest) -> None:
        """Ask for a check if a Server has other names than before, or nothing was said of it."""
        key, spec = Key.of(manifest), manifest.get("spec") or {}
        names = manifest["metadata"].get("uid"), *(spec.get(name) for name in NAMES)
        before = self._names.get(key)
        self._names[key] = names
        conditions = manifest.get("status", {}).get("conditions", [])
        is_told = any(condition["type"] == ALLOCATED for condition in conditions)
        if before != names and (before is not None or not is_told):
            self.queue.add(key.namespace, next(self._rounds))

    async def _check(self, namespace: str) -> Outcome:
        try:
            async with self._locks[namespace]:
                observations = await self._source.objects(namespace)
                await self._writer.write_all(list(check_names(observations)), ())
        except InfernoError as error:
            logger.warning("namespace %s: names of Servers are not checked: %s", namespace, error)
            return Outcome.FAILED
        return Outcome.SETTLED
