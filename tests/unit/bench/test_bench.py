"""The benchmark program: what it says of figures that are missed, and of cases that fail."""

import json
from pathlib import Path

import pytest

from inferno_operator.cli.offline.system import read_system
from inferno_optimizer.wire.codec import decode_system
from tests.bench.__main__ import PAGE, chosen
from tests.bench.isolation import Case, Outcome, measure
from tests.bench.manifests import manifests
from tests.bench.plan import ROWS, Limit, Row
from tests.bench.report import Report
from tests.generate import fleet

CASE = Case("request", {"servers": 10})
ROW = Row("row", "a figure", CASE, [Limit("seconds", 2.0, 1.0), Limit("gap", 1e-3)])


def report(outcome: Outcome) -> Report:
    return Report([ROW], {CASE.key: outcome})


@pytest.mark.parametrize(
    ("outcome", "missed"),
    [
        (Outcome({"seconds": 2.0, "gap": 0.0}), []),
        (Outcome({"seconds": 2.1, "gap": 0.0}), ["row"]),
        (Outcome({"seconds": 0.1, "gap": 0.1}), ["row"]),
        (Outcome({"seconds": 0.1}), ["row"]),
        (Outcome(trouble="no end within 120 s"), ["row"]),
    ],
)
def test_a_figure_is_reached_when_everything_it_asks_for_is(
    outcome: Outcome, missed: list[str]
) -> None:
    assert report(outcome).missed() == missed


def test_the_page_has_a_place_for_every_target(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())

    chosen(None, short=False).write_into(page)

    inside = page.read_text().split("<!-- bench:targets -->")[1].split("<!-- /bench:targets -->")[0]
    assert all(row.what in inside for row in ROWS)
    assert inside.count("\n|") == len(ROWS) + 2


def test_writing_twice_changes_nothing_and_lines_that_were_not_measured_stay(
    tmp_path: Path,
) -> None:
    page = tmp_path / "page.md"
    line = f"| {ROWS[0].what} | 1 s | - | 0.5 s | yes |"
    page.write_text(f"<!-- bench:targets -->\n{line}\n<!-- /bench:targets -->\nthe end\n")
    told = report(Outcome({"seconds": 0.5, "gap": 4.9e-5}))

    told.write_into(page)
    once = page.read_text()
    told.write_into(page)

    assert page.read_text() == once
    assert line in once
    assert "| a figure | 2 s, gap 0.1 % | 1 s | 0.5 s, gap 0.0049 % | yes |" in once
    assert once.endswith("the end\n")


def test_a_case_that_takes_too_long_is_a_line_and_not_the_end() -> None:
    assert measure(Case("request", {"servers": 10}, limit_s=0.01)).trouble == "no end within 0.01 s"


@pytest.mark.extended
def test_a_case_that_breaks_says_why() -> None:
    assert "no_such_dimension" in measure(Case("request", {"no_such_dimension": 1})).trouble


def test_a_case_is_measured_in_a_process_of_its_own() -> None:
    numbers = measure(Case("request", {"servers": 10, "accelerators": 3})).numbers

    assert numbers["seconds"] > 0
    assert 10 < numbers["mib"] < 1000


def test_custom_resources_say_the_same_as_the_document(tmp_path: Path) -> None:
    document = fleet(20, 15, seed=1, demand=1.0)
    path = tmp_path / "fleet.json"
    path.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests(document))})
    )

    by_manifests, by_document = read_system([str(path)]).by_name(), decode_system(document)

    assert by_manifests.servers == by_document.by_name().servers
    assert by_manifests.accelerators == by_document.by_name().accelerators
    assert by_manifests.profiles == by_document.by_name().profiles
    assert by_manifests.classes == by_document.by_name().classes
    assert by_manifests.capacity == by_document.by_name().capacity
