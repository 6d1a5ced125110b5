"""Servers and routes of a booster."""

import json

import pytest

from inferno_operator.resources.dialects import KTHENA, MATRIXINFER
from tests.unit.operator.controllers.boosters.making import (
    backend,
    booster,
    child,
    disaggregated,
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
