"""Access to the API server like kubectl: with a kubeconfig, in one namespace."""

import asyncio
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from kubernetes.aio.client import Configuration, CustomObjectsApi

from inferno_operator.adapters.kubernetes.access import (
    DEFAULT_KUBECONFIG,
    RENEWED_S,
    TOKEN,
    ApiAccess,
    Identity,
    Kubeconfig,
    time_of_day,
)
from inferno_operator.adapters.kubernetes.api_server import ApiReader
from inferno_operator.adapters.kubernetes.client import (
    MERGE,
    TIMEOUT,
    answer_to,
    client,
    get,
    received,
    url_path_of_all,
)
from inferno_operator.adapters.kubernetes.lease import LEASE, ApiServerLease
from inferno_operator.resources import GROUP, SYSTEM_RESOURCES, VERSION, Optimizer, Plan, Resource
from inferno_operator.resources.objects import (
    EVENT,
    Key,
    Kind,
    Manifest,
    kind_of,
    without_managers,
)
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.leader_election import Lease
from inferno_operator.runtime.ports import FieldManager, GoneError, Listing, RejectedError
from inferno_optimizer.errors import InputError

APPROVER = "inferno-approve"
"""The ClusterRole whose rights an answer to a Plan takes."""

MOST_EVENTS = 500
"""Events that are read at most."""

Result = TypeVar("Result")

CONNECTIONS = 2 * len(SYSTEM_RESOURCES)
"""One watch and one call for each kind."""


