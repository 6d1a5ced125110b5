"""Convert a backend to its ModelServing (ModelInfer in MatrixInfer); pure.

Its pods have the cache of the weights, downloaders that fill it, an engine and a sidecar.
"""

import json
import logging
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inferno_operator.controllers.boosters.booster import LoraAdapter, ModelBackend, WorkerRole
from inferno_operator.controllers.boosters.conversion import (
    ENGINE_PORT,
    Conversion,
    ConversionError,
    ModelCache,
    compute_short_hash,
    find_cache,
    runtime_port,
)
from inferno_operator.resources.dialects import DISAGGREGATED

Json = dict[str, Any]

logger = logging.getLogger(__name__)

TRANSFER = "kv-transfer-config"
"""The flag of an engine with the configuration of the transfer."""

ASCEND = "huawei.com/ascend-1980"

DEVICES = ("nvidia.com/gpu", ASCEND)
"""Extended resources that count accelerators."""

RAY = "examples/online_serving/multi-node-serving.sh"
"""A script in vLLM's images that starts Ray on the leader or on a worker."""

PACKAGES = {"MooncakeConnector": "mooncake-transfer-engine", "NixlConnector": "nixl"}
"""Python packages that connectors of KV caches need."""

SKIPPED = "KTHENA_SKIP_ENGINE_DEPENDENCY_INSTALL"
"""Environment variable of a backend whose image has these packages."""

TRUE = ("1", "t", "T", "true", "True", "TRUE")
"""What Go reads as true."""

KV_EVENTS = {
    "enable_kv_cache_events": True,
    "publisher": "zmq",
    "topic": "kv-events",
    "endpoint": "tcp://*:5557",
}
"""Publishes to the router which prefixes an engine has in its cache."""

SGLANG_PORT = 20000
"""Port for the connections between the nodes of one SGLang engine."""

ROLES = ("prefill", "decode")

GRACE_SECONDS = 300
"""Seconds that a terminating pod has to finish its requests."""

SHARED_MEMORY = "dshm"
"""Volume in which the processes of an engine exchange tensors."""

WAITING = {
    "vLLM": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "SGLang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
}
"""Metrics of an engine: running and waiting requests."""

ASCEND_TERM = {
    "key": "node.kubernetes.io/npu.chip.name",
    "operator": "In",
    "values": ["Ascend910"],
}
ASCEND_NODES = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [ASCEND_TERM]}]
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


def build_serving(conversion: Conversion, backend: ModelBackend) -> Json:
    """Return the manifest of a backend's serving.

    Raises
    ------
    ConversionError
        The backend cannot be converted.
    """
    if backend.type == DISAGGREGATED:
        workers = {role: _find_worker(conversion, backend, role) for role in ROLES}
    elif backend.type in WAITING:
        workers = {"leader": _find_worker(conversion, backend, "server")}
    else:
        problem = f"{backend.type} is not supported: the router supports only vLLM and SGLang"
        raise ConversionError(f"{conversion.path(backend)}.type", problem)
    dialect, cache = conversion.dialect, find_cache(backend)
    roles = [_Role(conversion, backend, cache, *item) for item in workers.items()]
    policies, gang = dict[str, Any](), dict[str, Any]()
    if dialect.gang_switch:  # MatrixInfer, whose admission requires Volcano
        policies["recoveryPolicy"] = "InferGroupRecreate"
        policies["rolloutStrategy"] = {"type": "InferGroupRollingUpdate"}
        gang["gangSchedule"] = {"enable": conversion.gang}
    elif conversion.gang:
        # Of prefill and decode one replica each is enough to serve. No more are asked for, as the
        # policy cannot change, and Kthena's admission refuses a role with fewer than it asks for.
        least = {r.name: 1 if r.is_disaggregated else r.replicas for r in roles}
        gang["gangPolicy"] = {"minRoleReplicas": least}
    rolled_out = {
        "schedulerName": backend.scheduler_name
        or ("volcano" if dialect.gang_switch or conversion.gang else ""),
        **policies,
        "template": {
            "restartGracePeriodSeconds": 60,
            **gang,
            "roles": [role.build() for role in roles],
        },
    }
    spec = {"replicas": backend.min_replicas, **rolled_out}
    return conversion.child(dialect.serving, spec, backend, compute_short_hash(rolled_out))


