"""What the program prints; the expected plan is that of the original for the small sample."""

import csv
import importlib.metadata
import io
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from typer.testing import CliRunner

from inferno_operator.cli.inferno.main import app
from tests.cli.program import ROOT, SAMPLE, SMALL, inferno

PLAN = {
    "Premium-granite-13b": ("G2", 2, 19, 50.0, 19.79),
    "Free-granite-13b": ("G2", 1, 38, 25.0, 22.78),
}

NAMES = ("plan", "optimize")


def run(*arguments: str | Path) -> str:
    """Standard output of a command that succeeds."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def plan(document: Any) -> dict[str, tuple[str, int, int, float, float]]:  # noqa: ANN401 - JSON
    return {
        server: (
            d["accelerator"],
            d["numReplicas"],
            d["maxBatch"],
            d["cost"],
            round(d["itlAverage"], 2),
        )
        for server, d in document["allocations"].items()
    }


def test_optimize_is_another_name_of_plan() -> None:
    printed, same = (run(name, SAMPLE, "--sort", "-batch", "-o", "csv") for name in NAMES)

    assert printed == same


def test_a_typing_error_in_the_second_name_leads_to_the_first_one() -> None:
    result = CliRunner().invoke(app, ["optimise"])

    assert result.exit_code == 2
    assert "No such command 'optimise'. Did you mean 'plan'?" in result.stderr


@pytest.mark.parametrize("path", [SMALL, SAMPLE, SAMPLE / "kustomization.yaml"])
def test_the_small_sample_gets_the_plan_of_the_original(path: Path) -> None:
    assert plan(json.loads(run("plan", path, "-o", "json"))) == PLAN


def test_a_wrong_current_cost_changes_the_decision_as_in_the_original(tmp_path: Path) -> None:
    document: Any = json.loads(SMALL.read_text())
    document["system"]["serverData"]["servers"][0]["currentAlloc"]["cost"] = 1600
    file = tmp_path / "system.json"
    file.write_text(json.dumps(document))

    answer = json.loads(run("plan", file, "-o", "json"))

    premium = answer["allocations"]["Premium-granite-13b"]
    assert plan(answer)["Premium-granite-13b"] == ("A100", 2, 16, 80.0, 24.4)
    assert premium["waitAverage"] == pytest.approx(84.95, abs=0.01)


def test_json_and_yaml_say_the_same() -> None:
    from_json = json.loads(run("plan", SAMPLE, "-o", "json"))
    from_yaml = yaml.safe_load(run("plan", SAMPLE, "-o", "yaml"))
    for answer in (from_json, from_yaml):
        del answer["certificate"]["seconds"], answer["certificate"]["phases"]

    assert from_json == from_yaml


def words(output: str) -> list[str]:
    """The lines of a table with single spaces."""
    return [" ".join(line.split()) for line in output.splitlines()]


def test_the_table_shows_each_server_in_one_plain_line() -> None:
    output = run("plan", SAMPLE)

    assert words(output)[:3] == [
        "SERVER CLASS MODEL LOAD REQ/MIN CURRENT COST DESIRED BATCH COST ITL MS WAIT MS REASON",
        "Free-granite-13b Free granite-13b 80 8 x G2 200.00 1 x G2 38 25.00 22.78 0.03 Allocated",
        (
            "Premium-granite-13b Premium granite-13b 40 4 x A100 160.00 "
            "2 x G2 19 50.00 19.79 0.61 Allocated"
        ),
    ]
    assert "2 of 2 servers have an allocation; cost 360.00 -> 75.00 cents/hour" in words(output)
    assert "\x1b" not in output


def test_the_table_says_why_a_server_gets_nothing() -> None:
    output = run("plan", ROOT / "samples/troubles")

    for reason in ("NoCapacity", "UnattainableSLO", "UnknownModel"):
        assert reason in output
    assert "\nUnattainable-SLO: slo-itl of 5 ms is out of reach" in output


def test_the_table_shows_cards_and_what_is_proven() -> None:
    lines = words(run("plan", SAMPLE))

    assert "G2 3 0 8" in lines
    assert lines[-1].startswith("solver unlimited: Optimal, objective -264.00, gap 0, ")


def test_explain_shows_every_option_the_best_first() -> None:
    assert words(run("explain", SAMPLE, "Premium-granite-13b")) == [
        (
            "ACCELERATOR CHOSEN REPLICAS BATCH CARDS TYPE COST SCORE "
            "ITL MS WAIT MS MAX RATE REQ/MIN WHY NOT"
        ),
        "G2 yes 2 19 2 G2 50.00 -89.00 19.79 0.61 31.31",
        "A100 2 16 2 A100 80.00 -80.00 24.40 84.95 21.36 higher score",
        "SCORE: change of cost plus the penalty of a move; lower is better",
    ]


def test_the_time_to_first_token_is_shown_where_the_performance_data_tell_it(
    tmp_path: Path,
) -> None:
    document: Any = json.loads(SMALL.read_text())
    for record in document["system"]["modelData"]["models"]:
        record["decodeParms"] = {"alpha": record.pop("alpha"), "beta": record.pop("beta")}
        record["prefillParms"] = {"gamma": 30, "delta": 0.01}
    file = tmp_path / "system.json"
    file.write_text(json.dumps(document))

    table = words(run("plan", file))
    options = words(run("explain", file, "Premium-granite-13b"))
    answer = json.loads(run("plan", file, "-o", "json"))["allocations"]["Free-granite-13b"]

    assert table[0].endswith("ITL MS WAIT MS TTFT MS REASON")
    assert table[2].endswith(f" {answer['ttftAverage']:.2f} Allocated")
    assert options[0].endswith("ITL MS WAIT MS TTFT MS MAX RATE REQ/MIN WHY NOT")
    assert "waitAverage" not in answer
    assert set(answer["percentiles"]) == {"wait", "ttft"}


def test_explain_says_why_an_option_is_out() -> None:
    answer = json.loads(run("explain", ROOT / "samples/troubles", "Unattainable-SLO", "-o", "json"))

    reasons = [option["reason"] for option in answer["options"]]
    assert all(reason.startswith("cannot meet slo-itl: ") for reason in reasons)


def test_standard_input_is_a_path_called_minus() -> None:
    result = inferno("plan", "-", "-o", "json", stdin=SMALL.read_bytes())

    assert plan(json.loads(result.stdout)) == PLAN


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert run("--version") == f"inferno {project['version']}\n"
    assert importlib.metadata.version(project["name"]) == project["version"]


def test_the_module_is_the_same_program() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "inferno_operator", "--version"], capture_output=True, check=True
    )

    assert result.stdout == inferno("--version").stdout


def test_explain_says_where_a_server_has_no_workload(tmp_path: Path) -> None:
    objects = list(yaml.safe_load_all((SAMPLE / "servers.yaml").read_text()))
    for server in objects:
        name = f"{server['metadata']['name']}-a100"
        server["spec"]["workloads"] = [{"accelerator": "A100", "name": name}]
    (tmp_path / "servers.yaml").write_text(yaml.safe_dump_all(objects))
    others = [
        path for path in SAMPLE.glob("*.yaml") if path.stem not in ("servers", "kustomization")
    ]

    lines = words(run("explain", *others, tmp_path / "servers.yaml", "Premium-granite-13b"))

    assert lines[1].startswith("A100 yes 2 16 2 A100 80.00 ")
    assert lines[2] == "G2 no workload or backend: the server names none for this accelerator"


@pytest.mark.parametrize("output", ["table", "csv"])
def test_rows_are_filtered_and_sorted_and_the_rest_stays(output: str) -> None:
    printed = run("plan", SAMPLE, "--filter", "g2", "--sort", "-batch", "-o", output)
    premium = run("plan", SAMPLE, "--filter", "premium", "-o", output)

    assert printed.index("Free-granite-13b") < printed.index("Premium-granite-13b")
    assert "Free-granite-13b" not in premium
    assert "Premium-granite-13b" in premium
    assert ("2 of 2 servers have an allocation" in premium) == (output == "table")


def test_csv_of_one_of_several_namespaces_adds_its_cards_by_class_and_type(tmp_path: Path) -> None:
    objects = [d for path in SAMPLE.glob("*.yaml") for d in yaml.safe_load_all(path.read_text())]
    both = [
        {**each, "metadata": {**each["metadata"], "namespace": name}}
        for each in objects
        if "spec" in each
        for name in ("llm", "test")
    ]
    file = tmp_path / "both.yaml"
    file.write_text(yaml.safe_dump_all(both))

    rows = list(csv.DictReader(io.StringIO(run("plan", file, "-n", "llm", "-o", "csv"))))

    things = ("SERVER", "TYPE", "REPLICAS", "CARDS", "COST CENTS/HOUR", "COST CENTS/MONTH")
    assert [tuple(row[thing] for thing in things) for row in rows] == [
        ("Free-granite-13b", "G2", "1", "1", "25.00", "18250.00"),
        ("Premium-granite-13b", "G2", "2", "2", "50.00", "36500.00"),
        ("TOTAL class Free", "", "1", "1", "25.00", "18250.00"),
        ("TOTAL class Premium", "", "2", "2", "50.00", "36500.00"),
        ("TOTAL type G2", "G2", "3", "3", "75.00", "54750.00"),
        ("TOTAL", "", "3", "3", "75.00", "54750.00"),
    ]


def test_nothing_comes_before_the_json_of_the_exact_solver() -> None:
    printed = inferno("plan", ROOT / "samples/fleet", "-o", "json", stdin=b"").stdout

    assert printed.startswith(b"{")
    assert json.loads(printed)["certificate"]["solver"] == "milp"


def test_no_highs_is_installed_that_prints_to_standard_output() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )

    (highs,) = (r for r in map(Requirement, dependencies) if r.name == "highspy")

    assert not highs.specifier.contains("1.16.0")
    assert highs.specifier.contains(pinned["highspy"])
