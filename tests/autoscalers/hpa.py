"""What the HorizontalPodAutoscaler controller does with one external metric.

From pkg/controller/podautoscaler of Kubernetes 1.34, `horizontal.go` and `replica_calculator.go`,
and the defaults of pkg/apis/autoscaling/v2.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Manifest = Mapping[str, Any]

TOLERANCE = 0.1
"""That of the controller, --horizontal-pod-autoscaler-tolerance."""

DOWNSCALE_SECONDS = 300
"""That of the controller, --horizontal-pod-autoscaler-downscale-stabilization."""

UP: Manifest = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
DOWN: Manifest = {
    "stabilizationWindowSeconds": DOWNSCALE_SECONDS,
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


@dataclass(slots=True)
class Target:
    """The scale subresource of a workload: the replicas that it asks for, and those that exist."""

    replicas: int
    exist: int


@dataclass
class HorizontalPodAutoscaler:
    """The controller's state of one object.

    Attributes
    ----------
    manifest
        The object.
    clock
        The time [s].
    configurable
        The feature gate HPAConfigurableTolerance; without it `tolerance` has no effect.
    """

    manifest: Manifest
    clock: Callable[[], float]
    configurable: bool = True
    _recommended: list[tuple[float, int]] = field(default_factory=list)
    _changes: list[tuple[float, int]] = field(default_factory=list)

    def synchronize(self, target: Target, metric: float | None) -> None:
        """Set the replicas; a metric that is an error (None) changes nothing."""
        if not self._recommended:
            self._recommended.append((self.clock(), target.replicas))
        desired = self._desired(target, metric)
        if desired != target.replicas:
            self._changes.append((self.clock(), desired - target.replicas))
            target.replicas = desired

    @property
    def _bounds(self) -> tuple[int, int]:
        spec = self.manifest["spec"]
        return spec.get("minReplicas", 1), spec["maxReplicas"]

    def _rules(self, direction: str) -> Manifest:
        defaults = UP if direction == "scaleUp" else DOWN
        return {**defaults, **self.manifest["spec"].get("behavior", {}).get(direction, {})}

    def _tolerance(self, direction: str) -> float:
        given = self._rules(direction).get("tolerance", TOLERANCE)
        return float(given) if self.configurable else TOLERANCE

    def _desired(self, target: Target, metric: float | None) -> int:
        least, most = self._bounds
        if target.replicas == 0 and least != 0:
            return 0  # "scaling is disabled since the replica count of the target is zero"
        if target.replicas > most:
            return most
        if target.replicas < least:
            return least
        if metric is None:
            return target.replicas
        return self._limited(
            target.replicas, self._stabilized(target, self._proposed(target, metric))
        )

    def _proposed(self, target: Target, metric: float) -> int:
        """`GetExternalPerPodMetricReplicas`, or `GetExternalMetricReplicas` for a Value."""
        (item,) = self.manifest["spec"]["metrics"]
        aim = item["external"]["target"]
        is_average = aim["type"] == "AverageValue"
        usage = round(metric * 1000)
        per_pod = round(float(aim["averageValue" if is_average else "value"]) * 1000)
        if not is_average:
            ratio = usage / per_pod
            return target.exist if self._is_within(ratio) else math.ceil(ratio * target.exist)
        ratio = usage / (per_pod * target.exist) if target.exist else math.inf
        return target.exist if self._is_within(ratio) else math.ceil(usage / per_pod)

    def _is_within(self, ratio: float) -> bool:
        return 1 - self._tolerance("scaleDown") <= ratio <= 1 + self._tolerance("scaleUp")

    def _stabilized(self, target: Target, proposed: int) -> int:
        """`stabilizeRecommendationWithBehaviors`."""
        now, up, down = self.clock(), proposed, proposed
        for time, recommended in self._recommended:
            if time > now - self._rules("scaleUp")["stabilizationWindowSeconds"]:
                up = min(recommended, up)
            if time > now - self._rules("scaleDown")["stabilizationWindowSeconds"]:
                down = max(recommended, down)
        self._recommended.append((now, proposed))
        return min(max(target.replicas, up), down)

    def _limited(self, current: int, desired: int) -> int:
        """`convertDesiredReplicasWithBehaviorRate`."""
        least, most = self._bounds
        if desired > current:
            limit = self._limit("scaleUp", current)
            return min(desired, max(limit, current), most)
        if desired < current:
            limit = self._limit("scaleDown", current)
            return max(desired, min(limit, current), least)
        return desired

    def _limit(self, direction: str, current: int) -> int:
        """The replicas that the policies allow."""
        rules, is_up = self._rules(direction), direction == "scaleUp"
        if rules["selectPolicy"] == "Disabled":
            return current
        proposals = [self._allowed(policy, current, is_up=is_up) for policy in rules["policies"]]
        return max(proposals) if (rules["selectPolicy"] == "Max") == is_up else min(proposals)

    def _allowed(self, policy: Manifest, current: int, *, is_up: bool) -> int:
        since = self.clock() - policy["periodSeconds"]
        start = current - sum(change for time, change in self._changes if time > since)
        sign = 1 if is_up else -1
        if policy["type"] == "Pods":
            return int(start + sign * policy["value"])
        share = start * (1 + sign * policy["value"] / 100)
        return math.ceil(share) if is_up else int(share)
