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
    """A backend of a ModelBooster and what it runs on."""

    name: BackendName
    """Name of the backend in the ModelBooster."""
    accelerator: BackendName
    """The accelerator's spec.name."""
    booster: BackendName | None = None
    """Name of the ModelBooster with this backend; absent: the name of the reference."""


def _serving_in_cel(backend: str) -> str:
    return f"(has({backend}.booster) ? {backend}.booster : self.name) + '-' + {backend}.name"


class ModelBoosterRef(Part):
    """The ModelBooster that runs a server, and how to scale it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "each backend is named once",
            f"self.backends.all(a, self.backends.exists_one(b,"
            f" {_serving_in_cel('b')} == {_serving_in_cel('a')}))",
            lambda booster: _distinct([booster.serving_of(each) for each in booster.backends]),
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
    """Object to write: the ModelBooster, its ModelServing, or what binds an autoscaler to that."""
    bounds: Literal["Pin", "Ceiling"] = "Pin"
    """Pin sets minimum and maximum replicas to the decision, Ceiling only the maximum."""

    @property
    def boosters(self) -> tuple[str, ...]:
        """The names of the ModelBoosters, each once."""
        return tuple(dict.fromkeys(map(self.booster_of, self.backends)))

    def booster_of(self, backend: Backend) -> str:
        """Return the name of the ModelBooster with a backend."""
        return backend.booster or self.name

    def serving_of(self, backend: Backend) -> str:
        """Return the name of the ModelServing of a backend, which no other backend has."""
        return f"{self.booster_of(backend)}-{backend.name}"
