"""The API server for the Model Booster: server-side apply of whole children, any kind."""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import aiohttp
from kubernetes.aio.client import (
    ApiException,
    CoreV1Api,
    CustomObjectsApi,
    V1DeleteOptions,
    V1Preconditions,
)

from inferno_operator.adapters.kubernetes.client import (
    APPLY,
    TIMEOUT,
    answer_to,
    client,
    listed,
    path_of,
)
from inferno_operator.adapters.kubernetes.events import Recorder, Regarding
from inferno_operator.adapters.kubernetes.watch import changes
from inferno_operator.controllers.boosters.ports import Listed, Notice
from inferno_operator.controllers.boosters.retention import FIELD_MANAGER
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Key, Kind, Manifest, Now
from inferno_operator.runtime.ports import Change
from inferno_optimizer.errors import InfernoError

WRITES = 32
"""Connections for what is written, besides one for each watch."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def connect(watches: int, now: Now, instance: str) -> AsyncIterator["ApiServerBoosters"]:
    """Connect as for everything else; events tell that they come from this instance."""
    async with client(watches + WRITES) as api:
        yield ApiServerBoosters(api, now, instance)


class ApiServerBoosters:
    """The `BoosterCluster` of `boosters.ports` on a real API server."""

    def __init__(self, api: CustomObjectsApi, now: Now, instance: str) -> None:
        self._api = api
        self._recorder = Recorder(api, now, instance)

    async def with_images(self, dialect: Dialect, namespace: str) -> Dialect:
        """A dialect with the images that its ConfigMap in a namespace names, if it is there."""
        about = f"ConfigMap {namespace}/{dialect.images}"
        core = CoreV1Api(self._api.api_client)
        call = core.read_namespaced_config_map(dialect.images, namespace, _request_timeout=TIMEOUT)
        try:
            found = await answer_to(call, about)
        except InfernoError as error:
            logger.info("images are the default ones: %s", error)
            return dialect
        return dialect.with_images(found.data or {})

    async def listed(self, kind: Kind, namespace: str) -> Listed:
        """All objects of a kind in a namespace, or in all ("")."""
        return Listed(*await listed(self._api, kind, namespace))

    def changes(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[Change, None]:
        """What changed since a version, in order, until the watch ends."""
        return changes(self._api, kind, namespace, since)

    async def apply(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Own exactly these fields of an object, made if need be."""
        call = self._api.patch_namespaced_custom_object_without_preload_content(
            *path_of(kind, Key.of(manifest)),
            dict(manifest),
            field_manager=FIELD_MANAGER,
            force=True,
            _content_type=APPLY,
            _request_timeout=TIMEOUT,
        )
        answer: Manifest = await answer_to(_received(call), f"{kind.kind} {Key.of(manifest)}")
        return answer

    async def delete(self, kind: Kind, key: Key, uid: str) -> None:
        """Delete this object; what belongs to it goes too, later."""
        call = self._api.delete_namespaced_custom_object(
            *path_of(kind, key),
            body=V1DeleteOptions(
                propagation_policy="Background", preconditions=V1Preconditions(uid=uid)
            ),
            _request_timeout=TIMEOUT,
        )
        await answer_to(call, f"{kind.kind} {key}")

    async def apply_status(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Own exactly these fields of the status, unless the object changed since it was seen."""
        metadata = manifest["metadata"]
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {name: metadata[name] for name in ("name", "uid", "resourceVersion")},
            "status": manifest["status"],
        }
        call = self._api.patch_namespaced_custom_object_status(
            *path_of(kind, Key.of(manifest)),
            body,
            field_manager=FIELD_MANAGER,
            force=True,
            _content_type=APPLY,
            _request_timeout=TIMEOUT,
        )
        answer: Manifest = await answer_to(call, f"{kind.kind} {Key.of(manifest)}")
        return answer

    async def publish(self, kind: Kind, about: Manifest, notice: Notice) -> None:
        """Create an event; nothing depends on it, so one that fails is only logged."""
        regarding = Regarding(kind.api_version, kind.kind, Key.of(about), about["metadata"]["uid"])
        await self._recorder.publish(regarding, "Reconcile", notice)


async def _received(call: Awaitable[aiohttp.ClientResponse]) -> Any:  # noqa: ANN401 - JSON
    """The object that a call returns; the client itself drops one that the call made."""
    async with await call as response:
        body = await response.text()
    if response.status >= HTTPStatus.BAD_REQUEST:
        error = ApiException(response.status, response.reason)
        error.body = body
        raise error
    return json.loads(body)
