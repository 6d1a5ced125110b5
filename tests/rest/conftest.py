"""Servers for tests, shared by those of a module; one that keeps state is emptied for each."""

from collections.abc import Iterator

import httpx
import pytest

from tests.controlplane.processes import Processes
from tests.rest.serving import Served, copied, empty


@pytest.fixture(scope="module")
def stateless(processes: Processes) -> Iterator[Served]:
    with copied(processes) as server:
        yield server


@pytest.fixture(scope="module")
def client(stateless: Served) -> Iterator[httpx.Client]:
    with stateless.client() as client:
        yield client


@pytest.fixture(scope="module")
def lasting(processes: Processes) -> Iterator[Served]:
    with copied(processes, "--stateful") as server:
        yield server


@pytest.fixture
def stateful(lasting: Served) -> Served:
    """A server that keeps state, and knows nothing yet."""
    with lasting.client() as client:
        empty(client)
    return lasting


@pytest.fixture
def keeper(stateful: Served) -> Iterator[httpx.Client]:
    """A client of a server that keeps state."""
    with stateful.client() as client:
        yield client


@pytest.fixture
def new_keeper(processes: Processes) -> Iterator[httpx.Client]:
    """The same of a server of its own, for what cannot be removed."""
    with copied(processes, "--stateful") as server, server.client() as client:
        yield client
