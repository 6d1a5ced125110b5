"""What we say of an object, merged with what its status says already."""

from datetime import datetime

import pytest

from inferno_operator.resources import Condition, Status, parse
from inferno_operator.resources.caveats import caveats
from inferno_operator.resources.conditions import Verdict, is_new_verdict, merge_conditions
from tests.controlplane.api import Manifest
from tests.unit.operator.objects import LATER, NOW

LONGEST = 32768
"""Characters of a message, from the definition of `metav1.Condition`."""


def status(**fields: object) -> Status:
    """A status that says since NOW that the object is ready; `fields` replace some of it."""
    said = {"type": "Ready", "status": "True", "observedGeneration": 3, "reason": "Valid"}
    times = {"lastTransitionTime": NOW, "message": "all is well"}
    return Status.model_validate({"conditions": [{**said, **times, **fields}]})


def merged(
    before: Status, verdict: Verdict, generation: int = 4, now: datetime = LATER
) -> Condition:
    (condition,) = merge_conditions(before, [verdict], generation, now)
    return condition


@pytest.mark.parametrize(
    ("holds", "written"), [(True, "True"), (False, "False"), (None, "Unknown")]
)
def test_a_verdict_becomes_a_condition(holds: bool | None, written: str) -> None:
    condition = merged(Status(), Verdict("Ready", holds, "Because", "of this"), 7, NOW)

    assert condition.to_json() == {
        "type": "Ready",
        "status": written,
        "observedGeneration": 7,
        "lastTransitionTime": "2026-03-01T12:00:00Z",
        "reason": "Because",
        "message": "of this",
    }


@pytest.mark.parametrize("before", ["True", "False", "Unknown"])
@pytest.mark.parametrize("holds", [True, False, None])
def test_the_time_moves_exactly_when_the_status_does(before: str, holds: bool | None) -> None:
    verdict = Verdict("Ready", holds, "Valid", "all is well")

    condition = merged(status(status=before, reason="Other", message="other"), verdict)

    assert (condition.last_transition_time == LATER) == (condition.status != before)
    assert (condition.reason, condition.message) == (verdict.reason, verdict.message)
    assert condition.observed_generation == 4


def test_each_type_has_its_own_history() -> None:
    verdicts = [Verdict("Allocated", holds=True, reason="R"), Verdict("Ready", True, "R")]

    conditions = merge_conditions(status(), verdicts, 4, LATER)

    assert [(c.type, c.last_transition_time) for c in conditions] == [
        ("Allocated", LATER),
        ("Ready", NOW),
    ]


def test_what_others_say_is_theirs() -> None:
    conditions = merge_conditions(status(type="Audited"), [Verdict("Ready", True, "R")], 4, LATER)

    assert [condition.type for condition in conditions] == ["Ready"]


@pytest.mark.parametrize("letter", ["x", "é", "🂡"])
def test_a_message_is_cut_to_what_a_condition_holds(letter: str) -> None:
    fits, too_long = letter * LONGEST, letter * (LONGEST + 1)

    assert merged(Status(), Verdict("Ready", False, "R", fits)).message == fits
    told = merged(Status(), Verdict("Ready", False, "R", too_long))
    assert told.message == fits
    assert not is_new_verdict(Status(conditions=(told,)), Verdict("Ready", False, "R", too_long))


@pytest.mark.parametrize(
    ("verdict", "news"),
    [
        (Verdict("Ready", holds=True, reason="Valid", message="all is well"), False),
        (Verdict("Ready", holds=False, reason="Valid", message="all is well"), True),
        (Verdict("Ready", holds=None, reason="Valid", message="all is well"), True),
        (Verdict("Ready", holds=True, reason="Other", message="all is well"), True),
        (Verdict("Ready", holds=True, reason="Valid", message="other"), True),
        (Verdict("Other", holds=True, reason="Valid", message="all is well"), True),
    ],
)
def test_news_is_what_the_status_does_not_say_yet(verdict: Verdict, news: bool) -> None:
    assert is_new_verdict(status(), verdict) is news


