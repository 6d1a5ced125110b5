"""The API server through the official client's asyncio half.

Writes are server-side applies of exactly our fields, so nobody else's are touched; the
object's uid goes with them, so an object of the same name made anew is left alone.
"""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, ApiException, Configuration, CustomObjectsApi

from inferno_operator.ports import (
    Event,
    GoneError,
    Key,
    Listing,
    Manifest,
    Now,
    Reference,
    RejectedError,
    StaleError,
)
from inferno_operator.resources import API_VERSION, GROUP, VERSION, Resource
from inferno_optimizer.errors import InfernoError, InputError, UnavailableError

FIELD_MANAGER = "inferno-operator"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"

SERVER_ERRORS = 500
"""Statuses from here on are the server's own failures."""

OTHER_OBJECT = ("uid mismatch", "metadata.uid: Invalid value")
"""How the API server says that an object of this name has another uid, or none is there."""

UNKNOWN_FIELD = "failed to create typed patch object"
"""How it says, as its own failure, that the definitions lack a field."""

IGNORE = "Ignore"
"""Fields that are unknown or given twice are not looked for: we have neither, and parsing costs."""

TIMEOUT = 30.0
"""Seconds that one call may take."""

CONNECTIONS = 32

MAX_NOTE = 1024
"""Bytes that the note of an event may have."""

RETRIABLE = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,  # tokens are renewed
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)

logger = logging.getLogger(__name__)


@asynccontextmanager
async def connect(now: Now, instance: str) -> AsyncIterator["ApiServer"]:
    """Connect as `client` does; events tell that they come from this instance."""
    async with client() as api:
        yield ApiServer(api, now, instance)


@asynccontextmanager
async def client(connections: int = CONNECTIONS) -> AsyncIterator[CustomObjectsApi]:
    """Connect as a pod's service account or, outside a cluster, as KUBECONFIG says.

    Raises
    ------
    InputError
        Neither is there, or it cannot be used.
    """
    configuration = Configuration()
    configuration.connection_pool_maxsize = connections
    # The client would read .netrc, and ask for the proxy, in a thread and for every request.
    configuration.client_session_kwargs = {"trust_env": False}
    try:
        await _load(configuration)
    except (config.ConfigException, yaml.YAMLError, TypeError) as error:
        text = " ".join(str(error).split())
        raise InputError(f"no access to a cluster: {text}") from error
    configuration.proxy = configuration.proxy or _proxy(configuration.host)
    async with ApiClient(configuration) as connection:
        yield CustomObjectsApi(connection)


async def _load(configuration: Configuration) -> None:
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the client has no types there
    except config.ConfigException:
        await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # nor there


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for a URL."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


class ApiServer:
    """The `Cluster` of `ports` on a real API server."""

    def __init__(self, api: CustomObjectsApi, now: Now, instance: str = FIELD_MANAGER) -> None:
        self._api = api
        self._now = now
        self._instance = instance

    async def served(self) -> frozenset[str]:
        """Kinds of ours that the API server knows now, in the plural."""
        call = self._api.get_api_resources(GROUP, VERSION, _request_timeout=TIMEOUT)
        answer = await answer_to(call, f"resources of {API_VERSION}")
        return frozenset(resource.name for resource in answer.resources)

    async def get(self, resource: type[Resource], key: Key) -> Manifest:
        """One object."""
        call = self._api.get_namespaced_custom_object(
            GROUP, VERSION, key.namespace, resource.plural, key.name, _request_timeout=TIMEOUT
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
        call = self._api.create_namespaced_custom_object(
            "events.k8s.io",
            "v1",
            event.about.key.namespace,
            "events",
            self._event(event),
            _request_timeout=TIMEOUT,
        )
        try:
            await answer_to(call, f"event of {event.about}")
        except InfernoError as error:
            logger.warning("event not published: %s", error)

    def _event(self, event: Event) -> dict[str, Any]:
        key = event.about.key
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": f"{key.name}-", "namespace": key.namespace},
            "eventTime": self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": GROUP,
            "reportingInstance": self._instance,
            "action": "Optimize",
            "type": event.type,
            "reason": event.reason,
            "note": event.message.encode()[:MAX_NOTE].decode(errors="ignore"),
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": event.about.resource.kind,
                "name": key.name,
                "namespace": key.namespace,
                "uid": event.about.uid,
            },
        }


async def listing(api: CustomObjectsApi, resource: type[Resource], namespace: str) -> Listing:
    """All objects of a kind in a namespace, or in all (""), with their version."""
    read = (
        partial(api.list_namespaced_custom_object, GROUP, VERSION, namespace)
        if namespace
        else partial(api.list_cluster_custom_object, GROUP, VERSION)
    )
    about = f"{resource.plural} of {namespace or 'all namespaces'}"
    answer = await answer_to(read(resource.plural, _request_timeout=TIMEOUT), about)
    header = {"apiVersion": API_VERSION, "kind": resource.kind}
    manifests = tuple({**header, **item} for item in answer["items"])
    return Listing(resource, namespace, int(answer["metadata"]["resourceVersion"]), manifests)


def _path(reference: Reference) -> tuple[str, str, str, str, str]:
    key = reference.key
    return GROUP, VERSION, key.namespace, reference.resource.plural, key.name


def _header(reference: Reference) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": reference.resource.kind,
        "metadata": {"name": reference.key.name, "uid": reference.uid},
    }


async def answer_to(call: Awaitable[Any], about: str) -> Any:  # noqa: ANN401 - JSON of any shape
    """The answer to a call; the one place where the client's errors become ours."""
    try:
        return await call
    except ApiException as error:
        raise _translated(error, about) from error
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        text = str(error) or type(error).__name__
        raise UnavailableError(f"{about}: the API server does not answer: {text}") from error


def _translated(error: ApiException, about: str) -> InfernoError:
    message = _message(error)
    text = f"{about}: {message}"
    if error.status == HTTPStatus.NOT_FOUND or any(sign in message for sign in OTHER_OBJECT):
        return GoneError(text)
    if error.status == HTTPStatus.CONFLICT:
        return StaleError(text)
    if UNKNOWN_FIELD in message:
        return RejectedError(f"{text}; apply the custom resource definitions of this version")
    if error.status is None or error.status >= SERVER_ERRORS or error.status in RETRIABLE:
        return UnavailableError(text)
    return RejectedError(text)


def _message(error: ApiException) -> str:
    """What the API server says, in one line."""
    try:
        message = json.loads(error.body or "")["message"]
    except (ValueError, KeyError, TypeError):
        message = error.reason or error.body
    return " ".join(f"{message} (HTTP {error.status})".split())
