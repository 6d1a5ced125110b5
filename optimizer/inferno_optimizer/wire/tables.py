"""One table of JSON keys for each class: of a system, and of what an optimizer answers.

A table says for each key which attribute it is and of what kind; see `fields`. Keys without an
attribute are only kept and shown by a REST server.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import starmap
from typing import NamedTuple

from inferno_optimizer.explain.options import Option
from inferno_optimizer.solution import Certificate, CurvePoint, Gain, Level, Reason, SolverStatus
from inferno_optimizer.system import (
    DEFAULT_CLASS,
    PAIR,
    Accelerator,
    Allocation,
    DecodeParameters,
    Generation,
    Load,
    Options,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    Role,
    RoleProfile,
    SaturationPolicy,
    Server,
    ServiceClass,
    StepParameters,
    System,
    Tail,
    Target,
    TokenBudgetParameters,
    Transfer,
)
from inferno_optimizer.wire.fields import (
    FLAG,
    INTEGER,
    NUMBER,
    SHARE,
    TEXT,
    TEXTS,
    Document,
    FieldKind,
    Keys,
    List,
    Object,
    Scalar,
    Section,
    choice,
    last_of_each,
    optional,
)

_ORIGIN: Keys = {"origin": ("origin", TEXT), "errorPercent": ("error_percent", NUMBER)}
"""Keys that say where performance data come from, and the predictions that are made by them."""


def _list_missing(value: object, keys: Keys) -> Iterator[str]:
    """The keys whose attributes say nothing of a value, and are not written."""
    return (key for key, (name, *_) in keys.items() if not getattr(value, name))


# Performance data


class _Prefill(NamedTuple):
    gamma: float
    delta: float


def _build_profile(  # noqa: PLR0913 - an argument for each key
    *,
    model: str,
    accelerator: str,
    accelerator_count: int,
    alpha: float,
    beta: float,
    decode: DecodeParameters | None,
    prefill: _Prefill | None,
    budget: TokenBudgetParameters | None,
    steps: StepParameters | None,
    max_batch_size: int,
    at_tokens: int,
    max_tokens: int,
    max_sequences: int,
    origin: str,
    error_percent: float,
) -> PerformanceProfile:
    """Build a profile; if there are parameters of several generations, the latest is used."""
    parameters: PerformanceParameters = DecodeParameters(alpha, beta)
    if steps is not None:
        parameters = steps
    elif budget is not None:
        parameters = budget
    elif decode is not None or prefill is not None:
        tokens, first = decode or DecodeParameters(0, 0), prefill or _Prefill(0, 0)
        parameters = PrefillDecodeParameters(tokens.alpha, tokens.beta, *first)
    return PerformanceProfile(
        model,
        accelerator,
        parameters,
        max_batch_size,
        at_tokens,
        accelerator_count,
        max_tokens,
        max_sequences,
        origin,
        error_percent,
    )


_PARAMETERS = {
    Generation.DECODE: ("alpha", "beta"),
    Generation.PREFILL_DECODE: ("decodeParms", "prefillParms"),
    Generation.TOKEN_BUDGET: ("perfParms",),
    Generation.STEPS: ("stepParms",),
}

_BOUNDS: Keys = {"maxTokens": ("max_tokens", INTEGER), "maxNumSeqs": ("max_sequences", INTEGER)}

_COUNT = Scalar(1, INTEGER.check, int, INTEGER.schema, lambda count: max(count, 1), empty=0)
"""Accelerators of a replica, at least one."""

_LENGTHS: Keys = {
    "minInTokens": ("min_input_tokens", INTEGER),
    "maxInTokens": ("max_input_tokens", INTEGER),
    "minOutTokens": ("min_output_tokens", INTEGER),
    "maxOutTokens": ("max_output_tokens", INTEGER),
}

_STEPS = Object(
    StepParameters,
    {
        **{name: (name, NUMBER) for name in ("alpha", "kappa", "delta", "u", "ahead")},
        **{name: (name, NUMBER) for name in ("budget", "overhead")},
        **_LENGTHS,
    },
    later=_LENGTHS,
    left_out=lambda steps: list(_list_missing(steps, _LENGTHS)),
)

_DECODE = Object(DecodeParameters, {"alpha": ("alpha", NUMBER), "beta": ("beta", NUMBER)})
_PREFILL = Object(_Prefill, {"gamma": ("gamma", NUMBER), "delta": ("delta", NUMBER)})
_BUDGET = Object(
    TokenBudgetParameters,
    {"alpha": ("alpha", NUMBER), "beta": ("beta", NUMBER), "gamma": ("gamma", NUMBER)},
)


def _list_other_parameters(profile: PerformanceProfile) -> Container[str]:
    """Keys that are not written: parameters of other generations, and bounds that are not set."""
    own_keys = _PARAMETERS[profile.parameters.generation]
    others = {key for keys in _PARAMETERS.values() for key in keys} - {*own_keys}
    return others | {*_list_missing(profile, {**_BOUNDS, **_ORIGIN})}


PERFORMANCE = Object(
    _build_profile,
    {
        "name": ("model", TEXT),
        "acc": ("accelerator", TEXT),
        "accCount": ("accelerator_count", _COUNT),
        "alpha": ("parameters.alpha", NUMBER),
        "beta": ("parameters.beta", NUMBER),
        "decodeParms": ("parameters", optional(_DECODE), "decode"),
        "prefillParms": ("parameters", optional(_PREFILL), "prefill"),
        "perfParms": ("parameters", optional(_BUDGET), "budget"),
        "stepParms": ("parameters", optional(_STEPS), "steps"),
        "maxBatchSize": ("max_batch_size", INTEGER),
        "atTokens": ("at_tokens", INTEGER),
        **_BOUNDS,
        **_ORIGIN,
    },
    later=("decodeParms", "prefillParms", "perfParms", "stepParms", *_BOUNDS, *_ORIGIN),
    left_out=_list_other_parameters,
)
_PROFILES = List(
    "performance data", ("name", "acc"), PERFORMANCE, last_of_each("model", "accelerator")
)

_TRANSFER = Object(
    Transfer, {"perRequestMs": ("request_ms", NUMBER), "perTokenMs": ("token_ms", NUMBER)}
)

ROLE_PERFORMANCE = Object(
    RoleProfile,
    {
        "name": ("model", TEXT),
        "acc": ("accelerator", TEXT),
        "role": ("role", choice(Role.BOTH, PAIR, "Prefill or Decode")),
        "accCount": ("accelerator_count", _COUNT),
        "stepParms": ("parameters", _STEPS),
        "maxBatchSize": ("max_batch_size", INTEGER),
        "atTokens": ("at_tokens", INTEGER),
        **_BOUNDS,
        "transfer": ("transfer", _TRANSFER),
        **_ORIGIN,
    },
    later=(*_BOUNDS, "transfer", *_ORIGIN),
    left_out=lambda role: (
        *(() if role.transfer.request_ms or role.transfer.token_ms else ("transfer",)),
        *_list_missing(role, _ORIGIN),
    ),
)
_ROLE_PROFILES = List(
    "role data",
    ("name", "acc", "role"),
    ROLE_PERFORMANCE,
    last_of_each("model", "accelerator", "role"),
)


# Allocations: what runs, and what is decided with its predictions

_LATER_LOAD: Keys = {
    "throughput": ("throughput", NUMBER),
    "avgInTokens": ("input_tokens", INTEGER),
    "avgOutTokens": ("output_tokens", INTEGER),
    "cachedTokens": ("cached_tokens", INTEGER),
    "tokensPerStep": ("tokens_per_step", NUMBER),
}


def _list_unused_load(load: Load) -> Container[str]:
    """Keys that are not written: the fields of the generation that the load does not use."""
    in_tokens = load.input_tokens or load.output_tokens or load.throughput
    in_length = load.tokens_per_request or load.arrival_cov or load.service_cov
    extras = {
        "throughput": load.throughput,
        "cachedTokens": load.cached_tokens,
        "tokensPerStep": load.tokens_per_step,
    }
    left_out = tuple(key for key, value in extras.items() if not value)
    if not in_tokens:
        return (*left_out, "avgInTokens", "avgOutTokens")
    return left_out if in_length else (*left_out, "avgLength", "arrivalCOV", "serviceCOV")


_LOAD = Object(
    Load,
    {
        "arrivalRate": ("arrival_rate", NUMBER),
        "avgLength": ("tokens_per_request", INTEGER),
        "arrivalCOV": ("arrival_cov", NUMBER),
        "serviceCOV": ("service_cov", NUMBER),
        **_LATER_LOAD,
    },
    later=_LATER_LOAD,
    left_out=_list_unused_load,
)

_ANSWERED: Keys = {
    "accelerator": ("accelerator", TEXT),
    "numReplicas": ("replicas", INTEGER),
    "maxBatch": ("max_batch_size", INTEGER),
    "cost": ("cost", NUMBER),
    "itlAverage": ("itl_ms", NUMBER),
    "waitAverage": ("wait_ms", NUMBER),
    "ttftAverage": ("ttft_ms", NUMBER),
    "load": ("load", _LOAD),
}
_RUNNING: Keys = {**_ANSWERED, "coldReplicas": ("cold_replicas", INTEGER)}
_LATER_ALLOCATION = ("ttftAverage", "coldReplicas", "mix", "roles")


def _list_absent_parts(allocation: Allocation) -> Container[str]:
    """Keys that are not written: how replicas are spread, where they are not."""
    attributes = {"coldReplicas": "cold_replicas", "mix": "mix", "roles": "roles"}
    return [key for key, attribute in attributes.items() if not getattr(allocation, attribute)]


class _Apart(NamedTuple):
    prefill: Allocation | None
    decode: Allocation | None


def _build_roles(document: Document) -> tuple[Allocation, ...]:
    by_role = zip(PAIR, _APART.build(document), strict=True)
    return tuple(replace(part, role=role) for role, part in by_role if part is not None)


def _write_roles(roles: Iterable[Allocation]) -> object:
    return {str(role.role).lower(): _ROLE.write(role) for role in roles}


_ROLE = Object(
    Allocation,
    {
        key: _RUNNING[key]
        for key in ("accelerator", "numReplicas", "coldReplicas", "maxBatch", "cost")
    },
    later=_LATER_ALLOCATION,
    left_out=_list_absent_parts,
)
_APART = Object(_Apart, {name: (name, optional(_ROLE)) for name in _Apart._fields})
_ROLES: Scalar[tuple[Allocation, ...]] = Scalar(
    (),
    _APART.check,
    _write_roles,
    _APART.schema,
    _build_roles,
    fill=_APART.fill,
    ignored=_APART.ignored,
)
"""The parts of an allocation by role, as an object with both of them."""


def _build_mix(part: Object[Allocation]) -> FieldKind[tuple[Allocation, ...]]:
    return List("part of the mix", ("accelerator",), part, tuple)


ALLOCATION = Object(
    Allocation,
    {
        **_RUNNING,
        "mix": (
            "mix",
            _build_mix(Object(Allocation, _RUNNING, _LATER_ALLOCATION, _list_absent_parts)),
        ),
        "roles": ("roles", _ROLES),
    },
    later=_LATER_ALLOCATION,
    left_out=_list_absent_parts,
)


class _Percentiles(NamedTuple):
    p90: float
    p95: float
    p99: float


def _build_tail(wait: _Percentiles, ttft: _Percentiles, itl: _Percentiles) -> Tail:
    return Tail(*wait, *ttft, *itl)


_PERCENTILE = Object(_Percentiles, {key: (key, NUMBER) for key in _Percentiles._fields})
_PERCENTILES = Object(_build_tail, {name: (name, _PERCENTILE) for name in ("wait", "ttft", "itl")})


def _write_tail(tail: Tail | None) -> object:
    if tail is None:
        return None
    wait = _Percentiles(tail.wait_p90, tail.wait_p95, tail.wait_p99)
    ttft = _Percentiles(tail.ttft_p90, tail.ttft_p95, tail.ttft_p99)
    by_name = {"wait": wait, "ttft": ttft}
    if tail.itl_p90:
        by_name["itl"] = _Percentiles(tail.itl_p90, tail.itl_p95, tail.itl_p99)
    return {name: _PERCENTILE.write(values) for name, values in by_name.items()}


_TAIL: tuple[str, Scalar[Tail | None]] = (
    "tail",
    Scalar(None, _PERCENTILES.check, _write_tail, _PERCENTILES.schema, _PERCENTILES.build),
)


def _list_not_predicted(prediction: Allocation | Option) -> Container[str]:
    """Keys that are not written: the delay that the generation does not predict, and empty keys."""
    is_first = prediction.generation is Generation.DECODE
    left_out = ["ttftAverage" if is_first else "waitAverage"]
    if prediction.tail is None:
        left_out.append("percentiles")
    if isinstance(prediction, Allocation):
        left_out += [name for name in ("mix", "roles") if not getattr(prediction, name)]
    return [*left_out, *_list_missing(prediction, _ORIGIN)]


_PREDICTED: Keys = {**_ANSWERED, "percentiles": _TAIL, **_ORIGIN}

ANSWER = Object(
    Allocation,
    {
        **_PREDICTED,
        "mix": (
            "mix",
            _build_mix(Object(Allocation, _PREDICTED, left_out=_list_not_predicted)),
        ),
        "roles": ("roles", _ROLES),
    },
    left_out=_list_not_predicted,
)


# Systems

_POLICIES = {str(policy): policy for policy in SaturationPolicy}

_POLICY = Scalar(
    SaturationPolicy.NONE,
    TEXT.check,
    str,
    TEXT.schema,
    lambda text: _POLICIES.get(text, SaturationPolicy.NONE),  # as in the original
    empty="",
)

_CARDS = Scalar(1, INTEGER.check, int, INTEGER.schema, empty=0)

_CLASS_NAME = Scalar(
    DEFAULT_CLASS, TEXT.check, str, TEXT.schema, lambda name: name or DEFAULT_CLASS, empty=""
)

_POWER: Object[Document] = Object(
    dict,
    {
        "idle": ("", INTEGER),
        "full": ("", INTEGER),
        "midPower": ("", INTEGER),
        "midUtil": ("", NUMBER),
    },
)
ACCELERATOR = Object(
    Accelerator,
    {
        "name": ("name", TEXT),
        "type": ("type", TEXT),
        "multiplicity": ("multiplicity", _CARDS),
        "memSize": ("", INTEGER),
        "memBW": ("", INTEGER),
        "power": ("", _POWER),
        "cost": ("cost", NUMBER),
    },
)


class _ModelTarget(NamedTuple):
    model: str
    target: Target


def _build_target(model: str, **targets: float) -> _ModelTarget:
    return _ModelTarget(model, Target(**targets))


_TARGETS: Keys = {
    "model": ("model", TEXT),
    "slo-itl": ("target.itl_ms", NUMBER),
    "slo-ttw": ("target.wait_ms", NUMBER),
    "slo-tps": ("target.tokens_per_second", NUMBER),
    "slo-ttft": ("target.ttft_ms", NUMBER),
    "slo-ttw-percentile": ("target.wait_percentile", NUMBER),
    "slo-ttft-percentile": ("target.ttft_percentile", NUMBER),
    "slo-itl-percentile": ("target.itl_percentile", NUMBER),
}
_LATER_TARGETS = ("slo-ttft", "slo-ttw-percentile", "slo-ttft-percentile", "slo-itl-percentile")

TARGET = Object(_build_target, _TARGETS, _LATER_TARGETS)

SERVICE_CLASS = Object(
    ServiceClass,
    {
        "name": ("name", TEXT),
        "priority": ("priority", INTEGER),
        "minReplicas": ("min_replicas", INTEGER),
        "modelTargets": (
            "targets",
            List(
                "target of model",
                ("model",),
                TARGET,
                collect=dict,
                spread=lambda targets: starmap(_ModelTarget, targets.items()),
            ),
        ),
    },
    later=("minReplicas",),
)

CLASS_WITH_TARGET: Object[Document] = Object(
    dict,
    {
        "name": ("", TEXT),
        "priority": ("", INTEGER),
        **{key: ("", kind) for key, (_, kind, *_) in _TARGETS.items()},
    },
    _LATER_TARGETS,
)
"""A class with one target beside its name, as the original's controller sends it."""

