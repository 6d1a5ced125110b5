"""The four ways to run: objects read on demand or mirrored, an optimizer here or elsewhere."""

import asyncio
import logging
from collections.abc import Sequence
from itertools import count
from typing import Protocol

from inferno_operator.controllers.optimization.ports import Optimizer as OptimizerPort
from inferno_operator.controllers.optimization.source import OnDemand, Source
from inferno_operator.controllers.optimization.synchronization import (
    Keeper,
    Synchronization,
    Telling,
)
from inferno_operator.resources import RESOURCES, Optimizer
from inferno_operator.resources.objects import Now
from inferno_operator.runtime.cache import Mirror
from inferno_operator.runtime.finalizers import clean_up, release
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Cluster, Watch
from inferno_optimizer.errors import InfernoError

CHECK_SECONDS = 30.0
"""After so long a stateful optimizer is asked anew what it has."""

RELEASE_SECONDS = 15.0
"""What taking off finalizers may take in the end."""

logger = logging.getLogger(__name__)


class Work(Protocol):
    """Something that goes on by itself."""

    async def run(self) -> None:
        """Do it, until cancelled."""

    async def end(self) -> None:
        """Begin nothing new any more."""


class Mode:
    """Where objects come from, and what runs besides the requests.

    Parameters
    ----------
    cluster, namespaces, now
        What is worked on, where (none: everywhere), and the time of day.
    optimizer
        Who solves.
    watch
        What to mirror; None: objects are read on demand.
    keeper
        The optimizer again, where it is told of every change.
    beside
        What else is to run.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespaces: Sequence[str],
        now: Now,
        optimizer: OptimizerPort,
        watch: Watch | None = None,
        keeper: Keeper | None = None,
        beside: Sequence[Work] = (),
    ) -> None:
        self.optimizer = optimizer
        self.source: Source = OnDemand(cluster)
        self._cluster = cluster
        self._namespaces = namespaces
        self._beside = beside
        self._mirror = Mirror()
        self._rounds = count()
        self._informer: Informer | None = None
        self._queue: Synchronization | None = None
        if watch is not None:
            self.source = self._informer = Informer(watch, self._mirror, namespaces, self._changed)
        if keeper is not None:
            telling = Telling(self._mirror, keeper, cluster, now)
            self._queue = Synchronization(telling)

    async def run(self) -> None:
        """Do what has to be done beside the requests, until cancelled."""
        foreign = RESOURCES if self._queue is None else (Optimizer,)
        async with asyncio.TaskGroup() as group:
            group.create_task(clean_up(foreign, self._namespaces, self._cluster))
            if self._informer is not None:
                group.create_task(self._informer.run())
            if self._queue is not None:
                group.create_task(self._check())
            for work in self._beside:
                group.create_task(work.run())
            await asyncio.Event().wait()

    async def end(self) -> None:
        """Leave no object behind that waits for us: we may not come back."""
        for work in self._beside:
            await work.end()
        if self._queue is None:
            return
        await self._queue.close()
        objects = [o for ns in self._mirror.namespaces() for o in self._mirror.all(ns)]
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await release(objects, self._cluster)
        except (InfernoError, TimeoutError) as error:
            logger.warning("some objects keep the finalizer until we run again: %s", error)

    def _changed(self, namespace: str) -> None:
        if self._queue is not None:
            self._queue.add(namespace, next(self._rounds))

    async def _check(self) -> None:
        """Look from time to time whether the optimizer still has what it was told."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for namespace in self._mirror.namespaces():
                self._changed(namespace)
