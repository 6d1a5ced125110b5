"""What KEDA does with a ScaledObject that has one trigger of type metrics-api.

From KEDA 2.19 and 2.20: pkg/scalers/metrics_api_scaler.go, pkg/fallback/fallback.go,
pkg/scaling/scale_handler.go, pkg/scaling/executor/scale_scaledobjects.go, controllers/keda/hpa.go.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import httpx

Manifest = Mapping[str, Any]
Secrets = Mapping[str, Mapping[str, str]]

COOLDOWN_SECONDS = 300


class Scalable(Protocol):
    """The scale subresource of a workload."""

    @property
    def replicas(self) -> int:
        """The replicas that it asks for."""

    @replicas.setter
    def replicas(self, count: int) -> None: ...


class ScalerError(Exception):
    """The endpoint gave no number."""


@dataclass
class Keda:
    """KEDA's state of one ScaledObject.

    Attributes
    ----------
    scaled_object, authentication, secrets
        The object, the TriggerAuthentication that its trigger names, and Secrets by name.
    target
        The workload.
    clock
        The time [s].
    client
        Connections to the endpoint.
    errors
        How often the endpoint gave no number.
    failures
        The same, since the last number, for the fallback.
    last_active
        When the endpoint last gave a number above 0 [s].
    """

    scaled_object: Manifest
    authentication: Manifest
    secrets: Secrets
    target: Scalable
    clock: Callable[[], float]
    client: httpx.AsyncClient
    errors: int = 0
    failures: int = 0
    last_active: float | None = None

    def hpa(self) -> Manifest:
        """The HorizontalPodAutoscaler that KEDA makes: `newHPAForScaledObject`."""
        spec, trigger = self.scaled_object["spec"], self._trigger
        kind = trigger.get("metricType", "AverageValue")
        aim = {"type": kind, kind[0].lower() + kind[1:]: trigger["metadata"]["targetValue"]}
        name = self.scaled_object["metadata"]["name"]
        metric = {
            "name": f"s0-metric-api-{trigger['metadata']['valueLocation']}",
            "selector": {"matchLabels": {"scaledobject.keda.sh/name": name}},
        }
        advanced = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {})
        return {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": f"keda-hpa-{name}"},
            "spec": {
                "scaleTargetRef": spec["scaleTargetRef"],
                "minReplicas": spec.get("minReplicaCount", 0) or 1,
                "maxReplicas": spec.get("maxReplicaCount", 100),
                "metrics": [{"type": "External", "external": {"metric": metric, "target": aim}}],
                "behavior": advanced.get("behavior", {}),
            },
        }

    async def metric(self) -> float | None:
        """What the HPA gets; None for an error: `GetScaledObjectMetrics`."""
        value, _ = await self._with_fallback()
        return value

    async def poll(self) -> None:
        """One turn of the polling loop: `getScaledObjectState` and `RequestScale`."""
        value, is_fallback = await self._with_fallback()
        activation = float(self._trigger["metadata"].get("activationTargetValue", 0))
        if is_fallback or (value is not None and value > activation):
            self.target.replicas = self.target.replicas or self._least or 1
            self.last_active = self.clock()
        else:
            self._deactivate(is_error=value is None)

    @property
    def _trigger(self) -> Manifest:
        (trigger,) = self.scaled_object["spec"]["triggers"]
        assert trigger["type"] == "metrics-api"
        found: Manifest = trigger
        return found

    @property
    def _least(self) -> int:
        least: int = self.scaled_object["spec"].get("minReplicaCount", 0)
        return least

    def _deactivate(self, *, is_error: bool) -> None:
        fallback = self.scaled_object["spec"].get("fallback")
        if is_error and (fallback is None or fallback["replicas"] != 0):
            return
        cooldown = self.scaled_object["spec"].get("cooldownPeriod", COOLDOWN_SECONDS)
        if self.target.replicas > 0 and self._least == 0:
            if self.last_active is None or self.last_active + cooldown < self.clock():
                self.target.replicas = 0
        elif self.target.replicas < self._least:
            self.target.replicas = self._least

    async def _with_fallback(self) -> tuple[float | None, bool]:
        """The value, and whether it is that of the fallback: `GetMetricsWithFallback`."""
        try:
            value = await self._value()
        except (ScalerError, httpx.HTTPError):
            self.errors += 1
            return self._fallback()
        self.failures = 0
        return value, False

    def _fallback(self) -> tuple[float | None, bool]:
        fallback = self.scaled_object["spec"].get("fallback")
        if fallback is None:
            return None, False
        self.failures += 1
        if self.failures <= fallback["failureThreshold"]:
            return None, False
        is_current = fallback.get("behavior", "static") == "currentReplicas"
        replicas = self.target.replicas if is_current else fallback["replicas"]
        return replicas * float(self._trigger["metadata"]["targetValue"]), True

    async def _value(self) -> float:
        """The number at `valueLocation` of the answer: `getMetricValueFromURL`."""
        metadata = self._trigger["metadata"]
        answer = await self.client.get(metadata["url"], headers=self._headers())
        if answer.status_code != HTTPStatus.OK:
            raise ScalerError(f"api returned {answer.status_code}")
        found = json.loads(answer.text)
        for name in metadata["valueLocation"].split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if not isinstance(found, int | float):
            raise ScalerError("valueLocation must point to a numeric value")
        return float(found)

    def _headers(self) -> Mapping[str, str]:
        if self._trigger["metadata"].get("authMode") != "bearer":
            return {}
        name = self._trigger["authenticationRef"]["name"]
        assert name == self.authentication["metadata"]["name"]
        (reference,) = self.authentication["spec"]["secretTargetRef"]
        assert reference["parameter"] == "token"
        return {"Authorization": f"Bearer {self.secrets[reference['name']][reference['key']]}"}
