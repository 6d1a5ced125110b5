"""By what a client is known at the API server, renewed before it expires and when it is refused.

    pod's files | kubeconfig: token, files, plugin ──► Identity ──► ApiAccess ──► each request

A plugin is called again before what it gave expires; files are read again each minute. Requests
wait for that only where the identity has expired. A request that is refused (HTTP 401) is sent once
more if loading anew gives another identity. A read is sent again where the API server is busy and
says when to come back (`Retry-After`).
"""

import asyncio
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, ApiException, Configuration
from kubernetes.aio.client.rest import RESTClientObject, RESTResponse
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from inferno_operator.resources.objects import Now
from inferno_operator.runtime.texts import shortened
from inferno_optimizer.errors import InputError

RENEWED_S = 60.0
"""How often files are read again; how long before its end an identity is renewed at most [s]."""

SHARE_LEFT = 0.25
"""Share of its time that is left when an identity of a few minutes is renewed."""

RETRY_S = 5.0
"""Least time between two renewals [s]."""

PLUGIN_S = 60.0
"""How long a plugin may take that asks nobody [s]."""

KILLED_S = 5.0
"""How long the end of a plugin that was killed is waited for [s]."""

PRINTED_MIB = 1
"""What a plugin may print at most [MiB]."""

BUSY_S = 30.0
"""How long a busy API server is asked again before an answer begins [s]."""

KEPT_S = 600.0
"""How long connections with an earlier certificate stay open [s]; longer than any watch."""

DEFAULT_KUBECONFIG = "~/.kube/config"

TOKEN = "BearerToken"  # noqa: S105 - the client's name for it
HEADER = "authorization"

UNUSABLE = (
    config.ConfigException,
    yaml.YAMLError,
    aiohttp.ClientError,
    AttributeError,
    TypeError,
    OSError,
    ValueError,
    LookupError,
)
"""What the client raises for a kubeconfig, or files of it, that cannot be used."""

WORD = re.compile(r"[!-~]+")
"""What a header may have as a token."""

logger = logging.getLogger(__name__)


def no_access(origin: str, error: Exception) -> InputError:
    """Return what is said of kubeconfigs, or of what a pod has instead, that cannot be used."""
    match error:
        case TypeError() | AttributeError():  # the client takes for granted that it is an object
            text = "not a kubeconfig"
        case UnicodeDecodeError():
            text = f"not UTF-8 text (byte {error.start + 1})"
        case OSError():
            text = error.strerror or str(error)
            if error.filename and str(error.filename) not in origin:
                text = f"{error.filename}: {text}"
        case _:
            text = " ".join(str(error).split())
    return InputError(": ".join(filter(None, ("no access to a cluster", origin, text))))


@dataclass(frozen=True, slots=True)
class Identity:
    """What requests and connections are made with.

    Parameters
    ----------
    configuration
        The client's settings.
    tls
        A digest of the certificates and the key.
    due, expires
        When it should be loaded anew, and until when it is good; None if that is not known.
    pair
        A certificate and its key that are in no files.
    """

    configuration: Configuration
    tls: bytes
    due: datetime | None
    expires: datetime | None = None
    pair: tuple[str, str] | None = None

    @classmethod
    def of(
        cls,
        configuration: Configuration,
        due: datetime | None,
        expires: datetime | None = None,
        pair: tuple[str, str] | None = None,
    ) -> "Identity":
        """Return the identity with these settings, whose files are read."""
        files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        contents = [Path(file).read_bytes() if file else b"" for file in files]
        contents += [text.encode() for text in pair or ()]
        tls = sha256(b"".join(sha256(content).digest() for content in contents)).digest()
        # The client would read .netrc, and ask for the proxy, in a thread and for every request.
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.proxy = configuration.proxy or _proxy(configuration.host)
        configuration.client_go_retries = True  # reads wait as told: "storage is initializing"
        identity = cls(configuration, tls, due, expires, pair)
        if pair or configuration.cert_file:
            identity.open_connections(1)  # raises where the key is that of another certificate
        return identity

    @property
    def token(self) -> str | None:
        """The value of the header, None without a token."""
        token: str | None = self.configuration.api_key.get(TOKEN)
        return token and token.strip()  # a file may end with a line end

    def open_connections(self, most: int) -> RESTClientObject:
        """Return connections with its certificate; the client reads that from files only."""
        if self.pair is None:
            made = RESTClientObject(self.configuration)
        else:
            with TemporaryDirectory() as folder:
                paths = [str(Path(folder, name)) for name in ("tls.crt", "tls.key")]
                for path, text in zip(paths, self.pair, strict=True):
                    Path(path).write_text(text, encoding="utf-8")
                self.configuration.cert_file, self.configuration.key_file = paths
                made = RESTClientObject(self.configuration)
                self.configuration.cert_file = self.configuration.key_file = None
        made.maxsize = most
        return made

    def is_same(self, other: "Identity") -> bool:
        """Whether the API server sees no difference."""
        return (self.token, self.tls) == (other.token, other.tls)


