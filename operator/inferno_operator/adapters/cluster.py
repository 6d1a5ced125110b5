"""The API server through the official client's asyncio half.

Writes are server-side applies of exactly our fields, so nobody else's are touched; the
object's uid goes with them, so an object of the same name made anew is left alone.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from kubernetes.aio.client import CustomObjectsApi

from inferno_operator.adapters.calls import (
    APPLY,
    MERGE,
    TIMEOUT,
    answer_to,
    client,
    listed,
    path_of,
)
from inferno_operator.adapters.events import Recorder, Regarding
from inferno_operator.boosters.dialects import kind_of
from inferno_operator.ports import (
    Event,
    GoneError,
    Key,
    Listing,
    Manifest,
    Now,
    Reference,
    StaleError,
)
from inferno_operator.resources import API_VERSION, GROUP, VERSION, Resource

FIELD_MANAGER = "inferno-operator"
IGNORE = "Ignore"
"""Fields that are unknown or given twice are not looked for: we have neither, and parsing costs."""


@asynccontextmanager
async def connect(now: Now, instance: str) -> AsyncIterator["ApiServer"]:
    """Connect as `client` does; events tell that they come from this instance."""
    async with client() as api:
        yield ApiServer(api, now, instance)


class ApiServer:
    """The `Cluster` of `ports` on a real API server."""

    def __init__(self, api: CustomObjectsApi, now: Now, instance: str = FIELD_MANAGER) -> None:
        self._api = api
        self._recorder = Recorder(api, now, instance)

    async def served(self) -> frozenset[str]:
        """Kinds of ours that the API server knows now, in the plural."""
        return frozenset(await self._verbs())

    async def terminating(self) -> frozenset[str]:
        """Those of them whose definitions are being deleted, and with them all objects.

        The API server takes `patch` from the verbs that it lists for the kind. Unlike the
        definition itself, everybody may read that list, also an operator of one namespace.
        """
        verbs = await self._verbs()
        return frozenset(name for name in verbs if "patch" not in verbs[name])

    async def _verbs(self) -> dict[str, Sequence[str]]:
        """What the API server offers to do with each kind of ours, and with its status."""
        call = self._api.get_api_resources(GROUP, VERSION, _request_timeout=TIMEOUT)
        answer = await answer_to(call, f"resources of {API_VERSION}")
        return {resource.name: resource.verbs for resource in answer.resources}

    async def get(self, resource: type[Resource], key: Key) -> Manifest:
        """One object."""
        call = self._api.get_namespaced_custom_object(
            *path_of(kind_of(resource), key), _request_timeout=TIMEOUT
        )
        answer: Manifest = await answer_to(call, f"{resource.kind} {key}")
        return answer

    async def list(self, resource: type[Resource], namespace: str) -> Sequence[Manifest]:
        """All objects of a kind in a namespace, or in all ("")."""
        return (await listing(self._api, resource, namespace)).manifests

    async def apply_spec(self, reference: Reference, spec: Manifest) -> Manifest:
        """Own exactly these fields of the spec."""
        call = self._api.patch_namespaced_custom_object(
            *_path(reference),
            {**_header(reference), "spec": spec},
            field_manager=FIELD_MANAGER,
            field_validation=IGNORE,
            force=True,
            _content_type=APPLY,
            _request_timeout=TIMEOUT,
        )
        answer: Manifest = await answer_to(call, str(reference))
        return answer

    async def apply_status(self, reference: Reference, status: Manifest) -> Manifest:
        """Own exactly these fields of the status.

        There the API server looks at the version only, not at the uid: one that is out of
        date is replaced by the newest, if that is one of the same object.
        """
        while True:
            try:
                return await self._apply_status(reference, status)
            except StaleError:
                newest = (await self.get(reference.resource, reference.key))["metadata"]
                if newest["uid"] != reference.uid:
                    raise GoneError(f"{reference}: was deleted and made anew") from None
                reference = replace(reference, version=newest["resourceVersion"])

    async def _apply_status(self, reference: Reference, status: Manifest) -> Manifest:
        header = _header(reference)
        header["metadata"]["resourceVersion"] = reference.version
        call = self._api.patch_namespaced_custom_object_status(
            *_path(reference),
            {**header, "status": status},
            field_manager=FIELD_MANAGER,
            field_validation=IGNORE,
            force=True,
            _content_type=APPLY,
            _request_timeout=TIMEOUT,
        )
        answer: Manifest = await answer_to(call, str(reference))
        return answer

    async def clear_request(self, reference: Reference) -> None:
        """Set `optimize` to false, unless the object changed since it was seen."""
        metadata = {"uid": reference.uid, "resourceVersion": reference.version}
        call = self._api.patch_namespaced_custom_object(
            *_path(reference),
            {"metadata": metadata, "spec": {"optimize": False}},
            field_manager=FIELD_MANAGER,
            _content_type=MERGE,
            _request_timeout=TIMEOUT,
        )
        await answer_to(call, str(reference))

    async def set_finalizers(self, reference: Reference, finalizers: Sequence[str]) -> None:
        """Replace the finalizers, unless the object changed since it was seen."""
        metadata = {"uid": reference.uid, "resourceVersion": reference.version}
        call = self._api.patch_namespaced_custom_object(
            *_path(reference),
            {"metadata": {**metadata, "finalizers": list(finalizers)}},
            field_manager=FIELD_MANAGER,
            _content_type=MERGE,
            _request_timeout=TIMEOUT,
        )
        await answer_to(call, str(reference))

    async def publish(self, event: Event) -> None:
        """Create an event; nothing depends on it, so one that fails is only logged."""
        about = event.about
        regarding = Regarding(API_VERSION, about.resource.kind, about.key, about.uid)
        await self._recorder.publish(regarding, "Optimize", event)


async def listing(api: CustomObjectsApi, resource: type[Resource], namespace: str) -> Listing:
    """All objects of a kind in a namespace, or in all (""), with their version."""
    version, manifests = await listed(api, kind_of(resource), namespace)
    return Listing(resource, namespace, version, manifests)


def _path(reference: Reference) -> tuple[str, str, str, str, str]:
    return path_of(kind_of(reference.resource), reference.key)


def _header(reference: Reference) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": reference.resource.kind,
        "metadata": {"name": reference.key.name, "uid": reference.uid},
    }
