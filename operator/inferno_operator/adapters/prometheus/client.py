"""Queries of Prometheus; failures become errors that name its URL.

Credentials are read from their files whenever they are needed, and no message has what is in them.
An answer has the form of https://prometheus.io/docs/prometheus/latest/querying/api/; whatever has
another one is refused as a whole: half an answer would count as less load.
"""

import asyncio
import re
import ssl
import time
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
from httpx_retries import Retry, RetryTransport
from pydantic_core import from_json

from inferno_operator.adapters.credentials import build_credentials_error, build_tls_context
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.prometheus import (
    BusyError,
    OversizedError,
    Prometheus,
    PrometheusPast,
    QueryResult,
    RangeResult,
    RefusedError,
    Sample,
    Series,
)
from inferno_operator.runtime.texts import LONGEST_QUOTED, cause_of, shortened
from inferno_optimizer.errors import InfernoError, UnavailableError

INFO = "PromQL info"
"""Start of remarks that Prometheus 2.48 to 2.54 lists as warnings; they tell nothing is missing."""

WARNINGS = 3
"""Warnings that are told; of others, how many there are."""

LONGEST_ERROR = 2**16
"""Size of an answer up to which an error message is looked for in it [bytes]."""

CLOCKS_APART = 300.0
"""Time by which the evaluation of a query may differ from what was asked for [s]."""


class UnusableError(ValueError):
    """An answer is not what was asked for; the text says why."""


def decode_answer(body: bytes, at: float) -> QueryResult:
    """Decode the answer to an instant query.

    Parameters
    ----------
    body
        The answer.
    at
        The time for which the query was to be evaluated, Unix time [s].

    Raises
    ------
    UnusableError
        It is not an answer of Prometheus, does not have one number for each series, or is that
        of another time.
    """
    document = _decode_document(body)
    with _require_form_of_api("samples", body):
        data = document["data"]
        samples = tuple(_decode_samples(data["resultType"], data["result"]))
        warnings = tuple(_find_warnings(document))
    for sample in samples:
        if not abs(sample.time - at) <= CLOCKS_APART:
            raise UnusableError(_describe_other_time(sample.time, at))
    return QueryResult(samples, warnings)


def decode_range(body: bytes, start: float, end: float) -> RangeResult:
    """Decode the answer to a range query.

    Parameters
    ----------
    body
        The answer.
    start, end
        The times between which the query was to be evaluated, Unix times [s].

    Raises
    ------
    UnusableError
        It is not an answer of Prometheus, does not have numbers over time for each series, or has
        some of another time.
    """
    document = _decode_document(body)
    with _require_form_of_api("series", body):
        series = tuple(_decode_series(document["data"]))
        warnings = tuple(_find_warnings(document))
    for at in (at for one in series for at in one.times[:: max(len(one.times) - 1, 1)]):
        if not start - CLOCKS_APART <= at <= end + CLOCKS_APART:
            raise UnusableError(_describe_other_time(at, start))
    return RangeResult(series, warnings)


def decode_names(body: bytes) -> tuple[str, ...]:
    """Decode the values of a label, sorted.

    Raises
    ------
    UnusableError
        It is not an answer of Prometheus.
    """
    names = _decode_document(body).get("data")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UnusableError(f"the answer has no list of names: {quote_start(body)}")
    return tuple(sorted(map(shortened, names)))


def find_error_text(body: bytes) -> str:
    """Return the error message in an answer, or else its start."""
    if len(body) > LONGEST_ERROR:
        return quote_start(body)
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError:
        return quote_start(body)
    error = document.get("error") if isinstance(document, dict) else None
    return shortened(str(error)) if error else quote_start(body)


def quote_start(body: bytes) -> str:
    """Return the start of an answer in one line and in quotes."""
    text = shortened(body[: 4 * LONGEST_QUOTED].decode(errors="replace"))
    return repr(text) if text else "an empty answer"


def _decode_document(body: bytes) -> Mapping[str, Any]:
    """Return the JSON of a successful answer; all of its texts can be written as UTF-8."""
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise UnusableError(f"the answer is not JSON: {quote_start(body)}") from error
    if not isinstance(document, dict) or document.get("status") != "success":
        raise UnusableError(f"the answer is not from Prometheus: {find_error_text(body)}")
    return document


