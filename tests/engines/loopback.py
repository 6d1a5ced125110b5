"""A streaming engine on a port of loopback, in the loop that serves it.

Where the loop that asks serves it too, a `VirtualTimeLoop` runs both: what is measured is what the
engine did, on any machine.
"""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Self

from tests.engines.streaming import StreamingEngine


class LoopbackEngine:
    """Serves an engine by the API of OpenAI, an answer for each connection.

    Parameters
    ----------
    engine
        What answers.
    """

    def __init__(self, engine: StreamingEngine) -> None:
        self._engine = engine
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.keys: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    async def serve(self) -> None:
        """Answer until the task is cancelled."""
        server = await asyncio.start_server(self._connected, sock=self._listener)
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
        headers = {name.lower(): value for name, value in fields.items()}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        try:
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            async with aclosing(self._answer(headers, body)) as parts:
                async for part in parts:
                    writer.write(part)
                    await writer.drain()
        except ConnectionError:
            pass  # the client has gone
        finally:
            writer.close()

    async def _answer(self, headers: dict[str, str], body: bytes) -> AsyncGenerator[bytes, None]:
        """The models, or the answer to a prompt."""
        if not body:
            yield json.dumps(self._engine.models).encode()
            return
        self.keys.add(headers.get("authorization", ""))
        async for part in self._engine.stream(json.loads(body)):
            yield part
