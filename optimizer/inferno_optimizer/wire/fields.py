"""Kinds of values in JSON documents, of which `tables` makes one table of keys for each class.

    JSON --check--> document --build--> what the optimizer computes with --write--> JSON
                             --fill---> what the REST server keeps and shows

A document is a dict that nobody changes: it has the known keys that were sent, spelled as
published, with values of the right type. Keys match regardless of case; null counts as absent, and
what is absent as zero. Unknown keys are left out, as in the published API; `ignored` lists them.

A value that does not fit raises a `MisfitError`; each level that the error passes adds its key,
so that the message has the path of the value.
"""

import json
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
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

LARGEST_NUMBER = 3.4028234663852886e38
"""What 32 bits hold, in which the original keeps numbers, and so a REST server."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair: JSON can escape one alone, but UTF-8 cannot encode it."""

Schema = Mapping[str, Any]
"""A JSON schema."""

Document = Mapping[str, Any]

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
    if isinstance(value, Mapping):
        return MisfitError(f"expected {what}, not an object")
    if isinstance(value, list):
        return MisfitError(f"expected {what}, not a list")
    text = json.dumps(value, ensure_ascii=False, default=str)
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
    return MisfitError(f"expected {what}, not {shown}")


def value_of(document: object, key: str) -> object:
    """Value of a key that matches regardless of case; None if there is no such key."""
    if not isinstance(document, Mapping):
        return None
    values = [value for name, value in document.items() if str(name).lower() == key.lower()]
    return values[-1] if values else None


class FieldKind(Protocol[T]):
    """How a value in a document is read and written.

    `zero` is the value of an absent key, and `empty` what a REST server shows of it.
    """

    @property
    def zero(self) -> T:
        """The value if the key is absent or null."""

    @property
    def empty(self) -> object:
        """What `fill` shows of an absent key."""

    @property
    def schema(self) -> Schema:
        """JSON schema of what `check` accepts; null, which means absent, is not included."""

    @property
    def check(self) -> Callable[[object, bool], Any]:
        """Convert parsed JSON to a document, or raise a MisfitError.

        A REST server also keeps keys that the optimizer does not use, and has numbers of 32 bits.
        """

    @property
    def build(self) -> Callable[[Any], T] | None:
        """Convert a document to the value; None where it is the value already."""

    @property
    def fill(self) -> Callable[[Any], object]:
        """Add to a document every key of the first generation of the API."""

    def write(self, value: T, /) -> object:
        """Convert the value to what JSON can represent."""

    def ignored(self, value: object, /) -> Iterator[MisfitError]:
        """The keys in parsed JSON that have no effect; none if the value does not fit."""


@dataclass(frozen=True, slots=True)
class Scalar(Generic[T]):
    """A string, number or boolean, or what is read by functions of its own."""

    zero: T
    check: Callable[[object, bool], Any]
    write: Callable[[T], object]
    schema: Schema = field(default_factory=dict)
    build: Callable[[Any], T] | None = None
    empty: object = None
    fill: Callable[[Any], object] = lambda document: document
    ignored: Callable[[object], Iterator[MisfitError]] = lambda _: iter(())


def _check_text(value: object, _: bool = False) -> str:
    """Return a string that UTF-8 can encode, or raise a MisfitError."""
    if not isinstance(value, str):
        raise expected("a string", value)
    if not value.isascii() and (half := SURROGATE.search(value)):
        raise MisfitError(f"character {half.start() + 1} is half of a surrogate pair")
    return value


def _check_texts(value: object, _: bool) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise expected("a list", value)
    return tuple(map(_check_text, value))


def _check_flag(value: object, _: bool) -> bool:
    if value is True or value is False:
        return value
    raise expected("true or false", value)


def _check_integer(value: object, _: bool) -> int:
    """2.0 is not an integer in the published API."""
    if type(value) is int and -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
        return value
    raise expected("an integer", value)


def check_number(value: object, is_kept: bool = False) -> float:
    """Return a finite number, or raise a MisfitError."""
    if type(value) is not float and type(value) is not int:
        raise expected("a number", value)
    if not abs(value) <= sys.float_info.max:  # NaN compares false
        raise expected("a finite number", value)
    if is_kept and abs(value) > LARGEST_NUMBER:
        raise expected(f"a number up to {LARGEST_NUMBER:.4g}", value)
    return float(value)


