"""The credentials for Prometheus, read from their files when they are needed.

No message has the contents of a file: they are secrets.
"""

import re
from base64 import b64encode
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx

from inferno_operator.adapters.credentials import unusable
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.adapters.tls import tls_context

TOKEN = re.compile(r"[!-~]+")
"""A bearer token: printable ASCII characters without spaces."""

HEADER = re.compile(r"([-!#$%&'*+.^_`|~0-9A-Za-z]+)[ \t]*:[ \t]*([!-~]([ -~\t]*[!-~])?)")
"""Name and value of a header, as HTTP allows them [RFC 9110, section 5]."""


class FileAuth(httpx.Auth):
    """Adds to each request the headers that the files contain when it is sent.

    A request raises `UnavailableError` if a file is missing or unusable: it may be in the process
    of being replaced.
    """

    def __init__(self, endpoint: PrometheusEndpoint) -> None:
        self._endpoint = endpoint

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the request once, with its credentials."""
        try:
            request.headers.update(dict(_headers(self._endpoint)))
        except (OSError, ValueError) as error:
            raise unusable(self._endpoint.url, error) from error
        yield request


class CertificateTransport(httpx.AsyncBaseTransport):
    """Sends requests over connections that use the certificates now in the files.

    A request raises `UnavailableError` if a file is missing or unusable.
    """

    def __init__(self, endpoint: PrometheusEndpoint) -> None:
        self._endpoint = endpoint
        self._pools: dict[tuple[int, ...], httpx.AsyncHTTPTransport] = {}
        """The connections, by the state of the files that they were opened with."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        try:
            state = _state(self._endpoint)
            if state not in self._pools:
                self._pools[state] = httpx.AsyncHTTPTransport(verify=tls_context(self._endpoint))
        except (OSError, ValueError) as error:
            raise unusable(self._endpoint.url, error) from error
        return await self._pools[state].handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.aclose()


def advice(endpoint: PrometheusEndpoint) -> str:
    """What to check when a request is not allowed."""
    if endpoint.token is not None:
        return f"check the bearer token in {endpoint.token} and its rights"
    if endpoint.password is not None:
        return f"check the password of user {endpoint.user!r} in {endpoint.password}"
    if endpoint.headers is not None:
        return f"check the headers in {endpoint.headers}"
    if endpoint.certificate is not None:
        return f"check the client certificate in {endpoint.certificate} and its rights"
    return "set a token, a password or a client certificate: the query has none"


def _headers(endpoint: PrometheusEndpoint) -> Iterator[tuple[str, str]]:
    """Yield name and value of each header; the token or the password comes last."""
    if endpoint.headers is not None:
        yield from _lines(endpoint.headers)
    if endpoint.token is not None:
        yield "Authorization", f"Bearer {_token(endpoint.token)}"
    if endpoint.password is not None:
        password = endpoint.password.read_text(encoding="utf-8").rstrip("\r\n")
        pair = b64encode(f"{endpoint.user}:{password}".encode()).decode()
        yield "Authorization", f"Basic {pair}"


def _token(path: Path) -> str:
    text = path.read_text(encoding="utf-8").strip()
    if not TOKEN.fullmatch(text):
        raise ValueError(f"{path} does not contain a token: one line of ASCII characters")
    return text


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        parts = HEADER.fullmatch(line.strip())
        if parts is None:
            raise ValueError(f"line {number} of {path} is not a header: write Name: value")
        yield parts[1], parts[2]


def _state(endpoint: PrometheusEndpoint) -> tuple[int, ...]:
    """Return numbers that change when a file of the TLS credentials is replaced."""
    files = (endpoint.authority, endpoint.certificate, endpoint.key)
    stats = [path.stat() for path in files if path is not None]
    return tuple(number for stat in stats for number in (stat.st_ino, stat.st_mtime_ns))
