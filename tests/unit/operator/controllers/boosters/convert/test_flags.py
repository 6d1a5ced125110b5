"""Flags of engines: ours, which they understand, and those of the original."""

import pytest

from inferno_operator.controllers.boosters.convert.flags import (
    flags,
    flags_of_the_original,
    text_in_go,
)
from inferno_operator.resources.dialects import KTHENA
from tests.unit.operator.controllers.boosters.making import (
    FACTS,
    asking,
    backend,
    child,
    engine,
    worker,
)


@pytest.mark.parametrize(("value", "text"), FACTS["numbers"] + FACTS["values"])
def test_the_original_prints_values_as_go_does(value: object, text: str) -> None:
    assert text_in_go(value) == text


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
    assert flags_of_the_original({"a": None}) == ["--a", "<nil>"]


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
