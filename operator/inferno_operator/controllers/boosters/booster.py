"""What a user writes: a ModelBooster, or a Model of MatrixInfer, as a frozen value."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from inferno_operator.resources.base import Metadata, Status
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Key, Manifest
from inferno_operator.resources.parsing import ManifestError, bad_manifest
from inferno_operator.resources.schema import Items, NonEmptyText, NonNegativeInteger, Part

Json = dict[str, Any]

ANNOTATION = "inferno.platform.ai/"
"""Prefix of the annotations by which a booster asks for what its schema has no field for."""

BOUNDS = ("minReplicas", "maxReplicas")
"""Fields of the fewest and most replicas, in boosters and in bindings."""

DEFAULT_COST_EXPANSION = 200
"""costExpansionRatePercent where the booster gives none [%]."""


class Worker(Part):
    """Pods of one role."""

    type: str = "server"
    image: str = ""
    replicas: NonNegativeInteger | None = None
    pods: NonNegativeInteger | None = None
    resources: Json = Field(default_factory=dict)
    affinity: Json | None = None
    tolerations: Items[Json] = ()
    config: Any = None


class LoraAdapter(Part):
    """An adapter that the engine loads beside the model."""

    name: NonEmptyText
    artifact_url: Annotated[NonEmptyText, Field(alias="artifactURL")]


class Backend(Part):
    """One way to run the model."""

    name: NonEmptyText
    type: NonEmptyText
    model_uri: Annotated[NonEmptyText, Field(alias="modelURI")]
    cache_uri: Annotated[str, Field(alias="cacheURI")] = ""
    env: Items[Json] = ()
    env_from: Items[Json] = ()
    min_replicas: NonNegativeInteger
    max_replicas: NonNegativeInteger
    scaling_cost: NonNegativeInteger = 0
    route_weight: NonNegativeInteger | None = None
    scale_to_zero_grace_period: str | None = None
    workers: Annotated[Items[Worker], Field(min_length=1)]
    lora_adapters: Items[LoraAdapter] = ()
    autoscaling_policy: Json | None = None
    scheduler_name: str = ""
    runtime_class_name: str | None = None

    def worker(self, type_: str) -> Worker | None:
        """The worker of a type; of several the last, as in the original."""
        return next((worker for worker in reversed(self.workers) if worker.type == type_), None)

    def setting(self, name: str, default: str) -> str:
        """What the environment says; a value from elsewhere is left to the kubelet to fill in."""
        entry = self._entry(name)
        if entry.get("valueFrom"):
            return f"$({name})"
        return str(entry.get("value") or default)

    def literal(self, name: str, default: str) -> str:
        """What the environment says literally; an entry without a value says nothing."""
        entry = self._entry(name)
        return str(entry.get("value") or "") if entry else default

    def _entry(self, name: str) -> Json:
        return next((item for item in self.env if item.get("name") == name), {})


class BoosterSpec(Part):
    """The backends of a model, and how they scale."""

    backends: Items[Backend] = ()
    autoscaling_policy: Json | None = None
    cost_expansion_rate_percent: NonNegativeInteger | None = None
    model_match: Json | None = None


class BackendStatus(Part):
    """How many replicas the serving of a backend has."""

    name: str
    replicas: int


class BoosterStatus(Status):
    """What is said about a booster."""

    backend_statuses: Items[BackendStatus] = ()


class Booster(Part):
    """A model with its backends."""

    metadata: Metadata
    spec: BoosterSpec = BoosterSpec()
    status: BoosterStatus = BoosterStatus()
    single: bool = False
    """It has the one `backend` of Kthena v1.0.0, whose status tells nothing of backends."""

    @property
    def key(self) -> Key:
        """Where it is."""
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def is_scaled(self) -> bool:
        """Whether any policy scales it."""
        policies = (
            self.spec.autoscaling_policy,
            *(b.autoscaling_policy for b in self.spec.backends),
        )
        return any(policy is not None for policy in policies)

    def child_name(self, backend: Backend) -> str:
        """The name of what is made for a backend."""
        return f"{self.metadata.name}-{backend.name}"

    def asks_for(self, wish: str) -> bool:
        """Whether an annotation of ours asks for something."""
        return self.metadata.annotations.get(ANNOTATION + wish) == "true"


def read_booster(manifest: Manifest, dialect: Dialect) -> Booster:
    """Return the booster that a manifest describes.

    Raises
    ------
    ManifestError
        It is no booster of this dialect, or a field is missing or has a bad value.
    """
    kind = dialect.booster
    for field, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if manifest.get(field) != wanted:
            raise ManifestError(manifest, field, f"must be {wanted}, not {manifest.get(field)!r}")
    try:
        return Booster.model_validate(_with_backends(manifest), by_alias=True, by_name=False)
    except ValidationError as invalid:
        raise bad_manifest(manifest, invalid) from invalid


def _with_backends(manifest: Manifest) -> Manifest:
    """Later releases of Kthena have one backend; the rest is written alike.

    In v1.0.0 it has a number of replicas, in those between bounds, and the policy beside it is
    its own: there is nothing to optimize among.
    """
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping) or "backends" in spec or "backend" not in spec:
        return manifest
    backend, rest = spec["backend"], dict(spec)
    if isinstance(backend, Mapping):
        policy = rest.pop("autoscalingPolicy", None)
        replicas = dict.fromkeys(BOUNDS, backend["replicas"]) if "replicas" in backend else {}
        backend = {"autoscalingPolicy": policy, **backend, **replicas}
    return {**manifest, "spec": {**rest, "backends": [backend]}, "single": True}
