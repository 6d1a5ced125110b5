"""Where a Server's decision goes: the objects whose replicas serve it, one per accelerator."""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from inferno_operator.resources.schema import NonEmptyText, NonNegativeInteger, Part, Rule
from inferno_optimizer.system import Role, place_of

API_VERSION = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/v[0-9]+((alpha|beta)[0-9]+)?$"
"""A group and a version; no kind of the core runs inference servers."""


RoleName = Literal["Both", "Prefill", "Decode"]
"""What replicas do: whole requests, or one half of each."""


class Workload(Part):
    """An object whose replicas run the server on one accelerator, in one role."""

    accelerator: NonEmptyText
    """The accelerator's spec.name."""
    role: RoleName = "Both"
    """What its replicas do: whole requests, prefill or decode."""
    api_version: Annotated[str, Field(max_length=253, pattern=API_VERSION)] = "apps/v1"
    """Group and version of the object."""
    kind: NonEmptyText = "Deployment"
    """Kind of the object; it must have a scale subresource."""
    name: NonEmptyText
    """Name of the object, in the namespace of the Server."""

    @property
    def object_name(self) -> tuple[str, str, str, str]:
        """What its replicas are of: the object, and the role in it."""
        return self.api_version, self.kind, self.name, self.role

    @cached_property
    def place(self) -> str:
        """The accelerator, and the role if it is one half of each request."""
        return place_of(self.accelerator, Role(self.role))


class RecordedWorkload(Workload):
    """A workload with its number of replicas as the operator knows it."""

    replicas: NonNegativeInteger | None = None
    """The number that the operator wrote last or accepted; another number is by others."""
    uid: str = ""
    """The uid of the object: one that was created again has another."""

    @classmethod
    def of(cls, workload: Workload, replicas: int | None, uid: str) -> "RecordedWorkload":
        """Return what is recorded of a workload."""
        known = {"replicas": replicas, "uid": uid or None}
        return cls.model_validate({**workload.to_json(), **known})


def _is_unique(workloads: Iterable[Workload]) -> bool:
    places = [(workload.accelerator, workload.role) for workload in workloads]
    return len(set(places)) == len(places)


RULES = (
    Rule(
        "each accelerator has one workload for each role",
        "!has(self.workloads) || self.workloads.all(a,"
        " self.workloads.exists_one(b, b.accelerator == a.accelerator && b.role == a.role))",
        lambda spec: _is_unique(spec.workloads),
    ),
    Rule(
        "give workloads or modelBooster, not both",
        "!has(self.modelBooster) || !has(self.workloads) || size(self.workloads) == 0",
        lambda spec: spec.model_booster is None or not spec.workloads,
    ),
)
"""The rules of a ServerSpec about its workloads."""
