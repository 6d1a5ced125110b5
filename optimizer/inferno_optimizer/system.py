"""What is known (a System) and what was decided (a Solution), as immutable values.

Units: time in ms, arrival rates in requests/min, costs in cents/hour, capacity in cards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import ClassVar

DEFAULT_CLASS = "Free"
"""Class of a server that names none, as in the original."""

LOWEST_PRIORITY = 100
"""Priorities are 1 (most important) to 100; anything else counts as 100."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One or more cards of a type that are rented as a unit.

    `cost` is that of the whole unit; `multiplicity` counts its cards.
    """

    name: str
    type: str
    cost: float
    multiplicity: int = 1


class Generation(IntEnum):
    """Kinds of performance data; each has its own vocabulary for loads and latencies."""

    DECODE = 1
    PREFILL_DECODE = 2
    TOKEN_BUDGET = 3


@dataclass(frozen=True, slots=True)
class DecodeParameters:
    """First generation of performance data: inter-token latency `alpha + beta * batch` [ms]."""

    generation: ClassVar[Generation] = Generation.DECODE

    alpha: float
    beta: float


@dataclass(frozen=True, slots=True)
class PrefillDecodeParameters:
    """Second generation: decode `alpha + beta * batch`, and prefill before it [ms].

    The prefill of requests with h input tokens takes `gamma + delta * h * batch`.
    """

    generation: ClassVar[Generation] = Generation.PREFILL_DECODE

    alpha: float
    beta: float
    gamma: float
    delta: float

    @property
    def has_prefill(self) -> bool:
        """Whether input tokens take any time."""
        return self.gamma > 0 or self.delta > 0


@dataclass(frozen=True, slots=True)
class TokenBudgetParameters:
    """Third generation: time of an iteration that mixes prefill chunks and decode steps [ms].

    `alpha` is its overhead, `beta` comes on top for each token computed, `gamma` for each
    token read from the cache.
    """

    generation: ClassVar[Generation] = Generation.TOKEN_BUDGET

    alpha: float
    beta: float
    gamma: float


PerformanceParameters = DecodeParameters | PrefillDecodeParameters | TokenBudgetParameters


@dataclass(frozen=True, slots=True)
class PerformanceProfile:
    """How one model performs on one accelerator.

    `max_batch_size` is the largest batch at `at_tokens` tokens per request; a replica
    occupies `accelerator_count` accelerators. It keeps at most `max_tokens` tokens of its
    requests in memory, input and output, and serves at most `max_sequences` requests together;
    0 sets no such bound.
    """

    model: str
    accelerator: str
    parameters: PerformanceParameters
    max_batch_size: int
    at_tokens: int
    accelerator_count: int = 1
    max_tokens: int = 0
    max_sequences: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """Service level objectives of a model in a class; 0 means no target.

    Mean inter-token latency [ms], waiting time [ms], throughput [tokens/s], time to first
    token [ms]. A percentile in (0, 100) says which one of the wait or of the time to first
    token is meant. Without one it is as in the original: the mean time to first token, and
    the mean wait times -ln 0.05, as if all waits together were exponential and the 95th
    percentile were meant.
    """

    itl_ms: float = 0.0
    wait_ms: float = 0.0
    tokens_per_second: float = 0.0
    ttft_ms: float = 0.0
    wait_percentile: float = 0.0
    ttft_percentile: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """A priority, and the targets of each model in the class."""

    name: str
    priority: int
    targets: Mapping[str, Target]

    @property
    def effective_priority(self) -> int:
        """Priority in 1..100; what lies outside counts as the lowest."""
        return self.priority if 1 <= self.priority <= LOWEST_PRIORITY else LOWEST_PRIORITY


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that reach a server: rate [requests/min] and mean length [tokens/request].

    Generation 1 counts all tokens of a request, the later ones its input and its output. A
    load that is told in one vocabulary alone is read in the other one as `tokens_of` says,
    without input. Coefficients of variation and throughput [requests/min] are carried along;
    no model uses them.
    """

    arrival_rate: float = 0.0
    tokens_per_request: int = 0
    arrival_cov: float = 0.0
    service_cov: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    throughput: float = 0.0

    @property
    def idle(self) -> bool:
        """No requests, or requests without tokens: nothing to serve."""
        return self.arrival_rate == 0 or self.tokens_of(Generation.DECODE) == 0

    def tokens_of(self, generation: Generation) -> int:
        """Tokens that a request is served with, one after the other, in this vocabulary."""
        if generation is Generation.DECODE:
            return self.tokens_per_request or self.output_tokens
        return self.output_tokens or self.tokens_per_request

    @property
    def tokens_kept(self) -> int:
        """Tokens of a request that a replica keeps in memory in the end: input and output.

        0 where there is nothing to serve.
        """
        if self.idle:
            return 0
        later = self.input_tokens + self.tokens_of(Generation.PREFILL_DECODE)
        return max(self.tokens_per_request, later)