def _find_worker(conversion: Conversion, backend: ModelBackend, role: str) -> WorkerRole:
    worker, path = backend.worker(role), f"{conversion.path(backend)}.workers"
    if worker is None:
        problem = f"has no worker of type {role}, which {backend.type} needs"
        raise ConversionError(path, problem)
    if worker.config is not None and not isinstance(worker.config, dict):
        problem = f"must be an object, not a {type(worker.config).__name__}"
        raise ConversionError(f"{path}[{backend.workers.index(worker)}].config", problem)
    return worker


@dataclass(frozen=True, slots=True)
class _Role:
    """A role of a serving: leader, prefill or decode; what its pods are made of."""

    conversion: Conversion
    backend: ModelBackend
    cache: ModelCache
    name: str
    worker: WorkerRole

    @property
    def is_disaggregated(self) -> bool:
        return self.name in ROLES

    @property
    def replicas(self) -> int:
        """The replicas of the role in a group: 1 by default."""
        return 1 if self.worker.replicas is None else self.worker.replicas

    def build(self) -> Json:
        """Return the role, with the templates of the first and the other pods of a replica."""
        labels = {"metadata": {"labels": self.conversion.labels(self.backend)}}
        role = {"name": self.name, "replicas": self.replicas}
        pod = self._build_pod()
        if self.is_disaggregated:
            pod["containers"] = [self._build_sidecar(), self._build_engine()]
            resources = self.worker.resources
            asked = {*(resources.get("limits") or {}), *(resources.get("requests") or {})}
            # In later releases users say so in the affinity.
            if self.conversion.pods.binds_ascend and not self.worker.affinity and ASCEND in asked:
                pod["affinity"] = ASCEND_NODES
            return {
                **role,
                "workerReplicas": 0,
                "entryTemplate": {**labels, "spec": pod},
                "workerTemplate": {"spec": {"containers": []}},
            }
        entry = {
            **pod,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [self._build_sidecar(), self._build_engine()],
        }
        other = drop_empty(
            {
                "name": f"{self.backend.name.lower()}-{self.backend.type.lower()}-worker",
                "image": self.worker.image,
                "command": self._build_worker_command(),
                "env": list(self.backend.env),
                "resources": self.worker.resources,
                "volumeMounts": self._build_mounts(),
            }
        )
        return {
            **role,
            "workerReplicas": count_pods_of_replica(self.worker) - 1,
            "entryTemplate": {**labels, "spec": entry},
            "workerTemplate": {
                **(labels if self.conversion.pods.labels_all else {}),
                "spec": {**pod, "containers": [other]},
            },
        }

    def _build_pod(self) -> Json:
        """Return the fields that all pods of a backend have."""
        return drop_empty(
            {
                "initContainers": self._build_downloaders(),
                "volumes": [
                    self.cache.volume,
                    *({"name": n, "emptyDir": {"medium": "Memory"}} for n in self._memory_volumes),
                ],
                "affinity": self.worker.affinity,
                "tolerations": list(self.worker.tolerations),
                "runtimeClassName": self.backend.runtime_class_name,
            }
        )

    @property
    def _memory_volumes(self) -> list[str]:
        has_one = self.conversion.pods.shares_memory and not self.is_disaggregated
        return [SHARED_MEMORY] if has_one else []

    def _build_mounts(self) -> list[Json]:
        memory = ({"name": name, "mountPath": "/dev/shm"} for name in self._memory_volumes)  # noqa: S108 - of the pod
        return [self.cache.mount, *memory]

    def _build_downloaders(self) -> list[Json]:
        """Return the init containers that download the model and the adapters to the cache."""
        entries = {entry.get("name"): entry for entry in self.backend.env}
        settings = ALL_SETTINGS if self.conversion.pods.knows_modelscope else DOWNLOADER_SETTINGS
        given = [entries[name] for name in settings if name in entries]
        of_model = [each for each in given if each.get("value") or each.get("valueFrom")]
        sources = [("model-downloader", self.backend.model_uri, of_model)]
        sources += [
            (f"lora-downloader-{i}", adapter.artifact_url, list(self.backend.env))
            for i, adapter in enumerate(self.backend.lora_adapters)
        ]
        return [
            drop_empty(
                {
                    "name": f"{self.conversion.model}-{name}",
                    "image": self.conversion.dialect.downloader_image,
                    "args": ["--source", source, "--output-dir", self.cache.folder(source)],
                    "env": env,
                    "envFrom": list(self.backend.env_from),
                    "volumeMounts": [self.cache.mount],
                }
            )
            for name, source, env in sources
        ]

    def _build_engine(self) -> Json:
        health = {"path": "/health", "port": ENGINE_PORT}
        load_seconds = self.conversion.pods.load_seconds
        container = {
            "name": "engine",
            "image": self.worker.image,
            "command": self._build_command(),
            "env": self._build_environment(),
            "resources": self.worker.resources,
            "volumeMounts": self._build_mounts(),
        }
        if self.is_disaggregated:
            probe = {
                "httpGet": health,
                "initialDelaySeconds": 5,
                "periodSeconds": 5,
                "failureThreshold": 3,
            }
            more = {
                "name": "vllm",
                "imagePullPolicy": "IfNotPresent",
                "ports": [{"containerPort": ENGINE_PORT}],
                "readinessProbe": probe,
                "livenessProbe": {**probe, "initialDelaySeconds": load_seconds},
            }
        else:
            drain = ["/bin/sh", "-c", _build_drain_script(self.backend.type)]
            more = {
                "readinessProbe": {
                    "httpGet": {**health, "scheme": "HTTP"},
                    "initialDelaySeconds": load_seconds,
                    "periodSeconds": 5,
                    "timeoutSeconds": 1,
                    "successThreshold": 1,
                    "failureThreshold": 3,
                },
                "lifecycle": {"preStop": {"exec": {"command": drain}}},
            }
        return drop_empty({**container, **more})

    def _build_sidecar(self) -> Json:
        """Return the sidecar of the engine: it serves health and metrics, and loads adapters."""
        backend, port = self.backend, runtime_port(self.backend)
        url = backend.setting("RUNTIME_URL", f"http://localhost:{ENGINE_PORT}")
        metrics = backend.setting("RUNTIME_METRICS_PATH", "/metrics")
        arguments = ["--port", str(port), "--engine", backend.type.lower()]
        arguments += ["--engine-base-url", url, "--engine-metrics-path", metrics]
        if self.conversion.dialect.fleet_aware:
            arguments += ["--pod", "$(POD_NAME).$(NAMESPACE)", "--model", self.conversion.model]
        container: Json = {
            "name": "runtime",
            "image": self.conversion.dialect.runtime_image,
            "ports": [{"containerPort": port}],
            "args": arguments,
            "env": self._build_environment(),
            "envFrom": list(backend.env_from),
        }
        if not self.is_disaggregated:
            container["readinessProbe"] = {
                "httpGet": {"path": "/health", "port": port},
                "initialDelaySeconds": 5,
                "periodSeconds": 10,
            }
        return drop_empty(container)

    def _build_environment(self) -> list[Json]:
        """Return the environment of engine and sidecar; the user's variables override others."""
        added: list[Json] = []
        if self.conversion.dialect.fleet_aware:
            added += [
                _field("POD_NAME", "metadata.name"),
                _field("NAMESPACE", "metadata.namespace"),
                {"name": "VLLM_USE_V1", "value": "1"},
                _reference("REDIS_HOST", "configMapKeyRef", "redis-config"),
                _reference("REDIS_PORT", "configMapKeyRef", "redis-config"),
                _reference("REDIS_PASSWORD", "secretKeyRef", "redis-secret"),
            ]
        for name in FIXED.get(self.name, ()):
            if name == "HCCL_IF_IP":
                added.append(_field(name, "status.podIP"))
            else:
                added.append({"name": name, "value": "1" if name == "HF_HUB_OFFLINE" else "eth0"})
        given = {entry.get("name") for entry in self.backend.env}
        return [*self.backend.env, *(entry for entry in added if entry["name"] not in given)]

    def _build_command(self) -> list[str]:
        """Return the command of the engine on the first pod of a replica."""
        if self.backend.type == "SGLang":
            return self._build_sglang_command()
        command = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", self.cache.folder(self.backend.model_uri), *self._list_flags()]
        more: list[str] = []
        given = {key.replace("_", "-") for key in self._config}
        is_published = self.conversion.dialect.fleet_aware and self.conversion.pods.publishes_cache
        if is_published and "kv-events-config" not in given:
            more += ["--kv-events-config", json.dumps(KV_EVENTS, separators=(",", ":"))]
        more += self._list_adapters("--lora-modules")
        server = self.backend.worker("server")
        if server is None or count_pods_of_replica(server) <= 1:
            command += more
        else:
            command += ["--distributed_executor_backend", "ray", *more]
            devices = f"--ray_cluster_size={server.pods} --num-gpus={_count_devices(server)}"
            leader = f"{self._ray_script} leader {devices} && {shlex.join(command)}"
            command = ["bash", "-c", f"chmod u+x {self._ray_script} && {leader}"]
        # Install what the connector needs on a GPU. An upgrade would replace the version that fits.
        package = PACKAGES.get(find_connector(self._config.get(TRANSFER)))
        is_there = self.backend.literal(SKIPPED, "") in TRUE
        on_gpu = _count_devices(self.worker, DEVICES[:1])
        if package and on_gpu and not is_there and self.conversion.pods.installs_packages:
            return ["bash", "-c", f"pip install {package} && {shlex.join(command)}"]
        return command

    def _build_worker_command(self) -> list[str]:
        """Return the command of the other pods of a replica."""
        if self.backend.type == "SGLang":
            return self._build_sglang_command()
        script = f"{self._ray_script} worker --ray_address=$(ENTRY_ADDRESS)"
        return ["bash", "-c", f"chmod u+x {self._ray_script} && {script}"]

    def _build_sglang_command(self) -> list[str]:
        """Return the command of SGLang, which is the same on all pods of a replica."""
        command = ["python3", "-m", "sglang.launch_server"]
        command += ["--model-path", self.cache.folder(self.backend.model_uri)]
        command += ["--host", "0.0.0.0", "--port", str(ENGINE_PORT), "--enable-metrics"]  # noqa: S104 - of the pod
        command += self._list_flags()
        pods = count_pods_of_replica(self.worker)
        if pods > 1:
            command += ["--nnodes", str(pods), "--node-rank", "$(WORKER_INDEX)"]
            command += ["--dist-init-addr", f"$(ENTRY_ADDRESS):{SGLANG_PORT}"]
        return command + self._list_adapters("--lora-paths")

    @property
    def _config(self) -> Json:
        """The flags of the worker."""
        return self.worker.config or {}

    @property
    def _ray_script(self) -> str:
        return self.conversion.pods.script_folder + RAY

    def _list_flags(self) -> list[str]:
        return flags(self._config, bare_switches=self.conversion.bare_switches)

    def _list_adapters(self, flag: str) -> list[str]:
        def describe(adapter: LoraAdapter) -> str:
            return f"{adapter.name}={self.cache.folder(adapter.artifact_url)}"

        adapters = self.backend.lora_adapters
        return ["--enable-lora", flag, *map(describe, adapters)] if adapters else []


