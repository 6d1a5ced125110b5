"""What makes no sense in a booster is found without any admission, and named."""

import pytest

from inferno_operator.controllers.boosters.booster import Booster, read_booster
from inferno_operator.controllers.boosters.changes import plan_changes
from inferno_operator.controllers.boosters.validation import (
    list_advice,
    list_problems,
    parse_duration,
)
from inferno_operator.resources.dialects import KTHENA, MATRIXINFER
from inferno_operator.resources.parsing import ManifestError
from tests.unit.operator.controllers.boosters.making import (
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
        (booster(backend(minReplicas=2)), "spec.backends[0].minReplicas"),
        (booster(backend(workers=[worker(image="a b")])), "spec.backends[0].workers[0].image"),
        (booster(backend(workers=[worker(image="\t")])), "spec.backends[0].workers[0].image"),
        (booster(backend(loraAdapters=[SQL, SQL])), "spec.backends[0].loraAdapters[1].name"),
        (booster(backend(cacheURI="pvc://")), "spec.backends[0].cacheURI"),
        (booster(backend(cacheURI="pvc:///")), "spec.backends[0].cacheURI"),
        (booster(backend(type="MindIE")), "spec.backends[0].type"),
        (booster(backend(type="MindIEDisaggregated")), "spec.backends[0].type"),
        (booster(backend(workers=[worker("decode")])), "spec.backends[0].workers"),
        (booster(disaggregated(workers=[worker("decode")])), "spec.backends[0].workers"),
        (booster(backend(workers=[worker(config=["a"])])), "spec.backends[0].workers[0].config"),
    ],
)
def test_what_nothing_right_can_be_made_of_is_left_out_and_named(asked: Booster, path: str) -> None:
    decided = plan_changes(asked, [], KTHENA)

    assert decided.applies == ()
    assert [problem.path for problem in decided.problems] == [path]
    assert path in [problem.path for problem in decided.invalid]


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
        (booster(backend("a", 600000), backend("b", 600000)), "spec.backends"),
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
        (booster(backend(maxReplicas=2)), "spec.backends[0].maxReplicas"),
        (booster(autoscalingPolicy=METRICS), "spec.backends[0].scalingCost"),
        (
            booster(backend(minReplicas=0, **COST), autoscalingPolicy=METRICS),
            "spec.backends",
        ),
        (
            booster(backend(autoscalingPolicy=METRICS, **COST), autoscalingPolicy=METRICS),
            "spec.autoscalingPolicy",
        ),
        (booster(backend(workers=[worker(), worker()])), "spec.backends[0].workers[0].type"),
        (
            booster(disaggregated(workers=[worker("prefill"), worker("decode"), worker("decode")])),
            "spec.backends[0].workers[1].type",
        ),
        (
            booster(backend(workers=[worker(), worker("decode")])),
            "spec.backends[0].workers[1].type",
        ),
        (
            booster(disaggregated(workers=[worker("prefill"), worker("decode"), worker()])),
            "spec.backends[0].workers[2].type",
        ),
        (
            booster(backend(loraAdapters=[{**SQL, "name": "m"}])),
            "spec.backends[0].loraAdapters[0].name",
        ),
        (booster(backend("a" * 60)), "spec.backends[0].name"),
    ],
)
def test_a_rule_that_is_broken_without_harm_is_named_and_everything_is_made(
    asked: Booster, path: str
) -> None:
    decided = plan_changes(asked, [], KTHENA)

    assert [problem.path for problem in decided.invalid] == [path]
    assert decided.problems == ()
    servings = [apply for apply in decided.applies if apply.kind == KTHENA.serving]
    assert len(servings) == len(asked.spec.backends)


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
    assert (*list_problems(asked), *list_advice(asked, KTHENA)) == ()


def test_the_limit_of_a_dialect_holds() -> None:
    spec: Manifest = {"autoscalingPolicy": METRICS, "costExpansionRatePercent": 101}

    found = list_advice(booster(backend(**COST), **spec, dialect=MATRIXINFER), MATRIXINFER)

    assert list_advice(booster(backend(**COST), **spec), KTHENA) == ()
    assert [problem.path for problem in found] == ["spec.costExpansionRatePercent"]


@pytest.mark.parametrize(
    ("text", "length"),
    [("30s", 30), ("1m30s", 90), ("-1.5h", -5400), ("0", 0), ("10ms", 0.01), ("ten", None)],
)
def test_durations_are_read_as_go_writes_them(text: str, length: float | None) -> None:
    assert parse_duration(text) == (None if length is None else pytest.approx(length))


@pytest.mark.parametrize(
    ("numbers", "bounds"),
    [
        ({"replicas": 2}, (2, 2)),
        ({"minReplicas": 1, "maxReplicas": 4}, (1, 4)),
        ({"replicas": 2, "minReplicas": 1, "maxReplicas": 4}, (2, 2)),
    ],
    ids=["v1.0", "v0.2 to v0.4", "both"],
)
def test_the_one_backend_of_later_releases_is_read(
    numbers: Manifest, bounds: tuple[int, int]
) -> None:
    one = {key: value for key, value in backend().items() if "Replicas" not in key} | numbers
    spec = {"backend": one, "autoscalingPolicy": METRICS}

    asked = read_booster({**manifest(), "spec": spec}, KTHENA)

    (read,) = asked.spec.backends
    assert (read.min_replicas, read.max_replicas) == bounds
    names = [
        apply.manifest["metadata"]["name"] for apply in plan_changes(asked, [], KTHENA).applies
    ]
    assert names == ["m-a", "m-a", "m", "m-a", "m-a"]  # the policy is the backend's
    assert list_advice(asked, KTHENA) == ()


def test_a_bad_field_is_named() -> None:
    with pytest.raises(ManifestError, match=r"ModelBooster ns/m: spec.backends\[0\].modelURI"):
        read_booster(manifest(backend(modelURI=None)), KTHENA)


def test_a_booster_without_a_spec_is_told_so() -> None:
    empty = {key: value for key, value in manifest().items() if key != "spec"}

    decided = plan_changes(read_booster(empty, KTHENA), [], KTHENA)

    assert [str(problem) for problem in decided.problems] == ["spec.backends is missing"]


def test_a_booster_of_another_dialect_is_none() -> None:
    with pytest.raises(ManifestError, match=r"apiVersion must be registry\.matrixinfer\.ai"):
        read_booster(manifest(), MATRIXINFER)
