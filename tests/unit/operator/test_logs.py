"""Log lines for programs: one JSON object each, with the object that it is about."""

import json
import logging
import sys

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


def test_a_line_has_time_level_logger_and_message() -> None:
    fields = line("%d servers", 2)

    assert fields.pop("time").endswith("+00:00")
    assert fields == {"level": "info", "logger": "inferno", "message": "2 servers"}


def test_a_line_about_an_object_has_its_namespace_and_name() -> None:
    fields = line("%s: done", KEY)

    assert (fields["namespace"], fields["name"], fields["message"]) == ("llm", "a", "llm/a: done")


def test_a_line_about_an_object_of_a_kind_has_that_too() -> None:
    fields = line("%s: %s", Reference(kind_of(Server), KEY, "u", "1"), "done")

    assert (fields["kind"], fields["namespace"], fields["name"]) == ("Server", "llm", "a")


def test_an_exception_stays_on_its_line() -> None:
    try:
        int("two\nlines")
    except ValueError:
        fields = line("broke", broken=True)

    assert "ValueError: invalid literal" in fields["exception"]
