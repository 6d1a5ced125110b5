"""The objects of a namespace -> its servers with latencies and targets, and its cards; pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Self

from inferno_operator.cli.headroom import Headroom, headrooms, measured_headrooms
from inferno_operator.controllers.measurement.load import set_last_good_load
from inferno_operator.controllers.planning.allocations import Label, plain, price_current
from inferno_operator.controllers.planning.snapshot import KINDS, build_system
from inferno_operator.resources import (
    CURRENT_ALLOC,
    DESIRED_ALLOC,
    Capacity,
    CapacityUse,
    CountedCards,
    LastOptimization,
    Measured,
    Optimizer,
    Plan,
    Resource,
    Server,
    ServerSpec,
    ServiceClass,
    Target,
)
from inferno_operator.resources.conditions import CORRECTED, COUNTED, READY, WARNINGS
from inferno_operator.resources.observation import Observation, only, readable, still_running
from inferno_optimizer.capacity import cards_of_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Gain, Reason
from inferno_optimizer.system import LOWEST_PRIORITY, System

MISSES = "MissesTarget"
"""Shown instead of Allocated if a latency misses its target now."""

Targets = Mapping[tuple[str, str], Target]
"""Targets by service class and model."""


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
    label: Label = field(default=plain, compare=False, repr=False)

    @property
    def is_measured(self) -> bool:
        """Whether the Server is to be measured."""
        return self.spec is not None and self.spec.measure is not None

    @property
    def is_starved(self) -> bool:
        """Whether there is a load, and no replica for it."""
        current = self.spec.current_alloc if self.spec else None
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
        decided = self.reason in ("", Reason.ALLOCATED)
        unclear = self.measured is not None and _is_unclear(self.measured)
        return (
            self.misses_target or not decided or unclear or bool(self.warnings or self.correction)
        )

    def headroom(self, latency: str) -> Headroom | None:
        """Return the headroom of one latency, or None if it is unknown or has no target."""
        return next((item for item in self.headrooms if item.latency == latency), None)


def _is_unclear(measured: Measured) -> bool:
    """Whether a measurement says what to do; one that has all that plans need only remarks."""
    is_complete = measured.avg_in_tokens is not None and measured.avg_out_tokens is not None
    return bool(measured.message) and not (measured.quality == "Fresh" and is_complete)


@dataclass(frozen=True, slots=True)
class CardUse:
    """Number of cards of a type: `running` now, `planned` in the last plan, `available` in total.

    `held` counts the cards of servers without a decision in the last plan. `held`, `planned` and
    the worth of one more card (`price` [cents/hour] or `gain` of load) are None without a plan;
    the worth may be `estimated`.
    `counted` is what was counted on nodes, None if the cards are only declared.
    """

    type: str
    running: int
    planned: int | None
    held: int | None
    available: int
    price: float | None
    gain: Gain | None
    estimated: bool = False
    counted: CountedCards | None = None


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
        """The same with some of its servers."""
        kept = tuple(servers)
        left_out = self.left_out + len(self.servers) - len(kept)
        return replace(self, servers=kept, left_out=left_out)


def overview(observations: Sequence[Observation]) -> Overview:
    """Return the overview of one namespace from its objects, of all kinds and in any order."""
    resources = readable(observations)
    targets = targets_of(resources)
    servers = [o for o in observations if o.kind is Server]
    optimizers = [*only(Optimizer, resources)]
    optimizers.sort(key=lambda optimizer: optimizer.metadata.name)
    counted = [r for r in resources if not (isinstance(r, Capacity) and r.is_uncounted)]
    loaded = [set_last_good_load(r) if isinstance(r, Server) else r for r in counted]
    snapshot = build_system([*loaded, *still_running(observations)])
    catalogue = Catalogue(snapshot.system)
    return Overview(
        servers=tuple(_view(o, targets, catalogue) for o in sorted(servers, key=_name)),
        cards=_cards(snapshot.system, _latest_use(optimizers), _counted(resources)),
        optimizers=tuple(optimizers),
        troubles=(
            *(str(p) for p in snapshot.problems if p.kind != KINDS[Server.kind]),
            *_not_counted(resources),
        ),
    )


def targets_of(resources: Iterable[Resource]) -> Targets:
    """Return the targets of the service classes among some objects."""
    classes = [*only(ServiceClass, resources)]
    return {(c.spec.name, target.model): target for c in classes for target in c.spec.data}


def overview_document(seen: Overview) -> dict[str, Any]:
    """Return an overview as JSON; allocations and conditions have the form of the objects."""
    return {
        "servers": [_server_document(view) for view in seen.servers],
        "capacity": [
            {
                "type": cards.type,
                "running": cards.running,
                "planned": cards.planned,
                "held": cards.held,
                "available": cards.available,
                "price": cards.price,
                "gain": None if cards.gain is None else asdict(cards.gain),
                "estimated": cards.estimated,
                **({"counted": cards.counted.to_json()} if cards.counted else {}),
            }
            for cards in seen.cards
        ],
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


def _server_document(view: ServerView) -> dict[str, Any]:
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


def _name(observation: Observation) -> str:
    return observation.reference.key.name


def _view(observation: Observation, targets: Targets, catalogue: Catalogue) -> ServerView:
    resource, name = observation.resource, _name(observation)
    if not isinstance(resource, Server):
        return ServerView(name, None, (), Reason.INVALID_SPEC, observation.problem)
    measures = resource.spec.measure is not None
    measured = resource.status.measured if measures else None
    current = price_current(set_last_good_load(resource), catalogue)
    ready = observation.status.condition(READY)
    spec = resource.spec
    if current is not spec.current_alloc:  # priced or loaded; most are as they were read
        spec = spec.model_copy(update={"current_alloc": current})
    target = targets.get((spec.service_class, spec.model))
    reason, message = (ready.reason, ready.message) if ready else ("", "")
    warnings, corrected = map(observation.status.condition, (WARNINGS, CORRECTED))
    return ServerView(
        name=name,
        spec=spec,
        headrooms=_headrooms(spec, measured, target),
        reason=reason,
        message=message,
        warnings=warnings.message if warnings else "",
        correction=corrected.message if corrected else "",
        measured=measured,
        priority=catalogue.priority(spec.service_class),
        label=partial(catalogue.label, spec.model),
    )


def _headrooms(
    spec: ServerSpec, measured: Measured | None, target: Target | None
) -> tuple[Headroom, ...]:
    """Return the headrooms of what is measured; where nothing is, of what was entered by hand."""
    if spec.measure is None:
        return headrooms(spec.current_alloc, target)
    return () if measured is None else measured_headrooms(measured, target)


def latest_optimization(optimizers: Iterable[Optimizer]) -> LastOptimization | None:
    """Return the result of the newest optimization; None before the first one."""
    plans = [optimizer.status.last_optimization for optimizer in optimizers]
    return max((plan for plan in plans if plan), key=lambda plan: plan.time, default=None)


def _latest_use(optimizers: Iterable[Optimizer]) -> Mapping[str, CapacityUse]:
    """Return the use of cards by type in the newest plan."""
    latest = latest_optimization(optimizers)
    return {use.type: use for use in latest.capacity} if latest else {}


def _counted(resources: Iterable[Resource]) -> Mapping[str, CountedCards]:
    """Return the cards by type that are counted from nodes."""
    capacities = [r for r in only(Capacity, resources) if r.spec.from_nodes]
    return {cards.type: cards for capacity in capacities for cards in capacity.status.counted}


def _not_counted(resources: Iterable[Resource]) -> Iterator[str]:
    """Yield why the cards of a Capacity are not counted now."""
    for resource in resources:
        counted = resource.status.condition(COUNTED)
        if isinstance(resource, Capacity) and counted is not None and counted.status != "True":
            yield f"Capacity {resource.metadata.name}: {counted.reason}: {counted.message}"


def _cards(
    system: System, planned: Mapping[str, CapacityUse], counted: Mapping[str, CountedCards]
) -> tuple[CardUse, ...]:
    running = cards_of_servers(Catalogue(system), system.servers) + Counter(system.held)
    names = sorted({*system.capacity, *running, *planned})
    return tuple(
        CardUse(
            type=name,
            running=running[name],
            planned=planned[name].used if name in planned else None,
            held=(planned[name].held or 0) if name in planned else None,
            available=system.capacity.get(name, 0),
            price=planned[name].price if name in planned else None,
            gain=_gain(planned.get(name)),
            estimated=name in planned and bool(planned[name].estimated),
            counted=counted.get(name),
        )
        for name in names
    )


def _gain(use: CapacityUse | None) -> Gain | None:
    if use is None or use.gain is None:
        return None
    return Gain(use.gain.priority, use.gain.load)
