"""ServiceClass: how important its servers are, and what they promise."""

from typing import Annotated, ClassVar

from pydantic import Field

from inferno_operator.resources.base import AGE, READY, Column, Resource
from inferno_operator.resources.schema import (
    Items,
    NonEmptyText,
    NonNegativeInteger,
    Number,
    Part,
)

Percentile = Annotated[Number, Field(ge=1, le=99.999)]


class Target(Part):
    """Service level objectives of one model; absent or 0 means no target."""

    model: NonEmptyText
    """The model's spec.name."""
    slo_itl: Annotated[Number | None, Field(alias="slo-itl")] = None
    """Inter-token latency [ms]; without a percentile the mean."""
    slo_ttw: Annotated[Number | None, Field(alias="slo-ttw")] = None
    """Waiting (queueing) time [ms]; without a percentile about the 95th, taken as 3.0 times the
    mean."""
    slo_ttft: Annotated[Number | None, Field(alias="slo-ttft")] = None
    """Time to first token [ms]; without a percentile the mean."""
    slo_tps: Annotated[Number | None, Field(alias="slo-tps")] = None
    """Throughput [tokens/s]."""
    slo_ttw_percentile: Annotated[Percentile | None, Field(alias="slo-ttw-percentile")] = None
    """Share of the requests that have to stay within slo-ttw [percent]."""
    slo_ttft_percentile: Annotated[Percentile | None, Field(alias="slo-ttft-percentile")] = None
    """Share of the requests that have to stay within slo-ttft [percent]."""
    slo_itl_percentile: Annotated[Percentile | None, Field(alias="slo-itl-percentile")] = None
    """Share of requests whose mean inter-token latency must meet slo-itl [percent]; without
    stepParms the mean of all requests must.
    """


class ServiceClassSpec(Part):
    """A priority, and the targets of each model."""

    name: NonEmptyText
    """Name that servers refer to."""
    priority: NonNegativeInteger = 0
    """1 (most important) to 100 (least); 0 and more than 100 count as 100."""
    min_replicas: NonNegativeInteger = 0
    """Fewest replicas of each of its servers, also without load; 2 survives the loss of a node."""
    data: Items[Target] = ()
    """Targets, one item per model."""


class ServiceClass(Resource):
    """ServiceClass is a level of service: a priority and the targets of each model."""

    kind: ClassVar[str] = "ServiceClass"
    plural: ClassVar[str] = "serviceclasses"
    short_names: ClassVar[tuple[str, ...]] = ("svcclass",)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Class", ".spec.name"),
        Column("Priority", ".spec.priority", "integer"),
        READY,
        AGE,
    )

    spec: ServiceClassSpec
