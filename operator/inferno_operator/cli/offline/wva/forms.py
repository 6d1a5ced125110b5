"""The fields of WVA's objects that have a counterpart; others are kept by name, to tell of them.

A VariantAutoscaling describes one variant (`accelerator`, `variantProfile`), or a model with
several accelerators (`modelProfile`); in its newest form it has neither. Numbers are often texts.
"""

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import AllowInfNan, BeforeValidator, ConfigDict, Field, ValidationError

from inferno_operator.resources import Metadata
from inferno_operator.resources.parsing import bad_manifest
from inferno_operator.resources.schema import (
    Items,
    NonEmptyText,
    NonNegativeInteger,
    Part,
    PositiveInteger,
)
from inferno_optimizer.errors import InputError

Form = TypeVar("Form", bound=Part)


def _number(value: object) -> object:
    """A number that is written as a text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


Figure = Annotated[float, AllowInfNan(False), Field(ge=0), BeforeValidator(_number)]


class OpenPart(Part):
    """An object with fields that have no counterpart."""

    model_config = ConfigDict(extra="allow")

    @property
    def without_counterpart(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.model_extra or ())


class ScaleTarget(Part):
    """The object that an autoscaler scales."""

    api_version: str = "apps/v1"
    kind: str = "Deployment"
    name: NonEmptyText


class VariantParms(Part):
    """Parameters by their letters: alpha and beta, gamma and delta [ms]."""

    decode_parms: dict[str, Figure] = Field(default_factory=dict)
    prefill_parms: dict[str, Figure] = Field(default_factory=dict)


class VariantProfile(Part):
    """How a replica performs on an accelerator; that of a single variant does not name it."""

    acc: NonEmptyText | None = None
    acc_count: PositiveInteger | None = None
    perf_parms: VariantParms = VariantParms()
    max_batch_size: PositiveInteger | None = None


class ProfilesOfModel(Part):
    """The profiles of a model, one for each accelerator."""

    accelerators: Items[VariantProfile] = ()


class VariantAutoscalingSpec(OpenPart):
    """What is scaled, and what is known of it."""

    model_id: Annotated[NonEmptyText, Field(alias="modelID")]
    scale_target_ref: ScaleTarget | None = None
    accelerator: NonEmptyText | None = None
    accelerator_type: NonEmptyText | None = None
    accelerator_count: PositiveInteger | None = None
    variant_profile: VariantProfile | None = None
    model_profile: ProfilesOfModel = ProfilesOfModel()
    variant_cost: Figure | None = None
    min_replicas: NonNegativeInteger | None = None
    max_replicas: NonNegativeInteger | None = None
    slo_class_ref: dict[str, str] = Field(default_factory=dict)
    """Read by nobody: WVA takes the class that has the model."""


class VariantAutoscaling(Part):
    """A VariantAutoscaling."""

    metadata: Metadata
    spec: VariantAutoscalingSpec


class AutoscalerSpec(Part):
    """The fields of a HorizontalPodAutoscaler, and those of a ScaledObject."""

    scale_target_ref: ScaleTarget
    min_replicas: NonNegativeInteger | None = None
    max_replicas: NonNegativeInteger | None = None
    min_replica_count: NonNegativeInteger | None = None
    max_replica_count: NonNegativeInteger | None = None


class AnnotatedAutoscaler(Part):
    """A HorizontalPodAutoscaler or a ScaledObject with the annotations of WVA."""

    metadata: Metadata
    spec: AutoscalerSpec


class UnitCost(OpenPart):
    """An entry of the ConfigMap with unit costs: the device, and its cost [cents/hour]."""

    device: str = ""
    cost: Figure


class ModelTarget(OpenPart):
    """The targets of a model in a class [ms]."""

    model: NonEmptyText
    slo_tpot: Annotated[Figure | None, Field(alias="slo-tpot")] = None
    slo_ttft: Annotated[Figure | None, Field(alias="slo-ttft")] = None


class ClassOfService(OpenPart):
    """An entry of the ConfigMap with service classes."""

    name: NonEmptyText
    priority: NonNegativeInteger = 0
    data: Items[ModelTarget]


class ZeroSetting(OpenPart):
    """An entry of the ConfigMap about zero replicas; without a model it is the default."""

    model_id: Annotated[str, Field(alias="model_id")] = ""
    namespace: str = ""
    enable_scale_to_zero: Annotated[bool | None, Field(alias="enable_scale_to_zero")] = None


class QueueingSetting(OpenPart):
    """An entry of the ConfigMap of the queueing model: targets of a model [ms]."""

    model_id: Annotated[str, Field(alias="model_id")] = ""
    namespace: str = ""
    target_ttft: Annotated[Figure, Field(alias="targetTTFT")] = 0
    target_itl: Annotated[Figure, Field(alias="targetITL")] = 0


def read_form(form: type[Form], content: Mapping[str, object], origin: str) -> Form:
    """Read an object of a file.

    Raises
    ------
    InputError
        A field is missing or has a bad value; the text names file, object and field.
    """
    try:
        return form.model_validate(content, by_alias=True, by_name=False)
    except ValidationError as invalid:
        raise InputError(f"{origin}: {bad_manifest(content, invalid)}") from invalid
