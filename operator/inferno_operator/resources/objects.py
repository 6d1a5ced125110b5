"""What every object has: a place, an identity, events that tell of it."""

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
class Reference:
    """One object of a kind of ours, and the version of it that was seen last."""

    resource: type[Resource]
    key: Key
    uid: str
    version: str

    def __str__(self) -> str:
        """Kind, namespace and name."""
        return f"{self.resource.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth telling the people who look at an object."""

    about: Reference
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
