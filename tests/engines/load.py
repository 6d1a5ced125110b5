"""Clients that send completions to real HTTP servers, in a Poisson process."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from threading import Event, Thread
from typing import Self

import httpx
import numpy as np

from tests.engines.truth import Series
from tests.engines.workload import Workload

WORD = "word "


class Load(AbstractContextManager["Load"]):
    """Sends requests to replicas in turn, from a thread of its own, as long as the context lasts.

    A request that is late because the machine is busy is sent at once; the times of the requests
    do not depend on the answers.

    Parameters
    ----------
    urls
        Bases of the replicas' APIs.
    model_name
        The model that is asked for.
    workload
        Lengths of prompts [words] and of answers [tokens].
    rate
        Requests in a second, to all replicas together.
    seed
        Of times and lengths.

    Attributes
    ----------
    sent
        The requests, with their Unix times [s].
    failures
        What went wrong with requests, in words.
    """

    def __init__(
        self, urls: Sequence[str], model_name: str, workload: Workload, *, rate: float, seed: int
    ) -> None:
        self.sent = Series()
        self.failures: list[str] = []
        self._urls = itertools.cycle(urls)
        self._model_name = model_name
        self._workload = workload
        self._rate = rate
        self._random = np.random.default_rng(seed)
        self._ready = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._run()), name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def set_rate(self, rate: float) -> None:
        """Send requests at another rate from the next one on [requests/s]."""
        self._rate = rate

    def arrival_rate(self, start: float, end: float) -> float:
        """What was really sent between two Unix times [requests/s]."""
        _, requests = self.sent.total(start, end)
        return requests / (end - start)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = self._loop.create_task(self._send_all())
        self._ready.set()
        await asyncio.gather(self._main, return_exceptions=True)

    async def _send_all(self) -> None:
        unlimited = httpx.Limits(max_connections=None)
        async with (
            httpx.AsyncClient(timeout=None, limits=unlimited) as client,  # noqa: S113 - queues are long
            asyncio.TaskGroup() as requests,
        ):
            due = time.time()
            while True:
                due += self._random.exponential(1 / self._rate)
                await asyncio.sleep(max(0.0, due - time.time()))
                self.sent.add(time.time(), 1)
                requests.create_task(self._send(client, next(self._urls)))

    async def _send(self, client: httpx.AsyncClient, url: str) -> None:
        body = {
            "model": self._model_name,
            "prompt": WORD * self._workload.input_tokens.draw(self._random),
            "max_tokens": self._workload.output_tokens.draw(self._random),
            "ignore_eos": True,
        }
        try:
            reply = await client.post(f"{url}/v1/completions", json=body)
        except httpx.TransportError as error:
            self.failures.append(repr(error))
            return
        if reply.is_error:
            self.failures.append(f"{reply.status_code}: {reply.text}")
