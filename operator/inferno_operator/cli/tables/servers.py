"""The Servers of a namespace with their latencies and targets, and its cards, as text and JSON.

Costs are in cents/hour where no currency is asked for, latencies in ms, loads in requests/min.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, Self

from rich.text import Text

from inferno_operator.cli.options import CENTS, Money
from inferno_operator.cli.tables.solution import (
    PlannedReplicas,
    describe_cached_prompts,
    format_card_worth,
)
from inferno_operator.cli.tables.table import (
    MISSES,
    UNKNOWN,
    Columns,
    Part,
    RowOrder,
    TextTable,
    format_age,
    group_notes,
    order_rows,
    style_parts,
)
from inferno_operator.controllers.measurement.load import set_last_good_load
from inferno_operator.controllers.measurement.quality import compare_with_targets
from inferno_operator.controllers.planning.conversions import (
    Label,
    name_accelerator,
    price_current,
)
from inferno_operator.controllers.planning.snapshot import KINDS, build_system
from inferno_operator.resources import (
    CURRENT_ALLOC,
    DESIRED_ALLOC,
    Allocation,
    Capacity,
    CapacityUse,
    Condition,
    CountedCards,
    LastOptimization,
    Measured,
    Optimizer,
    Plan,
    PlanStep,
    ReplicaAllocation,
    Resource,
    Server,
    ServerAllocation,
    ServerSpec,
    ServiceClass,
    Target,
)
from inferno_operator.resources.conditions import (
    CORRECTED,
    COUNTED,
    OPTIMIZED,
    READY,
    WAITING,
    WARNINGS,
)
from inferno_operator.resources.observation import Observation, only, readable, still_running
from inferno_optimizer.capacity import cards_of_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Gain, Reason
from inferno_optimizer.system import LOWEST_PRIORITY, band_of

Latency = Literal["itl", "wait", "ttft"]

# Latencies by the name of their target.
LATENCIES: Mapping[str, Latency] = {"slo-itl": "itl", "slo-ttw": "wait", "slo-ttft": "ttft"}

# Default percentile of a target of the wait; see `inferno_optimizer.system.Target`.
DEFAULT_WAIT_PERCENTILE = 95.0

# What is said of a Server that no optimization has seen.
UNDECIDED_NOTE = (
    "new since the last optimization; the next one decides,"
    " and 'kubectl inferno optimize' asks for it"
)

MISSES_NOTE = "a target is missed now; 'kubectl inferno explain' says what would help"

EXCESS_MARK = "!"  # stands at a number of cards in use that is above what there is

# Least share of a target that is shown: a latency of eleven times the target.
LEAST_SHARE_LEFT = -9.99

# Columns of servers that a narrow terminal does not show.
OPTIONAL = (
    *("CLASS", "MEASURED", "WAIT/SLO", "TTFT/SLO", "ITL/SLO", "COST", "LOAD"),
    "CURRENT",
)

Targets = Mapping[tuple[str, str], Target]  # targets by service class and model

# The labels for the replicas of a Server, by the name of the object.
Labels = Callable[[str], Label]


@dataclass(frozen=True, slots=True)
class Headroom:
    """A latency and its target [ms]: the mean, or the percentile that the target names."""

    latency: Latency
    value_ms: float
    target_ms: float

    @property
    def share(self) -> float:
        """Unused share of the target, 0 to 1; negative if the target is missed."""
        return 1.0 - self.value_ms / self.target_ms


@dataclass(frozen=True, slots=True)
class ServerView:
    """One Server with its spec, headrooms and conditions; `spec` is None if it is unreadable.

    `reason` is that of the condition Ready, empty before the first optimization; `warnings` is
    the message of the condition Warnings, if there is one, and `correction` that of Corrected.
    `measured` is what is measured of a Server with `spec.measure`, None if nothing is. `priority`
    is that of its service class, from 1 (most important) to 100; 100 without a class. `label` is
    how accelerators are shown for it.
    """

    name: str
    spec: ServerSpec | None
    headrooms: tuple[Headroom, ...]
    reason: str
    message: str
    warnings: str = ""
    correction: str = ""
    measured: Measured | None = None
    priority: int = LOWEST_PRIORITY
    label: Label = field(default=name_accelerator, compare=False, repr=False)

    @property
    def current(self) -> ServerAllocation | None:
        """What runs, where that is known."""
        return self.spec.current_alloc if self.spec else None

    @property
    def desired(self) -> ServerAllocation | None:
        """What is decided, if anything is."""
        return self.spec.desired_alloc if self.spec else None

    @property
    def is_measured(self) -> bool:
        """Whether the Server is to be measured."""
        return self.spec is not None and self.spec.measure is not None

    @property
    def is_starved(self) -> bool:
        """Whether there is a load, and no replica for it."""
        current = self.current
        if current is None or current.load is None or current.load.arrival_rate <= 0:
            return False
        return all(part.num_replicas <= 0 or not part.accelerator for part in current.parts)

    @property
    def is_known(self) -> bool:
        """Whether it is known if a target is missed now."""
        return bool(self.headrooms) or self.is_starved

    @property
    def misses_target(self) -> bool:
        """Whether a latency misses its target now, or there is no replica for the load."""
        return self.is_starved or any(item.share < 0 for item in self.headrooms)

    @property
    def state(self) -> str:
        """The reason of the condition Ready; a Server that misses a target is not fine."""
        if self.reason == Reason.ALLOCATED and self.misses_target:
            return MISSES
        return self.reason

    @property
    def has_problem(self) -> bool:
        """Whether it misses a target, is not served as it should be, or is warned of."""
        is_decided = self.reason in ("", Reason.ALLOCATED)
        if self.misses_target or not is_decided or self.warnings or self.correction:
            return True
        found = self.measured
        if found is None or not found.message:
            return False
        # A fresh measurement with all that plans need may still have a remark.
        has_lengths = found.avg_in_tokens is not None and found.avg_out_tokens is not None
        return not (found.quality == "Fresh" and has_lengths)

    def headroom(self, latency: str) -> Headroom | None:
        """Return the headroom of one latency, or None if it is unknown or has no target."""
        return next((item for item in self.headrooms if item.latency == latency), None)


@dataclass(frozen=True, slots=True)
class CardUse:
    """Cards of a type: `running` now, `available` in total, and what the last plan says of them.

    `planned` is None without a plan; `counted` is what was counted on nodes, None if the cards are
    only declared.
    """

    type: str
    running: int
    available: int
    planned: CapacityUse | None = None
    counted: CountedCards | None = None

    @property
    def used(self) -> int:
        """Cards that the last plan uses."""
        return self.planned.used if self.planned else 0

    @property
    def held(self) -> int:
        """Cards of the servers for which the last plan has no decision."""
        return (self.planned.held or 0) if self.planned else 0

    def plan_cells(self) -> tuple[str, str]:
        """Return the used and the held cards as text."""
        return (str(self.used), str(self.held)) if self.planned else ("-", "-")

    def worth_cell(self, money: Money) -> str:
        """Return what one more card would bring as text."""
        if self.planned is None:
            return "-"
        is_estimated, found = bool(self.planned.estimated), self.planned.gain
        gain = Gain(found.priority, found.load) if found else None
        return format_card_worth(self.planned.price, gain, money, estimated=is_estimated)

    def to_json(self) -> dict[str, Any]:
        """Return the cards as JSON."""
        plan = self.planned
        return {
            "type": self.type,
            "running": self.running,
            "planned": plan and plan.used,
            "held": self.held if plan else None,
            "available": self.available,
            "price": plan and plan.price,
            "gain": plan and plan.gain and {"priority": plan.gain.priority, "load": plan.gain.load},
            "estimated": bool(plan and plan.estimated),
            **({"counted": self.counted.to_json()} if self.counted else {}),
        }


@dataclass(frozen=True, slots=True)
class Overview:
    """The Servers, cards and Optimizers of a namespace, each sorted by name.

    `troubles` has one line for each invalid object of another kind; `waiting` has the Plans that
    wait for approval, where the caller has read them. `left_out` is how many Servers of the
    namespace a person did not ask for.
    """

    servers: tuple[ServerView, ...]
    cards: tuple[CardUse, ...]
    optimizers: tuple[Optimizer, ...]
    troubles: tuple[str, ...] = ()
    waiting: tuple[Plan, ...] = ()
    left_out: int = 0

    def with_servers(self, servers: Iterable[ServerView]) -> Self:
        """Return the same with some of its servers."""
        kept = tuple(servers)
        left_out = self.left_out + len(self.servers) - len(kept)
        return replace(self, servers=kept, left_out=left_out)


def build_overview(observations: Sequence[Observation]) -> Overview:
    """Return the overview of one namespace from its objects, of all kinds and in any order."""
    resources = readable(observations)
    targets = find_targets(resources)
    optimizers = sorted(only(Optimizer, resources), key=lambda found: found.metadata.name)
    capacities = list(only(Capacity, resources))
    not_counted = [
        f"Capacity {capacity.metadata.name}: {found.reason}: {found.message}"
        for capacity in capacities
        if (found := capacity.status.condition(COUNTED)) and found.status != "True"
    ]
    known = [r for r in resources if not (isinstance(r, Capacity) and r.is_uncounted)]
    loaded = [set_last_good_load(r) if isinstance(r, Server) else r for r in known]
    snapshot = build_system([*loaded, *still_running(observations)])
    system, catalogue = snapshot.system, Catalogue(snapshot.system)
    latest = find_latest_optimization(optimizers)
    planned = {use.type: use for use in latest.capacity} if latest else {}
    counted = {
        cards.type: cards for c in capacities if c.spec.from_nodes for cards in c.status.counted
    }
    running = cards_of_servers(catalogue, system.servers) + Counter(system.held)
    servers = sorted(
        (o for o in observations if o.kind is Server), key=lambda found: found.reference.key.name
    )
    return Overview(
        servers=tuple(_view_server(found, targets, catalogue) for found in servers),
        cards=tuple(
            CardUse(
                name,
                running[name],
                system.capacity.get(name, 0),
                planned.get(name),
                counted.get(name),
            )
            for name in sorted({*system.capacity, *running, *planned})
        ),
        optimizers=tuple(optimizers),
        troubles=(
            *(str(p) for p in snapshot.problems if p.kind != KINDS[Server.kind]),
            *not_counted,
        ),
    )


def find_targets(resources: Iterable[Resource]) -> Targets:
    """Return the targets of the service classes among some objects."""
    classes = [*only(ServiceClass, resources)]
    return {(c.spec.name, target.model): target for c in classes for target in c.spec.data}


def _view_server(observation: Observation, targets: Targets, catalogue: Catalogue) -> ServerView:
    resource, name = observation.resource, observation.reference.key.name
    if not isinstance(resource, Server):
        return ServerView(name, None, (), Reason.INVALID_SPEC, observation.problem)
    spec = resource.spec
    measured = resource.status.measured if spec.measure is not None else None
    current = price_current(set_last_good_load(resource), catalogue)
    if current is not spec.current_alloc:  # priced or loaded; most are as they were read
        spec = spec.model_copy(update={"current_alloc": current})
    target = targets.get((spec.service_class, spec.model))
    headrooms: tuple[Headroom, ...] = ()
    if spec.measure is None:  # the latencies are entered by hand, if at all
        headrooms = estimate_headrooms(spec.current_alloc, target)
    elif measured is not None and target is not None:
        headrooms = measure_headrooms(measured, target)
    ready, warnings, corrected = map(observation.status.condition, (READY, WARNINGS, CORRECTED))
    return ServerView(
        name=name,
        spec=spec,
        headrooms=headrooms,
        reason=ready.reason if ready else "",
        message=ready.message if ready else "",
        warnings=warnings.message if warnings else "",
        correction=corrected.message if corrected else "",
        measured=measured,
        priority=catalogue.priority(spec.service_class),
        label=partial(catalogue.label, spec.model),
    )


def measure_headrooms(measured: Measured, target: Target) -> tuple[Headroom, ...]:
    """Return the headroom of each measured latency that has a target."""
    compared = compare_with_targets(measured, target)
    return tuple(Headroom(LATENCIES[name], value, limit) for name, value, limit in compared)


def estimate_headrooms(
    allocation: Allocation | None, target: Target | None
) -> tuple[Headroom, ...]:
    """Return the headroom of each latency that is known and has a target.

    Percentiles are estimates, because only means are known: waits are assumed exponential, as in
    targets of the original, and the rest of the time to first token constant.
    """
    if allocation is None or target is None or not allocation.accelerator:
        return ()
    itl, wait, ttft = allocation.itl_average, allocation.wait_average, allocation.ttft_average
    found = []
    if target.slo_itl and itl:
        found.append(Headroom("itl", itl, target.slo_itl))
    if target.slo_ttw and wait is not None:
        percentile = target.slo_ttw_percentile or DEFAULT_WAIT_PERCENTILE
        found.append(Headroom("wait", wait * _exponential_percentile(percentile), target.slo_ttw))
    if target.slo_ttft and ttft:
        percent = target.slo_ttft_percentile
        excess = (_exponential_percentile(percent) - 1.0) * (wait or 0.0) if percent else 0.0
        found.append(Headroom("ttft", ttft + excess, target.slo_ttft))
    return tuple(found)


def _exponential_percentile(percentile: float) -> float:
    return -math.log(1.0 - percentile / 100.0)


def find_latest_optimization(optimizers: Iterable[Optimizer]) -> LastOptimization | None:
    """Return the result of the newest optimization; None before the first one."""
    plans = [optimizer.status.last_optimization for optimizer in optimizers]
    return max((plan for plan in plans if plan), key=lambda plan: plan.time, default=None)


def encode_overview(seen: Overview) -> dict[str, Any]:
    """Return an overview as JSON; allocations and conditions have the form of the objects."""
    return {
        "servers": [_encode_server(view) for view in seen.servers],
        "capacity": [cards.to_json() for cards in seen.cards],
        "troubles": list(seen.troubles),
        **({"waiting": [plan.metadata.name for plan in seen.waiting]} if seen.waiting else {}),
        "optimizers": [
            {
                "name": optimizer.metadata.name,
                "optimize": optimizer.spec.optimize,
                **optimizer.status.to_json(),
            }
            for optimizer in seen.optimizers
        ],
    }


def _encode_server(view: ServerView) -> dict[str, Any]:
    spec = view.spec.to_json() if view.spec else {}
    fields = ("class", "model", CURRENT_ALLOC, DESIRED_ALLOC)
    return {
        "name": view.name,
        **{field: spec[field] for field in fields if field in spec},
        "headroom": {
            item.latency: {
                "value": item.value_ms,
                "target": item.target_ms,
                "share": item.share,
            }
            for item in view.headrooms
        },
        "reason": view.reason,
        "message": view.message,
        **({"warnings": view.warnings} if view.warnings else {}),
        **({"measured": view.measured.to_json()} if view.measured else {}),
    }


def build_catalogue(observations: Iterable[Observation]) -> Catalogue:
    """Return accelerators and performance data of a namespace."""
    return Catalogue(build_system(readable(observations)).system)


def find_labels(observations: Sequence[Observation]) -> Labels:
    """Return the labels by the objects of a namespace."""
    catalogue = build_catalogue(observations)
    servers = only(Server, readable(observations))
    models = {server.metadata.name: server.spec.model for server in servers}
    return lambda server: partial(catalogue.label, models.get(server, ""))


def format_placement(allocation: Allocation | None, label: Label = name_accelerator) -> str:
    """Return replicas with their cards, one pair for each part; a dash if nothing runs."""
    if allocation is None or not allocation.accelerator:
        return "-"
    replicas, starting = Counter[str](), Counter[str]()
    for role, part in allocation.parts_by_role:
        name = label(part.accelerator, role)
        replicas[name] += part.num_replicas
        starting[name] += part.starting_replicas or 0
    return " + ".join(
        f"{count} x {name}" + (f" ({starting[name]} starting)" if starting[name] else "")
        for name, count in replicas.items()
    )


def count_replicas(now: Allocation | None, planned: Allocation | None) -> PlannedReplicas:
    """Return the replicas of a server, now and as they are to be."""
    parts: list[ReplicaAllocation] = [planned] if planned and planned.accelerator else []
    if isinstance(planned, ServerAllocation) and planned.roles:
        parts = list(planned.roles.by_role.values())
    counts = [(part.num_replicas, part.cost or 0.0) for part in parts]
    return PlannedReplicas(now.num_replicas if now else 0, counts)


def format_band(prediction: Allocation | PlanStep | None) -> str:
    """Return where predicted latencies come from, and what they are off by; "" if unknown."""
    if prediction is None:
        return ""
    return band_of(prediction.origin or "", prediction.error_percent or 0.0)


def find_cost(allocation: Allocation | None) -> float:
    """Return the cost of an allocation [cents/hour]; 0 without an allocation."""
    return (allocation.cost or 0.0) if allocation and allocation.accelerator else 0.0


def format_cost(allocation: Allocation | None, money: Money) -> str:
    """Return the cost as text, empty if nothing runs."""
    return money.amount(find_cost(allocation)) if allocation and allocation.accelerator else ""


def format_load(allocation: Allocation | None) -> str:
    """Return the arrival rate that an allocation is for; a dash if it is not known."""
    return f"{allocation.load.arrival_rate:g}" if allocation and allocation.load else "-"


def describe_overview(seen: Overview, now: datetime, money: Money = CENTS) -> Iterator[Part]:
    """Yield what is wrong, then servers, totals, cards, and each Optimizer's last result."""
    if problems := list(list_problems(seen)):
        yield from problems
        yield ""
    if not seen.servers and seen.left_out:
        yield f"none of the {seen.left_out} Servers in this namespace"
    elif not seen.servers:
        yield "No Servers in this namespace. Use -n to choose another."
    else:
        yield tabulate_servers(seen.servers, money)
        yield ""
    yield from describe_totals(seen, now, money)


