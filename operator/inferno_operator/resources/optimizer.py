"""Optimizer: a request to optimize the servers of a namespace, and the last answer."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from inferno_operator.resources.base import AGE, READY, Column, Resource, Status
from inferno_operator.resources.recurrence import MAX_WINDOWS, RecurringWindow
from inferno_operator.resources.schema import (
    Fraction,
    Integer,
    Items,
    NonNegativeInteger,
    Number,
    Part,
    PositiveInteger,
    Time,
    Total,
)
from inferno_optimizer.system import SaturationPolicy
from inferno_optimizer.way_down import SHARE, WINDOW_S, WayDown

Percent = Annotated[Number, Field(ge=0, le=100)]


class Freeze(RecurringWindow):
    """A recurring window of time in which no plan is carried out without approval."""


class Guard(Part):
    """Limits for plans that are carried out without approval."""

    window: PositiveInteger | None = None
    """Time within which a Server loses at most maxDecreasePercent of its replicas [s]; absent means
    300."""
    max_decrease_percent: Percent | None = None
    """Largest share of serving replicas that a Server loses within the window [%]; absent means 50,
    100 no limit. One replica may always go, but the last one under load waits for approval. Larger
    reductions go in steps, unless a person approves them or a more important Server needs the
    cards.
    """

    max_cost_increase_percent: Annotated[Number | None, Field(ge=0)] = None
    """Largest increase of the cost of all Servers [%]; absent means no limit."""
    max_servers_changed: NonNegativeInteger | None = None
    """Most Servers that change; absent means no limit."""
    freeze: Annotated[Items[Freeze], Field(max_length=MAX_WINDOWS)] = ()
    """Windows of time in which no plan is carried out without approval."""

    @property
    def way_down(self) -> WayDown:
        """How fast replicas go."""
        percent, window = self.max_decrease_percent, self.window
        return WayDown(
            SHARE if percent is None else percent / 100.0,
            WINDOW_S if window is None else float(window),
        )


class OptimizerParameters(Part):
    """How to optimize."""

    unlimited: bool = False
    """Ignore capacity; wins over the other parameters."""
    heterogeneous: bool = False
    """Let a server run on several accelerators; takes effect with milpSolver."""
    milp_solver: bool = False
    """Solve exactly by mixed-integer programming instead of greedily."""
    use_cplex: bool = False
    """Solve mixed-integer programs with CPLEX."""
    saturation_policy: Annotated[SaturationPolicy, Strict(False)] = SaturationPolicy.HOLD
    """Who gets how much where cards are short; Hold keeps what runs and adds what fits."""
    delayed_best_effort: bool = False
    """Share out after all classes were served, not after each priority."""
    hold_undecided: bool = True
    """Set aside the cards that servers use for which no decision is possible."""
    priority_tolerance: Fraction | None = None
    """Fraction of the load of a priority that the exact solver may sacrifice to serve lower
    priorities or to cut cost; absent means 0.0009 for large systems and none for small ones."""


class OptimizerData(Part):
    """Input of the optimization besides the objects of the namespace."""

    optimizer: OptimizerParameters
    """How to optimize."""


class OptimizerSpec(Part):
    """When and how to optimize."""

    optimize: bool = False
    """Ask for one optimization; the operator sets it back to false when it is done."""
    interval: PositiveInteger | None = None
    """Optimize again after this time [s]; absent means only when asked for."""
    mode: Literal["Auto", "Approve", "Recommend"] = "Auto"
    """Auto carries plans out; Approve waits until a person approves each; Recommend only writes
    desiredAlloc, and nothing in the namespace is scaled.
    """
    guard: Guard | None = None
    """Limits beyond which a plan waits for approval, also in mode Auto."""
    history: PositiveInteger = 20
    """How many finished Plans are kept."""
    data: OptimizerData
    """Input of the optimization besides the objects of the namespace."""


class Level(Part):
    """Load of the servers of a priority that are served entirely [requests/min]."""

    priority: Integer
    """Of the service class."""
    served: Number
    """What the solution serves."""
    bound: Number
    """No solution that serves as much of the more important priorities serves more."""


class Certificate(Part):
    """How good the solution is, and who says so."""

    solver: str
    """Solver that found it."""
    status: str
    """Optimal up to a gap of 0.0001, TimeLimit if the time was over before, else Feasible."""
    objective: Number | None = None
    """Value of the solution: cost and transition penalties [cents/hour]."""
    bound: Number | None = None
    """No solution has a lower value [cents/hour]."""
    gap: Number | None = None
    """Largest relative distance of objective or served load from its bound."""
    seconds: Number | None = None
    """Time that it took [s]."""
    levels: Items[Level] = ()
    """Load served of each priority, the most important first."""
    failures: Items[str] | None = None
    """Steps of the solver that ended with an error; the solution is the best one without them."""


class Unserved(Part):
    """A server that got no allocation."""

    server: str
    """The server's spec.name."""
    reason: str
    """CamelCase word for the cause, as in the Server's condition Allocated."""
    message: str = ""
    """Details for a person."""


