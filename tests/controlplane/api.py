"""The API server without kubectl, for what tests ask of it again and again."""

import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx

from tests.controlplane.credentials import Credentials
from tests.controlplane.errors import ApiError, WaitTimeoutError
from tests.controlplane.waiting import wait_until

Manifest = dict[str, Any]

TIMEOUT_S = 60.0
DISCOVERY_S = 60.0
"""Time until a new definition can be found."""

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
APPLY = "application/apply-patch+yaml"  # JSON is YAML
MERGE_PATCH = "application/merge-patch+json"
APPLIER, CREATOR, PATCHER = "kubectl", "kubectl-create", "kubectl-patch"
"""Field managers, named as those of kubectl."""


@dataclass(frozen=True, slots=True)
class Served:
    """A kind of object that the API server serves.

    Attributes
    ----------
    prefix
        Path of its group and version.
    plural
        Its name in paths.
    namespaced
        Whether its objects are in namespaces.
    names
        What people call it, with and without its group.
    categories
        What it is one of.
    """

    prefix: str
    plural: str
    namespaced: bool
    names: frozenset[str]
    categories: frozenset[str]

    def path(self, namespace: str | None, *more: str) -> str:
        """Path of all of them, or of the object and sub-resource that `more` names."""
        place = ("namespaces", namespace or "default") if self.namespaced else ()
        return "/".join((self.prefix, *place, self.plural, *more))


