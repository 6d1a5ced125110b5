"""Accelerator: one or more cards of a type that are rented as a unit."""

from typing import Annotated, ClassVar

from pydantic import Field

from inferno_operator.resources.base import AGE, READY, Column, Resource
from inferno_operator.resources.schema import (
    BoundedInteger,
    Fraction,
    Items,
    NonEmptyText,
    NonNegativeInteger,
    Part,
    PositiveInteger,
    Quantity,
    Rule,
    ShortText,
)

MAX_LABELS = 64
"""Most labels of a selector."""


class Power(Part):
    """Power curve of one accelerator; no solver uses it."""

    idle: NonNegativeInteger
    """Power when idle [W]."""
    full: NonNegativeInteger
    """Power at full utilization [W]."""
    mid_power: NonNegativeInteger
    """Power at the inflection point [W]."""
    mid_util: Fraction
    """Utilization at the inflection point, 0 to 1."""


class NodeSelection(Part):
    """Which nodes have the cards of an accelerator."""

    selector: Annotated[dict[str, ShortText], Field(min_length=1, max_length=MAX_LABELS)]
    """Labels that the nodes have."""
    resource: NonEmptyText = "nvidia.com/gpu"
    """Name of the cards in requests of pods."""
    tolerates: Items[NonEmptyText] = ()
    """Keys of taints that the pods of Servers tolerate, besides those of accelerators."""


class AcceleratorSpec(Part):
    """What an accelerator is and costs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "type and multiplicity do not change, as replicas run on these cards: make a new"
            " Accelerator",
            "self.type == oldSelf.type && self.multiplicity == oldSelf.multiplicity",
            lambda _: True,
        ),
    )

    name: NonEmptyText
    """Name that models and servers refer to, such as 2xA100."""
    type: NonEmptyText
    """Type of card, such as A100; capacity is counted per type."""
    multiplicity: PositiveInteger = 1
    """Cards of the type that make up one accelerator."""
    mem_size: BoundedInteger | None = None
    """Memory of all cards together [GB]; not used by the optimizer."""
    mem_bw: Annotated[BoundedInteger | None, Field(alias="memBW")] = None
    """Memory bandwidth of all cards together [GB/s]; not used by the optimizer."""
    power: Power | None = None
    """Power curve; not used by the optimizer."""
    cost: Quantity
    """Cost of one accelerator, all its cards together [cents/hour]."""
    nodes: NodeSelection | None = None
    """Which nodes have its cards, for a Capacity with fromNodes; absent: those whose usual labels
    name the type.
    """


class Accelerator(Resource):
    """Accelerator is a unit of hardware that a replica of a model can run on."""

    kind: ClassVar[str] = "Accelerator"
    plural: ClassVar[str] = "accelerators"
    short_names: ClassVar[tuple[str, ...]] = ("acc",)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Accelerator", ".spec.name"),
        Column("Type", ".spec.type"),
        Column("Cards", ".spec.multiplicity", "integer"),
        Column("Cost", ".spec.cost", "number"),
        READY,
        AGE,
        Column("Memory", ".spec.memSize", "integer", wide=True),
        Column("Bandwidth", ".spec.memBW", "integer", wide=True),
    )

    spec: AcceleratorSpec
