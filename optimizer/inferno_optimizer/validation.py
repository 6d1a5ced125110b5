"""What is wrong with a System, as values: the rest of it is still optimized.

A number that makes no sense disables the object that carries it (`InvalidSpec`); a name
that nothing answers to disables what uses it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inferno_optimizer.system import (
    Accelerator,
    PerformanceProfile,
    Reason,
    Server,
    ServiceClass,
    System,
)

UNKNOWN_ACCELERATOR = "UnknownAccelerator"

MAX_COUNT = 2**31 - 1
"""No count of anything is larger; products of two still fit into 64 bits."""

MAX_NUMBER = 1e15
"""No cost or latency is larger; sums of products stay far from overflow."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with one object, in words that tell what to change.

    `kind` is accelerator, model, service class, server or capacity; `field` is its name in
    the documents; `part` tells which of several parts it is (the accelerator of a model's
    record, the model of a class's target), empty for the object as a whole.
    """

    kind: str
    name: str
    field: str
    message: str
    reason: str = Reason.INVALID_SPEC
    part: str = ""

    def __str__(self) -> str:
        """Object, field and message in one line."""
        part = f" ({self.part})" if self.part else ""
        return f"{self.kind} {self.name!r}{part}: {self.field}: {self.message}"


def find_problems(system: System) -> tuple[Problem, ...]:
    """Every problem of the system, in the order of its objects."""
    return tuple(_problems(system))


def _problems(system: System) -> Iterator[Problem]:
    accelerators = {a.name: a.multiplicity for a in system.accelerators}
    models = {p.model for p in system.profiles}
    classes = {c.name for c in system.classes}
    for accelerator in system.accelerators:
        yield from _accelerator_problems(accelerator)
    for profile in system.profiles:
        yield from _profile_problems(profile, accelerators)
    for service_class in system.classes:
        yield from _class_problems(service_class)
    for server in system.servers:
        yield from _server_problems(server)
        yield from _unknown_names(server, classes, models)
    for card_type, count in system.capacity.items():
        yield from _sensible("capacity", card_type, {"count": count})


def _accelerator_problems(accelerator: Accelerator) -> Iterator[Problem]:
    yield from _sensible("accelerator", accelerator.name, {"cost": accelerator.cost})
    if accelerator.multiplicity < 1:
        message = f"{accelerator.multiplicity} is less than 1 card"
        yield Problem("accelerator", accelerator.name, "multiplicity", message)


def _profile_problems(
    profile: PerformanceProfile, accelerators: Mapping[str, int]
) -> Iterator[Problem]:
    numbers = {
        "alpha": profile.parameters.alpha,
        "beta": profile.parameters.beta,
        "maxBatchSize": profile.max_batch_size,
        "atTokens": profile.at_tokens,
        "accCount": profile.accelerator_count * max(accelerators.get(profile.accelerator, 1), 1),
    }
    yield from _sensible("model", profile.model, numbers, profile.accelerator)
    if profile.parameters.alpha == 0 and profile.parameters.beta == 0:
        message = "alpha and beta are both 0: the performance is not measured yet"
        yield Problem("model", profile.model, "alpha", message, part=profile.accelerator)
    if profile.accelerator not in accelerators:
        message = f"no accelerator is named {profile.accelerator!r}; correct it or add one"
        yield Problem(
            "model", profile.model, "acc", message, UNKNOWN_ACCELERATOR, profile.accelerator
        )


def _class_problems(service_class: ServiceClass) -> Iterator[Problem]:
    for model, target in service_class.targets.items():
        numbers = {
            "slo-itl": target.itl_ms,
            "slo-ttw": target.wait_ms,
        }
        tps = {"slo-tps": target.tokens_per_second}
        yield from _sensible("service class", service_class.name, tps, model, limit=math.inf)
        yield from _sensible("service class", service_class.name, numbers, model)


def _server_problems(server: Server) -> Iterator[Problem]:
    rate = {"currentAlloc.load.arrivalRate": server.load.arrival_rate}
    yield from _sensible("server", server.name, rate, limit=math.inf)  # replicas have one
    numbers = {
        "currentAlloc.load.avgLength": server.load.tokens_per_request,
        "currentAlloc.numReplicas": server.current.replicas,
        "currentAlloc.cost": server.current.cost,
        "minNumReplicas": server.min_replicas,
        "maxBatchSize": server.max_batch_size,
    }
    yield from _sensible("server", server.name, numbers)


def _unknown_names(server: Server, classes: set[str], models: set[str]) -> Iterator[Problem]:
    if server.service_class not in classes:
        message = f"no service class is named {server.service_class!r}; correct it or add the class"
        yield Problem("server", server.name, "class", message, Reason.UNKNOWN_CLASS)
    if server.model not in models:
        message = (
            f"no model with performance data is named {server.model!r}; correct it or add the model"
        )
        yield Problem("server", server.name, "model", message, Reason.UNKNOWN_MODEL)


def _sensible(
    kind: str,
    name: str,
    numbers: Mapping[str, float],
    part: str = "",
    limit: float | None = None,
) -> Iterator[Problem]:
    for field, value in numbers.items():
        most = limit or (MAX_COUNT if isinstance(value, int) else MAX_NUMBER)
        if not math.isfinite(value):
            yield Problem(kind, name, field, f"{value} is not a finite number", part=part)
        elif value < 0:
            yield Problem(kind, name, field, _negative(value), part=part)
        elif value > most:
            yield Problem(kind, name, field, f"{value:g} is more than {most:g}", part=part)


def _negative(value: float) -> str:
    return f"{value:g} is negative"
