"""Flags of engines, which they understand, also where the original writes others."""

import pytest

from inferno_operator.controllers.boosters.serving import flags
from inferno_operator.resources.dialects import KTHENA
from tests.unit.operator.controllers.boosters.making import (
    FACTS,
    asking,
    backend,
    child,
    engine,
    worker,
)

OTHERWISE: dict[str, list[str]] = {
    "1e+06": ["1000000"],
    "1.234567e+06": ["1234567"],
    "[x 1 true]": ['["x",1,true]'],
    "map[a:b k:1]": ['{"k":1,"a":"b"}'],
    "<nil>": [],
}
"""What the original writes as Go prints it, which some engines cannot parse, and what we write."""


@pytest.mark.parametrize(("value", "text"), FACTS["numbers"] + FACTS["values"])
def test_values_are_those_of_the_original_but_for_known_differences(
    value: object, text: str
) -> None:
    flag = [] if value is None else ["--a"]

    assert flags({"a": value}) == [*flag, *OTHERWISE.get(text, [text])]


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (1000000, ["1000000"]),
        (0.9, ["0.9"]),
        ("", []),
        (True, ["true"]),
        ([1, "x"], ['[1,"x"]']),
        ({"a": {"b": 1}}, ['{"a":{"b":1}}']),
    ],
)
def test_a_flag_has_a_value_that_engines_read(value: object, parts: list[str]) -> None:
    assert flags({"a_flag": value}) == ["--a-flag", *parts]


def test_null_asks_for_no_flag() -> None:
    assert flags({"a": None}) == []


def test_flags_are_sorted_by_the_key_as_it_is_written() -> None:
    assert flags({"b-a": "", "b_a": "", "B": "", "maxModelLen": 1}) == [
        "--B",
        "--b-a",
        "--b-a",
        "--maxModelLen",
        "1",
    ]


def test_switches_can_be_bare() -> None:
    config = {"a": True, "b": False}

    assert flags(config) == ["--a", "true", "--b", "false"]
    assert flags(config, bare_switches=True) == ["--a"]


def test_bare_switches_are_asked_for_by_an_annotation() -> None:
    asked = asking("bare-switches", backend(workers=[worker(config={"trust-remote-code": True})]))

    command = engine(child(asked, KTHENA.serving, "m-a"))["command"]

    assert command[command.index("--trust-remote-code") + 1] == "--kv-events-config"
