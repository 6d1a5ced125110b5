"""The two dialects of Model Boosters: their API groups, names and labels."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from inferno_operator.resources.objects import Kind

DialectName = Literal["kthena", "matrixinfer"]

DISAGGREGATED = "vLLMDisaggregated"
"""The type of backends with the roles prefill and decode."""


class Release(IntEnum):
    """The releases of Kthena whose objects or pods differ; MatrixInfer is like the first."""

    V0_1 = 1
    """Several `backends`, and a binding for each policy."""
    V0_2 = 2
    """One `backend` with `minReplicas` and `maxReplicas`, and bindings with other fields."""
    V0_3 = 3
    """As v0.2, with other pods."""
    V0_4 = 4
    """As v0.2, with other pods."""
    V1_0 = 5
    """One `backend` with `replicas`, and no policy."""
    LATER = 6
    """As v1.0; `spec.name` is the name under which users request the model."""

    @property
    def text(self) -> str:
        """The name of the release in settings and messages."""
        return self.name.lower().replace("_", ".")


RELEASES: Mapping[str, Release] = {release.text: release for release in Release}
"""The releases by their names."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect; each difference in behaviour is a field of its own."""

    name: DialectName
    release: str
    """The releases that the operator knows, for messages."""
    booster: Kind
    serving: Kind
    server: Kind
    route: Kind
    policy: Kind
    binding: Kind
    label_prefix: str
    """Prefix of labels on children, with its slash."""
    managed_by: Mapping[str, str]
    """Labels for the manager of a child; the original writes only the first."""
    pod_prefix: str
    """Prefix of the labels that the controller of servings sets on pods, with its slash."""
    connectors: Mapping[str, str]
    """Connectors of KV caches: the router's name by the engine's name."""
    downloader_image: str
    runtime_image: str
    images: str
    """Name of the ConfigMap with other images, in the namespace of the controller."""
    image_keys: tuple[str, str]
    """Keys of the ConfigMap for the images of downloader and runtime."""
    has_policy_targets: bool
    """AutoscalingPolicies of the last release have targets, in place of bindings."""
    fleet_aware: bool
    """Engines publish cache events and get the pod's name and Redis; adapters have rules."""
    gang_switch: bool
    """Gang scheduling has a switch, on by default; without a switch a policy turns it on."""
    max_cost_expansion: int
    """Maximum of costExpansionRatePercent [%]."""
    installed: Release | None = None
    """The release in the cluster, if a setting names it: fields do not tell all releases apart."""

    def with_images(self, given: Mapping[str, str]) -> "Dialect":
        """Return the dialect with the images in the data of its ConfigMap."""
        downloader, runtime = self.image_keys
        return replace(
            self,
            downloader_image=given.get(downloader) or self.downloader_image,
            runtime_image=given.get(runtime) or self.runtime_image,
        )

    @property
    def children(self) -> tuple[Kind, ...]:
        """The kinds of a booster's children, in the order in which they are written."""
        return self.serving, self.server, self.route, self.policy, self.binding

    @property
    def scalers(self) -> tuple[Kind, ...]:
        """The kinds that bind an autoscaler to a serving."""
        return (self.binding, self.policy) if self.has_policy_targets else (self.binding,)

    def label(self, name: str) -> str:
        """Return the key of a label on children."""
        return self.label_prefix + name

    def pod_label(self, name: str) -> str:
        """Return the key of a label that the controller of servings sets on pods."""
        return self.pod_prefix + name


_WORKLOAD = "workload.serving.volcano.sh"
_NETWORKING = "networking.serving.volcano.sh"

KTHENA = Dialect(
    name="kthena",
    release="Kthena v0.1.0 to v1.0.0",
    booster=Kind(_WORKLOAD, "ModelBooster", "modelboosters"),
    serving=Kind(_WORKLOAD, "ModelServing", "modelservings"),
    server=Kind(_NETWORKING, "ModelServer", "modelservers"),
    route=Kind(_NETWORKING, "ModelRoute", "modelroutes"),
    policy=Kind(_WORKLOAD, "AutoscalingPolicy", "autoscalingpolicies"),
    binding=Kind(_WORKLOAD, "AutoscalingPolicyBinding", "autoscalingpolicybindings"),
    label_prefix=f"{_WORKLOAD}/",
    managed_by={
        f"{_WORKLOAD}/managed-by": _WORKLOAD,
        "registry.volcano.sh/managed-by": "registry.volcano.sh",  # as in its documentation
    },
    pod_prefix="modelserving.volcano.sh/",
    connectors={
        "LMCacheConnectorV1": "lmcache",
        "MooncakeConnector": "mooncake",
        "MooncakeConnectorV1": "mooncake",
        "NixlConnector": "nixl",
    },
    downloader_image="kthena/downloader:latest",
    runtime_image="kthena/runtime:latest",
    images="model-booster-controller-config",
    image_keys=("model_serving_downloader_image", "model_serving_runtime_image"),
    has_policy_targets=True,
    fleet_aware=True,
    gang_switch=False,
    max_cost_expansion=1000,
)
"""Kthena v0.1.0 to v1.0.0: the fields of an object tell its release, or a few that it may be."""

_REGISTRY = "registry.matrixinfer.ai"

MATRIXINFER = Dialect(
    name="matrixinfer",
    release="MatrixInfer of 2025-08-14 (commit 0716ba8a)",
    booster=Kind(_REGISTRY, "Model", "models"),
    serving=Kind("workload.matrixinfer.ai", "ModelInfer", "modelinfers"),
    server=Kind("networking.matrixinfer.ai", "ModelServer", "modelservers"),
    route=Kind("networking.matrixinfer.ai", "ModelRoute", "modelroutes"),
    policy=Kind(_REGISTRY, "AutoscalingPolicy", "autoscalingpolicies"),
    binding=Kind(_REGISTRY, "AutoscalingPolicyBinding", "autoscalingpolicybindings"),
    label_prefix=f"{_REGISTRY}/",
    managed_by={f"{_REGISTRY}/managed-by": _REGISTRY},
    pod_prefix="modelinfer.matrixinfer.ai/",
    connectors={},
    downloader_image="matrixinfer/downloader:latest",
    runtime_image="matrixinfer/runtime:latest",
    images="model-controller-config",
    image_keys=("model_infer_downloader_image", "model_infer_runtime_image"),
    has_policy_targets=False,
    fleet_aware=False,
    gang_switch=True,
    max_cost_expansion=100,
)
"""MatrixInfer, the predecessor of Kthena."""

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (KTHENA, MATRIXINFER)}
