"""What README says of worth, trust and time follows from the replay, measurements and tools."""

import re
from functools import cache

import pytest

from tests.controlplane.programs import PROGRAMS
from tests.h100.limits import USUAL_RATE, limits
from tests.reference.shown import ROOT

COMMAND = "$ inferno replay fleet.yaml"
"""The table under it is compared with a fresh replay in `test_commands.py`."""

SERVERS, MINUTES = 20, 6 * 60

LESS = re.compile(r"`?(\S+?)`? costs (\d+) % less than `(\S+?)`( and keeps ([\d.]+) points more)?")


@cache
def section(heading: str = "What is it worth?") -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return " ".join(readme.partition(f"## {heading}\n")[2].partition("\n## ")[0].split())


@cache
def figures() -> dict[str, dict[str, float]]:
    """The first table of the replay: the columns of each policy."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = readme.partition(COMMAND)[2].splitlines()[1:]
    head, *rows = lines[: lines.index("")]
    names = re.split(r"\s{2,}", head)
    return {
        cells[0]: {
            name: float(cell.rstrip("%")) for name, cell in zip(names[1:], cells[1:], strict=True)
        }
        for cells in (re.split(r"\s+", row) for row in rows)
    }


def claims() -> list[tuple[str, int, str, float | None]]:
    text = section().replace("- It costs", "- `inferno` costs")
    return [
        (cheaper, int(percent), dearer, float(points) if points else None)
        for cheaper, percent, dearer, _, points in LESS.findall(text)
    ]


def test_the_readme_compares_with_everybody_who_keeps_as_much() -> None:
    compared = {name for cheaper, _, dearer, _ in claims() for name in (cheaper, dearer)}

    assert compared == {"inferno", "static-peak", "hpa@best", "static-peak@best"}


@pytest.mark.parametrize(("cheaper", "percent", "dearer", "points"), claims())
def test_a_share_of_the_cost_is_that_of_the_table(
    cheaper: str, percent: int, dearer: str, points: float | None
) -> None:
    first, second = figures()[cheaper], figures()[dearer]

    assert percent == round(100 * (1 - first["COST/H"] / second["COST/H"]))
    if points is not None:
        assert points == round(first["WITHIN"] - second["WITHIN"], 1)


def test_the_minutes_are_those_of_the_table() -> None:
    found = re.search(r"`inferno` misses (\d+) of (\d+).*; `static-peak` misses (\d+)", section())

    assert found is not None
    assert int(found[1]) == figures()["inferno"]["MISSED MIN"]
    assert int(found[2]) == SERVERS * MINUTES
    assert int(found[3]) == figures()["static-peak"]["MISSED MIN"]


def test_the_errors_of_predictions_are_those_of_the_measurements() -> None:
    itl, ttft, *_ = limits()
    found = re.search(
        r"up to (\d+) requests/s, the mean ITL was predicted within (\d+) % .* within (\d+) %",
        section("What can you trust?"),
    )

    assert (itl.name, ttft.name) == ("ITL, random arrivals", "TTFT, random arrivals")
    assert found is not None
    assert [int(number) for number in found.groups()] == [
        USUAL_RATE,
        *(round(100 * abs(limit.worst[1])) for limit in (itl, ttft)),
    ]


def test_the_minutes_of_the_first_test_are_those_of_all_builds() -> None:
    said = re.search(r"about (\d+) minutes on two cores", section("In a copy of the project"))
    minutes = sum(int(program.build_time.split()[0]) for program in PROGRAMS.values())

    assert said is not None
    assert abs(int(said[1]) - minutes) <= 2
