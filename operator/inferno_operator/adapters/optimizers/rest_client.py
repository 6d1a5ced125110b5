"""Sends requests to a REST optimizer; failures become errors that name its URL."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import quote

import httpx

from inferno_operator.adapters.credentials import unusable
from inferno_operator.adapters.optimizers.document import message_of, parsed
from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_operator.adapters.optimizers.transport import PLAIN, SERVER_ERRORS, transport
from inferno_operator.adapters.tls import tls_context
from inferno_operator.runtime.texts import cause_of
from inferno_optimizer.errors import InfernoError, InputError, SolverError, UnavailableError

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
            return await asyncio.to_thread(parsed, response.content)
        except InputError as error:
            raise self.unusable(error) from error

    async def _response(self, method: str, target: str, body: object) -> httpx.Response:
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

    def _refusal(self, response: httpx.Response, target: str) -> InfernoError:
        text = f"{self._url}{target}: {message_of(response.content)} (HTTP {response.status_code})"
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
        context = tls_context(endpoint)
        token = endpoint.token.read_text().strip() if endpoint.token else ""
    except (OSError, ValueError) as error:
        raise unusable(endpoint.url, error) from error
    async with httpx.AsyncClient(
        base_url=endpoint.url,
        transport=transport(context, servers),
        headers={"Accept-Encoding": PLAIN} | _authorization(token),
        timeout=httpx.Timeout(patience, connect=CONNECT_TIMEOUT),
    ) as client:
        yield RestClient(client, endpoint.url, patience)


def _authorization(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}
