"""Reads what runs of a Server whose spec is not valid: the mistake may be in another field."""

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from inferno_operator.resources.base import Metadata
from inferno_operator.resources.objects import Manifest
from inferno_operator.resources.schema import (
    MAX_NAME,
    Amount,
    Items,
    NonNegativeInteger,
    Part,
    Quantity,
    ShortText,
)
from inferno_operator.resources.server import Server

_CutText = Annotated[str, Field(min_length=1), AfterValidator(lambda text: text[:MAX_NAME])]
"""A name that may be too long: what runs is counted nevertheless."""


class _Running(Part):
    """The part of an allocation that cards and their cost follow from."""

    accelerator: ShortText
    num_replicas: Amount
    starting_replicas: NonNegativeInteger | None = None
    cost: Quantity | None = None


class _AllRunning(_Running):
    """All of a server."""

    mix: Items[_Running] = ()


class _Spec(Part):
    """The part of a spec that names what runs."""

    name: _CutText
    service_class: Annotated[_CutText, Field(alias="class")]
    model: _CutText
    current_alloc: _AllRunning


class _Remains(Part):
    """The part of a Server that is read."""

    metadata: Metadata
    spec: _Spec


def remains_of(manifest: Manifest) -> Server | None:
    """Return a Server with its names and what runs alone; None if not even that can be read."""
    try:
        remains = _Remains.model_validate(manifest, by_alias=True, by_name=False)
    except ValidationError:
        return None
    return Server.model_validate(remains.to_json(), by_alias=True, by_name=False)
