"""Run the controllers: wait for leadership, start them, and stop them in the right order."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from inferno_operator.runtime.leader_election import Clock, Election
from inferno_operator.runtime.work_queue import WorkQueue
from inferno_operator.runtime.write_guard import GuardedCluster


class Controller(Protocol):
    """Watches objects and reconciles those that change."""

    @property
    def queue(self) -> WorkQueue[Any]:
        """The keys of the objects to reconcile."""

    async def run(self) -> None:
        """Watch objects until cancelled."""

    async def stop(self) -> None:
        """Stop reconciling."""


class Watcher(Protocol):
    """Watches objects and writes nothing, so that it needs no leadership."""

    async def run(self) -> None:
        """Watch objects until cancelled."""


class Manager:
    """One run of the operator.

    Parameters
    ----------
    cluster
        The cluster that the controllers write to.
    controllers
        The controllers to run.
    election
        The leader election; None if this is the only operator.
    clock
        A monotonic clock [s].
    patience
        Seconds without an answer of the API server after which a reconcile counts as stuck.
    watchers
        What runs also in an operator that does not lead.
    """

    def __init__(
        self,
        cluster: GuardedCluster,
        controllers: Sequence[Controller],
        election: Election | None,
        clock: Clock,
        patience: float,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self._cluster = cluster
        self._controllers = controllers
        self._election = election
        self._clock = clock
        self._patience = patience
        self._watchers = watchers
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Run the watchers, and the controllers while leading, until SIGTERM or SIGINT.

        Raises
        ------
        LeadershipLostError
            Another operator leads, or may lead soon.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        watchers = [watcher.run() for watcher in self._watchers]
        await _first(self._stop.wait(), self._lead(), *watchers)

    def stuck(self) -> str:
        """Return a message if reconciles run but make no progress, else ""."""
        longest = max((c.queue.longest_run for c in self._controllers), default=0.0)
        silence = min(longest, self._clock() - self._cluster.answered_at)
        if silence <= self._patience:
            return ""
        return f"no progress for {silence:.0f} s although a reconcile is running"

    def unready(self, working: Callable[[], str]) -> str:
        """Return what is missing until this operator is ready, else ""; a standby is ready.

        `working` returns what is missing while this operator leads.
        """
        if self._election is not None and not self._election.leading:
            return "" if self._election.holder is not None else "the leader is not known yet"
        return working()

    async def _lead(self) -> None:
        if self._election is None:
            await self._work()
            return
        await self._election.acquire()
        try:
            await _first(self._work(), self._election.keep())  # renewed until the work has ended
        finally:
            await self._election.release()

    async def _work(self) -> None:
        """Run the controllers; at the end, finish the writes that have begun and start none."""
        tasks = [asyncio.create_task(controller.run()) for controller in self._controllers]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for controller in self._controllers:
                await controller.stop()
            await self._cluster.drain()
            await _cancel(*tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()


async def _first(*parts: Coroutine[object, object, object]) -> None:
    """Run until one part ends, cancel the others in order, and raise the error of the part."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancel(*tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _cancel(*tasks: asyncio.Task[None] | asyncio.Task[object]) -> None:
    """Cancel tasks one after the other, and wait for each."""
    for task in tasks:
        task.cancel()
        await asyncio.wait([task])
