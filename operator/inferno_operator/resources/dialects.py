"""The two dialects: which API groups, names and labels a Model Booster has."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from inferno_operator.resources.objects import Kind

DialectName = Literal["kthena", "matrixinfer"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of the two; what differs between them beyond names is a field of its own."""

    name: DialectName
    booster: Kind
    serving: Kind
    server: Kind
    route: Kind
    policy: Kind
    binding: Kind
    label_prefix: str
    """Of the labels on children, with its slash."""
    managed_by: Mapping[str, str]
    """Labels of who manages a child; the first is the one that the original writes."""
    pod_prefix: str
    """Of the labels that the controller of the serving puts on pods, with its slash."""
    topology_label: str
    """By which the original spreads pods."""
    connectors: Mapping[str, str]
    """Connectors of key-value caches: the engine's name, and the router's."""
    downloader_image: str
    runtime_image: str
    images: str
    """ConfigMap that may name other images, in the namespace of the controller."""
    image_keys: tuple[str, str]
    """Its keys for downloader and runtime."""
    fleet_aware: bool
    """Engines publish events of their caches, and know pod and Redis; adapters have routes."""
    gang_switch: bool
    """Gang scheduling has a switch that is on by default; else it is off without a policy."""
    max_cost_expansion: int
    """Upper limit of costExpansionRatePercent [%]."""

    def with_images(self, given: Mapping[str, str]) -> "Dialect":
        """The dialect with the images that its ConfigMap names; others stay."""
        downloader, runtime = self.image_keys
        return replace(
            self,
            downloader_image=given.get(downloader) or self.downloader_image,
            runtime_image=given.get(runtime) or self.runtime_image,
        )

    @property
    def children(self) -> tuple[Kind, ...]:
        """The kinds that are made of a booster, in the order in which they are written."""
        return self.serving, self.server, self.route, self.policy, self.binding

    def label(self, name: str) -> str:
        """The key of a label on children."""
        return self.label_prefix + name


_WORKLOAD = "workload.serving.volcano.sh"
_NETWORKING = "networking.serving.volcano.sh"

KTHENA = Dialect(
    name="kthena",
    booster=Kind(_WORKLOAD, "ModelBooster", "modelboosters"),
    serving=Kind(_WORKLOAD, "ModelServing", "modelservings"),
    server=Kind(_NETWORKING, "ModelServer", "modelservers"),
    route=Kind(_NETWORKING, "ModelRoute", "modelroutes"),
    policy=Kind(_WORKLOAD, "AutoscalingPolicy", "autoscalingpolicies"),
    binding=Kind(_WORKLOAD, "AutoscalingPolicyBinding", "autoscalingpolicybindings"),
    label_prefix=f"{_WORKLOAD}/",
    managed_by={
        f"{_WORKLOAD}/managed-by": _WORKLOAD,
        "registry.volcano.sh/managed-by": "registry.volcano.sh",  # as the documents have it
    },
    pod_prefix="modelserving.volcano.sh/",
    topology_label="modelserving.volcano.sh/name",
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
    fleet_aware=True,
    gang_switch=False,
    max_cost_expansion=1000,
)
"""Kthena, as of its release v0.1.0."""

_REGISTRY = "registry.matrixinfer.ai"

MATRIXINFER = Dialect(
    name="matrixinfer",
    booster=Kind(_REGISTRY, "Model", "models"),
    serving=Kind("workload.matrixinfer.ai", "ModelInfer", "modelinfers"),
    server=Kind("networking.matrixinfer.ai", "ModelServer", "modelservers"),
    route=Kind("networking.matrixinfer.ai", "ModelRoute", "modelroutes"),
    policy=Kind(_REGISTRY, "AutoscalingPolicy", "autoscalingpolicies"),
    binding=Kind(_REGISTRY, "AutoscalingPolicyBinding", "autoscalingpolicybindings"),
    label_prefix=f"{_REGISTRY}/",
    managed_by={f"{_REGISTRY}/managed-by": _REGISTRY},
    pod_prefix="modelinfer.matrixinfer.ai/",
    topology_label="modelinfer/name",
    connectors={},
    downloader_image="matrixinfer/downloader:latest",
    runtime_image="matrixinfer/runtime:latest",
    images="model-controller-config",
    image_keys=("model_infer_downloader_image", "model_infer_runtime_image"),
    fleet_aware=False,
    gang_switch=True,
    max_cost_expansion=100,
)
"""MatrixInfer, the forerunner of Kthena."""

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (KTHENA, MATRIXINFER)}
