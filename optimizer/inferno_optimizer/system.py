"""The input of the optimizer (System), as immutable values.

Units: time in ms, arrival rates in requests/min, costs in cents/hour, capacity in cards.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import ClassVar

DEFAULT_CLASS = "Free"
"""Class of a server that does not name one, as in the original."""

LOWEST_PRIORITY = 100
"""Priorities are 1 (most important) to 100; anything else counts as 100."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One or more cards of a type that are rented as a unit.

    `cost` is the cost of the whole unit; `multiplicity` is its number of cards.
    """

    name: str
    type: str
    cost: float
    multiplicity: int = 1


class Generation(IntEnum):
    """Kinds of performance data; each has its own fields for loads and latencies."""

    DECODE = 1
    PREFILL_DECODE = 2
    TOKEN_BUDGET = 3
    STEPS = 4


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

    `alpha` is the fixed time of an iteration; `beta` is added for each token computed, `gamma`
    for each token read from the cache.
    """

    generation: ClassVar[Generation] = Generation.TOKEN_BUDGET

    alpha: float
    beta: float
    gamma: float


@dataclass(frozen=True, slots=True)
class StepParameters:
    """Fourth generation: time of the steps of an engine that mixes prefill and decode [ms].

    A step takes `alpha`, plus `kappa` for each token in the cache, plus `delta` for each prompt
    token that it computes; and with a prefill, `u` more for each token in the cache. `ahead` steps
    are queued before a request's own; a step computes at most `budget` tokens (0: any number). A
    request costs as much as `overhead` tokens in the cache besides its own. They were measured with
    requests of lengths for which the bounds of input and output tokens stand; 0 means no bound.
    """

    generation: ClassVar[Generation] = Generation.STEPS

    alpha: float
    kappa: float
    delta: float
    u: float = 0.0
    ahead: float = 0.0
    budget: float = 0.0
    overhead: float = 0.0
    min_input_tokens: int = 0
    max_input_tokens: int = 0
    min_output_tokens: int = 0
    max_output_tokens: int = 0


PerformanceParameters = (
    DecodeParameters | PrefillDecodeParameters | TokenBudgetParameters | StepParameters
)


@dataclass(frozen=True, slots=True)
class PerformanceProfile:
    """How one model performs on one accelerator.

    `max_batch_size` is the largest batch at `at_tokens` tokens per request; a replica
    occupies `accelerator_count` accelerators. A replica keeps at most `max_tokens` input and
    output tokens in memory, and serves at most `max_sequences` requests at a time; 0 means no
    such bound. `origin` is where the parameters come from (measured, published, estimated), and
    `error_percent` what predicted times are off by; "" and 0 if that is not known.
    """

    model: str
    accelerator: str
    parameters: PerformanceParameters
    max_batch_size: int
    at_tokens: int
    accelerator_count: int = 1
    max_tokens: int = 0
    max_sequences: int = 0
    origin: str = ""
    error_percent: float = 0.0


class Role(StrEnum):
    """What the replicas of a model do: all of it, or only one half of each request.

    Prefill replicas compute prompts, and hand their part of the cache over to decode replicas.
    """

    BOTH = "Both"
    PREFILL = "Prefill"
    DECODE = "Decode"


PAIR = (Role.PREFILL, Role.DECODE)
"""Both halves of a request, in the order in which they are told."""


