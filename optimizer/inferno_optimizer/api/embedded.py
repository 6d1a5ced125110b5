"""Serves an application in a running event loop, with the limits of the server."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from starlette.types import ASGIApp
from uvicorn.server import ServerState

from inferno_optimizer.api.connection import configuration, connection_class, send_at_once
from inferno_optimizer.api.limits import ServerLimits


@asynccontextmanager
async def serving(
    app: ASGIApp, listening: socket.socket, limits: ServerLimits
) -> AsyncIterator[None]:
    """Serve until the context is left.

    Parameters
    ----------
    app
        The application; it gets no lifespan events.
    listening
        Where to accept connections.
    limits
        Sizes, times and counts.
    """
    send_at_once(listening)
    config = configuration(app, limits, None, lifespan=False)
    config.load()
    state = ServerState()

    connection = partial(connection_class(limits), config, state, {})
    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, sock=listening, backlog=config.backlog)
    try:
        yield
    finally:
        server.close()
        for open_one in [*state.connections]:
            open_one.shutdown()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=limits.stop_seconds)
