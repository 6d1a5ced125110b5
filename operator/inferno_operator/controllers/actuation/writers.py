"""Who else writes the number of replicas of a workload; pure but for the list of autoscalers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.resources.objects import HORIZONTAL_POD_AUTOSCALER, Manifest, Place
from inferno_operator.runtime.ports import FieldManager, GoneError, Reader, RejectedError


async def list_autoscalers(reader: Reader, namespace: str) -> Sequence[Manifest]:
    """Return the autoscalers of a namespace, or of all (""); none without the right to list."""
    try:
        return (await reader.list(HORIZONTAL_POD_AUTOSCALER, namespace)).manifests
    except (GoneError, RejectedError):
        return ()


ScaleTarget = tuple[str, str, str]
"""The API group, the kind and the name of an object that an autoscaler scales."""


def target_of(autoscaler: Manifest) -> ScaleTarget:
    """Return the API group, the kind and the name of the object that an autoscaler scales."""
    target = autoscaler.get("spec", {}).get("scaleTargetRef", {})
    group = target.get("apiVersion", "").rpartition("/")[0]
    return group, target.get("kind", ""), target.get("name", "")


def scaled_object_of(autoscaler: Manifest) -> str | None:
    """Return the name of the ScaledObject that an autoscaler belongs to, if it does."""
    owners = autoscaler["metadata"].get("ownerReferences", ())
    return next((owner["name"] for owner in owners if owner["kind"] == "ScaledObject"), None)


def scalers_of(autoscalers: Sequence[Manifest]) -> Mapping[ScaleTarget, str]:
    """Return what scales each object: a HorizontalPodAutoscaler, or the ScaledObject behind it.

    Of several that scale the same object it is the first.
    """
    return {target_of(autoscaler): _title(autoscaler) for autoscaler in reversed(autoscalers)}


def scaler_of(place: Place, scalers: Mapping[ScaleTarget, str]) -> str | None:
    """Return what scales an object, of `scalers_of` a namespace; None if nothing does."""
    return scalers.get((place.kind.group, place.kind.kind, place.key.name))


def _title(autoscaler: Manifest) -> str:
    own = f"HorizontalPodAutoscaler {autoscaler['metadata']['name']!r}"
    scaled_object = scaled_object_of(autoscaler)
    return own if scaled_object is None else f"ScaledObject {scaled_object!r} with {own}"


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