def can_answer(roles: Iterable[Role]) -> bool:
    """Whether replicas of these roles answer requests: whole ones, or those of both halves."""
    present = frozenset(roles)
    return Role.BOTH in present or present.issuperset(PAIR)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Time to hand a prompt over to a decode replica: for each request, and for each token [ms]."""

    request_ms: float = 0.0
    token_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class RoleProfile:
    """How one model performs on one accelerator in one half of its requests.

    A prefill replica computes at most `max_batch_size` prompts in a step, and no more tokens than
    the budget of its parameters; `transfer` follows. The other fields are those of a
    `PerformanceProfile`. Of the parameters of a decode replica those for prompts are not used.
    """

    model: str
    accelerator: str
    role: Role
    parameters: StepParameters
    max_batch_size: int
    at_tokens: int = 0
    accelerator_count: int = 1
    max_tokens: int = 0
    max_sequences: int = 0
    transfer: Transfer = Transfer()
    origin: str = ""
    error_percent: float = 0.0


@dataclass(frozen=True, slots=True)
class Target:
    """Service level objectives of a model in a class; 0 means no target.

    The fields are the mean inter-token latency [ms], waiting time [ms], throughput [tokens/s]
    and time to first token [ms]. With a percentile in (0, 100), the target limits that
    percentile of the wait, of the time to first token, or of the mean inter-token latency of a
    request, which generations 1 to 3 take as the same for all. Without one, as in the original,
    it limits the mean, and -ln 0.05 times the mean wait (the 95th percentile if the waits were
    exponential).
    """

    itl_ms: float = 0.0
    wait_ms: float = 0.0
    tokens_per_second: float = 0.0
    ttft_ms: float = 0.0
    wait_percentile: float = 0.0
    ttft_percentile: float = 0.0
    itl_percentile: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """A priority, the targets of each model in the class, and the least replicas of its servers."""

    name: str
    priority: int
    targets: Mapping[str, Target]
    min_replicas: int = 0

    @property
    def effective_priority(self) -> int:
        """Priority in 1..100; any other value counts as the lowest."""
        return self.priority if 1 <= self.priority <= LOWEST_PRIORITY else LOWEST_PRIORITY


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that reach a server: rate [requests/min] and mean length [tokens/request].

    Generation 1 counts all tokens of a request (`tokens_per_request`), the later generations
    count input and output tokens. If a load has the fields of one generation only, `tokens_of`
    converts it for the others, without input tokens. Only generation 4 uses the coefficients of
    variation: of the times between arrivals, and of the lengths of requests. The throughput
    [requests/min] is only passed through. `cached_tokens` of the input tokens are in the prefix
    cache of a replica that is warm, which keeps them in memory but does not compute them.
    With speculative decoding a step makes `tokens_per_step` tokens of an answer on average; 0
    means one. Only generation 4 uses it.
    """

    arrival_rate: float = 0.0
    tokens_per_request: int = 0
    arrival_cov: float = 0.0
    service_cov: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    throughput: float = 0.0
    cached_tokens: int = 0
    tokens_per_step: float = 0.0

    @property
    def idle(self) -> bool:
        """Whether there are no requests, or only requests without tokens."""
        return self.arrival_rate == 0 or self.tokens_of(Generation.DECODE) == 0

    def tokens_of(self, generation: Generation) -> int:
        """Tokens that a request generates one after the other, as the generation counts them."""
        if generation is Generation.DECODE:
            return self.tokens_per_request or self.output_tokens
        return self.output_tokens or self.tokens_per_request

    @property
    def tokens_kept(self) -> int:
        """Input and output tokens that a replica keeps in memory at the end of a request.

        0 for an idle load.
        """
        if self.idle:
            return 0
        later = self.input_tokens + self.tokens_of(Generation.PREFILL_DECODE)
        return max(self.tokens_per_request, later)


