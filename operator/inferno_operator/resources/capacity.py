"""Capacity: how many cards of each type there are."""

from typing import ClassVar

from inferno_operator.resources.base import AGE, READY, Column, Resource
from inferno_operator.resources.schema import Items, NonEmptyText, NonNegativeInteger, Part


class Count(Part):
    """The cards of one type."""

    type: NonEmptyText
    """Type of card, as in an accelerator's spec.type."""
    count: NonNegativeInteger = 0
    """Available cards of the type."""


class CapacitySpec(Part):
    """Counts of cards; those of several Capacity objects add up."""

    count: Items[Count]
    """Available cards, one item per type."""


class Capacity(Resource):
    """Capacity is how many cards of each type the servers of a namespace can use."""

    kind: ClassVar[str] = "Capacity"
    plural: ClassVar[str] = "capacities"
    short_names: ClassVar[tuple[str, ...]] = ("cap",)
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        AGE,
        Column("Cards", ".spec.count", wide=True),  # as JSON; of a list path only one item shows
    )

    spec: CapacitySpec