def _proxy(url: str) -> str | None:
    """Return the proxy for a URL from the environment, if there is one."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


Load = Callable[[], Awaitable[Identity]]
"""Loads what is good now; raises one of `UNUSABLE`."""


def time_of_day() -> datetime:
    """Return the time of day."""
    return datetime.now(UTC)


async def load_pod() -> Identity:
    """Load the service account of the pod."""
    configuration = Configuration()
    config.load_incluster_config(configuration, try_refresh_token=False)  # type: ignore[no-untyped-call]  # the client has no types there
    return Identity.of(configuration, time_of_day() + timedelta(seconds=RENEWED_S))


class Kubeconfig:
    """One context of one or several kubeconfigs.

    Parameters
    ----------
    paths
        The files, separated as in KUBECONFIG.
    context
        Name of the context; None: the current one, when it is loaded first.
    now
        The time of day.
    """

    def __init__(self, paths: str, context: str | None = None, now: Now = time_of_day) -> None:
        self._paths, self._context, self._now = paths, context, now
        self._files: Sequence[tuple[int, ...]] | None = None
        self._host = ""

    async def load(self) -> Identity:
        """Load the identity; the files are parsed again where they have changed.

        Raises
        ------
        Exception
            One of `UNUSABLE`.
        """
        files = [*self._states()]
        if files != self._files:
            merged = KubeConfigMerger(self._paths).config  # type: ignore[no-untyped-call]  # nor there
            if merged is None:
                raise config.ConfigException("there is no kubeconfig")
            self._loader = _Loader(merged, self._context, self._now)
            self._context = self._loader.current_context["name"]
            self._files = files
        configuration = Configuration()
        await self._loader.load_and_set(configuration)  # type: ignore[no-untyped-call]  # nor there
        if self._host not in ("", configuration.host):
            raise config.ConfigException(
                f"context {self._context!r} is of another API server now: start again to follow it"
            )
        self._host = configuration.host
        if self._loader.has_plugin:
            times = self._loader.due, self._loader.expires
            return Identity.of(configuration, *times, self._loader.pair)
        return Identity.of(configuration, self._now() + timedelta(seconds=RENEWED_S))

    @property
    def namespace(self) -> str:
        """The namespace of the context, "" if it names none."""
        return self._loader.current_context["context"].get("namespace") or ""

    def _states(self) -> Sequence[tuple[int, ...]]:
        """Return what changes when a file is replaced."""
        paths = [Path(path).expanduser() for path in self._paths.split(os.pathsep) if path]
        stats = [path.stat() for path in paths if path.exists()]
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]


class _Loader(KubeConfigLoader):
    """The client's loader, with a plugin that is called whenever it loads."""

    def __init__(self, merged: Any, context: str | None, now: Now) -> None:  # noqa: ANN401 - the client's
        super().__init__(merged, context, config_base_path=None)  # type: ignore[no-untyped-call]  # nor there
        self._now = now
        self._calls = 0
        self.pair: tuple[str, str] | None = None
        self.due: datetime | None = None
        self.expires: datetime | None = None

    @property
    def has_plugin(self) -> bool:
        """Whether a plugin gives the credentials."""
        return self._calls > 0

    async def load_from_exec_plugin(self) -> bool:
        """Call the plugin, and take its token, its certificate or both."""
        user: Any = self._user
        base = Path(self._get_base_path(user.path))  # type: ignore[no-untyped-call]  # nor there
        self._calls += 1
        asks = self._calls == 1 and sys.stdin is not None and sys.stdin.isatty()
        began = self._now()
        self._take(await _call_plugin(user["exec"].value, base, may_ask=asks), began)
        return True

    def _take(self, status: Mapping[str, Any], began: datetime) -> None:
        token, certificate = status.get("token"), status.get("clientCertificateData")
        key = status.get("clientKeyData")
        if not token and not (certificate and key):
            raise config.ConfigException("the plugin gives no token and no certificate with a key")
        if token:
            if not isinstance(token, str) or not WORD.fullmatch(token.strip()):
                raise config.ConfigException("the plugin gives a token that is not one word")
            self.token = f"Bearer {token.strip()}"
        self.pair = (certificate, key) if certificate and key else None
        if not all(isinstance(text, str) for text in self.pair or ()):
            raise config.ConfigException("the plugin gives a certificate or key that is not text")
        self.due = self.expires = None
        if ends := status.get("expirationTimestamp"):
            self.expires = _parse_time(ends)
            left = max(SHARE_LEFT * (self.expires - began), timedelta())
            self.due = self.expires - min(left, timedelta(seconds=RENEWED_S))


