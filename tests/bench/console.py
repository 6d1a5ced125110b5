"""Measurements of the console on a real control plane: first page, news, many open pages."""

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.bench.cluster import GROUP, NAMESPACE, VERSION, Bench, client_of, cpu_seconds, peak_mib
from tests.bench.library import SEED, SOLVERS, Numbers
from tests.bench.manifests import PLURALS, manifests
from tests.cluster.console import COMMAND
from tests.controlplane import ControlPlane
from tests.controlplane.processes import ROOT
from tests.generate import fleet

PAGES = 49
"""Pages that are open; another one is the last that is let in."""

CHANGES = 5
SPAN_S = 60.0
"""How long it is measured what open pages cost [s]."""
EVERY_S = 1.0
"""How often something changes while it is measured what that costs [s]."""

QUIET_S = 5.0
"""How long nothing changes before a change whose news are awaited [s]."""

PATIENCE_S = 120.0


def console(*, servers: int, accelerators: int = 20) -> Numbers:
    """The first page after the start, memory, how late news are, what open pages cost."""
    document = fleet(servers, accelerators, SEED, 1.5)
    document["system"]["optimizerData"] = {"optimizer": SOLVERS["greedy"]}
    with ControlPlane() as control_plane:
        control_plane.install_crds(ROOT / "crds")
        control_plane.create_namespace(NAMESPACE)
        Bench(control_plane).create(manifests(document))
        with _running(control_plane) as (address, pid):
            visit = _Visit(control_plane, address, pid)
            return asyncio.run(visit.measured())


@contextmanager
def _running(control_plane: ControlPlane) -> Iterator[tuple[str, int]]:
    """Yield the address of a console, and its process."""
    options = ("--kubeconfig", str(control_plane.kubeconfig), "--namespace", NAMESPACE)
    with subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.send_signal(signal.SIGINT)


@dataclass
class _Visit:
    """A browser that looks at a console."""

    control_plane: ControlPlane
    address: str
    pid: int
    looked: int = 0
    """Pages that were shown, each anew after news."""
    all_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def measured(self) -> Numbers:
        parts = urlsplit(self.address)
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=f"{parts.scheme}://{parts.netloc}",
            trust_env=False,
            timeout=PATIENCE_S,
            limits=limits,
        ) as browser:
            await browser.get(self.address)
            first = await self._first_page(browser)
            late = await self._late(browser)
            open_pages = await self._open_pages(browser)
        return {**first, **late, **open_pages, "mib": peak_mib(self.pid)}

    async def _first_page(self, browser: httpx.AsyncClient) -> Numbers:
        start, busy = time.perf_counter(), cpu_seconds(self.pid)
        page = await browser.get("/")
        page.raise_for_status()
        return {
            "seconds": time.perf_counter() - start,
            "cpu_seconds": cpu_seconds(self.pid) - busy,
            "kib": len(page.content) / 1024,
        }

    async def _late(self, browser: httpx.AsyncClient) -> Numbers:
        """Time between a change and its news, at the median and at most."""
        found = list[float]()
        async with _news(browser) as news:
            await anext(news)
            for number in range(CHANGES):
                await asyncio.sleep(QUIET_S)
                start = time.perf_counter()
                await self._change(number)
                await anext(news)
                found.append(time.perf_counter() - start)
        return {"news_seconds": median(found), "latest_seconds": max(found)}

    async def _open_pages(self, browser: httpx.AsyncClient) -> Numbers:
        """What open pages cost while nothing changes, and while something does all the time."""
        pages = [asyncio.create_task(self._look(browser)) for _ in range(PAGES)]
        await asyncio.wait_for(self.all_open.wait(), PATIENCE_S)
        idle = await self._cpu_percent(changes=False)
        busy = await self._cpu_percent(changes=True)
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)
        return {"idle_cpu_percent": idle, "cpu_percent": busy, "pages": float(self.looked)}

    async def _look(self, browser: httpx.AsyncClient) -> None:
        """Show a page, and again at each piece of news, as the script does."""
        async with _news(browser) as news:
            async for _ in news:
                (await browser.get("/")).raise_for_status()
                self.looked += 1
                if self.looked == PAGES:
                    self.all_open.set()

    async def _cpu_percent(self, *, changes: bool) -> float:
        start, busy = time.perf_counter(), cpu_seconds(self.pid)
        number = CHANGES
        while time.perf_counter() - start < SPAN_S:
            number += 1
            if changes:
                await self._change(number)
            await asyncio.sleep(EVERY_S)
        return 100 * (cpu_seconds(self.pid) - busy) / (time.perf_counter() - start)

    async def _change(self, number: int) -> None:
        place = (GROUP, VERSION, NAMESPACE, PLURALS["Accelerator"])
        change = {"metadata": {"labels": {"changed": str(number)}}}
        api = client_of(self.control_plane)
        first: Any = await asyncio.to_thread(api.list_namespaced_custom_object, *place, limit=1)
        name = first["items"][0]["metadata"]["name"]
        await asyncio.to_thread(api.patch_namespaced_custom_object, *place, name, change)


@asynccontextmanager
async def _news(browser: httpx.AsyncClient) -> AsyncIterator[AsyncIterator[str]]:
    async with browser.stream("GET", "/news") as stream:
        stream.raise_for_status()
        yield (line async for line in stream.aiter_lines() if line.startswith("data:"))
