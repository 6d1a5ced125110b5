"""Convert a booster to ModelServers and the ModelRoute; pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from inferno_operator.controllers.boosters.booster import ModelBackend
from inferno_operator.controllers.boosters.convert.connectors import TRANSFER, connector_name
from inferno_operator.controllers.boosters.convert.context import ENGINE_PORT, Conversion
from inferno_operator.controllers.boosters.convert.serving import ROLES
from inferno_operator.resources.dialects import DISAGGREGATED

Json = dict[str, Any]

SERVED_NAMES = ("served-model-name", "served_model_name")


def server(conversion: Conversion, backend: ModelBackend) -> Json:
    """Return the manifest of a backend's ModelServer."""
    dialect = conversion.dialect
    engine = "SGLang" if backend.type == "SGLang" else "vLLM"
    spec: Json = {
        "model": _served_name(conversion, backend),
        "inferenceEngine": engine,
        "workloadSelector": {"matchLabels": _selector(conversion, backend)},
        "workloadPort": {"port": ENGINE_PORT},
        "trafficPolicy": {"retry": {"attempts": 5, "retryInterval": "0s"}},
    }
    if backend.type == DISAGGREGATED:
        spec["workloadSelector"]["pdGroup"] = _pairs(conversion)
        connector = _connector(conversion, backend)
        if connector:
            spec["kvConnector"] = {"type": connector}
    return conversion.child(dialect.server, spec, backend)


def _selector(conversion: Conversion, backend: ModelBackend) -> dict[str, str]:
    """Return the labels that select the backend's pods."""
    keys = [conversion.dialect.label(name) for name in ("model-uid", "backend-name")]
    labels = conversion.pod_labels(backend)
    selector = {key: labels[key] for key in keys}
    if conversion.pods.labels_all:  # the other pods have these labels too
        selector[conversion.dialect.pod_label("entry")] = "true"
    return selector


def _pairs(conversion: Conversion) -> Json:
    prefix = conversion.dialect.pod_prefix
    labels = {f"{role}Labels": {f"{prefix}role": role} for role in ROLES}
    return {"groupKey": f"{prefix}group-name", **labels}


def _configs(backend: ModelBackend, roles: Iterable[str]) -> list[Mapping[str, Any]]:
    workers = (worker for worker in backend.workers if worker.type in roles)
    return [worker.config for worker in workers if isinstance(worker.config, Mapping)]


def _served_name(conversion: Conversion, backend: ModelBackend) -> str:
    """Return the name under which the engine serves the model."""
    forerunner = not conversion.dialect.fleet_aware
    configs = _configs(backend, ("server", "decode", *(["prefill"] if forerunner else [])))
    given = [config.get(name) for config in configs for name in SERVED_NAMES]
    served = [name for name in given if name and isinstance(name, str)]
    if not served:
        return conversion.model
    return served[-1] if forerunner else served[0]


def _connector(conversion: Conversion, backend: ModelBackend) -> str:
    """Return the router's name of the connector that moves KV caches from prefill to decode."""
    names = [connector_name(config.get(TRANSFER)) for config in _configs(backend, ROLES)]
    connectors = [
        conversion.dialect.connectors[n] for n in names if n in conversion.dialect.connectors
    ]
    return connectors[-1] if connectors else ""


def route(conversion: Conversion, backends: Iterable[ModelBackend]) -> Json:
    """Return the manifest of the ModelRoute to these backends."""
    served = tuple(backends)
    adapters = sorted({adapter.name for each in served for adapter in each.lora_adapters})
    name = conversion.booster.requested_name
    spec = {"modelName": name, "rules": _rules(conversion, served, adapters)}
    if adapters:
        spec["loraAdapters"] = adapters
    return conversion.child(conversion.dialect.route, spec)


def _rules(
    conversion: Conversion, backends: tuple[ModelBackend, ...], adapters: list[str]
) -> list[Json]:
    """Return a rule for the model and, if there are several backends, one for each adapter."""
    match = conversion.booster.spec.model_match
    if len(conversion.booster.spec.backends) == 1 or not conversion.dialect.fleet_aware:
        return [_rule(conversion, "default", match, backends)]
    rules = [_rule(conversion, "default", _about(match, conversion.model), backends)]
    for name in adapters:
        having = (b for b in backends if name in {adapter.name for adapter in b.lora_adapters})
        rules.append(_rule(conversion, name, _about(match, name), having))
    return rules


def _about(match: Json | None, model: str) -> Json:
    return {**(match or {}), "body": {"model": model}}


def _rule(
    conversion: Conversion, name: str, match: Json | None, backends: Iterable[ModelBackend]
) -> Json:
    targets = [_target(conversion, backend) for backend in backends]
    return {"name": name, **({"modelMatch": match} if match else {}), "targetModels": targets}


def _target(conversion: Conversion, backend: ModelBackend) -> Json:
    target: Json = {"modelServerName": conversion.booster.child_name(backend)}
    return target if backend.route_weight is None else {**target, "weight": backend.route_weight}
