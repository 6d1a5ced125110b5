"""Between objects and the numbers that a system is made of, and where replicas are; pure."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from math import inf
from typing import Any, TypeVar

from inferno_operator.resources import (
    DIGITS,
    Accelerator,
    Allocation,
    CalibratedData,
    Capacity,
    Load,
    Model,
    OptimizerParameters,
    PerformanceData,
    Placement,
    ReplicaAllocation,
    Roles,
    Server,
    ServerAllocation,
    ServiceClass,
)
from inferno_operator.resources.conditions import COUNTED
from inferno_operator.resources.objects import Manifest
from inferno_optimizer import system as core
from inferno_optimizer.capacity import cards_in_use
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.forecast import spread_over
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.surplus import payback_s
from inferno_optimizer.system import LOWEST_PRIORITY
from inferno_optimizer.validation import Problem
from inferno_optimizer.wire.tables import (
    ACCELERATOR,
    ALLOCATION,
    PERFORMANCE,
    ROLE_PERFORMANCE,
    SERVICE_CLASS,
)

Placed = TypeVar("Placed", bound=ReplicaAllocation)


def price_current(resource: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """The current allocation of a Server; a missing cost is computed from its replicas."""
    whole, model = resource.spec.current_alloc, resource.spec.model
    if whole is None or None not in (whole.cost, *(part.cost for part in whole.mix)):
        return whole

    def price(part: ReplicaAllocation, role: core.Role) -> float:
        return max(part.num_replicas, 0) * catalogue.unit_cost(model, part.accelerator, role)

    mix = tuple(
        part.model_copy(update={"cost": price(part, core.Role.BOTH)}) if part.cost is None else part
        for part in whole.mix
    )
    cost = whole.cost
    if cost is None and mix:
        cost = sum(part.cost or 0.0 for part in mix)
    elif cost is None:
        cost = sum(price(part, role) for role, part in whole.parts_by_role)
    return whole.model_copy(update={"cost": cost, **({"mix": mix} if mix else {})})


def place_current(resource: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """The current allocation as plans take it: replicas that start run, as they hold their cards.

    They are cold, and cost as much as the others.
    """
    whole, model = price_current(resource, catalogue), resource.spec.model
    if whole is None or not any(part.starting_replicas for part in whole.parts):
        return whole

    def price_starting(part: ReplicaAllocation, role: core.Role) -> float:
        return (part.starting_replicas or 0) * catalogue.unit_cost(model, part.accelerator, role)

    def place(part: Placed, role: core.Role = core.Role.BOTH) -> Placed:
        starting = part.starting_replicas or 0
        return part.model_copy(
            update={
                "num_replicas": part.num_replicas + starting,
                "cold_replicas": (part.cold_replicas or 0) + starting,
                "cost": (part.cost or 0.0) + price_starting(part, role),
            }
        )

    if whole.roles:
        prefill, decode = (place(part, role) for role, part in whole.roles.by_role.items())
        parts: Mapping[str, object] = {"roles": Roles(prefill=prefill, decode=decode)}
    elif whole.mix:
        parts = {"mix": tuple(map(place, whole.mix))}
    else:
        return place(whole)
    replicas = sum(part.placed_replicas for _, part in whole.parts_by_role)
    added = sum(price_starting(part, role) for role, part in whole.parts_by_role)
    update = {"num_replicas": replicas, "cost": (whole.cost or 0.0) + added, **parts}
    return whole.model_copy(update=update)


def allocation_of(whole: ServerAllocation) -> core.Allocation:
    """Return the allocation as the optimizer has it."""
    return ALLOCATION.build(whole.to_json())


def build_desired(allocation: core.Allocation | None) -> Manifest:
    """Return the manifest of spec.desiredAlloc with every field, so that nothing earlier stays."""
    decided = allocation or core.Allocation()
    parts = {
        part.role.lower(): ReplicaAllocation.json_of(**_write_replicas(part))
        for part in decided.roles
    }
    return ServerAllocation.json_of(
        **_write_part(decided),
        mix=[Allocation.json_of(**_write_part(part)) for part in decided.mix],
        roles=parts or None,
    )


def _write_replicas(allocation: core.Allocation) -> dict[str, Any]:
    return {
        "accelerator": allocation.accelerator,
        "num_replicas": allocation.replicas,
        "max_batch": allocation.max_batch_size,
        "cost": round(allocation.cost, DIGITS),
    }


def _write_part(allocation: core.Allocation) -> dict[str, Any]:
    return {
        **_write_replicas(allocation),
        "itl_average": round(allocation.itl_ms, DIGITS),
        "wait_average": round(allocation.wait_ms, DIGITS),
        "ttft_average": round(allocation.ttft_ms, DIGITS),
        "load": _write_load(allocation.load),
        "origin": allocation.origin or None,
        "error_percent": allocation.error_percent or None,
    }


def _write_load(load: core.Load) -> Manifest:
    lengths = {"avg_in_tokens": load.input_tokens, "avg_out_tokens": load.output_tokens}
    if load.tokens_per_request or not load.output_tokens:
        lengths = {"avg_length": load.tokens_per_request} | (lengths if load.output_tokens else {})
    return Load.json_of(
        arrival_rate=load.arrival_rate,
        **lengths,
        cached_tokens=load.cached_tokens or None,
        tokens_per_step=load.tokens_per_step or None,
        arrival_cov=load.arrival_cov,
        service_cov=load.service_cov,
    )


Label = Callable[[str, core.Role], str]
"""An accelerator as it is shown for replicas of a role: with the cards of one replica."""


def name_accelerator(accelerator: str, role: core.Role = core.Role.BOTH) -> str:  # noqa: ARG001 - a Label
    """Return the name of an accelerator, where it is not known what a replica takes."""
    return accelerator


def list_placements(whole: ServerAllocation | None) -> tuple[Placement, ...]:
    """Return the replicas by accelerator and role, in order of the accelerators."""
    placed = (
        Placement(
            accelerator=part.accelerator,
            replicas=part.num_replicas,
            batch=max(part.max_batch or 0, 0),
            role=role.value,
        )
        for role, part in (whole.parts_by_role if whole else ())
        if part.accelerator and part.num_replicas > 0
    )
    return tuple(sorted(placed, key=lambda placement: placement.place))


def is_whole(placed: Sequence[Placement]) -> bool:
    """Whether replicas serve requests: a role alone serves none."""
    return core.can_answer(core.Role(placement.role) for placement in placed)


def count_by_place(placed: Iterable[Placement]) -> Mapping[str, int]:
    """Return the replicas by place, see `Placement.place`."""
    return {placement.place: placement.replicas for placement in placed}


def cards_of_placements(
    placed: Iterable[Placement], server: Server, catalogue: Catalogue
) -> Counter[str]:
    """Return the cards by type that replicas take, as far as their accelerators tell them."""
    mix = tuple(
        core.Allocation(accelerator=p.accelerator, replicas=p.replicas, role=core.Role(p.role))
        for p in placed
    )
    return Counter(cards_in_use(catalogue, server.spec.model, core.Allocation(mix=mix)))


def cards_of(whole: ServerAllocation | None, server: Server, catalogue: Catalogue) -> Counter[str]:
    """Return the cards by type that an allocation of a Server takes."""
    return cards_of_placements(list_placements(whole), server, catalogue)


ObjectName = tuple[str, ...]
"""What identifies an object that Servers name."""

Shared = Mapping[str, Problem]
"""Accelerators on which the replicas are those of an older Server, with what is wrong."""


def find_shared(servers: Iterable[Server]) -> Mapping[int, Shared]:
    """Return what Servers, the oldest first, share with older ones, by id(); most share nothing."""
    holders: dict[ObjectName, Server] = {}
    shared: dict[int, Shared] = {}
    for server in servers:
        found = [
            (acc, holders.setdefault(name, server), name)
            for acc, name in _list_object_names(server)
        ]
        others = {
            acc: _describe_shared(server, h, name) for acc, h, name in found if h is not server
        }
        if others:
            shared[id(server)] = others
    return shared


def remove_shared(server: Server, shared: Container[str]) -> Server:
    """Return a Server with what runs of it on accelerators that it shares with no older one."""
    current = server.spec.current_alloc
    if current is None:
        return server
    own = tuple(part for part in current.parts if part.accelerator not in shared)
    runs = ServerAllocation(
        accelerator=own[0].accelerator if own else "",
        num_replicas=sum(part.num_replicas for part in own),
        mix=own,
    )
    return server.replace_spec(current_alloc=runs)


def _list_object_names(server: Server) -> Iterator[tuple[str, ObjectName]]:
    reference = server.spec.model_booster
    if reference is None:
        yield from ((w.accelerator, w.object_name) for w in server.spec.workloads)
        return
    for backend in reference.backends:
        name = reference.booster_of(backend)
        yield backend.accelerator, (reference.dialect, "ModelBooster", name)


def _describe_shared(server: Server, older: Server, named: ObjectName) -> Problem:
    kind, name = named[1:3]
    message = (
        f"Server {older.metadata.name!r} names {kind} {name!r} already: each workload runs"
        f" one server; name another one, or delete one of the two Servers"
    )
    field = "modelBooster" if server.spec.model_booster else "workloads"
    return Problem("server", server.spec.name, field, message)


WAITING_COST = 3000.0
"""What a waiting request of the most important class costs [cents/hour]: an hour of a person."""


def find_break_even_s(lead_s: float, rate: float, cost: float, priority: int) -> float:
    """Return the idle time that costs as much as a cold start [s].

    A replica serves after `lead_s` [s] and costs `cost` [cents/hour]; requests arrive at `rate`
    [requests/s]; `priority` is that of the class, 1 (the most important) to 100.
    """
    if cost <= 0:
        return inf
    waiting = lead_s * (1 + rate * lead_s / 2)
    weight = (LOWEST_PRIORITY + 1 - priority) / LOWEST_PRIORITY
    return lead_s + WAITING_COST * weight / cost * waiting


def may_sleep(server: Server, cost: float, priority: int) -> bool:
    """Return whether a measured Server may have no replica now; one that sleeps may go on.

    `cost` is that of a replica [cents/hour], `priority` that of its class, 1 to 100.
    """
    measured = server.status.measured
    seen = measured.demand if measured else None
    if server.sleeps:
        return seen is None or not seen.requests
    if server.spec.measure is None or server.spec.measure.demand is None:
        return False
    if measured is None or seen is None or seen.idle_since is None:
        return False
    desired = server.spec.desired_alloc
    if desired is None or desired.num_replicas > 1:  # others go first, one after the other
        return False
    rate = (seen.mean_rate or 0.0) / 60
    needed = find_break_even_s(server.lead_seconds, rate, cost, priority)
    return needed < inf and measured.time - seen.idle_since >= timedelta(seconds=needed)


PERCENT = 100.0

Place = tuple[str, str, core.Role]
"""A model, an accelerator, and what replicas do there."""

TIMES = frozenset({"alpha", "beta", "gamma", "delta", "kappa", "u"})
"""Parameters that are times."""


def convert_profiles(models: Iterable[Model]) -> tuple[core.PerformanceProfile, ...]:
    """Return the profiles of models; of several for one accelerator, the last one is used."""
    return tuple(
        {
            place_of_data(model, data): PERFORMANCE.build(_write_data(model, data))
            for model in models
            for data in select_effective(model)
            if data.role == "Both"
        }.values()
    )


def convert_roles(models: Iterable[Model]) -> tuple[core.RoleProfile, ...]:
    """Return the profiles of the roles of models; of several for one role, the last one is used."""
    return tuple(
        {
            place_of_data(model, data): ROLE_PERFORMANCE.build(_write_data(model, data))
            for model in models
            for data in select_effective(model)
            if data.role != "Both"
        }.values()
    )


def select_effective(model: Model) -> tuple[PerformanceData, ...]:
    """Return the data as plans compute with them, one item per accelerator and role.

    Only those of whole replicas are calibrated.
    """
    return tuple(
        {
            place_of_data(model, data): _calibrate(model, data) if data.role == "Both" else data
            for data in model.spec.data
        }.values()
    )


def place_of_data(model: Model, data: PerformanceData) -> Place:
    """Return where performance data of a model are about."""
    return model.spec.name, data.acc, core.Role(data.role)


def _write_data(model: Model, data: PerformanceData) -> Manifest:
    """Return performance data as the REST API has them."""
    transfer = model.spec.transfer if data.role == "Prefill" else None
    return {
        **data.to_json(),
        "name": model.spec.name,
        "transfer": transfer.to_json() if transfer else None,
    }


def _calibrate(model: Model, data: PerformanceData) -> PerformanceData:
    """The data with calibrated parameters, if the model asks for them and there are any.

    They are those of the upper confidence. Typed parameters get an error as well: else an
    accelerator would seem faster because nobody measured it.
    """
    if model.spec.calibrate != "Use":
        return data
    calibrated = next((row for row in model.status.calibration if row.acc == data.acc), None)
    measured = _read_calibrated(data, calibrated) if calibrated else None
    if measured is None:
        return _slow_down(data, 1 + model.spec.typed_error_percent / PERCENT)
    return data.model_copy(update=measured)


def _read_calibrated(
    data: PerformanceData, calibrated: CalibratedData
) -> Mapping[str, object] | None:
    """The fields of the data that calibrated parameters replace; None if none do.

    The first generation has no prefill time of its own, so it takes only alpha and beta. The
    others become the fourth generation if the steps fit, else the second one; but configured steps
    are not replaced by lines, which hold only for the lengths that they were measured with.
    """
    decode, steps = calibrated.decode_parms, calibrated.step_parms
    distance = calibrated.decode.residual if calibrated.decode else None
    origin: dict[str, object] = {
        "origin": "measured",
        "error_percent": None if distance is None else min(PERCENT * distance, PERCENT),
    }
    if data.alpha is not None:
        return {"alpha": decode.alpha, "beta": decode.beta, **origin} if decode else None
    if steps is None and (decode is None or data.step_parms is not None):
        return None
    lines = None if steps else (decode, calibrated.prefill_parms)
    decode, prefill = lines or (None, None)
    return {
        "decode_parms": decode,
        "prefill_parms": prefill,
        "perf_parms": None,
        "step_parms": steps,
        **origin,
    }


def _slow_down(data: PerformanceData, factor: float) -> PerformanceData:
    parts = ("decode_parms", "prefill_parms", "perf_parms", "step_parms")
    times = {name: value * factor for name in ("alpha", "beta") if (value := getattr(data, name))}
    longer = {
        name: part.model_copy(update={n: v * factor for n, v in part if n in TIMES})
        for name in parts
        if (part := getattr(data, name))
    }
    return data.model_copy(update={**times, **longer})


def convert_accelerator(resource: Accelerator) -> core.Accelerator:
    """Return an accelerator as solvers have it."""
    return ACCELERATOR.build(resource.spec.to_json())


def convert_class(resource: ServiceClass) -> core.ServiceClass:
    """Return a service class as solvers have it."""
    fields = resource.spec.to_json()
    return SERVICE_CLASS.build({**fields, "modelTargets": fields.get("data")})


def convert_server(resource: Server, catalogue: Catalogue, *, wakes: bool = False) -> core.Server:
    """The server; it has no replica only if plans are made again without a request."""
    spec, current = resource.spec, place_current(resource, catalogue)
    return core.Server(
        name=spec.name,
        service_class=spec.service_class,
        model=spec.model,
        current=allocation_of(current) if current else core.Allocation(),
        keep_accelerator=spec.keep_accelerator,
        min_replicas=_find_least(resource, catalogue, wakes=wakes),
        max_batch_size=spec.max_batch_size,
        max_queue_size=spec.max_queue_size,
        accelerators=_list_accelerators(resource),
        load_spread=spread_over(payback_s(resource.lead_seconds)) if spec.measure else 0.0,
        prefill_accelerators=_list_accelerators(resource, core.Role.PREFILL),
        decode_accelerators=_list_accelerators(resource, core.Role.DECODE),
    )


def convert_names(resource: Server) -> core.Server:
    """A Server with its names alone: without a load, and without anything that runs."""
    spec = resource.spec
    return core.Server(spec.name, spec.service_class, spec.model)


def _list_accelerators(server: Server, role: core.Role = core.Role.BOTH) -> tuple[str, ...]:
    spec = server.spec
    if spec.model_booster is not None:
        backends = spec.model_booster.backends
        return tuple(backend.accelerator for backend in backends if backend.role == role)
    return tuple(w.accelerator for w in spec.workloads if w.role == role)


def _find_least(resource: Server, catalogue: Catalogue, *, wakes: bool) -> int:
    """The fewest replicas; one at least of a Server that is measured and may not sleep."""
    spec = resource.spec
    if spec.measure is None:
        return spec.min_num_replicas
    priority = catalogue.priority(spec.service_class)
    runs = spec.desired_alloc or spec.current_alloc
    cost = catalogue.unit_cost(spec.model, runs.accelerator) if runs else 0.0
    rests = wakes and may_sleep(resource, cost, priority)
    return max(spec.min_num_replicas, 0 if rests else 1)


def sum_cards(resources: Iterable[Capacity]) -> Mapping[str, int]:
    """The cards by type; of several Capacity objects that are to be counted, the oldest is."""
    declared: Counter[str] = Counter()
    counting: Capacity | None = None
    for resource in resources:
        for count in resource.spec.count:
            declared[count.type] += count.count
        if resource.spec.from_nodes:
            counting = counting or resource
    cards = dict(declared) if counting is None else _limit_counted(counting, declared)
    return dict(sorted(cards.items()))


def _limit_counted(capacity: Capacity, declared: Mapping[str, int]) -> dict[str, int]:
    if capacity.is_uncounted:
        counted = capacity.status.condition(COUNTED)
        why = counted.message if counted else "see its condition Counted"
        raise UnavailableError(f"Capacity {capacity.metadata.name!r} is not counted yet: {why}")
    return {
        cards.type: min(cards.available, declared.get(cards.type, cards.available))
        for cards in capacity.status.counted
    }


def convert_options(parameters: OptimizerParameters | None, time_limit: float) -> core.Options:
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
