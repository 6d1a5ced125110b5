"""The cache of the model's weights: its volume and the folders in it; pure."""

import hashlib
from dataclasses import dataclass
from typing import Any

from inferno_operator.controllers.boosters.booster import ModelBackend

DEFAULT_FOLDER = "/cache"
"""The mount path of the cache, if the backend does not set one."""


@dataclass(frozen=True, slots=True)
class ModelCache:
    """The volume of a backend's weights, and its mount in containers."""

    volume: dict[str, Any]
    mount: dict[str, Any]

    def folder(self, uri: str) -> str:
        """Return the folder for the files of a URI; the downloader uses the same folder."""
        digest = hashlib.md5(uri.encode(), usedforsecurity=False).hexdigest()
        return f"{self.mount['mountPath']}/{digest}"


def cache_of(backend: ModelBackend) -> ModelCache:
    """Return the cache of a backend."""
    scheme, _, place = backend.cache_uri.partition("://")
    place = place.strip("/")
    path = f"/{place}" if place else DEFAULT_FOLDER
    claim, _, folder = place.partition("/")
    if scheme == "pvc":
        return _cache(backend, _source(scheme, claim, path), f"/{claim}", folder)
    return _cache(backend, _source(scheme, claim, path), path)


def _source(scheme: str, claim: str, path: str) -> dict[str, Any]:
    match scheme:
        case "pvc":
            return {"persistentVolumeClaim": {"claimName": claim}}
        case "hostpath":
            return {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}
    return {"emptyDir": {}}


def _cache(
    backend: ModelBackend, source: dict[str, Any], path: str, folder: str = ""
) -> ModelCache:
    name = f"{backend.name}-weights"
    mount = {"name": name, "mountPath": path, **({"subPath": folder} if folder else {})}
    return ModelCache({"name": name, **source}, mount)
