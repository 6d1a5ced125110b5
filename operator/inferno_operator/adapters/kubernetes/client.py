"""Connections to the API server, and the translation of its errors to `InfernoError`."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio.client import ApiClient, ApiException, CustomObjectsApi
from kubernetes.aio.config import ConfigException
from pydantic_core import from_json, to_json

from inferno_operator.adapters.kubernetes.access import (
    DEFAULT_KUBECONFIG,
    ApiAccess,
    Kubeconfig,
    RenewingClient,
    load_pod,
)
from inferno_operator.resources.objects import Key, Kind
from inferno_operator.runtime.ports import (
    GoneError,
    RejectedError,
    StaleError,
    UnauthenticatedError,
    UnknownFieldError,
)
from inferno_operator.runtime.texts import cause_of
from inferno_optimizer.errors import InfernoError, UnavailableError

APPLY = "application/apply-patch+yaml; charset=utf-8"
"""Server-side apply; with a character set, the client sends bytes as they are."""

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"

NOT_IN_YAML = {
    code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF)
}
"""Escapes of characters that JSON may contain as they are, and YAML not, or as line breaks."""

SERVER_ERRORS = 500
"""Lowest status code of server errors."""

OTHER_OBJECT = ("uid mismatch", "metadata.uid: Invalid value")
"""Messages of the API server that the object of this name has another uid or does not exist."""

UNKNOWN_FIELD = "failed to create typed patch object"
"""Message of a server error because the installed CRD lacks a field."""

TIMEOUT = 30.0
"""Seconds that one call may take."""

CONNECTIONS = 32

RETRIABLE = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)


@asynccontextmanager
async def open_access() -> AsyncIterator[ApiAccess]:
    """Begin access with the pod's service account or, outside a cluster, with the kubeconfig.

    Raises
    ------
    InputError
        Neither exists, or it cannot be used.
    """
    try:
        access = ApiAccess("the service account", load_pod, await load_pod())
    except ConfigException:
        origin = os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
        access = await ApiAccess.begin(origin, Kubeconfig(origin).load)
    async with aclosing(access):
        yield access


@asynccontextmanager
async def client(
    access: ApiAccess, connections: int = CONNECTIONS
) -> AsyncIterator[CustomObjectsApi]:
    """Connect to the API server."""
    async with RenewingClient(access, connections) as connection:
        yield CustomObjectsApi(connection)


async def answer_to(call: Awaitable[Any], about: str) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return the answer to a call; translates the client's errors to `InfernoError`."""
    try:
        return await call
    except ApiException as error:
        raise _translate_error(error, about) from error
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        text = f"{about}: the API server{_place(error)} does not answer: {cause_of(error)}"
        raise UnavailableError(text) from error


