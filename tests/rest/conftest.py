"""Servers for tests; those that keep no state are shared by the tests of a module."""

from collections.abc import Iterator

import httpx
import pytest

from tests.rest.serving import Served, serving


@pytest.fixture(scope="module")
def stateless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("stateless")) as server:
        yield server


@pytest.fixture(scope="module")
def client(stateless: Served) -> Iterator[httpx.Client]:
    with stateless.client() as client:
        yield client


@pytest.fixture
def stateful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("stateful"), "--stateful") as server:
        yield server


@pytest.fixture
def keeper(stateful: Served) -> Iterator[httpx.Client]:
    """A client of a server of its own, which keeps state."""
    with stateful.client() as client:
        yield client
