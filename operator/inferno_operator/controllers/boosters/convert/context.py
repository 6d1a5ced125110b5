"""What the parts of a conversion have in common, and the metadata of what they make; pure."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from inferno_operator.controllers.boosters.booster import Backend, Booster
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Kind
from inferno_optimizer.errors import InputError

DEFAULT_RUNTIME_PORT = 8100
ENGINE_PORT = 8000
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a field, named as users write it; `backend` is empty for the whole."""

    path: str
    text: str
    backend: str = ""

    def __str__(self) -> str:
        """For a line of a message."""
        return f"{self.path} {self.text}"


Place = tuple[str, str]
"""Kind and name of a child."""


class ConversionError(InputError):
    """A backend from which nothing can be made."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"{path} {text}")
        self.path = path
        self.text = text


@dataclass(frozen=True, slots=True)
class Conversion:
    """A booster in a dialect; `strict` repeats what the original gets wrong."""

    booster: Booster
    dialect: Dialect
    strict: bool = False

    @property
    def model(self) -> str:
        """The name of the model to its users: that of the booster."""
        return self.booster.metadata.name

    @property
    def gang(self) -> bool:
        """Whether pods of a group are scheduled all at once; the original always asks for it."""
        return self.strict or self.booster.asks_for("gang-scheduling")

    @property
    def bare_switches(self) -> bool:
        """Whether true is written as a flag without a value."""
        return not self.strict and self.booster.asks_for("bare-switches")

    def path(self, backend: Backend) -> str:
        """The backend as users write it."""
        names = [each.name for each in self.booster.spec.backends]
        return f"spec.backends[{names.index(backend.name)}]"

    def pod_labels(self, backend: Backend) -> dict[str, str]:
        """By which a ModelServer finds pods: the same whatever replicas, weights or costs are."""
        return self._labels(backend.name)

    def child(
        self, kind: Kind, spec: dict[str, Any], backend: Backend | None = None, revision: str = ""
    ) -> dict[str, Any]:
        """A manifest with all that our children have in common."""
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
                "ownerReferences": [self._owner(kind)],
            },
            "spec": spec,
        }

    def _labels(self, backend: str) -> dict[str, str]:
        dialect = self.dialect
        managers = list(dialect.managed_by.items())
        return {
            dialect.label("model-name"): self.model,
            dialect.label("backend-name"): backend,
            **dict(managers[:1] if self.strict else managers),
            dialect.label("model-uid"): self.booster.metadata.uid,
        }

    def _owner(self, kind: Kind) -> dict[str, Any]:
        booster = self.dialect.booster
        owner: dict[str, Any] = {
            "apiVersion": booster.api_version,
            "kind": booster.kind,
            "name": self.model,
            "uid": self.booster.metadata.uid,
        }
        if not self.strict or kind not in (self.dialect.serving, self.dialect.route):
            owner |= {"controller": True, "blockOwnerDeletion": True}
        return owner


def runtime_port(backend: Backend) -> int:
    """The port of the sidecar; a text that is no number of a port means the default."""
    text = backend.literal("RUNTIME_PORT", "").strip()
    port = int(text) if text.isdecimal() else 0
    return port if 0 < port <= MAX_PORT else DEFAULT_RUNTIME_PORT


def digest(value: object) -> str:
    """A short name for a value of JSON: equal values have equal names."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]