def count_pods_of_replica(worker: WorkerRole) -> int:
    """Return the pods of one replica: at least one."""
    return worker.pods or 1


def drop_empty(fields: Json) -> Json:
    """Return the fields that are not empty."""
    return {key: value for key, value in fields.items() if value not in (None, "", [], {}, ())}


def _field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _reference(name: str, kind: str, source: str) -> Json:
    reference = {"name": source, "key": name, "optional": True}
    return {"name": name, "valueFrom": {kind: reference}}


def _count_devices(worker: WorkerRole, names: Iterable[str] = DEVICES) -> int:
    """Return the number of devices of a pod; requests of devices default to their limits.

    A quantity that is not an integer, which the API server rejects, counts as 0.
    """
    limits = worker.resources.get("limits") or {}
    requests = worker.resources.get("requests") or {}
    counts = (str(limits.get(device, requests.get(device, 0))) for device in names)
    return sum(int(text) for text in counts if text.isdecimal())


def _build_drain_script(type_: str) -> str:
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


def find_connector(transfer: object) -> str:
    """Return the connector in a transfer configuration, which is an object or JSON text."""
    try:
        value = json.loads(transfer) if isinstance(transfer, str) else transfer
    except ValueError:
        logger.info("%s is not valid JSON: %r", TRANSFER, transfer)
        return ""
    return str(value.get("kv_connector")) if isinstance(value, Mapping) else ""


def flags(config: Mapping[str, object], *, bare_switches: bool = False) -> list[str]:
    """Return the flags in the order of their keys; a key with the value null has no flag.

    A flag with an empty text has no value. With `bare_switches`, true is written as a flag without
    a value, and false is left out.
    """
    command: list[str] = []
    for key in sorted(config):
        value = config[key]
        if value is None or (bare_switches and value is False):
            continue
        command.append("--" + key.replace("_", "-"))
        if bare_switches and value is True:
            continue
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        if text:
            command.append(text)
    return command
