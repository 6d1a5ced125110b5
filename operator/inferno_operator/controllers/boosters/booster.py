"""A ModelBooster of Kthena, or a Model of MatrixInfer, as a frozen value."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from inferno_operator.resources.base import Metadata, Status
from inferno_operator.resources.dialects import Dialect, Release
from inferno_operator.resources.objects import Key, Manifest
from inferno_operator.resources.parsing import ManifestError, bad_manifest
from inferno_operator.resources.schema import Items, NonEmptyText, NonNegativeInteger, Part

Json = dict[str, Any]

ANNOTATION = "inferno.platform.ai/"
"""Prefix of the annotations for options that the schema of boosters has no field for."""

BOUNDS = ("minReplicas", "maxReplicas")
"""Fields of the minimum and maximum of replicas, in boosters and in bindings."""

DEFAULT_COST_EXPANSION = 200
"""Default of costExpansionRatePercent [%]."""


class WorkerRole(Part):
    """The pods of one role."""

    type: str = "server"
    image: str = ""
    replicas: NonNegativeInteger | None = None
    pods: NonNegativeInteger | None = None
    resources: Json = Field(default_factory=dict)
    affinity: Json | None = None
    tolerations: Items[Json] = ()
    config: Any = None


class LoraAdapter(Part):
    """A LoRA adapter that the engine loads in addition to the model."""

    name: NonEmptyText
    artifact_url: Annotated[NonEmptyText, Field(alias="artifactURL")]


class ModelBackend(Part):
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
    workers: Annotated[Items[WorkerRole], Field(min_length=1)]
    lora_adapters: Items[LoraAdapter] = ()
    autoscaling_policy: Json | None = None
    scheduler_name: str = ""
    runtime_class_name: str | None = None

    def worker(self, type_: str) -> WorkerRole | None:
        """Return the last worker of a type, if there is one, as the original does."""
        return next((worker for worker in reversed(self.workers) if worker.type == type_), None)

    def setting(self, name: str, default: str) -> str:
        """Return the value of an environment variable; `$(NAME)` if it has a `valueFrom`."""
        entry = self._entry(name)
        if entry.get("valueFrom"):
            return f"$({name})"
        return str(entry.get("value") or default)

    def literal(self, name: str, default: str) -> str:
        """Return the literal value of an environment variable; "" if it has a `valueFrom`."""
        entry = self._entry(name)
        return str(entry.get("value") or "") if entry else default

    def _entry(self, name: str) -> Json:
        return next((item for item in self.env if item.get("name") == name), {})


class BoosterSpec(Part):
    """The backends of a model, and how they scale."""

    name: str | None = None
    backends: Items[ModelBackend] = ()
    autoscaling_policy: Json | None = None
    cost_expansion_rate_percent: NonNegativeInteger | None = None
    model_match: Json | None = None


class BackendStatus(Part):
    """The number of replicas of the serving of a backend."""

    name: str
    replicas: int


class BoosterStatus(Status):
    """The status of a booster."""

    backend_statuses: Items[BackendStatus] = ()


class BoosterMetadata(Metadata):
    """Metadata, with who has set which fields."""

    managed_fields: Items[Json] = ()


class Booster(Part):
    """A model with its backends."""

    metadata: BoosterMetadata
    spec: BoosterSpec = BoosterSpec()
    status: BoosterStatus = BoosterStatus()
    release: Release = Release.V0_1

    @property
    def key(self) -> Key:
        """Namespace and name of the booster."""
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def requested_name(self) -> str:
        """The name under which users request the model."""
        given = self.spec.name if self.release >= Release.LATER else None
        return given or self.metadata.name

    @property
    def is_single(self) -> bool:
        """Whether it has a single `backend`, as in later releases, and no `backendStatuses`."""
        return self.release > Release.V0_1

    @property
    def is_scaled(self) -> bool:
        """Whether the booster or a backend has an autoscaling policy."""
        policies = (
            self.spec.autoscaling_policy,
            *(b.autoscaling_policy for b in self.spec.backends),
        )
        return any(policy is not None for policy in policies)

    def child_name(self, backend: ModelBackend) -> str:
        """Return the name of the children of a backend."""
        return f"{self.metadata.name}-{backend.name}"

    def has_option(self, name: str) -> bool:
        """Whether an annotation switches an option on."""
        return self.metadata.annotations.get(ANNOTATION + name) == "true"


def read_booster(manifest: Manifest, dialect: Dialect) -> Booster:
    """Return the booster that a manifest describes.

    Raises
    ------
    ManifestError
        The manifest is not a booster of this dialect, or a field is missing or invalid.
    """
    kind = dialect.booster
    for field, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if manifest.get(field) != wanted:
            raise ManifestError(manifest, [field], f"must be {wanted}, not {manifest.get(field)!r}")
    try:
        return Booster.model_validate(
            _with_backends(manifest, dialect.installed), by_alias=True, by_name=False
        )
    except ValidationError as invalid:
        raise bad_manifest(manifest, invalid) from invalid


def _with_backends(manifest: Manifest, installed: Release | None) -> Manifest:
    """Convert a manifest with a single `backend` of later Kthena releases to `backends`.

    In v1.0.0 the backend has a number of replicas, in the releases before it has bounds. The
    autoscaling policy of the spec is that of the backend, as there is only one.
    """
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping) or "backends" in spec or "backend" not in spec:
        return manifest
    backend, rest = spec["backend"], dict(spec)
    release = _within(Release.V0_2, Release.V0_4, installed or Release.V0_4)
    if isinstance(backend, Mapping):
        policy = rest.pop("autoscalingPolicy", None)
        if "replicas" in backend:
            release = _within(Release.V1_0, Release.LATER, installed or Release.V1_0)
            backend = {**backend, **dict.fromkeys(BOUNDS, backend["replicas"])}
        backend = {"autoscalingPolicy": policy, **backend}
    return {**manifest, "spec": {**rest, "backends": [backend]}, "release": release}


def _within(first: Release, last: Release, release: Release) -> Release:
    """Return the release of those that the fields leave open which is nearest to another."""
    return min(max(release, first), last)
