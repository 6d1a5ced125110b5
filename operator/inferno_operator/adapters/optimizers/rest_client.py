"""Sends requests to a REST optimizer; failures become errors that name its URL.

A request is sent again after a failure that passes; its answer is read within a bound.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import quote

import httpx
from httpx_retries import Retry, RetryTransport

from inferno_operator.adapters.credentials import build_credentials_error, build_tls_context
from inferno_operator.adapters.optimizers.document import find_message, parse_answer
from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_operator.runtime.texts import cause_of
from inferno_optimizer.errors import InfernoError, InputError, SolverError, UnavailableError

MEBIBYTE = 2**20

SMALLEST_BOUND = 16 * MEBIBYTE
"""Largest size of an answer about few servers [bytes]; an optimizer may store other namespaces."""

BYTES_PER_SERVER = 8 * 1024
"""Size that each server adds to the bound [bytes]; an allocation takes less than one KiB."""

SERVER_ERRORS = range(500, 600)

PLAIN = "identity"
"""The only encoding: what is compressed may be of any size."""

RETRY = Retry(
    total=3,
    backoff_factor=0.1,  # the caller handles longer outages, because it can report them
    max_backoff_wait=5.0,
    allowed_methods=("GET", "POST"),  # every request may be sent twice
    status_forcelist=SERVER_ERRORS,
    # Not after a timeout: the optimizer may still be processing the first request.
    retry_on_exceptions=(httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout),
)


class UnreadableError(httpx.RequestError):
    """An answer is too large, or compressed."""


def build_retry_transport(context: ssl.SSLContext, servers: int) -> httpx.AsyncBaseTransport:
    """Return the transport of requests about a number of servers."""
    bound = SMALLEST_BOUND + servers * BYTES_PER_SERVER
    return RetryTransport(BoundedTransport(httpx.AsyncHTTPTransport(verify=context), bound), RETRY)


class BoundedTransport(httpx.AsyncBaseTransport):
    """Reads the whole response, so that an incomplete one is retried too.

    Parameters
    ----------
    transport
        Sends the requests.
    bound
        Largest size of an answer [bytes].
    """

    def __init__(self, transport: httpx.AsyncBaseTransport, bound: int) -> None:
        self._transport = transport
        self._bound = bound

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and read the response.

        Raises
        ------
        UnreadableError
            The response is too large, or compressed.
        """
        response = await self._transport.handle_async_request(request)
        try:
            body = await self._read_body(response)
        finally:
            await response.aclose()
        return httpx.Response(response.status_code, headers=response.headers, content=body)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def _read_body(self, response: httpx.Response) -> bytes:
        encoding = response.headers.get("Content-Encoding", PLAIN)
        if encoding.strip().lower() != PLAIN:
            raise UnreadableError(f"it is compressed ({encoding[:20]!r}), which was not asked for")
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._bound:
                raise UnreadableError(f"it is larger than {self._bound / MEBIBYTE:.0f} MiB")
        return bytes(body)


CONNECT_TIMEOUT = 5.0
"""Timeout for opening a connection [s]."""

LATER = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,  # tokens are renewed
        HTTPStatus.FORBIDDEN,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
        *SERVER_ERRORS,
    }
)
"""HTTP statuses after which a later retry may succeed."""


class NotFoundError(SolverError):
    """The optimizer does not know a name or a path."""


class RestClient:
    """Requests to one optimizer; each takes at most `patience` seconds, retries included."""

    def __init__(self, client: httpx.AsyncClient, url: str, patience: float) -> None:
        self._client = client
        self._url = url
        self._patience = patience

    async def get(self, *path: str) -> object:
        """Send a GET and return the JSON; the parts of the path may have any characters."""
        return await self._ask_json("GET", path)

    async def post(self, path: str, body: object) -> object:
        """Send a POST with a JSON body and return the JSON of the response."""
        return await self._ask_json("POST", (path,), body)

    def unusable(self, problem: object) -> SolverError:
        """The error to raise for an invalid response."""
        return SolverError(f"{self._url}: no usable answer: {problem}")

    async def _ask_json(self, method: str, path: tuple[str, ...], body: object = None) -> object:
        target = "/" + "/".join(quote(part, safe="") for part in path)
        response = await self._send(method, target, body)
        if response.status_code != HTTPStatus.OK:
            raise self._build_refusal(response, target)
        try:
            return await asyncio.to_thread(parse_answer, response.content)
        except InputError as error:
            raise self.unusable(error) from error

    async def _send(self, method: str, target: str, body: object) -> httpx.Response:
        try:
            async with asyncio.timeout(self._patience):
                return await self._client.request(method, target, json=body)
        except (httpx.ReadTimeout, httpx.WriteTimeout, TimeoutError) as error:
            text = f"{self._url}: no answer within {self._patience:g} s"
            raise UnavailableError(text) from error
        except (httpx.TransportError, ssl.SSLError) as error:  # httpx does not wrap all of TLS
            text = f"{self._url}: the optimizer does not answer: {cause_of(error)}"
            raise UnavailableError(text) from error
        except httpx.RequestError as error:
            raise self.unusable(error) from error

    def _build_refusal(self, response: httpx.Response, target: str) -> InfernoError:
        text = (
            f"{self._url}{target}: {find_message(response.content)} (HTTP {response.status_code})"
        )
        if response.status_code in LATER:
            return UnavailableError(text)
        if response.status_code == HTTPStatus.NOT_FOUND:
            return NotFoundError(text)
        return SolverError(text)


@asynccontextmanager
async def connect(endpoint: Endpoint, patience: float, servers: int) -> AsyncIterator[RestClient]:
    """Connect to an optimizer, with credentials read from their files now.

    Parameters
    ----------
    endpoint
        Address of the optimizer.
    patience
        Time that a request may take [s].
    servers
        Number of servers that answers are about; it bounds their size.

    Raises
    ------
    UnavailableError
        A credential file is unusable; it may be in the process of being replaced.
    """
    try:
        context = build_tls_context(endpoint)
        token = endpoint.token.read_text().strip() if endpoint.token else ""
    except (OSError, ValueError) as error:
        raise build_credentials_error(endpoint.url, error) from error
    async with httpx.AsyncClient(
        base_url=endpoint.url,
        transport=build_retry_transport(context, servers),
        headers={"Accept-Encoding": PLAIN} | _build_authorization(token),
        timeout=httpx.Timeout(patience, connect=CONNECT_TIMEOUT),
    ) as client:
        yield RestClient(client, endpoint.url, patience)


def _build_authorization(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}
