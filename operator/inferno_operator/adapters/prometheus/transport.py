"""How a request is sent: at most twice, and read to its end or to the largest size."""

import zlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import httpx
from httpx_retries import Retry, RetryTransport

from inferno_operator.adapters.prometheus.credentials import CertificateTransport
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint

LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, *range(500, 600)})
"""HTTP statuses after which a second try may succeed."""

LARGEST = 8 * 2**20
"""Largest size of an answer, unpacked [bytes]: about 50,000 series, and bounds the memory."""

GZIP = 16 + zlib.MAX_WBITS
"""The format of gzip, for zlib."""

SMALL = 2**18
"""Size up to which answers are read and decoded at once, in a few milliseconds [bytes]."""

ENTER_LARGE = "inferno_enter_large"
"""Extension of a request: awaited before more of its answer is read than `SMALL`."""

LONGEST_ENCODING = 40
"""Characters of the name of an encoding that a message has."""

ENCODED = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""Headers that describe how a body was sent."""


class TooLargeError(httpx.RequestError):
    """An answer is larger than `LARGEST`."""


class WholeTransport(httpx.AsyncBaseTransport):
    """Reads the whole response, so that an incomplete one counts as a failed try."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and read the response.

        Raises
        ------
        TooLargeError
            The response is too large.
        """
        response = await self._transport.handle_async_request(request)
        response.request = request
        try:
            body = await _body(response, request.extensions.get(ENTER_LARGE, _nothing))
        finally:
            await response.aclose()
        kept = [(name, value) for name, value in response.headers.items() if name not in ENCODED]
        return httpx.Response(response.status_code, headers=kept, content=body)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


def transport(endpoint: PrometheusEndpoint) -> httpx.AsyncBaseTransport:
    """Return the transport to an endpoint.

    A try takes at most half of the time limit, so that there is time for the second one. So does
    the wait that the server asks for (`Retry-After`).
    """
    retry = Retry(
        total=1,
        backoff_factor=endpoint.timeout / 40,  # a random wait of up to a twentieth of the limit
        max_backoff_wait=endpoint.timeout / 2,
        allowed_methods=("GET", "POST"),  # queries change nothing
        status_forcelist=LATER,
        retry_on_exceptions=(
            httpx.TimeoutException,
            httpx.NetworkError,
            httpx.RemoteProtocolError,
        ),
    )
    return RetryTransport(WholeTransport(CertificateTransport(endpoint)), retry)


async def _nothing() -> None:
    """Wait for nothing."""


async def _body(response: httpx.Response, enter_large: Callable[[], Awaitable[None]]) -> bytes:
    """Read a response; no more than the largest size is ever unpacked.

    httpx itself unpacks each piece whole: a thousandfold, or more if it was packed twice.
    """
    unpack = _unpacker(response)
    body = bytearray()
    try:
        async for piece in response.aiter_raw():
            unpacked = unpack(piece, LARGEST + 1 - len(body))
            if len(body) + len(unpacked) > SMALL:
                await enter_large()
            body += unpacked
            if len(body) > LARGEST:
                text = (
                    f"the answer is larger than {LARGEST >> 20} MiB: restrict the query by labels"
                )
                raise TooLargeError(text, request=response.request)
    except zlib.error as error:
        raise httpx.DecodingError(str(error), request=response.request) from error
    return bytes(body)


def _unpacker(response: httpx.Response) -> Callable[[bytes, int], bytes]:
    """Return a function of a piece of a body and of the most bytes to return."""
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return lambda piece, _: piece
    if encoding == "gzip":
        return zlib.decompressobj(GZIP).decompress
    text = f"the answer has the encoding {encoding[:LONGEST_ENCODING]!r}, and gzip was asked for"
    raise httpx.DecodingError(text, request=response.request)
