"""The six custom resource kinds of `inferno.platform.ai/v1alpha1`.

`parse` reads a manifest; the CRDs are generated from the same classes.
"""

from inferno_operator.resources.accelerator import Accelerator, AcceleratorSpec, Power
from inferno_operator.resources.allocation import DIGITS, Allocation, Load, ServerAllocation
from inferno_operator.resources.base import (
    API_VERSION,
    GROUP,
    VERSION,
    Column,
    Condition,
    Metadata,
    Resource,
    Status,
)
from inferno_operator.resources.capacity import Capacity, CapacitySpec, Count
from inferno_operator.resources.measurement import (
    CUSTOM,
    Measure,
    Measured,
    MeasuredReplicas,
    Percentiles,
    Quality,
    Queries,
)
from inferno_operator.resources.model import (
    CalibratedData,
    DecodeParms,
    FittedDecode,
    FittedPrefill,
    Model,
    ModelSpec,
    ModelStatus,
    PerformanceData,
    PerfParms,
    PrefillParms,
    RejectedWindows,
)
from inferno_operator.resources.model_booster import Backend, ModelBoosterRef
from inferno_operator.resources.optimizer import (
    CapacityUse,
    Certificate,
    Gain,
    LastOptimization,
    Level,
    Optimizer,
    OptimizerData,
    OptimizerParameters,
    OptimizerSpec,
    OptimizerStatus,
    Unserved,
)
from inferno_operator.resources.parsing import RESOURCES, ManifestError, parse
from inferno_operator.resources.server import Server, ServerSpec, ServerStatus
from inferno_operator.resources.service_class import ServiceClass, ServiceClassSpec, Target
from inferno_operator.resources.workload import Workload

__all__ = [
    "API_VERSION",
    "CUSTOM",
    "DIGITS",
    "GROUP",
    "RESOURCES",
    "VERSION",
    "Accelerator",
    "AcceleratorSpec",
    "Allocation",
    "Backend",
    "CalibratedData",
    "Capacity",
    "CapacitySpec",
    "CapacityUse",
    "Certificate",
    "Column",
    "Condition",
    "Count",
    "DecodeParms",
    "FittedDecode",
    "FittedPrefill",
    "Gain",
    "LastOptimization",
    "Level",
    "Load",
    "ManifestError",
    "Measure",
    "Measured",
    "MeasuredReplicas",
    "Metadata",
    "Model",
    "ModelBoosterRef",
    "ModelSpec",
    "ModelStatus",
    "Optimizer",
    "OptimizerData",
    "OptimizerParameters",
    "OptimizerSpec",
    "OptimizerStatus",
    "Percentiles",
    "PerfParms",
    "PerformanceData",
    "Power",
    "PrefillParms",
    "Quality",
    "Queries",
    "RejectedWindows",
    "Resource",
    "Server",
    "ServerAllocation",
    "ServerSpec",
    "ServerStatus",
    "ServiceClass",
    "ServiceClassSpec",
    "Status",
    "Target",
    "Unserved",
    "Workload",
    "parse",
]
