"""Allocation: accelerator, replicas and batch size of a server, and the load it is for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AllowInfNan, Field
from pydantic.alias_generators import to_camel

from inferno_operator.resources.schema import (
    Amount,
    Items,
    NonNegativeInteger,
    Number,
    Part,
    Quantity,
    Rule,
    ShortText,
)
from inferno_optimizer.system import Role, place_of, place_of_all

MAX_ACCELERATORS = 64
"""Most accelerators of one server; bounds the cost of the API server's checks."""

DIGITS = 6
"""Decimals of the numbers that are written: more than anyone reads, and always as many."""


TOLERANCE = 0.25
"""Share by which a load may differ from another, and is still taken for the same."""


class Load(Part):
    """Traffic of a server."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "give avgLength or avgOutTokens",
            "has(self.avgLength) || has(self.avgOutTokens)",
            lambda load: load.avg_length is not None or load.avg_out_tokens is not None,
        ),
    )

    arrival_rate: Quantity
    """Arrival rate [requests/min]."""
    avg_length: Amount | None = None
    """Mean tokens per request."""
    avg_in_tokens: NonNegativeInteger | None = None
    """Mean input (prompt) tokens per request, for models with a prefill time."""
    avg_out_tokens: NonNegativeInteger | None = None
    """Mean output (generated) tokens per request, for models with a prefill time."""
    cached_tokens: NonNegativeInteger | None = None
    """Input tokens per request that a warm replica has in its prefix cache; part of avgInTokens."""
    tokens_per_step: Annotated[Number | None, Field(ge=1)] = None
    """Output tokens that a step makes with speculative decoding, on average; absent means one."""
    arrival_cov: Annotated[Quantity | None, Field(alias="arrivalCOV")] = None
    """Coefficient of variation of the times between arrivals, for stepParms."""
    service_cov: Annotated[Quantity | None, Field(alias="serviceCOV")] = None
    """Coefficient of variation of the lengths of requests, for stepParms."""


_NUMBERS = (
    "arrival_rate",
    "avg_length",
    "avg_in_tokens",
    "avg_out_tokens",
    "cached_tokens",
    "tokens_per_step",
)
"""Fields of a load whose change is told."""


def describe_change(before: Load, now: Load) -> str:
    """Return which field of a load has moved by more than the tolerance, and how; "" if none."""
    for name in _NUMBERS:
        old, new = getattr(before, name) or 0, getattr(now, name) or 0
        if abs(new - old) > TOLERANCE * old:
            return f"{to_camel(name)} was {old:g} and is {new:g} now"
    return ""


class ReplicaAllocation(Part):
    """An accelerator, a number of replicas, and what they cost."""

    accelerator: ShortText
    """The accelerator's spec.name; empty means none."""
    num_replicas: Amount
    """Number of replicas."""
    starting_replicas: NonNegativeInteger | None = None
    """Further replicas that hold cards and do not serve yet; plans count them as running."""
    cold_replicas: NonNegativeInteger | None = None
    """Replicas that have just started, with empty prefix caches."""
    max_batch: Amount | None = None
    """Largest batch of a replica [requests]; most prompts in a step of a prefill replica."""
    cost: Quantity | None = None
    """Cost of all replicas [cents/hour]."""

    @property
    def placed_replicas(self) -> int:
        """The replicas that hold cards: those that serve, and those that start."""
        return self.num_replicas + (self.starting_replicas or 0)


Origin = Literal["measured", "published", "estimated"]
"""Where performance data come from, and what is predicted by them."""

ErrorPercent = Annotated[float, AllowInfNan(False), Field(ge=0, le=100)]

ORIGIN_FIELDS = ("origin", "errorPercent")
"""Fields of an allocation that only some decisions have."""


