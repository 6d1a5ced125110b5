"""What every object of the API server has: a kind, a place, an identity; and events about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from inferno_operator.resources.base import GROUP, VERSION, Resource

Manifest = Mapping[str, Any]
"""An object as the API server has it."""

Now = Callable[[], datetime]
"""The time of day, with its zone."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object as the API server serves it."""

    group: str
    kind: str
    plural: str
    version: str = "v1alpha1"

    @property
    def api_version(self) -> str:
        """Group and version, as manifests have them."""
        return f"{self.group}/{self.version}"

    def __str__(self) -> str:
        """As kubectl users write it."""
        return f"{self.plural}.{self.group}"


def kind_of(resource: type[Resource]) -> Kind:
    """How the API server serves a kind of ours."""
    return Kind(GROUP, resource.kind, resource.plural, VERSION)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Namespace and name of an object."""

    namespace: str
    name: str

    @classmethod
    def of(cls, manifest: Manifest) -> "Key":
        """Those of an object in a namespace."""
        metadata: Mapping[str, str] = manifest["metadata"]
        return cls(metadata["namespace"], metadata["name"])

    def __str__(self) -> str:
        """As kubectl users write it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object is."""

    kind: Kind
    key: Key

    def __str__(self) -> str:
        """Kind, namespace and name."""
        return f"{self.kind.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class Reference:
    """One object, and the version of it that was seen last."""

    kind: Kind
    key: Key
    uid: str
    version: str

    @classmethod
    def of(cls, kind: Kind, manifest: Manifest) -> "Reference":
        """To an object that was read."""
        metadata = manifest["metadata"]
        return cls(kind, Key.of(manifest), metadata["uid"], metadata["resourceVersion"])

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(self.kind, self.key)

    def manifest(self, **fields: object) -> dict[str, Any]:
        """A manifest with these fields, for this very object: one made anew has another uid."""
        return self._manifest({"uid": self.uid}, fields)

    def manifest_at_version(self, **fields: object) -> dict[str, Any]:
        """A manifest with these fields, for the version that was seen."""
        return self._manifest({"uid": self.uid, "resourceVersion": self.version}, fields)

    def _manifest(self, identity: Mapping[str, str], fields: Manifest) -> dict[str, Any]:
        key = {"name": self.key.name, "namespace": self.key.namespace}
        header = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
        return {**header, "metadata": {**key, **identity}, **fields}

    def __str__(self) -> str:
        """Kind, namespace and name."""
        return str(self.place)


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth telling the people who look at an object.

    `action` is what the operator was doing, in one word: Optimize, Reconcile.
    """

    about: Reference
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    action: str = "Optimize"
