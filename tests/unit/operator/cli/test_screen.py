"""What `top` shows on a screen that is too small for all."""

from collections.abc import Sequence

from inferno_operator.cli.overview import overview
from inferno_operator.cli.tables.order import RowOrder
from inferno_operator.cli.tables.screen import Screen
from tests.unit.operator.objects import (
    NOW,
    Manifest,
    condition,
    observed,
    running,
    server,
    service_class,
)

HIGH, LOW = service_class("High", priority=1), service_class("Low", priority=9)


def placed(name: str, class_name: str, message: str = "") -> Manifest:
    """A Server of a class; with a message there are no cards for it."""
    found = server(name, spec={"class": class_name, "currentAlloc": running(2, 2)})
    refused = condition("Ready", "NoCapacity", status="False", message=message)
    return {**found, "status": {"conditions": [refused] if message else []}}


def shown(
    manifests: Sequence[Manifest], height: int, order: RowOrder | None = None, trouble: str = ""
) -> list[str]:
    """Lines of a screen."""
    seen = overview([observed(m) for m in (HIGH, LOW, *manifests)])
    heading = [trouble, ""] if trouble else []
    text = Screen(160, height).text(seen, NOW, order or RowOrder(), heading)
    return text.plain.split("\n")


def names(lines: Sequence[str]) -> list[str]:
    """First words of the rows of servers."""
    return [line.split()[0] for line in lines if " x A " in line]


CALM = [placed(f"s{number:02}", "Low") for number in range(40)]
IMPORTANT = placed("z-important", "High")
TROUBLED = [placed("y-low", "Low", "no cards are left"), placed("x-high", "High", "none at all")]


def test_a_screen_with_room_for_all_shows_them_by_name() -> None:
    lines = shown([*CALM, IMPORTANT, *TROUBLED], 60)

    assert names(lines) == [*(f"s{n:02}" for n in range(40)), "x-high", "y-low", "z-important"]
    assert not any("no room" in line for line in lines)


def test_problems_come_first_then_important_classes_and_the_last_line_counts_the_others() -> None:
    lines = shown([*CALM, IMPORTANT, *TROUBLED], 16)

    assert names(lines) == ["x-high", "y-low", "z-important", *(f"s{n:02}" for n in range(6))]
    assert len(lines) == 16
    assert lines[-2].endswith("cost 860.00 now, no desired allocation (cents/hour)")
    assert lines[-1] == "no room for 34 of 43 servers; --once shows all"


def test_a_remark_on_a_fresh_measurement_is_no_problem() -> None:
    known = {"time": "2026-11-25T12:00:00Z", "quality": "Fresh", "arrivalRate": 60}
    lengths = {"avgInTokens": 500, "avgOutTokens": 200}
    copied = {**known, **lengths, "message": "each target has 2 copies, they differ in replica"}
    lacking = {**known, "message": "plans lack the mean lengths of requests"}
    first, last = placed("a-copied", "Low"), placed("z-lacking", "Low")
    for manifest, measured in ((first, copied), (last, lacking)):
        manifest["spec"]["measure"] = {"source": "vLLM", "labels": {"app": "a"}}
        manifest["status"]["measured"] = measured

    assert names(shown([first, *CALM, last], 16))[:2] == ["z-lacking", "a-copied"]


def test_notes_leave_most_lines_to_the_rows() -> None:
    lines = shown([placed(f"s{n:02}", "Low", f"too few: {n}") for n in range(40)], 20)

    notes = [line for line in lines if "too few" in line]
    assert (len(names(lines)), len(notes), len(lines)) == (10, 5, 20)
    assert lines[-1] == "no room for 30 of 40 servers and 35 of 40 notes; --once shows all"


def test_the_chosen_order_stays() -> None:
    order = RowOrder.asked("", "-server")

    assert names(shown([*CALM, *TROUBLED], 16, order))[:2] == ["y-low", "x-high"]
    assert names(shown([*CALM, IMPORTANT], 16, order))[:2] == ["z-important", "s39"]


def test_a_line_above_takes_room_too_and_the_smallest_screen_says_what_is_missing() -> None:
    lines = shown(CALM, 8, trouble="what is shown may be old")

    assert lines[0] == "what is shown may be old"
    assert names(lines) == ["s00", "s01"]
    assert lines[-1] == "no room for 38 of 40 servers; --once shows all"