def describe_totals(seen: Overview, now: datetime, money: Money) -> Iterator[Part]:
    """Yield totals, cards, and each Optimizer's last result, without why it failed."""
    if seen.servers:
        shown, left_out = len(seen.servers), seen.left_out
        of_all = f"{shown} of {shown + left_out} Servers are shown; " if left_out else ""
        yield of_all + _describe_sums(seen.servers, money)
    if seen.cards:
        yield ""
        yield _tabulate_cards(seen.cards, money)
        yield from warn_of_excess(seen.cards)
    if seen.optimizers:
        yield ""
    for optimizer in seen.optimizers:
        last, condition = optimizer.status.last_optimization, optimizer.status.condition(OPTIMIZED)
        name = f"Optimizer {optimizer.metadata.name}"
        yield f"{name}: {_describe_optimization(last, now, money)}"
        if condition and condition.status == "Unknown" and (optimizer.spec.optimize or last):
            yield f"{name}: {condition.reason}: {condition.message}"


def _describe_sums(views: Sequence[ServerView], money: Money) -> str:
    """Return how many servers miss a target, of those of which that is known, and the cost."""
    known = [view for view in views if view.is_known]
    missed, unknown = sum(view.misses_target for view in known), len(views) - len(known)
    unmeasured = sum(view.is_measured and view.measured is None for view in views)
    note = f" ({unmeasured} not measured yet)" if unmeasured else ""
    if not unknown:
        targets = f"{missed} of {len(views)} servers miss a target now"
    elif not known:
        targets = f"no measured latencies yet{note}"
    else:
        of_known = f"{missed} of {len(known)} servers with measured latencies"
        targets = f"{of_known} miss a target now; unknown: {unknown}{note}"
    running = money.amount(sum(find_cost(view.current) for view in views))
    decided = [view.desired for view in views if view.desired]
    desired = f"{money.amount(sum(map(find_cost, decided)))} desired"
    if not decided:
        desired = "no desired allocation"
    elif len(decided) < len(views):
        desired += f" for {len(decided)} of them"
    return f"{targets}; cost {running} now, {desired} ({money.rate})"


