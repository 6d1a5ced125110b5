"""Watch boosters and their children, and reconcile a booster when one of them changes."""

import logging
from collections.abc import Iterable
from functools import partial

from inferno_operator.controllers.boosters.reconcile import SERVER, BoosterCache, Context, reconcile
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Key, Kind, Now
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Area, Informers
from inferno_operator.runtime.ports import Cluster, GoneError, RejectedError
from inferno_operator.runtime.work_queue import WorkQueue
from inferno_optimizer.errors import InfernoError

logger = logging.getLogger(__name__)


class BoosterController:
    """Reconciles boosters.

    Parameters
    ----------
    cluster, informers
        The API server, and what watches it.
    dialect
        The dialect, which has the kinds to watch.
    now
        The time of day.
    """

    def __init__(self, cluster: Cluster, informers: Informers, dialect: Dialect, now: Now) -> None:
        kinds = (dialect.booster, *dialect.children, SERVER)
        self._objects = informers.subscribe(
            kinds, self._changed, listed=self._listed, lost=self._lost
        )
        self._cache = BoosterCache(dialect, self._objects)
        self._unserved: dict[Area, str] = {}
        context = Context(cluster, self._cache, now, unserved=self._missing)
        self.queue: WorkQueue[Key] = WorkQueue(partial(reconcile, context=context))

    async def run(self) -> None:
        """Watch objects until cancelled."""
        await self._objects.run()

    async def stop(self) -> None:
        """Stop reconciling."""
        await self.queue.close()

    def _listed(self, area: Area) -> None:
        """Reconcile all boosters: an object of any may be missing."""
        self._unserved.pop(area, None)
        self._reconcile(self._cache.boosters())

    def _changed(self, difference: ObjectDifference) -> None:
        self._reconcile(self._cache.noted(difference))

    def _lost(self, area: Area, error: InfernoError) -> None:
        """Take note of a failed watch: if the kind is not served, boosters report that."""
        if isinstance(error, GoneError):
            self._is_unserved(area, f"install the custom resource definitions of {area[0].group}")
        elif isinstance(error, RejectedError):
            self._is_unserved(area, str(error))

    def _missing(self) -> dict[Kind, str]:
        """Return the kinds that are not served in some namespace, with a message."""
        return {kind: text for (kind, _), text in sorted(self._unserved.items(), key=str)}

    def _is_unserved(self, area: Area, why: str) -> None:
        text = f"{area[0]} is not served: {why}"
        if self._unserved.get(area) == text:
            return
        logger.warning("Model Booster: %s", text)
        self._unserved[area] = text
        self._reconcile(self._cache.boosters())

    def _reconcile(self, keys: Iterable[Key]) -> None:
        if self._objects.missing.keys() - self._unserved.keys():
            return  # an object that is not listed yet would look like a missing one
        for key in keys:
            self.queue.add(key)