@dataclass(frozen=True, slots=True)
class KubectlOptions:
    """kubectl's options for namespace, context and kubeconfig; None means its default."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None


@dataclass(frozen=True, slots=True)
class ApiServerAddress:
    """Where the API server is, and the file of the authorities that sign its certificate."""

    url: str
    authorities: Path


class Session:
    """A connection to one namespace of a cluster."""

    def __init__(self, api: CustomObjectsApi, namespace: str) -> None:
        self._api = api
        self.namespace = namespace
        self.reader = ApiReader(api, kept=without_managers)

    async def objects(self) -> list[Observation]:
        """Return all objects of our kinds that are not being deleted."""
        lists = await asyncio.gather(*map(self._observe_all, SYSTEM_RESOURCES))
        return [o for listed in lists for o in listed if o.deleted is None]

    async def check_rights(self, kinds: Iterable[type[Resource]]) -> None:
        """Ask the API server whether the user may list kinds in the namespace.

        Raises
        ------
        InfernoError
            The answer of the API server to a list that it refuses.
        """
        await asyncio.gather(*(self._read(kind, self.reader.try_list) for kind in kinds))

    async def optimizers(self) -> list[Observation]:
        """Return the Optimizers of the namespace."""
        return await self._observe_all(Optimizer)

    async def selected(self, kind: type[Resource], selector: str) -> frozenset[str]:
        """Return the names of the objects whose labels a selector selects, as kubectl does."""
        call = self._api.list_namespaced_custom_object(
            *(GROUP, VERSION, self.namespace, kind.plural),
            label_selector=selector,
            _request_timeout=TIMEOUT,
        )
        listed = await answer_to(call, f"{kind.plural} with {selector}")
        return frozenset(item["metadata"]["name"] for item in listed["items"])

    async def request(self, name: str) -> Observation:
        """Set only `optimize` of an Optimizer; returns the Optimizer after the write."""
        key = Key(self.namespace, name)
        call = self._api.patch_namespaced_custom_object(
            *(GROUP, VERSION, self.namespace, Optimizer.plural, name),
            {"spec": {"optimize": True}},
            field_manager=FieldManager.KUBECTL,
            _content_type=MERGE,
            _request_timeout=TIMEOUT,
        )
        return observe(Optimizer, await answer_to(call, f"Optimizer {key}"))

    async def plans(self) -> list[Observation]:
        """Return the Plans of the namespace."""
        return await self._observe_all(Plan)

    async def events(self, kind: type[Resource], name: str) -> Sequence[Manifest]:
        """Return the events about an object, at most `MOST_EVENTS`, in any order.

        Raises
        ------
        RejectedError
            The user may not list events.
        """
        about = f"involvedObject.kind={kind.kind},involvedObject.name={name}"
        query = {"fieldSelector": about, "limit": str(MOST_EVENTS)}
        call = get(self._api.api_client, url_path_of_all(EVENT, self.namespace), query)
        page = await answer_to(received(call), f"events about {kind.kind} {name}")
        items: Sequence[Manifest] = page["items"]
        return items

    async def leader(self, namespace: str) -> Lease:
        """Return the Lease of the operators that run in a namespace.

        Raises
        ------
        RejectedError
            The user may not read it.
        GoneError
            No operator that takes part in a leader election runs there.
        """
        return await ApiServerLease(self._api, Key(namespace, LEASE)).read()

    async def user(self) -> str:
        """Return the name of the user, as the API server knows it; "" if it does not tell."""
        group, version = "authentication.k8s.io", "v1"
        call = self._api.create_cluster_custom_object(
            *(group, version, "selfsubjectreviews"),
            {"apiVersion": f"{group}/{version}", "kind": "SelfSubjectReview"},
            _request_timeout=TIMEOUT,
        )
        try:
            review = await answer_to(call, "the user")
        except RejectedError:
            return ""
        return str(review.get("status", {}).get("userInfo", {}).get("username", ""))

    async def answer(self, name: str, approval: Mapping[str, str | None]) -> Observation:
        """Write the answer of a person to a Plan; returns the Plan after the write."""
        call = self._api.patch_namespaced_custom_object_status(
            *(GROUP, VERSION, self.namespace, Plan.plural, name),
            {"status": {"approval": dict(approval)}},
            field_manager=FieldManager.KUBECTL,
            _content_type=MERGE,
            _request_timeout=TIMEOUT,
        )
        try:
            return observe(Plan, await answer_to(call, f"Plan {Key(self.namespace, name)}"))
        except RejectedError as error:
            if "HTTP 403" not in str(error):
                raise
            raise RejectedError(
                f"{error}: you need the ClusterRole {APPROVER} in namespace {self.namespace!r}"
            ) from error

    async def states(self, name: str) -> AsyncGenerator[Observation, None]:
        """Yield an Optimizer as it is now and after each change, until the watch ends.

        Raises
        ------
        GoneError
            The Optimizer does not exist or was deleted.
        """
        gone = GoneError(f"Optimizer {Key(self.namespace, name)}: does not exist")
        listing = await self._list(Optimizer)
        current = [m for m in listing.manifests if m["metadata"]["name"] == name]
        if not current:
            raise gone
        yield observe(Optimizer, current[0])
        watch = self.reader.watch(listing.kind, listing.namespace, listing.version)
        async with aclosing(watch) as changes:
            async for change in changes:
                if change.manifest is None or change.manifest["metadata"]["name"] != name:
                    continue
                if change.gone:
                    raise gone
                yield observe(Optimizer, change.manifest)

    async def _observe_all(self, kind: type[Resource]) -> list[Observation]:
        return [observe(kind, manifest) for manifest in (await self._list(kind)).manifests]

    async def _list(self, kind: type[Resource]) -> Listing:
        return await self._read(kind, self.reader.list)

    async def _read(
        self, kind: type[Resource], read: Callable[[Kind, str], Awaitable[Result]]
    ) -> Result:
        try:
            return await read(kind_of(kind), self.namespace)
        except GoneError as error:
            raise InputError(
                f"the cluster has no {kind.plural}.{GROUP}: install the custom resource definitions"
            ) from error


@asynccontextmanager
async def connect(place: KubectlOptions) -> AsyncIterator[Session]:
    """Connect to a cluster like kubectl.

    Raises
    ------
    InputError
        The kubeconfig does not exist or cannot be used.
    """
    paths = _kubeconfig(place)
    kubeconfig = Kubeconfig(paths, place.context)
    async with (
        aclosing(await ApiAccess.begin(paths, kubeconfig.load)) as access,
        client(access, CONNECTIONS) as api,
    ):
        yield Session(api, place.namespace or kubeconfig.namespace or "default")


@asynccontextmanager
async def connect_as(
    token: str, server: ApiServerAddress, namespace: str
) -> AsyncIterator[Session]:
    """Connect with the rights of a token and no others."""

    async def load() -> Identity:
        configuration = Configuration(host=server.url, api_key={TOKEN: f"Bearer {token}"})
        configuration.ssl_ca_cert = str(server.authorities)
        return Identity.of(configuration, time_of_day() + timedelta(seconds=RENEWED_S))

    async with (
        aclosing(await ApiAccess.begin(str(server.authorities), load)) as access,
        client(access, CONNECTIONS) as api,
    ):
        yield Session(api, namespace)


def _kubeconfig(place: KubectlOptions) -> str:
    """Return the path of the kubeconfig or, as in KUBECONFIG, several paths."""
    paths = place.kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path):
        raise InputError(f"no access to a cluster: there is no kubeconfig {paths}")
    return paths