def describe_failure(optimizer: Optimizer) -> str:
    """Return why an Optimizer could not make its plan, as a sentence; "" if it did not fail."""
    condition = optimizer.status.condition(OPTIMIZED)
    if condition is None or condition.status != "False":
        return ""
    return f"Optimizer {optimizer.metadata.name}: {condition.reason}: {condition.message}"


def _describe_optimization(last: LastOptimization | None, now: datetime, money: Money) -> str:
    if last is None:
        return "not optimized yet"
    text = (
        f"optimized {format_age(last.time, now)} ago, {last.allocated} of {last.servers} servers,"
        f" {money.amount(last.cost)} {money.rate}"
    )
    proof = last.certificate
    if proof is None:
        return text
    gap = "not known" if proof.gap is None else f"{proof.gap:.2g}"
    return f"{text}; solver {proof.solver}: {proof.status}, gap {gap}, {proof.seconds or 0:.3f} s"


def describe_conditions(conditions: Sequence[Condition], now: datetime) -> Iterator[Part]:
    """Yield a table of the conditions of an object, if it has any."""
    if conditions:
        columns: Columns[Condition] = {
            "CONDITION": lambda condition: condition.type,
            "STATUS": lambda condition: condition.status,
            "REASON": lambda condition: condition.reason,
            ">AGE": lambda condition: format_age(condition.last_transition_time, now),
            "MESSAGE": lambda condition: condition.message,
        }
        yield ""
        yield TextTable.of(conditions, columns)


