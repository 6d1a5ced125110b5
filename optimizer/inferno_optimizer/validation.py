"""Finds the problems of a System and returns them as values; the rest is still optimized.

An invalid number excludes its object from the plan (`InvalidSpec`); an unknown name excludes
the object that refers to it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from inferno_optimizer.card_types import strange_types, without_count
from inferno_optimizer.solution import Reason
from inferno_optimizer.suggestions import cut, nearest_of_each
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Generation,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    Role,
    RoleProfile,
    Server,
    ServiceClass,
    StepParameters,
    System,
    TokenBudgetParameters,
)

UNKNOWN_TYPE = "UnknownType"
"""A type of cards in the capacity that no accelerator has."""

UNMATCHED = frozenset({UNKNOWN_TYPE, Reason.UNKNOWN_CAPACITY})
"""Problems of types that the capacity and the accelerators do not share."""

MAX_COUNT = 2**31 - 1
"""Largest valid count; a product of two counts still fits into 64 bits."""

MAX_NUMBER = 1e15
"""Largest valid cost or latency; sums of products stay far from overflow."""

LEAST_TIME = 1e-100
"""Parameters below this [ms] count as 0; above it, rates stay finite."""

_MEASURED: Mapping[Generation, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        Generation.DECODE: (("alpha", "beta"), "alpha and beta are both"),
        Generation.PREFILL_DECODE: (
            ("decodeParms.alpha", "decodeParms.beta"),
            "alpha and beta of decodeParms are both",
        ),
        Generation.TOKEN_BUDGET: (
            ("perfParms.alpha", "perfParms.beta", "perfParms.gamma"),
            "alpha, beta and gamma of perfParms are all",
        ),
        Generation.STEPS: (("stepParms.alpha",), "alpha of stepParms is"),
    }
)
"""Parameters of which at least one must be above 0, and the start of the message if none is."""

_STEPS = ("alpha", "kappa", "delta", "u", "ahead", "budget", "overhead")
"""Performance parameters of generation 4."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of one object, with a message that says what to change.

    `kind` is accelerator, model, service class, server or capacity; `field` is the name of the
    field in the JSON documents; `part` is the part of the object that has the problem (the
    accelerator of a model's record, the model of a class's target), empty for the whole object.
    """

    kind: str
    name: str
    field: str
    message: str
    reason: str = Reason.INVALID_SPEC
    part: str = ""

    def __str__(self) -> str:
        """The object, the field and the message in one line."""
        part = f" ({cut(self.part)})" if self.part else ""
        return f"{self.kind} {cut(self.name)!r}{part}: {self.field}: {self.message}"


def find_problems(system: System) -> tuple[Problem, ...]:
    """Every problem of the system, in the order of its objects."""
    return tuple(_problems(system))


def _problems(system: System) -> Iterator[Problem]:
    strange = _strange_names(system)
    for accelerator in system.accelerators:
        yield from _accelerator_problems(accelerator)
    yield from _problems_of_profiles(system, strange)
    for service_class in system.classes:
        yield from _class_problems(service_class)
    yield from _problems_of_servers(system, strange)
    for card_type, count in system.capacity.items():
        yield from _sensible("capacity", card_type, {"count": count})
    yield from _unmatched_types(system)


def _problems_of_profiles(system: System, strange: "_StrangeNames") -> Iterator[Problem]:
    accelerators = {a.name: a.multiplicity for a in system.accelerators}
    for profile in system.profiles:
        yield from _profile_problems(profile, accelerators)
        yield from _unknown_accelerator(profile, strange)
    for role in system.roles:
        part = f"{role.accelerator}, {role.role}"
        yield from _profile_problems(role, accelerators, part)
        yield from _unknown_accelerator(role, strange, part)
        yield from _role_problems(role, part)


def _problems_of_servers(system: System, strange: "_StrangeNames") -> Iterator[Problem]:
    promised = {(c.name, m) for c in system.classes for m, t in c.targets.items() if t.ttft_ms > 0}
    accelerators = {a.name for a in system.accelerators}
    placed = (p for p in system.profiles if p.accelerator in accelerators)
    prefilled = {p.model for p in placed if _needs_input(p.parameters)}
    for server in system.servers:
        yield from _server_problems(server)
        yield from _unknown_names(server, strange)
        if server.model in prefilled and (server.service_class, server.model) in promised:
            yield from _missing_input(server)


def _unmatched_types(system: System) -> Iterator[Problem]:
    """Types in the capacity that no accelerator has, and types in use without an entry in it."""
    for card_type, message in strange_types(system).items():
        yield Problem("capacity", card_type, "type", message, UNKNOWN_TYPE)
    missing = without_count(system)
    types = {a.name: a.type for a in system.accelerators if a.type in missing}
    used = {types[part.accelerator] for part in _running(system) if part.accelerator in types}
    for card_type in sorted(used):
        message = f"{missing[card_type]}; add one (count: 0 if you have none)"
        yield Problem("capacity", card_type, "type", message, Reason.UNKNOWN_CAPACITY)


def _running(system: System) -> Iterator[Allocation]:
    """What the servers run on."""
    parts = (part for server in system.servers for part in server.current.parts)
    return (part for part in parts if part.replicas > 0)


def _accelerator_problems(accelerator: Accelerator) -> Iterator[Problem]:
    yield from _sensible("accelerator", accelerator.name, {"cost": accelerator.cost})
    if accelerator.multiplicity < 1:
        message = f"{accelerator.multiplicity} is less than 1 card"
        yield Problem("accelerator", accelerator.name, "multiplicity", message)


def _profile_problems(
    profile: PerformanceProfile | RoleProfile, accelerators: Mapping[str, int], part: str = ""
) -> Iterator[Problem]:
    part = part or profile.accelerator
    parameters = _parameters(profile.parameters)
    numbers = {
        **parameters,
        "maxBatchSize": profile.max_batch_size,
        "atTokens": profile.at_tokens,
        "maxTokens": profile.max_tokens,
        "maxNumSeqs": profile.max_sequences,
        "errorPercent": profile.error_percent,
        "accCount": profile.accelerator_count * max(accelerators.get(profile.accelerator, 1), 1),
    }
    yield from _sensible("model", profile.model, numbers, part)
    measured, names = _MEASURED[profile.parameters.generation]
    if all(0 <= parameters[field] < LEAST_TIME for field in measured):
        message = f"{names} 0: the performance is not measured yet"
        yield Problem("model", profile.model, measured[0], message, part=part)


def _role_problems(profile: RoleProfile, part: str) -> Iterator[Problem]:
    times = {
        "transfer.perRequestMs": profile.transfer.request_ms,
        "transfer.perTokenMs": profile.transfer.token_ms,
    }
    yield from _sensible("model", profile.model, times, part)
    if profile.role is Role.BOTH:
        yield Problem("model", profile.model, "role", "give Prefill or Decode", part=part)


def _unknown_accelerator(
    profile: PerformanceProfile | RoleProfile, strange: "_StrangeNames", part: str = ""
) -> Iterator[Problem]:
    name = profile.accelerator
    if name in strange.accelerators:
        message = f"no accelerator is named {cut(name)!r}{strange.accelerators[name]}"
        reason = Reason.UNKNOWN_ACCELERATOR
        yield Problem("model", profile.model, "acc", message, reason, part or name)


def _parameters(parameters: PerformanceParameters) -> Mapping[str, float]:
    """Performance parameters by the name of their field in the JSON documents."""
    match parameters:
        case DecodeParameters(alpha, beta):
            return {"alpha": alpha, "beta": beta}
        case PrefillDecodeParameters(alpha, beta, gamma, delta):
            decode = {"decodeParms.alpha": alpha, "decodeParms.beta": beta}
            return {**decode, "prefillParms.gamma": gamma, "prefillParms.delta": delta}
        case TokenBudgetParameters(alpha, beta, gamma):
            compute = {"perfParms.alpha": alpha, "perfParms.beta": beta}
            return {**compute, "perfParms.gamma": gamma}
        case StepParameters():
            return {f"stepParms.{name}": getattr(parameters, name) for name in _STEPS}


def _class_problems(service_class: ServiceClass) -> Iterator[Problem]:
    least = {"minReplicas": service_class.min_replicas}
    yield from _sensible("service class", service_class.name, least)
    for model, target in service_class.targets.items():
        numbers = {
            "slo-itl": target.itl_ms,
            "slo-ttw": target.wait_ms,
            "slo-ttft": target.ttft_ms,
        }
        percentiles = {
            "slo-itl-percentile": target.itl_percentile,
            "slo-ttw-percentile": target.wait_percentile,
            "slo-ttft-percentile": target.ttft_percentile,
        }
        tps = {"slo-tps": target.tokens_per_second}
        yield from _sensible("service class", service_class.name, tps, model, limit=math.inf)
        yield from _sensible("service class", service_class.name, numbers, model)
        yield from _percentile_problems(service_class.name, percentiles, model)


def _percentile_problems(
    name: str, percentiles: Mapping[str, float], model: str
) -> Iterator[Problem]:
    for field, value in percentiles.items():
        if not 0 <= value < 100:  # noqa: PLR2004 - percent; 0 stands for none
            message = f"{value:g} is no percentile: give a number above 0 and below 100"
            yield Problem("service class", name, field, message, part=model)


def _server_problems(server: Server) -> Iterator[Problem]:
    rate = {
        "currentAlloc.load.arrivalRate": server.load.arrival_rate,
        "leastRate": server.least_rate,
    }
    # Any finite rate is valid; the number of replicas is limited instead.
    yield from _sensible("server", server.name, rate, limit=math.inf)
    numbers = {
        "currentAlloc.load.avgLength": server.load.tokens_per_request,
        "currentAlloc.load.avgInTokens": server.load.input_tokens,
        "currentAlloc.load.avgOutTokens": server.load.output_tokens,
        "currentAlloc.load.cachedTokens": server.load.cached_tokens,
        "currentAlloc.load.tokensPerStep": server.load.tokens_per_step,
        "currentAlloc.load.arrivalCOV": server.load.arrival_cov,
        "currentAlloc.load.serviceCOV": server.load.service_cov,
        "currentAlloc.coldReplicas": server.current.cold_replicas,
        "currentAlloc.numReplicas": server.current.replicas,
        "currentAlloc.cost": server.current.cost,
        "loadSpread": server.load_spread,
        "minNumReplicas": server.min_replicas,
        "maxBatchSize": server.max_batch_size,
        "maxQueueSize": server.max_queue_size,
    }
    yield from _sensible("server", server.name, numbers)
    if server.load.cached_tokens > max(server.load.input_tokens, 0):
        message = (
            f"{server.load.cached_tokens} is more than the {server.load.input_tokens} tokens of"
            f" avgInTokens, which includes them"
        )
        yield Problem("server", server.name, "currentAlloc.load.cachedTokens", message)
    if 0 < server.load.tokens_per_step < 1:
        message = (
            f"{server.load.tokens_per_step:g} is less than 1: each step makes at least one token of"
            f" an answer"
        )
        yield Problem("server", server.name, "currentAlloc.load.tokensPerStep", message)


@dataclass(frozen=True, slots=True)
class _StrangeNames:
    """Names that objects refer to and that no object has, each with what to do about it."""

    accelerators: Mapping[str, str]
    classes: Mapping[str, str]
    models: Mapping[str, str]


def _strange_names(system: System) -> _StrangeNames:
    accelerators = {a.name for a in system.accelerators}
    classes = {c.name for c in system.classes}
    profiles: tuple[PerformanceProfile | RoleProfile, ...] = (*system.profiles, *system.roles)
    models = {p.model for p in profiles}
    return _StrangeNames(
        _advice((p.accelerator for p in profiles), accelerators, "add one"),
        _advice((s.service_class for s in system.servers), classes, "add the class"),
        _advice((s.model for s in system.servers), models, "add the model"),
    )


def _advice(names: Iterable[str], known: set[str], otherwise: str) -> Mapping[str, str]:
    near = nearest_of_each(sorted(set(names) - known), sorted(known))
    return {name: advice or f"; correct it or {otherwise}" for name, advice in near.items()}


def _unknown_names(server: Server, strange: _StrangeNames) -> Iterator[Problem]:
    if server.service_class in strange.classes:
        advice = strange.classes[server.service_class]
        message = f"no service class is named {cut(server.service_class)!r}{advice}"
        yield Problem("server", server.name, "class", message, Reason.UNKNOWN_CLASS)
    if server.model in strange.models:
        advice = strange.models[server.model]
        message = f"no model with performance data is named {cut(server.model)!r}{advice}"
        yield Problem("server", server.name, "model", message, Reason.UNKNOWN_MODEL)


def _needs_input(parameters: PerformanceParameters) -> bool:
    """Whether the time to first token depends on input tokens; without them it is only the wait."""
    return isinstance(parameters, PrefillDecodeParameters) and parameters.has_prefill


def _missing_input(server: Server) -> Iterator[Problem]:
    if not (server.load.input_tokens or server.load.idle):
        message = (
            f"is missing, but class {cut(server.service_class)!r} has a slo-ttft for model"
            f" {cut(server.model)!r}, whose data have a prefill time; give avgInTokens and"
            " avgOutTokens"
        )
        yield Problem("server", server.name, "currentAlloc.load.avgInTokens", message)


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
