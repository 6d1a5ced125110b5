"""`--currency`: the same costs in another unit, in every table, and in no document for programs."""

import csv
import json
import os
from io import StringIO
from pathlib import Path

import pytest

from inferno_operator.cli.inferno.main import main
from tests.cli.program import ROOT, SAMPLE, inferno
from tests.in_process import called
from tests.reference.commands import contexts

TRACE = ROOT / "samples/traces/servegen-m-large.csv"
FLEET = ROOT / "samples/fleet"
REPLAYED = (FLEET, "--trace", TRACE, "--scale", "0.3", "--hours", "3")

COMMANDS = {
    "plan": ("plan", SAMPLE),
    "what if": ("plan", SAMPLE, "--set", "server.*.load.arrivalRate*=10"),
    "explain": ("explain", SAMPLE, "Premium-granite-13b"),
    "floor": ("floor", *REPLAYED),
    "replay": ("replay", *REPLAYED, "--policy", "static-peak"),
}
MONEY = {"COST", "COST/H", "REGRET/H", "VALUE"}
"""Words of headings under which there is money."""


@pytest.mark.parametrize("command", ["plan", "what if"])
def test_a_hundredth_of_the_currency_is_a_cent(command: str) -> None:
    arguments = (*COMMANDS[command], "-o", "csv")
    cents, euros = (
        list(csv.reader(StringIO(inferno(*arguments, *more).stdout.decode())))
        for more in ((), ("--currency", "EUR"))
    )
    costs = [place for place, heading in enumerate(cents[0]) if MONEY & {*heading.split()}]

    assert [euros[0][place].replace("EUR", "CENTS") for place in costs[-2:]] == [
        cents[0][place] for place in costs[-2:]
    ]
    assert len(costs) == 4
    for row, other in zip(cents[1:], euros[1:], strict=True):
        for place, (cell, changed) in enumerate(zip(row, other, strict=True)):
            if place in costs and cell:
                assert float(changed) == pytest.approx(float(cell) / 100, abs=0.005)
            else:
                assert changed == cell


@pytest.mark.parametrize("command", COMMANDS)
def test_no_table_has_another_unit_than_the_one_asked_for(command: str) -> None:
    printed = inferno(*COMMANDS[command], "--currency", "EUR").stdout.decode()

    assert "EUR/hour" in printed
    assert "cents" not in printed


@pytest.mark.parametrize("command", ["plan", "explain", "floor"])
def test_a_document_stays_in_cents(command: str) -> None:
    usual, asked = (
        json.loads(inferno(*COMMANDS[command], "-o", "json", *more).stdout)
        for more in ((), ("--currency", "EUR"))
    )
    for document in (usual, asked):
        if isinstance(document, dict):
            document.pop("certificate", None)  # it has how long it took

    assert asked == usual


def test_a_variable_says_it_for_all_commands() -> None:
    environment = {**os.environ, "INFERNO_CURRENCY": "€"}
    printed = called(main, COMMANDS["explain"], environment=environment).stdout.decode()

    assert "\ncosts in €/hour\n" in printed


@pytest.mark.parametrize("name", ["", "E U", "EUR2", "Doubloons"])
def test_what_is_no_currency_is_refused_in_a_line(name: str) -> None:
    printed = inferno(*COMMANDS["explain"], "--currency", name)

    assert printed.returncode == 2
    assert printed.stderr.decode().startswith(f"inferno: --currency: {name!r} is no symbol or code")


def test_every_command_that_prints_money_has_the_option() -> None:
    offering = {
        context.command_path
        for context in contexts()
        if any("--currency" in parameter.opts for parameter in context.command.params)
    }
    kubectl = (
        "plan",
        "optimize",
        "explain",
        "top",
        "plans",
        "diff",
        "approve",
        "reject",
        "console",
        "console-server",
    )
    offline = ("size", "plan", "explain", "report", "replay", "study", "floor")

    assert offering == {
        *(f"inferno {name}" for name in offline),
        *(f"kubectl inferno {name}" for name in kubectl),
    }


def test_a_page_has_the_unit_too(tmp_path: Path) -> None:
    file = tmp_path / "plan.html"

    inferno("report", SAMPLE, "--html", file, "--currency", "CHF")

    assert "CHF/hour" in file.read_text(encoding="utf-8")
    assert "cents" not in file.read_text(encoding="utf-8")