class Allocation(ReplicaAllocation):
    """An accelerator, a number of replicas, and how they perform under a load."""

    itl_average: Quantity | None = None
    """Mean inter-token latency [ms]."""
    wait_average: Quantity | None = None
    """Mean waiting (queueing) time [ms]."""
    ttft_average: Quantity | None = None
    """Mean time to first token [ms]."""
    load: Load | None = None
    """The load."""
    origin: Origin | None = None
    """Where the performance data of the predictions come from."""
    error_percent: ErrorPercent | None = None
    """Expected error of predicted latencies [percent]."""

    @property
    def parts(self) -> "tuple[Allocation, ...]":
        """An allocation for each accelerator."""
        return (self,)

    @property
    def parts_by_role(self) -> Sequence[tuple[Role, ReplicaAllocation]]:
        """The parts on each accelerator, and what their replicas do of each request."""
        return [(Role.BOTH, part) for part in self.parts]

    @property
    def by_place(self) -> Mapping[str, int]:
        """The replicas by place, see `Workload.place`."""
        counts: Counter[str] = Counter()
        for role, part in self.parts_by_role:
            if part.num_replicas > 0:
                counts[place_of(part.accelerator, role)] += part.num_replicas
        return counts


class Roles(Part):
    """The replicas of both roles."""

    prefill: ReplicaAllocation
    """Those that compute prompts."""
    decode: ReplicaAllocation
    """Those that compute answers."""

    @property
    def by_role(self) -> "dict[Role, ReplicaAllocation]":
        """Both parts, prefill first."""
        return {Role.PREFILL: self.prefill, Role.DECODE: self.decode}

    @property
    def by_place(self) -> "dict[str, ReplicaAllocation]":
        """Both parts by the place of their workloads, see `Workload.place`."""
        return {place_of(part.accelerator, role): part for role, part in self.by_role.items()}

    @property
    def parts(self) -> tuple[Allocation, ...]:
        """An allocation for each accelerator, of both roles where they share it."""
        by_accelerator: dict[str, list[ReplicaAllocation]] = {}
        for part in self.by_role.values():
            by_accelerator.setdefault(part.accelerator, []).append(part)
        return tuple(
            Allocation(
                accelerator=accelerator,
                num_replicas=sum(part.num_replicas for part in parts),
                starting_replicas=sum(part.starting_replicas or 0 for part in parts) or None,
                max_batch=parts[-1].max_batch,
                cost=sum(part.cost or 0.0 for part in parts),
            )
            for accelerator, parts in by_accelerator.items()
        )


class ServerAllocation(Allocation):
    """All of a server. With a mix, accelerator names its largest part and the rest are totals."""

    mix: Annotated[Items[Allocation], Field(max_length=MAX_ACCELERATORS)] = ()
    """One allocation per accelerator, when the server runs on several."""
    roles: Roles | None = None
    """The parts by role, when prefill and decode are apart; accelerator is that of decode."""

    @property
    def parts(self) -> tuple[Allocation, ...]:
        """An allocation for each accelerator."""
        return self.mix or (self.roles.parts if self.roles else (self,))

    @property
    def parts_by_role(self) -> Sequence[tuple[Role, ReplicaAllocation]]:
        """The parts on each accelerator, and what their replicas do of each request."""
        return [*self.roles.by_role.items()] if self.roles else super().parts_by_role

    @property
    def place(self) -> str:
        """The accelerator, or those of both roles, as the optimizer names a destination."""
        parts = [*self.roles.by_role.values()] if self.roles else [self]
        return place_of_all([part.accelerator for part in parts])


def placement_of(allocation: Mapping[str, Any]) -> object:
    """Return the accelerators, replicas and batch sizes of a manifest, whatever their order."""
    if roles := allocation.get("roles"):
        return sorted((role, *_placed(part)) for role, part in roles.items())
    return sorted(_placed(part) for part in allocation.get("mix") or [allocation])


def _placed(part: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(part.get(name) or 0 for name in ("accelerator", "numReplicas", "maxBatch"))
