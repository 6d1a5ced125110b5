"""What is written and deleted for a booster, and what stays."""

from typing import Any

import pytest

from inferno_operator.boosters.booster import Booster
from inferno_operator.boosters.convert import convert
from inferno_operator.boosters.dialects import KTHENA
from inferno_operator.boosters.plan import Apply, plan
from tests.unit.operator.boosters.making import (
    METRICS,
    Manifest,
    asking,
    backend,
    booster,
    disaggregated,
    there,
    worker,
)

OURS = "inferno-model-booster"
AUTOSCALER = "autoscaler"


def present(asked: Booster, manager: str = OURS) -> list[Manifest]:
    return [there(child, manager=manager) for child in convert(asked, KTHENA)]


def serving_of(applies: tuple[Apply, ...]) -> Manifest:
    found = [apply.manifest for apply in applies if apply.kind == KTHENA.serving]
    assert len(found) == 1
    return dict(found[0])


def test_what_is_as_it_should_be_is_not_written() -> None:
    asked = booster(backend(maxReplicas=3, autoscalingPolicy=METRICS))

    decided = plan(asked, present(asked), KTHENA)

    assert (decided.applies, decided.deletes, decided.problems) == ((), (), ())


def test_fields_that_the_api_or_others_added_are_no_drift() -> None:
    asked = booster()
    children = present(asked)
    for child in children:
        child["spec"] = {**child["spec"], "added": 1}

    assert plan(asked, children, KTHENA).applies == ()


@pytest.mark.parametrize("field", ["labels", "ownerReferences"])
def test_metadata_that_was_edited_is_mended(field: str) -> None:
    asked = booster()
    children = present(asked)
    server = next(child for child in children if child["kind"] == "ModelServer")
    owners = [{"uid": asked.metadata.uid, "name": "other"}]
    server["metadata"] |= {field: owners if field == "ownerReferences" else {}}

    assert [a.manifest["kind"] for a in plan(asked, children, KTHENA).applies] == ["ModelServer"]


def test_a_spec_that_was_edited_is_mended() -> None:
    asked = booster()
    children = present(asked)
    route = next(child for child in children if child["kind"] == "ModelRoute")
    route["spec"] = {**route["spec"], "rules": []}

    assert [a.manifest["kind"] for a in plan(asked, children, KTHENA).applies] == ["ModelRoute"]


def test_what_is_not_wanted_any_more_is_deleted_bindings_first() -> None:
    scaled = backend("b", maxReplicas=2, autoscalingPolicy=METRICS)
    children = present(booster(backend("a"), scaled))

    deletes = plan(booster(backend("a")), children, KTHENA).deletes

    assert [f"{delete.kind.kind} {delete.key.name}" for delete in deletes] == [
        "AutoscalingPolicyBinding m-b",
        "AutoscalingPolicy m-b",
        "ModelServer m-b",
        "ModelServing m-b",
    ]


def test_a_policy_that_moves_to_the_model_leaves_nothing_behind() -> None:
    children = present(booster(backend(maxReplicas=2, autoscalingPolicy=METRICS)))
    asked = booster(backend(maxReplicas=2, scalingCost=1), autoscalingPolicy=METRICS)

    decided = plan(asked, children, KTHENA)

    assert [apply.manifest["metadata"]["name"] for apply in decided.applies] == ["m", "m"]
    assert [delete.key.name for delete in decided.deletes] == ["m-a", "m-a"]


@pytest.mark.parametrize(
    ("low", "high", "now", "then"), [(1, 5, 3, 3), (1, 5, 9, 5), (4, 5, 3, 4), (2, 2, 3, 2)]
)
def test_replicas_of_an_autoscaler_stay_within_the_bounds(
    low: int, high: int, now: int, then: int
) -> None:
    policy: Manifest = {"autoscalingPolicy": METRICS} if low < high else {}
    asked = booster(backend(minReplicas=low, maxReplicas=high, **policy))
    children = [
        there(
            child, manager=AUTOSCALER, **({"replicas": now} if "template" in child["spec"] else {})
        )
        for child in convert(asked, KTHENA)
    ]

    applies = plan(asked, children, KTHENA).applies

    if now == then:
        assert applies == ()
    else:
        assert serving_of(applies)["spec"]["replicas"] == then