@dataclass(frozen=True, slots=True)
class Tail:
    """Percentiles of the wait and the time to first token of the accepted requests [ms].

    Those of the mean inter-token latency of a request are 0 if they are not predicted.
    """

    wait_p90: float = 0.0
    wait_p95: float = 0.0
    wait_p99: float = 0.0
    ttft_p90: float = 0.0
    ttft_p95: float = 0.0
    ttft_p99: float = 0.0
    itl_p90: float = 0.0
    itl_p95: float = 0.0
    itl_p99: float = 0.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """The current or the desired placement of a server; `cost` is the cost of all replicas.

    Latencies are means [ms]. No accelerator and 0 replicas mean that nothing runs. `tail` is
    None if no percentiles were predicted; `generation` is the generation of the performance data
    used. For a server on several accelerators, `mix` has an allocation for each, the one with the
    most load first; `accelerator` and `max_batch_size` are then those of the first, `replicas`
    and `cost` are totals, and latencies are means over all requests. `cold_replicas` of the
    replicas have nothing in their prefix caches yet. Where prefill and decode are apart, `roles`
    has the part of each `role`, prefill first; `accelerator` and `max_batch_size` are then those of
    the decode replicas, `replicas` and `cost` are totals. `origin` and `error_percent` are those of
    the performance data that the latencies are predicted from; of several, of those with the
    largest error.
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
    cold_replicas: int = 0
    role: Role = Role.BOTH
    roles: tuple["Allocation", ...] = ()
    origin: str = ""
    error_percent: float = 0.0

    @property
    def warm_replicas(self) -> int:
        """Replicas whose prefix caches are filled."""
        return max(self.replicas - self.cold_replicas, 0)

    @property
    def parts(self) -> tuple["Allocation", ...]:
        """One allocation for each accelerator, or for each role."""
        return self.mix or self.roles or (self,)

    @property
    def place(self) -> str:
        """The accelerator, or those of both roles, as `place_of_all` names them."""
        return place_of_all([part.accelerator for part in self.roles or (self,)])

    @property
    def placement(self) -> str:
        """Replicas and accelerator of each part as text, such as `2 x A100 + 1 x H100`."""
        return " + ".join(_placed(part) for part in self.parts)


def band_of(origin: str, error_percent: float) -> str:
    """Where performance data come from and what they are off by: `estimated: +-20 %`."""
    return f"{origin}: +-{error_percent:g} %" if origin and error_percent else origin


def _placed(part: Allocation) -> str:
    return f"{part.replicas} x {place_of(part.accelerator, part.role)}"


def place_of(accelerator: str, role: Role) -> str:
    """Name of an accelerator, followed by the role if its replicas do one half of each request."""
    return accelerator if role is Role.BOTH else f"{accelerator} {role.lower()}"


def place_of_all(accelerators: Sequence[str]) -> str:
    """Name of one accelerator, or of those of prefill and decode: `B prefill + A decode`."""
    roles = (Role.BOTH,) if len(accelerators) == 1 else PAIR
    return " + ".join(map(place_of, accelerators, roles))


@dataclass(frozen=True, slots=True)
class Server:
    """A model in a service class, with its current allocation and its load.

    `keep_accelerator` pins the server to the accelerator of `current`; with `max_batch_size` 0
    the performance profile determines the batch. `max_queue_size` limits the waiting requests of
    a replica with a profile of generation 3; with 0, a replica rejects requests while its batch
    is full. `accelerators` names the only accelerators that the server may use, as it has workloads
    only there; empty means any. `prefill_accelerators` and `decode_accelerators` are the same for
    replicas of these roles, which are not used where only `accelerators` are named. `destination`
    is the `Allocation.place` that the server is moving to, or has moved to lately, so that another
    move has not paid for itself yet. `load_spread` is the standard deviation of the logarithm of
    the loads that come until a move would have paid for itself; 0 if the load stays. `least_rate`
    is what its replicas must be able to carry whatever the load is [requests/min]; a server without
    load needs no more than `min_replicas`.
    """

    name: str
    service_class: str
    model: str
    current: Allocation = Allocation()
    keep_accelerator: bool = False
    min_replicas: int = 0
    max_batch_size: int = 0
    max_queue_size: int = 0
    accelerators: tuple[str, ...] = ()
    destination: str = ""
    load_spread: float = 0.0
    least_rate: float = 0.0
    prefill_accelerators: tuple[str, ...] = ()
    decode_accelerators: tuple[str, ...] = ()

    @property
    def named_places(self) -> Mapping[Role, tuple[str, ...]]:
        """The only accelerators for each role; empty if the server may use any."""
        named = {
            Role.BOTH: self.accelerators,
            Role.PREFILL: self.prefill_accelerators,
            Role.DECODE: self.decode_accelerators,
        }
        return named if any(named.values()) else {}

    def has_place(self, accelerator: str, role: Role = Role.BOTH) -> bool:
        """Whether something runs the server on an accelerator in a role."""
        named = self.named_places
        return not named or accelerator in named[role]

    @property
    def load(self) -> Load:
        """The load to size for: the load of the current allocation."""
        return self.current.load


class SaturationPolicy(StrEnum):
    """Who gets how much where capacity is too short for all that the targets take.

    With `None` a server gets all or nothing. With any other policy it may get a part. With `Hold`
    nothing that runs is reduced for lack of cards, but for a more important server that gets them.
    """

    NONE = "None"
    HOLD = "Hold"
    PRIORITY_EXHAUSTIVE = "PriorityExhaustive"
    PRIORITY_ROUND_ROBIN = "PriorityRoundRobin"
    ROUND_ROBIN = "RoundRobin"

    @property
    def protects_what_runs(self) -> bool:
        """Whether nobody gives up what runs for an equal or a less important server."""
        return self in (self.HOLD, self.PRIORITY_EXHAUSTIVE, self.PRIORITY_ROUND_ROBIN)

    @property
    def takes_turns(self) -> bool:
        """Whether it shares out evenly what serves nobody entirely."""
        return self in (self.PRIORITY_ROUND_ROBIN, self.ROUND_ROBIN)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the optimization; `unlimited` overrides `milp`; without both, it is greedy.

    With `hold_undecided`, the cards of servers for which no decision is possible are subtracted
    from the capacity, and there is none for a server that runs where a mistake in the system
    excludes it: see `Reason.UNKNOWN_CAPACITY`. With `no_swaps`, the greedy solver takes
    no replica from a server that is short for an equal one on the same cards. `time_limit` [s]
    bounds sizing and the exact solver together.
    `priority_tolerance` is the share of the largest servable load of a priority that the exact
    solver may give up for lower priorities and for the value; None leaves the choice to the
    solver. With `trace`, the certificate tells how the exact solver improved the plan.
    """

    unlimited: bool = False
    heterogeneous: bool = False
    milp: bool = False
    saturation_policy: SaturationPolicy = SaturationPolicy.NONE
    delayed_best_effort: bool = False
    hold_undecided: bool = False
    no_swaps: bool = False
    time_limit: float = 30.0
    priority_tolerance: float | None = None
    trace: bool = False

    @property
    def avoids_swaps(self) -> bool:
        """Whether greedy plans are without swaps; `None` gives no parts, and `Hold` has none."""
        policy = self.saturation_policy
        return self.no_swaps and policy not in (SaturationPolicy.NONE, SaturationPolicy.HOLD)


