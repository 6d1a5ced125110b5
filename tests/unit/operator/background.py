"""Controllers, watches and servers that run beside a test."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

from aiohttp import web

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


@asynccontextmanager
async def serving(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
    trust: ssl.SSLContext | None = None,
) -> AsyncGenerator[str]:
    """Answer all requests to a port of loopback; yields its URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust).start()
    try:
        yield f"{'https' if trust else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
