"""The `Cluster` of `runtime.ports` on a real API server, through the official asyncio client.

Most writes are server-side applies of exactly the operator's fields, so that the fields of other
managers do not change.
"""

import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kubernetes.aio.client import (
    CustomObjectsApi,
    V1DeleteOptions,
    V1Preconditions,
)

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
from inferno_operator.adapters.kubernetes.events import NEW_EVENT, event_manifest
from inferno_operator.adapters.kubernetes.watch import PAGE_SIZE, changes, first_page, listing
from inferno_operator.resources.objects import Event, Key, Kind, Manifest, Now, Reference
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
        return _scale(kind, answer)

    async def _get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return await received(get(self._api.api_client, path, {}))

    async def list(self, kind: Kind, namespace: str) -> Listing:
        """List all objects of a kind in a namespace, or in all namespaces ("")."""
        return await listing(self._api, kind, namespace, self._page_size, self._kept)

    async def try_list(self, kind: Kind, namespace: str) -> None:
        """List one object at most: raises what the API server says to a list that it refuses."""
        await first_page(self._api, kind, namespace, 1)

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
        return _scale(reference.kind, await answer_to(call, f"scale of {reference}"))

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
        manifest = event_manifest(event, self._now(), self._instance)
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


def _scale(kind: Kind, answer: Manifest) -> Scale:
    """Return the scale subresource; a number of 0 may be left out."""
    selector = answer.get("status", {}).get("selector", "")
    replicas = answer.get("spec", {}).get("replicas", 0)
    return Scale(Reference.of(kind, answer), replicas, selector)
