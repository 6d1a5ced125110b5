"""Convert a booster to the manifests of its children; pure and deterministic.

The router picks a target by its weight before it looks for pods, so requests to a target without
pods would fail. Such a target is left out instead of getting the weight 0, because routers of
the original crash if all weights of a rule are 0.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferno_operator.controllers.boosters.booster import (
    DEFAULT_COST_EXPANSION,
    Booster,
    ModelBackend,
)
from inferno_operator.controllers.boosters.conversion import (
    ENGINE_PORT,
    BoosterProblem,
    ChildPlace,
    Conversion,
    ConversionError,
    runtime_port,
)
from inferno_operator.controllers.boosters.serving import (
    ROLES,
    TRANSFER,
    build_serving,
    find_connector,
)
from inferno_operator.resources.dialects import DISAGGREGATED, Dialect
from inferno_operator.resources.objects import Manifest

Json = dict[str, Any]

SERVED_NAMES = ("served-model-name", "served_model_name")


@dataclass(frozen=True, slots=True)
class Converted:
    """The children of a booster, and the problems of backends that have none."""

    children: tuple[Json, ...]
    problems: tuple[BoosterProblem, ...] = ()


def convert_backends(
    booster: Booster,
    backends: Iterable[ModelBackend],
    dialect: Dialect,
    *,
    standing: Container[str] = (),
    taken: Container[ChildPlace] = (),
) -> Converted:
    """Return the children for some backends: servings, servers, route, policies and bindings.

    Backends that cannot be converted are left out. They, and backends of the booster that are
    not in `backends`, stay in the route and in the binding if their name is in `standing`: their
    children exist. Backends with a child name in `taken`, which is that of an object of another
    owner, are left out of the route and the bindings.
    """
    conversion = Conversion(booster, dialect)
    servings, problems = dict[str, Json](), list[BoosterProblem]()
    for backend in backends:
        try:
            servings[backend.name] = build_serving(conversion, backend)
        except ConversionError as error:
            problems.append(BoosterProblem(error.path, error.text, backend.name))
    good = [backend for backend in booster.spec.backends if backend.name in servings]
    kept = [b for b in booster.spec.backends if b.name in servings or b.name in standing]

    def is_free(backend: ModelBackend, *kinds: str) -> bool:
        return not any((kind, booster.child_name(backend)) in taken for kind in kinds)

    serving, server = dialect.serving.kind, dialect.server.kind
    servers = [_build_server(conversion, backend) for backend in good]
    routed = [backend for backend in kept if is_free(backend, serving, server)]
    routes = [_build_route(conversion, routed)] if routed else []
    scaled, optimized = ([b for b in among if is_free(b, serving)] for among in (good, kept))
    scalers = _build_scalers(conversion, scaled, optimized)
    return Converted((*servings.values(), *servers, *routes, *scalers), tuple(problems))


def _build_server(conversion: Conversion, backend: ModelBackend) -> Json:
    """Return the manifest of a backend's ModelServer."""
    dialect, labels = conversion.dialect, conversion.labels(backend)
    selector = {k: labels[k] for k in map(dialect.label, ("model-uid", "backend-name"))}
    if conversion.pods.labels_all:  # the other pods have these labels too
        selector[dialect.pod_label("entry")] = "true"
    spec: Json = {
        "model": _find_served_name(conversion, backend),
        "inferenceEngine": "SGLang" if backend.type == "SGLang" else "vLLM",
        "workloadSelector": {"matchLabels": selector},
        "workloadPort": {"port": ENGINE_PORT},
        "trafficPolicy": {"retry": {"attempts": 5, "retryInterval": "0s"}},
    }
    if backend.type == DISAGGREGATED:
        prefix = dialect.pod_prefix
        roles = {f"{role}Labels": {f"{prefix}role": role} for role in ROLES}
        spec["workloadSelector"]["pdGroup"] = {"groupKey": f"{prefix}group-name", **roles}
        # The router's name of the connector that moves KV caches from prefill to decode.
        names = [find_connector(config.get(TRANSFER)) for config in _configs(backend, ROLES)]
        connectors = [dialect.connectors[n] for n in names if n in dialect.connectors]
        if connectors:
            spec["kvConnector"] = {"type": connectors[-1]}
    return conversion.child(dialect.server, spec, backend)


def _configs(backend: ModelBackend, roles: Iterable[str]) -> list[Mapping[str, Any]]:
    workers = (worker for worker in backend.workers if worker.type in roles)
    return [worker.config for worker in workers if isinstance(worker.config, Mapping)]


def _find_served_name(conversion: Conversion, backend: ModelBackend) -> str:
    """Return the name under which the engine serves the model."""
    forerunner = not conversion.dialect.fleet_aware
    configs = _configs(backend, ("server", "decode", *(["prefill"] if forerunner else [])))
    given = [config.get(name) for config in configs for name in SERVED_NAMES]
    served = [name for name in given if name and isinstance(name, str)]
    if not served:
        return conversion.model
    return served[-1] if forerunner else served[0]


