"""The `Cluster` of `runtime.ports` on a real API server, through the official asyncio client.

Most writes are server-side applies of exactly the operator's fields, so that the fields of other
managers do not change. Lists come in pages, and a watch ends when its connection is silent.
"""

import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from http import HTTPStatus
from typing import Any

import aiohttp
from kubernetes.aio.client import (
    CustomObjectsApi,
    V1DeleteOptions,
    V1Preconditions,
)
from pydantic_core import from_json

from inferno_operator.adapters.kubernetes.access import ApiAccess
from inferno_operator.adapters.kubernetes.client import (
    APPLY,
    JSON_PATCH,
    MERGE,
    TIMEOUT,
    answer_to,
    causes_of,
    client,
    get,
    patch,
    path_of,
    post,
    received,
    url_path_of,
    url_path_of_all,
)
from inferno_operator.resources import GROUP
from inferno_operator.resources.objects import NODE, POD, Event, Key, Kind, Manifest, Now, Reference
from inferno_operator.resources.pods import reduced, reduced_node
from inferno_operator.resources.serving_roles import role_patch
from inferno_operator.runtime.ports import (
    ConflictError,
    GoneError,
    Listing,
    ObjectChange,
    RejectedError,
    Scale,
    Served,
    StaleError,
    UnscaledError,
)
from inferno_optimizer.errors import InfernoError, UnavailableError

NEW_EVENT = Kind("events.k8s.io", "Event", "events", "v1")
"""The kind of the events that are written; those of the core, which are read, are the same ones."""

MAX_NOTE = 1024
"""Maximum size of the note of an event [bytes]."""


def build_event(event: Event, now: datetime, instance: str) -> dict[str, Any]:
    """Return the manifest of an event.

    Parameters
    ----------
    event
        The event.
    now
        The time of the event, with its zone.
    instance
        The operator's `reportingInstance`.
    """
    about = event.about
    return {
        "apiVersion": NEW_EVENT.api_version,
        "kind": NEW_EVENT.kind,
        "metadata": {"generateName": f"{about.key.name}-", "namespace": about.key.namespace},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": GROUP,
        "reportingInstance": instance,
        "action": event.action,
        "type": event.type,
        "reason": event.reason,
        "note": event.message.encode()[:MAX_NOTE].decode(errors="ignore"),
        "regarding": {
            "apiVersion": about.kind.api_version,
            "kind": about.kind.kind,
            "name": about.key.name,
            "namespace": about.key.namespace,
            "uid": about.uid,
        },
    }


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


async def list_objects(
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
    async with aclosing(_read_pages(api, kind, namespace, page_size)) as pages:
        async for page in pages:
            version = int(page["metadata"]["resourceVersion"])
            manifests += ({**header, **kept(_reduce(kind, item))} for item in page["items"])
    return Listing(kind, namespace, version, tuple(manifests))


async def read_first_page(
    api: CustomObjectsApi, kind: Kind, namespace: str, page_size: int
) -> Manifest:
    """Return the first page of a list as the API server has it."""
    async with aclosing(_read_pages(api, kind, namespace, page_size)) as pages:
        return await anext(pages)


async def _read_pages(
    api: CustomObjectsApi, kind: Kind, namespace: str, page_size: int, seconds: float = TIMEOUT
) -> AsyncGenerator[Manifest, None]:
    """Yield the list of a kind: a whole one may have some hundred MB, which both sides hold."""
    about = f"{kind} of {namespace or 'all namespaces'}"
    path = _find_path(kind, namespace)
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
    response = await answer_to(_open_watch(api, kind, namespace, since), about)
    async with response:
        if response.status != HTTPStatus.OK:
            raise UnavailableError(f"{about}: HTTP {response.status}")
        async with aclosing(_read_lines(response)) as events:
            try:
                async for event in events:
                    change = _decode_change(from_json(event), kind, about)
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
    async with aclosing(_read_pages(api, kind, namespace, 1, PROBE_S)) as pages:
        page = await anext(pages)
    _require_version(kind, int(page["metadata"]["resourceVersion"]), since)


def _require_version(kind: Kind, version: int, since: int) -> None:
    """Raise if the API server is at a version that is older than what a watch has seen."""
    if version < since:
        raise UnavailableError(
            f"watch of {kind}: the API server is at version {version}, older than {since}"
        )


async def _open_watch(
    api: CustomObjectsApi, kind: Kind, namespace: str, since: int
) -> aiohttp.ClientResponse:
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": str(since),
        "timeoutSeconds": str(WATCH_SECONDS),
    }
    path = _find_path(kind, namespace)
    limits = aiohttp.ClientTimeout(total=WATCH_SECONDS + PATIENCE, sock_read=SILENCE_S)
    return await get(api.api_client, path, query, limits)


def _find_path(kind: Kind, namespace: str) -> str:
    """Return the path of all objects of a kind; nodes are in no namespace."""
    return url_path_of_all(kind, "" if kind == NODE else namespace)


async def _read_lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
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


