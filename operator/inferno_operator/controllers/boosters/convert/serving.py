"""Convert a backend to its ModelServing (ModelInfer in MatrixInfer); pure."""

from typing import Any

from inferno_operator.controllers.boosters.booster import ModelBackend, WorkerRole
from inferno_operator.controllers.boosters.convert.containers import (
    downloaders,
    environment,
    sidecar,
    without_empty,
)
from inferno_operator.controllers.boosters.convert.context import (
    ENGINE_PORT,
    Conversion,
    ConversionError,
    digest,
)
from inferno_operator.controllers.boosters.convert.engines import (
    config_of,
    engine_command,
    pods_of,
    worker_command,
)
from inferno_operator.controllers.boosters.convert.storage import ModelCache, cache_of
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
