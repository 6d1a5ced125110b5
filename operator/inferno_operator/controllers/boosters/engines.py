"""The commands that start engines, and their flags; pure."""

import json
import logging
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from inferno_operator.controllers.boosters.booster import LoraAdapter, ModelBackend, WorkerRole
from inferno_operator.controllers.boosters.conversion import (
    ENGINE_PORT,
    Conversion,
    ConversionError,
    ModelCache,
)

logger = logging.getLogger(__name__)

TRANSFER = "kv-transfer-config"
"""The flag of an engine with the configuration of the transfer."""


DEVICES = ("nvidia.com/gpu", "huawei.com/ascend-1980")
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


def config_of(worker: WorkerRole, path: str) -> dict[str, Any]:
    """Return the `config` of a worker, which has its flags; {} if it has none.

    Raises
    ------
    ConversionError
        The `config` is not an object.
    """
    if worker.config is None:
        return {}
    if not isinstance(worker.config, dict):
        problem = f"must be an object, not a {type(worker.config).__name__}"
        raise ConversionError(f"{path}.config", problem)
    return worker.config


def pods_of(worker: WorkerRole) -> int:
    """Return the pods of one replica: at least one."""
    return worker.pods or 1


def engine_command(
    conversion: Conversion, backend: ModelBackend, worker: WorkerRole, cache: ModelCache
) -> list[str]:
    """Return the command of the engine on the first pod of a replica."""
    if backend.type == "SGLang":
        return _sglang(conversion, backend, worker, cache)
    command = _vllm(conversion, backend, worker, cache)
    more = _more(conversion, backend, worker, cache)
    server = backend.worker("server")
    if server is None or pods_of(server) <= 1:
        command += more
    else:
        command += ["--distributed_executor_backend", "ray", *more]
        command = _on_ray(conversion, server, shlex.join(command))
    return _with_package(conversion, backend, worker, command)


def _with_package(
    conversion: Conversion, backend: ModelBackend, worker: WorkerRole, command: list[str]
) -> list[str]:
    """Return a command that first installs the package that the connector needs on a GPU."""
    transfer = config_of(worker, conversion.path(backend)).get(TRANSFER)
    package = PACKAGES.get(connector_name(transfer))
    is_skipped = backend.literal(SKIPPED, "") in TRUE
    on_gpu = _devices(worker, DEVICES[:1])
    if package is None or is_skipped or not on_gpu or not conversion.pods.installs_packages:
        return command
    # An upgrade would replace the version that fits the engine.
    return ["bash", "-c", f"pip install {package} && {shlex.join(command)}"]


def worker_command(
    conversion: Conversion, backend: ModelBackend, worker: WorkerRole, cache: ModelCache
) -> list[str]:
    """Return the command of the other pods of a replica."""
    if backend.type == "SGLang":
        return _sglang(conversion, backend, worker, cache)
    script = _ray(conversion)
    return ["bash", "-c", f"chmod u+x {script} && {script} worker --ray_address=$(ENTRY_ADDRESS)"]


def _ray(conversion: Conversion) -> str:
    return conversion.pods.script_folder + RAY


def _vllm(
    conversion: Conversion, backend: ModelBackend, worker: WorkerRole, cache: ModelCache
) -> list[str]:
    command = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", cache.folder(backend.model_uri)]
    return command + _flags(conversion, backend, worker)


def _more(
    conversion: Conversion, backend: ModelBackend, worker: WorkerRole, cache: ModelCache
) -> list[str]:
    """Return the flags that the controller adds."""
    command: list[str] = []
    given = {key.replace("_", "-") for key in config_of(worker, conversion.path(backend))}
    is_published = conversion.dialect.fleet_aware and conversion.pods.publishes_cache
    if is_published and "kv-events-config" not in given:
        command += ["--kv-events-config", json.dumps(KV_EVENTS, separators=(",", ":"))]
    if backend.lora_adapters:
        modules = [_module(adapter, cache) for adapter in backend.lora_adapters]
        command += ["--enable-lora", "--lora-modules", *modules]
    return command


def _sglang(
    conversion: Conversion, backend: ModelBackend, worker: WorkerRole, cache: ModelCache
) -> list[str]:
    """Return the command of SGLang, which is the same on all pods of a replica."""
    command = ["python3", "-m", "sglang.launch_server"]
    command += ["--model-path", cache.folder(backend.model_uri)]
    command += ["--host", "0.0.0.0", "--port", str(ENGINE_PORT), "--enable-metrics"]  # noqa: S104 - of the pod
    command += _flags(conversion, backend, worker)
    pods = pods_of(worker)
    if pods > 1:
        command += ["--nnodes", str(pods), "--node-rank", "$(WORKER_INDEX)"]
        command += ["--dist-init-addr", f"$(ENTRY_ADDRESS):{SGLANG_PORT}"]
    if backend.lora_adapters:
        modules = [_module(adapter, cache) for adapter in backend.lora_adapters]
        command += ["--enable-lora", "--lora-paths", *modules]
    return command


def _flags(conversion: Conversion, backend: ModelBackend, worker: WorkerRole) -> list[str]:
    config = config_of(worker, conversion.path(backend))
    return flags(config, bare_switches=conversion.bare_switches)


def _module(adapter: LoraAdapter, cache: ModelCache) -> str:
    return f"{adapter.name}={cache.folder(adapter.artifact_url)}"


def _on_ray(conversion: Conversion, server: WorkerRole, command: str) -> list[str]:
    script, devices = _ray(conversion), _devices(server)
    leader = f"{script} leader --ray_cluster_size={server.pods} --num-gpus={devices}"
    return ["bash", "-c", f"chmod u+x {script} && {leader} && {command}"]


def _devices(worker: WorkerRole, names: Iterable[str] = DEVICES) -> int:
    """Return the number of devices of a pod; requests of devices default to their limits."""
    limits = worker.resources.get("limits") or {}
    requests = worker.resources.get("requests") or {}
    return sum(_whole(limits.get(device, requests.get(device, 0))) for device in names)


def _whole(quantity: object) -> int:
    """Return a quantity of devices, or 0 if it is not an integer, which the API server rejects."""
    text = str(quantity)
    return int(text) if text.isdecimal() else 0


def connector_name(transfer: object) -> str:
    """Return the connector in a transfer configuration, which is an object or JSON text."""
    try:
        value = json.loads(transfer) if isinstance(transfer, str) else transfer
    except ValueError:
        logger.info("%s is not valid JSON: %r", TRANSFER, transfer)
        return ""
    return str(value.get("kv_connector")) if isinstance(value, Mapping) else ""


def flags(config: Mapping[str, object], *, bare_switches: bool = False) -> list[str]:
    """Return the flags in the order of their keys; a key with the value null has no flag.

    Parameters
    ----------
    config
        Names of flags and their values; a flag with an empty text has no value.
    bare_switches
        Write true as a flag without a value, and leave out false, instead of writing values.
    """
    command: list[str] = []
    for key in sorted(config):
        value = config[key]
        if value is None or (bare_switches and value is False):
            continue
        command.append(_flag(key))
        text = "" if bare_switches and value is True else _text(value)
        if text:
            command.append(text)
    return command


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
