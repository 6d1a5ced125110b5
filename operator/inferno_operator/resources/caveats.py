"""Warns of numbers that are valid but hardly meant, and says what they count as; pure."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from inferno_operator.resources.accelerator import Accelerator, AcceleratorSpec
from inferno_operator.resources.base import Resource
from inferno_operator.resources.capacity import Capacity, CapacitySpec
from inferno_operator.resources.model import Model, ModelSpec, PerformanceData
from inferno_operator.resources.server import Server, ServerSpec
from inferno_operator.resources.service_class import ServiceClass, ServiceClassSpec
from inferno_operator.resources.workload_kinds import WORKLOAD_KINDS
from inferno_optimizer.caveats import IMPLAUSIBLE, cost_problem, priority_problem
from inferno_optimizer.suggestions import nearest
from inferno_optimizer.validation import Problem

Name = TypeVar("Name", bound=Hashable)

SMALL_CARD_GBS = 400
"""Bandwidth below which a card may cost a few cents an hour, as an L4 or a T4 [GB/s]."""

MOST_MEMORY_GB = 10_000
"""Largest plausible memory of an accelerator, which may be a rack of cards."""

LEAST_BANDWIDTH_GBS = 20
"""Lowest plausible bandwidth of the memory of an accelerator."""

MOST_BATCH = 100_000
"""Largest plausible batch of a replica [requests]."""

MOST_TOKENS = 10_000_000
"""Largest plausible mean of the tokens of requests; no context is longer."""


def caveats(resource: Resource | None) -> Iterator[Problem]:
    """Yield each such number of an object."""
    match resource:
        case Accelerator(spec=spec):
            yield from _of_accelerator(spec)
        case Model(spec=spec):
            for data in spec.data:
                yield from _of_data(spec.name, data)
            yield from _repeated_data(spec)
        case ServiceClass(spec=spec):
            yield from _repeated_targets(spec)
            yield from _without_targets(spec)
            if found := priority_problem(spec.name, spec.priority):
                yield found
        case Capacity(spec=spec):
            yield from _of_capacity(spec)
        case Server(spec=spec):
            yield from _of_server(spec)


def _of_accelerator(spec: AcceleratorSpec) -> Iterator[Problem]:
    if spec.cost == 0:
        message = "0 counts as free of charge; give the price [cents/hour]"
        yield Problem("accelerator", spec.name, "cost", message)
    is_small = spec.mem_bw is not None and 0 < spec.mem_bw < SMALL_CARD_GBS
    if not is_small and (found := cost_problem(spec.name, spec.cost, spec.multiplicity)):
        yield found
    for field, value in (("memSize", spec.mem_size), ("memBW", spec.mem_bw)):
        if value is not None and value < 0:
            yield Problem("accelerator", spec.name, field, f"{value} is negative")
    for field, message in list_absurd_figures(spec.mem_size or 0, spec.mem_bw or 0).items():
        yield Problem("accelerator", spec.name, field, message, IMPLAUSIBLE)


def list_absurd_figures(memory: float, bandwidth: float) -> Mapping[str, str]:
    """What is wrong with memory [GB] and bandwidth [GB/s], 0 if unknown; by field of the spec."""
    found = {}
    if memory > MOST_MEMORY_GB:
        right = f"if it is in MB, write {memory / 1024:.3g}"
        found["memSize"] = f"{memory:g} GB are more than any accelerator has; {right}"
    if 0 < bandwidth < LEAST_BANDWIDTH_GBS:
        right = f"if it is in TB/s, write {bandwidth * 1000:g}"
        found["memBW"] = f"{bandwidth:g} GB/s are less than any accelerator has; {right}"
    return found


def _of_data(model: str, data: PerformanceData) -> Iterator[Problem]:
    if data.acc_count < 1:
        message = f"{data.acc_count} counts as 1"
        yield Problem("model", model, "accCount", message, part=data.acc)
    for field, value in (("maxBatchSize", data.max_batch_size), ("atTokens", data.at_tokens)):
        if value == 0:
            message = "0 counts as a largest batch of 1; give maxBatchSize and its atTokens"
            yield Problem("model", model, field, message, part=data.acc)
    if data.max_batch_size > MOST_BATCH:
        message = f"{data.max_batch_size} requests are more than any replica has in a batch"
        yield Problem("model", model, "maxBatchSize", message, part=data.acc)


def _repeated_data(spec: ModelSpec) -> Iterator[Problem]:
    for (acc, role), named in _repeated((data.acc, data.role) for data in spec.data):
        of = "" if role == "Both" else f" with role {role}"
        message = f"{acc!r}{of} {named}, and the last one counts"
        yield Problem("model", spec.name, "acc", message, part=acc)


def _repeated_targets(spec: ServiceClassSpec) -> Iterator[Problem]:
    for model, named in _repeated(target.model for target in spec.data):
        message = f"{model!r} {named}, and the last one counts"
        yield Problem("service class", spec.name, "model", message, part=model)


LIMITS = (
    ("slo-itl", attrgetter("slo_itl"), attrgetter("slo_itl_percentile")),
    ("slo-ttw", attrgetter("slo_ttw"), attrgetter("slo_ttw_percentile")),
    ("slo-ttft", attrgetter("slo_ttft"), attrgetter("slo_ttft_percentile")),
    ("slo-tps", attrgetter("slo_tps"), lambda _: None),
)
"""Targets of a class: the field, its limit and its percentile."""


def _without_targets(spec: ServiceClassSpec) -> Iterator[Problem]:
    """What reads like a target and is none, each field once for all models."""
    for field, limit_of, percentile_of in LIMITS:
        zeros = [target.model for target in spec.data if limit_of(target) == 0]
        alone = [t.model for t in spec.data if percentile_of(t) and limit_of(t) is None]
        if zeros:
            message = f"0 counts as no target{_others(zeros)}; give a limit, or remove the field"
            yield Problem("service class", spec.name, field, message, part=zeros[0])
        if alone:
            message = f"has no effect without {field}{_others(alone)}"
            percentile = f"{field}-percentile"
            yield Problem("service class", spec.name, percentile, message, part=alone[0])


def _others(models: Sequence[str]) -> str:
    """How many models there are beside the first one that a message names; "" if none are."""
    return f" (so of {len(models) - 1} more models)" if len(models) > 1 else ""


def _of_capacity(spec: CapacitySpec) -> Iterator[Problem]:
    for card_type, named in _repeated(count.type for count in spec.count):
        message = f"{card_type!r} {named}, and its counts are added"
        yield Problem("capacity", card_type, "type", message)


def _repeated(names: Iterable[Name]) -> Iterator[tuple[Name, str]]:
    """Yield what is named several times, with the words that say how often."""
    for name, times in Counter(names).items():
        if times > 1:
            yield name, f"is named {times} times"


def _of_server(spec: ServerSpec) -> Iterator[Problem]:
    for kind in dict.fromkeys(workload.kind for workload in spec.workloads):
        if kind[:1].islower():
            near = nearest(kind, tuple(WORKLOAD_KINDS)) or "; kinds begin with a capital letter"
            yield Problem("server", spec.name, "workloads", f"no kind is named {kind!r}{near}")
    current = spec.current_alloc
    if current is None:
        return
    latencies = (
        ("itlAverage", current.itl_average),
        ("waitAverage", current.wait_average),
        ("ttftAverage", current.ttft_average),
    )
    for field, value in latencies:
        if value is not None and value < 0:
            yield Problem("server", spec.name, f"currentAlloc.{field}", f"{value:g} is negative")
    load = current.load
    if load and load.arrival_rate > 0 and not (load.avg_length or load.avg_out_tokens):
        message = f"{load.arrival_rate:g} without tokens counts as no load; give avgOutTokens"
        yield Problem("server", spec.name, "currentAlloc.load.arrivalRate", message)
    lengths = load and (
        ("avgLength", load.avg_length),
        ("avgInTokens", load.avg_in_tokens),
        ("avgOutTokens", load.avg_out_tokens),
    )
    for field, tokens in lengths or ():
        if tokens and tokens > MOST_TOKENS:
            message = f"{tokens} tokens are more than any request has; give their mean"
            yield Problem("server", spec.name, f"currentAlloc.load.{field}", message)
