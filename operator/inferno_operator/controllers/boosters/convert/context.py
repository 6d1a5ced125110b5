"""What all conversions of a booster share, and the metadata of children; pure."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from inferno_operator.controllers.boosters.booster import Booster, ModelBackend
from inferno_operator.controllers.boosters.convert.pods import PODS, Pods
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Kind
from inferno_optimizer.errors import InputError

DEFAULT_RUNTIME_PORT = 8100
ENGINE_PORT = 8000
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class BoosterProblem:
    """A problem of a field; `backend` is "" if the problem concerns the whole booster."""

    path: str
    text: str
    backend: str = ""

    def __str__(self) -> str:
        """Return a line of a message."""
        return f"{self.path} {self.text}"


ChildPlace = tuple[str, str]
"""The kind and name of a child."""


class ConversionError(InputError):
    """A backend cannot be converted."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"{path} {text}")
        self.path = path
        self.text = text


@dataclass(frozen=True, slots=True)
class Conversion:
    """A booster in a dialect."""

    booster: Booster
    dialect: Dialect

    @property
    def model(self) -> str:
        """The name of the booster."""
        return self.booster.metadata.name

    @property
    def gang(self) -> bool:
        """Whether the pods of a group are gang-scheduled."""
        return self.booster.has_option("gang-scheduling")

    @property
    def pods(self) -> Pods:
        """What the pods of the booster's release have."""
        return PODS[self.booster.release]

    @property
    def bare_switches(self) -> bool:
        """Whether true is written as a flag without a value."""
        return self.booster.has_option("bare-switches")

    def path(self, backend: ModelBackend) -> str:
        """Return the path of a backend in the manifest."""
        names = [each.name for each in self.booster.spec.backends]
        return f"spec.backends[{names.index(backend.name)}]"

    def pod_labels(self, backend: ModelBackend) -> dict[str, str]:
        """Return the labels of pods, which do not depend on replicas, weights or costs."""
        return self._labels(backend.name)

    def child(
        self,
        kind: Kind,
        spec: dict[str, Any],
        backend: ModelBackend | None = None,
        revision: str = "",
    ) -> dict[str, Any]:
        """Return the manifest of a child with the metadata that all children have."""
        name = self.booster.child_name(backend) if backend else self.model
        labels = self._labels(backend.name if backend else "")
        labels[self.dialect.label("revision")] = revision or digest(spec)
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": name,
                "namespace": self.booster.metadata.namespace,
                "labels": labels,
                "ownerReferences": [self._owner],
            },
            "spec": spec,
        }

    def _labels(self, backend: str) -> dict[str, str]:
        dialect = self.dialect
        return {
            dialect.label("model-name"): self.model,
            dialect.label("backend-name"): backend,
            **dialect.managed_by,
            dialect.label("model-uid"): self.booster.metadata.uid,
        }

    @property
    def _owner(self) -> dict[str, Any]:
        booster = self.dialect.booster
        return {
            "apiVersion": booster.api_version,
            "kind": booster.kind,
            "name": self.model,
            "uid": self.booster.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def runtime_port(backend: ModelBackend) -> int:
    """Return the port of the sidecar; the default if RUNTIME_PORT is not a port number."""
    text = backend.literal("RUNTIME_PORT", "").strip()
    port = int(text) if text.isdecimal() else 0
    return port if 0 < port <= MAX_PORT else DEFAULT_RUNTIME_PORT


def digest(value: object) -> str:
    """Return a short hash of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]
