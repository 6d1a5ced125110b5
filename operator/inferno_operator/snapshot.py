"""The objects of a namespace -> one System, and what is wrong with each object."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from inferno_operator.resources import (
    Accelerator,
    Capacity,
    Model,
    Optimizer,
    OptimizerParameters,
    PerformanceData,
    Resource,
    Server,
    ServiceClass,
)
from inferno_operator.resources import Allocation as AllocationPart
from inferno_optimizer import system as core
from inferno_optimizer.validation import Problem, find_problems

DUPLICATE_NAME = "DuplicateName"
UNSUPPORTED = "Unsupported"

KINDS: Mapping[str, str] = {
    Accelerator.kind: "accelerator",
    Model.kind: "model",
    ServiceClass.kind: "service class",
    Server.kind: "server",
}
"""Our kinds, as problems call them; those whose objects have a `spec.name`."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A system, and its problems.

    `objects` holds the object that each name stands for, by kind (as problems call it) and
    `spec.name`; `duplicates` the others of the same name, which are left out of the system,
    each with the problem that says so.
    """

    system: core.System
    problems: tuple[Problem, ...]
    objects: Mapping[tuple[str, str], Resource]
    duplicates: tuple[tuple[Resource, Problem], ...]


def build_system(
    resources: Iterable[Resource], optimizer: Optimizer | None = None, time_limit: float = 30.0
) -> Snapshot:
    """Build the system that the objects of a namespace describe.

    Parameters
    ----------
    resources
        The objects, in any order. Of several with one `spec.name` the oldest counts;
        several Capacity objects add up.
    optimizer
        Whose parameters to use; the first one among the resources unless given.
    time_limit
        What the exact solver may take [s].
    """
    in_order = sorted(resources, key=_age)
    objects, duplicates = _by_name(in_order)
    chosen = list(objects.values())
    optimizers = [optimizer] if optimizer else [r for r in in_order if isinstance(r, Optimizer)]
    profiles, unsupported = _profiles([r for r in chosen if isinstance(r, Model)])
    system = core.System(
        accelerators=tuple(_accelerator(r) for r in chosen if isinstance(r, Accelerator)),
        profiles=profiles,
        classes=tuple(_service_class(r) for r in chosen if isinstance(r, ServiceClass)),
        servers=tuple(_server(r) for r in chosen if isinstance(r, Server)),
        capacity=_capacity(r for r in in_order if isinstance(r, Capacity)),
        options=_options(optimizers[0].spec.data.optimizer if optimizers else None, time_limit),
    )
    named_twice = [problem for _, problem in duplicates]
    problems = (*find_problems(system), *unsupported, *named_twice)
    return Snapshot(system, problems, objects, tuple(duplicates))


def _age(resource: Resource) -> tuple[datetime, str]:
    created = resource.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC)
    return created, resource.metadata.name


def _by_name(
    resources: Sequence[Resource],
) -> tuple[dict[tuple[str, str], Resource], list[tuple[Resource, Problem]]]:
    """Objects by kind and name, and those whose name an older object has."""
    objects: dict[tuple[str, str], Resource] = {}
    duplicates: list[tuple[Resource, Problem]] = []
    for resource in resources:
        if not isinstance(resource, Accelerator | Model | ServiceClass | Server):
            continue
        key = (KINDS[resource.kind], resource.spec.name)
        older = objects.setdefault(key, resource)
        if older is not resource:
            message = f"{older.kind} {older.metadata.name!r}, which is older, has it; rename one"
            duplicates.append((resource, Problem(*key, "name", message, DUPLICATE_NAME)))
    return objects, duplicates


def _accelerator(resource: Accelerator) -> core.Accelerator:
    spec = resource.spec
    return core.Accelerator(spec.name, spec.type, spec.cost, spec.multiplicity)


def _profiles(
    models: Iterable[Model],
) -> tuple[tuple[core.PerformanceProfile, ...], list[Problem]]:
    """Profiles of the models, the last of each accelerator; and the records not understood."""
    profiles: dict[tuple[str, str], core.PerformanceProfile] = {}
    problems = []
    for model in models:
        for data in model.spec.data:
            profile = _profile(model.spec.name, data)
            if profile is not None:
                profiles[model.spec.name, data.acc] = profile
                continue
            message = "only alpha and beta are supported yet, no later performance data"
            problems.append(
                Problem("model", model.spec.name, "data", message, UNSUPPORTED, data.acc)
            )
    return tuple(profiles.values()), problems


def _profile(model: str, data: PerformanceData) -> core.PerformanceProfile | None:
    if data.alpha is None or data.beta is None:
        return None
    return core.PerformanceProfile(
        model=model,
        accelerator=data.acc,
        parameters=core.DecodeParameters(data.alpha, data.beta),
        max_batch_size=data.max_batch_size,
        at_tokens=data.at_tokens,
        accelerator_count=max(data.acc_count, 1),
    )


def _service_class(resource: ServiceClass) -> core.ServiceClass:
    targets = {
        t.model: core.Target(t.slo_itl or 0.0, t.slo_ttw or 0.0, t.slo_tps or 0.0)
        for t in resource.spec.data
    }
    return core.ServiceClass(resource.spec.name, resource.spec.priority, targets)


def _server(resource: Server) -> core.Server:
    spec = resource.spec
    return core.Server(
        name=spec.name,
        service_class=spec.service_class,
        model=spec.model,
        current=_allocation(spec.current_alloc) if spec.current_alloc else core.Allocation(),
        keep_accelerator=spec.keep_accelerator,
        min_replicas=spec.min_num_replicas,
        max_batch_size=spec.max_batch_size,
    )


def _allocation(part: AllocationPart) -> core.Allocation:
    load = part.load
    return core.Allocation(
        accelerator=part.accelerator,
        replicas=part.num_replicas,
        max_batch_size=part.max_batch or 0,
        cost=part.cost or 0.0,
        itl_ms=part.itl_average or 0.0,
        wait_ms=part.wait_average or 0.0,
        load=core.Load(
            load.arrival_rate,
            load.avg_length or 0,
            load.arrival_cov or 0.0,
            load.service_cov or 0.0,
        )
        if load
        else core.Load(),
    )


def _capacity(resources: Iterable[Capacity]) -> Mapping[str, int]:
    cards: Counter[str] = Counter()
    for resource in resources:
        for count in resource.spec.count:
            cards[count.type] += count.count
    return dict(sorted(cards.items()))


def _options(parameters: OptimizerParameters | None, time_limit: float) -> core.Options:
    if parameters is None:
        return core.Options(time_limit=time_limit)
    return core.Options(
        unlimited=parameters.unlimited,
        heterogeneous=parameters.heterogeneous,
        milp=parameters.milp_solver,
        saturation_policy=core.SaturationPolicy(parameters.saturation_policy),
        delayed_best_effort=parameters.delayed_best_effort,
        hold_undecided=parameters.hold_undecided,
        time_limit=time_limit,
    )
