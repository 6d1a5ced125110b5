"""Builds the System of a namespace from its objects, and finds the problems of each object."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeVar

from inferno_operator.controllers.optimization.allocations import allocation_of, placed_current
from inferno_operator.controllers.optimization.profiles import profiles, roles
from inferno_operator.controllers.optimization.shared_workloads import (
    Shared,
    shared_workloads,
    without_shared,
)
from inferno_operator.controllers.optimization.sleep import may_sleep
from inferno_operator.resources import (
    Accelerator,
    Capacity,
    Model,
    Optimizer,
    OptimizerParameters,
    Resource,
    Server,
    ServiceClass,
    Target,
)
from inferno_operator.resources.conditions import COUNTED
from inferno_optimizer import system as core
from inferno_optimizer.capacity import cards_of_servers
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.forecast import spread_over
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.surplus import payback_s
from inferno_optimizer.validation import Problem, find_problems

Named = Accelerator | Model | ServiceClass | Server
"""Objects that other objects refer to by `spec.name`."""

Kind = TypeVar("Kind", bound=Resource)

DUPLICATE_NAME = "DuplicateName"

KINDS: Mapping[str, str] = {
    Accelerator.kind: "accelerator",
    Model.kind: "model",
    ServiceClass.kind: "service class",
    Server.kind: "server",
}
"""Names in `Problem.kind` of those of our kinds whose objects have a `spec.name`."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A system, and the problems of the objects.

    `problems` are the problems of the system; `excluded` are objects that are not part of the
    system, each with the reason: an older object has the same name, or a Server has no load, or
    names a workload of an older one.
    """

    system: core.System
    problems: tuple[Problem, ...]
    excluded: tuple[tuple[Resource, Problem], ...]


def build_system(
    resources: Iterable[Resource], optimizer: Optimizer | None = None, time_limit: float = 30.0
) -> Snapshot:
    """Build the system that the objects of a namespace describe.

    Parameters
    ----------
    resources
        The objects, in any order. If several objects of a kind have the same `spec.name`, the
        oldest one is used; the counts of several Capacity objects are added. If cards are
        counted from nodes, these counts are used, and the added ones limit them.
    optimizer
        The Optimizer whose parameters are used; by default the oldest one among the resources.
    time_limit
        Time limit of the exact solver [s].

    Raises
    ------
    UnavailableError
        Cards are to be counted from nodes, and have not been counted yet.
    """
    in_order = sorted(resources, key=attrgetter("age"))
    shared = shared_workloads(_only(Server, in_order))
    named, excluded = _by_name(in_order)
    excluded += [(r, p) for r in _only(Server, named) if (p := _undecidable(r, shared))]
    left = {id(resource) for resource, _ in excluded}
    loaded = [r for r in named if id(r) not in left]
    asked = optimizer or next(_only(Optimizer, in_order), None)
    system = core.System(
        accelerators=tuple(map(_accelerator, _only(Accelerator, loaded))),
        profiles=profiles(_only(Model, loaded)),
        roles=roles(_only(Model, loaded)),
        classes=tuple(map(_service_class, _only(ServiceClass, loaded))),
        capacity=_capacity(_only(Capacity, in_order)),
        options=_options(asked.spec.data.optimizer if asked else None, time_limit),
    )
    catalogue = Catalogue(system)
    wakes = asked is not None and asked.spec.interval is not None
    left_out = [
        _server(without_shared(server, shared.get(id(server), {})), catalogue)
        for server in _only(Server, (resource for resource, _ in excluded))
    ]
    servers = tuple(_server(s, catalogue, wakes=wakes) for s in _only(Server, loaded))
    holds = system.options.hold_undecided
    system = replace(
        system,
        servers=servers,
        held=cards_of_servers(catalogue, left_out) if holds else {},
        held_cost=sum(server.current.cost for server in left_out),
    )
    return Snapshot(system, tuple(find_problems(system)), tuple(excluded))


def _only(kind: type[Kind], resources: Iterable[Resource]) -> Iterator[Kind]:
    """The resources of one kind."""
    return (resource for resource in resources if isinstance(resource, kind))


def _undecidable(server: Server, shared: Mapping[int, Shared]) -> Problem | None:
    """Why no decision is possible for a Server; an idle Server has a load of 0."""
    problems = shared.get(id(server), {}).values()
    current = server.spec.current_alloc
    lacks_load = current is None or current.load is None
    return next(iter(problems), _no_load(server) if lacks_load else None)


def _no_load(server: Server) -> Problem:
    message = (
        "is not measured yet; the condition Measured or `inferno measure` says why"
        if server.spec.measure
        else "load is missing: set arrivalRate (0 = no traffic) and either avgLength, or"
        " avgInTokens and avgOutTokens"
    )
    return Problem("server", server.spec.name, "currentAlloc.load", message)


def _by_name(resources: Sequence[Resource]) -> tuple[list[Named], list[tuple[Resource, Problem]]]:
    """Objects with a unique name, and objects with the name of an older object."""
    holders: dict[tuple[str, str], Named] = {}
    excluded: list[tuple[Resource, Problem]] = []
    for resource in resources:
        if not isinstance(resource, Named):
            continue
        key = (KINDS[resource.kind], resource.spec.name)
        older = holders.setdefault(key, resource)
        if older is not resource:
            message = (
                f"{resource.spec.name!r} is already used by the older {older.kind}"
                f" {older.metadata.name!r}; rename one"
            )
            excluded.append((resource, Problem(*key, "name", message, DUPLICATE_NAME)))
    return list(holders.values()), excluded


def _accelerator(resource: Accelerator) -> core.Accelerator:
    spec = resource.spec
    return core.Accelerator(spec.name, spec.type, spec.cost, spec.multiplicity)


def _service_class(resource: ServiceClass) -> core.ServiceClass:
    targets = {target.model: _target(target) for target in resource.spec.data}
    spec = resource.spec
    return core.ServiceClass(spec.name, spec.priority, targets, spec.min_replicas)


def _target(part: Target) -> core.Target:
    return core.Target(
        itl_ms=part.slo_itl or 0.0,
        wait_ms=part.slo_ttw or 0.0,
        tokens_per_second=part.slo_tps or 0.0,
        ttft_ms=part.slo_ttft or 0.0,
        wait_percentile=part.slo_ttw_percentile or 0.0,
        ttft_percentile=part.slo_ttft_percentile or 0.0,
        itl_percentile=part.slo_itl_percentile or 0.0,
    )


def _server(resource: Server, catalogue: Catalogue, *, wakes: bool = False) -> core.Server:
    """The server; it has no replica only if plans are made again without a request."""
    spec, current = resource.spec, placed_current(resource, catalogue)
    return core.Server(
        name=spec.name,
        service_class=spec.service_class,
        model=spec.model,
        current=allocation_of(current) if current else core.Allocation(),
        keep_accelerator=spec.keep_accelerator,
        min_replicas=_least(resource, catalogue, wakes=wakes),
        max_batch_size=spec.max_batch_size,
        max_queue_size=spec.max_queue_size,
        accelerators=_accelerators_of(resource),
        load_spread=spread_over(payback_s(resource.lead_seconds)) if spec.measure else 0.0,
        prefill_accelerators=_accelerators_of(resource, core.Role.PREFILL),
        decode_accelerators=_accelerators_of(resource, core.Role.DECODE),
    )


def named_only(resource: Server) -> core.Server:
    """A Server with its names alone: without a load, and without anything that runs."""
    spec = resource.spec
    return core.Server(spec.name, spec.service_class, spec.model)


def _accelerators_of(server: Server, role: core.Role = core.Role.BOTH) -> tuple[str, ...]:
    """The accelerators for which a Server names a workload or a backend; none if it names none."""
    spec = server.spec
    if spec.model_booster is not None:
        backends = spec.model_booster.backends
        return tuple(backend.accelerator for backend in backends if backend.role == role)
    return tuple(w.accelerator for w in spec.workloads if w.role == role)


def _least(resource: Server, catalogue: Catalogue, *, wakes: bool) -> int:
    """The fewest replicas; one at least of a Server that is measured and may not sleep."""
    spec = resource.spec
    if spec.measure is None:
        return spec.min_num_replicas
    priority = catalogue.priority(spec.service_class)
    runs = spec.desired_alloc or spec.current_alloc
    cost = catalogue.unit_cost(spec.model, runs.accelerator) if runs else 0.0
    rests = wakes and may_sleep(resource, cost, priority)
    return max(spec.min_num_replicas, 0 if rests else 1)


def _capacity(resources: Iterable[Capacity]) -> Mapping[str, int]:
    """The cards by type; of several Capacity objects that are to be counted, the oldest is."""
    declared: Counter[str] = Counter()
    counting: Capacity | None = None
    for resource in resources:
        for count in resource.spec.count:
            declared[count.type] += count.count
        if resource.spec.from_nodes:
            counting = counting or resource
    cards = dict(declared) if counting is None else _counted(counting, declared)
    return dict(sorted(cards.items()))


def _counted(capacity: Capacity, declared: Mapping[str, int]) -> dict[str, int]:
    """The counted cards by type, and not more than are declared where any are."""
    if capacity.is_uncounted:
        counted = capacity.status.condition(COUNTED)
        why = counted.message if counted else "see its condition Counted"
        raise UnavailableError(f"Capacity {capacity.metadata.name!r} is not counted yet: {why}")
    return {
        cards.type: min(cards.available, declared.get(cards.type, cards.available))
        for cards in capacity.status.counted
    }


def _options(parameters: OptimizerParameters | None, time_limit: float) -> core.Options:
    """The options of an Optimizer; without one, those of an Optimizer that sets none."""
    parameters = parameters or OptimizerParameters()
    return core.Options(
        unlimited=parameters.unlimited,
        heterogeneous=parameters.heterogeneous,
        milp=parameters.milp_solver,
        saturation_policy=parameters.saturation_policy,
        delayed_best_effort=parameters.delayed_best_effort,
        hold_undecided=parameters.hold_undecided,
        no_swaps=True,
        time_limit=time_limit,
        priority_tolerance=parameters.priority_tolerance,
    )