class Gain(Part):
    """Load of a priority that is served besides."""

    priority: Integer
    """Of the service class."""
    load: Number
    """What is served besides [requests/min]."""


class CapacityUse(Part):
    """Use of one type of card."""

    type: str
    """Type of card."""
    used: Integer
    """Cards that the solution uses."""
    available: Integer | None = None
    """Cards that there are; absent where capacity was ignored."""
    held: Integer | None = None
    """Cards of these that servers hold for which no decision is possible; absent if none."""
    price: Number | None = None
    """What one more card would save of the value at the served load [cents/hour]."""
    gain: Gain | None = None
    """Load that one more card would serve; there is no price then."""
    estimated: bool | None = None
    """Price or gain are an estimate of the linear relaxation; absent if exact."""


class LastOptimization(Part):
    """Result of the last optimization that ended well."""

    time: Time
    """When it ended."""
    requested_generation: Total
    """Generation of the Optimizer that asked for it."""
    servers: NonNegativeInteger
    """Servers that were looked at."""
    allocated: NonNegativeInteger
    """Servers that got an allocation."""
    cost: Number
    """Cost of all allocations, and of what runs without a possible decision [cents/hour]."""
    certificate: Certificate | None = None
    """How good the solution is."""
    unserved: Items[Unserved] = ()
    """Servers that got no allocation."""
    capacity: Items[CapacityUse] = ()
    """Use of capacity, one item per type."""


class OptimizerStatus(Status):
    """What became of the request."""

    done: bool = False
    """The optimization asked for by the observed generation is done."""
    last_optimization: LastOptimization | None = None
    """Result of the last optimization that ended well."""


class Optimizer(Resource):
    """Optimizer asks for an optimization of the servers of its namespace."""

    kind: ClassVar[str] = "Optimizer"
    plural: ClassVar[str] = "optimizers"
    short_names: ClassVar[tuple[str, ...]] = ("opt",)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Optimize", ".spec.optimize", "boolean"),
        Column("Done", ".status.done", "boolean"),
        Column("Optimized", '.status.conditions[?(@.type=="Optimized")].reason'),
        Column("Servers", ".status.lastOptimization.servers", "integer"),
        Column("Allocated", ".status.lastOptimization.allocated", "integer"),
        Column("Cost", ".status.lastOptimization.cost", "number"),
        Column("Gap", ".status.lastOptimization.certificate.gap", "number"),
        Column("Last", ".status.lastOptimization.time", "date"),
        READY,
        AGE,
        Column("Mode", ".spec.mode", wide=True),
        Column("Solver", ".status.lastOptimization.certificate.solver", wide=True),
        Column("Seconds", ".status.lastOptimization.certificate.seconds", "number", wide=True),
    )

    spec: OptimizerSpec
    status: OptimizerStatus = OptimizerStatus()
