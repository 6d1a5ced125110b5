"""Tables of the JSON objects of the REST API: the key for each attribute."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import starmap
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn, TypeVar

from inferno_optimizer.explain.options import Option
from inferno_optimizer.system import (
    DEFAULT_CLASS,
    Accelerator,
    Allocation,
    Certificate,
    CurvePoint,
    DecodeParameters,
    Gain,
    Generation,
    Level,
    Load,
    Options,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    Reason,
    Role,
    RoleProfile,
    SaturationPolicy,
    Server,
    ServiceClass,
    SolverStatus,
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
    FieldKind,
    List,
    MisfitError,
    Object,
    Scalar,
    Section,
    optional,
    read_integer,
    read_text,
)

T = TypeVar("T")


def _read_policy(value: object) -> SaturationPolicy:
    """Read a saturation policy; unknown text means no policy, as in the original."""
    return _POLICIES.get(read_text(value), SaturationPolicy.NONE)


def _read_reason(value: object) -> Reason:
    return _REASONS.get(read_text(value)) or _unknown("a reason", value)


def _read_role(value: object) -> Role:
    """Read the role of replicas that do one half of each request."""
    roles = {str(role): role for role in (Role.PREFILL, Role.DECODE)}
    return roles.get(read_text(value)) or _unknown("Prefill or Decode", value)


def _read_status(value: object) -> SolverStatus:
    return _STATUSES.get(read_text(value)) or _unknown("a status", value)


def _unknown(what: str, value: object) -> NoReturn:
    raise MisfitError(f"{value!r} is not {what} that is known")


_REASONS = {str(reason): reason for reason in Reason}
_STATUSES = {str(status): status for status in SolverStatus}
_POLICIES = {str(policy): policy for policy in SaturationPolicy}

_POLICY = Scalar(SaturationPolicy.NONE, _read_policy, str)
_CARDS = Scalar(1, read_integer, int)
_AT_LEAST_ONE = Scalar(1, lambda value: max(read_integer(value), 1), int)
_CLASS_NAME = Scalar(DEFAULT_CLASS, lambda value: read_text(value) or DEFAULT_CLASS, str)


def _unique(*names: str) -> Callable[[Iterable[T]], tuple[T, ...]]:
    """A function that collects values; of values with the same name it keeps the last one."""
    name = attrgetter(*names)
    return lambda values: tuple({name(value): value for value in values}.values())


class _Prefill(NamedTuple):
    gamma: float
    delta: float


def _profile(  # noqa: PLR0913 - an argument for each key
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
    )


def _not_told(profile: PerformanceProfile) -> Container[str]:
    """Keys that are not written: parameters of other generations, and bounds that are not set."""
    own_keys = _PARAMETERS[profile.parameters.generation]
    others = {key for keys in _PARAMETERS.values() for key in keys} - {*own_keys}
    bounds = {"maxTokens": profile.max_tokens, "maxNumSeqs": profile.max_sequences}
    return others | {key for key, bound in bounds.items() if not bound}


def _without_bounds(steps: StepParameters) -> Container[str]:
    """Keys that are not written: bounds of lengths that are not set."""
    bounds = {
        "minInTokens": steps.min_input_tokens,
        "maxInTokens": steps.max_input_tokens,
        "minOutTokens": steps.min_output_tokens,
        "maxOutTokens": steps.max_output_tokens,
    }
    return [key for key, bound in bounds.items() if not bound]


_PARAMETERS = {
    Generation.DECODE: ("alpha", "beta"),
    Generation.PREFILL_DECODE: ("decodeParms", "prefillParms"),
    Generation.TOKEN_BUDGET: ("perfParms",),
    Generation.STEPS: ("stepParms",),
}


def _not_predicted(prediction: Allocation | Option) -> Container[str]:
    """Keys that are not written: the delay that the generation does not predict, and empty keys."""
    first = prediction.generation is Generation.DECODE
    left_out = ["ttftAverage" if first else "waitAverage"]
    if prediction.tail is None:
        left_out.append("percentiles")
    if isinstance(prediction, Allocation):
        left_out += [name for name in ("mix", "roles") if not getattr(prediction, name)]
    return left_out


def _other_words(load: Load) -> Container[str]:
    """Keys that are not written: the fields of the generation that the load does not use."""
    in_tokens = load.input_tokens or load.output_tokens or load.throughput
    in_length = load.tokens_per_request or load.arrival_cov or load.service_cov
    optional = {
        "throughput": load.throughput,
        "cachedTokens": load.cached_tokens,
        "tokensPerStep": load.tokens_per_step,
    }
    left_out = tuple(key for key, value in optional.items() if not value)
    if not in_tokens:
        return (*left_out, "avgInTokens", "avgOutTokens")
    return left_out if in_length else (*left_out, "avgLength", "arrivalCOV", "serviceCOV")


class _ModelTarget(NamedTuple):
    model: str
    target: Target


def _model_target(model: str, **targets: float) -> _ModelTarget:
    return _ModelTarget(model, Target(**targets))


class _Apart(NamedTuple):
    prefill: Allocation | None
    decode: Allocation | None


class _CardCount(NamedTuple):
    type: str
    cards: int


_LOAD = Object(
    Load,
    {
        "arrivalRate": ("arrival_rate", NUMBER),
        "avgLength": ("tokens_per_request", INTEGER),
        "arrivalCOV": ("arrival_cov", NUMBER),
        "serviceCOV": ("service_cov", NUMBER),
        "throughput": ("throughput", NUMBER),
        "avgInTokens": ("input_tokens", INTEGER),
        "avgOutTokens": ("output_tokens", INTEGER),
        "cachedTokens": ("cached_tokens", INTEGER),
        "tokensPerStep": ("tokens_per_step", NUMBER),
    },
    left_out=_other_words,
)

_ALLOCATION_KEYS: dict[str, tuple[str, FieldKind[Any]]] = {
    "accelerator": ("accelerator", TEXT),
    "numReplicas": ("replicas", INTEGER),
    "maxBatch": ("max_batch_size", INTEGER),
    "cost": ("cost", NUMBER),
    "itlAverage": ("itl_ms", NUMBER),
    "waitAverage": ("wait_ms", NUMBER),
    "ttftAverage": ("ttft_ms", NUMBER),
    "load": ("load", _LOAD),
}
_ROLE_KEYS = ("accelerator", "numReplicas", "maxBatch", "cost")
_CURRENT_KEYS = {**_ALLOCATION_KEYS, "coldReplicas": ("cold_replicas", INTEGER)}


def _mix_of(part: Object[Allocation]) -> tuple[str, FieldKind[Any]]:
    return "mix", List("part of the mix", ("accelerator",), part, tuple, tuple)


def _all_warm(allocation: Allocation) -> tuple[str, ...]:
    return () if allocation.cold_replicas else ("coldReplicas",)


def _one_accelerator(allocation: Allocation) -> Container[str]:
    parts = (name for name in ("mix", "roles") if not getattr(allocation, name))
    return (*_all_warm(allocation), *parts)


def _roles_of(part: Object[Allocation]) -> tuple[str, FieldKind[Any]]:
    """The parts of an allocation by role, as an object with both of them."""
    both = Object(_Apart, {name: (name, optional(part)) for name in _Apart._fields})

    def read(value: object) -> tuple[Allocation, ...]:
        found = zip((Role.PREFILL, Role.DECODE), both.read(value), strict=True)
        return tuple(replace(told, role=role) for role, told in found if told is not None)

    def write(roles: Iterable[Allocation]) -> object:
        return {str(role.role).lower(): part.write(role) for role in roles}

    return "roles", Scalar((), read, write, both.schema, both.unknown)


_PART = Object(Allocation, _CURRENT_KEYS, left_out=_all_warm)
_ROLE = Object(Allocation, {key: _ALLOCATION_KEYS[key] for key in _ROLE_KEYS})
_ALLOCATION = Object(
    Allocation,
    {**_CURRENT_KEYS, "mix": _mix_of(_PART), "roles": _roles_of(_ROLE)},
    left_out=_one_accelerator,
)


class _Told(NamedTuple):
    reason: Reason
    message: str


_MESSAGE: tuple[str, FieldKind[Any]] = ("message", TEXT)
REASON_GIVEN = Object(
    _Told,
    {"reason": ("reason", Scalar(Reason.ALLOCATED, _read_reason, str)), "message": _MESSAGE},
)
REFUSAL = Object(
    _Told,
    {"reason": ("reason", Scalar(Reason.NO_CAPACITY, _read_reason, str)), "message": _MESSAGE},
)


class _Percentiles(NamedTuple):
    p90: float
    p95: float
    p99: float


def _tail(wait: _Percentiles, ttft: _Percentiles, itl: _Percentiles) -> Tail:
    return Tail(*wait, *ttft, *itl)


_PERCENTILE = Object(_Percentiles, {key: (key, NUMBER) for key in _Percentiles._fields})
_PERCENTILES = Object(_tail, {name: (name, _PERCENTILE) for name in ("wait", "ttft", "itl")})


def _write_tail(tail: Tail | None) -> object:
    if tail is None:
        return None
    wait = _Percentiles(tail.wait_p90, tail.wait_p95, tail.wait_p99)
    ttft = _Percentiles(tail.ttft_p90, tail.ttft_p95, tail.ttft_p99)
    by_name = {"wait": wait, "ttft": ttft}
    if tail.itl_p90:
        by_name["itl"] = _Percentiles(tail.itl_p90, tail.itl_p95, tail.itl_p99)
    return {name: _PERCENTILE.write(values) for name, values in by_name.items()}


_TAIL: tuple[str, FieldKind[Any]] = (
    "tail",
    Scalar(None, _PERCENTILES.read, _write_tail, _PERCENTILES.schema),
)
_ANSWER_KEYS = {**_ALLOCATION_KEYS, "percentiles": _TAIL}
ANSWER = Object(
    Allocation,
    {
        **_ANSWER_KEYS,
        "mix": _mix_of(Object(Allocation, _ANSWER_KEYS, left_out=_not_predicted)),
        "roles": _roles_of(_ROLE),
    },
    left_out=_not_predicted,
)


class _PriorityLoad(NamedTuple):
    priority: int
    load: float


def _by_priority(loads: Iterable[_PriorityLoad]) -> Mapping[int, float]:
    return dict(loads)


def _loads(served: Mapping[int, float]) -> Iterator[_PriorityLoad]:
    """Loads by priority as items of a list."""
    return starmap(_PriorityLoad, served.items())


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
        "served": ("served", List("load", ("priority",), _SERVED, _by_priority, _loads)),
        "value": ("value", NUMBER),
        "bound": ("bound", optional(NUMBER)),
    },
)

GAIN = Object(Gain, {"priority": ("priority", INTEGER), "load": ("load", NUMBER)})

CERTIFICATE = Object(
    Certificate,
    {
        "solver": ("solver", TEXT),
        "status": ("status", Scalar(SolverStatus.FEASIBLE, _read_status, str)),
        "objective": ("objective", NUMBER),
        "bound": ("bound", optional(NUMBER)),
        "seconds": ("seconds", NUMBER),
        "levels": ("levels", List("level", ("priority",), LEVEL, tuple, tuple)),
        "curve": ("curve", List("point", ("seconds",), CURVE_POINT, tuple, tuple)),
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
    },
    left_out=_not_predicted,
)

_DECODE = Object(DecodeParameters, {"alpha": ("alpha", NUMBER), "beta": ("beta", NUMBER)})
_PREFILL = Object(_Prefill, {"gamma": ("gamma", NUMBER), "delta": ("delta", NUMBER)})
_BUDGET = Object(
    TokenBudgetParameters,
    {"alpha": ("alpha", NUMBER), "beta": ("beta", NUMBER), "gamma": ("gamma", NUMBER)},
)
_STEPS = Object(
    StepParameters,
    {name: (name, NUMBER) for name in ("alpha", "kappa", "delta", "u", "ahead")}
    | {name: (name, NUMBER) for name in ("budget", "overhead")}
    | {
        "minInTokens": ("min_input_tokens", INTEGER),
        "maxInTokens": ("max_input_tokens", INTEGER),
        "minOutTokens": ("min_output_tokens", INTEGER),
        "maxOutTokens": ("max_output_tokens", INTEGER),
    },
    left_out=_without_bounds,
)

_ACCELERATORS = List(
    "accelerator",
    ("name",),
    Object(
        Accelerator,
        {
            "name": ("name", TEXT),
            "type": ("type", TEXT),
            "multiplicity": ("multiplicity", _CARDS),
            "cost": ("cost", NUMBER),
        },
        unused=("memSize", "memBW", "power"),
    ),
    collect=_unique("name"),
    spread=tuple,
)

_PROFILES = List(
    "performance data",
    ("name", "acc"),
    Object(
        _profile,
        {
            "name": ("model", TEXT),
            "acc": ("accelerator", TEXT),
            "accCount": ("accelerator_count", _AT_LEAST_ONE),
            "alpha": ("parameters.alpha", NUMBER),
            "beta": ("parameters.beta", NUMBER),
            "decodeParms": ("parameters", optional(_DECODE), "decode"),
            "prefillParms": ("parameters", optional(_PREFILL), "prefill"),
            "perfParms": ("parameters", optional(_BUDGET), "budget"),
            "stepParms": ("parameters", optional(_STEPS), "steps"),
            "maxBatchSize": ("max_batch_size", INTEGER),
            "atTokens": ("at_tokens", INTEGER),
            "maxTokens": ("max_tokens", INTEGER),
            "maxNumSeqs": ("max_sequences", INTEGER),
        },
        left_out=_not_told,
    ),
    collect=_unique("model", "accelerator"),
    spread=tuple,
)

_ROLES = List(
    "role data",
    ("name", "acc", "role"),
    Object(
        RoleProfile,
        {
            "name": ("model", TEXT),
            "acc": ("accelerator", TEXT),
            "role": ("role", Scalar(Role.BOTH, _read_role, str)),
            "accCount": ("accelerator_count", _AT_LEAST_ONE),
            "stepParms": ("parameters", _STEPS),
            "maxBatchSize": ("max_batch_size", INTEGER),
            "atTokens": ("at_tokens", INTEGER),
            "maxTokens": ("max_tokens", INTEGER),
            "maxNumSeqs": ("max_sequences", INTEGER),
            "transfer": (
                "transfer",
                Object(
                    Transfer,
                    {
                        "perRequestMs": ("request_ms", NUMBER),
                        "perTokenMs": ("token_ms", NUMBER),
                    },
                ),
            ),
        },
        left_out=lambda role: (
            () if role.transfer.request_ms or role.transfer.token_ms else ("transfer",)
        ),
    ),
    collect=_unique("model", "accelerator", "role"),
    spread=tuple,
)

_TARGETS = List(
    "target of model",
    ("model",),
    Object(
        _model_target,
        {
            "model": ("model", TEXT),
            "slo-itl": ("target.itl_ms", NUMBER),
            "slo-ttw": ("target.wait_ms", NUMBER),
            "slo-tps": ("target.tokens_per_second", NUMBER),
            "slo-ttft": ("target.ttft_ms", NUMBER),
            "slo-ttw-percentile": ("target.wait_percentile", NUMBER),
            "slo-ttft-percentile": ("target.ttft_percentile", NUMBER),
            "slo-itl-percentile": ("target.itl_percentile", NUMBER),
        },
    ),
    collect=dict,
    spread=lambda targets: starmap(_ModelTarget, targets.items()),
)

_CLASSES = List(
    "class",
    ("name",),
    Object(
        ServiceClass,
        {
            "name": ("name", TEXT),
            "priority": ("priority", INTEGER),
            "modelTargets": ("targets", _TARGETS),
        },
    ),
    collect=_unique("name"),
    spread=tuple,
)

_PLACES = {
    "accelerators": "accelerators",
    "destination": "destination",
    "prefillAccelerators": "prefill_accelerators",
    "decodeAccelerators": "decode_accelerators",
}

_SERVERS = List(
    "server",
    ("name",),
    Object(
        Server,
        {
            "name": ("name", TEXT),
            "class": ("service_class", _CLASS_NAME),
            "model": ("model", TEXT),
            "keepAccelerator": ("keep_accelerator", FLAG),
            "minNumReplicas": ("min_replicas", INTEGER),
            "maxBatchSize": ("max_batch_size", INTEGER),
            "maxQueueSize": ("max_queue_size", INTEGER),
            "accelerators": ("accelerators", TEXTS),
            "destination": ("destination", TEXT),
            "prefillAccelerators": ("prefill_accelerators", TEXTS),
            "decodeAccelerators": ("decode_accelerators", TEXTS),
            "currentAlloc": ("current", _ALLOCATION),
        },
        left_out=lambda server: [key for key, name in _PLACES.items() if not getattr(server, name)],
        unused=("desiredAlloc",),
    ),
    collect=_unique("name"),
    spread=tuple,
)

_CAPACITY = List(
    "capacity",
    ("type",),
    Object(_CardCount, {"type": ("type", TEXT), "count": ("cards", INTEGER)}),
    collect=dict,
    spread=lambda capacity: starmap(_CardCount, capacity.items()),
)


_OPTIONS = Object(
    Options,
    {
        "unlimited": ("unlimited", FLAG),
        "heterogeneous": ("heterogeneous", FLAG),
        "milpSolver": ("milp", FLAG),
        "saturationPolicy": ("saturation_policy", _POLICY),
        "delayedBestEffort": ("delayed_best_effort", FLAG),
        "holdUndecided": ("hold_undecided", FLAG),
        "priorityTolerance": ("priority_tolerance", optional(SHARE)),
        "trace": ("trace", FLAG),
    },
    left_out=lambda options: () if options.trace else ("trace",),
    unused=("useCplex",),
)

SECTIONS: dict[str, tuple[str, FieldKind[Any]]] = {
    "acceleratorData": ("accelerators", Section("accelerators", _ACCELERATORS)),
    "modelData": ("profiles", Section("models", _PROFILES)),
    "roleData": ("roles", Section("roles", _ROLES)),
    "serviceClassData": ("classes", Section("serviceClasses", _CLASSES)),
    "serverData": ("servers", Section("servers", _SERVERS)),
    "capacityData": ("capacity", Section("count", _CAPACITY)),
    "optimizerData": ("options", Section("optimizer", _OPTIONS)),
}

SYSTEM = Object(System, SECTIONS, left_out=lambda system: () if system.roles else ("roleData",))

BODY = Section("system", SYSTEM)
