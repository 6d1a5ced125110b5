"""Convert a booster to the manifests of its children; pure and deterministic.

The router picks a target by its weight before it looks for pods, so requests to a target without
pods would fail. Such a target is left out instead of getting the weight 0, because routers of
the original crash if all weights of a rule are 0.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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
from inferno_operator.controllers.boosters.engines import TRANSFER, connector_name
from inferno_operator.controllers.boosters.serving import ROLES, serving
from inferno_operator.resources.dialects import DISAGGREGATED, Dialect
from inferno_operator.resources.objects import Kind, Manifest

Json = dict[str, Any]

SERVED_NAMES = ("served-model-name", "served_model_name")


@dataclass(frozen=True, slots=True)
class Converted:
    """The children of a booster, and the problems of backends that have none."""

    children: tuple[Json, ...]
    problems: tuple[BoosterProblem, ...] = ()


def convert(booster: Booster, dialect: Dialect) -> tuple[Json, ...]:
    """Return the children of a booster: servings, servers, route, policies and bindings.

    Parameters
    ----------
    booster
        The booster.
    dialect
        The dialect of the booster.

    Raises
    ------
    ConversionError
        A backend cannot be converted.
    """
    converted = convert_backends(booster, booster.spec.backends, dialect)
    if converted.problems:
        raise ConversionError(converted.problems[0].path, converted.problems[0].text)
    return converted.children


def convert_backends(
    booster: Booster,
    backends: Iterable[ModelBackend],
    dialect: Dialect,
    *,
    standing: Container[str] = (),
    taken: Container[ChildPlace] = (),
) -> Converted:
    """Return the children for some backends of a booster.

    Backends that cannot be converted are left out. They, and backends of the booster that are
    not in `backends`, stay in the route and in the binding if their name is in `standing`: their
    children exist. Backends with a child name in `taken`, which is that of an object of another
    owner, are left out of the route and the bindings.
    """
    conversion = Conversion(booster, dialect)
    servings, problems = _servings(conversion, backends)
    free = partial(_free, booster, taken)
    good = [backend for backend in booster.spec.backends if backend.name in servings]
    kept = [b for b in booster.spec.backends if b.name in servings or b.name in standing]
    servers = [server(conversion, backend) for backend in good]
    routed = free(kept, dialect.serving, dialect.server)
    routes = [route(conversion, routed)] if routed else []
    scalers = scaling(conversion, free(good, dialect.serving), free(kept, dialect.serving))
    return Converted((*servings.values(), *servers, *routes, *scalers), problems)


def _free(
    booster: Booster, taken: Container[ChildPlace], among: Iterable[ModelBackend], *kinds: Kind
) -> list[ModelBackend]:
    """Return the backends without an object of another owner among their children's names."""
    names = ((backend, booster.child_name(backend)) for backend in among)
    return [b for b, name in names if not any((kind.kind, name) in taken for kind in kinds)]


def _servings(
    conversion: Conversion, backends: Iterable[ModelBackend]
) -> tuple[dict[str, Json], tuple[BoosterProblem, ...]]:
    """Return the servings by name of backend, and the problems of backends without one."""
    made: dict[str, Json] = {}
    problems: list[BoosterProblem] = []
    for backend in backends:
        try:
            made[backend.name] = serving(conversion, backend)
        except ConversionError as error:
            problems.append(BoosterProblem(error.path, error.text, backend.name))
    return made, tuple(problems)


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
    targets = [_routed(conversion, backend) for backend in backends]
    return {"name": name, **({"modelMatch": match} if match else {}), "targetModels": targets}


def _routed(conversion: Conversion, backend: ModelBackend) -> Json:
    target: Json = {"modelServerName": conversion.booster.child_name(backend)}
    return target if backend.route_weight is None else {**target, "weight": backend.route_weight}


def scaling(
    conversion: Conversion, backends: Iterable[ModelBackend], optimized: Sequence[ModelBackend]
) -> Iterator[Json]:
    """Yield the policy and binding of the whole model, or those of each backend."""
    spec = conversion.booster.spec
    if spec.autoscaling_policy is not None:
        if optimized:
            yield policy(conversion, spec.autoscaling_policy)
            yield _optimizing(conversion, optimized)
        return
    for backend in backends:
        if backend.autoscaling_policy is not None:
            yield policy(conversion, backend.autoscaling_policy, backend)
            yield _scaling(conversion, backend)


