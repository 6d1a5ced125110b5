"""Hear of every Optimizer, even where kopf does not.

Without rights on the cluster kopf looks but once for what it is to watch: if the API server is
away just then it stays deaf, and does not say so. So what it has told of is compared with what
there is; a kopf that misses something for too long is ended, and started anew.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from math import inf
from typing import TypeVar

from inferno_operator.controllers.optimization.handlers import News, Tell
from inferno_operator.resources import Optimizer
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import Backoff, WorkQueue
from inferno_optimizer.errors import InfernoError

T = TypeVar("T")

CHECK_SECONDS = 10.0
"""From one comparison to the next."""

STARTING = Backoff(limit=5.0)
"""Seconds until the API server is asked again, and until kopf is started again."""

NOT_SERVED = "Optimizers are not served yet; apply the custom resource definitions"

Follow = Callable[[Tell, Sequence[str]], Awaitable[None]]
"""Watches the Optimizers of some namespaces, or of all."""

logger = logging.getLogger(__name__)


class Listener:
    """Feeds a queue with the keys of Optimizers that appear, change or go.

    Parameters
    ----------
    queue
        What it feeds.
    cluster, namespaces
        Where the Optimizers are; no namespaces: everywhere.
    follow
        Runs kopf there.
    patience
        Seconds after which kopf should have told of what there is.
    """

    def __init__(
        self,
        queue: WorkQueue[Key],
        cluster: Cluster,
        namespaces: Sequence[str],
        follow: Follow,
        patience: float = 5.0,
    ) -> None:
        self._queue = queue
        self._cluster = cluster
        self._namespaces = namespaces
        self._follow = follow
        self._patience = patience
        self._heard: dict[str, float] = {}
        """Newest generation of each Optimizer that kopf told of, by uid."""
        self._told = asyncio.Event()
        """Kopf has told of something."""
        self.hears = asyncio.Event()
        """Kopf has told of every Optimizer that there is."""

    async def run(self) -> None:
        """Listen until cancelled."""
        for failures in count(1):
            await self._served()
            self._heard.clear()
            parts = [asyncio.create_task(part) for part in (self._listen(), self._until_deaf())]
            try:
                await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.hears.clear()
                for part in parts:
                    part.cancel()
                await asyncio.wait(parts)
            self._tell_why(*parts)
            await asyncio.sleep(STARTING.seconds(failures))

    def _tell_why(self, listening: asyncio.Task[None], checking: asyncio.Task[None]) -> None:
        for task in (listening, checking):
            if not task.cancelled() and (error := task.exception()):
                logger.warning("watching begins anew: %s", error)
                return
        logger.warning("watching begins anew: Optimizers were not told of in time")

    async def _listen(self) -> None:
        await self._follow(self._hear, self._namespaces)

    def _hear(self, news: News) -> None:
        self._told.set()
        self._heard[news.uid] = inf if news.gone else news.generation
        self._queue.add(news.key, (news.uid, news.generation, news.gone))

    async def _until_deaf(self) -> None:
        """Compare from time to time; returns when something was missed for too long."""
        while await self._hears_of(await self._answer(self._there)):
            self.hears.set()
            await asyncio.sleep(CHECK_SECONDS)

    async def _hears_of(self, generations: Mapping[str, int]) -> bool:
        """Whether all of these are told of, or newer ones, before patience is at its end."""
        try:
            async with asyncio.timeout(self._patience):
                while any(self._heard.get(uid, -1) < g for uid, g in generations.items()):
                    self._told.clear()
                    await self._told.wait()
        except TimeoutError:
            return False
        return True

    async def _there(self) -> Mapping[str, int]:
        """Generation of every Optimizer that there is, by uid."""
        lists = [await self._cluster.list(Optimizer, name) for name in self._namespaces or ("",)]
        metadata = [manifest["metadata"] for manifests in lists for manifest in manifests]
        return {item["uid"]: item["generation"] for item in metadata}

    async def _answer(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the API server answers, as soon as it does."""
        for failures in count(1):
            try:
                return await ask()
            except InfernoError as error:
                logger.warning("Optimizers are out of sight: %s", error)
            await asyncio.sleep(STARTING.seconds(failures))
        raise AssertionError("the count has no end")

    async def _served(self) -> None:
        """Wait until Optimizers are served."""
        for failures in count(1):
            if Optimizer.plural in await self._answer(self._cluster.served):
                return
            logger.warning(NOT_SERVED)
            await asyncio.sleep(STARTING.seconds(failures))
