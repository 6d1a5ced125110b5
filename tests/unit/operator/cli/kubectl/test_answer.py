"""Plans that people answer: which one, whether it may be answered, and what is shown of it."""

from datetime import UTC, datetime

import pytest

from inferno_operator.cli.kubectl.choices import (
    build_approval,
    check_open,
    check_text,
    choose_plan,
    parse_deadline,
    sort_plans,
)
from inferno_operator.cli.tables.plans import describe_difference, describe_plan, describe_plans
from inferno_operator.cli.tables.table import TextTable, name_of
from inferno_operator.controllers.planning.proposal import compute_plan_digest
from inferno_operator.resources import Plan, parse
from inferno_operator.resources.objects import Key
from inferno_optimizer.errors import InputError
from tests.unit.operator import objects
from tests.unit.operator.controllers.planning.test_forged import desired
from tests.unit.operator.controllers.planning.test_proposal import made
from tests.unit.operator.objects import NOW, Manifest, observed

BORN = "2026-03-01T11:00:00Z"
MOVE = {
    "server": "s",
    "from": [{"accelerator": "A", "replicas": 2, "batch": 8}],
    "to": [
        {"accelerator": "A", "replicas": 1, "batch": 8},
        {"accelerator": "B", "replicas": 3, "batch": 16},
    ],
    "costChange": 20,
    "reason": "BestEffort",
    "message": "no cards of type T are left",
}
CLEAR = {"server": "t", "from": MOVE["from"], "costChange": -20.5, "reason": "NoCapacity"}


def manifest(name: str, phase: str | None = None, **spec: object) -> Manifest:
    totals = {"servers": 2, "costBefore": 100, "costAfter": 99.5}
    fields = {"optimizer": "fleet", "digest": "d", "inputsDigest": "i", "totals": totals, **spec}
    told = {
        "type": "CarriedOut",
        "status": "False",
        "reason": "AwaitsApproval",
        "message": "the Optimizer has mode Approve",
        "lastTransitionTime": BORN,
    }
    status = {"phase": phase, "by": "ann", "conditions": [told]} if phase else {}
    made = objects.manifest("Plan", fields, name=name, namespace="llm", creationTimestamp=BORN)
    return {**made, "status": status}


def plan(name: str, phase: str | None = None, **spec: object) -> Plan:
    found = parse(manifest(name, phase, **spec))
    assert isinstance(found, Plan)
    return found


def test_the_newest_plan_comes_first_also_within_a_second() -> None:
    plans = sort_plans(observed(manifest(name)) for name in ("fleet-9", "fleet-10", "fleet-2"))

    assert [plan.metadata.name for plan in plans] == ["fleet-10", "fleet-9", "fleet-2"]


def test_a_plan_that_does_not_exist_is_told_with_those_like_it() -> None:
    with pytest.raises(InputError, match=r"Plan llm/fleet-3: there is none.*fleet-2"):
        choose_plan([plan("fleet-2")], "llm", "fleet-3")


@pytest.mark.parametrize(
    "phase", ["Acting", "Done", "Written", "Superseded", "Expired", "Rejected", "Failed"]
)
def test_a_plan_past_its_decision_needs_no_answer(phase: str) -> None:
    with pytest.raises(InputError, match=f"is already {phase}; there is nothing to approve"):
        check_open(plan("fleet-1", phase))


@pytest.mark.parametrize("phase", [None, "Proposed", "Approved"])
def test_other_plans_may_be_answered(phase: str | None) -> None:
    check_open(plan("fleet-1", phase))


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("90m", datetime(2026, 3, 1, 13, 30, tzinfo=UTC)),
        ("2h", datetime(2026, 3, 1, 14, tzinfo=UTC)),
        ("1d", datetime(2026, 3, 2, 12, tzinfo=UTC)),
        ("2026-03-01T18:00:00Z", datetime(2026, 3, 1, 18, tzinfo=UTC)),
        ("2026-03-01T18:00:00+02:00", datetime(2026, 3, 1, 16, tzinfo=UTC)),
    ],
)
def test_an_approval_ends_at_a_time_or_after_a_duration(text: str, time: datetime) -> None:
    assert parse_deadline(text, NOW) == time


