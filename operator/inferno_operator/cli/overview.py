"""The objects of a namespace -> how its servers do against their targets, and its cards; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from inferno_operator.cli.headroom import Headroom, headrooms
from inferno_operator.controllers.optimization.snapshot import KINDS, build_system, priced_current
from inferno_operator.resources import (
    CapacityUse,
    LastOptimization,
    Optimizer,
    Server,
    ServerSpec,
    ServiceClass,
    Target,
)
from inferno_operator.resources.conditions import READY, WARNINGS
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.capacity import cards_of_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Gain, Reason, System

Targets = Mapping[tuple[str, str], Target]
"""Targets by class and model."""


@dataclass(frozen=True, slots=True)
class ServerView:
    """One Server: what it is and has, and how it does; `spec` is None where it is unreadable.

    `reason` is that of its condition Ready, empty where nobody has looked at it yet; `warnings`
    is what its condition Warnings tells, if it has one.
    """

    name: str
    spec: ServerSpec | None
    headrooms: tuple[Headroom, ...]
    reason: str
    message: str
    warnings: str = ""

    def headroom(self, latency: str) -> Headroom | None:
        """That of one latency, where it is known and has a target."""
        return next((item for item in self.headrooms if item.latency == latency), None)


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards of a type: those that servers run on, those that the last plan uses, all of them.

    `held` are those of servers for which the last plan has no decision. It, `planned`, and what
    one more card is worth (`price` [cents/hour] or `gain` of load), are None without a plan.
    """

    type: str
    running: int
    planned: int | None
    held: int | None
    available: int
    price: float | None
    gain: Gain | None


@dataclass(frozen=True, slots=True)
class Overview:
    """A namespace: its Servers, cards and Optimizers, each by name.

    `troubles` are what is wrong with objects of other kinds, a line each.
    """

    servers: tuple[ServerView, ...]
    cards: tuple[Cards, ...]
    optimizers: tuple[Optimizer, ...]
    troubles: tuple[str, ...] = ()


def overview(observations: Sequence[Observation]) -> Overview:
    """See what the objects of one namespace tell, of all kinds and in any order."""
    resources = readable(observations)
    classes = [resource for resource in resources if isinstance(resource, ServiceClass)]
    targets = {(c.spec.name, target.model): target for c in classes for target in c.spec.data}
    servers = [o for o in observations if o.kind is Server]
    optimizers = [resource for resource in resources if isinstance(resource, Optimizer)]
    optimizers.sort(key=lambda optimizer: optimizer.metadata.name)
    snapshot = build_system(resources)
    catalogue = Catalogue(snapshot.system)
    return Overview(
        servers=tuple(_view(o, targets, catalogue) for o in sorted(servers, key=_name)),
        cards=_cards(snapshot.system, _latest_use(optimizers)),
        optimizers=tuple(optimizers),
        troubles=tuple(str(p) for p in snapshot.problems if p.kind != KINDS[Server.kind]),
    )


def overview_document(seen: Overview) -> dict[str, Any]:
    """Write an overview as JSON; allocations and conditions look as in the objects."""
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
            }
            for cards in seen.cards
        ],
        "troubles": list(seen.troubles),
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
    fields = ("class", "model", "currentAlloc", "desiredAlloc")
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
    }


def _name(observation: Observation) -> str:
    return observation.reference.key.name


def _view(observation: Observation, targets: Targets, catalogue: Catalogue) -> ServerView:
    resource, name = observation.resource, _name(observation)
    if not isinstance(resource, Server):
        return ServerView(name, None, (), Reason.INVALID_SPEC, observation.problem)
    current, ready = priced_current(resource, catalogue), observation.status.condition(READY)
    spec = resource.spec.model_copy(update={"current_alloc": current})
    target = targets.get((spec.service_class, spec.model))
    reason, message = (ready.reason, ready.message) if ready else ("", "")
    warnings = observation.status.condition(WARNINGS)
    return ServerView(
        name=name,
        spec=spec,
        headrooms=headrooms(spec.current_alloc, target),
        reason=reason,
        message=message,
        warnings=warnings.message if warnings else "",
    )


def _latest_use(optimizers: Iterable[Optimizer]) -> Mapping[str, CapacityUse]:
    """Use of cards by type, of the plan that was made last."""
    plans = [optimizer.status.last_optimization for optimizer in optimizers]
    latest = max((plan for plan in plans if plan), key=_time, default=None)
    return {use.type: use for use in latest.capacity} if latest else {}


def _time(plan: LastOptimization) -> Any:  # noqa: ANN401 - to sort by
    return plan.time


def _cards(system: System, planned: Mapping[str, CapacityUse]) -> tuple[Cards, ...]:
    running = cards_of_servers(Catalogue(system), system.servers) + Counter(system.held)
    names = sorted({*system.capacity, *running, *planned})
    return tuple(
        Cards(
            type=name,
            running=running[name],
            planned=planned[name].used if name in planned else None,
            held=(planned[name].held or 0) if name in planned else None,
            available=system.capacity.get(name, 0),
            price=planned[name].price if name in planned else None,
            gain=_gain(planned.get(name)),
        )
        for name in names
    )


def _gain(use: CapacityUse | None) -> Gain | None:
    if use is None or use.gain is None:
        return None
    return Gain(use.gain.priority, use.gain.load)