def tabulate_servers(views: Sequence[ServerView], money: Money = CENTS) -> TextTable:
    """Return the servers; only headings where there are none."""
    least_left = {
        latency: min(shares)
        for latency in LATENCIES.values()
        if (shares := [found.share for view in views if (found := view.headroom(latency))])
    }
    columns: dict[str, Callable[[ServerView], str]] = {
        "SERVER": lambda view: view.name,
        "CLASS": lambda view: view.spec.service_class if view.spec else "-",
        "CURRENT": lambda view: format_placement(view.current, view.label),
        "DESIRED": lambda view: format_placement(view.desired, view.label),
        ">LOAD": lambda view: format_load(view.current),
    }
    for latency in least_left:
        heading = f">{latency.upper()}/SLO"
        columns[heading] = partial(_format_latency, latency)
        columns[f"{heading}:LEFT"] = partial(_format_left, latency)
    columns[">COST"] = lambda view: format_cost(view.current, money)
    if any(view.is_measured for view in views):
        columns["MEASURED"] = lambda view: (
            "-" if not view.is_measured else view.measured.quality if view.measured else UNKNOWN
        )
    columns["READY"] = lambda view: view.state or "waiting"
    # The column of the latency that misses most of its target goes last.
    worst_last = sorted(least_left, key=lambda name: -least_left[name])
    optional = [*OPTIONAL, *(f"{name.upper()}/SLO LEFT" for name in worst_last)]
    return TextTable.of(views, columns, optional)


