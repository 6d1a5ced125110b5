"""Objects of any kind on the API server, and the fields of them that actuation owns."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kubernetes.aio.client import CustomObjectsApi

from inferno_operator.adapters.kubernetes.boosters import ApiServerBoosters
from inferno_operator.adapters.kubernetes.client import (
    APPLY,
    CONNECTIONS,
    TIMEOUT,
    answer_to,
    client,
    path_of,
)
from inferno_operator.controllers.actuation.ownership import managed_without_us
from inferno_operator.controllers.actuation.ports import FIELD_MANAGER, ConflictError, Place, Write
from inferno_operator.controllers.boosters.ports import Listed
from inferno_operator.resources.objects import Kind, Manifest, Now
from inferno_operator.runtime.ports import Change, GoneError, StaleError

JSON_PATCH = "application/json-patch+json"

OWNED_BY_OTHERS = "Apply failed with"
"""How the API server says that fields of an apply are somebody else's."""

KINDS = 7
"""Kinds that may be followed: Servers, and of both dialects what has to do with replicas."""


@asynccontextmanager
async def connect(areas: int, now: Now, instance: str) -> AsyncIterator["ApiServerObjects"]:
    """Connect as for everything else; every kind takes a connection for each area."""
    async with client(KINDS * areas + CONNECTIONS) as api:
        yield ApiServerObjects(api, ApiServerBoosters(api, now, instance))


class ApiServerObjects:
    """The `Objects` of actuation on a real API server; one that reads does so for it."""

    def __init__(self, api: CustomObjectsApi, reader: ApiServerBoosters) -> None:
        self._api = api
        self._reader = reader

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server knows a kind."""
        call = self._api.get_api_resources(kind.group, kind.version, _request_timeout=TIMEOUT)
        try:
            answer = await answer_to(call, f"resources of {kind.api_version}")
        except GoneError:
            return False
        return any(resource.name == kind.plural for resource in answer.resources)

    async def get(self, place: Place) -> Manifest:
        """One object."""
        call = self._api.get_namespaced_custom_object(
            *path_of(place.kind, place.key), _request_timeout=TIMEOUT
        )
        return await _manifest(call, place)

    async def listed(self, kind: Kind, namespace: str) -> Listed:
        """All objects of a kind in a namespace, or in all ("")."""
        return await self._reader.listed(kind, namespace)

    def changes(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[Change, None]:
        """What changed since a version, in order, until the watch ends."""
        return self._reader.changes(kind, namespace, since)

    async def apply(self, write: Write, *, force: bool) -> Manifest:
        """Own exactly these fields; unless forced, `ConflictError` if others hold them."""
        call = self._api.patch_namespaced_custom_object(
            *path_of(write.place.kind, write.place.key),
            {**_header(write.place, uid=write.uid), "spec": write.spec},
            field_manager=FIELD_MANAGER,
            force=force,
            _content_type=APPLY,
            _request_timeout=TIMEOUT,
        )
        try:
            return await _manifest(call, write.place)
        except StaleError as error:
            if OWNED_BY_OTHERS not in str(error):
                raise
            raise ConflictError(str(error)) from error

    async def apply_conditions(
        self, place: Place, seen: Manifest, conditions: Sequence[Manifest]
    ) -> Manifest:
        """Own exactly these conditions; `StaleError` if the object changed since it was seen."""
        version = seen["metadata"]["resourceVersion"]
        call = self._api.patch_namespaced_custom_object_status(
            *path_of(place.kind, place.key),
            {**_header(place, resourceVersion=version), "status": {"conditions": conditions}},
            field_manager=FIELD_MANAGER,
            force=True,
            _content_type=APPLY,
            _request_timeout=TIMEOUT,
        )
        return await _manifest(call, place)

    async def disown(self, place: Place, seen: Manifest) -> Manifest:
        """Own nothing of the spec any more; every value stays."""
        version = seen["metadata"]["resourceVersion"]
        entries = managed_without_us(seen)
        call = self._api.patch_namespaced_custom_object(
            *path_of(place.kind, place.key),
            [
                {"op": "replace", "path": "/metadata/managedFields", "value": entries},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            ],
            field_manager=FIELD_MANAGER,
            _content_type=JSON_PATCH,
            _request_timeout=TIMEOUT,
        )
        return await _manifest(call, place)


async def _manifest(call: Awaitable[Any], place: Place) -> Manifest:
    answer: Manifest = await answer_to(call, str(place))
    return answer


def _header(place: Place, **metadata: str) -> dict[str, Any]:
    return {
        "apiVersion": place.kind.api_version,
        "kind": place.kind.kind,
        "metadata": {"name": place.key.name, **metadata},
    }
