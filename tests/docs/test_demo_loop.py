"""The guide to `make demo-loop` shows one run: `python -m tests.day.page` puts it there."""

import re

from tests.day.__main__ import DAY_S
from tests.day.page import LEFT_OUT, command, shortened
from tests.day.show import announcement
from tests.reference.shown import ELIDED

SHOWN = command().output.splitlines()


def test_the_page_begins_with_what_the_day_announces() -> None:
    announced = announcement(DAY_S).splitlines()

    assert SHOWN[: len(announced)] == announced


def test_what_the_page_says_of_policies_follows_from_its_table() -> None:
    """So no line of it was written by hand beside another run."""
    row = re.compile(r"^([a-z-]+|this run) +(\d+\.\d\d) +(\d+\.\d\d)% ")
    rows = {m[1]: (float(m[2]), float(m[3])) for line in SHOWN if (m := row.match(line))}
    cost, within = rows.pop("this run")
    said = re.compile(r"^([a-z-]+): (\d+)% (more|less) cost, ([-+]\d+\.\d) points")
    told = {m[1]: m for line in SHOWN if (m := said.match(line))}

    assert told.keys() == rows.keys() - {"chat", "code", "agents", "search", "all"}
    for policy, match in told.items():
        change = (rows[policy][0] / cost - 1) * (1 if match[3] == "more" else -1)
        assert abs(100 * change - int(match[2])) <= 0.6
        assert abs(rows[policy][1] - within - float(match[4])) <= 0.06


def test_the_hours_between_two_are_left_out() -> None:
    hours = [f"{hour:02}:00  x" for hour in range(1, 25)]

    assert shortened(["head", *hours, "end"]) == [
        *("head", "01:00  x", ELIDED, "24:00  x", "end"),
    ]
    assert [line for line in SHOWN if line.startswith(LEFT_OUT)]
