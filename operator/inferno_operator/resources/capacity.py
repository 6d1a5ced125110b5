"""Capacity: how many cards of each type there are."""

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from inferno_operator.resources.base import AGE, READY, Column, Resource, Status
from inferno_operator.resources.schema import (
    Items,
    NonEmptyText,
    NonNegativeInteger,
    Part,
    Rule,
    Total,
    without_fraction,
)

Percent = Annotated[int, Field(ge=1, le=100), BeforeValidator(without_fraction)]


class Count(Part):
    """The cards of one type."""

    type: NonEmptyText
    """Type of card, as in an accelerator's spec.type."""
    count: NonNegativeInteger = 0
    """Available cards of the type."""


class Share(Part):
    """The part of a pool of cards that a namespace may use, besides other namespaces."""

    percent: Percent
    """Part of the cards of each type that others do not hold [%]; if all parts exceed 100 together,
    each is reduced in proportion.
    """


class CapacitySpec(Part):
    """Counts of cards; those of several Capacity objects add up."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give count, or fromNodes",
            "has(self.count) || (has(self.fromNodes) && self.fromNodes)",
            lambda spec: "count" in spec.model_fields_set or spec.from_nodes,
        ),
        Rule(
            "share takes effect with fromNodes",
            "!has(self.share) || (has(self.fromNodes) && self.fromNodes)",
            lambda spec: spec.share is None or spec.from_nodes,
        ),
    )

    count: Items[Count] = ()
    """Available cards, one item per type; with fromNodes, the most of each type."""
    from_nodes: bool = False
    """Count the cards of the nodes, less those that the pods of others request."""
    share: Share | None = None
    """Part of the counted cards that this namespace may use, if others use the same nodes."""


class CountedCards(Part):
    """The cards of one type that were counted."""

    type: str
    """Type of card."""
    total: Total
    """Cards of the nodes that take new pods."""
    others: Total
    """Cards of these that pods of others request."""
    ours: Total
    """Cards of these that pods of this namespace's Servers request."""
    free: Total
    """Cards of these that no pod requests."""
    available: Total
    """Cards that optimizations of this namespace hand out."""
    bound_by: str
    """What limits `available`: nodes, spec.count, spec.share, or the name of a quota."""


class CountedNode(Part):
    """The cards of one type on a node."""

    name: str
    """Name of the node."""
    type: str
    """Type of card."""
    total: Total
    """Cards of the node."""
    others: Total
    """Cards that pods of others request."""
    ours: Total
    """Cards that the pods of the Servers of this namespace request."""


class UnmatchedCards(Part):
    """Cards of nodes that are of no accelerator's type."""

    resource: str
    """Name of the cards in requests of pods, such as nvidia.com/gpu; empty if nodes offer none."""
    label: str
    """Most telling label of the nodes, as name=value; may be empty."""
    nodes: Total
    """Number of nodes."""
    cards: Total
    """Number of cards."""
    example: str
    """Name of one of the nodes."""
    message: str
    """What to write so that the cards are counted."""


class CapacityStatus(Status):
    """What the operator says about a Capacity."""

    counted: Items[CountedCards] = ()
    """Cards that were counted, one item per type; absent without spec.fromNodes."""
    nodes: Items[CountedNode] = ()
    """The counted nodes, by name: the first 2,000."""
    nodes_left_out: Total | None = None
    """Number of counted nodes that are not listed; absent if all are."""
    unmatched: Items[UnmatchedCards] = ()
    """Cards that are not counted, because they are of no accelerator's type."""


class Capacity(Resource):
    """Capacity is how many cards of each type the servers of a namespace can use."""

    kind: ClassVar[str] = "Capacity"
    plural: ClassVar[str] = "capacities"
    short_names: ClassVar[tuple[str, ...]] = ("cap",)
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        Column("Counted", '.status.conditions[?(@.type=="Counted")].reason'),
        AGE,
        Column("Cards", ".spec.count", wide=True),  # as JSON; of a list path only one item shows
    )

    spec: CapacitySpec
    status: CapacityStatus = CapacityStatus()

    @property
    def is_uncounted(self) -> bool:
        """Whether the cards are to be counted, and never were."""
        condition = self.status.condition("Counted")
        is_counted = self.status.counted or (condition is not None and condition.status == "True")
        return self.spec.from_nodes and not is_counted
