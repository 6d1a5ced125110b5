"""The downloaders and the sidecar in a backend's pods, and the environment; pure."""

from collections.abc import Iterable
from typing import Any

from inferno_operator.controllers.boosters.booster import ModelBackend
from inferno_operator.controllers.boosters.convert.context import (
    ENGINE_PORT,
    Conversion,
    runtime_port,
)
from inferno_operator.controllers.boosters.convert.storage import ModelCache

Json = dict[str, Any]

FIXED = {
    "prefill": ("HF_HUB_OFFLINE", "HCCL_IF_IP"),
    "decode": ("HF_HUB_OFFLINE", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"),
}
"""Additional environment variables of the pods of a role."""

DOWNLOADER_SETTINGS = ("ENDPOINT", "HF_ENDPOINT")
"""Environment variables that the downloader of the model gets."""

ALL_SETTINGS = (*DOWNLOADER_SETTINGS, "MS_TOKEN", "MS_REVISION")
"""These, and those of releases that also know `ms://`."""


def without_empty(fields: Json) -> Json:
    """Return the fields that are not empty."""
    return {key: value for key, value in fields.items() if value not in (None, "", [], {}, ())}


def environment(conversion: Conversion, backend: ModelBackend, role: str = "") -> list[Json]:
    """Return the environment of engine and sidecar; the user's variables override others."""
    added = [*_common(conversion), *(_entry(name) for name in FIXED.get(role, ()))]
    given = {entry.get("name") for entry in backend.env}
    return [*backend.env, *(entry for entry in added if entry["name"] not in given)]


def _common(conversion: Conversion) -> Iterable[Json]:
    if not conversion.dialect.fleet_aware:
        return
    yield _field("POD_NAME", "metadata.name")
    yield _field("NAMESPACE", "metadata.namespace")
    yield {"name": "VLLM_USE_V1", "value": "1"}
    for name in ("REDIS_HOST", "REDIS_PORT"):
        yield _reference(name, "configMapKeyRef", "redis-config")
    yield _reference("REDIS_PASSWORD", "secretKeyRef", "redis-secret")


def _entry(name: str) -> Json:
    if name == "HCCL_IF_IP":
        return _field(name, "status.podIP")
    return {"name": name, "value": "1" if name == "HF_HUB_OFFLINE" else "eth0"}


def _field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _reference(name: str, kind: str, source: str) -> Json:
    reference = {"name": source, "key": name, "optional": True}
    return {"name": name, "valueFrom": {kind: reference}}


def downloaders(conversion: Conversion, backend: ModelBackend, cache: ModelCache) -> list[Json]:
    """Return the init containers that download the model and the adapters to the cache."""
    model = _downloader(conversion, backend, cache, "model-downloader", backend.model_uri)
    model["env"] = _of_downloader(conversion, backend)
    adapters = [
        _downloader(conversion, backend, cache, f"lora-downloader-{i}", adapter.artifact_url)
        for i, adapter in enumerate(backend.lora_adapters)
    ]
    return [without_empty(container) for container in (model, *adapters)]


def _downloader(
    conversion: Conversion, backend: ModelBackend, cache: ModelCache, name: str, source: str
) -> Json:
    return {
        "name": f"{conversion.model}-{name}",
        "image": conversion.dialect.downloader_image,
        "args": ["--source", source, "--output-dir", cache.folder(source)],
        "env": list(backend.env),
        "envFrom": list(backend.env_from),
        "volumeMounts": [cache.mount],
    }


def _of_downloader(conversion: Conversion, backend: ModelBackend) -> list[Json]:
    """Return the environment of the downloader."""
    entries = {entry.get("name"): entry for entry in backend.env}
    settings = ALL_SETTINGS if conversion.pods.knows_modelscope else DOWNLOADER_SETTINGS
    given = [entries[name] for name in settings if name in entries]
    return [entry for entry in given if entry.get("value") or entry.get("valueFrom")]


def sidecar(conversion: Conversion, backend: ModelBackend, role: str = "") -> Json:
    """Return the sidecar of the engine: it serves health and metrics, and loads adapters."""
    port = runtime_port(backend)
    container: Json = {
        "name": "runtime",
        "image": conversion.dialect.runtime_image,
        "ports": [{"containerPort": port}],
        "args": _sidecar_arguments(conversion, backend, port),
        "env": environment(conversion, backend, role),
        "envFrom": list(backend.env_from),
    }
    if not role:
        probe = {"path": "/health", "port": port}
        container["readinessProbe"] = {
            "httpGet": probe,
            "initialDelaySeconds": 5,
            "periodSeconds": 10,
        }
    return without_empty(container)


def _sidecar_arguments(conversion: Conversion, backend: ModelBackend, port: int) -> list[str]:
    url = backend.setting("RUNTIME_URL", f"http://localhost:{ENGINE_PORT}")
    metrics = backend.setting("RUNTIME_METRICS_PATH", "/metrics")
    arguments = ["--port", str(port), "--engine", backend.type.lower()]
    arguments += ["--engine-base-url", url, "--engine-metrics-path", metrics]
    if conversion.dialect.fleet_aware:
        arguments += ["--pod", "$(POD_NAME).$(NAMESPACE)", "--model", conversion.model]
    return arguments