def _reduce(kind: Kind, item: Manifest) -> Manifest:
    """Return the fields of an object that are read: pods and nodes are many, and large."""
    return REDUCED[kind](item) if kind in REDUCED else item


def _decode_change(event: Manifest, kind: Kind, about: str) -> ObjectChange:
    item: Manifest = event["object"]
    if event["type"] == "ERROR":  # such as 410 Gone: the version is too old
        raise UnavailableError(f"{about}: {item.get('message')}")
    version = int(item["metadata"]["resourceVersion"])
    if event["type"] == "BOOKMARK":
        return ObjectChange(version)
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, **_reduce(kind, item)}
    return ObjectChange(version, manifest, gone=event["type"] == "DELETED")


IGNORE = "Ignore"
"""Field validation is off: the operator sends no unknown or repeated fields."""

NO_NUMBER = "the spec replicas field"
"""Start of the API server's message that an object has no number of replicas."""

CANNOT_PATCH = "the server rejected our request due to an error in our request"
"""The API server's message that a JSON patch found another value than it tests; no more is said."""

OWNED_BY_OTHERS = "Apply failed with"
"""Start of the API server's message that another manager owns fields of an apply."""

CONFIG_MAP = Kind("", "ConfigMap", "configmaps", "v1")
SECRET = Kind("", "Secret", "secrets", "v1")

