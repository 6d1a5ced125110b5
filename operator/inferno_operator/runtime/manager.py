"""Run controllers: wait for leadership, run them, and stop them in the right order."""

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
        """Watch until cancelled."""

    async def stop(self) -> None:
        """Begin nothing new."""


class Manager:
    """One run of the operator.

    Parameters
    ----------
    cluster
        What the controllers write with.
    controllers
        What to run.
    election
        Who may work; None: there is no other operator.
    clock
        The time that passes [s].
    patience
        Seconds without any progress after which work is stuck.
    """

    def __init__(
        self,
        cluster: GuardedCluster,
        controllers: Sequence[Controller],
        election: Election | None,
        clock: Clock,
        patience: float,
    ) -> None:
        self._cluster = cluster
        self._controllers = controllers
        self._election = election
        self._clock = clock
        self._patience = patience
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Lead, when it is this operator's turn, and work, until SIGTERM or SIGINT.

        Raises
        ------
        LeadershipLostError
            Another operator leads, or may soon.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        await _first(self._stop.wait(), self._lead())

    def stuck(self) -> str:
        """What is wrong when there is work and none of it makes progress."""
        longest = max((c.queue.longest_run for c in self._controllers), default=0.0)
        silence = min(longest, self._clock() - self._cluster.answered_at)
        if silence <= self._patience:
            return ""
        return f"nothing has happened for {silence:.0f} s though there is work"

    def unready(self, working: Callable[[], str]) -> str:
        """What is missing until this operator does its part; to stand by is one.

        `working` says what is missing while it leads.
        """
        if self._election is not None and not self._election.leading:
            return "" if self._election.holder is not None else "not known yet who leads"
        return working()

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
        """Run the controllers; at the end, finish the writes that have begun, and no more."""
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
    """Run until one part ends, end the others in order, and raise what it was that ended it."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancel(*tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _cancel(*tasks: asyncio.Task[None] | asyncio.Task[object]) -> None:
    """End tasks, one after the other."""
    for task in tasks:
        task.cancel()
        await asyncio.wait([task])
