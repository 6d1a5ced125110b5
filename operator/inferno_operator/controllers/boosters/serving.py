"""Convert a backend to its ModelServing (ModelInfer in MatrixInfer); pure.

Its pods have the cache of the weights, downloaders that fill it, an engine and a sidecar.
"""

from collections.abc import Iterable
from typing import Any

from inferno_operator.controllers.boosters.booster import ModelBackend, WorkerRole
from inferno_operator.controllers.boosters.conversion import (
    ENGINE_PORT,
    Conversion,
    ConversionError,
    ModelCache,
    cache_of,
    digest,
    runtime_port,
)
from inferno_operator.controllers.boosters.engines import (
    config_of,
    engine_command,
    pods_of,
    worker_command,
)
from inferno_operator.resources.dialects import DISAGGREGATED

Json = dict[str, Any]

ROLES = ("prefill", "decode")
ASCEND = "huawei.com/ascend-1980"

GRACE_SECONDS = 300
"""Seconds that a terminating pod has to finish its requests."""

SHARED_MEMORY = "dshm"
"""Volume in which the processes of an engine exchange tensors."""

WAITING = {
    "vLLM": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "SGLang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
}
"""Metrics of an engine: running and waiting requests."""

ASCEND_NODES = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {
                            "key": "node.kubernetes.io/npu.chip.name",
                            "operator": "In",
                            "values": ["Ascend910"],
                        }
                    ]
                }
            ]
        }
    }
}

