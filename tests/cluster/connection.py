"""The adapter to the API server, for tests that run parts of the operator themselves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration, CustomObjectsApi

from inferno_operator.adapters.kubernetes.api_server import ApiServer
from inferno_operator.adapters.kubernetes.watch import PAGE_SIZE
from inferno_operator.resources.objects import Now

CLOSING_S = 0.1
"""Time in which the loop closes connections that were being made when a task was cancelled.

aiohttp does not wait for them; of 300 loops that ended at once, 4 left one open.
"""


@asynccontextmanager
async def connected(
    kubeconfig: Path, now: Now, page_size: int = PAGE_SIZE
) -> AsyncIterator[ApiServer]:
    """What `api_server.connect` makes, for a kubeconfig that only this test uses."""
    configuration = Configuration()
    await config.load_kube_config(  # type: ignore[no-untyped-call]  # the client has no types there
        config_file=str(kubeconfig), client_configuration=configuration
    )
    async with ApiClient(configuration) as client:
        yield ApiServer(CustomObjectsApi(client), now, "test", page_size)
    await asyncio.sleep(CLOSING_S)