# What is said of numbers that are valid and hardly meant


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


A100 = {"type": "A100", "cost": 40}
DATA = {"acc": "A", "accCount": 1, "alpha": 20, "beta": 1, "maxBatchSize": 8, "atTokens": 64}
SERVER = {"class": "C", "model": "m"}
RUNS = {"accelerator": "A", "numReplicas": 1}
H100, H200 = {"type": "H100", "count": 8}, {"type": "H200", "count": 4}
TWICE = "is named 2 times, and the last one counts"
NO_KIND = "workloads: no kind is named"


def data(*changes: Manifest) -> Manifest:
    """Performance data of a Model, with changes."""
    return {"data": [{**DATA, **change} for change in changes]}


def targets(*items: Manifest, priority: int = 1) -> Manifest:
    return {"priority": priority, "data": [{"model": "m", **item} for item in items]}


def load(**numbers: float) -> Manifest:
    return {**SERVER, "currentAlloc": {**RUNS, "load": {"arrivalRate": 60, **numbers}}}


def runs(kind: str) -> Manifest:
    workloads = [{"accelerator": name, "name": name, "kind": kind} for name in ("a", "b")]
    return {**SERVER, "workloads": workloads}


@pytest.mark.parametrize(
    ("kind", "spec", "told"),
    [
        ("Accelerator", A100, []),
        ("Accelerator", {**A100, "cost": 0}, [FREE]),
        ("Accelerator", {**A100, "memSize": 0, "memBW": 0}, []),
        ("Accelerator", {**A100, "memSize": -1}, ["memSize: -1 is negative"]),
        ("Accelerator", {**A100, "memBW": -2}, ["memBW: -2 is negative"]),
        ("Model", data({}, {"acc": "B"}), []),
        ("Model", data({}, {"alpha": 4}), [f"acc: 'A' {TWICE}"]),
        ("Model", data({"accCount": 0}), ["accCount: 0 counts as 1"]),
        ("Model", data({"accCount": -1}), ["accCount: -1 counts as 1"]),
        ("Model", data({"maxBatchSize": 0}), [f"maxBatchSize: {ALONE}"]),
        ("Model", data({"atTokens": 0}), [f"atTokens: {ALONE}"]),
        ("ServiceClass", targets(), []),
        ("ServiceClass", targets({"slo-itl": 20}, {"model": "n"}, {}), [f"model: 'm' {TWICE}"]),
        ("ServiceClass", targets(priority=0), ["priority: 0 counts as 100"]),
        (
            "ServiceClass",
            targets({"slo-itl": 30, "slo-ttft-percentile": 95}),
            ["slo-ttft-percentile: has no effect without slo-ttft"],
        ),
        ("Server", runs("Deployment"), []),
        ("Server", runs("deployment"), [f"{NO_KIND} 'deployment'; did you mean Deployment?"]),
        ("Server", runs("xyz"), [f"{NO_KIND} 'xyz'; kinds begin with a capital letter"]),
        ("Server", load(avgLength=200), []),
        ("Server", load(avgInTokens=200, avgOutTokens=10), []),
        ("Server", load(arrivalRate=0, avgLength=0), []),
        ("Server", load(avgLength=0), [TOKENS]),
        ("Server", load(avgInTokens=200, avgOutTokens=0), [TOKENS]),
        *(
            ("Server", {**SERVER, "currentAlloc": {**RUNS, name: value}}, told)
            for name in ("itlAverage", "waitAverage", "ttftAverage")
            for value, told in ((0, []), (-5, [f"currentAlloc.{name}: -5 is negative"]))
        ),
        ("Capacity", {"count": [H100, H200]}, []),
        ("Capacity", {"count": [H100, H200, H100]}, ["type: 'H100' is named 2 times, and its"]),
    ],
)
def test_numbers_that_are_valid_and_hardly_meant(
    kind: str, spec: Manifest, told: list[str]
) -> None:
    found = said(kind, spec)

    assert len(found) == len(told)
    assert all(line.startswith(words) for line, words in zip(found, told, strict=True))