@dataclass(frozen=True, slots=True)
class System:
    """The input of an optimization. Names are unique within each kind.

    `profiles` has at most one entry for a pair of model and accelerator, `roles` at most one for
    each of their roles; `capacity` maps
    an accelerator type to its number of cards; no cards are handed out of a type that is not
    listed. `held` counts the cards by type that are used by servers which are not part of the
    system, and `held_cost` is what these servers cost [cents/hour].
    """

    accelerators: tuple[Accelerator, ...] = ()
    profiles: tuple[PerformanceProfile, ...] = ()
    classes: tuple[ServiceClass, ...] = ()
    servers: tuple[Server, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)
    options: Options = Options()
    held: Mapping[str, int] = field(default_factory=dict)  # a dict: it must be picklable
    held_cost: float = 0.0
    roles: tuple[RoleProfile, ...] = ()

    @property
    def current_cost(self) -> float:
        """Cost of all that runs now, also of the servers that are not part of it [cents/hour]."""
        return sum(server.current.cost for server in self.servers) + self.held_cost

    def with_least_replicas(self) -> "System":
        """The same system, where the least replicas of a class are those of its servers."""
        least = {c.name: c.min_replicas for c in self.classes if c.min_replicas}
        if not least:
            return self
        servers = (
            replace(s, min_replicas=max(s.min_replicas, least.get(s.service_class, 0)))
            for s in self.servers
        )
        classes = (replace(c, min_replicas=0) for c in self.classes)
        return replace(self, servers=tuple(servers), classes=tuple(classes))

    def by_name(self) -> "System":
        """The same system with all objects sorted by name."""
        return replace(
            self,
            accelerators=tuple(sorted(self.accelerators, key=lambda a: a.name)),
            profiles=tuple(sorted(self.profiles, key=lambda p: (p.model, p.accelerator))),
            roles=tuple(sorted(self.roles, key=lambda p: (p.model, p.accelerator, p.role))),
            classes=tuple(sorted(self.classes, key=lambda c: c.name)),
            servers=tuple(sorted(self.servers, key=lambda s: s.name)),
            capacity=dict(sorted(self.capacity.items())),
        )
