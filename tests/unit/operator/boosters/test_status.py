"""What is said about a booster."""

from datetime import UTC, datetime, timedelta

import pytest

from inferno_operator.boosters.booster import Booster, read_booster
from inferno_operator.boosters.convert import convert
from inferno_operator.boosters.dialects import KTHENA
from inferno_operator.boosters.status import is_told, status_of
from tests.unit.operator.boosters.making import Manifest, backend, booster, manifest, there

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def present(asked: Booster, available: str = "True", **status: object) -> list[Manifest]:
    conditions = [{"type": "Available", "status": available}]
    return [
        {**there(child), "status": {"replicas": 2, "conditions": conditions, **status}}
        for child in convert(asked, KTHENA)
    ]


def told(
    asked: Booster,
    children: list[Manifest],
    failures: tuple[str, ...] = (),
    remarks: tuple[str, ...] = (),
) -> dict[str, tuple[str, str, str]]:
    status = status_of(asked, children, KTHENA, failures, remarks, NOW)
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}


def test_all_is_well_when_every_serving_is_available() -> None:
    conditions = told(booster(), present(booster()))

    assert conditions == {
        "Initialized": ("True", "ModelCreating", "ModelBooster initialized"),
        "Active": ("True", "ModelAvailable", "ModelBooster is ready"),
        "Failed": ("False", "ModelNormal", ""),
    }


def test_a_failure_is_told_and_ends() -> None:
    failed = status_of(booster(), [], KTHENA, ["no"], (), NOW)
    after = read_booster({**manifest(), "status": failed}, KTHENA)
    later = status_of(after, present(after), KTHENA, (), (), NOW + timedelta(hours=1))

    assert told(booster(), [], ("no", "nor this"))["Failed"] == (
        "True",
        "ModelAbnormal",
        "no\nnor this",
    )
    assert [c["status"] for c in later["conditions"]] == ["True", "True", "False"]


@pytest.mark.parametrize(
    "status", [{"conditions": []}, {"observedGeneration": 1}], ids=["not yet", "of before a change"]
)
def test_a_booster_waits_for_its_servings(status: Manifest) -> None:
    children = present(booster(), **status)
    for child in children:
        child["metadata"]["generation"] = 2

    active = told(booster(), children)["Active"]

    assert active == (
        "False",
        "ModelProcessing",
        "ModelBooster not ready yet: waiting for m-a",
    )


def test_a_serving_without_replicas_is_not_waited_for() -> None:
    asked = booster(backend("a"), backend("b", minReplicas=0))
    children = present(asked)
    for child in children:
        if child["metadata"]["name"] == "m-b":
            child["status"] = {}

    assert told(asked, children)["Active"][0] == "True"


def test_a_booster_without_any_replica_is_not_active() -> None:
    asked = booster(backend(minReplicas=0))

    assert "no backend has any replica" in told(asked, present(asked))["Active"][2]


def test_backends_are_told_in_their_order() -> None:
    asked = booster(backend("b"), backend("a"))

    status = status_of(asked, present(asked)[::-1], KTHENA, (), (), NOW)

    assert status["backendStatuses"] == [
        {"name": "m-b", "replicas": 2},
        {"name": "m-a", "replicas": 2},
    ]
    assert {c["observedGeneration"] for c in status["conditions"]} == {3}


def test_what_is_not_as_asked_for_is_told() -> None:
    message = told(booster(), present(booster()), remarks=("a remark",))["Initialized"][2]

    assert message == "ModelBooster initialized; a remark"


def test_what_was_initialized_once_stays_so() -> None:
    first = status_of(booster(), present(booster()), KTHENA, (), (), NOW)
    after = read_booster({**manifest(), "status": first}, KTHENA)

    assert told(after, present(after), ("no",))["Initialized"][0] == "True"


def test_nothing_new_is_not_told_again() -> None:
    first = status_of(booster(), present(booster()), KTHENA, (), (), NOW)
    after = read_booster({**manifest(), "status": first}, KTHENA)

    again = status_of(after, present(after), KTHENA, (), (), NOW + timedelta(hours=1))
    failed = status_of(after, present(after), KTHENA, ("no",), (), NOW)

    assert is_told(again, first)
    assert not is_told(failed, first)
