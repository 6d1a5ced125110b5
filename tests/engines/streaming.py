"""An engine that answers requests as a stream, by the API of OpenAI, in the time of its loop.

It works step by step, with the parameters of `Engine` or of `MixedSteps`. `Transport` reaches it
without a network, so that tests may run it in virtual time.
"""

import asyncio
import json
import socket
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol, Self

import httpx

from tests.engines.engine import Engine


@dataclass(slots=True, eq=False)
class Request:
    """A request, and its tokens that are not sent yet."""

    input_tokens: int
    output_tokens: int
    made: int = 0
    events: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    def token(self) -> None:
        self.made += 1
        self.events.put_nowait(self.made)


class Steps(Protocol):
    """How an engine works: the next step."""

    def next(self, waiting: deque[Request], batch: list[Request]) -> tuple[float, list[Request]]:
        """Return how long it takes [s], and the requests that get a token in it."""


@dataclass(frozen=True, slots=True)
class PrefillsApart:
    """Prefills are steps of their own, as in `Engine`."""

    engine: Engine

    def next(self, waiting: deque[Request], batch: list[Request]) -> tuple[float, list[Request]]:
        """A prefill if there is room, else a decode step of all."""
        if waiting and len(batch) < self.engine.max_batch_size:
            request = waiting.popleft()
            batch.append(request)
            return self.engine.prefill_s(request.input_tokens, len(batch)), [request]
        return self.engine.decode_s(len(batch)), list(batch)


@dataclass(frozen=True, slots=True)
class MixedSteps:
    """Prompts are computed in the next decode step; parameters as those of `StepParms` [ms]."""

    alpha: float
    kappa: float
    delta: float
    budget: int = 2048

    def next(self, waiting: deque[Request], batch: list[Request]) -> tuple[float, list[Request]]:
        """A step of all that decode, and of the prompts that fit."""
        cached = sum(request.input_tokens + request.made for request in batch)
        prompts = 0
        while waiting and (not prompts or prompts + waiting[0].input_tokens <= self.budget):
            request = waiting.popleft()
            prompts += request.input_tokens
            batch.append(request)
        return (self.alpha + self.kappa * cached + self.delta * prompts) / 1000, list(batch)


@dataclass(frozen=True, slots=True)
class WarmingUp:
    """Stands still when a size of step comes for the first time, as for a CUDA graph."""

    steps: Steps
    still_s: float
    seen: set[tuple[int, int]] = field(default_factory=set)

    def next(self, waiting: deque[Request], batch: list[Request]) -> tuple[float, list[Request]]:
        """The step, and the time for what is new in it."""
        seconds, served = self.steps.next(waiting, batch)
        prompts = sum(request.input_tokens for request in served if not request.made)
        cached = sum(request.input_tokens + request.made for request in served if request.made)
        size = (prompts // 128, cached // 8192)
        new = size not in self.seen
        self.seen.add(size)
        return seconds + new * self.still_s, served


class StreamingEngine:
    """Serves requests; times are those of the loop in which it is asked.

    Parameters
    ----------
    steps
        How it works.
    model
        What it serves.
    """

    def __init__(self, steps: Steps, model: str = "granite") -> None:
        self.model = model
        self.asked = 0
        self._steps = steps
        self._waiting: deque[Request] = deque()
        self._batch: list[Request] = []
        self._work: asyncio.Task[None] | None = None

    @property
    def models(self) -> dict[str, object]:
        """What it answers to the question for its models."""
        return {"data": [{"id": self.model}]}

    async def stream(self, body: dict[str, object]) -> AsyncIterator[bytes]:
        """Answer a request, event by event."""
        self.asked += 1
        request = Request(len(str(body["prompt"]).split()), int(str(body["max_tokens"])))
        self._waiting.append(request)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._serve())
        try:
            while await request.events.get() < request.output_tokens:
                yield WORD
            yield event({"choices": [{"text": "end", "finish_reason": "length"}]})
            usage = {
                "prompt_tokens": request.input_tokens,
                "completion_tokens": request.output_tokens,
            }
            yield event({"choices": [], "usage": usage})
            yield b"data: [DONE]\n\n"
        finally:
            for requests in (self._waiting, self._batch):
                if request in requests:
                    requests.remove(request)

    async def _serve(self) -> None:
        while self._waiting or self._batch:
            seconds, served = self._steps.next(self._waiting, self._batch)
            await asyncio.sleep(seconds)
            for request in served:
                request.token()
                if request.made >= request.output_tokens and request in self._batch:
                    self._batch.remove(request)


def event(document: object) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


WORD = event({"choices": [{"text": "word "}]})
"""A token that is not the last one."""


class Stream(httpx.AsyncByteStream):
    """The body of an answer."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._parts:
            yield part

    async def aclose(self) -> None:
        """End the answer."""
        close: Callable[[], object] | None = getattr(self._parts, "aclose", None)
        if close is not None:
            await close()  # type: ignore[misc]  # an asynchronous generator


class Transport(httpx.AsyncBaseTransport):
    """Reaches an engine without a network.

    Parameters
    ----------
    engine
        What answers.
    """

    def __init__(self, engine: StreamingEngine) -> None:
        self._engine = engine

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/models"):
            return httpx.Response(200, json=self._engine.models)
        return httpx.Response(200, stream=Stream(self._engine.stream(json.loads(request.content))))


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
