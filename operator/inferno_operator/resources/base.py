"""What all kinds have in common: metadata, conditions, status, names, printed columns."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from inferno_operator.resources.schema import (
    ATOMIC,
    Items,
    NonEmptyText,
    Part,
    Time,
    Total,
)

GROUP = "inferno.platform.ai"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


class OwnerReference(Part):
    """An object that another one is deleted with."""

    uid: str


class Metadata(Part):
    """The part of a Kubernetes object's metadata that a reconciler needs."""

    name: NonEmptyText
    namespace: str = ""
    uid: str = ""
    generation: Total = 0
    resource_version: str = ""
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    finalizers: Items[str] = ()
    owner_references: Items[OwnerReference] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Condition(Part):
    """One aspect of the object's state, as `metav1.Condition` has it."""

    model_config = ConfigDict(json_schema_extra=ATOMIC)

    type: Annotated[str, Field(max_length=316, pattern=r"^[A-Za-z0-9]([A-Za-z0-9_./-]*)$")]
    """Name of the aspect, such as Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    observed_generation: Total | None = None
    """Generation of the object that the condition was set for."""
    last_transition_time: Time
    """When the status last changed."""
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ]
    """CamelCase word for the cause of the last change."""
    message: Annotated[str, Field(max_length=32768)]
    """Details for a person; may be empty."""


class Status(Part):
    """What the operator says about the object."""

    active: bool = False
    """The optimizer took the object."""
    observed_generation: Total | None = None
    """Generation of the object that this status is about."""
    conditions: Annotated[
        Items[Condition],
        Field(
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            }
        ),
    ] = ()
    """Aspects of the object's state, one item per type."""

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of this type, or None."""
        return next((item for item in self.conditions if item.type == type_), None)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; `wide` ones appear with `-o wide` only."""

    name: str
    json_path: str
    type: Literal["boolean", "date", "integer", "number", "string"] = "string"
    wide: bool = False


READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')
AGE = Column("Age", ".metadata.creationTimestamp", "date")


class Resource(Part):
    """A custom resource. Kinds add their spec, names and columns."""

    kind: ClassVar[str]
    plural: ClassVar[str]
    short_names: ClassVar[tuple[str, ...]]
    categories: ClassVar[tuple[str, ...]] = ("inferno",)
    columns: ClassVar[tuple[Column, ...]]

    metadata: Metadata
    spec: Part
    status: Status = Status()

    @property
    def age(self) -> tuple[datetime, str]:
        """What to sort by to have the oldest first; of those born at once, by name."""
        created = self.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC)
        return created, self.metadata.name

    @classmethod
    def type_of_status(cls) -> type[Status]:
        """Return the type of the status of this kind."""
        default: Status = cls.model_fields["status"].default
        return type(default)

    def to_json(self) -> dict[str, Any]:
        """Return the manifest with the fields that were given."""
        return {"apiVersion": API_VERSION, "kind": self.kind, **super().to_json()}

    @classmethod
    def json_of(cls, **fields: object) -> dict[str, Any]:
        """Return the manifest with these fields, whose values are known to be right."""
        return {"apiVersion": API_VERSION, "kind": cls.kind, **super().json_of(**fields)}
