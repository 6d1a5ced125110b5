"""How a request is sent: again after a failure that passes, and read to its end within a bound."""

import ssl

import httpx
from httpx_retries import Retry, RetryTransport

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


def transport(context: ssl.SSLContext, servers: int) -> httpx.AsyncBaseTransport:
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
            body = await self._body(response)
        finally:
            await response.aclose()
        return httpx.Response(response.status_code, headers=response.headers, content=body)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def _body(self, response: httpx.Response) -> bytes:
        encoding = response.headers.get("Content-Encoding", PLAIN)
        if encoding.strip().lower() != PLAIN:
            raise UnreadableError(f"it is compressed ({encoding[:20]!r}), which was not asked for")
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._bound:
                raise UnreadableError(f"it is larger than {self._bound / MEBIBYTE:.0f} MiB")
        return bytes(body)
