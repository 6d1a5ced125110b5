"""The objects of a namespace -> how its servers do against their targets, and its cards; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from inferno_operator.cli.headroom import Headroom, headrooms
from inferno_operator.controllers.optimization.snapshot import build_system
from inferno_operator.resources import (
    CapacityUse,
    LastOptimization,
    Optimizer,
    Resource,
    Server,
    ServerSpec,
    ServiceClass,
    Target,
)
from inferno_operator.resources.conditions import READY
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.capacity import cards_in_use
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Gain, Reason, System

Targets = Mapping[tuple[str, str], Target]
"""Targets by class and model."""


@dataclass(frozen=True, slots=True)
class ServerView:
    """One Server: what it is and has, and how it does; `spec` is None where it is unreadable.

    `reason` is that of its condition Ready, empty where nobody has looked at it yet.
    """

    name: str
    spec: ServerSpec | None
    headrooms: tuple[Headroom, ...]
    reason: str
    message: str

    def headroom(self, latency: str) -> Headroom | None:
        """That of one latency, where it is known and has a target."""
        return next((item for item in self.headrooms if item.latency == latency), None)


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards of a type: those that servers run on, those that the last plan uses, all of them.

    `planned`, and what one more card is worth (`price` [cents/hour] or `gain` of load), are None
    where no plan tells.
    """

    type: str
    running: int
    planned: int | None
    available: int
    price: float | None
    gain: Gain | None


@dataclass(frozen=True, slots=True)
class Overview:
    """A namespace: its Servers, cards and Optimizers, each by name."""

    servers: tuple[ServerView, ...]
    cards: tuple[Cards, ...]
    optimizers: tuple[Optimizer, ...]


def overview(observations: Sequence[Observation]) -> Overview:
    """See what the objects of one namespace tell, of all kinds and in any order."""
    resources = readable(observations)
    classes = [resource for resource in resources if isinstance(resource, ServiceClass)]
    targets = {(c.spec.name, target.model): target for c in classes for target in c.spec.data}
    servers = [o for o in observations if o.reference.resource is Server]
    optimizers = [resource for resource in resources if isinstance(resource, Optimizer)]
    optimizers.sort(key=lambda optimizer: optimizer.metadata.name)
    return Overview(
        servers=tuple(_view(o, targets) for o in sorted(servers, key=_name)),
        cards=_cards(resources, _latest_use(optimizers)),
        optimizers=tuple(optimizers),
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
                "available": cards.available,
                "price": cards.price,
                "gain": None if cards.gain is None else asdict(cards.gain),
            }
            for cards in seen.cards
        ],
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
    }


def _name(observation: Observation) -> str:
    return observation.reference.key.name


def _view(observation: Observation, targets: Targets) -> ServerView:
    resource, name = observation.resource, _name(observation)
    if not isinstance(resource, Server):
        return ServerView(name, None, (), Reason.INVALID_SPEC, observation.problem)
    spec, ready = resource.spec, observation.status.condition(READY)
    target = targets.get((spec.service_class, spec.model))
    reason, message = (ready.reason, ready.message) if ready else ("", "")
    return ServerView(name, spec, headrooms(spec.current_alloc, target), reason, message)


def _latest_use(optimizers: Iterable[Optimizer]) -> Mapping[str, CapacityUse]:
    """Use of cards by type, of the plan that was made last."""
    plans = [optimizer.status.last_optimization for optimizer in optimizers]
    latest = max((plan for plan in plans if plan), key=_time, default=None)
    return {use.type: use for use in latest.capacity} if latest else {}


def _time(plan: LastOptimization) -> Any:  # noqa: ANN401 - to sort by
    return plan.time


def _cards(resources: Iterable[Resource], planned: Mapping[str, CapacityUse]) -> tuple[Cards, ...]:
    system = build_system(resources).system
    running = _running(system)
    names = sorted({*system.capacity, *running, *planned})
    return tuple(
        Cards(
            type=name,
            running=running[name],
            planned=planned[name].used if name in planned else None,
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


def _running(system: System) -> Counter[str]:
    """Cards that the servers run on now, by type."""
    catalogue = Catalogue(system)
    counts: Counter[str] = Counter()
    for server in system.servers:
        counts.update(cards_in_use(catalogue, server.model, server.current))
    return counts
