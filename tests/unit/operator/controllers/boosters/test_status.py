"""What is said about a booster."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from inferno_operator.controllers.boosters.booster import Booster, read_booster
from inferno_operator.controllers.boosters.status import Report, is_up_to_date, status_of
from inferno_operator.resources.dialects import KTHENA, Release
from tests.unit.operator.controllers.boosters.making import (
    Manifest,
    backend,
    booster,
    convert,
    manifest,
    there,
)

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
    **report: tuple[str, ...],
) -> dict[str, tuple[str, str, str]]:
    status = status_of(asked, children, KTHENA, Report(**report), NOW)
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}


def test_all_is_well_when_every_serving_is_available() -> None:
    conditions = told(booster(), present(booster()))

    assert conditions == {
        "Initialized": ("True", "ModelCreating", "ModelBooster initialized"),
        "Active": ("True", "ModelAvailable", "ModelBooster is ready"),
        "Failed": ("False", "ModelNormal", ""),
        "Valid": ("True", "Valid", ""),
    }


@pytest.mark.parametrize(
    ("installed", "pods"),
    [
        (None, "v0.4, as INFERNO_MODEL_BOOSTER_RELEASE names no release"),
        (Release.V0_2, "v0.2"),
        (Release.V0_3, "v0.3"),
        (Release.V1_0, "v0.4, as v1.0 has other fields"),
    ],
)
def test_the_release_whose_pods_a_booster_has_is_told(installed: Release | None, pods: str) -> None:
    dialect = replace(KTHENA, installed=installed)
    asked = read_booster({**manifest(), "spec": {"backend": backend()}}, dialect)

    status = status_of(asked, present(asked), dialect, Report(), NOW)

    told = {c["type"]: c["message"] for c in status["conditions"]}
    assert told["Initialized"] == f"ModelBooster initialized with the pods of Kthena {pods}"


def test_a_failure_is_told_and_ends() -> None:
    failed = status_of(booster(), [], KTHENA, Report(failures=["no"]), NOW)
    after = read_booster({**manifest(), "status": failed}, KTHENA)
    later = status_of(after, present(after), KTHENA, Report(), NOW + timedelta(hours=1))

    assert told(booster(), [], failures=("no", "nor this"))["Failed"] == (
        "True",
        "ModelAbnormal",
        "no\nnor this",
    )
    assert [c["status"] for c in later["conditions"]] == ["True", "True", "False", "True"]


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


def after_it_was_active(replicas: int) -> Booster:
    status = status_of(booster(), present(booster()), KTHENA, Report(), NOW)
    return read_booster({**manifest(backend("a", replicas)), "status": status}, KTHENA)


@pytest.mark.parametrize(
    ("available", "active", "message"),
    [
        (2, "True", "ModelBooster is ready; waiting for more replicas of m-a"),
        (1, "True", "ModelBooster is ready; waiting for more replicas of m-a"),
        (0, "False", "ModelBooster not ready yet: waiting for m-a"),
    ],
)
def test_what_was_active_stays_so_until_a_backend_has_no_replica_available(
    available: int, active: str, message: str
) -> None:
    asked = after_it_was_active(4)
    children = present(asked, "False", availableReplicas=available)

    assert told(asked, children)["Active"] == (
        active,
        "ModelAvailable" if available else "ModelProcessing",
        message,
    )


class Backends:
    """Two backends, pass after pass: how many replicas of each are available, of how many."""

    def __init__(self) -> None:
        self.told: Manifest = {}

    def see(self, **backends: tuple[int, int]) -> tuple[str, str]:
        asked = manifest(*(backend(name, wanted) for name, (_, wanted) in backends.items()))
        read = read_booster({**asked, "status": self.told}, KTHENA)
        children = convert(read, KTHENA)
        servings = [
            {**there(child), "status": self.status(*backends[name])}
            for name, child in zip(backends, children, strict=False)
        ]
        self.told = status_of(read, servings, KTHENA, Report(), NOW)
        (active,) = (c for c in self.told["conditions"] if c["type"] == "Active")
        return active["status"], active["reason"]

    @staticmethod
    def status(available: int, wanted: int) -> Manifest:
        all_are = "True" if available == wanted else "False"
        conditions = [{"type": "Available", "status": all_are}]
        return {"replicas": wanted, "availableReplicas": available, "conditions": conditions}


def test_a_backend_that_comes_up_beside_another_does_not_take_it_back() -> None:
    seen = Backends()

    assert [
        seen.see(a=(4, 4), b=(0, 0)),
        seen.see(a=(4, 4), b=(0, 4)),
        seen.see(a=(4, 4), b=(0, 4)),
        seen.see(a=(4, 4), b=(1, 4)),
        seen.see(a=(4, 4), b=(4, 4)),
        seen.see(a=(0, 0), b=(4, 4)),
    ] == [
        ("True", "ModelAvailable"),
        ("True", "ModelScaling"),
        ("True", "ModelScaling"),
        ("True", "ModelAvailable"),
        ("True", "ModelAvailable"),
        ("True", "ModelAvailable"),
    ]


def test_a_backend_that_loses_all_it_had_takes_it_back_whatever_the_other_does() -> None:
    seen = Backends()

    assert [
        seen.see(a=(4, 4), b=(2, 2)),
        seen.see(a=(4, 4), b=(0, 2)),
        seen.see(a=(4, 4), b=(1, 2)),
        seen.see(a=(4, 4), b=(2, 2)),
    ] == [
        ("True", "ModelAvailable"),
        ("False", "ModelProcessing"),
        ("False", "ModelProcessing"),
        ("True", "ModelAvailable"),
    ]


def test_a_booster_that_serves_nothing_any_more_is_not_active() -> None:
    seen = Backends()

    assert [
        seen.see(a=(4, 4), b=(0, 0)),
        seen.see(a=(4, 4), b=(0, 4)),
        seen.see(a=(0, 4), b=(0, 4)),
    ][-1] == ("False", "ModelProcessing")


def test_some_replicas_do_not_make_a_booster_active() -> None:
    asked = booster(backend(replicas=4))

    assert told(asked, present(asked, "False", availableReplicas=3))["Active"][0] == "False"


def test_what_should_be_put_right_is_told_apart_from_what_failed() -> None:
    conditions = told(booster(), present(booster()), invalid=("spec.x is odd", "spec.y too"))

    assert conditions["Valid"] == ("False", "InvalidSpec", "spec.x is odd\nspec.y too")
    assert conditions["Failed"][0] == "False"


def test_backends_are_told_in_their_order() -> None:
    asked = booster(backend("b"), backend("a"))

    status = status_of(asked, present(asked)[::-1], KTHENA, Report(), NOW)

    assert status["backendStatuses"] == [
        {"name": "m-b", "replicas": 2},
        {"name": "m-a", "replicas": 2},
    ]
    assert {c["observedGeneration"] for c in status["conditions"]} == {3}


def test_what_is_not_as_asked_for_is_told() -> None:
    message = told(booster(), present(booster()), remarks=("a remark",))["Initialized"][2]

    assert message == "ModelBooster initialized; a remark"


def test_what_was_initialized_once_stays_so() -> None:
    first = status_of(booster(), present(booster()), KTHENA, Report(), NOW)
    after = read_booster({**manifest(), "status": first}, KTHENA)

    assert told(after, present(after), failures=("no",))["Initialized"][0] == "True"


def test_nothing_new_is_not_told_again() -> None:
    first = status_of(booster(), present(booster()), KTHENA, Report(), NOW)
    after = read_booster({**manifest(), "status": first}, KTHENA)

    again = status_of(after, present(after), KTHENA, Report(), NOW + timedelta(hours=1))
    failed = status_of(after, present(after), KTHENA, Report(failures=("no",)), NOW)

    assert is_up_to_date(first, again)
    assert not is_up_to_date(first, failed)
