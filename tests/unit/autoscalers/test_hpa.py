"""The stand-in for the HPA controller, on cases from its source and its issues."""

from typing import Any

import pytest

from tests.autoscalers.hpa import HorizontalPodAutoscaler, Target

Manifest = dict[str, Any]


class Clock:
    """A time [s] that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def autoscaler(
    clock: Clock, behavior: Manifest | None = None, *, value: bool = False
) -> HorizontalPodAutoscaler:
    aim = {"type": "Value", "value": "1"} if value else {"type": "AverageValue", "averageValue": 1}
    metric = {"type": "External", "external": {"metric": {"name": "m"}, "target": aim}}
    spec = {"minReplicas": 1, "maxReplicas": 100, "metrics": [metric]}
    return HorizontalPodAutoscaler({"spec": spec | {"behavior": behavior or {}}}, clock)


def after(target: Target, metric: float | None, **behavior: Manifest) -> int:
    autoscaler(Clock(), behavior).synchronize(target, metric)
    return target.replicas


AT_ONCE: Manifest = {"stabilizationWindowSeconds": 0}


@pytest.mark.parametrize(
    ("replicas", "metric", "expected"),
    [(10, 11, 10), (20, 22, 20), (30, 27, 30), (10, 12, 12), (30, 26, 26), (3, 2.2, 3)],
)
def test_a_change_within_a_tenth_is_not_carried_out(
    replicas: int, metric: float, expected: int
) -> None:
    assert after(Target(replicas, replicas), metric, scaleDown=AT_ONCE) == expected


def test_a_surge_pod_becomes_permanent_within_the_tolerance() -> None:
    assert after(Target(20, 21), 20) == 21  # kubernetes#138505
    assert after(Target(20, 21), 20, scaleUp={"tolerance": 0}, scaleDown={"tolerance": 0}) == 20


def test_a_metric_of_type_value_is_multiplied_by_the_replicas() -> None:
    clock, target = Clock(), Target(3, 3)
    controller = autoscaler(clock, value=True)
    seen = []
    for _ in range(3):
        controller.synchronize(target, 3)
        target.exist = target.replicas
        seen.append(target.replicas)
        clock.now += 60

    assert seen == [7, 14, 28]  # 9, 27 and 81, but for the default rate


def test_by_default_replicas_double_in_15_seconds_or_grow_by_4() -> None:
    assert after(Target(10, 10), 90) == 20
    assert after(Target(1, 1), 90) == 5


def test_by_default_replicas_go_after_five_minutes() -> None:
    clock, target = Clock(), Target(10, 10)
    controller = autoscaler(clock)
    seen = {}
    for clock.now in range(0, 400, 15):
        controller.synchronize(target, 2)
        target.exist = target.replicas
        seen[clock.now] = target.replicas

    assert (seen[285], seen[315]) == (10, 2)


def test_an_error_and_a_target_without_replicas_change_nothing() -> None:
    assert after(Target(7, 7), None) == 7
    assert after(Target(0, 0), 5) == 0
