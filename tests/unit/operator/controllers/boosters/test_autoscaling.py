"""Policies and bindings of a booster."""

import pytest

from inferno_operator.controllers.boosters.booster import Booster
from inferno_operator.resources.dialects import KTHENA
from tests.unit.operator.controllers.boosters.making import (
    METRICS,
    backend,
    booster,
    child,
    convert,
    later,
    made,
)


def test_a_policy_has_every_object_that_its_reader_expects() -> None:
    spec = child(booster(autoscalingPolicy=METRICS), KTHENA.policy, "m")["spec"]

    assert spec["behavior"] == {
        "scaleUp": {"stablePolicy": {}, "panicPolicy": {"period": "0s"}},
        "scaleDown": {},
    }


def test_what_a_policy_says_is_kept() -> None:
    behavior = {"scaleDown": {"instances": 3}, "scaleUp": {"panicPolicy": {"period": "9s"}}}
    asked = booster(autoscalingPolicy={**METRICS, "behavior": behavior})

    spec = child(asked, KTHENA.policy, "m")["spec"]

    assert spec["behavior"]["scaleDown"] == {"instances": 3}
    assert spec["behavior"]["scaleUp"]["panicPolicy"] == {"period": "9s"}


def test_a_policy_of_the_model_binds_all_backends_at_once() -> None:
    asked = booster(
        backend("a", scalingCost=1, autoscalingPolicy=METRICS),
        backend("b", scalingCost=3),
        autoscalingPolicy=METRICS,
    )

    bindings = [name for kind, name in made(asked) if kind == KTHENA.binding.kind]
    spec = child(asked, KTHENA.binding, "m")["spec"]["optimizerConfiguration"]

    assert bindings == ["m"]
    assert [param["cost"] for param in spec["params"]] == [1, 3]
    assert spec["costExpansionRatePercent"] == 200


def test_metrics_are_read_where_the_sidecar_has_them() -> None:
    env = [{"name": "RUNTIME_PORT", "value": "8900"}]
    asked = booster(backend(env=env, autoscalingPolicy=METRICS))

    configuration = child(asked, KTHENA.binding, "m-a")["spec"]["scalingConfiguration"]

    assert configuration["target"]["metricEndpoint"] == {"port": 8900}


@pytest.mark.parametrize(
    "asked", [booster(autoscalingPolicy=METRICS), booster(backend(autoscalingPolicy=METRICS))]
)
def test_a_policy_comes_before_its_binding(asked: Booster) -> None:
    kinds = [made["kind"] for made in convert(asked, KTHENA)]

    assert kinds.index("AutoscalingPolicy") < kinds.index("AutoscalingPolicyBinding")


def test_the_binding_of_one_backend_has_the_fields_of_its_release() -> None:
    asked = later(backend(replicas=3), autoscalingPolicy=METRICS)

    spec = child(asked, KTHENA.binding, "m-a")["spec"]

    assert spec == {
        "policyRef": {"name": "m-a"},
        "homogeneousTarget": {
            "minReplicas": 3,
            "maxReplicas": 3,
            "target": {
                "targetRef": {"kind": "ModelServing", "name": "m-a"},
                "metricEndpoint": {
                    "port": 8100,
                    "labelSelector": {"matchLabels": {"modelserving.volcano.sh/role": "leader"}},
                },
            },
        },
    }
