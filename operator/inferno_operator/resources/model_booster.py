"""Where a Server's decision goes: the autoscaling of a ModelBooster."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from inferno_operator.resources.allocation import MAX_ACCELERATORS
from inferno_operator.resources.schema import Items, Part, Rule
from inferno_operator.resources.workload import RoleName
from inferno_optimizer.system import Role, place_of

BackendName = Annotated[str, Field(min_length=1, max_length=253)]
"""A Kubernetes name, or an accelerator's spec.name; the limit bounds the cost of the checks."""


def _distinct(names: list[str]) -> bool:
    return len(set(names)) == len(names)


class Backend(Part):
    """A backend of a ModelBooster, or one role of it, and what it runs on."""

    name: BackendName
    """Name of the backend in the ModelBooster."""
    accelerator: BackendName
    """The accelerator's spec.name."""
    role: RoleName = "Both"
    """What its replicas do; Prefill and Decode are workers of that type."""
    booster: BackendName | None = None
    """Name of the ModelBooster with this backend; absent: the name of the reference."""

    @property
    def place(self) -> str:
        """The accelerator, and the role if it is one half of each request."""
        return place_of(self.accelerator, Role(self.role))

    @property
    def worker(self) -> str:
        """The type of the workers that it means; "" for all of the backend."""
        return "" if self.role == "Both" else self.role.lower()


def _serving_in_cel(backend: str) -> str:
    return f"(has({backend}.booster) ? {backend}.booster : self.name) + '-' + {backend}.name"


class ModelBoosterRef(Part):
    """The ModelBooster that runs a server, and how to scale it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "each backend is named once for each role",
            f"self.backends.all(a, self.backends.exists_one(b,"
            f" b.role == a.role && {_serving_in_cel('b')} == {_serving_in_cel('a')}))",
            lambda booster: _distinct([booster.part_of(each) for each in booster.backends]),
        ),
        Rule(
            "each accelerator has one backend for each role",
            "self.backends.all(a, self.backends.exists_one(b,"
            " b.accelerator == a.accelerator && b.role == a.role))",
            lambda booster: _distinct([backend.place for backend in booster.backends]),
        ),
        Rule(
            "Prefill and Decode are the two roles of one backend, which is not named as a whole",
            f"self.backends.all(a, a.role == 'Both' || (self.backends.all(b,"
            f" (b.role == 'Both') != ({_serving_in_cel('b')} == {_serving_in_cel('a')}))"
            f" && self.backends.exists(b, b.role != 'Both' && b.role != a.role)))",
            lambda booster: booster.is_one_pair,
        ),
        Rule(
            "roles need target ModelBooster and bounds Pin; or name the ModelServing in workloads",
            "self.backends.all(b, b.role == 'Both')"
            " || (self.target == 'ModelBooster' && self.bounds == 'Pin')",
            lambda booster: (
                not booster.has_roles or (booster.target, booster.bounds) == ("ModelBooster", "Pin")
            ),
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
    def has_roles(self) -> bool:
        """Whether it names the roles of a backend."""
        return any(backend.worker for backend in self.backends)

    @property
    def is_one_pair(self) -> bool:
        """Whether the roles that it names, if it names any, are both of one backend alone."""
        roles = [backend for backend in self.backends if backend.worker]
        wholes = {self.serving_of(backend) for backend in self.backends if not backend.worker}
        servings = {self.serving_of(backend) for backend in roles}
        is_pair = len(servings) == 1 and len({backend.role for backend in roles}) == len(roles) > 1
        return not roles or (is_pair and not servings & wholes)

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

    def part_of(self, backend: Backend) -> str:
        """Return the name of the ModelServing, with the role of it that a backend means."""
        return " ".join(filter(None, (self.serving_of(backend), backend.worker)))
