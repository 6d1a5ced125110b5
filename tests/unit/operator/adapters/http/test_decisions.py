"""Decisions over HTTP, as an autoscaler asks for them."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from inferno_operator.adapters.http import app
from inferno_operator.adapters.http.app import Decisions
from inferno_operator.adapters.http.metrics import OperatorMetrics
from inferno_operator.controllers.scaling.publication import Published
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.ports import GoneError
from inferno_optimizer.errors import UnavailableError
from tests.controlplane.waiting import PATIENCE_S

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


async def ask(path: str, token: Path | None, authorization: str | bytes = "") -> httpx.Response:
    decisions = Decisions(decide, token)
    sent = authorization or f"Bearer {TOKEN}"
    async with (
        app.serve(app.LOOPBACK, 0, (str, str), OperatorMetrics().page, decisions) as port,
        httpx.AsyncClient(base_url=f"http://{app.LOOPBACK}:{port}", timeout=PATIENCE_S) as client,
    ):
        return await client.get(path, headers=[(b"Authorization", _bytes(sent))])


def write(file: Path, content: str | None) -> None:
    """Write a file, or delete it if there is no content."""
    if content is None:
        file.unlink()
    else:
        file.write_text(content)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


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
    response = await ask(path, token)

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
    response = await ask(path, token)

    assert response.status_code == status
    assert response.json().keys() == {"error"}
    assert error in response.json()["error"]
    assert "\n" not in response.text


@pytest.mark.parametrize(
    "authorization", ["Bearer other", "Basic dDp0", f"Bearer {TOKEN}x", "Bearer", b"Bearer \xff"]
)
async def test_only_the_token_opens(authorization: str | bytes, token: Path) -> None:
    response = await ask(URL, token, authorization)

    assert (response.status_code, response.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert TOKEN not in response.text


async def test_the_name_of_the_scheme_has_no_case(token: Path) -> None:
    assert (await ask(URL, token, f"bearer {TOKEN}")).status_code == 200


async def test_another_token_in_the_file_replaces_the_first(token: Path) -> None:
    decisions = Decisions(decide, token)
    async with (
        app.serve(app.LOOPBACK, 0, (str, str), OperatorMetrics().page, decisions) as port,
        httpx.AsyncClient(base_url=f"http://{app.LOOPBACK}:{port}", timeout=PATIENCE_S) as client,
    ):
        statuses = []
        for written, shown in (("new", TOKEN), ("new", "new")):
            write(token, written)
            answer = await client.get(URL, headers={"Authorization": f"Bearer {shown}"})
            statuses.append(answer.status_code)

    assert statuses == [401, 200]


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

    response = await ask(f"/v1/desired/{namespace}/chat", tmp_path, f"Bearer {shown}")

    assert response.status_code == status
    assert "token of" not in response.text


async def test_without_a_token_nothing_is_served() -> None:
    response = await ask(URL, None)

    assert response.status_code == 404
    assert "INFERNO_PUBLISH_TOKEN_FILE" in response.json()["error"]


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_a_token_that_cannot_be_read_opens_nothing(content: str | None, token: Path) -> None:
    write(token, content)

    response = await ask(URL, token, "Bearer")

    assert (response.status_code, str(token) in response.json()["error"]) == (503, True)
