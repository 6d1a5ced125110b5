"""Controllers and watches that run beside a test."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager

from inferno_operator.runtime.manager import Controller


@asynccontextmanager
async def in_background(*work: Coroutine[object, object, object]) -> AsyncGenerator[None]:
    """Run until the block ends; what fails before ends the test."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
        yield
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def started(*controllers: Controller) -> AsyncGenerator[None]:
    """Run controllers, and stop them in their order, as the manager does."""
    async with in_background(*(controller.run() for controller in controllers)):
        try:
            yield
        finally:
            for controller in controllers:
                await controller.stop()
