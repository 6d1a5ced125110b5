"""Hearing of every Optimizer, though what tells of them may be deaf, or end."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from inferno_operator.controllers.optimization.handlers import News, Tell
from inferno_operator.controllers.optimization.listener import Listener
from inferno_operator.resources import Optimizer
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.fakes import FakeCluster
from inferno_operator.runtime.work_queue import Outcome, WorkQueue
from inferno_optimizer.errors import UnavailableError
from tests.unit.operator.objects import optimizer

INFERNO = Key("default", "inferno")


class Ears:
    """Stand in for kopf: what the first ones do is given, the others hear."""

    def __init__(self, cluster: FakeCluster, *first: Callable[[], object]) -> None:
        self.started = 0
        self.tell: Tell
        self._cluster = cluster
        self._first = list(first)

    async def follow(self, tell: Tell, namespaces: Sequence[str]) -> None:
        assert namespaces == ("default",)
        self.started += 1
        self.tell = tell
        if self._first:
            self._first.pop(0)()
        else:
            for manifest in await self._cluster.list(Optimizer, "default"):
                metadata = manifest["metadata"]
                tell(News(INFERNO, metadata["uid"], metadata["generation"], gone=False))
        await asyncio.Event().wait()


class Listening:
    """A listener at work, and the keys that it passed on."""

    def __init__(self, cluster: FakeCluster, ears: Ears) -> None:
        self.keys: asyncio.Queue[Key] = asyncio.Queue()
        queue = WorkQueue(self._reconcile)
        self.listener = Listener(queue, cluster, ("default",), ears.follow, patience=0.02)
        self._task = asyncio.create_task(self.listener.run())

    async def _reconcile(self, key: Key) -> Outcome:
        self.keys.put_nowait(key)
        return Outcome.SETTLED

    async def key(self) -> Key:
        return await asyncio.wait_for(self.keys.get(), 10)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def scene() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add(optimizer())
    return cluster


async def test_what_is_told_of_is_passed_on_and_nothing_starts_twice() -> None:
    cluster = scene()
    ears = Ears(cluster)
    listening = Listening(cluster, ears)

    assert await listening.key() == INFERNO
    await asyncio.wait_for(listening.listener.hears.wait(), 10)
    assert ears.started == 1
    await listening.end()


def nothing() -> None:
    """Be deaf."""


def broken() -> None:
    raise RuntimeError("no credentials")


@pytest.mark.parametrize(
    ("first", "why"), [(nothing, "not told of in time"), (broken, "no credentials")]
)
async def test_what_misses_an_optimizer_or_ends_is_started_anew(
    first: Callable[[], object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = scene()
    ears = Ears(cluster, first)
    listening = Listening(cluster, ears)

    assert await listening.key() == INFERNO
    await asyncio.wait_for(listening.listener.hears.wait(), 10)
    assert ears.started == 2
    assert why in caplog.text
    await listening.end()


async def test_an_api_server_that_is_away_is_waited_for() -> None:
    cluster = scene()
    cluster.failures = [UnavailableError("connection refused")]
    ears = Ears(cluster)
    listening = Listening(cluster, ears)

    assert await listening.key() == INFERNO
    await listening.end()


async def test_one_that_is_gone_is_not_missed() -> None:
    cluster = scene()
    uid = cluster.objects["Optimizer", INFERNO]["metadata"]["uid"]

    def deleted() -> None:
        ears.tell(News(INFERNO, uid, 1, gone=True))

    ears = Ears(cluster, deleted)
    listening = Listening(cluster, ears)
    await asyncio.wait_for(listening.listener.hears.wait(), 10)

    assert ears.started == 1
    await listening.end()