CALLS = 32
"""Connections for calls, in addition to one for each watch."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def connect(
    access: ApiAccess, watches: int, now: Now, instance: str
) -> AsyncIterator["ApiServer"]:
    """Connect to the API server; events have `instance` as their `reportingInstance`."""
    async with client(access, watches + CALLS) as api:
        yield ApiServer(api, now, instance)


class ApiReader:
    """Reads objects of any kind, in pages of `page_size`; of lists it keeps what `kept` returns."""

    def __init__(
        self,
        api: CustomObjectsApi,
        page_size: int = PAGE_SIZE,
        kept: Callable[[Manifest], Manifest] = lambda manifest: manifest,
    ) -> None:
        self._api = api
        self._page_size = page_size
        self._kept = kept

    async def verbs(self, group: str, version: str) -> Mapping[str, frozenset[str]]:
        """Return what the API server offers to do with each kind of a group, in the plural."""
        call = self._api.get_api_resources(group, version, _request_timeout=TIMEOUT)
        try:
            answer = await answer_to(call, f"resources of {group}/{version}")
        except GoneError:
            return {}
        return {resource.name: frozenset(resource.verbs) for resource in answer.resources}

    async def find(self, api_version: str, kind: str) -> Served | None:
        """Return the namespaced kind of this name; None if the API server does not serve it."""
        group, _, version = api_version.rpartition("/")
        call = self._api.get_api_resources(group, version, _request_timeout=TIMEOUT)
        try:
            answer = await answer_to(call, f"resources of {api_version}")
        except GoneError:
            return None
        names = {resource.name for resource in answer.resources}
        for resource in answer.resources:
            if resource.kind == kind and resource.namespaced and "/" not in resource.name:
                served_kind = Kind(group, kind, resource.name, version)
                return Served(served_kind, is_scalable=f"{resource.name}/scale" in names)
        return None

    async def get(self, kind: Kind, key: Key) -> Manifest:
        """Return one object."""
        call = self._get(url_path_of(kind, key))
        answer: Manifest = await answer_to(call, f"{kind.kind} {key}")
        return answer

    async def scale(self, kind: Kind, key: Key) -> Scale:
        """Return the scale subresource of one object."""
        call = self._get(url_path_of(kind, key, "scale"))
        try:
            answer: Manifest = await answer_to(call, f"scale of {kind.kind} {key}")
        except UnavailableError as error:
            if NO_NUMBER not in str(error):
                raise
            raise UnscaledError(str(error)) from error
        return _decode_scale(kind, answer)

    async def _get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return await received(get(self._api.api_client, path, {}))

    async def list(self, kind: Kind, namespace: str) -> Listing:
        """List all objects of a kind in a namespace, or in all namespaces ("")."""
        return await list_objects(self._api, kind, namespace, self._page_size, self._kept)

    async def try_list(self, kind: Kind, namespace: str) -> None:
        """List one object at most: raises what the API server says to a list that it refuses."""
        await read_first_page(self._api, kind, namespace, 1)

    def watch(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[ObjectChange, None]:
        """Yield the changes since a version, in order, until the watch ends."""
        return changes(self._api, kind, namespace, since)


class ApiServer(ApiReader):
    """Reads and writes objects of any kind; `instance` is the `reportingInstance` of events."""

    def __init__(
        self, api: CustomObjectsApi, now: Now, instance: str, page_size: int = PAGE_SIZE
    ) -> None:
        super().__init__(api, page_size)
        self._now = now
        self._instance = instance

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        """Set and own exactly the status of a manifest, or its other fields if it has no status."""
        key = Key.of(manifest)
        part = "status" if "status" in manifest else ""
        options = {"fieldValidation": IGNORE, "force": "true" if force else "false"}
        call = self._patch(url_path_of(kind, key, part), manifest, APPLY, manager, **options)
        try:
            answer: Manifest = await answer_to(call, f"{kind.kind} {key}")
        except StaleError as error:
            if OWNED_BY_OTHERS not in str(error):
                raise
            raise ConflictError(str(error), causes_of(error)) from error
        return answer

    async def merge(self, kind: Kind, manifest: Manifest, manager: str) -> None:
        """Set the fields of a manifest, by a merge patch."""
        key = Key.of(manifest)
        call = self._patch(url_path_of(kind, key), manifest, MERGE, manager)
        await answer_to(call, f"{kind.kind} {key}")

    async def set_scale(self, scale: Scale, replicas: int, manager: str) -> Scale:
        """Set the number of replicas, by a patch of the scale subresource or role that was read."""
        reference = scale.reference
        if scale.role:
            return await self._set_role(scale, replicas, manager)
        path = url_path_of(reference.kind, reference.key, "scale")
        metadata = {"resourceVersion": reference.version, "uid": reference.uid}
        body = {"metadata": metadata, "spec": {"replicas": replicas}}
        call = self._patch(path, body, MERGE, manager)
        return _decode_scale(reference.kind, await answer_to(call, f"scale of {reference}"))

    async def _set_role(self, scale: Scale, replicas: int, manager: str) -> Scale:
        reference, role = scale.reference, scale.role
        body = role_patch(reference.uid, role, scale.index, scale.replicas, replicas)
        path = url_path_of(reference.kind, reference.key)
        call = self._patch(path, body, JSON_PATCH, manager)
        try:
            answer: Manifest = await answer_to(call, f"role {role} of {reference}")
        except RejectedError as error:
            if CANNOT_PATCH not in str(error):
                raise
            raise StaleError(str(error)) from error
        written = Scale.of_role(reference.kind, answer, role)
        if written is None:
            raise GoneError(f"{reference} has no role {role!r}")
        return written

    async def _patch(
        self, path: str, body: object, content_type: str, manager: str, **options: str
    ) -> Any:  # noqa: ANN401 - JSON
        options["fieldManager"] = manager
        return await received(patch(self._api.api_client, path, body, content_type, **options))

    async def set_managers(self, reference: Reference, entries: Sequence[Any]) -> None:
        """Replace the `managedFields` of an object; the values of its fields do not change."""
        call = self._api.patch_namespaced_custom_object(
            *path_of(reference.kind, reference.key),
            [
                {"op": "replace", "path": "/metadata/managedFields", "value": list(entries)},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": reference.version},
            ],
            _content_type=JSON_PATCH,
            _request_timeout=TIMEOUT,
        )
        await answer_to(call, str(reference))

    async def delete(self, reference: Reference) -> None:
        """Delete this object; the garbage collector deletes what it owns later."""
        call = self._api.delete_namespaced_custom_object(
            *path_of(reference.kind, reference.key),
            body=V1DeleteOptions(
                propagation_policy="Background", preconditions=V1Preconditions(uid=reference.uid)
            ),
            _request_timeout=TIMEOUT,
        )
        await answer_to(call, str(reference))

    async def publish(self, event: Event) -> None:
        """Create an event; a failure is only logged."""
        path = url_path_of_all(NEW_EVENT, event.about.key.namespace)
        manifest = build_event(event, self._now(), self._instance)
        try:
            await answer_to(self._post(path, manifest), f"event of {event.about}")
        except InfernoError as error:
            logger.warning("the event is not published: %s", error)

    async def _post(self, path: str, manifest: Manifest) -> Any:  # noqa: ANN401 - JSON
        return await received(post(self._api.api_client, path, manifest))

    async def config_map(self, key: Key) -> Mapping[str, str]:
        """Return the data of a ConfigMap."""
        return await self._data(CONFIG_MAP, key)

    async def secret(self, key: Key) -> Mapping[str, bytes]:
        """Return the data of a Secret."""
        data = await self._data(SECRET, key)
        return {name: b64decode(value) for name, value in data.items()}

    async def _data(self, kind: Kind, key: Key) -> Mapping[str, str]:
        manifest = await self.get(kind, key)
        return manifest.get("data") or {}

    async def create_secret(self, key: Key, data: Mapping[str, bytes], manager: str) -> None:
        """Create a Secret by server-side apply, for which a right on just its name is enough.

        Raises
        ------
        StaleError
            It exists already, with other data of another manager.
        """
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "data": {name: b64encode(value).decode() for name, value in data.items()},
        }
        call = self._patch(url_path_of(SECRET, key), manifest, APPLY, manager)
        await answer_to(call, f"Secret {key}")


def _decode_scale(kind: Kind, answer: Manifest) -> Scale:
    """Return the scale subresource; a number of 0 may be left out."""
    selector = answer.get("status", {}).get("selector", "")
    replicas = answer.get("spec", {}).get("replicas", 0)
    return Scale(Reference.of(kind, answer), replicas, selector)
