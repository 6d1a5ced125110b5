"""Where a Server's decision goes: the autoscaling of a ModelBooster."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from inferno_operator.resources.allocation import MAX_ACCELERATORS
from inferno_operator.resources.schema import Items, Part, Rule

BackendName = Annotated[str, Field(min_length=1, max_length=253)]
"""A Kubernetes name, or an accelerator's spec.name; the limit bounds the cost of the checks."""


def _distinct(names: list[str]) -> bool:
    return len(set(names)) == len(names)


class Backend(Part):
    """A backend of the ModelBooster and what it runs on."""

    name: BackendName
    """Name of the backend in the ModelBooster."""
    accelerator: BackendName
    """The accelerator's spec.name."""


class ModelBoosterRef(Part):
    """The ModelBooster that runs a server, and how to scale it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "each backend is named once",
            "self.backends.all(a, self.backends.exists_one(b, b.name == a.name))",
            lambda booster: _distinct([backend.name for backend in booster.backends]),
        ),
        Rule(
            "each accelerator has one backend",
            "self.backends.all(a, self.backends.exists_one(b, b.accelerator == a.accelerator))",
            lambda booster: _distinct([backend.accelerator for backend in booster.backends]),
        ),
    )

    name: BackendName
    """Name of the ModelBooster, in the namespace of the Server."""
    dialect: Literal["kthena", "matrixinfer"] = "kthena"
    """API group of the ModelBooster: that of Kthena, or that of its forerunner MatrixInfer."""
    backends: Annotated[Items[Backend], Field(min_length=1, max_length=MAX_ACCELERATORS)]
    """Which backend runs on which accelerator."""
    target: Literal["ModelBooster", "ModelServing", "Binding"] = "ModelBooster"
    """Object to write: the ModelBooster, its ModelServing, or its AutoscalingPolicyBinding."""
    bounds: Literal["Pin", "Ceiling"] = "Pin"
    """Pin sets minimum and maximum replicas to the decision, Ceiling only the maximum."""
