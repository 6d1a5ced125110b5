"""Who else writes the number of replicas of a workload; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.controllers.actuation.autoscalers import ScaleTarget, scaler_of
from inferno_operator.resources.objects import Manifest, Place
from inferno_operator.runtime.ports import FieldManager


@dataclass(frozen=True, slots=True)
class ForeignWriter:
    """Another writer of the number of replicas, and when this operator may write again.

    `until` is None as long as the writer exists: then it would set the number back at once.
    """

    name: str
    until: datetime | None = None

    @property
    def message(self) -> str:
        """What the writer is, and what to do."""
        stop = "remove it, or set spec.actuation to Publish"
        if self.until is None:
            return f"{self.name} scales the workload too: {stop}"
        return (
            f"{self.name} changed the number of replicas: stop that writer, or set"
            f" spec.actuation to Publish; the operator sets the number after"
            f" {self.until:%H:%M:%S} UTC"
        )


def autoscaler_of(place: Place, scalers: Mapping[ScaleTarget, str]) -> ForeignWriter | None:
    """Return the autoscaler that scales a workload."""
    name = scaler_of(place, scalers)
    return None if name is None else ForeignWriter(name)


def last_writer(manifest: Manifest, part: str = "") -> str | None:
    """Return who has set the number of replicas last; None: the operator, "": nobody knows.

    The API server notes no time with managers that use the scale subresource, and no manager at
    all once somebody has set 0 with it, whoever sets the number with it later. All roles of a
    serving, one of which is the `part`, have the same managers; our controller of ModelBoosters
    is one of them, and keeps their numbers.
    """
    sets = _sets_roles if part else _sets
    owners = [entry for entry in manifest["metadata"].get("managedFields", ()) if sets(entry)]
    managers = [entry.get("manager", "") for entry in owners]
    ours = {FieldManager.ACTUATION, FieldManager.BOOSTERS} if part else {FieldManager.ACTUATION}
    if ours.intersection(managers):
        return None
    return f"field manager {managers[-1]!r}" if managers else ""


def _sets(entry: Manifest) -> bool:
    return "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})


def _sets_roles(entry: Manifest) -> bool:
    spec = entry.get("fieldsV1", {}).get("f:spec", {})
    return "f:roles" in spec.get("f:template", {})