def _check_share(value: object, _: bool) -> float:
    number = check_number(value)
    if 0 <= number <= 1:
        return number
    raise expected("a number from 0 to 1", value)


def _within(kind: str, largest: float) -> Schema:
    """JSON schema of numbers of a type from -largest to largest."""
    return MappingProxyType({"type": kind, "minimum": -largest, "maximum": largest})


TEXT = Scalar("", _check_text, str, MappingProxyType({"type": "string"}), empty="")
TEXTS: Scalar[tuple[str, ...]] = Scalar(
    (), _check_texts, list, MappingProxyType({"type": "array", "items": dict(TEXT.schema)})
)
FLAG = Scalar(False, _check_flag, bool, MappingProxyType({"type": "boolean"}), empty=False)
INTEGER = Scalar(0, _check_integer, int, _within("integer", LARGEST_INTEGER), empty=0)
NUMBER = Scalar(0.0, check_number, float, _within("number", LARGEST_NUMBER), empty=0.0)
SHARE = Scalar(
    0.0, _check_share, float, MappingProxyType({"type": "number", "minimum": 0, "maximum": 1})
)


def optional(kind: FieldKind[T]) -> Scalar[T | None]:
    """The kind of a value that may be absent; None then stands for it."""

    def write(value: T | None) -> object:
        return None if value is None else kind.write(value)

    return Scalar(
        None, kind.check, write, kind.schema, kind.build, kind.empty, kind.fill, kind.ignored
    )


def choice(zero: E, known: Iterable[E], what: str) -> Scalar[E]:
    """The kind of a member of an enumeration; `what` is what messages call one."""
    members = {str(member): member for member in known}

    def check(value: object, _: bool) -> str:
        if (text := _check_text(value)) in members:
            return text
        raise MisfitError(f"{value!r} is not {what} that is known")

    return Scalar(zero, check, str, TEXT.schema, lambda text: members.get(text, zero), "")


def nullable(schema: Schema) -> Schema:
    """The schema extended to accept null."""
    if "type" not in schema or isinstance(schema["type"], list):
        return schema
    return {**schema, "type": [schema["type"], "null"]}


Keys = Mapping[str, tuple[str, FieldKind[Any]] | tuple[str, FieldKind[Any], str]]


class _Field(NamedTuple):
    key: str
    argument: str
    kind: FieldKind[Any]
    get: Callable[[object], Any]
    is_later: bool


