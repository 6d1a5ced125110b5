"""TLS and tokens, from files that change on disk."""

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
import trustme

from tests.cli.program import SMALL
from tests.controlplane.waiting import PATIENCE_S
from tests.rest.serving import Served, serving

TOKEN = "correct-horse"  # noqa: S105 - made up


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}".strip()}


def status(server: Served, path: str, headers: Mapping[str, str]) -> int:
    return httpx.get(f"{server.url}{path}", headers=headers, timeout=PATIENCE_S).status_code


@pytest.mark.parametrize("path", ["/getModels", "/metrics", "/openapi.json", "/nothing"])
@pytest.mark.parametrize(
    "headers",
    [{}, bearer("wrong"), bearer(""), {"Authorization": f"Basic {TOKEN}"}, bearer(f"{TOKEN}x")],
)
def test_without_the_token_there_is_no_answer(
    guarded: Served, path: str, headers: dict[str, str]
) -> None:
    reply = httpx.get(f"{guarded.url}{path}", headers=headers, timeout=PATIENCE_S)

    assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert "token" in reply.json()["message"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "token").write_text(TOKEN)
    with serving(folder, "--token-file", str(folder / "token")) as server:
        yield server


def test_with_the_token_it_answers_and_health_needs_none(guarded: Served) -> None:
    with guarded.client() as client:
        reply = client.post("/optimizeOne", content=SMALL.read_bytes(), headers=bearer(TOKEN))

    assert reply.status_code == 200
    assert [status(guarded, path, {}) for path in ("/healthz", "/readyz")] == [200, 200]


def test_a_token_that_changes_on_disk_counts_at_once(tmp_path: Path, token_file: Path) -> None:
    with serving(tmp_path, environment={"INFERNO_TOKEN_FILE": str(token_file)}) as server:
        before = status(server, "/getModels", bearer(TOKEN))
        replacement = tmp_path / "next"
        replacement.write_text("battery-staple")
        replacement.rename(token_file)
        after = [status(server, "/getModels", bearer(t)) for t in (TOKEN, "battery-staple")]
        token_file.write_text("")
        emptied = status(server, "/getModels", bearer("battery-staple"))
        nothing = status(server, "/getModels", bearer(""))

    assert (before, after) == (200, [401, 200])
    assert (emptied, nothing) == (200, 401)
    log = server.log.read_text()
    assert "is empty" in log
    assert TOKEN not in log
    assert "battery-staple" not in log


class Authority:
    """A certificate authority, and where its certificates are put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.trust = ssl.create_default_context(cafile=str(folder / "ca.pem"))

    def issue(self) -> None:
        certificate = self.ca.issue_cert("127.0.0.1")
        for name, blob in (
            ("key.pem", certificate.private_key_pem),
            ("cert.pem", certificate.cert_chain_pems[0]),
        ):
            blob.write_to_path(str(self.folder / "new"))
            (self.folder / "new").rename(self.folder / name)

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "INFERNO_TLS_CERT": str(self.folder / "cert.pem"),
            "INFERNO_TLS_KEY": str(self.folder / "key.pem"),
            **more,
        }


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority(tmp_path)
    authority.issue()
    return authority


def certificate_of(server: Served) -> str:
    host, _, port = server.url.removeprefix("https://").partition(":")
    return ssl.get_server_certificate((host, int(port)))


def test_it_speaks_tls_and_takes_up_a_certificate_that_is_replaced_on_disk(
    tmp_path: Path, authority: Authority
) -> None:
    with serving(tmp_path, environment=authority.environment()) as server:
        with pytest.raises(httpx.ConnectError):  # without trust
            httpx.get(f"{server.url}/healthz", timeout=PATIENCE_S)
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{server.url.replace('https', 'http')}/healthz", timeout=PATIENCE_S)
        first = certificate_of(server)
        authority.issue()
        second = certificate_of(server)
        (tmp_path / "cert.pem").write_text("half of")
        third = certificate_of(server)
        reply = httpx.get(f"{server.url}/healthz", verify=authority.trust, timeout=PATIENCE_S)

    assert server.url.startswith("https://127.0.0.1:")
    assert first != second == third
    assert reply.status_code == 200
    log = server.log.read_text()
    assert "still used" in log
    assert "Traceback" not in log


def test_with_an_authority_clients_need_a_certificate_of_it(
    tmp_path: Path, authority: Authority
) -> None:
    environment = authority.environment(INFERNO_TLS_CA=str(tmp_path / "ca.pem"))
    known = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    authority.ca.issue_cert("client@example.org").configure_cert(known)
    with serving(tmp_path, environment=environment) as server:
        reply = httpx.get(f"{server.url}/healthz", verify=known, timeout=PATIENCE_S)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/healthz", verify=authority.trust, timeout=PATIENCE_S)

    assert reply.status_code == 200
