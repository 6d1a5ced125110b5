"""How far a request is, by what its Optimizer says."""

from typing import Any

import pytest

from inferno_operator.cli.kubectl.follow import RequestStage, read_progress
from tests.unit.operator.objects import condition, observed, optimizer

Manifest = dict[str, Any]

REQUESTED = 3


def told(status: str, reason: str, generation: int = REQUESTED) -> Manifest:
    said = condition(
        "Optimized", reason, status=status, message="so it is", observedGeneration=generation
    )
    return {"conditions": [said]}


def done(requested: int) -> Manifest:
    last = {
        "time": "2026-01-01T00:00:00Z",
        "requestedGeneration": requested,
        "servers": 1,
        "allocated": 1,
        "cost": 10,
    }
    return {**told("True", "Optimized"), "lastOptimization": last}


@pytest.mark.parametrize(
    ("status", "optimize", "stage"),
    [
        ({}, True, RequestStage.ASKED),
        (told("False", "Unavailable", generation=REQUESTED - 1), True, RequestStage.ASKED),
        (done(REQUESTED - 1), True, RequestStage.WORKING),
        (told("Unknown", "Optimizing"), True, RequestStage.WORKING),
        (told("False", "Unavailable"), True, RequestStage.FAILED),
        (done(REQUESTED), True, RequestStage.DONE),
        (done(REQUESTED), False, RequestStage.DONE),
        (done(REQUESTED + 1), False, RequestStage.DONE),
        (done(REQUESTED - 1), False, RequestStage.WITHDRAWN),
    ],
)
def test_an_optimizer_tells_how_far_its_request_is(
    status: Manifest, *, optimize: bool, stage: RequestStage
) -> None:
    seen = observed({**optimizer(optimize=optimize), "status": status})

    assert read_progress(seen, REQUESTED).stage is stage


def test_a_failure_is_told_with_its_reason() -> None:
    seen = observed({**optimizer(), "status": told("False", "Unavailable")})

    assert read_progress(seen, REQUESTED).message == "Unavailable: so it is"


def test_a_spec_that_became_unreadable_is_a_failure_that_names_the_field() -> None:
    manifest = optimizer()
    manifest["spec"]["data"] = {}

    found = read_progress(observed(manifest), REQUESTED)

    assert (found.stage, found.is_over) == (RequestStage.FAILED, True)
    assert found.message == "InvalidSpec: spec.data.optimizer is missing"