def _place(error: Exception) -> str:
    """Where the API server should be, as far as an error says it."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return ""
    return f" at {error.host}:{error.port}"


async def received(call: Awaitable[aiohttp.ClientResponse]) -> Any:  # noqa: ANN401 - JSON
    """Return the object in a response of a call without preloaded content."""
    async with await call as response:
        body = await response.read()
    if response.status >= HTTPStatus.BAD_REQUEST:
        error = ApiException(response.status, response.reason)
        error.body = body.decode(errors="replace")
        raise error
    return from_json(body)


async def get(
    api: ApiClient,
    path: str,
    query: Mapping[str, str],
    seconds: float | aiohttp.ClientTimeout = TIMEOUT,
) -> aiohttp.ClientResponse:
    """Read an object, a list or a watch, and return the response.

    The generated calls copy and check their arguments, which takes as long as all the rest of a
    read or write: a plan of 10,000 Servers is 20,000 writes, a first look at 1,000 Servers reads
    2,000 scale subresources. Those for the core's kinds also import a class for each part of a pod
    and of much else, which would slow down each start.
    """
    return await _request(api, "GET", _build_target(path, **query), {}, seconds=seconds)


async def post(api: ApiClient, path: str, body: object) -> aiohttp.ClientResponse:
    """Create an object, and return the response."""
    return await _request(api, "POST", path, {}, body)


async def patch(
    api: ApiClient, path: str, body: object, content_type: str, **query: str
) -> aiohttp.ClientResponse:
    """Patch an object, and return the response."""
    headers = {"Content-Type": content_type}
    content = as_yaml(body) if content_type == APPLY else body
    return await _request(api, "PATCH", _build_target(path, **query), headers, content)


def _build_target(path: str, **query: str) -> str:
    """Return the path and the query of a request."""
    return f"{path}?{_encode_query(tuple(query.items()))}" if query else path


@lru_cache(maxsize=64)
def _encode_query(query: tuple[tuple[str, str], ...]) -> str:
    """Return a query as a URL has it; all writes of a manager have the same one."""
    return urlencode(query)


def as_yaml(document: object) -> bytes:
    """Return a document as YAML that the API server reads in little time and memory.

    It is JSON with line breaks: in one line, all of it up to the first kilobyte might be the key of
    a mapping to YAML, so the reader would keep it and move it again and again. Characters beyond
    16 bits are not escaped: in YAML, two escapes are never one character.
    """
    return to_json(document, indent=0).decode().translate(NOT_IN_YAML).encode()


async def _request(
    api: ApiClient,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: object = None,
    seconds: float | aiohttp.ClientTimeout = TIMEOUT,
) -> aiohttp.ClientResponse:
    headers = {**api.default_headers, "Accept": "application/json", **headers}
    await api.update_params_for_auth(headers, [], ["BearerToken"], target, method, body)
    url = f"{api.configuration.host}{target}"
    answer = await api.call_api(method, url, headers, body, _request_timeout=seconds)
    response: aiohttp.ClientResponse = answer.response
    return response


def _translate_error(error: ApiException, about: str) -> InfernoError:
    message = _read_message(error)
    text = f"{about}: {message}"
    if error.status == HTTPStatus.NOT_FOUND or any(sign in message for sign in OTHER_OBJECT):
        return GoneError(text)
    if error.status == HTTPStatus.CONFLICT:
        return StaleError(text)
    if UNKNOWN_FIELD in message:
        return UnknownFieldError(f"{text}; apply the custom resource definitions of this version")
    if error.status == HTTPStatus.UNAUTHORIZED:  # may be tried again: tokens are renewed
        return UnauthenticatedError(text)
    if error.status is None or error.status >= SERVER_ERRORS or error.status in RETRIABLE:
        return UnavailableError(text)
    return RejectedError(text)


def _read_message(error: ApiException) -> str:
    """Return the API server's message in one line."""
    try:
        message = json.loads(error.body or "")["message"]
    except (ValueError, KeyError, TypeError):
        message = error.reason or error.body
    return " ".join(f"{message} (HTTP {error.status})".split())


def causes_of(error: InfernoError) -> list[str]:
    """Return the causes that the API server gives for an error of `answer_to`, with fields."""
    try:
        causes = json.loads(getattr(error.__cause__, "body", ""))["details"]["causes"]
        return [f"{cause['message']}: {cause['field']}" for cause in causes]
    except (ValueError, KeyError, TypeError):
        return []


def path_of(kind: Kind, key: Key) -> tuple[str, str, str, str, str]:
    """Return the path of an object, in the order of the client's arguments."""
    return kind.group, kind.version, key.namespace, kind.plural, key.name


def url_path_of(kind: Kind, key: Key, subresource: str = "") -> str:
    """Return the path of an object, or of a subresource, in a URL; names are quoted."""
    path = f"{url_path_of_all(kind, key.namespace)}/{quote(key.name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def url_path_of_all(kind: Kind, namespace: str) -> str:
    """Return the path of all objects of a kind in a namespace, or in all namespaces ("")."""
    root = "apis" if kind.group else "api"
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"/{root}/{kind.api_version}{within}/{quote(kind.plural, safe='')}"
