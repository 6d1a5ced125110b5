"""Parses what-if changes such as `server.chat.load.arrivalRate*=1.5` into a Change.

A change is KIND.NAME.FIELD, an operator and a value. Names may contain dots, so the system is
needed to separate the name from the field: see `what_if`.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from inferno_optimizer.errors import InputError

EVERY = "*"
"""Without quotes, this name matches every object of the kind."""

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PLAIN = r'[^."=]+'
_CHANGE = re.compile(
    rf"\s*(?P<path>(?:{_QUOTED}|{_PLAIN}?)(?:\.(?:{_QUOTED}|{_PLAIN}?))*)"
    r"\s*(?P<operator>[-+*]?=)\s*(?P<value>.*?)\s*",
    re.DOTALL,
)
_SEGMENT = re.compile(rf"{_QUOTED}|{_PLAIN}")
_NEEDS_NO_QUOTES = re.compile(r"[\w-]*\w(?:\.[\w-]*\w)*", re.ASCII)

_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+=": operator.add,
    "-=": operator.sub,
    "*=": operator.mul,
}


class Segment(NamedTuple):
    """A part of a path between two dots; a quoted part may itself contain dots."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A change of one field; `text` is the change as the user wrote it."""

    text: str
    path: tuple[Segment, ...]
    operator: str
    value: str

    @property
    def kind(self) -> str:
        """The kind of the changed object: the first word of the path."""
        return self.path[0].text

    def splits(self) -> Iterator[tuple[str, str]]:
        """Every way to split the path after the kind into name and field, longest name first."""
        path = self.path[1:]
        if path and path[0].quoted:
            yield path[0].text, _joined(path[1:])
            return
        for end in range(len(list(takewhile(lambda part: not part.quoted, path))), 0, -1):
            yield _joined(path[:end]), _joined(path[end:])

    @property
    def every(self) -> bool:
        """Whether the change applies to every object of the kind."""
        return self.path[1:2] == (Segment(EVERY),)

    def applied_to(self, old: object) -> object:
        """The new value of a field, with the type of the old value.

        The product with an integer is rounded to an integer, half up.

        Raises
        ------
        InputError
            The value does not fit the field.
        """
        if self.operator == "=":
            return self._like(old)
        if isinstance(old, bool) or not isinstance(old, int | float):
            raise self.error(f"{self.operator} is for numbers only")
        whole = isinstance(old, int)
        amount = self._integer() if whole and self.operator != "*=" else self._number()
        result = _ARITHMETIC[self.operator](old, amount)
        if not math.isfinite(result):
            raise self.error("the result is not finite")
        return math.floor(result + 0.5) if whole else result

    def error(self, problem: str) -> InputError:
        """An error that names this change."""
        return InputError(f"{self.text}: {problem}")

    def _like(self, old: object) -> object:
        """The value, converted to the type of the old value."""
        if isinstance(old, bool):
            return self._flag()
        if isinstance(old, int):
            return self._integer()
        # Every field that may be absent (None) is a number.
        return self._number() if old is None or isinstance(old, float) else self.value

    def _flag(self) -> bool:
        if self.value not in ("true", "false"):
            raise self._expected("true or false")
        return self.value == "true"

    def _integer(self) -> int:
        number = self._number()
        if not number.is_integer():
            raise self._expected("an integer")
        return int(number)

    def _number(self) -> float:
        try:
            number = float(self.value)
        except ValueError:
            raise self._expected("a number") from None
        if not math.isfinite(number):
            raise self._expected("a finite number")
        return number

    def _expected(self, what: str) -> InputError:
        return self.error(f"expected {what}, not {self.value!r}")


def parse_change(text: str) -> FieldChange:
    """Parse a change.

    Parameters
    ----------
    text
        `KIND.NAME.FIELD=VALUE`, or with `+=`, `-=`, `*=`. A name in double quotes is taken
        literally (escapes as in JSON); without quotes `*` matches every name.

    Raises
    ------
    InputError
        The text is not a change; the message says what is expected.
    """
    match = _CHANGE.fullmatch(text)
    if match is None:
        raise InputError(f"{text}: expected KIND.NAME.FIELD=VALUE, such as capacity.A100=8")
    path = tuple(_segment(part, text) for part in _SEGMENT.findall(match["path"]))
    return FieldChange(text, path, match["operator"], _unquoted(match["value"], text))


def quote_name(name: str) -> str:
    """The name as it is written in a change: in quotes if it needs them."""
    return name if _NEEDS_NO_QUOTES.fullmatch(name) else json.dumps(name)


def _segment(part: str, text: str) -> Segment:
    return Segment(_unquoted(part, text), quoted=part.startswith('"'))


def _unquoted(part: str, text: str) -> str:
    if not part.startswith('"'):
        return part
    try:
        return str(json.loads(part, strict=False))
    except json.JSONDecodeError as error:
        raise InputError(f"{text}: {part} is no quoted text: {error.msg}") from None


def _joined(segments: tuple[Segment, ...]) -> str:
    return ".".join(segment.text for segment in segments)
