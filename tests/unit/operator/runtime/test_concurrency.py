"""Many writes take as long as their number says, whatever single ones take."""

import asyncio
from collections.abc import Iterator

from inferno_operator.runtime.updates import CONCURRENT_WRITES, write_each
from inferno_operator.runtime.work_queue import Locks

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