class Object(Generic[T]):
    """A JSON object that represents a value.

    Parameters
    ----------
    make
        Builds the value from keyword arguments.
    keys
        For each key the attribute of the value, dotted for a nested attribute, and its kind.
        The last part of the attribute is the argument of `make`, unless a third item names
        the argument. Without an attribute the optimizer does not use the key.
    later
        Keys of later generations of the API: a REST server shows them only where they were sent.
    left_out
        Returns the keys not to write for a value; by default every key is written.
    """

    def __init__(
        self,
        make: Callable[..., T],
        keys: Keys,
        later: Container[str] = (),
        left_out: Callable[[T], Container[str]] = lambda _: (),
    ) -> None:
        self._make = make
        self._left_out = left_out
        self._fields = {
            key: _Field(
                key,
                (*argument, attribute.rpartition(".")[2])[0],
                kind,
                attrgetter(attribute),
                key in later,
            )
            for key, (attribute, kind, *argument) in keys.items()
        }
        self._in_any_case = {key.lower(): entry for key, entry in self._fields.items()}
        used = {key: entry for key, entry in self._fields.items() if entry.argument}
        self._used = list(used)
        self._zeros = {entry.argument: entry.kind.zero for entry in used.values()}
        self._builders = {key: (entry.argument, entry.kind.build) for key, entry in used.items()}
        self._writers = [(key, entry.kind.write, entry.get) for key, entry in used.items()]
        self.zero = make(**self._zeros)
        self.empty = self.fill({})

    @property
    def schema(self) -> Schema:
        """JSON schema of the object; every key may be absent or null."""
        entries = sorted(self._fields.values(), key=attrgetter("is_later"))
        properties = {entry.key: nullable(entry.kind.schema) for entry in entries}
        return {"type": "object", "properties": properties}

    def check(self, value: object, is_kept: bool = False, /) -> dict[str, Any]:
        """Return the known keys of the object that are not null, checked."""
        if type(value) is not dict and not isinstance(value, Mapping):
            raise expected("an object", value)
        document = {}
        for key, part in value.items():
            entry = self._fields.get(key) or self._in_any_case.get(str(key).lower())
            if entry is None or part is None or not (entry.argument or is_kept):
                continue
            try:
                document[entry.key] = entry.kind.check(part, is_kept)
            except MisfitError as misfit:
                raise misfit.inside(str(key)) from None
        return document

    def build(self, document: Document, /) -> T:
        """Build the value from a checked document; absent keys count as zero."""
        arguments = {**self._zeros}
        for key, part in document.items():
            if part is not None and key in self._builders:
                argument, build = self._builders[key]
                arguments[argument] = part if build is None else build(part)
        return self._make(**arguments)

    def read(self, value: object, /) -> T:
        """Build the value from parsed JSON, or raise a MisfitError."""
        return self.build(self.check(value))

    def fill(self, document: Document, /) -> dict[str, Any]:
        """Add every key of the first generation to a checked document."""
        return {
            key: entry.kind.empty if part is None else entry.kind.fill(part)
            for key, entry in self._fields.items()
            if (part := document.get(key)) is not None or not entry.is_later
        }

    def keep(self, value: object, /) -> dict[str, Any]:
        """Return what a REST server keeps of parsed JSON, or raise a MisfitError."""
        return self.fill({} if value is None else self.check(value, True))

    def ignored(self, value: object, /) -> Iterator[MisfitError]:
        """The unknown keys of the object and of the values inside it, and numbers that are null."""
        for key, part in value.items() if isinstance(value, Mapping) else ():
            entry = self._in_any_case.get(str(key).lower())
            if entry is None:
                problem = f"is unknown{alternatives(str(key), self._used)}"
                yield MisfitError(problem).inside(str(key))
            elif entry.argument:
                if part is None and isinstance(entry.kind.zero, int | float):
                    problem = f"is null, and counts as {entry.kind.zero:g}"
                    yield MisfitError(problem, is_null=True).inside(str(key))
                yield from (misfit.inside(str(key)) for misfit in entry.kind.ignored(part))

    def write(self, value: T, /) -> dict[str, Any]:
        """Write every key that is used and not left out."""
        left_out = self._left_out(value)
        return {key: write(get(value)) for key, write, get in self._writers if key not in left_out}


class Section(Object[T]):
    """A JSON object with a single key; it represents the value of that key."""

    def __init__(self, key: str, kind: FieldKind[T]) -> None:
        super().__init__(lambda **parts: parts[key], {key: (key, kind)})
        self._key, self._kind = key, kind

    def write(self, value: T, /) -> dict[str, Any]:
        """Write the object with the key."""
        return {self._key: self._kind.write(value)}


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

    empty = None

    def __init__(
        self,
        noun: str,
        identity: tuple[str, ...],
        item: Object[T],
        collect: Callable[[Iterable[T]], C],
        spread: Callable[[Any], Iterable[T]] = tuple,
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

    def check(self, value: object, is_kept: bool = False, /) -> list[dict[str, Any]]:
        """Check each item; an error gets the name of its item."""
        if not isinstance(value, list):
            raise expected("a list", value)
        items = []
        for place, item in enumerate(value):
            try:
                items.append(self._item.check(item, is_kept))
            except MisfitError as misfit:
                raise misfit.of(self._name(item, place)) from None
        return items

    def build(self, items: Iterable[Document], /) -> C:
        """Build the collection of checked items."""
        return self._collect([self._item.build(item) for item in items])

    def fill(self, items: Iterable[Document], /) -> list[dict[str, Any]]:
        """Add every key of the first generation to checked items."""
        return [self._item.fill(item) for item in items]

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


def last_of_each(*names: str) -> Callable[[Iterable[T]], tuple[T, ...]]:
    """A function that collects values; of values with the same name it keeps the last one."""
    name = attrgetter(*names)
    return lambda values: tuple({name(value): value for value in values}.values())
