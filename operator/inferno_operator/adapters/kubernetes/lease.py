"""The Lease of the leader election on a real API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from kubernetes.aio.client import CustomObjectsApi

from inferno_operator.adapters.kubernetes.access import ApiAccess
from inferno_operator.adapters.kubernetes.client import answer_to, client
from inferno_operator.resources.objects import Key, Manifest
from inferno_operator.runtime.leader_election import Lease

GROUP, VERSION, PLURAL = "coordination.k8s.io", "v1", "leases"
LEASE = "inferno-operator"
"""The name of the Lease, in the namespace of the operator."""

TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
"""Format of Kubernetes' MicroTime."""

TIMEOUT = 5.0
"""Seconds that one call may take; less than the renew deadline, so that there are retries."""


@asynccontextmanager
async def connect(access: ApiAccess, key: Key) -> AsyncIterator["ApiServerLease"]:
    """Connect with connections of its own, which other calls cannot use up."""
    async with client(access) as api:
        yield ApiServerLease(api, key)


class ApiServerLease:
    """The `LeaseStore` of `runtime.leader_election` on a real API server."""

    def __init__(self, api: CustomObjectsApi, key: Key) -> None:
        self._api = api
        self._key = key

    async def read(self) -> Lease:
        """Return the Lease."""
        call = self._api.get_namespaced_custom_object(*self._path, _request_timeout=TIMEOUT)
        return _lease(await answer_to(call, self._about))

    async def create(self, lease: Lease) -> Lease:
        """Create the Lease."""
        call = self._api.create_namespaced_custom_object(
            *self._path[:-1], self._manifest(lease), _request_timeout=TIMEOUT
        )
        return _lease(await answer_to(call, self._about))

    async def update(self, lease: Lease) -> Lease:
        """Replace the Lease, if it still has the version that was read."""
        call = self._api.replace_namespaced_custom_object(
            *self._path, self._manifest(lease), _request_timeout=TIMEOUT
        )
        return _lease(await answer_to(call, self._about))

    @property
    def _path(self) -> tuple[str, str, str, str, str]:
        return GROUP, VERSION, self._key.namespace, PLURAL, self._key.name

    @property
    def _about(self) -> str:
        return f"Lease {self._key}"

    def _manifest(self, lease: Lease) -> dict[str, Any]:
        version = {"resourceVersion": lease.version} if lease.version else {}
        holder = {"holderIdentity": lease.holder} if lease.holder else {}
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Lease",
            "metadata": {"name": self._key.name, **version},
            "spec": {
                **holder,
                "leaseDurationSeconds": round(lease.duration),
                "acquireTime": lease.acquired.strftime(TIME),
                "renewTime": lease.renewed.strftime(TIME),
                "leaseTransitions": lease.transitions,
            },
        }


def _lease(manifest: Manifest) -> Lease:
    """Parse a Lease; fields that it does not have get empty values."""
    spec = manifest.get("spec", {})
    return Lease(
        holder=spec.get("holderIdentity", ""),
        duration=float(spec.get("leaseDurationSeconds", 0)),
        acquired=_time(spec.get("acquireTime")),
        renewed=_time(spec.get("renewTime")),
        transitions=spec.get("leaseTransitions", 0),
        version=manifest["metadata"]["resourceVersion"],
    )


def _time(text: str | None) -> datetime:
    return datetime.fromisoformat(text or "1970-01-01T00:00:00Z")