def _parse_time(text: object) -> datetime:
    """Return when credentials end, as a plugin says it."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        raise config.ConfigException(
            f"the plugin gives expirationTimestamp {shortened(str(text), 40)!r}, which is not a"
            " time such as 2026-11-29T12:00:00Z"
        ) from None
    if time.tzinfo is None:
        raise config.ConfigException("the plugin gives an expirationTimestamp with no time zone")
    return time


async def _call_plugin(
    settings: Mapping[str, Any], base: Path, *, may_ask: bool
) -> Mapping[str, Any]:
    """Return the status of the ExecCredential that a plugin prints.

    See kubernetes.io/docs/reference/access-authn-authz/authentication, client-go credential
    plugins. No message shows what it prints: that is a secret.
    """
    command, version = settings.get("command"), settings.get("apiVersion")
    if not command or not version:
        raise config.ConfigException("users[].user.exec needs command and apiVersion")
    if problem := _problem_of(settings):
        raise config.ConfigException(f"users[].user.exec.{problem}")
    about = f"the plugin {command!r}"
    may_ask = may_ask and settings.get("interactiveMode") != "Never"
    process = await _start_plugin(settings, base, about, may_ask=may_ask)
    printed, said = await _read_all(process, about, may_ask=may_ask)
    if process.returncode:
        text = f"{about} ends with status {process.returncode}"
        words = shortened(said.decode(errors="replace"))
        raise config.ConfigException(": ".join(filter(None, (text, words))))
    return _parse_status(printed, version, about)


def _problem_of(settings: Mapping[str, Any]) -> str:
    """Return which setting of a plugin has another type, "" if none has."""
    args, env = settings.get("args") or [], settings.get("env") or []
    if not isinstance(settings["command"], str):
        return "command is not text"
    if not isinstance(args, list) or not all(isinstance(text, str) for text in args):
        return "args is not a list of texts, each in quotes"
    is_list = isinstance(env, list) and all(isinstance(item, dict) for item in env)
    pairs = [(item.get("name"), item.get("value", "")) for item in env] if is_list else [(None, "")]
    if not all(isinstance(text, str) for pair in pairs for text in pair):
        return "env is not a list of names and values, each in quotes"
    return ""


async def _start_plugin(
    settings: Mapping[str, Any], base: Path, about: str, *, may_ask: bool
) -> asyncio.subprocess.Process:
    command = settings["command"]
    program = str(base / command) if os.sep in command else command
    request = {
        "apiVersion": settings["apiVersion"],
        "kind": "ExecCredential",
        "spec": {"interactive": may_ask},
    }
    given = {item["name"]: item.get("value", "") for item in settings.get("env") or ()}
    try:
        return await asyncio.create_subprocess_exec(
            *(program, *(settings.get("args") or ())),
            env={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            stdin=None if may_ask else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=not may_ask,
        )
    except OSError as error:
        hint = " ".join(str(settings.get("installHint") or "").split())
        text = ": ".join(filter(None, (f"{about} cannot be started", error.strerror, hint)))
        raise config.ConfigException(text) from error


async def _read_all(
    process: asyncio.subprocess.Process, about: str, *, may_ask: bool
) -> tuple[bytes, bytes]:
    """Return what a plugin prints to stdout and stderr; it has ended then, or is killed."""
    readers = [asyncio.create_task(_read(s)) for s in (process.stdout, process.stderr)]
    try:
        async with asyncio.timeout(None if may_ask else PLUGIN_S):
            printed, said = await asyncio.gather(*readers)
            await process.wait()
    except TimeoutError as error:
        raise config.ConfigException(f"{about} does not end in {PLUGIN_S:g} s") from error
    except asyncio.LimitOverrunError as error:
        raise config.ConfigException(f"{about} prints more than {PRINTED_MIB} MiB") from error
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        if process.returncode is None:
            await _kill(process, with_children=not may_ask)
    return printed, said


def _parse_status(printed: bytes, version: str, about: str) -> Mapping[str, Any]:
    """Return the status of an ExecCredential."""
    try:
        answer = json.loads(printed)
        if answer["apiVersion"] != version:
            raise config.ConfigException(f"{about} does not print apiVersion {version}")
        return dict(answer["status"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = f"{about} does not print an ExecCredential with a status"
        raise config.ConfigException(text) from None


async def _kill(process: asyncio.subprocess.Process, *, with_children: bool) -> None:
    """End a plugin, and what it has started: that may have its pipes, and would be waited for."""
    with suppress(ProcessLookupError):
        if with_children:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with suppress(TimeoutError):
        async with asyncio.timeout(KILLED_S):
            for stream in filter(None, (process.stdout, process.stderr)):
                while await stream.read(2**16):
                    pass
            await process.wait()


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """Return what a plugin prints."""
    printed = b""
    while stream is not None and (more := await stream.read(2**16)):
        printed += more
        if len(printed) > PRINTED_MIB * 2**20:
            raise asyncio.LimitOverrunError("", len(printed))
    return printed


class ApiAccess:
    """The identity of a process at an API server.

    Parameters
    ----------
    origin
        Where the identity comes from, for messages.
    load
        Loads it.
    identity
        What it has loaded first.
    now
        The time of day.
    """

    def __init__(self, origin: str, load: Load, identity: Identity, now: Now = time_of_day) -> None:
        self._origin, self._load, self._now = origin, load, now
        self._renewal: asyncio.Task[None] | None = None
        self._loaded_at = now()
        self._was_accepted = self._is_refused = self._has_renewed = self._has_tried = False
        self.identity = identity
        self.problem = ""
        """Why the identity cannot be loaded anew; "" if it can."""

    @classmethod
    async def begin(cls, origin: str, load: Load, now: Now = time_of_day) -> "ApiAccess":
        """Load an identity for the first time.

        Raises
        ------
        InputError
            It cannot be loaded.
        """
        try:
            return cls(origin, load, await load(), now)
        except UNUSABLE as error:
            raise no_access(origin, error) from error

    async def current(self) -> Identity:
        """Return what to send a request with."""
        due, expires = self.identity.due, self.identity.expires
        if due is not None and due <= self._now() and self._may_renew():
            self._renew()
        if self._renewal is not None and expires is not None and expires <= self._now():
            await asyncio.shield(self._renewal)
        return self.identity

    async def replace_refused(self, refused: Identity) -> Identity:
        """Return another identity than one that was refused, or the same if there is no other."""
        if self.identity is refused and (self._renewal is not None or self._may_renew()):
            await asyncio.shield(self._renew())
        return self.identity

    def note_answer(self, *, is_refused: bool) -> None:
        """Take note whether a request was refused in the end; the log says when that changes."""
        if not is_refused:
            if self._is_refused:
                logger.info("the API server takes the credentials of %s again", self._origin)
            self._was_accepted, self._is_refused, self._has_tried = True, False, False
        elif self._was_accepted and self._has_tried and not self._is_refused:
            self._is_refused = True
            cause = f"; {self.problem}" if self.problem else ""
            logger.warning(
                "the API server refuses the credentials of %s (HTTP 401), also after they were"
                " loaded anew%s",
                *(self._origin, cause),
            )

    async def aclose(self) -> None:
        """End a renewal that goes on."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)

    def _may_renew(self) -> bool:
        return self._renewal is None and self._now() - self._loaded_at >= timedelta(seconds=RETRY_S)

    def _renew(self) -> asyncio.Task[None]:
        """Return the renewal that goes on, or begin one."""
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._load_anew())
        return self._renewal

    async def _load_anew(self) -> None:
        try:
            loaded = await self._load()
        except Exception as error:  # noqa: BLE001 - what was loaded before is still there
            problem = str(no_access(self._origin, error))
            if problem != self.problem:
                logger.warning("%s; the credentials that were loaded before stay", problem)
            self.problem = problem
        else:
            if not loaded.is_same(self.identity) and not self._has_renewed:
                self._has_renewed = True
                logger.info("credentials of %s: loaded anew, as they expire", self._origin)
            self.identity, self.problem = loaded, ""
        finally:
            self._loaded_at = self._now()
            self._has_tried = True
            self._renewal = None


