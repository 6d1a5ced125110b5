"""Watch boosters and their children, and reconcile a booster when one of them changes."""

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count

from inferno_operator.controllers.boosters.cache import BoosterCache
from inferno_operator.controllers.boosters.reconcile import Context, reconcile_booster
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Key, Kind, Now
from inferno_operator.runtime.informer import Area, Informer
from inferno_operator.runtime.ports import Change, Cluster, GoneError, Listing, RejectedError
from inferno_operator.runtime.work_queue import WorkQueue
from inferno_optimizer.errors import InfernoError

logger = logging.getLogger(__name__)


class BoosterController:
    """Reconciles boosters.

    Parameters
    ----------
    cluster
        The API server.
    dialect
        The dialect, which has the kinds to watch.
    namespaces
        The namespaces to watch; if empty, all.
    now
        The time of day.
    """

    def __init__(
        self, cluster: Cluster, dialect: Dialect, namespaces: Sequence[str], now: Now
    ) -> None:
        self._cache = BoosterCache(dialect)
        kinds = (dialect.booster, *dialect.children)
        self._informer = Informer(cluster, kinds, namespaces, self)
        self._unserved: dict[Area, str] = {}
        self._rounds = count()
        context = Context(cluster, self._cache, now, unserved=self._missing)
        self.queue: WorkQueue[Key] = WorkQueue(partial(reconcile_booster, context=context))

    async def run(self) -> None:
        """Watch objects until cancelled."""
        await self._informer.run()

    async def stop(self) -> None:
        """Stop reconciling."""
        await self.queue.close()

    def listed(self, listing: Listing) -> None:
        """Take a list of a kind: an object of any booster may be missing."""
        self._cache.replace(listing)
        self._unserved.pop((listing.kind, listing.namespace), None)
        self._reconcile(self._cache.boosters())

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of an object."""
        self._reconcile(self._cache.apply(kind, change))

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Take note of a failed watch: if the kind is not served, boosters report that."""
        if isinstance(error, GoneError):
            self._is_unserved(
                kind, namespace, f"install the custom resource definitions of {kind.group}"
            )
        elif isinstance(error, RejectedError):
            self._is_unserved(kind, namespace, str(error))

    def _missing(self) -> dict[Kind, str]:
        """Return the kinds that are not served in some namespace, with a message."""
        return {kind: text for (kind, _), text in sorted(self._unserved.items(), key=str)}

    def _is_unserved(self, kind: Kind, namespace: str, why: str) -> None:
        area, text = (kind, namespace), f"{kind} is not served: {why}"
        if self._unserved.get(area) == text:
            return
        logger.warning("Model Booster: %s", text)
        self._unserved[area] = text
        self._reconcile(self._cache.boosters())

    def _reconcile(self, keys: Iterable[Key]) -> None:
        if self._informer.missing.keys() - self._unserved.keys():
            return  # an object that is not listed yet would look like a missing one
        for key in keys:
            self.queue.add(key, next(self._rounds))
