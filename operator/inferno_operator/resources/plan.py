"""Plan: what an optimization decided to change, who let it pass, and what became of it."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from inferno_operator.resources.allocation import ErrorPercent, Origin
from inferno_operator.resources.base import AGE, Column, Resource, Status
from inferno_operator.resources.capacity import Count
from inferno_operator.resources.optimizer import Certificate
from inferno_operator.resources.schema import (
    Items,
    NonEmptyText,
    NonNegativeInteger,
    Number,
    Part,
    Rule,
    Time,
)
from inferno_operator.resources.workload import RoleName
from inferno_optimizer.system import Role, place_of

MAX_STEPS = 1000
"""Most changes that a Plan lists; the size of objects is limited."""

MAX_VIA = 20
"""Most steps down of a Server that a Plan lists."""

MAX_EMPTIED = 100
"""Most Servers that a Plan names for what they lose."""


class Placement(Part):
    """Replicas on one accelerator, of one role."""

    accelerator: NonEmptyText
    """The accelerator's spec.name."""
    replicas: NonNegativeInteger
    """Number of replicas."""
    batch: NonNegativeInteger = 0
    """Largest batch of a replica [requests]."""
    role: RoleName = "Both"
    """What the replicas do of each request."""

    @property
    def place(self) -> str:
        """The accelerator, with the role if there are others for the rest of each request."""
        return place_of(self.accelerator, Role(self.role))


class PlanStep(Part):
    """The change of one Server."""

    server: NonEmptyText
    """Name of the Server object."""
    before: Annotated[Items[Placement], Field(alias="from")] = ()
    """What was decided before, or what ran if nothing was; empty means nothing."""
    after: Annotated[Items[Placement], Field(alias="to")] = ()
    """What is decided; empty means nothing."""
    via: Annotated[Items[NonNegativeInteger], Field(max_length=MAX_VIA)] = ()
    """Replicas in between, if they go in steps (spec.guard.window); once approved, all at once."""
    cost_change: Number = 0.0
    """Change of the cost [cents/hour]."""
    reason: str
    """CamelCase word for the decision, as in the Server's condition Allocated."""
    message: str = ""
    """Details for a person; empty if the Server gets what it needs."""
    origin: Origin | None = None
    """Where the performance data of the predictions come from."""
    error_percent: ErrorPercent | None = None
    """Expected error of predicted latencies [percent]."""


class Reduction(Part):
    """What a Plan takes from the Servers that the operator scales or publishes."""

    replicas: NonNegativeInteger
    """Replicas of these Servers that run."""
    replicas_taken: Number
    """Replicas that are taken away; none of a Server that moves."""
    load: Number
    """Load of these Servers [requests/min]."""
    load_lost: Number
    """Load that is no longer served, except in favour of a more important Server [requests/min]."""
    emptied: Annotated[Items[NonEmptyText], Field(max_length=MAX_EMPTIED)] = ()
    """Servers that lose all replicas under load, the first of them by name."""


class PlanTotals(Part):
    """The Plan in numbers."""

    servers: NonNegativeInteger
    """Servers that change."""
    cost_before: Number
    """Cost of all Servers of the namespace before [cents/hour]."""
    cost_after: Number
    """Cost of all Servers of the namespace with the changes [cents/hour]."""
    cards: Items[Count] = ()
    """Cards that all Servers take by the Plan, by type; none where capacity is ignored."""
    reduction: Reduction | None = None
    """What is taken away; absent if there are no such Servers."""


class PlanSpec(Part):
    """A decision and its inputs; it never changes."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("a Plan does not change", "self == oldSelf", lambda _: True),
    )

    optimizer: NonEmptyText
    """Name of the Optimizer that decided."""
    digest: NonEmptyText
    """SHA-256 of all that the Plan says; an approval repeats it."""
    signature: Annotated[str, Field(max_length=128)] = ""
    """HMAC of digest, namespace and name with the operator's key: only it can make Plans."""
    inputs_digest: NonEmptyText
    """SHA-256 of the inputs, without what is measured and what the operator writes itself."""
    totals: PlanTotals
    """The Plan in numbers."""
    steps: Annotated[Items[PlanStep], Field(max_length=MAX_STEPS)] = ()
    """The changes, one for each Server, those with the largest change of cost first."""
    steps_omitted: NonNegativeInteger = 0
    """Further changes that are carried out, too many to list."""
    decisions: str = ""
    """All decisions as they are written on the Servers: JSON, gzip, base64."""
    inputs: str = ""
    """The system that was optimized, for `inferno plan`: JSON, gzip, base64."""
    omitted: str = ""
    """Why inputs or decisions are left out; empty if they are there."""
    certificate: Certificate | None = None
    """How good the solution is."""


class Approval(Part):
    """The answer of a person, written to the status subresource."""

    state: Literal["Approved", "Rejected"]
    """The answer."""
    digest: NonEmptyText
    """The Plan's spec.digest: it shows which Plan the answer is about."""
    until: Time | None = None
    """An approval is void after this time; absent means that it has no end."""
    by: Annotated[str, Field(max_length=256)] = ""
    """Who answers, as the client says."""


Phase = Literal[
    "Proposed",
    "Approved",
    "Acting",
    "Done",
    "Written",
    "Superseded",
    "Expired",
    "Rejected",
    "Failed",
]

FINISHED = frozenset({"Done", "Written", "Superseded", "Expired", "Rejected", "Failed"})
"""The phases of a Plan that nothing more becomes of."""


class PlanStatus(Status):
    """What became of a Plan."""

    phase: Phase | None = None
    """Where the Plan is; absent until the operator has looked at it."""
    by: str = ""
    """Who let it pass or stopped it: the Optimizer's mode, or a person."""
    finished: Time | None = None
    """When it reached its last phase."""
    arrived: NonNegativeInteger | None = None
    """Servers that the operator scales and that run what was decided."""
    approval: Approval | None = None
    """The answer of a person."""

    @property
    def took_effect(self) -> bool:
        """Whether the Plan was carried out, at least in part, or will be."""
        return self.phase in ("Approved", "Acting", "Done", "Written") or self.arrived is not None


class Plan(Resource):
    """Plan is a change of Servers that an Optimizer decided, and what became of it."""

    kind: ClassVar[str] = "Plan"
    plural: ClassVar[str] = "plans"
    short_names: ClassVar[tuple[str, ...]] = ("ipl",)
    categories: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Optimizer", ".spec.optimizer"),
        Column("Phase", ".status.phase"),
        Column("Servers", ".spec.totals.servers", "integer"),
        Column("Arrived", ".status.arrived", "integer"),
        Column("Cost-Before", ".spec.totals.costBefore", "number"),
        Column("Cost-After", ".spec.totals.costAfter", "number"),
        Column("By", ".status.by"),
        AGE,
        Column("Why", '.status.conditions[?(@.type=="CarriedOut")].message', wide=True),
    )

    spec: PlanSpec
    status: PlanStatus = PlanStatus()

    @property
    def order(self) -> tuple[object, int, str]:
        """What to sort by to have the oldest first; of those of one second, by number."""
        created, name = self.age
        number = name.rpartition("-")[2]
        return created, int(number) if number.isdigit() else 0, name

    @property
    def is_finished(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.status.phase in FINISHED
