"""The adapter to the API server, for tests that run parts of the operator themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration, CustomObjectsApi

from inferno_operator.adapters.kubernetes.api_server import PAGE_SIZE, ApiServer
from inferno_operator.resources.objects import Now


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
