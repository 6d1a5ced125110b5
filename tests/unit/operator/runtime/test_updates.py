"""Updates are written at the version that was read, and repeated only while this one leads."""

import asyncio
from collections.abc import Iterator

import pytest

from inferno_operator.resources import Server
from inferno_operator.resources.objects import Event, Key, Reference, kind_of
from inferno_operator.runtime.leader_election import LeadershipLostError
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import FieldManager
from inferno_operator.runtime.updates import CONCURRENT_WRITES, FieldUpdate, Writer, write_each
from inferno_operator.runtime.work_queue import Locks
from inferno_operator.runtime.write_guard import GuardedCluster
from inferno_optimizer.errors import UnavailableError
from tests.fakes import FakeCluster
from tests.unit.operator.objects import NOW, server

SERVER = kind_of(Server)
DESIRED = {"desiredAlloc": {"accelerator": "A", "numReplicas": 2}}


class Scene:
    """A Server that changed after it was read, and the seconds for which we may write."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.allowed = [60.0]
        guarded = GuardedCluster(self.cluster, self._remaining, Observer(), lambda: 0.0)
        self.writer = Writer(guarded, FieldManager.DECISIONS, lambda: NOW)
        key = self.cluster.add(server())
        self.reference = Reference.of(SERVER, self.cluster.objects["Server", key])
        self.cluster.add({**server(), "metadata": {**server()["metadata"], "labels": {"a": "b"}}})

    def _remaining(self) -> float:
        return self.allowed.pop(0) if len(self.allowed) > 1 else self.allowed[0]

    def desired(self) -> object:
        stored = self.cluster.objects["Server", Key("default", "s")]
        return stored["spec"].get("desiredAlloc")


async def test_a_write_of_an_old_version_is_repeated_with_the_newest() -> None:
    scene = Scene()

    await scene.writer.apply(scene.reference, spec=DESIRED)

    assert scene.desired() == DESIRED["desiredAlloc"]


async def test_a_write_that_is_sent_after_another_operator_leads_changes_nothing() -> None:
    scene = Scene()
    scene.allowed = [60.0, 60.0, 0.0]  # allowed when it is sent, but not when it is repeated

    with pytest.raises(LeadershipLostError):
        await scene.writer.apply(scene.reference, spec=DESIRED)

    assert scene.desired() is None


async def test_the_spec_is_written_first_and_events_last() -> None:
    scene = Scene()
    event = Event(scene.reference, "Normal", "Measured", "as told")
    update = FieldUpdate(scene.reference, {"active": True}, DESIRED, (event,))

    written = await scene.writer.write(update)

    assert scene.cluster.writes == ["apply Server s", "status Server s"]
    assert scene.cluster.events == [event]
    assert written is not None
    assert written["status"]["active"] is True


@pytest.mark.parametrize("recreated", [False, True], ids=["deleted", "of another uid"])
async def test_an_object_that_is_gone_does_not_keep_others_from_being_written(
    recreated: bool,
) -> None:
    scene = Scene()
    other = scene.cluster.add(server("T"))
    reference = Reference.of(SERVER, scene.cluster.objects["Server", other])
    scene.cluster.remove(SERVER, scene.reference.key)
    if recreated:
        scene.cluster.add({**server(), "metadata": {**server()["metadata"], "uid": "another"}})
    updates = [FieldUpdate(each, {"active": True}) for each in (scene.reference, reference)]

    await scene.writer.write_all(updates)

    assert scene.cluster.writes == ["status Server t"]


async def test_the_first_failure_is_raised_after_all_are_tried() -> None:
    scene = Scene()
    keys = [scene.cluster.add(server(f"S{number}")) for number in range(CONCURRENT_WRITES + 1)]
    references = [Reference.of(SERVER, scene.cluster.objects["Server", key]) for key in keys]
    scene.cluster.failures = [UnavailableError("away")]

    with pytest.raises(UnavailableError, match="away"):
        await scene.writer.write_all(FieldUpdate(each, {"active": True}) for each in references)

    assert len(scene.cluster.writes) == CONCURRENT_WRITES


async def test_specs_are_written_before_statuses_and_no_status_after_a_spec_that_failed() -> None:
    scene = Scene()
    names = [f"s{number}" for number in range(2 * CONCURRENT_WRITES)]
    keys = [scene.cluster.add(server(name)) for name in names]
    references = [Reference.of(SERVER, scene.cluster.objects["Server", key]) for key in keys]
    scene.cluster.failures = [UnavailableError("away")]

    with pytest.raises(UnavailableError, match="away"):
        await scene.writer.write_all(
            FieldUpdate(each, {"active": True}, DESIRED) for each in references
        )

    assert scene.cluster.writes == [
        f"{part} Server {name}" for part in ("apply", "status") for name in names[1:]
    ]


# Many writes take as long as their number says, whatever single ones take


ITEMS = 15 * (CONCURRENT_WRITES - 1)


async def test_a_slow_write_keeps_no_others_waiting() -> None:
    loop = asyncio.get_running_loop()
    start, running, most = loop.time(), 0, 0

    async def write(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(10.0 if number == 0 else 1.0)
        running -= 1

    await write_each(range(ITEMS), write, write)

    assert loop.time() - start <= 2 * ITEMS / (CONCURRENT_WRITES - 1) + 2.0
    assert most == CONCURRENT_WRITES


async def test_some_items_take_a_step_before_the_first_takes_the_next() -> None:
    steps: list[tuple[int, int]] = []

    async def first(number: int) -> None:
        steps.append((1, number))

    async def second(number: int) -> None:
        steps.append((2, number))

    await write_each(range(ITEMS), first, second)

    apart = [steps.index((2, number)) - steps.index((1, number)) for number in range(ITEMS)]
    assert min(apart[:-CONCURRENT_WRITES]) >= CONCURRENT_WRITES


async def test_items_are_made_when_their_turn_comes() -> None:
    made, written, most = 0, 0, 0

    def items() -> Iterator[int]:
        nonlocal made, most
        for number in range(ITEMS):
            made += 1
            most = max(most, made - written)
            yield number

    async def first(_: int) -> None:
        await asyncio.sleep(1.0)

    async def second(_: int) -> None:
        nonlocal written
        await asyncio.sleep(1.0)
        written += 1

    await write_each(items(), first, second)

    assert written == ITEMS
    assert most <= 5 * CONCURRENT_WRITES


async def test_a_lock_is_kept_while_somebody_holds_it_or_waits() -> None:
    locks, running = Locks(), 0

    async def work(name: str) -> None:
        nonlocal running
        async with locks[name]:
            running += 1
            await asyncio.sleep(1)
            assert running == 1
            running -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(work("a"))
        await asyncio.sleep(1.5)
        assert len(locks) == 1

    assert len(locks) == 0