@pytest.mark.parametrize("manager", ["inferno-actuation", "inferno-operator"])
def test_replicas_of_the_plan_are_left_out_of_what_is_written(manager: str) -> None:
    children = present(booster(), manager)
    for child in children:
        if child["kind"] == "ModelServing":
            child["spec"]["replicas"] = 7
    asked = booster(backend(workers=[worker(image="engine:2")]))

    assert "replicas" not in serving_of(plan(asked, children, KTHENA).applies)["spec"]


def test_replicas_that_are_ours_are_sent_with_the_version_that_they_are_of() -> None:
    children = present(booster(backend(maxReplicas=5, autoscalingPolicy=METRICS)))
    changed = backend(maxReplicas=5, autoscalingPolicy=METRICS, workers=[worker(image="engine:2")])

    serving = serving_of(plan(booster(changed), children, KTHENA).applies)

    assert serving["spec"]["replicas"] == 1
    assert serving["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize("of_model", [False, True])
def test_bounds_of_the_plan_in_a_binding_stay(of_model: bool) -> None:
    def asked(costs: Any, tolerance: int) -> Booster:  # noqa: ANN401 - a field
        policy = {**METRICS, "tolerancePercent": tolerance}
        if of_model:
            return booster(backend(maxReplicas=5, scalingCost=costs), autoscalingPolicy=policy)
        port = [{"name": "RUNTIME_PORT", "value": f"810{costs}"}]
        return booster(backend(maxReplicas=5, autoscalingPolicy=policy, env=port))

    children = present(asked(1, 10), "inferno-actuation")
    binding = next(c for c in children if c["kind"] == KTHENA.binding.kind)
    part = "optimizerConfiguration" if of_model else "scalingConfiguration"
    holder = binding["spec"][part]["params"][0] if of_model else binding["spec"][part]
    holder |= {"minReplicas": 4, "maxReplicas": 4}

    same = plan(asked(1, 10), children, KTHENA)
    changed = plan(asked(2, 10), children, KTHENA)

    assert same.applies == ()
    written = [a.manifest for a in changed.applies if a.kind == KTHENA.binding]
    assert len(written) == 1
    configuration = written[0]["spec"][part]
    if of_model:
        assert configuration["params"][0]["maxReplicas"] == 4
    else:
        assert "maxReplicas" not in configuration


def test_a_gang_policy_stays_and_that_is_told() -> None:
    children = present(asking("gang-scheduling", disaggregated()))
    workers = [worker("prefill", replicas=2), worker("decode")]
    old = {"minRoleReplicas": {"prefill": 1, "decode": 1}}

    for changed in (
        booster(disaggregated(workers=workers)),
        asking("gang-scheduling", disaggregated(workers=workers)),
    ):
        decided = plan(changed, children, KTHENA)
        assert serving_of(decided.applies)["spec"]["template"]["gangPolicy"] == old
        assert "m-a keeps its gang policy" in decided.remarks[0]


def test_a_child_of_somebody_else_is_told_and_left_alone() -> None:
    asked = booster()
    children = present(asked)
    route = next(child for child in children if child["kind"] == "ModelRoute")
    route["metadata"] |= {"ownerReferences": []}
    route["spec"] = {}

    decided = plan(asked, children, KTHENA)

    assert decided.applies == ()
    assert [str(problem).split(" is ")[0] for problem in decided.problems] == ["ModelRoute m"]


def test_a_bad_backend_does_not_hinder_the_others() -> None:
    decided = plan(booster(backend("a"), backend("b", type="MindIE")), [], KTHENA)

    assert [a.manifest["metadata"]["name"] for a in decided.applies] == ["m-a", "m-a", "m"]
    assert [problem.backend for problem in decided.problems] == ["b"]


def test_a_backend_that_became_bad_goes_on_as_it_was() -> None:
    children = present(booster(backend("a"), backend("b")))
    broken = booster(backend("a"), backend("b", workers=[worker(image="a b")]))

    decided = plan(broken, children, KTHENA)

    assert (decided.applies, decided.deletes) == ((), ())
    assert len(decided.problems) == 1


def test_a_booster_that_makes_no_sense_as_a_whole_changes_nothing() -> None:
    children = present(booster(backend("a"), backend("b")))

    decided = plan(booster(backend("a"), costExpansionRatePercent=1), children, KTHENA)

    assert (decided.applies, decided.deletes) == ((), ())


def test_a_child_that_is_about_to_go_is_waited_for() -> None:
    asked = booster()
    children = present(asked)
    for child in children:
        child["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        child["spec"] = {}

    assert plan(asked, children, KTHENA).applies == ()