def _format_latency(latency: str, view: ServerView) -> str:
    found = view.headroom(latency)
    if found is None:
        return UNKNOWN if view.is_measured else "-"
    return f"{found.value_ms:.1f}/{found.target_ms:g}"


def _format_left(latency: str, view: ServerView) -> str:
    found = view.headroom(latency)
    if found is None:
        return ""
    is_far_off = found.share < LEAST_SHARE_LEFT  # how much exactly it is missed matters little
    return f"<{LEAST_SHARE_LEFT:.0%}" if is_far_off else f"{found.share:.0%}"


def list_problems(seen: Overview) -> Iterator[str]:
    """Yield what is wrong and what to do about it, as sentences: Optimizers first, then Servers."""
    nobody_asked = all(map(_is_waiting, seen.optimizers))
    for optimizer in seen.optimizers:
        if failure := describe_failure(optimizer):
            yield failure
        elif nobody_asked:
            yield f"Optimizer {optimizer.metadata.name}: {WAITING}"
    yield from group_notes((v.name, MISSES_NOTE) for v in seen.servers if v.state == MISSES)
    yield from list_notes(seen)


def _is_waiting(optimizer: Optimizer) -> bool:
    """Whether nobody has asked for a first optimization."""
    spec, last = optimizer.spec, optimizer.status.last_optimization
    return last is None and not spec.optimize and spec.interval is None