class RenewingClient(ApiClient):
    """The client, which sends each request with the identity of the moment.

    Parameters
    ----------
    access
        The identity; it may be shared.
    connections
        How many there may be at once.
    """

    def __init__(self, access: ApiAccess, connections: int) -> None:
        super().__init__(access.identity.configuration)
        self._access, self._most = access, connections
        self._tls = access.identity.tls
        self.rest_client = access.identity.open_connections(connections)
        self._retired: list[tuple[datetime, RESTClientObject]] = []

    async def call_api(
        self,
        method: str,
        url: str,
        header_params: Mapping[str, str] | None = None,
        *arguments: object,
        **options: object,
    ) -> RESTResponse:
        """Send a request, once more if its identity is refused and there is another one."""
        request = (method, url, header_params or {}, arguments, options)
        identity = await self._access.current()
        try:
            answer = await self._send(identity, *request)
        except aiohttp.ClientSSLError:  # such as of an API server with a new authority
            other = await self._access.replace_refused(identity)
            if other.tls == identity.tls:
                raise
            return await self._send(other, *request)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            other = await self._access.replace_refused(identity)
            if not other.is_same(identity):
                answer.response.release()
                answer = await self._send(other, *request)
        is_refused = answer.status == HTTPStatus.UNAUTHORIZED
        self._access.note_answer(is_refused=is_refused)
        if is_refused and self._access.problem:
            answer.response.release()
            raise ApiException(answer.status, f"Unauthorized; {self._access.problem}")
        return answer

    async def close(self) -> None:
        """Close all connections."""
        for _, connections in self._retired:
            await connections.close()
        await super().close()  # type: ignore[no-untyped-call]  # nor there

    async def _send(
        self,
        identity: Identity,
        method: str,
        url: str,
        header_params: Mapping[str, str],
        arguments: Sequence[object],
        options: Mapping[str, object],
    ) -> RESTResponse:
        if identity.tls != self._tls:
            await self._connect_as(identity)
        headers = {name: text for name, text in header_params.items() if name.lower() != HEADER}
        if identity.token:
            headers[HEADER] = identity.token
        async with asyncio.timeout(BUSY_S):
            return await super().call_api(method, url, headers, *arguments, **options)

    async def _connect_as(self, identity: Identity) -> None:
        """Open connections with another certificate from now on; requests under way go on."""
        connections = identity.open_connections(self._most)
        self._retired.append((time_of_day(), self.rest_client))
        self.rest_client, self._tls = connections, identity.tls
        oldest = time_of_day() - timedelta(seconds=KEPT_S)
        ended = [each for at, each in self._retired if at < oldest]
        self._retired = [pair for pair in self._retired if pair[0] >= oldest]
        for each in ended:
            await each.close()
