"""Convert a booster to AutoscalingPolicies and AutoscalingPolicyBindings; pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from inferno_operator.controllers.boosters.booster import DEFAULT_COST_EXPANSION, ModelBackend
from inferno_operator.controllers.boosters.convert.context import Conversion, runtime_port

Json = dict[str, Any]


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
        "target": _target(conversion, backend),
        "minReplicas": backend.min_replicas,
        "maxReplicas": backend.max_replicas,
    }


def _target(conversion: Conversion, backend: ModelBackend) -> Json:
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
