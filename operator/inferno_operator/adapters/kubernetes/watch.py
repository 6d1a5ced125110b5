"""List and watch objects of any kind."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from http import HTTPStatus

import aiohttp
from kubernetes.aio.client import CustomObjectsApi
from pydantic_core import from_json

from inferno_operator.adapters.kubernetes.client import (
    TIMEOUT,
    answer_to,
    get,
    received,
    url_path_of_all,
)
from inferno_operator.resources.objects import NODE, POD, Kind, Manifest
from inferno_operator.resources.pods import reduced, reduced_node
from inferno_operator.runtime.ports import Listing, ObjectChange
from inferno_optimizer.errors import UnavailableError

WATCH_SECONDS = 300
"""Duration of a watch [s]; limited, so that a broken connection is noticed."""

REDUCED: Mapping[Kind, Callable[[Manifest], Manifest]] = {NODE: reduced_node, POD: reduced}
"""Kinds of which only some fields are kept."""

PAGE_SIZE = 500
"""Most objects in one answer."""

PATIENCE = 60
"""Additional seconds until the client ends a watch that the API server did not end."""

SILENCE_S = 75.0
"""Time without a byte after which a watch ends [s]: the API server sends a bookmark each minute."""

PROBE_S = 5.0
"""Time in which the API server must answer whether it is there, after a silence [s]."""


async def listing(
    api: CustomObjectsApi,
    kind: Kind,
    namespace: str,
    page_size: int = PAGE_SIZE,
    kept: Callable[[Manifest], Manifest] = lambda manifest: manifest,
) -> Listing:
    """List what is kept of all objects of a kind in a namespace, or in all namespaces ("")."""
    header = {"apiVersion": kind.api_version, "kind": kind.kind}
    manifests: list[Manifest] = []
    version = 0
    async with aclosing(_pages(api, kind, namespace, page_size)) as pages:
        async for page in pages:
            version = int(page["metadata"]["resourceVersion"])
            manifests += ({**header, **kept(_read(kind, item))} for item in page["items"])
    return Listing(kind, namespace, version, tuple(manifests))


async def first_page(api: CustomObjectsApi, kind: Kind, namespace: str, page_size: int) -> Manifest:
    """Return the first page of a list as the API server has it."""
    async with aclosing(_pages(api, kind, namespace, page_size)) as pages:
        return await anext(pages)


async def _pages(
    api: CustomObjectsApi, kind: Kind, namespace: str, page_size: int, seconds: float = TIMEOUT
) -> AsyncGenerator[Manifest, None]:
    """Yield the list of a kind: a whole one may have some hundred MB, which both sides hold."""
    about = f"{kind} of {namespace or 'all namespaces'}"
    path = _path(kind, namespace)
    limit = {"limit": str(page_size)}
    more: dict[str, str] = {}
    while True:
        call = get(api.api_client, path, {**limit, **more}, seconds)
        page: Manifest = await answer_to(received(call), about)
        yield page
        token = page["metadata"].get("continue")
        if not token:
            return
        more = {"continue": token}


async def changes(
    api: CustomObjectsApi, kind: Kind, namespace: str, since: int
) -> AsyncGenerator[ObjectChange, None]:
    """Yield the changes of objects of a kind since a version, in order, until the watch ends.

    A watch ends when its connection is silent for `SILENCE_S`, if the API server answers otherwise.
    """
    about = f"watch of {kind}"
    response = await answer_to(_open(api, kind, namespace, since), about)
    async with response:
        if response.status != HTTPStatus.OK:
            raise UnavailableError(f"{about}: HTTP {response.status}")
        async with aclosing(_lines(response)) as events:
            try:
                async for event in events:
                    change = _change(from_json(event), kind, about)
                    if change.manifest is None:
                        _require_version(kind, change.version, since)
                    since = max(since, change.version)
                    yield change
            except aiohttp.SocketTimeoutError:
                is_silent = True
            else:
                is_silent = False
    if is_silent:
        await _probe(api, kind, namespace, since)


async def _probe(api: CustomObjectsApi, kind: Kind, namespace: str, since: int) -> None:
    """Read one object, after a silence: the API server must be there, and not older than the watch.

    A watch from a version that is yet to come gets nothing, not even bookmarks.
    """
    async with aclosing(_pages(api, kind, namespace, 1, PROBE_S)) as pages:
        page = await anext(pages)
    _require_version(kind, int(page["metadata"]["resourceVersion"]), since)


def _require_version(kind: Kind, version: int, since: int) -> None:
    """Raise if the API server is at a version that is older than what a watch has seen."""
    if version < since:
        raise UnavailableError(
            f"watch of {kind}: the API server is at version {version}, older than {since}"
        )


async def _open(
    api: CustomObjectsApi, kind: Kind, namespace: str, since: int
) -> aiohttp.ClientResponse:
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": str(since),
        "timeoutSeconds": str(WATCH_SECONDS),
    }
    path = _path(kind, namespace)
    limits = aiohttp.ClientTimeout(total=WATCH_SECONDS + PATIENCE, sock_read=SILENCE_S)
    return await get(api.api_client, path, query, limits)


def _path(kind: Kind, namespace: str) -> str:
    """Return the path of all objects of a kind; nodes are in no namespace."""
    return url_path_of_all(kind, "" if kind == NODE else namespace)


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a response; aiohttp's own line reader limits their length."""
    rest = b""
    try:
        async for chunk in response.content.iter_any():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line
    except aiohttp.SocketTimeoutError:
        raise
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        text = str(error) or type(error).__name__
        raise UnavailableError(f"a watch was interrupted: {text}") from error


def _read(kind: Kind, item: Manifest) -> Manifest:
    """Return the fields of an object that are read: pods and nodes are many, and large."""
    return REDUCED[kind](item) if kind in REDUCED else item


def _change(event: Manifest, kind: Kind, about: str) -> ObjectChange:
    item: Manifest = event["object"]
    if event["type"] == "ERROR":  # such as 410 Gone: the version is too old
        raise UnavailableError(f"{about}: {item.get('message')}")
    version = int(item["metadata"]["resourceVersion"])
    if event["type"] == "BOOKMARK":
        return ObjectChange(version)
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, **_read(kind, item)}
    return ObjectChange(version, manifest, gone=event["type"] == "DELETED")