@pytest.mark.parametrize("text", ["", "soon", "2x", "-1h", "2026-03-01T18:00:00", "99999999999d"])
def test_other_ends_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--until"):
        parse_deadline(text, NOW)


def test_an_answer_removes_what_an_earlier_one_had() -> None:
    given = build_approval(plan("fleet-1"), "Rejected", "", None)

    assert given == {"state": "Rejected", "digest": "d", "by": None, "until": None}


def test_plans_are_shown_with_why_they_wait() -> None:
    shown = "\n".join(map(str, describe_plans([plan("fleet-2", "Proposed"), plan("fleet-1")], NOW)))

    assert shown.splitlines() == [
        "PLAN     OPTIMIZER  PHASE     SERVERS   COST  CHANGE  BY   AGE",
        "fleet-2  fleet      Proposed        2  99.50   -0.50  ann   1h",
        "fleet-1  fleet      -               2  99.50   -0.50        1h",
        "",
        "fleet-2: the Optimizer has mode Approve",
    ]


def test_a_diff_shows_each_server_before_and_after() -> None:
    parts = describe_plan(plan("fleet-1", "Proposed", steps=[MOVE, CLEAR], stepsOmitted=3))

    assert "\n".join(map(str, parts)).splitlines() == [
        "SERVER  FROM             TO                                  CHANGE  REASON",
        "s       2 x A (batch 8)  1 x A (batch 8) + 3 x B (batch 16)  +20.00  BestEffort",
        "t       2 x A (batch 8)  -                                   -20.50  NoCapacity",
        "",
        "s: no cards of type T are left",
        "",
        "and 3 more Servers, which the Plan does not list",
        "2 Servers change; cost 100.00 -> 99.50 cents/hour (-0.50)",
        "Proposed: the Optimizer has mode Approve",
    ]


def test_a_plan_that_nobody_signed_says_so_before_what_it_shows() -> None:
    forged = manifest("fleet-1", "Superseded", steps=[MOVE])
    forged["status"]["conditions"][0] |= {"reason": "NotSigned", "message": "it has no signature"}
    found = parse(forged)
    assert isinstance(found, Plan)

    first, *_, last = map(str, describe_plan(found))
    of_two, *_ = map(str, describe_difference(found, plan("fleet-2", "Proposed", steps=[MOVE])))
    unseen, *_ = map(str, describe_plan(plan("fleet-1", steps=[MOVE])))

    assert first == "Superseded: it has no signature"
    assert "signature" not in last
    assert of_two == "fleet-1: Superseded: it has no signature"
    assert unseen == "-: the operator has not looked at it yet"


def test_a_diff_shows_the_steps_of_a_server_that_loses_more_than_may_go_at_once() -> None:
    steps = [CLEAR | {"from": [{"accelerator": "A", "replicas": 8}], "via": [4, 2, 1]}]

    shown = [str(part) for part in describe_plan(plan("fleet-1", "Proposed", steps=steps))]

    assert (
        "t: 8 -> 4 -> 2 -> 1 -> 0 replicas, step by step (spec.guard.window); at once if a person"
        " approves"
    ) in shown