def list_notes(seen: Overview) -> Iterator[str]:
    """Yield what is wrong with servers and other objects, as sentences."""
    yield from group_notes(
        (view.name, note) for view in seen.servers for note in _list_server_notes(view)
    )
    if find_latest_optimization(seen.optimizers):
        yield from group_notes(
            (v.name, UNDECIDED_NOTE) for v in seen.servers if v.spec and not v.reason
        )
    yield from (f"warning: {trouble}" for trouble in seen.troubles)


def _list_server_notes(view: ServerView) -> Iterator[str]:
    if view.reason not in ("", Reason.ALLOCATED) and view.message:
        yield view.message
    if view.measured and view.measured.message:
        yield f"{view.measured.quality}: {view.measured.message}"
    if view.warnings:
        yield f"warning: {view.warnings}"
    if view.correction:
        yield view.correction
    current = view.current
    if current and current.load and current.load.cached_tokens:
        warm = sum(part.num_replicas - (part.cold_replicas or 0) for part in current.parts)
        several = current.num_replicas
        if current.roles:  # those that compute prompts count
            warm = several = current.roles.prefill.num_replicas
        inputs, cached = current.load.avg_in_tokens or 0, current.load.cached_tokens
        yield describe_cached_prompts(inputs, cached, max(warm, 0), several)


