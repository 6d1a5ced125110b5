"""What we say of an object, merged with what its status says already."""

from datetime import datetime

import pytest

from inferno_operator.resources import Condition, Status
from inferno_operator.resources.conditions import Verdict, changed, merge_conditions
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
    assert not changed(Status(conditions=(told,)), Verdict("Ready", False, "R", too_long))


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
    assert changed(status(), verdict) is news