@dataclass(frozen=True, slots=True)
class Tail:
    """Percentiles of the wait and of the time to first token of the requests let in [ms]."""

    wait_p90: float = 0.0
    wait_p95: float = 0.0
    wait_p99: float = 0.0
    ttft_p90: float = 0.0
    ttft_p95: float = 0.0
    ttft_p99: float = 0.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a server runs on, or is to run on; `cost` is that of all replicas.

    Latencies are means [ms]. No accelerator and 0 replicas mean that nothing runs. `tail` is
    None where nothing was predicted; `generation` is that of the performance data behind the
    prediction. A server on several accelerators has an allocation on each in `mix`, the one
    with the most load first; then `accelerator` and the batch are those of the first, replicas
    and cost the totals, and latencies those of all requests together.
    """

    accelerator: str = ""
    replicas: int = 0
    max_batch_size: int = 0
    cost: float = 0.0
    itl_ms: float = 0.0
    wait_ms: float = 0.0
    load: Load = Load()
    ttft_ms: float = 0.0
    tail: Tail | None = None
    generation: Generation = Generation.DECODE
    mix: tuple["Allocation", ...] = ()

    @property
    def parts(self) -> tuple["Allocation", ...]:
        """An allocation for each accelerator."""
        return self.mix or (self,)

    @property
    def placement(self) -> str:
        """Replicas and accelerator, or several of them."""
        return " + ".join(f"{part.replicas} x {part.accelerator}" for part in self.parts)


@dataclass(frozen=True, slots=True)
class Server:
    """A model in a service class, with what it runs on now and the load it gets.

    `keep_accelerator` pins it to the accelerator of `current`; `max_batch_size` 0 leaves
    the batch to the performance profile. `max_queue_size` is the most requests that wait at a
    replica where the profile is of generation 3: with 0 a request that finds the batch full
    is turned away.
    """

    name: str
    service_class: str
    model: str
    current: Allocation = Allocation()
    keep_accelerator: bool = False
    min_replicas: int = 0
    max_batch_size: int = 0
    max_queue_size: int = 0

    @property
    def load(self) -> Load:
        """The load to size for: that of the current allocation."""
        return self.current.load


class SaturationPolicy(StrEnum):
    """How capacity that is left over is shared among servers that got nothing."""

    NONE = "None"
    PRIORITY_EXHAUSTIVE = "PriorityExhaustive"
    PRIORITY_ROUND_ROBIN = "PriorityRoundRobin"
    ROUND_ROBIN = "RoundRobin"


@dataclass(frozen=True, slots=True)
class Options:
    """How to optimize; `unlimited` wins over `milp`, and without either it is greedy.

    With `hold_undecided` the cards of servers for which no decision is possible are taken
    off the capacity; `time_limit` [s] bounds the exact solver. `priority_tolerance` is the share
    of the load of a priority, of the most that is proven to be possible, which the exact solver
    may give up for what comes after it; None leaves that to the solver.
    """

    unlimited: bool = False
    heterogeneous: bool = False
    milp: bool = False
    saturation_policy: SaturationPolicy = SaturationPolicy.NONE
    delayed_best_effort: bool = False
    hold_undecided: bool = False
    time_limit: float = 30.0
    priority_tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class System:
    """Everything an optimization needs. Names are unique within each kind.

    `profiles` holds at most one entry for a pair of model and accelerator; `capacity` maps
    an accelerator type to its cards, and a type that is not listed has none. `held` are cards
    by type on which servers run that are no part of the system.
    """

    accelerators: tuple[Accelerator, ...] = ()
    profiles: tuple[PerformanceProfile, ...] = ()
    classes: tuple[ServiceClass, ...] = ()
    servers: tuple[Server, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    options: Options = Options()
    held: Mapping[str, int] = field(default_factory=dict)  # can be sent to another process

    def by_name(self) -> "System":
        """The same in an order that does not depend on how it was put together."""
        return replace(
            self,
            accelerators=tuple(sorted(self.accelerators, key=lambda a: a.name)),
            profiles=tuple(sorted(self.profiles, key=lambda p: (p.model, p.accelerator))),
            classes=tuple(sorted(self.classes, key=lambda c: c.name)),
            servers=tuple(sorted(self.servers, key=lambda s: s.name)),
            capacity=dict(sorted(self.capacity.items())),
        )


class Reason(StrEnum):
    """Why a server has the allocation that it has, or none."""

    ALLOCATED = "Allocated"
    BEST_EFFORT = "BestEffort"
    NO_CAPACITY = "NoCapacity"
    UNATTAINABLE_SLO = "UnattainableSLO"
    NO_PERFORMANCE_DATA = "NoPerformanceData"
    NO_TARGET = "NoTarget"
    UNKNOWN_MODEL = "UnknownModel"
    UNKNOWN_CLASS = "UnknownClass"
    INVALID_SPEC = "InvalidSpec"

    @property
    def decided(self) -> bool:
        """Whether this is a decision; otherwise what runs now is to be held."""
        return self in (Reason.ALLOCATED, Reason.BEST_EFFORT, Reason.NO_CAPACITY)


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for one server; `allocation` is None where it gets nothing.

    `warnings` tell why the numbers of the allocation may not hold, see `caveats`.
    """

    server: str
    reason: Reason
    message: str
    allocation: Allocation | None = None
    warnings: tuple[str, ...] = ()


