"""What all conversions of a booster share: its release, metadata of children, problems; pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from inferno_operator.controllers.boosters.booster import Booster, ModelBackend
from inferno_operator.resources.dialects import Dialect, Release
from inferno_operator.resources.objects import Kind
from inferno_optimizer.errors import InputError

DEFAULT_RUNTIME_PORT = 8100
ENGINE_PORT = 8000
MAX_PORT = 65535

DEFAULT_FOLDER = "/cache"
"""The mount path of the cache, if the backend does not set one."""


@dataclass(frozen=True, slots=True)
class Pods:
    """What the pods of a release have; each difference is a field of its own."""

    load_seconds: int
    """Seconds that an engine has to load its model before it is probed."""
    shares_memory: bool
    """vLLM has a volume in memory, in which its processes exchange tensors."""
    script_folder: str
    """The folder of the script for several nodes; "" is the one in which engines start."""
    publishes_cache: bool
    """Engines publish to the router which prefixes they have in their cache."""
    labels_all: bool
    """All pods of a replica have the labels of the backend, also those of prefill and decode."""
    binds_ascend: bool
    """Pods of prefill and decode run on nodes with Ascend devices, whatever their affinity."""
    knows_modelscope: bool
    """The downloader gets the settings of ModelScope, for `ms://`."""
    installs_packages: bool
    """What a connector of KV caches needs is installed before the engine starts."""


_V0_1 = Pods(
    load_seconds=90,
    shares_memory=False,
    script_folder="/vllm-workspace/vllm/",
    publishes_cache=True,
    labels_all=False,
    binds_ascend=True,
    knows_modelscope=False,
    installs_packages=False,
)
_V0_2 = replace(_V0_1, load_seconds=180, publishes_cache=False)
_V0_3 = replace(
    _V0_2,
    shares_memory=True,
    script_folder="",
    labels_all=True,
    binds_ascend=False,
    installs_packages=True,
)
_V0_4 = replace(_V0_3, knows_modelscope=True)

PODS: Mapping[Release, Pods] = {
    Release.V0_1: _V0_1,
    Release.V0_2: _V0_2,
    Release.V0_3: _V0_3,
    Release.V0_4: _V0_4,
    Release.V1_0: _V0_4,
    Release.LATER: _V0_4,
}


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

    def labels(self, backend: ModelBackend | None) -> dict[str, str]:
        """Return the labels of children and pods: no replicas, weights or costs change them."""
        dialect = self.dialect
        return {
            dialect.label("model-name"): self.model,
            dialect.label("backend-name"): backend.name if backend else "",
            **dialect.managed_by,
            dialect.label("model-uid"): self.booster.metadata.uid,
        }

    def child(
        self,
        kind: Kind,
        spec: dict[str, Any],
        backend: ModelBackend | None = None,
        revision: str = "",
    ) -> dict[str, Any]:
        """Return the manifest of a child with the metadata that all children have."""
        owner = {
            "apiVersion": self.dialect.booster.api_version,
            "kind": self.dialect.booster.kind,
            "name": self.model,
            "uid": self.booster.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        labels = {
            **self.labels(backend),
            self.dialect.label("revision"): revision or compute_short_hash(spec),
        }
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": self.booster.child_name(backend) if backend else self.model,
                "namespace": self.booster.metadata.namespace,
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": spec,
        }


@dataclass(frozen=True, slots=True)
class ModelCache:
    """The volume of a backend's weights, and its mount in containers."""

    volume: dict[str, Any]
    mount: dict[str, Any]

    def folder(self, uri: str) -> str:
        """Return the folder for the files of a URI; the downloader uses the same folder."""
        digest = hashlib.md5(uri.encode(), usedforsecurity=False).hexdigest()
        return f"{self.mount['mountPath']}/{digest}"


def find_cache(backend: ModelBackend) -> ModelCache:
    """Return the cache of a backend."""
    name = f"{backend.name}-weights"
    scheme, _, place = backend.cache_uri.partition("://")
    place = place.strip("/")
    path = f"/{place}" if place else DEFAULT_FOLDER
    source: dict[str, Any] = {"emptyDir": {}}
    mount = {"name": name, "mountPath": path}
    if scheme == "hostpath":
        source = {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}
    elif scheme == "pvc":
        claim, _, folder = place.partition("/")
        source = {"persistentVolumeClaim": {"claimName": claim}}
        mount["mountPath"] = f"/{claim}"
        if folder:
            mount["subPath"] = folder
    return ModelCache({"name": name, **source}, mount)


def runtime_port(backend: ModelBackend) -> int:
    """Return the port of the sidecar; the default if RUNTIME_PORT is not a port number."""
    text = backend.literal("RUNTIME_PORT", "").strip()
    port = int(text) if text.isdecimal() else 0
    return port if 0 < port <= MAX_PORT else DEFAULT_RUNTIME_PORT


def compute_short_hash(value: object) -> str:
    """Return a short hash of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]