class Api(AbstractContextManager["Api"]):
    """Reads and changes objects as kubectl does, without a process for each request.

    Resources go by any name that kubectl knows: `servers`, `server`, `srv`,
    `servers.inferno.platform.ai`, and for lists also by category.

    Parameters
    ----------
    url, credentials
        Of the API server, and of its administrator.
    """

    def __init__(self, url: str, credentials: Credentials) -> None:
        context = ssl.create_default_context(cafile=credentials.certificate_authority)
        context.load_cert_chain(credentials.client_certificate, credentials.client_key)
        self._client = httpx.Client(base_url=url, verify=context, timeout=TIMEOUT_S)
        self._served: list[Served] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, resource: str, name: str, namespace: str | None = None) -> Manifest:
        """Read one object."""
        kind, *_ = self._called(resource)
        return _without_managers(self._request("GET", kind.path(namespace, name)))

    def items(self, resource: str, namespace: str | None = None) -> list[Manifest]:
        """Read all objects of kinds (with commas) or a category, each kind sorted by name."""
        kinds = [kind for name in resource.split(",") for kind in self._called(name)]
        return [item for kind in kinds for item in self._list(kind.path(namespace))]

    def patch(
        self,
        resource: str,
        name: str,
        patch: Manifest,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Manifest:
        """Merge `patch` into an object and return the result."""
        kind, *_ = self._called(resource)
        path = kind.path(namespace, name, *([subresource] if subresource else []))
        return _without_managers(
            self._request(
                "PATCH",
                path,
                params={"fieldManager": PATCHER},
                headers={"Content-Type": MERGE_PATCH},
                json=patch,
            )
        )

    def apply(self, manifests: Iterable[Manifest], namespace: str | None = None) -> None:
        """Apply objects, of which fields that are null count as absent."""
        options = {"fieldManager": APPLIER, "fieldValidation": "Strict", "force": "true"}
        for manifest in manifests:
            metadata = manifest["metadata"]
            place = metadata.get("namespace", namespace)
            path = self._kind_of(manifest).path(place, metadata["name"])
            headers = {"Content-Type": APPLY}
            document = _without_nulls(manifest)
            self._request("PATCH", path, params=options, headers=headers, json=document)

    def create(
        self,
        manifests: Iterable[Manifest],
        namespace: str | None = None,
        *,
        field_validation: str = "Strict",
    ) -> list[Manifest]:
        """Create objects as `kubectl create` does; returns them as the API server stored them."""
        options = {"fieldManager": CREATOR, "fieldValidation": field_validation}
        return [
            self._request(
                "POST", self._kind_of(manifest).path(namespace), params=options, json=manifest
            )
            for manifest in manifests
        ]

    def may(self, user: str, attributes: Mapping[str, str]) -> bool:
        """Whether a user may do what the attributes of a resource say: `kubectl auth can-i`."""
        header = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        review = self._request(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            headers={"Impersonate-User": user},
            json={**header, "spec": {"resourceAttributes": attributes}},
        )
        allowed: bool = review["status"]["allowed"]
        return allowed

    def create_namespace(self, name: str) -> None:
        self._request("POST", "/api/v1/namespaces", json={"metadata": {"name": name}})

    def delete_namespace(self, name: str) -> None:
        """Ask for the end of a namespace, if there is one; do not wait for it."""
        with _unless_gone():
            self._request("DELETE", f"/api/v1/namespaces/{name}")

    def has_namespace(self, name: str) -> bool:
        return any(item["metadata"]["name"] == name for item in self._list("/api/v1/namespaces"))

    def finish_namespace(self, name: str) -> None:
        """End a namespace that is being deleted at once; what it has is left to nobody.

        A controller may end it first.
        """
        header = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        finalized = {**header, "spec": {"finalizers": []}}
        with _unless_gone():
            self._request("PUT", f"/api/v1/namespaces/{name}/finalize", json=finalized)

    def delete_all(self, category: str, namespace: str) -> bool:
        """Delete what a namespace has of the kinds of a category that were found so far.

        Returns
        -------
        Whether all of it is gone: nothing is held, and no definition is missing.
        """
        gone = True
        for kind in _find(self._served, category):
            try:
                self._request("DELETE", kind.path(namespace))
                gone = gone and not self._request("GET", kind.path(namespace))["items"]
            except ApiError:  # its definition may be gone
                gone = False
        return gone

    def forget_discovered(self) -> None:
        """Discover anew what is served when a resource is named next."""
        self._served = []

    def _list(self, path: str) -> Iterator[Manifest]:
        listed = self._request("GET", path)
        header = {
            "apiVersion": listed["apiVersion"],
            "kind": listed["kind"].removesuffix("List"),
        }
        for item in listed["items"]:
            yield _without_managers({**header, **item})

    def _kind_of(self, manifest: Manifest) -> Served:
        group, _, _ = manifest["apiVersion"].rpartition("/")
        kind, *_ = self._called(".".join(filter(None, (manifest["kind"], group))))
        return kind

    def _called(self, name: str) -> list[Served]:
        """The kinds of a name: one, or those of a category.

        Raises
        ------
        ApiError
            There is none, and none comes.
        """
        if found := _find(self._served, name):
            return found
        what = f"a resource type {name!r}"
        try:
            return wait_until(lambda: self._discover(name), bool, what, DISCOVERY_S)
        except WaitTimeoutError as error:
            raise ApiError(str(error)) from error

    def _discover(self, name: str) -> list[Served]:
        accept = {"Accept": DISCOVERY}
        self._served = [
            served
            for root in ("/api", "/apis")
            for group in self._request("GET", root, headers=accept)["items"]
            for served in _served_of(root, group)
        ]
        return _find(self._served, name)

    def _request(self, method: str, path: str, **arguments: Any) -> Manifest:  # noqa: ANN401 - httpx
        def answer() -> httpx.Response:
            try:
                return self._client.request(method, path, **arguments)
            except httpx.TransportError as error:
                raise ApiError(f"{method} {path}: {error}") from error

        reply = wait_until(answer, _is_final, f"{method} {path}", TIMEOUT_S)
        if reply.is_error:
            raise ApiError(f"{method} {path}: {_reason(reply)}")
        document: Manifest = reply.json()
        return document


@contextmanager
def _unless_gone() -> Iterator[None]:
    """Do nothing more where the object is gone."""
    try:
        yield
    except ApiError as error:
        if "NotFound" not in str(error):
            raise


def _is_final(reply: httpx.Response) -> bool:
    """Whether it is worth no second try; while the cache of a new kind fills, it is."""
    return reply.status_code != httpx.codes.TOO_MANY_REQUESTS


def _reason(reply: httpx.Response) -> str:
    """Why the API server refuses; of a kind that is gone it says so in plain text."""
    if not reply.headers.get("Content-Type", "").startswith("application/json"):
        return reply.text.strip()
    status: Manifest = reply.json()
    return f"{status.get('reason')}: {status.get('message')}"


def _find(kinds: list[Served], name: str) -> list[Served]:
    """The first kind of this name, as kubectl takes it, else all of the category."""
    name = name.lower()  # also the name of the kind itself: Server
    named = [kind for kind in kinds if name in kind.names]
    return named[:1] or [kind for kind in kinds if name in kind.categories]


def _served_of(root: str, group: Manifest) -> Iterator[Served]:
    """What a group serves in the version that it prefers."""
    name = group.get("metadata", {}).get("name", "")
    version = group["versions"][0]
    prefix = "/".join(filter(None, (root, name, version["version"])))
    for resource in version["resources"]:
        called = [resource["resource"], *resource.get("shortNames", ())]
        called += filter(None, [resource.get("singularResource")])
        yield Served(
            prefix,
            resource["resource"],
            resource["scope"] == "Namespaced",
            frozenset([*called, *(f"{each}.{name}" for each in called)]),
            frozenset(resource.get("categories", ())),
        )


def _without_nulls(document: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(document, Mapping):
        return {key: _without_nulls(v) for key, v in document.items() if v is not None}
    return [*map(_without_nulls, document)] if isinstance(document, list | tuple) else document


def _without_managers(manifest: Mapping[str, Any]) -> Manifest:
    """An object as kubectl shows it."""
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    return {**manifest, "metadata": metadata}
