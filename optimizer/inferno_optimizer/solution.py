"""The output of the optimizer (Solution), as immutable values.

Units: arrival rates in requests/min, costs in cents/hour, capacity in cards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from inferno_optimizer.system import Allocation


class Reason(StrEnum):
    """Why a server has its allocation, or has none.

    `UNKNOWN_CAPACITY`: it runs on cards of a type that the capacity does not name, or can only use
    such cards. `UNKNOWN_ACCELERATOR`: it runs on an accelerator that the system does not have. Both
    are for systems with the option `hold_undecided`.
    """

    ALLOCATED = "Allocated"
    BEST_EFFORT = "BestEffort"
    NO_CAPACITY = "NoCapacity"
    UNATTAINABLE_SLO = "UnattainableSLO"
    NO_PERFORMANCE_DATA = "NoPerformanceData"
    NO_TARGET = "NoTarget"
    UNKNOWN_MODEL = "UnknownModel"
    UNKNOWN_CLASS = "UnknownClass"
    UNKNOWN_ACCELERATOR = "UnknownAccelerator"
    UNKNOWN_CAPACITY = "UnknownCapacity"
    INVALID_SPEC = "InvalidSpec"

    @property
    def decided(self) -> bool:
        """Whether the optimizer decided; otherwise the current allocation is kept."""
        return self in (Reason.ALLOCATED, Reason.BEST_EFFORT, Reason.NO_CAPACITY)


IDLE = "nothing, as it is idle"
"""The message of a decision for no replicas, because there is no load."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The result for one server; `allocation` is None if the server gets nothing.

    `warnings` say why the numbers of the allocation may not hold, see `caveats`.
    """

    server: str
    reason: Reason
    message: str
    allocation: Allocation | None = None
    warnings: tuple[str, ...] = ()


class SolverStatus(StrEnum):
    """What ended the search: a proven gap of at most 1e-4, the solver itself, or the time limit.

    A feasible plan may have a proven gap: the solver stops where it finds no more within its
    tolerances.
    """

    OPTIMAL = "Optimal"
    FEASIBLE = "Feasible"
    TIME_LIMIT = "TimeLimit"


@dataclass(frozen=True, slots=True)
class Level:
    """Served load of a priority, and its proven upper bound [requests/min].

    No plan that serves as much of the more important priorities serves more than `bound`: as much
    as the plan before the turn of this one, of which this one may take a tolerance. With the
    saturation policy `None` only servers with all that their targets take count; with any
    other policy those with a part of the replicas count for that part, before a round robin
    shares out evenly what serves nobody entirely. `load` is the load of all servers of the
    priority; 0 if unknown.
    """

    priority: int
    served: float
    bound: float
    load: float = 0.0

    @property
    def gap(self) -> float:
        """Distance of `served` from `bound`, relative to the load of the priority, at least 1."""
        return max(0.0, self.bound - self.served) / max(self.load, self.bound, 1.0)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The state of the exact solver when the plan or the bound improved.

    The solver maximizes the served load priority by priority, and then it minimizes the value.

    Attributes
    ----------
    seconds
        Time since the solver began, as the time limit counts it.
    priority
        The priority whose load is maximized; None while the value is minimized.
    served
        Load that the best plan so far serves entirely, by priority [requests/min]; priorities
        that the solver has not reached yet have 0.
    value
        Total value of this plan.
    bound
        The most load of the priority that is proven to be possible, or the least value; None if
        nothing is proven yet.
    """

    seconds: float
    priority: int | None
    served: Mapping[int, float]
    value: float
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """Proof of the quality of a plan.

    `objective` is the total value (lower is better): of the servers with all that their targets
    take; or, from the exact solver with a saturation policy other than `None`, of all servers,
    also of those that are served in part or lose what they have. `bound` is a proven lower bound
    of it among the plans that serve as much (see `Level`); None if none is proven. `levels` is
    empty if the solver proves nothing at all. `phases` are the steps of the optimization with
    their durations [s]. `curve` is empty unless the option `trace` asks for it; its last point is
    the plan itself. `failures` are steps of the exact solver that ended with an error: their
    names, with its type and text. The plan is then the best one found without them.
    """

    solver: str
    status: SolverStatus
    objective: float
    bound: float | None
    seconds: float
    levels: tuple[Level, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def gap(self) -> float | None:
        """Largest proven distance from the optimum, over value and loads; None without a bound.

        The distance of the value is relative to the larger of |objective| and 1.
        """
        if self.bound is None:
            return None
        distance = max(0.0, self.objective - self.bound) / max(abs(self.objective), 1.0)
        return max(distance, *(level.gap for level in self.levels), 0.0)


@dataclass(frozen=True, slots=True)
class Gain:
    """Additional load of a priority that can be served [requests/min]."""

    priority: int
    load: float


@dataclass(frozen=True, slots=True)
class MarginalValue:
    """The value of one more card of a type.

    If one more card allows more load to be served, `gain` is the additional load of the most
    important priority that gets any. Otherwise `price` is what it saves of the value, cost and
    transition penalties, while the plan serves the same load [cents/hour]. Both are None if the
    solver does not provide them. They are what solving again with one more card shows; or they
    are `estimated`, from the linear relaxation, in which servers may be split: the truth may be
    less, as a whole server needs more cards, or more, as the card makes up for a fraction.
    """

    price: float | None = None
    gain: Gain | None = None
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class CapacityUse:
    """Cards of a type: used by the plan, and available in total.

    `price`, `gain` and `estimated` are the value of one more card, see `MarginalValue`. `held`
    counts the
    cards of `available` that are used by servers for which no decision is possible; it may
    exceed `available`, if the capacity that is given is too low.
    """

    type: str
    used: int
    available: int
    price: float | None = None
    gain: Gain | None = None
    held: int = 0
    estimated: bool = False

    @property
    def usable(self) -> int:
        """Cards that a plan may use."""
        return max(self.available - self.held, 0)


@dataclass(frozen=True, slots=True)
class Solution:
    """One decision per server, in the order of the system, and the certificate.

    `held_cost` is the cost of what keeps running because no decision is possible [cents/hour].
    """

    decisions: tuple[Decision, ...]
    certificate: Certificate
    capacity: tuple[CapacityUse, ...]
    held_cost: float = 0.0

    @property
    def allocations(self) -> dict[str, Allocation]:
        """Allocations by server name, for the servers that have one."""
        return {d.server: d.allocation for d in self.decisions if d.allocation is not None}

    @property
    def unserved(self) -> tuple[Decision, ...]:
        """The decisions for servers without an allocation."""
        return tuple(d for d in self.decisions if d.allocation is None)

    @property
    def cost(self) -> float:
        """Cost of all allocations, and of what keeps running without a decision [cents/hour]."""
        return sum(a.cost for a in self.allocations.values()) + self.held_cost
