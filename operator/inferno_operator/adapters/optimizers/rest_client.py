"""Sends requests to a REST optimizer; failures become errors that name its URL."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import quote

import httpx
from httpx_retries import Retry, RetryTransport

from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_optimizer.errors import InfernoError, SolverError, UnavailableError

CONNECT_TIMEOUT = 5.0
"""Timeout for opening a connection [s]."""

SERVER_ERRORS = range(500, 600)

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


async def _receive(response: httpx.Response) -> None:
    """Read the whole response, so that an incomplete one is retried too."""
    await response.aread()


RETRY = Retry(
    total=3,
    backoff_factor=0.1,  # the caller handles longer outages, because it can report them
    max_backoff_wait=5.0,
    validate_response=_receive,
    allowed_methods=("GET", "POST"),  # every request may be sent twice
    status_forcelist=SERVER_ERRORS,
    # Not after a timeout: the optimizer may still be processing the first request.
    retry_on_exceptions=(httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout),
)

LONGEST_QUOTED = 200
"""Largest number of characters of a response that a message shows."""


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
        return await self._json("GET", path)

    async def post(self, path: str, body: object) -> object:
        """Send a POST with a JSON body and return the JSON of the response."""
        return await self._json("POST", (path,), body)

    def unusable(self, problem: object) -> SolverError:
        """The error to raise for an invalid response."""
        return SolverError(f"{self._url}: no usable answer: {problem}")

    async def _json(self, method: str, path: tuple[str, ...], body: object = None) -> object:
        target = "/" + "/".join(quote(part, safe="") for part in path)
        response = await self._response(method, target, body)
        if response.status_code != HTTPStatus.OK:
            raise self._refusal(response, target)
        try:
            return response.json()
        except (ValueError, RecursionError) as error:
            raise self.unusable(f"{_quoted(response)} is no JSON") from error

    async def _response(self, method: str, target: str, body: object) -> httpx.Response:
        try:
            async with asyncio.timeout(self._patience):
                return await self._client.request(method, target, json=body)
        except (httpx.ReadTimeout, httpx.WriteTimeout, TimeoutError) as error:
            text = f"{self._url}: no answer within {self._patience:g} s"
            raise UnavailableError(text) from error
        except (httpx.TransportError, ssl.SSLError) as error:  # httpx does not wrap all of TLS
            text = str(error) or type(error).__name__
            raise UnavailableError(f"{self._url}: the optimizer does not answer: {text}") from error
        except httpx.RequestError as error:
            raise self.unusable(error) from error

    def _refusal(self, response: httpx.Response, target: str) -> InfernoError:
        text = f"{self._url}{target}: {_message(response)} (HTTP {response.status_code})"
        if response.status_code in LATER:
            return UnavailableError(text)
        if response.status_code == HTTPStatus.NOT_FOUND:
            return NotFoundError(text)
        return SolverError(text)


@asynccontextmanager
async def connect(endpoint: Endpoint, patience: float) -> AsyncIterator[RestClient]:
    """Connect to an optimizer, with credentials read from their files now.

    Raises
    ------
    UnavailableError
        A credential file is unusable; it may be in the process of being replaced.
    """
    try:
        context = _tls(endpoint)
        token = endpoint.token.read_text().strip() if endpoint.token else ""
    except (OSError, ValueError) as error:
        raise UnavailableError(f"{endpoint.url}: credentials cannot be used: {error}") from error
    async with httpx.AsyncClient(
        base_url=endpoint.url,
        transport=RetryTransport(httpx.AsyncHTTPTransport(verify=context), RETRY),
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout=httpx.Timeout(patience, connect=CONNECT_TIMEOUT),
    ) as client:
        yield RestClient(client, endpoint.url, patience)


def _tls(endpoint: Endpoint) -> ssl.SSLContext:
    if not endpoint.secure:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # unused; faster than the default one
    context = ssl.create_default_context(cafile=endpoint.authority)
    if endpoint.certificate is not None:
        context.load_cert_chain(endpoint.certificate, endpoint.key)
    return context


def _message(response: httpx.Response) -> str:
    """The message in the response of the optimizer, in one line."""
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return _quoted(response)
    message = document.get("message") if isinstance(document, dict) else document
    return " ".join(str(message).split())[:LONGEST_QUOTED] if message else _quoted(response)


def _quoted(response: httpx.Response) -> str:
    text = " ".join(response.content[:LONGEST_QUOTED].decode(errors="replace").split())
    return repr(text) if text else "an empty answer"
