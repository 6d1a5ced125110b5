"""What is said of numbers that are valid and hardly meant."""

import pytest

from inferno_operator.resources import parse
from inferno_operator.resources.caveats import caveats
from tests.controlplane.api import Manifest

FREE = "cost: 0 counts as free of charge; give the price [cents/hour]"
ALONE = "0 counts as a largest batch of 1; give maxBatchSize and its atTokens"
TOKENS = "currentAlloc.load.arrivalRate: 60 without tokens counts as no load; give avgOutTokens"


def said(kind: str, spec: Manifest) -> list[str]:
    manifest = {
        "apiVersion": "inferno.platform.ai/v1alpha1",
        "kind": kind,
        "metadata": {"name": "o"},
        "spec": spec if kind == "Capacity" else {"name": "o", **spec},
    }
    return [str(found).partition(": ")[2] for found in caveats(parse(manifest))]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, []),
        ({"cost": 0}, [FREE]),
        ({"memSize": 0, "memBW": 0}, []),
        ({"memSize": -1}, ["memSize: -1 is negative"]),
        ({"memBW": -2}, ["memBW: -2 is negative"]),
    ],
)
def test_an_accelerator(change: Manifest, told: list[str]) -> None:
    assert said("Accelerator", {"type": "A100", "cost": 40, **change}) == told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, []),
        ({"accCount": 0}, ["accCount: 0 counts as 1"]),
        ({"accCount": -1}, ["accCount: -1 counts as 1"]),
        ({"maxBatchSize": 0}, [f"maxBatchSize: {ALONE}"]),
        ({"atTokens": 0}, [f"atTokens: {ALONE}"]),
    ],
)
def test_the_performance_data_of_a_model(change: Manifest, told: list[str]) -> None:
    data = {"acc": "A", "accCount": 1, "alpha": 20, "beta": 1, "maxBatchSize": 8, "atTokens": 64}

    assert said("Model", {"data": [{**data, **change}]}) == told


def test_figures_and_targets_that_are_given_twice() -> None:
    data = {"acc": "A", "accCount": 1, "alpha": 20, "beta": 1, "maxBatchSize": 8, "atTokens": 64}
    targets = [{"model": "m", "slo-itl": 20}, {"model": "n"}, {"model": "m", "slo-itl": 40}]

    assert said("Model", {"data": [data, {**data, "acc": "B"}]}) == []
    assert said("Model", {"data": [data, {**data, "alpha": 4}]}) == [
        "acc: 'A' is named 2 times, and the last one counts"
    ]
    assert said("ServiceClass", {"priority": 1, "data": targets}) == [
        "model: 'm' is named 2 times, and the last one counts"
    ]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("Deployment", []),
        ("deployment", ["workloads: no kind is named 'deployment'; did you mean Deployment?"]),
        ("xyz", ["workloads: no kind is named 'xyz'; kinds begin with a capital letter"]),
    ],
)
def test_a_kind_of_workloads_in_lower_case(kind: str, told: list[str]) -> None:
    workloads = [{"accelerator": n, "name": n, "kind": kind} for n in ("a", "b")]

    assert said("Server", {"class": "c", "model": "m", "workloads": workloads}) == told


def test_a_priority_of_0_counts_as_the_least_important() -> None:
    assert said("ServiceClass", {"priority": 1, "data": []}) == []
    (line,) = said("ServiceClass", {"priority": 0, "data": []})
    assert line.startswith("priority: 0 counts as 100")


@pytest.mark.parametrize(
    ("load", "told"),
    [
        ({"arrivalRate": 60, "avgLength": 200}, []),
        ({"arrivalRate": 60, "avgInTokens": 200, "avgOutTokens": 10}, []),
        ({"arrivalRate": 0, "avgLength": 0}, []),
        ({"arrivalRate": 60, "avgLength": 0}, [TOKENS]),
        ({"arrivalRate": 60, "avgInTokens": 200, "avgOutTokens": 0}, [TOKENS]),
    ],
)
def test_requests_without_tokens_count_as_no_load(load: Manifest, told: list[str]) -> None:
    current = {"accelerator": "A", "numReplicas": 1, "load": load}

    assert said("Server", {"class": "C", "model": "m", "currentAlloc": current}) == told


@pytest.mark.parametrize("field", ["itlAverage", "waitAverage", "ttftAverage"])
def test_a_latency_is_not_negative(field: str) -> None:
    spec = {"class": "C", "model": "m"}
    current = {"accelerator": "A", "numReplicas": 1}

    assert said("Server", {**spec, "currentAlloc": {**current, field: 0}}) == []
    assert said("Server", {**spec, "currentAlloc": {**current, field: -5}}) == [
        f"currentAlloc.{field}: -5 is negative"
    ]


def test_a_type_of_cards_that_a_capacity_names_twice() -> None:
    h100, h200 = {"type": "H100", "count": 8}, {"type": "H200", "count": 4}

    told = said("Capacity", {"count": [h100, h200, h100]})

    assert told == ["type: 'H100' is named 2 times, and its counts are added"]


def test_a_percentile_without_a_limit_has_no_effect() -> None:
    target = {"model": "m", "slo-itl": 30, "slo-ttft-percentile": 95}

    assert said("ServiceClass", {"name": "C", "priority": 1, "data": [target]}) == [
        "slo-ttft-percentile: has no effect without slo-ttft"
    ]