@contextmanager
def _require_form_of_api(content: str, body: bytes) -> Iterator[None]:
    """Turn what is raised when an answer has another form into an `UnusableError`."""
    try:
        yield
    except UnusableError:
        raise
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        text = f"the answer has no {content} in the form of the API: {quote_start(body)}"
        raise UnusableError(text) from error


def _find_warnings(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield why an answer may be incomplete."""
    if document.get("isPartial"):  # VictoriaMetrics says so instead
        yield "the answer is partial"
    warnings = document.get("warnings") or []
    if not isinstance(warnings, list) or not all(isinstance(text, str) for text in warnings):
        raise UnusableError("the answer has warnings that are not a list of texts")
    doubts = [text for text in warnings if not text.startswith(INFO)]
    yield from map(shortened, doubts[:WARNINGS])
    if len(doubts) > WARNINGS:
        yield f"and {len(doubts) - WARNINGS} more warnings"


def _decode_samples(kind: object, result: object) -> Iterator[Sample]:
    if kind == "scalar":
        yield _decode_sample({}, result)
        return
    if kind != "vector":
        raise UnusableError(
            f"the query gives a {shortened(str(kind))}, not one number for each series"
        )
    if not isinstance(result, list):
        raise TypeError(result)
    for item in result:
        if "histogram" in item:
            raise UnusableError("the query gives native histograms, not one number for each series")
        yield _decode_sample(item["metric"], item["value"])


def _decode_series(data: Mapping[str, Any]) -> Iterator[Series]:
    kind, result = data["resultType"], data["result"]
    if kind != "matrix":
        raise UnusableError(f"the query gives a {shortened(str(kind))}, not numbers over time")
    if not isinstance(result, list):
        raise TypeError(result)
    for item in result:
        if "histograms" in item:
            raise UnusableError("the query gives native histograms, not numbers over time")
        samples = [_decode_sample(item["metric"], value) for value in item["values"]]
        times, values = (
            tuple(column) for column in zip(*((t, v) for _, t, v in samples), strict=True)
        )
        yield Series(item["metric"], times, values)


def _decode_sample(labels: object, value: object) -> Sample:
    """Return a sample: texts by name, and the pair of a time and a number as text."""
    if not isinstance(labels, dict) or not all(isinstance(text, str) for text in labels.values()):
        raise TypeError(labels)
    if not isinstance(value, list):
        raise TypeError(value)
    time, text = value
    if not isinstance(time, int | float) or isinstance(time, bool) or not isinstance(text, str):
        raise TypeError(value)
    if text != text.strip() or "_" in text:
        raise ValueError(text)  # float() reads these
    return Sample(labels, float(time), float(text))  # also NaN, +Inf and -Inf


def _describe_other_time(time: float, at: float) -> str:
    try:
        when = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        when = f"{time:g} s after 1970"
    asked = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"the answer is of {when}, and was asked for {asked}: compare the clocks"


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
            request.headers.update(dict(_read_headers(self._endpoint)))
        except (OSError, ValueError) as error:
            raise build_credentials_error(self._endpoint.url, error) from error
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
            state = _find_file_versions(self._endpoint)
            if state not in self._pools:
                self._pools[state] = httpx.AsyncHTTPTransport(
                    verify=build_tls_context(self._endpoint)
                )
        except (OSError, ValueError) as error:
            raise build_credentials_error(self._endpoint.url, error) from error
        return await self._pools[state].handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.aclose()


def suggest_credentials(endpoint: PrometheusEndpoint) -> str:
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


def _read_headers(endpoint: PrometheusEndpoint) -> Iterator[tuple[str, str]]:
    """Yield name and value of each header; the token or the password comes last."""
    if endpoint.headers is not None:
        yield from _read_header_lines(endpoint.headers)
    if endpoint.token is not None:
        yield "Authorization", f"Bearer {_read_token(endpoint.token)}"
    if endpoint.password is not None:
        password = endpoint.password.read_text(encoding="utf-8").rstrip("\r\n")
        pair = b64encode(f"{endpoint.user}:{password}".encode()).decode()
        yield "Authorization", f"Basic {pair}"


def _read_token(path: Path) -> str:
    text = path.read_text(encoding="utf-8").strip()
    if not TOKEN.fullmatch(text):
        raise ValueError(f"{path} does not contain a token: one line of ASCII characters")
    return text


def _read_header_lines(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        parts = HEADER.fullmatch(line.strip())
        if parts is None:
            raise ValueError(f"line {number} of {path} is not a header: write Name: value")
        yield parts[1], parts[2]


def _find_file_versions(endpoint: PrometheusEndpoint) -> tuple[int, ...]:
    """Return numbers that change when a file of the TLS credentials is replaced."""
    files = (endpoint.authority, endpoint.certificate, endpoint.key)
    stats = [path.stat() for path in files if path is not None]
    return tuple(number for stat in stats for number in (stat.st_ino, stat.st_mtime_ns))


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
            body = await _read_body(
                response, request.extensions.get(ENTER_LARGE, _wait_for_nothing)
            )
        finally:
            await response.aclose()
        kept = [(name, value) for name, value in response.headers.items() if name not in ENCODED]
        return httpx.Response(response.status_code, headers=kept, content=body)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


def build_transport(endpoint: PrometheusEndpoint) -> httpx.AsyncBaseTransport:
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


async def _wait_for_nothing() -> None:
    """Wait for nothing."""


async def _read_body(response: httpx.Response, enter_large: Callable[[], Awaitable[None]]) -> bytes:
    """Read a response; no more than the largest size is ever unpacked.

    httpx itself unpacks each piece whole: a thousandfold, or more if it was packed twice.
    """
    unpack = _find_unpacker(response)
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


def _find_unpacker(response: httpx.Response) -> Callable[[bytes, int], bytes]:
    """Return a function of a piece of a body and of the most bytes to return."""
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return lambda piece, _: piece
    if encoding == "gzip":
        return zlib.decompressobj(GZIP).decompress
    text = f"the answer has the encoding {encoding[:LONGEST_ENCODING]!r}, and gzip was asked for"
    raise httpx.DecodingError(text, request=response.request)


ANSWERED = "Answered"
"""Result of a query that was answered; others are the reasons of errors."""

TLS_HINTS = {
    "issuer certificate": "set the certificate of the authority that signed it",
    "self-signed certificate": "set the certificate of the authority that signed it",
    "mismatch": "set a URL whose host is in the certificate",
    "WRONG_VERSION_NUMBER": "the server may not speak TLS: try http://",
}
"""What to do about a failure of TLS, by a part of OpenSSL's message."""

BROKEN = (httpx.ReadError, httpx.WriteError, ssl.SSLError)
"""Failures of a connection that was open: with TLS 1.3 also that for want of a certificate."""

T = TypeVar("T")


class PrometheusClient(Prometheus, PrometheusPast):
    """Queries of one Prometheus; each takes at most the time limit, its second try included.

    Large answers are read one after the other, and decoded in a thread: a decoded answer may take
    thirty times its size.

    Parameters
    ----------
    client
        Sends requests.
    endpoint
        Address and credentials.
    observer
        Learns how each query ends.
    clock
        The time of day, Unix time [s].
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        endpoint: PrometheusEndpoint,
        observer: Observer,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._endpoint = endpoint
        self._observer = observer
        self._clock = clock
        self._large = asyncio.Lock()

    async def query(self, expression: str, at: float | None = None) -> QueryResult:
        """Evaluate an expression, at a Unix time [s] or now; a scalar has no labels."""
        data = {"query": expression} | ({} if at is None else {"time": f"{at:.3f}"})
        request = self._client.build_request("POST", "api/v1/query", data=data)
        moment = self._clock() if at is None else at
        return await self._ask(request, expression, partial(decode_answer, at=moment))

    async def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> RangeResult:
        """Evaluate an expression at start, start + step, and so on, up to the end."""
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        data = {"query": expression, **times}
        request = self._client.build_request("POST", "api/v1/query_range", data=data)
        return await self._ask(request, expression, partial(decode_range, start=start, end=end))

    async def metric_names(self, matcher: str) -> tuple[str, ...]:
        """Return the names of the metrics that have a series that a matcher selects, sorted."""
        matching = {"match[]": matcher}  # only by GET: Prometheus has no POST for this path
        path = "api/v1/label/__name__/values"
        request = self._client.build_request("GET", path, params=matching)
        return await self._ask(request, matcher, decode_names)

    async def _ask(
        self, request: httpx.Request, expression: str, decode: Callable[[bytes], T]
    ) -> T:
        """Send a query and decode its answer; the observer learns how it ended."""
        try:
            async with _Turn(self._large) as turn:
                request.extensions[ENTER_LARGE] = turn.enter
                reply = await self._send(request, expression)
                if reply.status_code != HTTPStatus.OK:
                    raise self._build_refusal(reply, expression)
                answer = await _decode(reply.content, decode)
        except UnusableError as error:
            self._observer.queried(RefusedError.reason)
            raise self._refuse(str(error), expression) from error
        except InfernoError as error:
            self._observer.queried(error.reason)
            raise
        self._observer.queried(ANSWERED)
        return answer

    async def _send(self, request: httpx.Request, expression: str) -> httpx.Response:
        limit = self._endpoint.timeout
        try:
            async with asyncio.timeout(limit):
                return await self._client.send(request)
        except (httpx.TimeoutException, TimeoutError) as error:
            text = f"{self._endpoint.url}: no answer within {limit:g} s"
            raise UnavailableError(f"{text}; query: {shortened(expression)}") from error
        except (httpx.TransportError, ssl.SSLError) as error:  # httpx does not wrap all of TLS
            cause = _describe_cause(error, self._endpoint)
            text = f"{self._endpoint.url}: Prometheus does not answer: {cause}"
            raise UnavailableError(text) from error
        except TooLargeError as error:
            raise OversizedError(self._describe(str(error), expression)) from error
        except httpx.RequestError as error:
            raise self._refuse(shortened(str(error)), expression) from error

    def _build_refusal(self, reply: httpx.Response, expression: str) -> InfernoError:
        """Return the error for a status that is not that of an answer."""
        status = reply.status_code
        problem = f"{self._endpoint.url}: HTTP {status}: {find_error_text(reply.content)}"
        if status in LATER:
            busy = status == HTTPStatus.TOO_MANY_REQUESTS
            kind = BusyError if busy else UnavailableError
            return kind(f"{problem}; query: {shortened(expression)}")
        if reply.has_redirect_location:
            # Without parameters: they may be secret.
            target = shortened(reply.headers["Location"].partition("?")[0])
            text = f"{self._endpoint.url} redirects to {target}: set the URL of the API"
            return RefusedError(text)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return RefusedError(f"{problem}; {suggest_credentials(self._endpoint)}")
        if status == HTTPStatus.NOT_FOUND:
            return RefusedError(f"{problem}; check the URL and its path prefix: it has no such API")
        return self._refuse(f"HTTP {status}: {find_error_text(reply.content)}", expression)

    def _refuse(self, problem: str, expression: str) -> RefusedError:
        return RefusedError(self._describe(problem, expression))

    def _describe(self, problem: str, expression: str) -> str:
        return f"{self._endpoint.url}: {problem}; query: {shortened(expression)}"


class _Turn:
    """The turn of a query among those with large answers, until its answer is decoded."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._entered = False

    async def __aenter__(self) -> Self:
        return self

    async def enter(self) -> None:
        """Wait for the turn, once."""
        if not self._entered:
            await self._lock.acquire()
            self._entered = True

    async def __aexit__(self, *_: object) -> None:
        if self._entered:
            self._lock.release()


async def _decode(body: bytes, decode: Callable[[bytes], T]) -> T:
    return decode(body) if len(body) <= SMALL else await asyncio.to_thread(decode, body)


@asynccontextmanager
async def connect(
    endpoint: PrometheusEndpoint,
    observer: Observer | None = None,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[PrometheusClient]:
    """Yield a client of an endpoint; its queries open connections, so this does not fail.

    `observer` learns how each query ends; `clock` is the time of day, Unix time [s].
    """
    async with httpx.AsyncClient(
        base_url=endpoint.url,
        params=endpoint.params,
        auth=FileAuth(endpoint),
        headers={"Accept-Encoding": "gzip"},
        transport=build_transport(endpoint),
        timeout=endpoint.timeout / 2,
    ) as client:
        yield PrometheusClient(client, endpoint, observer or Observer(), clock)


def _describe_cause(error: Exception, endpoint: PrometheusEndpoint) -> str:
    """Return what went wrong, in one line; for TLS also what to do."""
    text = cause_of(error)
    hint = next((hint for part, hint in TLS_HINTS.items() if part in text), "")
    if isinstance(error, BROKEN) and endpoint.secure and endpoint.certificate is None:
        hint = "the server may ask for a client certificate"
    return f"{text}: {hint}" if hint else text
