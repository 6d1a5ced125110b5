"""Numbers of an object that are valid and hardly meant, and what they count as; pure."""

from collections import Counter
from collections.abc import Iterator

from inferno_operator.resources.accelerator import Accelerator, AcceleratorSpec
from inferno_operator.resources.base import Resource
from inferno_operator.resources.capacity import Capacity, CapacitySpec
from inferno_operator.resources.model import Model, PerformanceData
from inferno_operator.resources.server import Server, ServerSpec
from inferno_operator.resources.service_class import ServiceClass
from inferno_optimizer.caveats import priority_problem
from inferno_optimizer.validation import Problem


def caveats(resource: Resource | None) -> Iterator[Problem]:
    """Yield each such number of an object."""
    match resource:
        case Accelerator(spec=spec):
            yield from _of_accelerator(spec)
        case Model(spec=spec):
            for data in spec.data:
                yield from _of_data(spec.name, data)
        case ServiceClass(spec=spec):
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
    for field, value in (("memSize", spec.mem_size), ("memBW", spec.mem_bw)):
        if value is not None and value < 0:
            yield Problem("accelerator", spec.name, field, f"{value} is negative")


def _of_data(model: str, data: PerformanceData) -> Iterator[Problem]:
    if data.acc_count < 1:
        message = f"{data.acc_count} counts as 1"
        yield Problem("model", model, "accCount", message, part=data.acc)
    for field, value in (("maxBatchSize", data.max_batch_size), ("atTokens", data.at_tokens)):
        if value == 0:
            message = "0 counts as a largest batch of 1; give maxBatchSize and its atTokens"
            yield Problem("model", model, field, message, part=data.acc)


def _of_capacity(spec: CapacitySpec) -> Iterator[Problem]:
    for card_type, times in Counter(count.type for count in spec.count).items():
        if times > 1:
            message = f"{card_type!r} is named {times} times, and its counts are added"
            yield Problem("capacity", card_type, "type", message)


def _of_server(spec: ServerSpec) -> Iterator[Problem]:
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
