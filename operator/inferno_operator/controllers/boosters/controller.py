"""Watches boosters and their children, and has each booster reconciled when one changes."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count

from inferno_operator.controllers.boosters.cache import BoosterMirror
from inferno_operator.controllers.boosters.ports import BoosterCluster
from inferno_operator.controllers.boosters.reconcile import Boosting, reconcile_booster
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Key, Kind, Now
from inferno_operator.runtime.ports import GoneError, RejectedError
from inferno_operator.runtime.watches import changes_since
from inferno_operator.runtime.work_queue import Backoff, WorkQueue
from inferno_optimizer.errors import InfernoError

LOOKING = Backoff(limit=5.0)
"""Seconds until a kind that is not served is looked for again."""

Area = tuple[Kind, str]
"""A kind, and a namespace or all of them ("")."""

logger = logging.getLogger(__name__)


class BoosterController:
    """The Model Booster controller.

    Parameters
    ----------
    cluster
        What it works on.
    dialect
        Which kinds it looks after.
    namespaces
        Which ones; none means all.
    now
        The time of day.
    """

    def __init__(
        self, cluster: BoosterCluster, dialect: Dialect, namespaces: Sequence[str], now: Now
    ) -> None:
        self._cluster = cluster
        self._mirror = BoosterMirror(dialect)
        kinds = (dialect.booster, *dialect.children)
        self._areas = [(kind, namespace) for kind in kinds for namespace in namespaces or ("",)]
        self._unknown = set(self._areas)
        self._unserved: dict[Area, str] = {}
        self._rounds = count()
        boosting = Boosting(cluster, self._mirror, now, unserved=self._missing)
        self.queue: WorkQueue[Key] = WorkQueue(partial(reconcile_booster, boosting=boosting))

    async def run(self) -> None:
        """Follow what happens, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for area in self._areas:
                group.create_task(self._follow(*area))

    async def end(self) -> None:
        """Reconcile nothing any more."""
        await self.queue.close()

    def _missing(self) -> dict[Kind, str]:
        """The kinds that are not served, somewhere, and why."""
        return {kind: text for (kind, _), text in sorted(self._unserved.items(), key=str)}

    async def _follow(self, kind: Kind, namespace: str) -> None:
        failures = 0
        while True:
            try:
                since = await self._list(kind, namespace)
                failures = 0
                await self._keep_up(kind, namespace, since)
            except GoneError:
                advice = f"install the custom resource definitions of {kind.group}"
                self._is_unserved(kind, namespace, advice)
            except RejectedError as error:
                self._is_unserved(kind, namespace, str(error))
            except InfernoError as error:
                logger.info("%s; listing anew", error)
            failures += 1
            await asyncio.sleep(LOOKING.seconds(failures))

    async def _list(self, kind: Kind, namespace: str) -> int:
        listed = await self._cluster.listed(kind, namespace)
        concerned = self._mirror.replace(kind, namespace, listed)
        self._known(kind, namespace, concerned)
        return listed.version

    async def _keep_up(self, kind: Kind, namespace: str, since: int) -> None:
        """Apply changes, watch after watch, for as long as the API server remembers them."""
        watch = partial(self._cluster.changes, kind, namespace)
        async with aclosing(changes_since(since, watch)) as changes:
            async for change in changes:
                self._reconcile(self._mirror.apply(kind, change))

    def _known(self, kind: Kind, namespace: str, concerned: Iterable[Key]) -> None:
        """An area is known now; with the last one every booster has its turn."""
        first = bool(self._unknown) or bool(self._unserved)
        self._unknown.discard((kind, namespace))
        self._unserved.pop((kind, namespace), None)
        self._reconcile(self._mirror.boosters() if first else concerned)

    def _is_unserved(self, kind: Kind, namespace: str, why: str) -> None:
        area, text = (kind, namespace), f"{kind} is not served: {why}"
        if self._unserved.get(area) == text:
            return
        logger.warning("Model Booster: %s", text)
        self._unserved[area] = text
        self._unknown.discard(area)
        self._reconcile(self._mirror.boosters())

    def _reconcile(self, keys: Iterable[Key]) -> None:
        if self._unknown:
            return  # what is not known yet would be taken for missing
        for key in keys:
            self.queue.add(key, next(self._rounds))