FIXED = {
    "prefill": ("HF_HUB_OFFLINE", "HCCL_IF_IP"),
    "decode": ("HF_HUB_OFFLINE", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"),
}
"""Additional environment variables of the pods of a role."""

DOWNLOADER_SETTINGS = ("ENDPOINT", "HF_ENDPOINT")
"""Environment variables that the downloader of the model gets."""

ALL_SETTINGS = (*DOWNLOADER_SETTINGS, "MS_TOKEN", "MS_REVISION")
"""These, and those of releases that also know `ms://`."""


def serving(conversion: Conversion, backend: ModelBackend) -> Json:
    """Return the manifest of a backend's serving.

    Raises
    ------
    ConversionError
        The backend cannot be converted.
    """
    workers = _workers(conversion, backend)
    replicas = {role: _replicas(worker) for role, worker in workers.items()}
    make = _disaggregated if backend.type == DISAGGREGATED else _leader
    spec = {
        "replicas": backend.min_replicas,
        "schedulerName": _scheduler(conversion, backend),
        **_policies(conversion),
        "template": {
            "restartGracePeriodSeconds": 60,
            **_gang(conversion, backend, replicas),
            "roles": [make(conversion, backend, *item) for item in workers.items()],
        },
    }
    rolled_out = {key: value for key, value in spec.items() if key != "replicas"}
    return conversion.child(conversion.dialect.serving, spec, backend, digest(rolled_out))


def _workers(conversion: Conversion, backend: ModelBackend) -> dict[str, WorkerRole]:
    """Return the workers by name of their role."""
    if backend.type == DISAGGREGATED:
        return {role: _needed(conversion, backend, role) for role in ROLES}
    if backend.type in ("vLLM", "SGLang"):
        return {"leader": _needed(conversion, backend, "server")}
    problem = f"{backend.type} is not supported: the router supports only vLLM and SGLang"
    raise ConversionError(f"{conversion.path(backend)}.type", problem)


def _needed(conversion: Conversion, backend: ModelBackend, role: str) -> WorkerRole:
    worker = backend.worker(role)
    if worker is None:
        problem = f"has no worker of type {role}, which {backend.type} needs"
        raise ConversionError(f"{conversion.path(backend)}.workers", problem)
    config_of(worker, f"{conversion.path(backend)}.workers[{backend.workers.index(worker)}]")
    return worker


def _replicas(worker: WorkerRole) -> int:
    """Return the replicas of a role in a group: 1 by default."""
    return 1 if worker.replicas is None else worker.replicas


def _scheduler(conversion: Conversion, backend: ModelBackend) -> str:
    """Return the scheduler: gangs need Volcano, and MatrixInfer's admission requires it."""
    if backend.scheduler_name:
        return backend.scheduler_name
    return "volcano" if conversion.dialect.gang_switch or conversion.gang else ""


def _policies(conversion: Conversion) -> Json:
    """Return the policies of recovery and rollout, which only MatrixInfer has."""
    if not conversion.dialect.gang_switch:
        return {}
    return {
        "recoveryPolicy": "InferGroupRecreate",
        "rolloutStrategy": {"type": "InferGroupRollingUpdate"},
    }


def _gang(conversion: Conversion, backend: ModelBackend, replicas: dict[str, int]) -> Json:
    """Return the gang scheduling of the pods of a group.

    Of prefill and decode one replica each is enough to serve. No more are asked for, as the policy
    cannot change, and Kthena's admission refuses a role with fewer replicas than it asks for.
    """
    if conversion.dialect.gang_switch:
        return {"gangSchedule": {"enable": conversion.gang}}
    if backend.type == DISAGGREGATED:
        replicas = dict.fromkeys(replicas, 1)
    return {"gangPolicy": {"minRoleReplicas": replicas}} if conversion.gang else {}


def _leader(conversion: Conversion, backend: ModelBackend, role: str, worker: WorkerRole) -> Json:
    cache = cache_of(backend)
    entry = {
        **_pod(conversion, backend, worker, cache),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "containers": [
            sidecar(conversion, backend),
            _engine(conversion, backend, worker, cache),
        ],
    }
    others = {
        **_pod(conversion, backend, worker, cache),
        "containers": [_other(conversion, backend, worker, cache)],
    }
    return {
        "name": role,
        "replicas": _replicas(worker),
        "workerReplicas": pods_of(worker) - 1,
        "entryTemplate": {
            "metadata": {"labels": conversion.pod_labels(backend)},
            "spec": entry,
        },
        "workerTemplate": {**_worker_metadata(conversion, backend), "spec": others},
    }


def _worker_metadata(conversion: Conversion, backend: ModelBackend) -> Json:
    """Return the labels of the other pods of a replica, if they have some."""
    if not conversion.pods.labels_all:
        return {}
    return {"metadata": {"labels": conversion.pod_labels(backend)}}


def _pod(
    conversion: Conversion, backend: ModelBackend, worker: WorkerRole, cache: ModelCache
) -> Json:
    """Return the fields that all pods of a backend have."""
    return without_empty(
        {
            "initContainers": downloaders(conversion, backend, cache),
            "volumes": [cache.volume, *_memory_volumes(conversion, backend)],
            "affinity": worker.affinity,
            "tolerations": list(worker.tolerations),
            "runtimeClassName": backend.runtime_class_name,
        }
    )


def _memory_volumes(conversion: Conversion, backend: ModelBackend) -> list[Json]:
    has_one = conversion.pods.shares_memory and backend.type != DISAGGREGATED
    return [{"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}] if has_one else []


def _mounts(conversion: Conversion, backend: ModelBackend, cache: ModelCache) -> list[Json]:
    volumes = _memory_volumes(conversion, backend)
    return [cache.mount, *({"name": v["name"], "mountPath": "/dev/shm"} for v in volumes)]  # noqa: S108 - of the pod


def _engine(
    conversion: Conversion, backend: ModelBackend, worker: WorkerRole, cache: ModelCache
) -> Json:
    probe = {
        "httpGet": {"path": "/health", "port": ENGINE_PORT, "scheme": "HTTP"},
        "initialDelaySeconds": conversion.pods.load_seconds,
        "periodSeconds": 5,
        "timeoutSeconds": 1,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    return without_empty(
        {
            "name": "engine",
            "image": worker.image,
            "command": engine_command(conversion, backend, worker, cache),
            "env": environment(conversion, backend),
            "resources": worker.resources,
            "volumeMounts": _mounts(conversion, backend, cache),
            "readinessProbe": probe,
            "lifecycle": {
                "preStop": {"exec": {"command": ["/bin/sh", "-c", _drain(backend.type)]}}
            },
        }
    )


def _drain(type_: str) -> str:
    """Return a script that waits until the engine has no requests, up to the grace period."""
    running, waiting = WAITING[type_]
    return f"""\
count() {{
  curl -s http://localhost:{ENGINE_PORT}/metrics |
    awk -v name="$1" 'index($1, name) == 1 {{n += $2}} END {{print n + 0}}'
}}
while true; do
  running=$(count {running})
  waiting=$(count {waiting})
  if [ "$running" = 0 ] && [ "$waiting" = 0 ]; then
    echo "ending: all requests are answered" >> /proc/1/fd/1
    exit 0
  fi
  echo "ending: $running requests at work, $waiting waiting" >> /proc/1/fd/1
  sleep 5
done
"""


def _other(
    conversion: Conversion, backend: ModelBackend, worker: WorkerRole, cache: ModelCache
) -> Json:
    """Return the container of the pods of a replica other than the first."""
    return without_empty(
        {
            "name": f"{backend.name.lower()}-{backend.type.lower()}-worker",
            "image": worker.image,
            "command": worker_command(conversion, backend, worker, cache),
            "env": list(backend.env),
            "resources": worker.resources,
            "volumeMounts": _mounts(conversion, backend, cache),
        }
    )


def _disaggregated(
    conversion: Conversion, backend: ModelBackend, role: str, worker: WorkerRole
) -> Json:
    cache = cache_of(backend)
    pod = {
        **_pod(conversion, backend, worker, cache),
        "containers": [
            sidecar(conversion, backend, role),
            _disaggregated_engine(conversion, backend, role, worker, cache),
        ],
    }
    if _is_bound_to_ascend(conversion, worker):
        pod["affinity"] = ASCEND_NODES
    return {
        "name": role,
        "replicas": _replicas(worker),
        "workerReplicas": 0,
        "entryTemplate": {
            "metadata": {"labels": conversion.pod_labels(backend)},
            "spec": pod,
        },
        "workerTemplate": {"spec": {"containers": []}},
    }


def _is_bound_to_ascend(conversion: Conversion, worker: WorkerRole) -> bool:
    """Whether pods run on Ascend nodes only; in later releases users say so in the affinity."""
    return conversion.pods.binds_ascend and not worker.affinity and _asks_for(worker, ASCEND)


def _asks_for(worker: WorkerRole, device: str) -> bool:
    return any(device in (worker.resources.get(part) or {}) for part in ("limits", "requests"))


def _disaggregated_engine(
    conversion: Conversion, backend: ModelBackend, role: str, worker: WorkerRole, cache: ModelCache
) -> Json:
    probe = {
        "httpGet": {"path": "/health", "port": ENGINE_PORT},
        "initialDelaySeconds": 5,
        "periodSeconds": 5,
        "failureThreshold": 3,
    }
    return without_empty(
        {
            "name": "vllm",
            "image": worker.image,
            "imagePullPolicy": "IfNotPresent",
            "ports": [{"containerPort": ENGINE_PORT}],
            "command": engine_command(conversion, backend, worker, cache),
            "env": environment(conversion, backend, role),
            "resources": worker.resources,
            "volumeMounts": [cache.mount],
            "readinessProbe": probe,
            "livenessProbe": {**probe, "initialDelaySeconds": conversion.pods.load_seconds},
        }
    )


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
