"""What makes no sense in a booster is found without any admission, and named."""

import pytest

from inferno_operator.boosters.booster import Booster, read_booster
from inferno_operator.boosters.dialects import KTHENA, MATRIXINFER
from inferno_operator.boosters.validation import problems, seconds
from inferno_operator.resources.parsing import ManifestError
from tests.unit.operator.boosters.making import (
    METRICS,
    Manifest,
    backend,
    booster,
    disaggregated,
    manifest,
    worker,
)

SQL = {"name": "sql", "artifactURL": "hf://example/sql"}
COST: Manifest = {"scalingCost": 1}


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        (
            booster(backend(scaleToZeroGracePeriod="31m", **COST), autoscalingPolicy=METRICS),
            "spec.backends[0].scaleToZeroGracePeriod",
        ),
        (
            booster(backend(scaleToZeroGracePeriod="-1s", **COST), autoscalingPolicy=METRICS),
            "spec.backends[0].scaleToZeroGracePeriod",
        ),
        (booster(backend(minReplicas=2)), "spec.backends[0].minReplicas"),
        (
            booster(backend("a", 600000), backend("b", 600000)),
            "spec.backends",
        ),
        (booster(backend(workers=[worker(image="a b")])), "spec.backends[0].workers[0].image"),
        (booster(backend(scalingCost=1)), "spec.backends[0].scalingCost"),
        (
            booster(backend(scaleToZeroGracePeriod="1s")),
            "spec.backends[0].scaleToZeroGracePeriod",
        ),
        (booster(costExpansionRatePercent=100), "spec.costExpansionRatePercent"),
        (
            booster(backend(minReplicas=0, autoscalingPolicy=METRICS)),
            "spec.backends[0].minReplicas",
        ),
        (booster(backend(maxReplicas=2)), "spec.backends[0]"),
        (booster(autoscalingPolicy=METRICS), "spec.backends[0].scalingCost"),
        (
            booster(backend(minReplicas=0, **COST), autoscalingPolicy=METRICS),
            "spec.backends",
        ),
        (
            booster(backend(autoscalingPolicy=METRICS, **COST), autoscalingPolicy=METRICS),
            "spec.autoscalingPolicy",
        ),
        (booster(backend(workers=[worker(), worker()])), "spec.backends[0].workers"),
        (booster(backend(workers=[worker("decode")])), "spec.backends[0].workers[0].type"),
        (
            booster(disaggregated(workers=[worker("prefill"), worker()])),
            "spec.backends[0].workers[1].type",
        ),
        (
            booster(backend(type="MindIEDisaggregated")),
            "spec.backends[0].workers[0].type",
        ),
        (
            booster(backend(loraAdapters=[{**SQL, "name": "m"}])),
            "spec.backends[0].loraAdapters[0].name",
        ),
        (booster(backend(loraAdapters=[SQL, SQL])), "spec.backends[0].loraAdapters[1].name"),
        (booster(backend("a" * 60)), "spec.backends[0].name"),
    ],
)
def test_a_rule_that_is_broken_is_named(asked: Booster, path: str) -> None:
    assert [problem.path for problem in problems(asked, KTHENA)] == [path]


@pytest.mark.parametrize(
    "asked",
    [
        booster(),
        booster(backend("a"), disaggregated("b")),
        booster(backend(maxReplicas=4, autoscalingPolicy=METRICS)),
        booster(
            backend(minReplicas=0, maxReplicas=4, **COST),
            backend("b", **COST),
            autoscalingPolicy=METRICS,
        ),
        booster(backend(minReplicas=0, maxReplicas=1)),
    ],
    ids=["plain", "two", "policy", "policy of the model, defaults filled in", "no replica at all"],
)
def test_what_makes_sense_has_no_problem(asked: Booster) -> None:
    assert problems(asked, KTHENA) == ()


def test_the_limit_of_a_dialect_holds() -> None:
    spec: Manifest = {"autoscalingPolicy": METRICS, "costExpansionRatePercent": 101}

    assert problems(booster(backend(**COST), **spec), KTHENA) == ()
    found = problems(booster(backend(**COST), **spec, dialect=MATRIXINFER), MATRIXINFER)
    assert [problem.path for problem in found] == ["spec.costExpansionRatePercent"]


@pytest.mark.parametrize(
    ("text", "length"),
    [("30s", 30), ("1m30s", 90), ("-1.5h", -5400), ("0", 0), ("10ms", 0.01), ("ten", None)],
)
def test_durations_are_read_as_go_writes_them(text: str, length: float | None) -> None:
    assert seconds(text) == (None if length is None else pytest.approx(length))


def test_a_bad_field_is_named() -> None:
    with pytest.raises(ManifestError, match=r"ModelBooster ns/m: spec.backends\[0\].modelURI"):
        read_booster(manifest(backend(modelURI=None)), KTHENA)


def test_a_booster_without_a_spec_is_told_so() -> None:
    empty = {key: value for key, value in manifest().items() if key != "spec"}

    found = problems(read_booster(empty, KTHENA), KTHENA)

    assert [str(problem) for problem in found] == ["spec.backends is missing"]


def test_a_booster_of_another_dialect_is_none() -> None:
    with pytest.raises(ManifestError, match=r"apiVersion must be registry\.matrixinfer\.ai"):
        read_booster(manifest(), MATRIXINFER)
