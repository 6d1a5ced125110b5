"""A proxy before a real API server: watches end and are too old to go on, and writes hang."""

import asyncio
import ssl
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import aiohttp
import yaml
from aiohttp import web
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from tests.controlplane.waiting import PATIENCE_S

HOP_BY_HOP = {"connection", "content-encoding", "content-length", "host", "transfer-encoding"}

ANCIENT = "1"
"""A version that no API server remembers."""


class ForgetfulProxy:
    """A context manager that serves on a port of loopback, with the administrator's rights.

    Parameters
    ----------
    kubeconfig
        Of the administrator.

    Attributes
    ----------
    gone
        Paths of the watches that were answered with 410 Gone.
    writes
        How many patches pass from now on; the others hang.
    hanging
        How many do.
    refusal
        Status with which every watch is answered from now on; 0: none is refused.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._watches: set[asyncio.Task[None]] = set()
        self._forgotten: set[str] = set()
        self.gone: list[str] = []
        self.writes = sys.maxsize
        self.hanging = 0
        self.refusal = 0
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    @property
    def watched(self) -> set[str]:
        """Paths of the watches that go on."""
        return {watch.get_name() for watch in tuple(self._watches)}

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads here."""
        document = yaml.safe_load(self._kubeconfig.read_text())
        document["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.port}"}
        document["users"][0]["user"] = {}
        path.write_text(yaml.safe_dump(document))
        return path

    def forget(self) -> None:
        """End every watch as the API server ends them; those that go on come too late."""
        ended = threading.Event()
        self._loop.call_soon_threadsafe(self._forget, ended)
        assert ended.wait(PATIENCE_S)

    def _forget(self, ended: threading.Event) -> None:
        for watch in self._watches:
            self._forgotten.add(watch.get_name())
            watch.cancel()
        self._loop.call_soon(ended.set)

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        async with _api_server(self._kubeconfig) as session:

            async def pass_on(request: web.Request) -> web.StreamResponse:
                return await self._pass_on(request, session)

            application = web.Application()
            application.router.add_route("*", "/{path:.*}", pass_on)
            runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            self._ready.set()
            await self._stopped.wait()
            await runner.cleanup()

    async def _let_pass(self) -> None:
        """Return if a write may pass."""
        self.writes -= 1
        if self.writes < 0:
            self.hanging += 1
            await asyncio.Event().wait()

    async def _pass_on(
        self, request: web.Request, session: aiohttp.ClientSession
    ) -> web.StreamResponse:
        if request.method == "PATCH":
            await self._let_pass()
        query = dict(request.query)
        if "watch" in query and self.refusal:
            return web.json_response({"code": self.refusal}, status=self.refusal)
        if "watch" in query and request.path in self._forgotten:
            self._forgotten.remove(request.path)
            self.gone.append(request.path)
            query["resourceVersion"] = ANCIENT
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        body = await request.read() or None
        async with session.request(
            request.method, request.path, params=query, headers=headers, data=body
        ) as answer:
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
            reply = web.StreamResponse(status=answer.status, headers=headers)
            await reply.prepare(request)
            copying = asyncio.create_task(_copy(answer, reply), name=request.path)
            if "watch" in query:
                self._watches.add(copying)
                copying.add_done_callback(self._watches.discard)
            await asyncio.wait([copying])
            with suppress(ConnectionError):  # the operator is gone
                await reply.write_eof()
        return reply


async def _copy(answer: aiohttp.ClientResponse, reply: web.StreamResponse) -> None:
    with suppress(ConnectionError, aiohttp.ClientError):  # one of the two is gone
        async for chunk in answer.content.iter_any():
            await reply.write(chunk)


@asynccontextmanager
async def _api_server(kubeconfig: Path) -> AsyncIterator[aiohttp.ClientSession]:
    configuration = Configuration()
    await config.load_kube_config(  # type: ignore[no-untyped-call]  # the client has no types there
        config_file=str(kubeconfig), client_configuration=configuration
    )
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    context.load_cert_chain(configuration.cert_file or "", configuration.key_file)
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with aiohttp.ClientSession(configuration.host, connector=connector) as session:
        yield session
