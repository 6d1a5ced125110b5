"""What custom resources are made of: strict scalars, lists, objects and rules across fields.

Values are taken as the API server takes them: an integer may be written `4.0` but not `"4"`,
a number is finite, an empty (null) field is an absent one, an unknown field is ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    AllowInfNan,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    Strict,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Item = TypeVar("Item")

FIRST_TIME = datetime.min.replace(tzinfo=UTC)
LAST_TIME = datetime.max.replace(tzinfo=UTC)


def without_fraction(value: object) -> object:
    """Return an integer that is written with a fraction of zero as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _in_utc(time: datetime) -> datetime:
    """Return a time in UTC; one that is beyond the calendar there is the first or last of it."""
    try:
        return time.astimezone(UTC)
    except OverflowError:
        return FIRST_TIME if time.year == FIRST_TIME.year else LAST_TIME


def _rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


MAX_NAME = 253
"""Longest name [characters], as Kubernetes has it for objects and labels."""

MAX_COUNT = 2**31 - 1
"""Largest count that people set; sums of products of counts stay within 64 bits."""

_MOST = Field(le=MAX_COUNT)

Integer = Annotated[int, BeforeValidator(without_fraction)]
Total = Annotated[int, Field(ge=0), BeforeValidator(without_fraction)]
"""A sum of counts, or a version of the API server."""
BoundedInteger = Annotated[int, _MOST, BeforeValidator(without_fraction)]
NonNegativeInteger = Annotated[int, Field(ge=0), _MOST, BeforeValidator(without_fraction)]
PositiveInteger = Annotated[int, Field(ge=1), _MOST, BeforeValidator(without_fraction)]
Number = Annotated[float, AllowInfNan(False)]
_NOT_NEGATIVE = Field(json_schema_extra={"minimum": 0})
"""For the API server only: of an object that is stored already, the operator tells the field."""

Quantity = Annotated[Number, _NOT_NEGATIVE]
Amount = Annotated[BoundedInteger, _NOT_NEGATIVE]
Fraction = Annotated[float, AllowInfNan(False), Field(ge=0, le=1)]
ShortText = Annotated[str, Field(max_length=MAX_NAME)]
NonEmptyText = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Time = Annotated[
    AwareDatetime,
    Strict(False),
    AfterValidator(_in_utc),
    PlainSerializer(_rfc3339, when_used="json"),
]
Items = Annotated[tuple[Item, ...], Strict(False)]

ATOMIC: JsonDict = {"x-kubernetes-map-type": "atomic"}
"""Schema of an object whose fields have one manager, who sets all of them.

`managedFields` then has one entry for it instead of one for each of its fields, which saves the
API server a quarter of the time of a decision.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A check across the fields of one object, made by the API server and by us alike.

    The API server evaluates `cel`; `holds` is the same for manifests that never meet it.
    """

    message: str
    cel: str
    holds: Callable[[Any], bool]


class Part(BaseModel):
    """An object inside a manifest: immutable, snake_case here and camelCase there."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        validate_by_alias=True,
        validate_by_name=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: object) -> object:
        """Drop null fields before defaults are filled in, as the API server does.

        An unknown field stays, so that it can be found.
        """
        if not isinstance(value, Mapping):
            return value
        if isinstance(value, dict) and None not in value.values():
            return value  # as nearly all are
        known = cls.__pydantic_fields__
        names = {*known, *(field.alias for field in known.values())}
        return {key: item for key, item in value.items() if item is not None or key not in names}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        if cls.rules:
            schema["x-kubernetes-validations"] = [
                {"rule": rule.cel, "message": rule.message} for rule in cls.rules
            ]
        return reference

    def model_post_init(self, _: object, /) -> None:
        """Check the rules of what was read."""
        for rule in self.rules:
            if not rule.holds(self):
                raise ValueError(rule.message)
        _share_given_fields(self)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, with some fields changed."""
        copied = super().model_copy(update=update, deep=deep)
        _share_given_fields(copied)
        return copied

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object with the fields that were given, under their JSON names."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)

    @classmethod
    def json_of(cls, **fields: object) -> dict[str, Any]:
        """Return the JSON object of these fields, whose values are known to be right.

        It is that of `cls(**fields).to_json()`, in a fifth of the time; what is None is left out.
        """
        infos = cls.__pydantic_fields__
        return {
            infos[name].serialization_alias or name: value
            for name, value in fields.items()
            if value is not None
        }


def _share_given_fields(part: Part) -> None:
    """Let all objects with the same fields have one set of their names: each takes half as much."""
    given = _the_same(frozenset(part.__pydantic_fields_set__))
    object.__setattr__(part, "__pydantic_fields_set__", given)


@lru_cache(maxsize=1024)
def _the_same(fields: frozenset[str]) -> set[str]:
    """A set of these fields, the same one each time; nothing changes it, as parts are frozen."""
    return set(fields)
