"""What would happen to each Server, in a word, and what is in the way."""

import json
from typing import Any

import pytest
import yaml

from inferno_operator.cli.console import show
from inferno_operator.cli.kubectl.choices import decide
from inferno_operator.cli.options import Format
from inferno_operator.cli.tables.plans import (
    Action,
    PlanPreview,
    describe_preview,
    encode_preview,
    preview_plan,
    tabulate_changes,
)
from inferno_operator.cli.tables.table import format_csv
from inferno_optimizer.errors import InputError
from inferno_optimizer.solution import Certificate, Solution, SolverStatus
from tests.unit.operator.objects import (
    accelerator,
    observed,
    optimizer,
    running,
    server,
    service_class,
    system,
)

Manifest = dict[str, Any]

NEEDS_TWO = {"accelerator": "A", "numReplicas": 2, "maxBatch": 1}


def planned(*manifests: Manifest, cards: int = 4) -> tuple[PlanPreview, str]:
    """The plan of a namespace, and how it is shown."""
    all_or_nothing = optimizer(parameters={"saturationPolicy": "None"})
    given = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    usual = [*system(cards), all_or_nothing]
    others = [m for m in usual if (m["kind"], m["metadata"]["name"]) not in given]
    observations = [observed(m) for m in (*others, *manifests)]
    outcome = decide(observations, "default", None)
    plan = preview_plan(observations, outcome.snapshot, outcome.solution)
    return plan, "\n".join(map(str, describe_preview(plan, outcome.solution)))


def test_a_note_that_several_servers_have_is_one_sentence() -> None:
    typo = {**desires(2)["spec"], "model": "typo"}
    servers = [server(name, spec={**typo, "name": name}) for name in "abcdefg"]

    _, shown = planned(*servers)

    (note,) = [line for line in shown.splitlines() if "'typo'" in line]
    assert note.startswith("a, b, c, d, e and 2 more: ")


def test_csv_has_the_servers_that_change_also_if_there_are_none() -> None:
    changing, _ = planned(server(wanted=2))
    solution = Solution((), Certificate("none", SolverStatus.OPTIMAL, 0.0, None, 0.0), ())

    headings, *rows = format_csv([tabulate_changes(changing, solution)]).splitlines()
    nothing = format_csv([tabulate_changes(PlanPreview((), ()), solution)]).splitlines()

    assert [row.split(",")[0] for row in rows] == [
        changing.servers[0].name,
        *("TOTAL class C", "TOTAL type T", "TOTAL"),
    ]
    assert rows[0].split(",")[-6:-2] == ["A", "T", "2", "2"]
    assert nothing == [headings]


def test_json_and_yaml_of_a_plan_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    changing, _ = planned(server(wanted=2))
    solution = Solution((), Certificate("none", SolverStatus.OPTIMAL, 0.0, None, 0.0), ())

    def shown(output: Format) -> str:
        show(output, lambda: encode_preview("inferno", (), changing, solution), tuple)
        return capsys.readouterr().out

    as_json = json.loads(shown(Format.JSON))

    assert yaml.safe_load(shown(Format.YAML)) == as_json
    assert as_json["servers"][0]["reason"] == "Allocated"


def desires(wanted: int, **desired: object) -> Manifest:
    """A Server under a load for so many replicas, with a decision that stands already."""
    return server(wanted=wanted, spec={"desiredAlloc": {**NEEDS_TWO, **desired}})


@pytest.mark.parametrize(
    ("manifest", "action"),
    [
        (server(wanted=2), Action.PLACE),
        (desires(9), Action.STOP),
        (server(spec={"currentAlloc": running(3, 9)}), Action.STOP),
        (server(spec={**desires(2)["spec"], "model": "typo"}), Action.NONE),
        (desires(2, accelerator="B"), Action.MOVE),
        (desires(3), Action.SCALE_UP),
        (desires(1), Action.SCALE_DOWN),
        (desires(2, maxBatch=7), Action.BATCH),
        (desires(2), Action.UPDATE),
        (server(wanted=9), Action.UPDATE),
    ],
)
def test_a_word_tells_what_happens_to_a_server(manifest: Manifest, action: Action) -> None:
    plan, _ = planned(manifest)

    assert [item.action for item in plan.servers] == [action]


def test_where_a_decision_stands_already_nothing_would_change() -> None:
    first, _ = planned(server(wanted=2))
    (written,) = first.servers
    assert written.planned is not None

    again, shown = planned(server(wanted=2, spec={"desiredAlloc": written.planned.to_json()}))

    assert [item.action for item in again.servers] == [Action.NONE]
    assert shown.startswith("nothing would change; 1 of 1 would have an allocation;")


def test_what_runs_stands_beside_what_is_desired_and_what_would_be() -> None:
    here = server(
        spec={"currentAlloc": running(3, 2), "desiredAlloc": {**NEEDS_TWO, "numReplicas": 1}}
    )

    _, shown = planned(here)

    assert shown.splitlines()[1].split()[:15] == [
        *("s", "C", "90", "3", "x", "A", "30.00", "1", "x", "A", "0.00", "2", "x", "A", "1")
    ]


def test_a_cost_that_is_not_told_is_worked_out() -> None:
    here = server(spec={"currentAlloc": running(3, 2)})
    del here["spec"]["currentAlloc"]["cost"]

    _, shown = planned(here)

    assert shown.splitlines()[1].split()[3:7] == ["3", "x", "A", "30.00"]
    assert "cost 30.00 now" in shown


def test_objects_that_are_no_good_are_named() -> None:
    broken = server("Broken")
    del broken["spec"]["model"]
    free = accelerator("Free", cost=-1)

    plan, shown = planned(server(), broken, free)

    assert "\nbroken: spec.model is missing\n" in shown
    assert [item.reason for item in plan.servers] == ["InvalidSpec", "Allocated"]
    assert plan.troubles == ("Accelerator free: cost: -1 is negative",)


def test_warnings_are_shown_below_the_servers_that_they_are_about() -> None:
    _, shown = planned(server(spec={"maxBatchSize": 7}))

    assert "\ns: warning: a batch of 7 on A keeps 7 tokens in memory" in shown


def test_a_change_that_makes_no_sense_is_refused() -> None:
    observations = [observed(m) for m in (server(), optimizer())]

    with pytest.raises(InputError, match="no type of card is named 'B'"):
        decide(observations, "default", None, ["capacity.B=1"])


def test_servers_with_a_single_replica_are_told_with_what_a_second_one_costs() -> None:
    class_of_two = service_class()
    class_of_two["spec"]["minReplicas"] = 2
    servers = [server("S", 1, spec={"currentAlloc": running(3, 1)}), server("T", 1), server("U", 2)]

    _, shown = planned(*servers, cards=8)
    plan, least = planned(class_of_two, *servers, cards=8)

    assert (
        "2 servers have a single replica; 2 each would cost 20.00 more (1 of them has more now)"
        in shown.splitlines()
    )
    assert "single replica" not in least
    assert [item.planned.num_replicas for item in plan.servers if item.planned] == [2, 2, 2]
