"""The commands that start engines; pure."""

import json
import shlex
from typing import Any

from inferno_operator.controllers.boosters.booster import Backend, LoraAdapter, Worker
from inferno_operator.controllers.boosters.convert.context import (
    ENGINE_PORT,
    Conversion,
    ConversionError,
)
from inferno_operator.controllers.boosters.convert.flags import flags, flags_of_the_original
from inferno_operator.controllers.boosters.convert.storage import Cache

DEVICES = ("nvidia.com/gpu", "huawei.com/ascend-1980")
"""Extended resources that count accelerators."""

RAY = "/vllm-workspace/vllm/examples/online_serving/multi-node-serving.sh"
"""A script in vLLM's images that starts Ray on the leader or on a worker."""

KV_EVENTS = {
    "enable_kv_cache_events": True,
    "publisher": "zmq",
    "topic": "kv-events",
    "endpoint": "tcp://*:5557",
}
"""Publishes to the router which prefixes an engine has in its cache."""

SGLANG_PORT = 20000
"""Port for the connections between the nodes of one SGLang engine."""


def config_of(worker: Worker, path: str) -> dict[str, Any]:
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


def pods_of(worker: Worker, *, strict: bool) -> int:
    """Return the pods of one replica: at least one, except in the original."""
    return worker.pods or (0 if strict else 1)


def engine_command(
    conversion: Conversion, backend: Backend, worker: Worker, cache: Cache
) -> list[str]:
    """Return the command of the engine on the first pod of a replica."""
    if backend.type == "SGLang":
        return _sglang(conversion, backend, worker, cache)
    command = _vllm(conversion, backend, worker, cache)
    more = _more(conversion, backend, worker, cache)
    server = backend.worker("server")
    if server is None or pods_of(server, strict=conversion.strict) <= 1:
        return [*command, *more]
    command += ["--distributed_executor_backend", "ray"]
    if conversion.strict:
        return [*_on_ray(server, " ".join(command), _requested(server)), *more]
    return _on_ray(server, shlex.join([*command, *more]), _devices(server))


def worker_command(
    conversion: Conversion, backend: Backend, worker: Worker, cache: Cache
) -> list[str]:
    """Return the command of the other pods of a replica."""
    if backend.type == "SGLang":
        return _sglang(conversion, backend, worker, cache)
    return ["bash", "-c", f"chmod u+x {RAY} && {RAY} worker --ray_address=$(ENTRY_ADDRESS)"]


def _vllm(conversion: Conversion, backend: Backend, worker: Worker, cache: Cache) -> list[str]:
    python = "python" if conversion.strict else "python3"  # some images have no `python`
    command = [python, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", cache.folder(backend.model_uri)]
    if conversion.strict and not conversion.dialect.fleet_aware:
        command.append("--enable-lora")
    return command + _flags(conversion, backend, worker)


def _more(conversion: Conversion, backend: Backend, worker: Worker, cache: Cache) -> list[str]:
    """Return the flags that the controller adds."""
    command: list[str] = []
    given = {key.replace("_", "-") for key in config_of(worker, conversion.path(backend))}
    if conversion.dialect.fleet_aware and (conversion.strict or "kv-events-config" not in given):
        command += ["--kv-events-config", json.dumps(KV_EVENTS, separators=(",", ":"))]
    if backend.lora_adapters:
        modules = [_module(adapter, cache) for adapter in backend.lora_adapters]
        if conversion.strict and not conversion.dialect.fleet_aware:
            modules = [" ".join(modules)]
        command += ["--enable-lora", "--lora-modules", *modules]
    return command


def _sglang(conversion: Conversion, backend: Backend, worker: Worker, cache: Cache) -> list[str]:
    """Return the command of SGLang, which is the same on all pods of a replica."""
    command = ["python3", "-m", "sglang.launch_server"]
    command += ["--model-path", cache.folder(backend.model_uri)]
    command += ["--host", "0.0.0.0", "--port", str(ENGINE_PORT), "--enable-metrics"]  # noqa: S104 - of the pod
    command += _flags(conversion, backend, worker)
    pods = pods_of(worker, strict=False)
    if pods > 1:
        command += ["--nnodes", str(pods), "--node-rank", "$(WORKER_INDEX)"]
        command += ["--dist-init-addr", f"$(ENTRY_ADDRESS):{SGLANG_PORT}"]
    if backend.lora_adapters:
        modules = [_module(adapter, cache) for adapter in backend.lora_adapters]
        command += ["--enable-lora", "--lora-paths", *modules]
    return command


def _flags(conversion: Conversion, backend: Backend, worker: Worker) -> list[str]:
    config = config_of(worker, conversion.path(backend))
    if conversion.strict:
        return flags_of_the_original(config)
    return flags(config, bare_switches=conversion.bare_switches)


def _module(adapter: LoraAdapter, cache: Cache) -> str:
    return f"{adapter.name}={cache.folder(adapter.artifact_url)}"


def _on_ray(server: Worker, command: str, devices: int) -> list[str]:
    leader = f"{RAY} leader --ray_cluster_size={server.pods} --num-gpus={devices}"
    return ["bash", "-c", f"chmod u+x {RAY} && {leader} && {command}"]


def _requested(worker: Worker) -> int:
    """Return the number of requested devices, as the original counts them."""
    requests = worker.resources.get("requests") or {}
    return sum(_whole(requests.get(device, 0)) for device in DEVICES)


def _devices(worker: Worker) -> int:
    """Return the number of devices of a pod; requests of devices default to their limits."""
    limits = worker.resources.get("limits") or {}
    requests = worker.resources.get("requests") or {}
    return sum(_whole(limits.get(device, requests.get(device, 0))) for device in DEVICES)


def _whole(quantity: object) -> int:
    """Return a quantity of devices, or 0 if it is not an integer, which the API server rejects."""
    text = str(quantity)
    return int(text) if text.isdecimal() else 0