_ADDED: Keys = {
    "accelerators": ("accelerators", TEXTS),
    "destination": ("destination", TEXT),
    "loadSpread": ("load_spread", NUMBER),
    "leastRate": ("least_rate", NUMBER),
    "prefillAccelerators": ("prefill_accelerators", TEXTS),
    "decodeAccelerators": ("decode_accelerators", TEXTS),
}
"""Keys of servers that the original does not have: left out where they say nothing."""

SERVER = Object(
    Server,
    {
        "name": ("name", TEXT),
        "class": ("service_class", _CLASS_NAME),
        "model": ("model", TEXT),
        "keepAccelerator": ("keep_accelerator", FLAG),
        "minNumReplicas": ("min_replicas", INTEGER),
        "maxBatchSize": ("max_batch_size", INTEGER),
        "maxQueueSize": ("max_queue_size", INTEGER),
        **_ADDED,
        "currentAlloc": ("current", ALLOCATION),
        "desiredAlloc": ("", ALLOCATION),
    },
    later=("maxQueueSize", *_ADDED),
    left_out=lambda server: list(_list_missing(server, _ADDED)),
)


class _CardCount(NamedTuple):
    type: str
    cards: int


CAPACITY = Object(_CardCount, {"type": ("type", TEXT), "count": ("cards", INTEGER)})

