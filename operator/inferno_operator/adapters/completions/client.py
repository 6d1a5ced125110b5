"""One request to an engine: sent, streamed, and its tokens timed."""

import asyncio
import ipaddress
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from inferno_operator.runtime.files import read_text
from inferno_operator.runtime.texts import cause_of, shortened
from inferno_optimizer.errors import InfernoError, InputError

KEY = re.compile(r"[!-~]+")
"""An API key: printable ASCII characters without spaces."""

TIMEOUT_S = 60.0
"""Longest time to the next token [s]."""


class EngineError(InfernoError):
    """An engine refuses a request, does not answer it, or answers something else."""


@dataclass(frozen=True, slots=True)
class EngineEndpoint:
    """Where an engine is.

    Attributes
    ----------
    url
        Base of its API, without `/v1`.
    key
        File with the API key; None if it asks for none.
    timeout
        Longest time to the next token [s].

    Raises
    ------
    InputError
        The URL is not one.
    """

    url: str
    key: Path | None = None
    timeout: float = TIMEOUT_S

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{self.url!r} is no URL of an engine, such as http://localhost:8000")

    @property
    def base(self) -> str:
        """The base with `/v1`, which the URL may have or not."""
        return self.url.rstrip("/").removesuffix("/v1") + "/v1"

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def headers(self) -> dict[str, str]:
        """The headers of a request; no message has the key.

        Raises
        ------
        InputError
            The file with the key cannot be read, or has none.
        """
        if self.key is None:
            return {}
        text = read_text(self.key).strip()
        if not KEY.fullmatch(text):
            raise InputError(f"{self.key} has no API key: one line of ASCII characters")
        return {"Authorization": f"Bearer {text}"}


SHOWN = 120
"""Characters of an answer that a message has."""

DATA, DONE = "data:", "[DONE]"
"""How an event of a stream begins, and what the last one is."""


@dataclass(frozen=True, slots=True)
class Completion:
    """When the tokens of an answer came, in seconds of the loop, and how many there were.

    Attributes
    ----------
    asked
        When the request was sent [s].
    came
        When its tokens came, one time for each event [s].
    input_tokens, output_tokens
        As the engine counts them; where it does not, those of the words, and the events.
    """

    asked: float
    came: Sequence[float]
    input_tokens: int
    output_tokens: int

    @property
    def first(self) -> float:
        """When the first token came [s]."""
        return self.came[0]

    @property
    def last(self) -> float:
        """When the last token came [s]."""
        return self.came[-1]


class EngineClient:
    """Asks an engine.

    Parameters
    ----------
    http
        Sends requests to the base of its API.
    endpoint
        Where it is, for messages.
    """

    def __init__(self, http: httpx.AsyncClient, endpoint: EngineEndpoint) -> None:
        self._http = http
        self._endpoint = endpoint

    async def model(self) -> str:
        """Return the first model that it serves.

        Raises
        ------
        EngineError
            It does not tell.
        """
        async with self._translate_errors():
            response = await self._http.get("models")
            self._refuse(response.status_code, response.text)
            try:
                return str(response.json()["data"][0]["id"])
            except (ValueError, KeyError, IndexError, TypeError) as error:
                raise self._build_error(response.text) from error

    async def complete(self, model: str, words: list[str], tokens: int) -> Completion:
        """Have a prompt of these words continued by so many tokens.

        Raises
        ------
        EngineError
            The engine refuses the request, or there is no answer, or it breaks off.
        """
        body = {
            "model": model,
            "prompt": " ".join(words),
            "max_tokens": tokens,
            "min_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        async with self._translate_errors():
            try:
                return await self._ask_streaming(body, len(words))
            except httpx.RemoteProtocolError:  # a connection that was kept, and is closed by now
                return await self._ask_streaming(body, len(words))

    async def _ask_streaming(self, body: Mapping[str, object], words: int) -> Completion:
        now = asyncio.get_running_loop().time
        asked = now()
        times: list[float] = []
        usage: Mapping[str, Any] = {}
        async with self._http.stream("POST", "completions", json=body) as response:
            if response.is_error:
                text = (await response.aread()).decode(errors="replace")
                self._refuse(response.status_code, text)
            async for event in self._read_events(response):
                if event.get("choices"):
                    times.append(now())
                usage = event.get("usage") or usage
        if not times:
            raise EngineError(f"{self._endpoint.url}: the answer has no token")
        inputs, outputs = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
        return Completion(asked, times, inputs or words, outputs or len(times))

    async def _read_events(self, response: httpx.Response) -> AsyncIterator[Mapping[str, Any]]:
        """The events of a stream, to its end."""
        async for line in response.aiter_lines():
            text = line.removeprefix(DATA).strip()
            if text == DONE:
                return
            if not text or line.startswith(":"):
                continue
            try:
                event = json.loads(text)
            except ValueError as error:
                raise self._build_error(line) from error
            if not isinstance(event, dict) or "error" in event:
                raise self._build_error(line)
            yield event
        raise EngineError(f"{self._endpoint.url}: the answer breaks off")

    def _refuse(self, status: int, text: str) -> None:
        if status < HTTPStatus.BAD_REQUEST:
            return
        raise EngineError(f"{self._endpoint.url}: status {status}: {shortened(text, SHOWN)}")

    def _build_error(self, text: str) -> EngineError:
        return EngineError(f"{self._endpoint.url}: this is no answer: {shortened(text, SHOWN)}")

    @asynccontextmanager
    async def _translate_errors(self) -> AsyncIterator[None]:
        """Turn errors of the connection into ours."""
        url = self._endpoint.url
        try:
            yield
        except httpx.TimeoutException as error:
            seconds = self._endpoint.timeout
            raise EngineError(f"{url}: no token within {seconds:g} s") from error
        except httpx.InvalidURL as error:
            raise EngineError(f"{url}: {error}") from error
        except httpx.TransportError as error:
            text = f"{url}: the engine does not answer: {cause_of(error)}"
            raise EngineError(text) from error


@asynccontextmanager
async def connect(
    endpoint: EngineEndpoint, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[EngineClient]:
    """Connect to an engine, with as many connections as there are requests.

    Parameters
    ----------
    endpoint
        Where it is.
    transport
        Sends the requests; None: over the network.

    Raises
    ------
    InputError
        The file with the API key cannot be used.
    """
    async with httpx.AsyncClient(
        base_url=endpoint.base,
        headers=endpoint.headers(),
        timeout=httpx.Timeout(endpoint.timeout),
        limits=httpx.Limits(max_connections=None),
        transport=transport,
        trust_env=False,
    ) as http:
        yield EngineClient(http, endpoint)
