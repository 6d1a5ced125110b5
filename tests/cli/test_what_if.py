"""What if, and what would help: the real program on the samples."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.program import ROOT, SAMPLE, inferno
from tests.cli.test_bad_input import assert_refused

FLEET = ROOT / "samples/fleet"
TROUBLES = ROOT / "samples/troubles"


def run(*arguments: str | Path) -> str:
    """Standard output of a command that succeeds."""
    result = inferno(*arguments)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def what_if(path: Path, *changes: str) -> list[str]:
    """Lines of the table, with single spaces."""
    options = [option for change in changes for option in ("--set", change)]
    return [" ".join(line.split()) for line in run("plan", path, *options).splitlines()]


def test_one_more_card_serves_one_more_server() -> None:
    assert what_if(TROUBLES, "capacity.G2+=1") == [
        "SERVER BEFORE COST AFTER COST ITL MS WAIT MS REASON",
        "No-capacity - 1 x G2 25.00 22.78 0.03 Allocated",
        "",
        "served: 1 -> 2 of 4 servers; cost 130.00 -> 155.00 cents/hour (+25.00)",
        "",
        "CARDS USED AFTER HELD AFTER AVAILABLE AFTER",
        "A100 0 0 2 2 2 2",
        "G2 2 3 0 0 2 3",
    ]


def test_several_changes_are_made_together() -> None:
    lines = what_if(TROUBLES, "capacity.G2-=2", "server.Fine.load.arrivalRate*=2")

    assert lines[1] == "Fine 2 x G2 50.00 - NoCapacity"
    assert lines[3].startswith("Fine: not enough cards: it takes 3 x G2 (cards of G2: 3, left 0)")


def test_the_program_for_another_solver_is_that_of_the_changed_system(tmp_path: Path) -> None:
    same, more = tmp_path / "same.lp", tmp_path / "more.lp"

    run("plan", TROUBLES, "--write-lp", same)
    run("plan", TROUBLES, "--write-lp", more, "--set", "capacity.G2=3")

    assert more.read_text().count("<= 3\n") > same.read_text().count("<= 3\n")


def test_a_program_that_cannot_be_written_is_named_before_anything_is_printed(
    tmp_path: Path,
) -> None:
    printed = inferno("plan", TROUBLES, "--write-lp", tmp_path / "missing" / "plan.lp")

    assert_refused(printed, "missing/plan.lp: No such file")


def test_a_fleet_that_grows_needs_other_accelerators() -> None:
    before = json.loads(run("plan", FLEET, "-o", "json"))

    answer = json.loads(
        run("plan", FLEET, "-o", "json", "--set", "server.*.load.arrivalRate*=1.05")
    )

    assert answer["changes"] == ["server.*.load.arrivalRate*=1.05"]
    assert without_seconds(answer["before"])["allocations"] == before["allocations"]
    assert answer["after"]["cost"] > answer["before"]["cost"]
    assert {*answer["servers"]} == {name for name in before["allocations"] if differs(answer, name)}


def without_seconds(answer: Any) -> Any:  # noqa: ANN401 - JSON
    del answer["certificate"]["seconds"], answer["certificate"]["phases"]
    return answer


def differs(answer: Any, server: str) -> bool:  # noqa: ANN401 - JSON
    keys = ("accelerator", "numReplicas", "cost", "reason")
    old, new = (answer[side]["allocations"].get(server, {}) for side in ("before", "after"))
    return any(old.get(key) != new.get(key) for key in keys)


def test_json_and_yaml_have_both_plans_and_their_totals() -> None:
    arguments = ("plan", TROUBLES, "--set", "capacity.G2=3", "-o")
    from_json, from_yaml = (
        json.loads(run(*arguments, "json")),
        yaml.safe_load(run(*arguments, "yaml")),
    )
    for answer in (from_json, from_yaml):
        for side in ("before", "after"):
            without_seconds(answer[side])

    assert from_json == from_yaml
    assert from_json["servers"] == ["No-capacity"]
    assert [from_json[side]["served"] for side in ("before", "after")] == [1, 2]
    assert {"type": "G2", "used": 3, "held": 0, "available": 3} in from_json["after"]["capacity"]


@pytest.mark.parametrize("change", ["capacity.G2+=1", "server.*.minNumReplicas=0"])
def test_a_change_without_an_effect_is_one_line(change: str) -> None:
    assert what_if(SAMPLE, change) == ["nothing changes: every server gets the same as without"]


def test_a_value_that_is_so_already_is_told_beside_the_plan() -> None:
    result = inferno("plan", SAMPLE, "--set", "capacity.G2=8", "-o", "json")

    assert result.stderr.decode() == "warning: capacity.G2=8: the value is already 8\n"
    assert json.loads(result.stdout)["servers"] == []


def test_an_accelerator_that_is_not_there_yet_is_tried_out() -> None:
    lines = what_if(
        SAMPLE,
        "optimizer.unlimited=false",
        "accelerator.B200.type=B200",
        "accelerator.B200.cost=20",
        "capacity.B200=1",
        "model.*.B200=G2",
        "model.*.B200.alpha*=0.5",
    )

    assert lines[1].startswith("Premium-granite-13b 2 x G2 50.00 1 x B200 20.00 ")
    assert "B200 0 1 0 0 0 1" in lines


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("capacity.A10=8", "no type of card is named 'A10'; did you mean A100? (known: A100, G2)"),
        ("capacity.A100=many", "expected a number, not 'many'"),
        ("server.Fnie.load.arrivalRate=3", "no server is named 'Fnie'; did you mean Fine?"),
        ("server.Fine.load.arrivalRate=-3", "currentAlloc.load.arrivalRate: -3 is negative"),
        ("server.Fine.load.rate=3", "did you mean load.arrivalRate"),
        ("bigger", "expected KIND.NAME.FIELD=VALUE"),
        ("", "expected KIND.NAME.FIELD=VALUE"),
    ],
)
def test_a_bad_change_is_one_line(change: str, message: str) -> None:
    assert_refused(inferno("plan", TROUBLES, "--set", change), f"{change}: ", message)


def explained(*arguments: str | Path) -> list[str]:
    """What is told below the table of options."""
    _, _, below = run("explain", *arguments).partition("\n\n")
    return below.splitlines()


def test_explain_tells_the_cards_that_would_serve_a_server() -> None:
    first, *others = explained(TROUBLES, "No-capacity")

    assert first.startswith("No-capacity: not enough cards: ")
    assert others == [
        "- 1 more card of G2 would serve it (+25.00 cents/hour): --set capacity.G2+=1",
        "- 1 more card of A100 would serve it (+40.00 cents/hour): --set capacity.A100+=1",
    ]


def test_explain_tells_the_target_that_would_serve_a_server_and_who_would_lose() -> None:
    _, remedy = explained(TROUBLES, "Unattainable-SLO")

    assert remedy == (
        "- slo-itl of model 'granite-13b' in class 'Instant' raised from 5 to 19 ms would serve it"
        " (+0.00 cents/hour; no longer served then: Fine):"
        " --set class.Instant.granite-13b.slo-itl=19"
    )


def test_what_explain_advises_does_what_it_says() -> None:
    answer = json.loads(run("explain", TROUBLES, "Unattainable-SLO", "-o", "json"))

    (remedy,) = answer["remedies"]
    after = json.loads(run("plan", TROUBLES, "-o", "json", "--set", remedy["change"]))
    assert "Unattainable-SLO" in after["after"]["allocations"]
    assert after["after"]["cost"] - after["before"]["cost"] == remedy["cost"]
    assert (remedy["kind"], remedy["amount"], remedy["displaced"]) == ("Target", 19, ["Fine"])


def test_a_server_that_is_served_has_no_remedies() -> None:
    assert explained(TROUBLES, "Fine") == []
    assert json.loads(run("explain", TROUBLES, "Fine", "-o", "json"))["remedies"] == []


def test_a_server_that_gets_a_share_has_remedies_too(tmp_path: Path) -> None:
    greedy = shutil.copytree(FLEET, tmp_path / "fleet") / "optimizer.yaml"
    greedy.write_text(greedy.read_text().replace("milpSolver: true", "milpSolver: false"))

    first, *others = explained(greedy.parent, "Free-granite_34b")

    assert first.startswith(
        "Free-granite_34b: gets 11 of the 12 x 2xH100 it needs: not enough cards"
    )
    assert (
        "- 2 more cards of H100 would serve it (+150.00 cents/hour): --set capacity.H100+=2"
        in others
    )
    assert [line for line in others if "slo-ttw" in line]
    assert [line for line in others if "a load of 84.73 requests/min instead of 90" in line]


def test_csv_of_a_change_that_changes_nothing_has_headings_only() -> None:
    headings, *rows = run("plan", SAMPLE, "--set", "capacity.A100+=0", "-o", "csv").splitlines()

    assert headings.startswith("SERVER,BEFORE,BEFORE COST,AFTER,AFTER COST,")
    assert rows == []