_LATER_OPTIONS: Keys = {
    "holdUndecided": ("hold_undecided", FLAG),
    "noSwaps": ("no_swaps", FLAG),
    "priorityTolerance": ("priority_tolerance", optional(SHARE)),
    "trace": ("trace", FLAG),
}
OPTIONS = Object(
    Options,
    {
        "unlimited": ("unlimited", FLAG),
        "heterogeneous": ("heterogeneous", FLAG),
        "milpSolver": ("milp", FLAG),
        "useCplex": ("", FLAG),
        "saturationPolicy": ("saturation_policy", _POLICY),
        "delayedBestEffort": ("delayed_best_effort", FLAG),
        **_LATER_OPTIONS,
    },
    later=_LATER_OPTIONS,
    left_out=lambda options: () if options.trace else ("trace",),
)

ACCELERATORS = Section(
    "accelerators", List("accelerator", ("name",), ACCELERATOR, last_of_each("name"))
)
MODELS = Section("models", _PROFILES)
SERVICE_CLASSES = Section(
    "serviceClasses", List("class", ("name",), SERVICE_CLASS, last_of_each("name"))
)
SERVERS = Section("servers", List("server", ("name",), SERVER, last_of_each("name")))
CAPACITIES = Section(
    "count",
    List(
        "capacity",
        ("type",),
        CAPACITY,
        collect=dict,
        spread=lambda capacity: starmap(_CardCount, capacity.items()),
    ),
)

