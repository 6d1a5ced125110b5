"""Server: a model that is served to a class of users, and the decision for it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from inferno_operator.resources.allocation import MAX_ACCELERATORS, ServerAllocation
from inferno_operator.resources.base import AGE, READY, Column, Resource, Status
from inferno_operator.resources.measurement import Measure, Measured
from inferno_operator.resources.model_booster import ModelBoosterRef
from inferno_operator.resources.recurrence import MAX_WINDOWS, RecurringWindow
from inferno_operator.resources.schema import (
    ATOMIC,
    Items,
    NonEmptyText,
    NonNegativeInteger,
    Number,
    Part,
    PositiveInteger,
    Quantity,
    Rule,
    Time,
)
from inferno_operator.resources.workload import RULES, RecordedWorkload, Workload

CURRENT_ALLOC, DESIRED_ALLOC = "currentAlloc", "desiredAlloc"
"""Names of the fields of the spec that the operator writes."""

MAX_COUNTED = 2 * MAX_ACCELERATORS
"""Most workloads of a Server: those that it names, and those that it named before."""

MAX_REDUCTIONS = 10
"""Most reductions that are remembered; of more, the two oldest count as one."""

LEAD_SECONDS = 120.0
"""Time until a new replica serves, if nobody says it and no pod shows it [s]."""

WINDOW_SECONDS = 300.0
"""Shortest default of the time for which fewer replicas must be enough [s]."""


class ScaleDown(Part):
    """How a measured server gets fewer replicas."""

    window_seconds: NonNegativeInteger | None = None
    """Time for which fewer must be enough [s]; absent: 300, or two lead times if that is more."""


class ScheduledLoad(RecurringWindow):
    """A recurring window of time in which a measured server needs more, as somebody knows."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "say minNumReplicas, minArrivalRate or both",
            "has(self.minNumReplicas) || has(self.minArrivalRate)",
            lambda window: (window.min_num_replicas, window.min_arrival_rate) != (None, None),
        ),
    )

    min_num_replicas: NonNegativeInteger | None = None
    """Fewest replicas in the window."""
    min_arrival_rate: Quantity | None = None
    """Least load that plans are made for in the window [requests/min]."""


class ServerSpec(Part):
    """Which model is served to which class, what runs now, and what should run."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *RULES,
        Rule(
            "a schedule is for a measured load: add measure, or set the load by hand",
            "!has(self.schedule) || size(self.schedule) == 0 || has(self.measure)",
            lambda spec: not spec.schedule or spec.measure is not None,
        ),
    )

    name: NonEmptyText
    """Name of the server, the key of the solution."""
    service_class: Annotated[NonEmptyText, Field(alias="class")]
    """The service class' spec.name."""
    model: NonEmptyText
    """The model's spec.name."""
    keep_accelerator: bool = False
    """Stay on the current accelerator; only replicas and batch size are decided."""
    min_num_replicas: NonNegativeInteger = 0
    """Fewest replicas, also without load; with `measure`, one at least without `measure.demand`."""
    max_batch_size: NonNegativeInteger = 0
    """Largest batch of a replica [requests]; 0 means what the model's data allow."""
    max_queue_size: NonNegativeInteger = 0
    """Most requests that wait at a replica, for models with perfParms; others have a rule."""
    current_alloc: ServerAllocation | None = None
    """What runs now; its load is the input of the optimization."""
    desired_alloc: Annotated[ServerAllocation | None, Field(json_schema_extra=ATOMIC)] = None
    """The decision, written by the operator."""
    model_booster: ModelBoosterRef | None = None
    """The ModelBooster to scale; absent means that nothing but this object is written."""
    workloads: Annotated[Items[Workload], Field(max_length=MAX_ACCELERATORS)] = ()
    """The objects to scale in place of a ModelBooster, one for each accelerator."""
    actuation: Literal["Scale", "Publish"] = "Scale"
    """Scale writes the numbers of replicas of the workloads, or in the ModelBooster; Publish leaves
    that to others."""
    startup_seconds: PositiveInteger | None = None
    """Time until a new replica serves, while it is not measured [s]; 120 if absent."""
    scale_down: ScaleDown | None = None
    """How the replicas of a measured server are reduced."""
    schedule: Annotated[Items[ScheduledLoad], Field(max_length=MAX_WINDOWS)] = ()
    """Windows with a known need; replicas are ready when a window begins."""
    measure: Measure | None = None
    """Where the load and the latencies are measured; absent: a person sets currentAlloc."""


