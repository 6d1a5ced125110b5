"""Kinds, keys and references of objects of the API server, and events about them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from inferno_operator.resources.base import GROUP, VERSION, Resource

Manifest = Mapping[str, Any]
"""An object as the API server returns it."""

Now = Callable[[], datetime]
"""The time of day, with its zone."""


class Kind(NamedTuple):
    """A kind of the API server."""

    group: str
    kind: str
    plural: str
    version: str = "v1alpha1"

    @property
    def api_version(self) -> str:
        """Group and version, as in manifests; those of the core have no group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        """Return the name of the kind for kubectl."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


POD = Kind("", "Pod", "pods", "v1")
NODE = Kind("", "Node", "nodes", "v1")
EVENT = Kind("", "Event", "events", "v1")
RESOURCE_QUOTA = Kind("", "ResourceQuota", "resourcequotas", "v1")
NODE_POOL = Kind("karpenter.sh", "NodePool", "nodepools", "v1")
CLUSTER_QUEUE = Kind("kueue.x-k8s.io", "ClusterQueue", "clusterqueues", "v1beta1")
LOCAL_QUEUE = Kind("kueue.x-k8s.io", "LocalQueue", "localqueues", "v1beta1")
RESOURCE_FLAVOR = Kind("kueue.x-k8s.io", "ResourceFlavor", "resourceflavors", "v1beta1")
HORIZONTAL_POD_AUTOSCALER = Kind(
    "autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "v2"
)


def without_managers(manifest: Manifest) -> Manifest:
    """Return an object without the field that says who manages its fields, often the largest."""
    metadata = manifest["metadata"]
    if "managedFields" not in metadata:
        return manifest
    return {**manifest, "metadata": {k: v for k, v in metadata.items() if k != "managedFields"}}


def kind_of(resource: type[Resource]) -> Kind:
    """Return the kind of a resource class."""
    return Kind(GROUP, resource.kind, resource.plural, VERSION)


class Key(NamedTuple):
    """Namespace and name of an object."""

    namespace: str
    name: str

    @classmethod
    def of(cls, manifest: Manifest) -> "Key":
        """Return the key of an object; the namespace of a cluster-wide one is ""."""
        metadata: Mapping[str, str] = manifest["metadata"]
        return cls(metadata.get("namespace", ""), metadata["name"])

    def __str__(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


class Place(NamedTuple):
    """Kind and key of an object; of one with several numbers of replicas, also the part."""

    kind: Kind
    key: Key
    part: str = ""

    @classmethod
    def of(cls, kind: Kind, manifest: Manifest) -> "Place":
        """Return the place of an object."""
        return cls(kind, Key.of(manifest))

    def __str__(self) -> str:
        """Return kind, namespace, name and part."""
        return f"{self.kind.kind} {self.key}{self.part and f' ({self.part})'}"


@dataclass(frozen=True, slots=True)
class Reference:
    """An object that was read: its place, uid and resourceVersion."""

    kind: Kind
    key: Key
    uid: str
    version: str

    @classmethod
    def of(cls, kind: Kind, manifest: Manifest) -> "Reference":
        """Return the reference of an object."""
        metadata = manifest["metadata"]
        return cls(kind, Key.of(manifest), metadata["uid"], metadata["resourceVersion"])

    @property
    def place(self) -> Place:
        """The place of the object."""
        return Place(self.kind, self.key)

    def manifest(self, **fields: object) -> dict[str, Any]:
        """Return a manifest with these fields; its uid excludes a new object of the same name."""
        return self._manifest({"uid": self.uid}, fields)

    def manifest_at_version(self, **fields: object) -> dict[str, Any]:
        """Return a manifest with these fields, for the version that was read."""
        return self._manifest({"uid": self.uid, "resourceVersion": self.version}, fields)

    def _manifest(self, identity: Mapping[str, str], fields: Manifest) -> dict[str, Any]:
        key = {"name": self.key.name, "namespace": self.key.namespace}
        header = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
        return {**header, "metadata": {**key, **identity}, **fields}

    def __str__(self) -> str:
        """Return kind, namespace and name."""
        return str(self.place)


EVENTS = 500
"""Up to so many events are published one by one: clusters store each event for an hour."""


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes event about an object.

    `action` is what the operator did, in one word: Optimize, Reconcile.
    """

    about: Reference
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    action: str = "Optimize"
