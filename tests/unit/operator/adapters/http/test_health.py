"""The probes and metrics over HTTP, as a kubelet and a scraper see them."""

import socket

import httpx
import pytest

from inferno_operator.adapters.http import health
from inferno_operator.adapters.http.decisions import Decisions
from inferno_operator.adapters.http.metrics import Metrics
from inferno_operator.controllers.actuation.publication.controller import Publication
from inferno_operator.runtime.fakes import FakeCluster
from inferno_optimizer.errors import InputError

DECISIONS = Decisions(Publication(FakeCluster(), ()).decision, token=None)


async def ask(path: str, trouble: str = "", accept: str = "") -> httpx.Response:
    page = Metrics().page
    async with (
        health.serve(health.LOOPBACK, 0, lambda: trouble, lambda: trouble, page, DECISIONS) as port,
        httpx.AsyncClient(base_url=f"http://{health.LOOPBACK}:{port}") as client,
    ):
        return await client.get(path, headers={"Accept": accept})


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_probe_succeeds_when_nothing_is_wrong(path: str) -> None:
    answer = await ask(path)

    assert (answer.status_code, answer.text) == (200, "ok")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_probe_fails_with_what_is_wrong(path: str) -> None:
    answer = await ask(path, "not watching yet")

    assert (answer.status_code, answer.text) == (503, "not watching yet")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
    ],
)
async def test_metrics_come_in_the_format_that_is_asked_for(accept: str, content_type: str) -> None:
    answer = await ask("/metrics", accept=accept)

    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith(content_type)
    assert "# TYPE inferno_servers gauge" in answer.text


async def test_there_is_nothing_else() -> None:
    assert (await ask("/")).status_code == 404


async def test_a_busy_port_is_an_error_that_says_what_to_do() -> None:
    with socket.create_server((health.LOOPBACK, 0)) as busy:
        port = busy.getsockname()[1]

        with pytest.raises(InputError, match=rf"port {port} .*in use.*--health-port") as raised:
            async with health.serve(health.LOOPBACK, port, str, str, Metrics().page, DECISIONS):
                pass

    assert "\n" not in str(raised.value)


async def test_in_a_cluster_every_address_is_listened_on() -> None:
    async with (
        health.serve("", 0, str, str, Metrics().page, DECISIONS) as port,
        httpx.AsyncClient() as client,
    ):
        answer = await client.get(f"http://{health.LOOPBACK}:{port}/healthz")

    assert answer.status_code == 200