def warn_of_excess(cards: Iterable[CardUse]) -> Iterator[str]:
    """Yield of which cards more are in use than there are."""
    for item in cards:
        if item.running > item.available:
            use = f"{item.running} cards of {item.type} in use, and only {item.available} available"
            yield f"{EXCESS_MARK} {use}: correct Capacity or currentAlloc"


def _tabulate_cards(cards: Sequence[CardUse], money: Money) -> TextTable:
    """Return the cards by type; of counted ones also those of others, and what limits them."""
    columns: dict[str, Callable[[CardUse], str]] = {
        "CARDS": lambda item: item.type,
        ">IN USE": lambda item: (
            f"{item.running}{EXCESS_MARK if item.running > item.available else ''}"
        ),
        ">PLANNED": lambda item: item.plan_cells()[0],
        ">HELD": lambda item: item.plan_cells()[1],
        ">AVAILABLE": lambda item: str(item.available),
        ">PRICE": lambda item: item.worth_cell(money),
    }
    if any(item.counted for item in cards):
        columns[">TOTAL"] = lambda item: str(item.counted.total) if item.counted else "-"
        columns[">OTHERS"] = lambda item: str(item.counted.others) if item.counted else "-"
        columns["LIMITED BY"] = lambda item: item.counted.bound_by if item.counted else "-"
    return TextTable.of(cards, columns, ("LIMITED BY", "OTHERS", "HELD", "PLANNED"))


@dataclass(frozen=True, slots=True)
class Screen:
    """Columns and lines of a terminal, and the unit of costs."""

    width: int
    height: int
    money: Money = CENTS

    def draw(
        self, seen: Overview, now: datetime, order: RowOrder, heading: Sequence[Part] = ()
    ) -> Text:
        """Return what `top` shows, not more lines than there are.

        Where not all servers have room, those with a problem come first, then those of the
        most important classes, unless `order` sorts them; the last line counts what is left
        out.

        Raises InputError if the table has no column by which to sort.
        """
        parts = order_rows(describe_overview(seen, now, self.money), order)
        whole = style_parts([*heading, *parts], self.width)
        excess = len(whole.split()) - self.height
        if excess <= 0 or not seen.servers:
            return whole
        by_importance = sorted(seen.servers, key=lambda v: (not v.has_problem, v.priority, v.name))
        seen = replace(seen, servers=tuple(by_importance))
        table = order.apply(tabulate_servers(seen.servers, self.money))
        notes = list(list_problems(seen))
        # One line says what is left out; a third of the lines are shown in any case.
        room = max(len(table.rows) + len(notes) - excess - 1, self.height // 3)
        # Notes take a third of the lines, and more where the rows leave room.
        shown_notes = notes[: max(room // 3, room - len(table.rows))]
        shown = replace(table, rows=table.rows[: room - len(shown_notes)])
        parts = [*heading, *([*shown_notes, ""] if shown_notes else []), shown, ""]
        parts += describe_totals(seen, now, self.money)
        lines = style_parts(parts, self.width).split()[: self.height - 1]
        counts = (
            (len(table.rows) - len(shown.rows), len(table.rows), "servers"),
            (len(notes) - len(shown_notes), len(notes), "notes"),
        )
        missing = [f"{missing} of {total} {what}" for missing, total, what in counts if missing]
        left_out = f"no room for {' and '.join(missing) or 'all lines'}; --once shows all"
        return Text("\n").join([*lines, Text(left_out, style="dim")])
