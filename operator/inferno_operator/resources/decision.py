"""Decisions as a Plan keeps them in compressed form: read as strictly as any other object."""

from typing import Annotated, ClassVar, Literal

from pydantic import AllowInfNan, BeforeValidator, Field

from inferno_operator.resources.allocation import MAX_ACCELERATORS, Allocation, Load, Roles
from inferno_operator.resources.plan import Placement
from inferno_operator.resources.schema import (
    Items,
    NonNegativeInteger,
    Number,
    Part,
    Rule,
    without_fraction,
)
from inferno_optimizer.solution import Reason

MAX_REPLICAS = 2**31 - 1
"""Most replicas that a workload can have."""

NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
"""A name of an object."""

DECIDED = frozenset(reason.value for reason in Reason if reason.decided)

ReplicaCount = Annotated[int, Field(ge=0, le=MAX_REPLICAS), BeforeValidator(without_fraction)]
NonNegativeNumber = Annotated[float, AllowInfNan(False), Field(ge=0)]


class DecidedLoad(Load):
    """Traffic that a decision is for."""

    arrival_rate: NonNegativeNumber
    avg_length: NonNegativeInteger | None = None


class DecidedPart(Allocation):
    """Replicas on one accelerator that are decided."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "replicas need an accelerator",
            "self.numReplicas == 0 || self.accelerator != ''",
            lambda part: part.num_replicas == 0 or bool(part.accelerator),
        ),
    )

    num_replicas: ReplicaCount
    max_batch: NonNegativeInteger | None = None
    cost: NonNegativeNumber | None = None
    itl_average: NonNegativeNumber | None = None
    wait_average: NonNegativeNumber | None = None
    ttft_average: NonNegativeNumber | None = None
    load: DecidedLoad | None = None


class DecidedAllocation(DecidedPart):
    """All of a server that is decided."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *DecidedPart.rules,
        Rule(
            "the parts of a mix add up to its replicas",
            "!has(self.mix) || self.mix.map(p, p.numReplicas).sum() == self.numReplicas",
            lambda whole: (
                not whole.mix or sum(part.num_replicas for part in whole.mix) == whole.num_replicas
            ),
        ),
        Rule(
            "a mix has each accelerator once",
            "!has(self.mix) || self.mix.all(p, self.mix.exists_one(q, q == p))",
            lambda whole: len({part.accelerator for part in whole.mix}) == len(whole.mix),
        ),
    )

    mix: Annotated[Items[DecidedPart], Field(max_length=MAX_ACCELERATORS)] = ()
    roles: Roles | None = None

    @property
    def parts(self) -> tuple[Allocation, ...]:
        """An allocation for each accelerator."""
        return self.mix or (self.roles.parts if self.roles else (self,))


class DecidedSpec(Part):
    """The fields of a Server's spec that are written."""

    desired_alloc: DecidedAllocation


class DecidedVerdict(Part):
    """A condition of a Server that is written."""

    type: Literal["Ready", "Warnings", "Allocated"]
    holds: bool | None = None
    reason: Annotated[str, Field(pattern=r"^[A-Za-z]{1,64}$")]
    message: str = ""


class PlanDecision(Part):
    """A decision for one Server: what there was, what is written, and for which load."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a decision ends with the verdict Allocated, and a reason for what is decided",
            "self.verdicts[size(self.verdicts) - 1].type == 'Allocated'",
            lambda decision: (
                decision.verdicts[-1].type == "Allocated"
                and decision.verdicts[-1].reason in DECIDED
            ),
        ),
    )

    server: Annotated[str, Field(pattern=NAME)]
    spec: DecidedSpec
    verdicts: Annotated[Items[DecidedVerdict], Field(min_length=1, max_length=3)]
    active: bool
    load: DecidedLoad | None = None
    before: Annotated[Items[Placement], Field(max_length=MAX_ACCELERATORS)] = ()
    cost_before: Number = 0.0
