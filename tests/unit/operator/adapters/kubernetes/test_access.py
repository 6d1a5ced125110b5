"""Credentials that expire, rotate or are refused, before an API server that is made up."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web

from inferno_operator.adapters.kubernetes import access
from inferno_operator.adapters.kubernetes.access import ApiAccess, Kubeconfig
from inferno_operator.adapters.kubernetes.api_server import ApiReader
from inferno_operator.adapters.kubernetes.client import client
from inferno_operator.adapters.kubernetes.plan_key import (
    SECRET,
    KeyOfProcess,
    KeyOfSecret,
    key_of_file,
)
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, kind_of
from inferno_operator.runtime.ports import (
    GoneError,
    RejectedError,
    StaleError,
    UnauthenticatedError,
)
from inferno_optimizer.errors import InfernoError, InputError, UnavailableError
from tests.unit.operator.background import serving

VERSION = "client.authentication.k8s.io/v1"
SERVER = kind_of(Server)


class Clock:
    """A time of day that a test sets."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 29, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def later(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class Api:
    """An API server that takes some tokens, or some names of certificates.

    Attributes
    ----------
    good
        What it takes.
    seen
        What it was sent.
    busy
        When to come back and the status, for each of the next requests.
    """

    def __init__(self, *good: str) -> None:
        self.good = set(good)
        self.seen: list[str] = []
        self.busy: list[tuple[str, int]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        header = request.headers.get("Authorization", "")
        certificate = request.get_extra_info("peercert") or {}
        names = [value for part in certificate.get("subject", ()) for (_, value) in part]
        known_by = header.removeprefix("Bearer ") or (names[-1] if names else "")
        self.seen.append(known_by)
        if self.busy:
            wait, status = self.busy.pop(0)
            return web.json_response({}, status=status, headers={"Retry-After": wait})
        if known_by not in self.good:
            return web.json_response({"message": "Unauthorized"}, status=401)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})


class Plugin:
    """A plugin that prints what is in a file, and counts its calls."""

    def __init__(self, folder: Path) -> None:
        self._printed, self._count = folder / "printed", folder / "calls"
        self.path = folder / "plugin.sh"
        self.path.write_text(f'#!/bin/sh\necho x >> "{self._count}"\n. "{self._printed}"\n')
        self.path.chmod(0o755)

    def give(self, token: str = "", expires: datetime | None = None, **status: str) -> None:
        """Print credentials from now on."""
        if token:
            status["token"] = token
        if expires:
            status["expirationTimestamp"] = expires.isoformat().replace("+00:00", "Z")
        answer = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
        self._printed.write_text(f"cat <<'END'\n{json.dumps(answer)}\nEND\n")

    def fail(self, words: str) -> None:
        """End with status 1 from now on."""
        self._printed.write_text(f"echo '{words}' >&2; exit 1\n")

    @property
    def calls(self) -> int:
        return len(self._count.read_text()) // 2

    @property
    def user(self) -> dict[str, object]:
        return {"exec": {"apiVersion": VERSION, "command": f"./{self.path.name}"}}


