"""Kinds of values in JSON documents, of which other modules make tables of keys.

A value that does not fit raises a `MisfitError`; each level that the error passes adds its key,
so that the message has the path of the value. Keys match regardless of case; absent and null
values are zero. Reading ignores unknown keys, as the published API does; `ignored` lists them, and
the nulls.
"""

import json
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from inferno_optimizer.suggestions import alternatives

LONGEST_SHOWN = 40
"""Largest number of characters of a wrong value that a message shows."""

LARGEST_INTEGER = 2**63 - 1
"""Largest integer of 64 bits, as in the published API."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair: JSON can escape one alone, but UTF-8 cannot encode it."""

Schema = Mapping[str, Any]
"""A JSON schema."""

T = TypeVar("T")
C = TypeVar("C")
E = TypeVar("E", bound=StrEnum)


class MisfitError(Exception):
    """A value that does not fit; callers add the path of the value while the error propagates."""

    def __init__(self, problem: str, *, is_null: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_null = is_null
        self.place = ""
        self.named = False

    def inside(self, key: str) -> Self:
        """Prepend the key of an object to the path, unless the path begins with a name."""
        if not self.named:
            self.place = f"{key}.{self.place}" if self.place else key
        return self

    def of(self, name: str) -> Self:
        """Prepend the name of an item to the path."""
        self.place = f"{name}: {self.place}" if self.place else name
        self.named = True
        return self

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" if self.place else self.problem


def expected(what: str, value: object) -> MisfitError:
    """The error that says what was expected instead of a value."""
    return MisfitError(f"expected {what}, not {_shown(value)}")


def _object(value: object) -> Mapping[Any, object]:
    if isinstance(value, Mapping):
        return value
    raise expected("an object", value)


def _shown(value: object) -> str:
    """The value as JSON text, shortened."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def value_of(document: object, key: str) -> object:
    """Value of a key that matches regardless of case; None if there is no such key."""
    if not isinstance(document, Mapping):
        return None
    values = [value for name, value in document.items() if str(name).lower() == key.lower()]
    return values[-1] if values else None


class FieldKind(Protocol[T]):
    """How a value in a document is read and written; `zero` is the value of an absent key."""

    @property
    def zero(self) -> T:
        """The value if the key is absent or null."""

    @property
    def schema(self) -> Schema:
        """JSON schema of what `read` accepts; null, which means absent, is not included."""

    def read(self, value: object, /) -> T:
        """Convert parsed JSON to the value, or raise a MisfitError."""

    def write(self, value: T, /) -> object:
        """Convert the value to what JSON can represent."""

    def ignored(self, value: object, /) -> Iterator[MisfitError]:
        """The keys in parsed JSON that `read` ignores; none if the value does not fit."""


def _nothing_ignored(_: object) -> Iterator[MisfitError]:
    return iter(())


def unknown_key(key: object, known: Sequence[str]) -> MisfitError:
    """The error for an unknown key, with similar known keys."""
    return MisfitError(f"is unknown{alternatives(str(key), known)}").inside(str(key))


@dataclass(frozen=True, slots=True)
class Scalar(Generic[T]):
    """A string, number or boolean."""

    zero: T
    read: Callable[[object], T]
    write: Callable[[T], object]
    schema: Schema = field(default_factory=dict)
    ignored: Callable[[object], Iterator[MisfitError]] = _nothing_ignored


def read_text(value: object) -> str:
    """Read a string that UTF-8 can encode, or raise a MisfitError."""
    if not isinstance(value, str):
        raise expected("a string", value)
    if not value.isascii() and (half := SURROGATE.search(value)):
        raise MisfitError(f"character {half.start() + 1} is half of a surrogate pair")
    return value


def _read_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise expected("true or false", value)


def read_integer(value: object) -> int:
    """Read an integer, or raise a MisfitError; 2.0 is not an integer in the published API."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_INTEGER:
        return value
    raise expected("an integer", value)


def read_number(value: object) -> float:
    """Read a finite number, or raise a MisfitError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise expected("a number", value)
    if not abs(value) <= sys.float_info.max:  # NaN compares false
        raise expected("a finite number", value)
    return float(value)


def _read_share(value: object) -> float:
    number = read_number(value)
    if 0 <= number <= 1:
        return number
    raise expected("a number from 0 to 1", value)


def optional(kind: FieldKind[T]) -> Scalar[T | None]:
    """The kind of a value that may be absent; None then stands for it."""

    def write(value: T | None) -> object:
        return None if value is None else kind.write(value)

    return Scalar(None, kind.read, write, kind.schema, kind.ignored)


def choice(zero: E, known: Iterable[E], what: str) -> Scalar[E]:
    """The kind of a member of an enumeration; `what` is what messages call one."""
    members = {str(member): member for member in known}

    def read(value: object) -> E:
        if member := members.get(read_text(value)):
            return member
        raise MisfitError(f"{value!r} is not {what} that is known")

    return Scalar(zero, read, str)


def within(kind: str, largest: float) -> Schema:
    """JSON schema of numbers of a type from -largest to largest."""
    return MappingProxyType({"type": kind, "minimum": -largest, "maximum": largest})


def nullable(schema: Schema) -> Schema:
    """The schema extended to accept null."""
    if "type" not in schema or isinstance(schema["type"], list):
        return schema
    return {**schema, "type": [schema["type"], "null"]}


def _read_texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise expected("a list", value)
    return tuple(map(read_text, value))


TEXT = Scalar("", read_text, str, MappingProxyType({"type": "string"}))
TEXTS: Scalar[tuple[str, ...]] = Scalar(
    (), _read_texts, list, MappingProxyType({"type": "array", "items": dict(TEXT.schema)})
)
FLAG = Scalar(False, _read_flag, bool, MappingProxyType({"type": "boolean"}))
INTEGER = Scalar(0, read_integer, int, within("integer", LARGEST_INTEGER))
NUMBER = Scalar(0.0, read_number, float, MappingProxyType({"type": "number"}))
SHARE = Scalar(
    0.0, _read_share, float, MappingProxyType({"type": "number", "minimum": 0, "maximum": 1})
)

ORIGIN: dict[str, tuple[str, FieldKind[Any]]] = {
    "origin": ("origin", TEXT),
    "errorPercent": ("error_percent", NUMBER),
}
"""Keys that say where performance data come from, and the predictions that are made by them."""


def without_origin(source: object) -> Iterator[str]:
    """The keys of `ORIGIN` that say nothing of a value, and are not written."""
    return (key for key, (name, _) in ORIGIN.items() if not getattr(source, name))


class _Field(NamedTuple):
    argument: str
    kind: FieldKind[Any]
    get: Callable[[object], Any]


class Object(Generic[T]):
    """A JSON object that represents a value.

    Parameters
    ----------
    make
        Builds the value from keyword arguments.
    keys
        For each key the attribute of the value, dotted for a nested attribute, and its kind.
        The last part of the attribute is the argument of `make`, unless a third item names
        the argument.
    left_out
        Returns the keys not to write for a value; by default every key is written.
    unused
        Keys of the published API that Inferno knows but does not use.
    """

    def __init__(
        self,
        make: Callable[..., T],
        keys: Mapping[str, tuple[str, FieldKind[Any]] | tuple[str, FieldKind[Any], str]],
        left_out: Callable[[T], Container[str]] = lambda _: (),
        unused: Sequence[str] = (),
    ) -> None:
        self._make = make
        self._left_out = left_out
        self._unused = frozenset(key.lower() for key in unused)
        self._fields = {
            key: _Field((*name, attribute.rpartition(".")[2])[0], kind, attrgetter(attribute))
            for key, (attribute, kind, *name) in keys.items()
        }
        self._in_any_case = {key.lower(): entry for key, entry in self._fields.items()}
        self._zeros = {entry.argument: entry.kind.zero for entry in self._fields.values()}
        self.zero = make(**self._zeros)

    @property
    def kinds(self) -> Mapping[str, FieldKind[Any]]:
        """The kind of each key."""
        return {key: entry.kind for key, entry in self._fields.items()}

    @property
    def schema(self) -> Schema:
        """JSON schema of the object; every key may be absent or null."""
        properties = {key: nullable(entry.kind.schema) for key, entry in self._fields.items()}
        return {"type": "object", "properties": properties}

    def read(self, value: object, /) -> T:
        """Build the value from the keys of the object; absent keys count as zero."""
        arguments = dict(self._zeros)
        for key, part in _object(value).items():
            entry = self._fields.get(key) or self._in_any_case.get(str(key).lower())
            if entry is None or part is None:
                continue
            try:
                arguments[entry.argument] = entry.kind.read(part)
            except MisfitError as misfit:
                raise misfit.inside(str(key)) from None
        return self._make(**arguments)

    def ignored(self, value: object, /) -> Iterator[MisfitError]:
        """The unknown keys of the object and of the values inside it, and numbers that are null."""
        for key, part in value.items() if isinstance(value, Mapping) else ():
            if entry := self._in_any_case.get(str(key).lower()):
                if part is None and isinstance(entry.kind.zero, int | float):
                    counted = MisfitError(
                        f"is null, and counts as {entry.kind.zero:g}", is_null=True
                    )
                    yield counted.inside(str(key))
                yield from (misfit.inside(str(key)) for misfit in entry.kind.ignored(part))
            elif str(key).lower() not in self._unused:
                yield unknown_key(key, list(self._fields))

    def write(self, value: T, /) -> dict[str, Any]:
        """Write every key that is not left out."""
        left_out = self._left_out(value)
        return {
            key: entry.kind.write(entry.get(value))
            for key, entry in self._fields.items()
            if key not in left_out
        }


class List(Generic[T, C]):
    """A JSON list of objects that represents a collection.

    Parameters
    ----------
    noun, identity
        What messages call an item, and the keys that identify it.
    item
        Kind of the items.
    collect, spread
        Convert the items to the collection, and the collection to its items.
    """

    def __init__(
        self,
        noun: str,
        identity: tuple[str, ...],
        item: Object[T],
        collect: Callable[[Iterable[T]], C],
        spread: Callable[[C], Iterable[T]],
    ) -> None:
        self._noun = noun
        self._identity = identity
        self._item = item
        self._collect = collect
        self._spread = spread
        self.zero = collect(())

    @property
    def schema(self) -> Schema:
        """JSON schema of the list."""
        return {"type": "array", "items": self._item.schema}

    def read(self, value: object, /) -> C:
        """Read each item; an error gets the name of its item."""
        if not isinstance(value, list):
            raise expected("a list", value)
        return self._collect([self._read_item(item, place) for place, item in enumerate(value)])

    def _read_item(self, item: object, place: int) -> T:
        try:
            return self._item.read(item)
        except MisfitError as misfit:
            raise misfit.of(self._name(item, place)) from None

    def ignored(self, value: object, /) -> Iterator[MisfitError]:
        """The ignored keys of each item, with the name of the item."""
        for place, item in enumerate(value if isinstance(value, list) else ()):
            name = self._name(item, place)
            yield from (misfit.of(name) for misfit in self._item.ignored(item))

    def _name(self, item: object, place: int) -> str:
        """Name of an item for a message; its position if it has no name."""
        names = [name for key in self._identity if isinstance(name := value_of(item, key), str)]
        return f"{self._noun} {'/'.join(names)!r}" if any(names) else f"{self._noun} [{place}]"

    def write(self, value: C, /) -> list[dict[str, Any]]:
        """Write each item."""
        return [self._item.write(item) for item in self._spread(value)]


class Section(Generic[T]):
    """A JSON object with a single key; it represents the value of that key."""

    def __init__(self, key: str, kind: FieldKind[T]) -> None:
        self._key = key
        self._kind = kind
        self.zero = kind.zero

    @property
    def schema(self) -> Schema:
        """JSON schema of the object with the key."""
        return {"type": "object", "properties": {self._key: nullable(self._kind.schema)}}

    def read(self, value: object, /) -> T:
        """Read the value of the key."""
        part = value_of(_object(value), self._key)
        if part is None:
            return self.zero
        try:
            return self._kind.read(part)
        except MisfitError as misfit:
            raise misfit.inside(self._key) from None

    def ignored(self, value: object, /) -> Iterator[MisfitError]:
        """The other keys of the object, and the ignored keys inside its value."""
        for key, part in value.items() if isinstance(value, Mapping) else ():
            if str(key).lower() != self._key.lower():
                yield unknown_key(key, [self._key])
            else:
                yield from (misfit.inside(self._key) for misfit in self._kind.ignored(part))

    def write(self, value: T, /) -> dict[str, Any]:
        """Write the object with the key."""
        return {self._key: self._kind.write(value)}


def last_of_each(*names: str) -> Callable[[Iterable[T]], tuple[T, ...]]:
    """A function that collects values; of values with the same name it keeps the last one."""
    name = attrgetter(*names)
    return lambda values: tuple({name(value): value for value in values}.values())
