"""What the pods of each release of Kthena have; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from inferno_operator.resources.dialects import Release


@dataclass(frozen=True, slots=True)
class Pods:
    """What the pods of a release have; each difference is a field of its own."""

    load_seconds: int
    """Seconds that an engine has to load its model before it is probed."""
    shares_memory: bool
    """vLLM has a volume in memory, in which its processes exchange tensors."""
    script_folder: str
    """The folder of the script for several nodes; "" is the one in which engines start."""
    publishes_cache: bool
    """Engines publish to the router which prefixes they have in their cache."""
    labels_all: bool
    """All pods of a replica have the labels of the backend, also those of prefill and decode."""
    binds_ascend: bool
    """Pods of prefill and decode run on nodes with Ascend devices, whatever their affinity."""
    knows_modelscope: bool
    """The downloader gets the settings of ModelScope, for `ms://`."""
    installs_packages: bool
    """What a connector of KV caches needs is installed before the engine starts."""


_V0_1 = Pods(
    load_seconds=90,
    shares_memory=False,
    script_folder="/vllm-workspace/vllm/",
    publishes_cache=True,
    labels_all=False,
    binds_ascend=True,
    knows_modelscope=False,
    installs_packages=False,
)
_V0_2 = replace(_V0_1, load_seconds=180, publishes_cache=False)
_V0_3 = replace(
    _V0_2,
    shares_memory=True,
    script_folder="",
    labels_all=True,
    binds_ascend=False,
    installs_packages=True,
)
_V0_4 = replace(_V0_3, knows_modelscope=True)

PODS: Mapping[Release, Pods] = {
    Release.V0_1: _V0_1,
    Release.V0_2: _V0_2,
    Release.V0_3: _V0_3,
    Release.V0_4: _V0_4,
    Release.V1_0: _V0_4,
    Release.LATER: _V0_4,
}