def write_kubeconfig(
    path: Path, url: str, user: dict[str, object], authority: Path | None = None
) -> Path:
    cluster = {"server": url, **({"certificate-authority": str(authority)} if authority else {})}
    context = {"cluster": "c", "user": "u", "namespace": "n"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return path


@asynccontextmanager
async def connected(kubeconfig: Path, clock: Clock) -> AsyncIterator[ApiReader]:
    load = Kubeconfig(str(kubeconfig), now=clock).load
    async with (
        aclosing(await ApiAccess.begin(str(kubeconfig), load, clock)) as access,
        client(access) as api,
    ):
        yield ApiReader(api)


@asynccontextmanager
async def connected_by(plugin: Plugin, api: Api, clock: Clock) -> AsyncIterator[ApiReader]:
    """Serve, and connect with what a plugin gives."""
    async with serving(api.answer) as url:
        kubeconfig = write_kubeconfig(plugin.path.with_name("k"), url, plugin.user)
        async with connected(kubeconfig, clock) as reader:
            yield reader


async def ask(reader: ApiReader) -> None:
    await reader.list(SERVER, "n")


async def ask_until(reader: ApiReader, api: Api, token: str) -> None:
    """Ask until a request has a token: it is loaded beside the requests."""
    async with asyncio.timeout(20):
        while api.seen[-1:] != [token]:
            await ask(reader)


async def until_calls(plugin: Plugin, number: int) -> None:
    async with asyncio.timeout(20):
        while plugin.calls < number:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


@pytest.mark.parametrize("seconds", [20, 3600])
async def test_a_plugin_is_called_again_before_its_token_expires(
    seconds: int, clock: Clock, plugin: Plugin, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api("t1", "t2", "t3")
    plugin.give("t1", expires=clock() + timedelta(seconds=seconds))

    with caplog.at_level("INFO"):
        async with connected_by(plugin, api, clock) as reader:
            clock.later(seconds / 2)
            await ask(reader)
            assert plugin.calls == 1
            for number in (2, 3):
                plugin.give(f"t{number}", expires=clock() + timedelta(seconds=1.4 * seconds))
                clock.later(seconds / 2 - 1)
                await ask(reader)  # with the token that is good still
                await until_calls(plugin, number)
                await ask_until(reader, api, f"t{number}")
                clock.later(0.5 * seconds)

    assert plugin.calls == 3
    assert [m for m in caplog.messages if "as they expire" in m] == [caplog.messages[0]]


async def test_a_token_that_has_expired_is_not_sent(clock: Clock, plugin: Plugin) -> None:
    api = Api("t1", "t2")
    plugin.give("t1", expires=clock() + timedelta(seconds=20))

    async with connected_by(plugin, api, clock) as reader:
        plugin.give("t2", expires=clock() + timedelta(seconds=120))
        clock.later(60)
        await asyncio.gather(*(ask(reader) for _ in range(8)))

    assert (plugin.calls, set(api.seen)) == (2, {"t2"})


async def test_a_plugin_is_called_once_after_a_refusal(clock: Clock, plugin: Plugin) -> None:
    api = Api("t1")
    plugin.give("t1")

    async with connected_by(plugin, api, clock) as reader:
        await ask(reader)
        api.good = {"t2"}
        plugin.give("t2")
        clock.later(3600)
        await asyncio.gather(*(ask(reader) for _ in range(8)))

    assert plugin.calls == 2


async def test_credentials_that_stay_refused_are_said_once(
    clock: Clock, plugin: Plugin, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api("t1")
    plugin.give("t1")

    async with connected_by(plugin, api, clock) as reader:
        await ask(reader)
        api.good = {"t2"}
        plugin.fail("the session has ended: log in")
        clock.later(5)
        for _ in range(60):
            clock.later(1)
            with pytest.raises(UnauthenticatedError, match="session has ended"):
                await ask(reader)
        refused = list(caplog.messages)
        plugin.give("t2")
        clock.later(10)
        await ask(reader)

    assert len(refused) == 2
    assert "status 1: the session has ended: log in" in refused[0]
    assert "HTTP 401" in refused[1]
    assert plugin.calls < 15


async def test_a_plugin_that_fails_for_a_while_is_no_outage(
    clock: Clock, plugin: Plugin, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api("t1", "t2")
    plugin.give("t1", expires=clock() + timedelta(seconds=20))

    async with connected_by(plugin, api, clock) as reader:
        plugin.fail("no network")
        clock.later(18)
        await ask(reader)
        async with asyncio.timeout(20):
            while "no network" not in caplog.text:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.01)
        plugin.give("t2", expires=clock() + timedelta(seconds=30))
        clock.later(6)
        await ask_until(reader, api, "t2")


async def test_a_busy_api_server_is_asked_again(clock: Clock, plugin: Plugin) -> None:
    api = Api("t1")
    api.busy = [("0", 429), ("0", 503)]
    plugin.give("t1")

    async with connected_by(plugin, api, clock) as reader:
        await ask(reader)

    assert len(api.seen) == 3


async def test_an_api_server_that_is_busy_for_long_is_not_waited_for(
    clock: Clock, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api("t1")
    api.busy = [("3600", 429)]
    plugin.give("t1")
    monkeypatch.setattr(access, "BUSY_S", 0.5)

    async with connected_by(plugin, api, clock) as reader:
        with pytest.raises(UnavailableError, match="the API server does not answer"):
            await ask(reader)


@pytest.mark.parametrize("is_refused", [True, False])
@pytest.mark.parametrize("where", ["tokenFile", "token"])
async def test_a_token_in_a_file_is_read_again(
    where: str, is_refused: bool, clock: Clock, tmp_path: Path
) -> None:
    api = Api("t1", "t2")

    def write(token: str, url: str) -> Path:
        (tmp_path / "token").write_text(f"{token}\n")  # as an editor or a Secret has it
        user: dict[str, object] = {"tokenFile": "token"} if where == "tokenFile" else {where: token}
        return write_kubeconfig(tmp_path / "k", url, user)

    async with serving(api.answer) as url, connected(write("t1", url), clock) as reader:
        await ask(reader)
        write("t2", url)
        if is_refused:
            api.good = {"t2"}
        clock.later(6 if is_refused else 61)
        await ask(reader)
        await ask_until(reader, api, "t2")

    assert api.seen[0] == "t1"


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trust(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.configure_trust(context)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize("source", ["files", "data", "plugin"])
async def test_a_certificate_that_rotates_is_used(
    source: str,
    clock: Clock,
    plugin: Plugin,
    authority: trustme.CA,
    trust: ssl.SSLContext,
    tmp_path: Path,
) -> None:
    api = Api("one")
    authority.cert_pem.write_to_path(tmp_path / "ca")

    def issue(name: str, url: str) -> Path:
        pair = authority.issue_cert(f"{name}.example.com", common_name=name)
        certificate, key = pair.cert_chain_pems[0].bytes(), pair.private_key_pem.bytes()
        (tmp_path / "crt").write_bytes(certificate)
        (tmp_path / "key").write_bytes(key)
        plugin.give(clientCertificateData=certificate.decode(), clientKeyData=key.decode())
        data = {
            "client-certificate-data": base64.b64encode(certificate).decode(),
            "client-key-data": base64.b64encode(key).decode(),
        }
        files = {"client-certificate": "crt", "client-key": "key"}
        users: dict[str, dict[str, object]] = {
            "files": {**files},
            "data": {**data},
            "plugin": plugin.user,
        }
        return write_kubeconfig(tmp_path / "k", url, users[source], tmp_path / "ca")

    async with serving(api.answer, trust) as url, connected(issue("one", url), clock) as reader:
        await ask(reader)
        api.good = {"two"}
        issue("two", url)
        clock.later(6)
        await ask(reader)

    assert api.seen == ["one", "one", "two"]


async def test_an_authority_that_rotates_is_trusted(clock: Clock, tmp_path: Path) -> None:
    api, old, new = Api("t"), trustme.CA(), trustme.CA()
    contexts = {}
    for authority in (old, new):
        contexts[authority] = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(contexts[authority])
    old.cert_pem.write_to_path(tmp_path / "ca")

    async with serving(api.answer, contexts[new]) as url:
        user: dict[str, object] = {"token": "t"}
        kubeconfig = write_kubeconfig(tmp_path / "k", url, user, tmp_path / "ca")
        async with connected(kubeconfig, clock) as reader:
            new.cert_pem.write_to_path(tmp_path / "ca")
            clock.later(6)
            await ask(reader)

    assert api.seen == ["t"]


async def test_another_cluster_in_the_kubeconfig_is_not_followed(
    clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api("t1")

    async with serving(api.answer) as url:
        kubeconfig = write_kubeconfig(tmp_path / "k", url, {"token": "t1"})
        async with connected(kubeconfig, clock) as reader:
            write_kubeconfig(kubeconfig, "http://127.0.0.1:1", {"token": "t2"})
            for _ in range(3):
                clock.later(61)
                await ask(reader)
                await asyncio.sleep(0)
            await ask(reader)

    assert set(api.seen) == {"t1"}
    assert "another API server" in caplog.text


def _printing(status: dict[str, object]) -> dict[str, object]:
    return {"command": "echo", "args": [json.dumps({"apiVersion": VERSION, "status": status})]}


async def test_what_a_plugin_that_hangs_has_started_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferno_operator.adapters.kubernetes.access.PLUGIN_S", 0.2)
    hangs = {"apiVersion": VERSION, "command": "sh", "args": ["-c", "sleep 60; true"]}
    kubeconfig = write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1", {"exec": hangs})

    async with asyncio.timeout(20):
        with pytest.raises(InputError, match="does not end in"):
            await ApiAccess.begin(str(kubeconfig), Kubeconfig(str(kubeconfig)).load)


async def test_a_token_with_a_line_end_is_sent_without_it(clock: Clock, plugin: Plugin) -> None:
    api = Api("t1")
    plugin.give("t1\n")

    async with connected_by(plugin, api, clock) as reader:
        await ask(reader)

    assert api.seen == ["t1"]


@pytest.mark.parametrize(
    ("exec_", "words"),
    [
        ({"command": "no-such-x", "installHint": "get it\nthere"}, "cannot be started: .*: get it"),
        ({"command": "./plugin.sh"}, "ends with status 1: log in first"),
        ({"command": "echo", "args": ["s3cret"]}, "does not print an ExecCredential"),
        ({"command": "true"}, "does not print an ExecCredential"),
        ({"command": ""}, "needs command and apiVersion"),
        ({"command": "yes", "args": ["s3cret"]}, "prints more than 1 MiB"),
        ({"command": "sh", "args": ["-c", "yes >&2"]}, "prints more than 1 MiB"),
        (
            {"command": "sh", "args": ["-c", "head -c 500000 /dev/zero | tr '\\0' '['"]},
            "does not print an ExecCredential",
        ),
        ({"command": ["aws", "eks"]}, "exec.command is not text"),
        ({"command": "aws", "args": "eks get-token"}, "exec.args is not a list of texts"),
        ({"command": "aws", "args": ["--port", 80]}, "exec.args is not a list of texts"),
        ({"command": "aws", "env": {"A": "b"}}, "exec.env is not a list of names and values"),
        (
            {"command": "aws", "env": [{"name": "A", "value": 1}]},
            "exec.env is not a list of names and values",
        ),
        (_printing({"token": "s3cret\nx"}), "a token that is not one word"),
        (_printing({"token": "s3\0cret"}), "a token that is not one word"),
        (_printing({"token": ["s3cret"]}), "a token that is not one word"),
        (
            _printing({"clientCertificateData": {"a": 1}, "clientKeyData": "s3cret"}),
            "a certificate or key that is not text",
        ),
        (_printing({"token": "t", "expirationTimestamp": "soon"}), "expirationTimestamp"),
        (_printing({"token": "t", "expirationTimestamp": 17}), "expirationTimestamp"),
        (_printing({"token": "t", "expirationTimestamp": "2026-11-29T00:00:00"}), "no time zone"),
    ],
)
async def test_a_plugin_that_gives_nothing_is_named(
    exec_: dict[str, object], words: str, plugin: Plugin, tmp_path: Path
) -> None:
    plugin.fail("log in first")
    user: dict[str, object] = {"exec": {"apiVersion": VERSION, **exec_}}
    kubeconfig = write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1", user)

    with pytest.raises(InputError, match=f"no access to a cluster: .*{words}") as error:
        await ApiAccess.begin(str(kubeconfig), Kubeconfig(str(kubeconfig)).load)

    assert "s3cret" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"exec": ["aws"]}, "not a kubeconfig"),
        ("aws", "not a kubeconfig"),
        ({"tokenFile": "/no/token"}, "/no/token: No such file or directory"),
    ],
)
async def test_a_user_that_cannot_be_used_is_named(
    user: Any,  # noqa: ANN401 - anything that YAML can say
    words: str,
    tmp_path: Path,
) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1", user)

    with pytest.raises(InputError, match=words):
        await ApiAccess.begin(str(kubeconfig), Kubeconfig(str(kubeconfig)).load)


async def test_a_variable_of_a_plugin_without_a_value_is_empty(tmp_path: Path) -> None:
    prints = _printing({"token": "t"})
    user: dict[str, object] = {"exec": {"apiVersion": VERSION, **prints, "env": [{"name": "A"}]}}
    kubeconfig = write_kubeconfig(tmp_path / "k", "http://127.0.0.1:1", user)

    access = await ApiAccess.begin(str(kubeconfig), Kubeconfig(str(kubeconfig)).load)

    assert access.identity.token == "Bearer t"  # noqa: S105 - made up


# Where the key that signs Plans comes from: a file, a Secret, or nowhere else


PLACE = Key("inferno-system", SECRET)


class Secrets:
    """Secrets in memory; the first creator of one wins."""

    def __init__(self) -> None:
        self.stored: dict[Key, Mapping[str, bytes]] = {}
        self.managers: list[str] = []
        self.failures: list[InfernoError] = []

    async def secret(self, key: Key) -> Mapping[str, bytes]:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        if key not in self.stored:
            raise GoneError("there is no such Secret")
        return self.stored[key]

    async def create_secret(self, key: Key, data: Mapping[str, bytes], manager: str) -> None:
        await asyncio.sleep(0)
        if key in self.stored:
            raise StaleError("another manager has other data")
        self.stored[key] = data
        self.managers.append(manager)


async def test_the_first_operator_makes_the_secret_and_all_use_its_key() -> None:
    secrets = Secrets()
    operators = [KeyOfSecret(secrets, PLACE, name) for name in ("one", "other")]

    keys = await asyncio.gather(*(operator() for operator in operators))
    later = await KeyOfSecret(secrets, PLACE, "later")()

    assert len(set(keys)) == 1
    assert later == keys[0] == secrets.stored[PLACE]["key"]
    assert len(later) == 32
    assert len(secrets.managers) == 1
    secrets.stored.clear()
    assert await operators[0]() == later  # it is read once


async def test_an_api_server_that_does_not_answer_is_no_reason_for_another_key() -> None:
    secrets = Secrets()
    secrets.stored[PLACE] = {"key": b"k" * 32}
    secrets.failures.append(UnavailableError("no answer"))
    operator = KeyOfSecret(secrets, PLACE, "one")

    with pytest.raises(UnavailableError):
        await operator()

    assert await operator() == b"k" * 32


async def test_without_the_right_to_the_secret_the_key_ends_with_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secrets = Secrets()
    secrets.failures.append(RejectedError("forbidden"))
    operator = KeyOfSecret(secrets, PLACE, "one")

    key = await operator()

    assert await operator() == key
    assert "forbidden" in caplog.text
    assert "proposes them again" in caplog.text


async def test_a_short_key_in_the_secret_is_refused() -> None:
    secrets = Secrets()
    secrets.stored[PLACE] = {"key": b"short"}

    with pytest.raises(InputError, match="delete the Secret"):
        await KeyOfSecret(secrets, PLACE, "one")()


async def test_a_file_has_the_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("a key that is long enough\n")

    assert await key_of_file(file)() == b"a key that is long enough"


@pytest.mark.parametrize("text", [None, "", "short\n"])
def test_a_file_that_is_not_there_or_has_too_little_is_refused(
    text: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    if text is not None:
        file.write_text(text)

    with pytest.raises(InputError, match="INFERNO_PLAN_KEY_FILE"):
        key_of_file(file)


async def test_two_processes_have_two_keys() -> None:
    one, other = KeyOfProcess(), KeyOfProcess()

    assert await one() == await one() != await other()
