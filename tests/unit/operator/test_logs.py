"""Log lines for programs: one JSON object each, with the object that it is about."""

import json
import logging
import sys

import pytest

from inferno_operator.logs import JsonFormatter
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, Reference, kind_of

KEY = Key("llm", "a")


def line(message: str, *arguments: object, broken: bool = False) -> dict[str, str]:
    error = sys.exc_info() if broken else None
    record = logging.LogRecord("inferno", logging.INFO, "f", 1, message, arguments, error)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    fields: dict[str, str] = json.loads(text)
    return fields


@pytest.mark.parametrize(
    ("message", "arguments", "fields"),
    [
        ("%d servers", (2,), {"message": "2 servers"}),
        ("%s: done", (KEY,), {"namespace": "llm", "name": "a", "message": "llm/a: done"}),
        (
            "%s: %s",
            (Reference(kind_of(Server), KEY, "u", "1"), "done"),
            {"kind": "Server", "namespace": "llm", "name": "a", "message": "Server llm/a: done"},
        ),
    ],
)
def test_a_line_has_its_time_and_the_object_that_it_is_about(
    message: str, arguments: tuple[object, ...], fields: dict[str, str]
) -> None:
    found = line(message, *arguments)

    assert found.pop("time").endswith("+00:00")
    assert found == {"level": "info", "logger": "inferno", **fields}


def test_an_exception_stays_on_its_line() -> None:
    try:
        int("two\nlines")
    except ValueError:
        fields = line("broke", broken=True)

    assert "ValueError: invalid literal" in fields["exception"]