def test_two_plans_differ_in_what_they_leave_running() -> None:
    second = [MOVE | {"to": CLEAR["from"], "costChange": 0.0}, CLEAR, MOVE | {"server": "u"}]
    pair = plan("fleet-1", steps=[MOVE, CLEAR]), plan("fleet-2", steps=second, stepsOmitted=1)

    table, *lines = describe_difference(*pair)
    assert isinstance(table, TextTable)
    assert [name_of(heading) for heading in table.headings] == [
        "SERVER",
        *("fleet-1 TO", "fleet-1 CHANGE"),
        *("fleet-2 TO", "fleet-2 CHANGE"),
    ]
    moved = ("1 x A (batch 8) + 3 x B (batch 16)", "+20.00")
    assert [tuple(row) for row in table.rows] == [
        ("s", *moved, "2 x A (batch 8)", "+0.00"),
        ("u", "as before", "", *moved),
    ]
    assert lines == [
        "",
        "fleet-1: 2 Servers change; cost 100.00 -> 99.50 cents/hour (-0.50)",
        "fleet-2: Servers that it does not list: 1",
        "fleet-2: 2 Servers change; cost 100.00 -> 99.50 cents/hour (-0.50)",
    ]


def test_equal_plans_have_no_difference() -> None:
    first, *_ = describe_difference(plan("fleet-1", steps=[MOVE]), plan("fleet-2", steps=[MOVE]))

    assert first == "fleet-1 and fleet-2 leave all Servers in the same state"


def test_why_several_servers_get_too_little_is_one_sentence() -> None:
    steps = [MOVE | {"server": name} for name in "abcdefg"]

    shown = [str(part) for part in describe_plan(plan("fleet-1", "Proposed", steps=steps))]

    assert shown[2] == f"a, b, c, d, e and 2 more: {MOVE['message']}"


def test_a_namespace_without_plans_is_told_so() -> None:
    assert list(describe_plans([], NOW)) == ["no Plans in this namespace"]


def test_no_part_of_a_replica_is_taken_away() -> None:
    step = {
        "server": "s",
        "from": [{"accelerator": "H100", "replicas": 6}],
        "to": [{"accelerator": "MI300X", "replicas": 3}],
        "costChange": -10,
        "reason": "Allocated",
    }
    reduction = {"replicas": 6, "replicasTaken": 3.196, "load": 60, "loadLost": 0}
    totals = {"servers": 1, "costBefore": 1, "costAfter": 1, "reduction": reduction}

    shown = [*map(str, describe_plan(plan("fleet-1", "Proposed", steps=[step], totals=totals)))]

    assert "capacity shrinks by 53 % (6 x H100 -> 3 x MI300X)" in shown


PLACE = Key("default", "inferno-1")


def changed_plan(**spec: object) -> Plan:
    """This Plan with other fields."""
    whole = made(PLACE)
    found = parse({**whole, "spec": {**whole["spec"], **spec}})
    assert isinstance(found, Plan)
    return found


def with_its_digest(found: Plan) -> Plan:
    """A Plan whose digest somebody computed again, as anybody can."""
    spec = found.spec.model_copy(update={"digest": compute_plan_digest(found.spec)})
    return found.model_copy(update={"spec": spec})


def test_what_the_operator_made_is_what_it_shows() -> None:
    check_text(changed_plan())


@pytest.mark.parametrize("allocation", [{"numReplicas": 50}, {"cost": 999}, {"numReplicas": -7}])
def test_other_decisions_than_are_shown_are_refused(allocation: Manifest) -> None:
    forged = changed_plan(decisions=desired(made(PLACE), **allocation))

    with pytest.raises(InputError, match="is not the digest of what it says"):
        check_text(forged)
    with pytest.raises(InputError, match="Plan default/inferno-1: "):
        check_text(with_its_digest(forged))


def test_another_cost_than_that_of_the_decisions_is_refused() -> None:
    totals = {"servers": 1, "costBefore": 0, "costAfter": 2.9}

    with pytest.raises(InputError, match="its totals show another change of cost"):
        check_text(with_its_digest(changed_plan(totals=totals)))


def test_a_plan_without_a_signature_is_refused() -> None:
    with pytest.raises(InputError, match="has no signature"):
        check_text(changed_plan(signature=""))


def test_decisions_that_are_left_out_cannot_be_approved() -> None:
    with pytest.raises(InputError, match="left out"):
        check_text(with_its_digest(changed_plan(decisions="")))
