"""HorizontalPodAutoscalers: which workload each scales, and which ScaledObject made it."""

from collections.abc import Mapping, Sequence

from inferno_operator.resources.objects import HORIZONTAL_POD_AUTOSCALER, Manifest, Place
from inferno_operator.runtime.ports import GoneError, Reader, RejectedError


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
