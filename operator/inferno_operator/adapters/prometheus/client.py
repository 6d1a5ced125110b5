"""Queries of Prometheus; failures become errors that name its URL."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Self, TypeVar

import httpx

from inferno_operator.adapters.prometheus.answers import (
    UnusableError,
    decode_answer,
    decode_names,
    decode_range,
    error_text,
)
from inferno_operator.adapters.prometheus.credentials import FileAuth, advice
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.adapters.prometheus.transport import (
    ENTER_LARGE,
    LATER,
    SMALL,
    TooLargeError,
    transport,
)
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.prometheus import (
    BusyError,
    OversizedError,
    Prometheus,
    PrometheusPast,
    QueryResult,
    RangeResult,
    RefusedError,
)
from inferno_operator.runtime.texts import cause_of, shortened
from inferno_optimizer.errors import InfernoError, UnavailableError

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
                    raise self._refusal(reply, expression)
                answer = await _decoded(reply.content, decode)
        except UnusableError as error:
            self._observer.queried(RefusedError.reason)
            raise self._refused(str(error), expression) from error
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
            cause = _cause(error, self._endpoint)
            text = f"{self._endpoint.url}: Prometheus does not answer: {cause}"
            raise UnavailableError(text) from error
        except TooLargeError as error:
            raise OversizedError(self._told(str(error), expression)) from error
        except httpx.RequestError as error:
            raise self._refused(shortened(str(error)), expression) from error

    def _refusal(self, reply: httpx.Response, expression: str) -> InfernoError:
        """Return the error for a status that is not that of an answer."""
        status = reply.status_code
        problem = f"{self._endpoint.url}: HTTP {status}: {error_text(reply.content)}"
        if status in LATER:
            busy = status == HTTPStatus.TOO_MANY_REQUESTS
            kind = BusyError if busy else UnavailableError
            return kind(f"{problem}; query: {shortened(expression)}")
        if reply.has_redirect_location:
            text = f"{self._endpoint.url} redirects to {_target(reply)}: set the URL of the API"
            return RefusedError(text)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return RefusedError(f"{problem}; {advice(self._endpoint)}")
        if status == HTTPStatus.NOT_FOUND:
            return RefusedError(f"{problem}; check the URL and its path prefix: it has no such API")
        return self._refused(f"HTTP {status}: {error_text(reply.content)}", expression)

    def _refused(self, problem: str, expression: str) -> RefusedError:
        return RefusedError(self._told(problem, expression))

    def _told(self, problem: str, expression: str) -> str:
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


async def _decoded(body: bytes, decode: Callable[[bytes], T]) -> T:
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
        transport=transport(endpoint),
        timeout=endpoint.timeout / 2,
    ) as client:
        yield PrometheusClient(client, endpoint, observer or Observer(), clock)


def _cause(error: Exception, endpoint: PrometheusEndpoint) -> str:
    """Return what went wrong, in one line; for TLS also what to do."""
    text = cause_of(error)
    hint = next((hint for part, hint in TLS_HINTS.items() if part in text), "")
    if isinstance(error, BROKEN) and endpoint.secure and endpoint.certificate is None:
        hint = "the server may ask for a client certificate"
    return f"{text}: {hint}" if hint else text


def _target(reply: httpx.Response) -> str:
    """Return where a response redirects to, without parameters: they may be secret."""
    return shortened(reply.headers["Location"].partition("?")[0])
