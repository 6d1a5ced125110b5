"""Probes, metrics and decisions over HTTP, as a kubelet, a scraper and an autoscaler ask."""

import asyncio
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from inferno_operator.adapters.http import app
from inferno_operator.adapters.http.app import Decisions
from inferno_operator.adapters.http.metrics import OperatorMetrics
from inferno_operator.controllers.scaling.publication import Publication, Published
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import GoneError
from inferno_optimizer.api.connection import serve_in_loop
from inferno_optimizer.api.messages import ServerLimits
from inferno_optimizer.errors import InputError, UnavailableError
from tests.controlplane.waiting import PATIENCE_S
from tests.fakes import FakeCluster

DECISIONS = Decisions(Publication(FakeCluster(), Informers(FakeCluster())).decision, tokens=None)


async def ask(
    path: str,
    trouble: str = "",
    accept: str = "",
    token: Path | None = None,
    authorization: str | bytes = "",
    decisions: Decisions = DECISIONS,
) -> httpx.Response:
    page, probes = OperatorMetrics().page, (lambda: trouble, lambda: trouble)
    sent = authorization.encode() if isinstance(authorization, str) else authorization
    async with (
        app.serve(app.LOOPBACK, 0, probes, page, decisions, token) as port,
        httpx.AsyncClient(base_url=f"http://{app.LOOPBACK}:{port}", timeout=PATIENCE_S) as client,
    ):
        headers = [(b"Accept", accept.encode()), (b"Authorization", sent)]
        return await client.get(path, headers=headers)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize(("trouble", "status"), [("", 200), ("not watching yet", 503)])
async def test_a_probe_says_what_is_wrong(path: str, trouble: str, status: int) -> None:
    answer = await ask(path, trouble)

    assert (answer.status_code, answer.text) == (status, trouble or "ok")


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


@pytest.mark.parametrize(
    ("authorization", "status"), [("Bearer secret", 200), ("Bearer other", 401), ("", 401)]
)
async def test_metrics_are_for_those_with_the_token_where_there_is_one(
    authorization: str, status: int, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")

    answer = await ask("/metrics", token=token, authorization=authorization)
    probe = await ask("/healthz", token=token)

    assert (answer.status_code, probe.status_code) == (status, 200)
    assert "secret" not in answer.text


async def test_there_is_nothing_else() -> None:
    assert (await ask("/")).status_code == 404


async def test_a_busy_port_is_an_error_that_says_what_to_do() -> None:
    with socket.create_server((app.LOOPBACK, 0)) as busy:
        port = busy.getsockname()[1]

        with pytest.raises(InputError, match=rf"port {port} .*in use.*--health-port") as raised:
            async with app.serve(app.LOOPBACK, port, (str, str), OperatorMetrics().page, DECISIONS):
                pass

    assert "\n" not in str(raised.value)


async def test_in_a_cluster_every_address_is_listened_on() -> None:
    async with (
        app.serve("", 0, (str, str), OperatorMetrics().page, DECISIONS) as port,
        httpx.AsyncClient(timeout=PATIENCE_S) as client,
    ):
        answer = await client.get(f"http://{app.LOOPBACK}:{port}/healthz")

    assert answer.status_code == 200


FILES = 512
"""Files that the operator may open in the test."""

HALF_REQUESTS = 2 * FILES
HALF = b"GET /healthz HTTP/1.1\r\nHost: operator\r\n"

OPERATOR = f"""
import asyncio, resource, sys
from inferno_operator.adapters.http import app
from inferno_operator.logs import configure
from tests.unit.operator.adapters.http.test_app import DECISIONS, OperatorMetrics

async def serve():
    page = OperatorMetrics().page
    async with app.serve(app.LOOPBACK, 0, (str, str), page, DECISIONS) as port:
        print(port, flush=True)
        await asyncio.Event().wait()

configure(as_json=False)
resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
asyncio.run(serve())
"""


@pytest.mark.slow
def test_probes_are_answered_while_a_thousand_half_requests_are_open() -> None:
    with (
        subprocess.Popen(
            [sys.executable, "-c", OPERATOR],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as operator,
        ExitStack() as half_open,
    ):
        half_open.callback(operator.kill)
        assert operator.stdout is not None
        port = int(operator.stdout.readline())
        for number in range(HALF_REQUESTS):
            client = half_open.enter_context(socket.create_connection((app.LOOPBACK, port)))
            client.sendall(HALF)
            if number % 500 == 0:
                assert_healthy(port)
        assert_healthy(port)
        operator.kill()
        _, log = operator.communicate()

    assert len(log.splitlines()) < 5, log


def assert_healthy(port: int) -> None:
    answer = httpx.get(f"http://{app.LOOPBACK}:{port}/healthz", timeout=PATIENCE_S)
    assert answer.status_code == 200


async def test_no_answer_waits_for_an_acknowledgement() -> None:
    listening = socket.create_server((app.LOOPBACK, 0))
    async with serve_in_loop(Starlette(), listening, ServerLimits()):
        inherited = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    assert inherited


async def test_headers_that_do_not_come_end_the_connection() -> None:
    listening = socket.create_server((app.LOOPBACK, 0))
    async with serve_in_loop(Starlette(), listening, ServerLimits(head_seconds=0.2)):
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(HALF)
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()

    assert answer.startswith(b"HTTP/1.1 408 ")


MOST_HEADERS = 64 * 1024
"""Bytes of headers, however many they are, that are taken before they end."""


@pytest.mark.parametrize("line", [b"x", b"Many: x\r\n"], ids=["in bytes", "in number"])
async def test_headers_that_are_too_large_are_refused_before_they_end(line: bytes) -> None:
    metrics = OperatorMetrics().page
    async with app.serve(app.LOOPBACK, 0, (str, str), metrics, DECISIONS) as port:
        reader, writer = await asyncio.open_connection(app.LOOPBACK, port)
        writer.write(HALF + b"Large: x\r\n" + line * ((MOST_HEADERS - 100) // len(line)))
        await writer.drain()
        writer.write(line * 100)  # one segment: a server that closes before it is read resets
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()

    assert answer.startswith(b"HTTP/1.1 431 ")


TOKEN = "t0ken-of-the-test"  # noqa: S105 - of the test
URL = "/v1/desired/llm/chat"


def decide(key: Key) -> Published:
    """Three Servers: one with a mix, one on a single accelerator, one without a decision."""
    named: dict[str, Any] = dict.fromkeys(("A", "B", "NVIDIA/H100 80GB"))
    found = {
        "chat": Published(key, {"B": 3, "A": 1}, workloads=named),
        "idle": Published(key, {}, workloads=named),
        "new": Published(key, None, "nothing was decided yet"),
    }
    if key.namespace == "unknown":
        raise UnavailableError("decisions are not known: the list of Servers is awaited")
    if key.name not in found:
        raise GoneError(f"Server {key} does not exist")
    return found[key.name]


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


async def ask_decision(
    path: str, token: Path | None, authorization: str | bytes = f"Bearer {TOKEN}"
) -> httpx.Response:
    return await ask(path, authorization=authorization, decisions=Decisions(decide, token))


def write(file: Path, content: str | None) -> None:
    """Write a file, or delete it if there is no content."""
    if content is None:
        file.unlink()
    else:
        file.write_text(content)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        (f"{URL}/A", {"replicas": 1, "accelerator": "A"}),
        (f"{URL}/NVIDIA%2FH100%2080GB", {"replicas": 0, "accelerator": "NVIDIA/H100 80GB"}),
        ("/v1/desired/llm/idle", {"replicas": 0, "accelerator": ""}),
        ("/v1/desired/llm/idle/B", {"replicas": 0, "accelerator": "B"}),
        (
            URL,
            {
                "replicas": 4,
                "accelerator": "B",
                "mix": [
                    {"replicas": 3, "accelerator": "B"},
                    {"replicas": 1, "accelerator": "A"},
                ],
            },
        ),
    ],
)
async def test_the_decided_replicas_are_a_number(
    path: str, answer: dict[str, Any], token: Path
) -> None:
    response = await ask_decision(path, token)

    assert (response.status_code, response.json()) == (200, answer)
    assert response.headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/v1/desired/llm/new", 503, "no decision stands: nothing was decided yet"),
        ("/v1/desired/unknown/chat", 503, "decisions are not known"),
        ("/v1/desired/llm/nobody", 404, "Server llm/nobody does not exist"),
        (f"{URL}/b", 404, "accelerator 'b'"),
    ],
)
async def test_an_error_has_no_number(path: str, status: int, error: str, token: Path) -> None:
    response = await ask_decision(path, token)

    assert response.status_code == status
    assert response.json().keys() == {"error"}
    assert error in response.json()["error"]
    assert "\n" not in response.text