class MeasuredLeadTime(Part):
    """How long new replicas take to serve on an accelerator."""

    accelerator: NonEmptyText
    """The accelerator's spec.name."""
    seconds: Number
    """Time from created to ready of nine of ten pods [s]."""
    pods: NonNegativeInteger
    """The pods that this was measured of."""


class ServedReplicas(Part):
    """Replicas on one accelerator, of one role."""

    accelerator: NonEmptyText
    """The accelerator's spec.name, with the role if the replicas do one half of each request."""
    replicas: NonNegativeInteger
    """Number of replicas."""


def _count_by_place(replicas: Iterable[ServedReplicas]) -> Mapping[str, int]:
    return {each.accelerator: each.replicas for each in replicas if each.replicas}


class ReplicaReduction(Part):
    """Replicas that served until some of them went."""

    time: Time
    """When they had gone, or began to go."""
    going: bool = False
    """Whether they still go: then as many serve as before."""
    replicas: Annotated[Items[ServedReplicas], Field(max_length=MAX_COUNTED)] = ()
    """What served before."""

    @property
    def served(self) -> Mapping[str, int]:
        """What served before, by place."""
        return _count_by_place(self.replicas)


class ApprovedDecision(Part):
    """A decision of a Plan that a person approved; its replicas go at once."""

    plan: NonEmptyText
    """Name of the Plan."""
    replicas: Annotated[Items[ServedReplicas], Field(max_length=MAX_COUNTED)] = ()
    """What it decided for the server."""

    def is_for(self, replicas: Mapping[str, int]) -> bool:
        """Whether a decision for replicas by place is this one."""
        return _count_by_place(self.replicas) == {place: n for place, n in replicas.items() if n}


class ServerStatus(Status):
    """What the operator says about a Server."""

    lead_times: Items[MeasuredLeadTime] = ()
    """How long new replicas of its workloads took to serve."""
    workloads: Annotated[Items[RecordedWorkload], Field(max_length=MAX_COUNTED)] = ()
    """Its workloads, or the servings of its ModelBooster, and earlier ones that have replicas."""
    measured: Measured | None = None
    """What was measured; absent without spec.measure."""
    moved: Time | None = None
    """When a measured server was last moved to another accelerator."""
    last_accelerator: str = ""
    """Accelerator of the last replica before the server had none; it wakes there."""
    reductions: Annotated[Items[ReplicaReduction], Field(max_length=MAX_REDUCTIONS)] = ()
    """Reductions within spec.guard.window of the Optimizer, and what served before."""
    approved: ApprovedDecision | None = None
    """The decision that a person approved; absent if another one stands."""


