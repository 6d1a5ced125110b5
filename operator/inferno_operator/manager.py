"""The operator at work: lead, watch, reconcile, and end in the right order."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf

from inferno_operator.adapters.http.metrics import Metrics
from inferno_operator.controllers.optimization.handlers import follow
from inferno_operator.controllers.optimization.listener import Listener
from inferno_operator.controllers.optimization.mode import Mode
from inferno_operator.controllers.optimization.reconcile import Context, reconcile_optimizer
from inferno_operator.resources.objects import Key, Now
from inferno_operator.runtime.leader_election import Clock, Election
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import WorkQueue
from inferno_operator.runtime.write_guard import GuardedCluster
from inferno_operator.settings import Settings

SIGNS_OF_LIFE = 300.0
"""Seconds in which work shows one, besides those that the solver may take."""

logger = logging.getLogger(__name__)


class Operation:
    """One run of the operator.

    Parameters
    ----------
    settings
        How it runs.
    cluster
        What it works on.
    mode
        Makes one of the four ways to run.
    election
        Who may work; None: nobody else is there.
    now, clock
        The time of day, and the time that passes.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        mode: Callable[[GuardedCluster], Mode],
        election: Election | None,
        now: Now,
        clock: Clock,
    ) -> None:
        self.metrics = Metrics()
        self._settings = settings
        self._election = election
        self._clock = clock
        self._stop = asyncio.Event()
        remaining = election.remaining if election else lambda: inf
        self._cluster = GuardedCluster(cluster, remaining, self.metrics, clock)
        self._mode = mode(self._cluster)
        context = Context(
            self._cluster,
            self._mode.source,
            self._mode.optimizer,
            now,
            settings.time_limit,
            observer=self.metrics,
        )
        self._queue: WorkQueue[Key] = WorkQueue(partial(reconcile_optimizer, context=context))
        self._listener = Listener(self._queue, self._cluster, settings.namespaces, follow)
        self.metrics.follow(leading=lambda: remaining() > 0, queue_depth=lambda: self._queue.depth)

    async def run(self) -> None:
        """Lead, when it is our turn, and work, until SIGTERM or SIGINT.

        Raises
        ------
        LeadershipLostError
            Another operator leads, or may soon.
        """
        self._take_signals()
        await _first(self._stop.wait(), self._lead())

    def stuck(self) -> str:
        """What is wrong when there is work and none of it goes on."""
        silence = min(self._queue.longest_run, self._clock() - self._cluster.answered_at)
        if silence <= SIGNS_OF_LIFE + self._settings.time_limit:
            return ""
        return f"nothing has happened for {silence:.0f} s though there is work"

    def unready(self) -> str:
        """What is missing until it does its part; standing by is one."""
        if self._election is not None and not self._election.leading:
            return "" if self._election.holder is not None else "not known yet who leads"
        return "" if self._listener.hears.is_set() else "not watching yet"

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)

    async def _lead(self) -> None:
        if self._election is None:
            await self._work()
            return
        await self._election.acquire()
        try:
            await _first(self._work(), self._election.keep())  # kept until the work has ended
        finally:
            await self._election.release()

    async def _work(self) -> None:
        """Watch and reconcile; in the end, what is being written is written, and nothing more."""
        listening = asyncio.create_task(self._listener.run())
        telling = asyncio.create_task(self._announce())
        beside = asyncio.create_task(self._mode.run())
        try:
            await asyncio.wait([listening, beside], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(listening, telling)
            await self._queue.close()
            await self._mode.end()
            await self._cluster.drain()
            await _cancel(beside)
        for task in (listening, beside):
            if not task.cancelled():
                task.result()

    async def _announce(self) -> None:
        await self._listener.hears.wait()
        watched = ", ".join(self._settings.namespaces) or "all namespaces"
        logger.info("operator ready; watching %s", watched)


async def _first(*parts: Coroutine[object, object, object]) -> None:
    """Run until one part ends, end the others in order, and raise what it was that ended it."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancel(*tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _cancel(*tasks: asyncio.Task[object]) -> None:
    """End tasks, one after the other."""
    for task in tasks:
        task.cancel()
        await asyncio.wait([task])