class Status(StrEnum):
    """How good a plan is known to be."""

    OPTIMAL = "Optimal"
    FEASIBLE = "Feasible"
    TIME_LIMIT = "TimeLimit"


@dataclass(frozen=True, slots=True)
class Level:
    """Load of a priority that is served entirely, and what is proven of it [requests/min].

    No plan that serves as much of the more important priorities serves more than `bound`.
    `load` is that of all servers of the priority; 0 where it is not known.
    """

    priority: int
    served: float
    bound: float
    load: float = 0.0

    @property
    def gap(self) -> float:
        """Proven distance from the most, relative to the load of the priority or 1."""
        return max(0.0, self.bound - self.served) / max(self.load, self.bound, 1.0)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is proven of a plan.

    `objective` is the total value of what is served entirely (lower is better; shares of
    what is left are no part of it), `bound` a proven lower bound of it among the plans that
    serve as much; None where the solver gives none, which then has no `levels` either.
    `phases` are the steps with their seconds.
    """

    solver: str
    status: Status
    objective: float
    bound: float | None
    seconds: float
    levels: tuple[Level, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()

    @property
    def gap(self) -> float | None:
        """Proven distance from the optimum, the worst of value and loads; None without a bound.

        That of the value is relative to the larger of |objective| and 1.
        """
        if self.bound is None:
            return None
        distance = max(0.0, self.objective - self.bound) / max(abs(self.objective), 1.0)
        return max(distance, *(level.gap for level in self.levels), 0.0)


@dataclass(frozen=True, slots=True)
class Gain:
    """Load of a priority that is served besides [requests/min]."""

    priority: int
    load: float


@dataclass(frozen=True, slots=True)
class MarginalValue:
    """What one more card of a type is worth.

    Where it lets more load be served, `gain` is that of the most important priority that
    profits. Otherwise `price` is what it saves at the served load of the plan [cents/hour].
    Both tell what the linear relaxation of the problem gains when it is solved again with one
    more card; both are None where the solver does not tell.
    """

    price: float | None = None
    gain: Gain | None = None


@dataclass(frozen=True, slots=True)
class CapacityUse:
    """Cards of a type: in use by the plan, and all that there are.

    `price` and `gain` are those of one more card, as in `MarginalValue`. `held` are those of
    `available` on which servers run for which no decision is possible; there may be more of
    them than there are said to be.
    """

    type: str
    used: int
    available: int
    price: float | None = None
    gain: Gain | None = None
    held: int = 0

    @property
    def usable(self) -> int:
        """Cards that a plan may use."""
        return max(self.available - self.held, 0)


@dataclass(frozen=True, slots=True)
class Solution:
    """One decision per server, in the order of the system; with the certificate."""

    decisions: tuple[Decision, ...]
    certificate: Certificate
    capacity: tuple[CapacityUse, ...]

    @property
    def allocations(self) -> dict[str, Allocation]:
        """Allocation by server, of those that have one."""
        return {d.server: d.allocation for d in self.decisions if d.allocation is not None}

    @property
    def unserved(self) -> tuple[Decision, ...]:
        """The decisions of servers that got nothing."""
        return tuple(d for d in self.decisions if d.allocation is None)

    @property
    def cost(self) -> float:
        """Cost of all allocations [cents/hour]."""
        return sum(a.cost for a in self.allocations.values())