def _build_route(conversion: Conversion, backends: Sequence[ModelBackend]) -> Json:
    """Return the ModelRoute, with a rule for the model.

    If there are several backends, it also has one for each adapter.
    """
    booster = conversion.booster
    match = booster.spec.model_match
    adapters = sorted({adapter.name for each in backends for adapter in each.lora_adapters})

    def build_rule(name: str, match: Json | None, among: Iterable[ModelBackend]) -> Json:
        targets = [
            {"modelServerName": booster.child_name(each)}
            | ({} if each.route_weight is None else {"weight": each.route_weight})
            for each in among
        ]
        return {"name": name, **({"modelMatch": match} if match else {}), "targetModels": targets}

    if len(booster.spec.backends) == 1 or not conversion.dialect.fleet_aware:
        rules = [build_rule("default", match, backends)]
    else:
        about_model = {**(match or {}), "body": {"model": conversion.model}}
        rules = [build_rule("default", about_model, backends)]
        for name in adapters:
            having = (b for b in backends if name in {each.name for each in b.lora_adapters})
            rules.append(build_rule(name, {**about_model, "body": {"model": name}}, having))
    spec = {"modelName": booster.requested_name, "rules": rules}
    if adapters:
        spec["loraAdapters"] = adapters
    return conversion.child(conversion.dialect.route, spec)


def _build_scalers(
    conversion: Conversion, backends: Iterable[ModelBackend], optimized: Sequence[ModelBackend]
) -> Iterator[Json]:
    """Yield the policy and binding of the whole model, or those of each backend."""
    spec, binding = conversion.booster.spec, conversion.dialect.binding
    if spec.autoscaling_policy is not None:
        if optimized:
            yield _build_policy(conversion, spec.autoscaling_policy)
            expansion = spec.cost_expansion_rate_percent
            whole = {
                "costExpansionRatePercent": DEFAULT_COST_EXPANSION
                if expansion is None
                else expansion,
                "params": [
                    {**_build_bounds(conversion, backend), "cost": backend.scaling_cost}
                    for backend in optimized
                ],
            }
            policy = {"policyRef": {"name": conversion.model}}
            yield conversion.child(binding, {**policy, "optimizerConfiguration": whole})
        return
    field = "homogeneousTarget" if conversion.booster.is_single else "scalingConfiguration"
    for backend in backends:
        if backend.autoscaling_policy is not None:
            yield _build_policy(conversion, backend.autoscaling_policy, backend)
            policy = {"policyRef": {"name": conversion.booster.child_name(backend)}}
            scaled = {**policy, field: _build_bounds(conversion, backend)}
            yield conversion.child(binding, scaled, backend)


def _build_policy(conversion: Conversion, spec: Json, backend: ModelBackend | None = None) -> Json:
    """Return the policy with all objects that the API server fills with defaults."""
    behavior = spec.get("behavior") or {}
    up = behavior.get("scaleUp") or {}
    full = {
        "scaleUp": {
            "stablePolicy": up.get("stablePolicy") or {},
            "panicPolicy": {"period": "0s", **(up.get("panicPolicy") or {})},
        },
        "scaleDown": behavior.get("scaleDown") or {},
    }
    return conversion.child(conversion.dialect.policy, {**spec, "behavior": full}, backend)


def _build_bounds(conversion: Conversion, backend: ModelBackend) -> Json:
    """Return a target of a binding; the API fills the endpoint with defaults."""
    dialect = conversion.dialect
    labels = {dialect.pod_label("role"): "leader"}
    endpoint: Json = {"port": runtime_port(backend)}
    target: Json = {
        "targetRef": {
            "kind": dialect.serving.kind,
            "name": conversion.booster.child_name(backend),
        },
        "metricEndpoint": endpoint,
    }
    if conversion.booster.is_single:
        endpoint["labelSelector"] = {"matchLabels": labels}
    else:
        target["additionalMatchLabels"] = labels
    return {
        "target": target,
        "minReplicas": backend.min_replicas,
        "maxReplicas": backend.max_replicas,
    }


def select_targets(
    children: Sequence[Json], existing: Mapping[ChildPlace, Manifest], dialect: Dialect
) -> list[Json]:
    """Return the wanted children, with a route that has only targets that can serve.

    These are the targets that are available and keep replicas, else those that are available,
    else those that get replicas. Any target with a weight of 0 is worse than all others.
    """
    asked = {(child["kind"], child["metadata"]["name"]): child for child in children}

    def rank(target: Json) -> tuple[bool, bool, bool]:
        place = dialect.serving.kind, target["modelServerName"]
        current, wanted = existing.get(place), asked.get(place)
        spec = {**(current or {}).get("spec", {}), **(wanted or {}).get("spec", {})}
        is_available = ((current or {}).get("status") or {}).get("availableReplicas", 0) > 0
        has_replicas = bool(current or wanted) and spec.get("replicas", 1) > 0
        return target.get("weight") != 0, is_available, has_replicas

    def select(rule: Json) -> Json:
        ranked = [(rank(target), target) for target in rule["targetModels"]]
        best = max((rank for rank, _ in ranked), default=None)
        return {**rule, "targetModels": [target for rank, target in ranked if rank == best]}

    return [
        {**child, "spec": {**child["spec"], "rules": list(map(select, child["spec"]["rules"]))}}
        if child["kind"] == dialect.route.kind
        else child
        for child in children
    ]