def policy(conversion: Conversion, spec: Json, backend: ModelBackend | None = None) -> Json:
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


def _scaling(conversion: Conversion, backend: ModelBackend) -> Json:
    part = "homogeneousTarget" if conversion.booster.is_single else "scalingConfiguration"
    name = conversion.booster.child_name(backend)
    spec = {"policyRef": {"name": name}, part: _bounds(conversion, backend)}
    return conversion.child(conversion.dialect.binding, spec, backend)


def _optimizing(conversion: Conversion, backends: Iterable[ModelBackend]) -> Json:
    expansion = conversion.booster.spec.cost_expansion_rate_percent
    params = [
        {**_bounds(conversion, backend), "cost": backend.scaling_cost} for backend in backends
    ]
    spec = {
        "policyRef": {"name": conversion.model},
        "optimizerConfiguration": {
            "costExpansionRatePercent": DEFAULT_COST_EXPANSION if expansion is None else expansion,
            "params": params,
        },
    }
    return conversion.child(conversion.dialect.binding, spec)


def _bounds(conversion: Conversion, backend: ModelBackend) -> Json:
    return {
        "target": _scaled(conversion, backend),
        "minReplicas": backend.min_replicas,
        "maxReplicas": backend.max_replicas,
    }


def _scaled(conversion: Conversion, backend: ModelBackend) -> Json:
    """Return the target of a binding; the API fills the endpoint with defaults."""
    dialect = conversion.dialect
    name = conversion.booster.child_name(backend)
    reference = {"kind": dialect.serving.kind, "name": name}
    labels = {dialect.pod_label("role"): "leader"}
    endpoint: Json = {"port": runtime_port(backend)}
    if conversion.booster.is_single:
        endpoint["labelSelector"] = {"matchLabels": labels}
        return {"targetRef": reference, "metricEndpoint": endpoint}
    return {
        "targetRef": reference,
        "additionalMatchLabels": labels,
        "metricEndpoint": endpoint,
    }


class Prospect(NamedTuple):
    """How well a backend can serve; greater is better."""

    available: bool
    """A replica is available."""
    staying: bool
    """It keeps or gets replicas."""


NONE = Prospect(available=False, staying=False)


def with_best_targets(
    children: Sequence[Json], existing: Mapping[ChildPlace, Manifest], dialect: Dialect
) -> list[Json]:
    """Return the children, with a route that has only targets that can serve.

    Parameters
    ----------
    children
        The wanted children, with a route to all backends.
    existing
        The existing children.
    dialect
        The dialect, which has the kinds of servings and routes.
    """
    asked = {(child["kind"], child["metadata"]["name"]): child for child in children}
    prospects = {
        name: _prospect(existing.get((kind, name), {}), asked.get((kind, name), {}))
        for kind, name in existing.keys() | asked.keys()
        if kind == dialect.serving.kind
    }
    return [
        _narrowed(child, prospects) if child["kind"] == dialect.route.kind else child
        for child in children
    ]


def _prospect(current: Manifest, wanted: Manifest) -> Prospect:
    """Return the prospect of a serving, from its current and its wanted state."""
    status = current.get("status") or {}
    spec = {**current.get("spec", {}), **wanted.get("spec", {})}
    return Prospect(status.get("availableReplicas", 0) > 0, spec.get("replicas", 1) > 0)


def _narrowed(route: Json, prospects: Mapping[str, Prospect]) -> Json:
    rules = [
        {**rule, "targetModels": _best(rule["targetModels"], prospects)}
        for rule in route["spec"]["rules"]
    ]
    return {**route, "spec": {**route["spec"], "rules": rules}}


def _best(targets: Iterable[Json], prospects: Mapping[str, Prospect]) -> list[Json]:
    """Return the targets with the best prospect.

    These are the targets that are available and keep replicas, else those that are available,
    else those that get replicas. Any target with a weight of 0 is worse than all others.
    """
    ranked = [
        ((target.get("weight") != 0, *prospects.get(target["modelServerName"], NONE)), target)
        for target in targets
    ]
    best = max((rank for rank, _ in ranked), default=None)
    return [target for rank, target in ranked if rank == best]