SECTIONS: Keys = {
    "acceleratorData": ("accelerators", ACCELERATORS),
    "modelData": ("profiles", MODELS),
    "roleData": ("roles", Section("roles", _ROLE_PROFILES)),
    "serviceClassData": ("classes", SERVICE_CLASSES),
    "serverData": ("servers", SERVERS),
    "capacityData": ("capacity", CAPACITIES),
    "optimizerData": ("options", Section("optimizer", OPTIONS)),
}

SYSTEM = Object(
    System,
    SECTIONS,
    later=("roleData",),
    left_out=lambda system: () if system.roles else ("roleData",),
)

BODY = Section("system", SYSTEM)


# Results beside allocations: reasons, certificates, gains, options of a server


class _Explanation(NamedTuple):
    reason: Reason
    message: str


def _build_explanation(otherwise: Reason) -> Object[_Explanation]:
    """Build a reason and a message, with the reason that counts if none is given."""
    reason = choice(otherwise, Reason, "a reason")
    return Object(_Explanation, {"reason": ("reason", reason), "message": ("message", TEXT)})


REASON_GIVEN = _build_explanation(Reason.ALLOCATED)
REFUSAL = _build_explanation(Reason.NO_CAPACITY)


class _PriorityLoad(NamedTuple):
    priority: int
    load: float