@pytest.mark.parametrize(
    "authorization", ["Bearer other", "Basic dDp0", f"Bearer {TOKEN}x", "Bearer", b"Bearer \xff"]
)
async def test_only_the_token_opens(authorization: str | bytes, token: Path) -> None:
    response = await ask_decision(URL, token, authorization)

    assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert TOKEN not in response.text
    assert (await ask_decision(URL, token, f"bearer {TOKEN}")).status_code == 200


@pytest.mark.parametrize(
    ("namespace", "shown", "status"),
    [
        ("llm", "token of llm", 200),
        ("llm", "token of other", 401),
        ("other", "token of llm", 401),
        ("nobody", "token of llm", 401),
        ("nobody", "x", 401),
        ("..", "token of llm", 404),
        ("%2e%2e", "token of llm", 401),
        ("..%2Fllm", "token of llm", 401),
        (".llm", "token of llm", 401),
        ("LLM", "token of llm", 401),
    ],
)
async def test_the_token_of_a_namespace_reads_no_decision_of_another(
    namespace: str, shown: str, status: int, tmp_path: Path
) -> None:
    for name in ("llm", "other"):
        write(tmp_path / name, f"token of {name}\n")

    response = await ask_decision(f"/v1/desired/{namespace}/chat", tmp_path, f"Bearer {shown}")

    assert response.status_code == status
    assert "token of" not in response.text


async def test_without_a_token_nothing_is_served() -> None:
    response = await ask_decision(URL, None)

    assert response.status_code == 404
    assert "INFERNO_PUBLISH_TOKEN_FILE" in response.json()["error"]


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_a_token_that_cannot_be_read_opens_nothing(content: str | None, token: Path) -> None:
    write(token, content)

    decision = await ask_decision(URL, token, "Bearer")
    metrics = await ask("/metrics", token=token, authorization="Bearer x")

    for response in (decision, metrics):
        assert (response.status_code, str(token) in response.json()["error"]) == (503, True)
