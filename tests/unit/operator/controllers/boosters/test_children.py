"""Servers, routes, policies and bindings of a booster, as backends come and go."""

import json

import pytest

from inferno_operator.controllers.boosters.booster import Booster
from inferno_operator.controllers.boosters.changes import ChildWrites, plan_changes
from inferno_operator.resources.dialects import KTHENA, MATRIXINFER, Dialect
from tests.unit.operator.controllers.boosters.making import (
    METRICS,
    Manifest,
    backend,
    booster,
    child,
    convert,
    disaggregated,
    later,
    made,
    there,
    worker,
)

SQL = {"name": "sql", "artifactURL": "hf://example/sql"}


@pytest.mark.parametrize(
    ("connector", "type_"),
    [
        ("MooncakeConnectorV1", "mooncake"),
        ("LMCacheConnectorV1", "lmcache"),
        ("NixlConnector", "nixl"),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_the_router_is_told_how_caches_travel(connector: str, type_: str, as_text: bool) -> None:
    transfer: object = {"kv_connector": connector}
    config = {"kv-transfer-config": json.dumps(transfer) if as_text else transfer}
    workers = [worker("prefill", config=config), worker("decode")]

    server = child(booster(disaggregated(workers=workers)), KTHENA.server, "m-a")

    assert server["spec"]["kvConnector"] == {"type": type_}


@pytest.mark.parametrize("transfer", ["{", '"x"', 3, {"kv_connector": "Other"}])
def test_an_unknown_connector_is_left_out(transfer: object) -> None:
    workers = [worker("prefill", config={"kv-transfer-config": transfer}), worker("decode")]

    server = child(booster(disaggregated(workers=workers)), KTHENA.server, "m-a")

    assert "kvConnector" not in server["spec"]
    assert server["spec"]["workloadPort"] == {"port": 8000}


def test_the_served_name_is_that_of_the_engine() -> None:
    asked = backend(workers=[worker(config={"served_model_name": "other"})])

    assert child(booster(asked), KTHENA.server, "m-a")["spec"]["model"] == "other"


def test_one_backend_has_one_rule() -> None:
    route = child(booster(backend(loraAdapters=[SQL])), KTHENA.route, "m")["spec"]

    assert route["loraAdapters"] == ["sql"]
    assert route["rules"] == [{"name": "default", "targetModels": [{"modelServerName": "m-a"}]}]


def test_an_adapter_is_routed_to_the_backends_that_have_it() -> None:
    asked = booster(
        backend("a", loraAdapters=[SQL], routeWeight=20),
        backend("b", routeWeight=80),
        modelMatch={"headers": {"x": {"exact": "y"}}},
    )

    rules = child(asked, KTHENA.route, "m")["spec"]["rules"]

    assert [rule["name"] for rule in rules] == ["default", "sql"]
    assert [len(rule["targetModels"]) for rule in rules] == [2, 1]
    assert rules[1]["modelMatch"]["body"] == {"model": "sql"}
    assert rules[1]["modelMatch"]["headers"] == {"x": {"exact": "y"}}


def test_matrixinfer_has_one_rule_for_all() -> None:
    asked = booster(backend("a", loraAdapters=[SQL]), backend("b"), dialect=MATRIXINFER)

    route = child(asked, MATRIXINFER.route, "m", MATRIXINFER)["spec"]

    assert [rule["name"] for rule in route["rules"]] == ["default"]
    assert route["loraAdapters"] == ["sql"]


def decided(
    *backends: Manifest,
    available: dict[str, int],
    before: dict[str, int] | None = None,
    dialect: Dialect = KTHENA,
) -> ChildWrites:
    """What is planned with these replicas, available and asked for before, by backend."""
    asked = booster(*backends, dialect=dialect)
    children = [there(child) for child in convert(asked, dialect)]
    for each in children:
        backend_name, spec = each["metadata"]["name"].removeprefix("m-"), each["spec"]
        if each["kind"] == dialect.serving.kind:
            each["status"] = {"availableReplicas": available.get(backend_name, 0)}
            spec["replicas"] = (before or {}).get(backend_name, spec["replicas"])
        if each["kind"] == dialect.route.kind:
            each["spec"] = {}
    return plan_changes(asked, children, dialect)


def rules(decided: ChildWrites) -> dict[str, list[str]]:
    """Names of the backends that each rule of the route leads to."""
    (route,) = (a.manifest["spec"] for a in decided.applies if a.kind.kind == "ModelRoute")
    return {
        rule["name"]: [t["modelServerName"].removeprefix("m-") for t in rule["targetModels"]]
        for rule in route["rules"]
    }


@pytest.mark.parametrize("dialect", [KTHENA, MATRIXINFER], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    ("asked", "available", "led_to"),
    [
        ({"a": 2, "b": 2}, {"a": 2, "b": 1}, "ab"),
        ({"a": 2, "b": 2}, {"b": 1}, "b"),
        ({"a": 2, "b": 0}, {"a": 2, "b": 3}, "a"),
        ({"a": 0, "b": 2}, {"a": 2}, "a"),
        ({"a": 2, "b": 2}, {}, "ab"),
        ({"a": 2, "b": 0}, {}, "a"),
        ({"a": 0, "b": 0}, {"a": 1}, "a"),
        ({"a": 0, "b": 0}, {}, "ab"),
    ],
    ids=[
        "both serve",
        "one serves",
        "one serves, one goes",
        "one goes, one comes",
        "both come",
        "one comes",
        "the last one goes",
        "neither",
    ],
)
def test_requests_go_to_backends_that_can_serve(
    dialect: Dialect, asked: dict[str, int], available: dict[str, int], led_to: str
) -> None:
    backends = [backend(name, replicas) for name, replicas in asked.items()]

    assert rules(decided(*backends, available=available, dialect=dialect)) == {
        "default": list(led_to)
    }


def test_the_only_backend_keeps_its_requests() -> None:
    assert rules(decided(backend("a", 0), available={})) == {"default": ["a"]}


def test_each_rule_leads_to_those_of_its_backends_that_can_serve() -> None:
    backends = [backend("a"), backend("b", loraAdapters=[SQL]), backend("c", loraAdapters=[SQL])]

    assert rules(decided(*backends, available={"a": 1})) == {"default": ["a"], "sql": ["b", "c"]}
    assert rules(decided(*backends, available={"a": 1, "c": 1})) == {
        "default": ["a", "c"],
        "sql": ["c"],
    }


@pytest.mark.parametrize(
    ("available", "led_to"),
    [({"silent": 1}, ["a", "b"]), ({"silent": 1, "b": 1}, ["b"])],
    ids=["nobody else serves", "another serves"],
)
def test_a_backend_that_is_to_get_no_requests_gets_none_when_others_cannot_serve(
    available: dict[str, int], led_to: list[str]
) -> None:
    silent = backend("silent", routeWeight=0)

    planned = decided(silent, backend("a"), backend("b", routeWeight=7), available=available)

    assert rules(planned) == {"default": led_to}


def test_weights_stay_those_of_the_backends() -> None:
    backends = [backend("a", routeWeight=20), backend("b", routeWeight=80), backend("c")]

    (route,) = decided(*backends, available={"b": 1, "c": 1}).applies

    assert route.manifest["spec"]["rules"][0]["targetModels"] == [
        {"modelServerName": "m-b", "weight": 80},
        {"modelServerName": "m-c"},
    ]


def test_what_comes_and_goes_rolls_no_pods_and_is_written_once() -> None:
    asked = booster(backend("a"), backend("b"))
    children = [there(child) for child in convert(asked, KTHENA)]
    serving = next(child for child in children if child["kind"] == "ModelServing")
    serving["status"] = {"availableReplicas": 1}

    (route,) = plan_changes(asked, children, KTHENA).applies

    assert route.kind == KTHENA.route
    written = there(dict(route.manifest))
    current = [written if child["kind"] == "ModelRoute" else child for child in children]
    assert plan_changes(asked, current, KTHENA).applies == ()


def test_a_backend_loses_its_last_replica_after_its_requests() -> None:
    planned = decided(backend("a", 0), backend("b", 2), available={"a": 2, "b": 2}, before={"a": 2})

    assert rules(planned) == {"default": ["b"]}
    assert [idle.manifest["metadata"]["name"] for idle in planned.scale_downs] == ["m-a"]
    assert [apply.kind for apply in planned.applies] == [KTHENA.route]


def test_a_backend_that_loses_some_replicas_does_so_at_once() -> None:
    planned = decided(backend("a", 1), available={"a": 2}, before={"a": 2})

    assert [apply.kind for apply in planned.applies] == [KTHENA.serving, KTHENA.route]
    assert planned.scale_downs == ()


def test_a_backend_that_became_bad_keeps_its_requests_while_it_serves() -> None:
    before, other = backend("b"), backend("a")
    children = [there(child) for child in convert(booster(other, before), KTHENA)]
    for each in children:
        each["status"] = {"availableReplicas": 1}

    broken = booster(other, {**before, "minReplicas": 9, "maxReplicas": 4})

    assert plan_changes(broken, children, KTHENA).applies == ()


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