def _spread_loads(served: Mapping[int, float]) -> Iterator[_PriorityLoad]:
    return starmap(_PriorityLoad, served.items())


def _collect_loads(loads: Iterable[_PriorityLoad]) -> Mapping[int, float]:
    return dict(loads)


LEVEL = Object(
    Level,
    {
        "priority": ("priority", INTEGER),
        "served": ("served", NUMBER),
        "bound": ("bound", NUMBER),
        "load": ("load", NUMBER),
    },
)

_SERVED = Object(_PriorityLoad, {"priority": ("priority", INTEGER), "load": ("load", NUMBER)})

CURVE_POINT = Object(
    CurvePoint,
    {
        "seconds": ("seconds", NUMBER),
        "priority": ("priority", optional(INTEGER)),
        "served": ("served", List("load", ("priority",), _SERVED, _collect_loads, _spread_loads)),
        "value": ("value", NUMBER),
        "bound": ("bound", optional(NUMBER)),
    },
)

GAIN = Object(Gain, {"priority": ("priority", INTEGER), "load": ("load", NUMBER)})

CERTIFICATE = Object(
    Certificate,
    {
        "solver": ("solver", TEXT),
        "status": ("status", choice(SolverStatus.FEASIBLE, SolverStatus, "a status")),
        "objective": ("objective", NUMBER),
        "bound": ("bound", optional(NUMBER)),
        "seconds": ("seconds", NUMBER),
        "levels": ("levels", List("level", ("priority",), LEVEL, tuple)),
        "curve": ("curve", List("point", ("seconds",), CURVE_POINT, tuple)),
        "failures": ("failures", TEXTS),
    },
)

OPTION = Object(
    Option,
    {
        "accelerator": ("accelerator", TEXT),
        "numReplicas": ("replicas", INTEGER),
        "maxBatch": ("max_batch_size", INTEGER),
        "type": ("type", TEXT),
        "cards": ("cards", INTEGER),
        "cost": ("cost", NUMBER),
        "value": ("value", NUMBER),
        "itlAverage": ("itl_ms", NUMBER),
        "waitAverage": ("wait_ms", NUMBER),
        "ttftAverage": ("ttft_ms", NUMBER),
        "maxRate": ("max_rate", NUMBER),
        "reason": ("reason", TEXT),
        "percentiles": _TAIL,
        **_ORIGIN,
    },
    left_out=_list_not_predicted,
)