class Server(Resource):
    """Server is a model served to a class of users: what runs now, and what should run."""

    kind: ClassVar[str] = "Server"
    plural: ClassVar[str] = "servers"
    short_names: ClassVar[tuple[str, ...]] = ("srv",)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Class", ".spec.class"),
        Column("Model", ".spec.model"),
        Column("Accelerator", ".spec.desiredAlloc.accelerator"),
        Column("Replicas", ".spec.desiredAlloc.numReplicas", "integer"),
        Column("Cost", ".spec.desiredAlloc.cost", "number"),
        READY,
        AGE,
        Column("Batch", ".spec.desiredAlloc.maxBatch", "integer", wide=True),
        Column("ITL", ".spec.desiredAlloc.itlAverage", "number", wide=True),
        Column("Now-On", ".spec.currentAlloc.accelerator", wide=True),
        Column("Now-Replicas", ".spec.currentAlloc.numReplicas", "integer", wide=True),
        Column("Now-Cost", ".spec.currentAlloc.cost", "number", wide=True),
        Column("Allocated", '.status.conditions[?(@.type=="Allocated")].reason', wide=True),
        Column("Measured", ".status.measured.quality", wide=True),
        Column("Arrivals", ".status.measured.arrivalRate", "number", wide=True),
    )

    spec: ServerSpec
    status: ServerStatus = ServerStatus()

    def replace_spec(self, **fields: object) -> "Server":
        """Return the Server with other values of some fields of its spec."""
        return self.model_copy(update={"spec": self.spec.model_copy(update=fields)})

    def scheduled(self, now: datetime) -> Sequence[ScheduledLoad]:
        """Return the windows that are open, or will be when a new replica serves."""
        if not self.spec.schedule:
            return ()
        later = now + timedelta(seconds=self.lead_seconds)
        return [window for window in self.spec.schedule if window.end(now) or window.end(later)]

    def fewest_replicas(self, now: datetime) -> int:
        """Return the fewest replicas that somebody asks for, always or in a window."""
        windows = (window.min_num_replicas or 0 for window in self.scheduled(now))
        return max(self.spec.min_num_replicas, *windows, 0)

    @property
    def names_workloads(self) -> bool:
        """Whether it names what its replicas run in: workloads, or a ModelBooster."""
        return bool(self.spec.workloads or self.spec.model_booster)

    @property
    def ready_pods(self) -> tuple[int, int] | None:
        """The ready pods that answer requests, and all of them, as the operator has counted them.

        Of a replica with several pods it is the first one; where prefill and decode are apart,
        only those that decode answer. None if nothing that the operator could count is named, or
        if it has not counted yet.
        """
        current = self.spec.current_alloc
        if current is None or not self.names_workloads:
            return None
        ready, roles = current.num_replicas, current.roles
        if roles is None:
            return ready, ready
        return roles.decode.num_replicas, roles.prefill.num_replicas + roles.decode.num_replicas

    @property
    def is_actuated(self) -> bool:
        """Whether replicas follow from its decisions."""
        return self.names_workloads or self.spec.actuation == "Publish"

    @property
    def names_roles(self) -> bool:
        """Whether it names what runs prefill or decode alone."""
        booster = self.spec.model_booster
        roles = {workload.role for workload in self.spec.workloads}
        roles |= {backend.role for backend in (booster.backends if booster else ())}
        return bool(roles - {"Both"})

    def recorded_replicas(self, workload: Workload, uid: str) -> int | None:
        """Return the number of replicas of a workload that its status has; None if it has none."""
        same = (w for w in self.status.workloads if w.object_name == workload.object_name)
        return next((w.replicas for w in same if w.uid == uid), None)

    def recorded_uid(self, workload: Workload) -> str:
        """Return the uid of a workload that its status has; "" if it has none."""
        same = (w for w in self.status.workloads if w.object_name == workload.object_name)
        return next((w.uid for w in same), "")

    @property
    def left_workloads(self) -> Sequence[Workload]:
        """The workloads that it named before, and names no more."""
        named = {w.object_name for w in self.spec.workloads}
        return [w for w in self.status.workloads if w.object_name not in named] if named else []

    @property
    def counted_workloads(self) -> Sequence[Workload]:
        """The workloads whose replicas run for it: those that it names, and those that are left."""
        return (*self.spec.workloads, *self.left_workloads)

    @property
    def sleeps(self) -> bool:
        """Whether it has no replica, and something else than its replicas sees its requests."""
        spec = self.spec
        if spec.measure is None or spec.measure.demand is None or self.is_uncounted:
            return False
        standing = spec.desired_alloc or spec.current_alloc
        return standing is None or standing.num_replicas == 0

    @property
    def is_uncounted(self) -> bool:
        """Whether replicas may run that nobody has seen yet: who counts them tells their cost."""
        spec = self.spec
        if spec.desired_alloc is not None or not self.names_workloads:
            return False
        return spec.current_alloc is None or spec.current_alloc.cost is None

    @property
    def wakes_on(self) -> str:
        """Where a server wakes that has slept, until a replica serves; "" for any other."""
        desired, current = self.spec.desired_alloc, self.spec.current_alloc
        serves = current is not None and current.num_replicas > 0
        last = self.status.last_accelerator
        if not last or (serves and not self.sleeps):
            return ""
        return desired.place if desired is not None and desired.num_replicas else last

    @property
    def lead_seconds(self) -> float:
        """Time until a new replica serves [s].

        It is the one that is measured on the accelerator of the decision, or the longer one of
        both roles, else the longest that is measured on any, else what a person says.
        """
        measured = {item.accelerator: item.seconds for item in self.status.lead_times}
        desired = self.spec.desired_alloc
        decided = [desired.accelerator] if desired else []
        if desired is not None and desired.roles is not None:
            decided = [*desired.roles.by_place]
        if decided and measured.keys() >= {*decided}:
            return max(measured[place] for place in decided)
        return max(measured.values(), default=float(self.spec.startup_seconds or LEAD_SECONDS))

    @property
    def window_seconds(self) -> float:
        """Time for which fewer replicas must be enough before there are fewer [s]."""
        chosen = self.spec.scale_down.window_seconds if self.spec.scale_down else None
        return max(WINDOW_SECONDS, 2 * self.lead_seconds) if chosen is None else float(chosen)
