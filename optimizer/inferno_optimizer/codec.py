"""JSON documents of the wire <-> System and Solution; the one place that knows field names.

The tables below say, for each object of the wire, which key holds which attribute. Reading
follows the published API: keys match regardless of case, unknown keys are ignored, what is
absent or null is zero, of repeated names the last one counts. Unlike the original, what
cannot be read is named.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from itertools import starmap
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeVar

from inferno_optimizer.answers import Answer, solution_of
from inferno_optimizer.comparison import Comparison, served
from inferno_optimizer.errors import InputError
from inferno_optimizer.explain import Option
from inferno_optimizer.fields import (
    FLAG,
    INTEGER,
    NUMBER,
    TEXT,
    Kind,
    List,
    MisfitError,
    Object,
    Scalar,
    Section,
    optional,
    read_integer,
    read_text,
    value_of,
)
from inferno_optimizer.remedies import Remedy
from inferno_optimizer.system import (
    DEFAULT_CLASS,
    Accelerator,
    Allocation,
    Certificate,
    Decision,
    DecodeParameters,
    Generation,
    Level,
    Load,
    Options,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    Reason,
    SaturationPolicy,
    Server,
    ServiceClass,
    Solution,
    Status,
    System,
    Tail,
    Target,
    TokenBudgetParameters,
)

T = TypeVar("T")


def is_system(document: object) -> bool:
    """Tell whether a document has a key of the body of optimizeOne."""
    return isinstance(document, Mapping) and any(
        value_of(document, key) is not None for key in ("system", *_SECTIONS)
    )


def decode_system(document: object) -> System:
    """Read the body of optimizeOne.

    Parameters
    ----------
    document
        Parsed JSON: `{"system": {...}}`, or the inner object alone; sections may be absent.

    Raises
    ------
    InputError
        Something has the wrong type; the text names the object and the field.
    """
    if document is None:
        return _SYSTEM.zero
    try:
        return (_SYSTEM if value_of(document, "system") is None else _BODY).read(document)
    except MisfitError as misfit:
        raise InputError(str(misfit)) from None


def encode_system(system: System) -> dict[str, Any]:
    """Write the body of optimizeOne; the time limit is the server's own and not part of it."""
    return _BODY.write(system)


def encode_solution(solution: Solution) -> dict[str, Any]:
    """Write the answer of optimizeOne, with who is unserved and what is proven."""
    given = [d for d in solution.decisions if d.allocation is not None]
    return {
        "allocations": {
            decision.server: _given(decision, decision.allocation or Allocation())
            for decision in sorted(given, key=attrgetter("server"))
        },
        "unserved": {
            decision.server: {"reason": str(decision.reason), "message": decision.message}
            for decision in sorted(solution.unserved, key=attrgetter("server"))
        },
        "certificate": _certificate(solution),
    }


def decode_solution(document: object, system: System) -> Solution:
    """Read the answer of optimizeOne or optimize, ours or that of the original.

    Parameters
    ----------
    document
        Parsed JSON. Without reasons and certificate, as the original gives it, a server that
        has no allocation gets a reason of our own.
    system
        What was asked.

    Raises
    ------
    InputError
        It is no answer, or one to something else; the text tells why.
    """
    try:
        answer = _read_answer(document)
    except MisfitError as misfit:
        raise InputError(str(misfit)) from None
    return solution_of(answer, system)


def _read_answer(document: object) -> Answer:
    if value_of(document, "allocations") is None:
        raise MisfitError("expected an object with allocations")
    certificate = value_of(document, "certificate")
    return Answer(
        given=tuple(starmap(_read_given, _named(document, "allocations"))),
        refused=tuple(starmap(_read_refused, _named(document, "unserved"))),
        certificate=None if certificate is None else _CERTIFICATE.read(certificate),
        prices={name: NUMBER.read(price) for name, price in _named(certificate, "prices")},
    )


def _named(document: object, key: str) -> list[tuple[str, object]]:
    """The parts of an object that are known by name."""
    part = value_of(document, key)
    if part is None:
        return []
    if not isinstance(part, Mapping):
        raise MisfitError("expected an object").inside(key)
    return [(str(name), value) for name, value in part.items()]


def _read_refused(server: str, value: object) -> Decision:
    try:
        return Decision(server, *_REFUSAL.read(value))
    except MisfitError as misfit:
        raise misfit.of(f"server {server!r}") from None


def _read_given(server: str, value: object) -> Decision:
    try:
        return Decision(server, *_REASON_GIVEN.read(value), _ANSWER.read(value))
    except MisfitError as misfit:
        raise misfit.of(f"allocation of server {server!r}") from None


def _given(decision: Decision, allocation: Allocation) -> dict[str, Any]:
    """Write an allocation, and why it is less than the server needs where it is."""
    document = _ANSWER.write(allocation)
    if decision.reason is Reason.ALLOCATED:
        return document
    return {**document, "reason": str(decision.reason), "message": decision.message}


def encode_explanation(options: Iterable[Option]) -> list[dict[str, Any]]:
    """Write the options of a server; fields that an allocation has too are named as there."""
    return [_OPTION.write(option) for option in options]


def encode_remedies(remedies: Iterable[Remedy]) -> list[dict[str, Any]]:
    """Write what would serve a server."""
    return [
        {
            "kind": str(remedy.kind),
            "change": remedy.change,
            "amount": remedy.amount,
            "cost": remedy.cost,
            "displaced": list(remedy.displaced),
            "message": remedy.message,
        }
        for remedy in remedies
    ]


def encode_comparison(changes: Iterable[str], comparison: Comparison) -> dict[str, Any]:
    """Write both solutions with their totals, and for which servers they differ."""
    return {
        "changes": list(changes),
        "servers": [difference.server for difference in comparison.differences],
        "before": _with_totals(comparison.before),
        "after": _with_totals(comparison.after),
    }


def _with_totals(solution: Solution) -> dict[str, Any]:
    capacity = [
        {"type": use.type, "used": use.used, "available": use.available}
        for use in solution.capacity
    ]
    totals = {"served": served(solution), "cost": solution.cost, "capacity": capacity}
    return {**encode_solution(solution), **totals}


def _certificate(solution: Solution) -> dict[str, Any]:
    certificate = solution.certificate
    prices = {use.type: use.price for use in solution.capacity if use.price is not None}
    proof: dict[str, Any] = {
        "solver": certificate.solver,
        "status": str(certificate.status),
        "objective": certificate.objective,
        "bound": certificate.bound,
        "gap": certificate.gap,
        "levels": [{"gap": level.gap, **_LEVEL.write(level)} for level in certificate.levels],
        "seconds": certificate.seconds,
        "phases": dict(certificate.phases),
    }
    return {**proof, "prices": prices} if prices else proof


def _read_policy(value: object) -> SaturationPolicy:
    """Read a saturation policy; any other text counts as none, as in the original."""
    return _POLICIES.get(read_text(value), SaturationPolicy.NONE)


def _read_reason(value: object) -> Reason:
    return _REASONS.get(read_text(value)) or _unknown("a reason", value)


def _read_status(value: object) -> Status:
    return _STATUSES.get(read_text(value)) or _unknown("a status", value)


def _unknown(what: str, value: object) -> NoReturn:
    raise MisfitError(f"{value!r} is not {what} that is known")


_REASONS = {str(reason): reason for reason in Reason}
_STATUSES = {str(status): status for status in Status}
_POLICIES = {str(policy): policy for policy in SaturationPolicy}

_POLICY = Scalar(SaturationPolicy.NONE, _read_policy, str)
_CARDS = Scalar(1, read_integer, int)
_AT_LEAST_ONE = Scalar(1, lambda value: max(read_integer(value), 1), int)
_CLASS_NAME = Scalar(DEFAULT_CLASS, lambda value: read_text(value) or DEFAULT_CLASS, str)


def _unique(*names: str) -> Callable[[Iterable[T]], tuple[T, ...]]:
    """Collect values, of each name the last one."""
    name = attrgetter(*names)
    return lambda values: tuple({name(value): value for value in values}.values())


def _mapping(pairs: Iterable[tuple[str, T]]) -> Mapping[str, T]:
    return MappingProxyType(dict(pairs))


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
    max_batch_size: int,
    at_tokens: int,
) -> PerformanceProfile:
    """Build a profile; of parameters of several generations the latest count."""
    parameters: PerformanceParameters = DecodeParameters(alpha, beta)
    if budget is not None:
        parameters = budget
    elif decode is not None or prefill is not None:
        steps, first = decode or DecodeParameters(0, 0), prefill or _Prefill(0, 0)
        parameters = PrefillDecodeParameters(steps.alpha, steps.beta, *first)
    return PerformanceProfile(
        model, accelerator, parameters, max_batch_size, at_tokens, accelerator_count
    )


def _other_parameters(profile: PerformanceProfile) -> Container[str]:
    """Keys of the parameters of other generations."""
    mine = _PARAMETERS[profile.parameters.generation]
    return {key for keys in _PARAMETERS.values() for key in keys} - {*mine}


_PARAMETERS = {
    Generation.DECODE: ("alpha", "beta"),
    Generation.PREFILL_DECODE: ("decodeParms", "prefillParms"),
    Generation.TOKEN_BUDGET: ("perfParms",),
}


def _not_predicted(prediction: Allocation | Option) -> Container[str]:
    """The delay that the generation of a prediction does not tell, and other empty keys."""
    first = prediction.generation is Generation.DECODE
    left_out = ["ttftAverage" if first else "waitAverage"]
    if prediction.tail is None:
        left_out.append("percentiles")
    if isinstance(prediction, Option) or not prediction.mix:
        left_out.append("mix")
    return left_out


def _other_words(load: Load) -> Container[str]:
    """Keys of the vocabulary that a load is not told in."""
    in_tokens = load.input_tokens or load.output_tokens or load.throughput
    in_length = load.tokens_per_request or load.arrival_cov or load.service_cov
    left_out = () if load.throughput else ("throughput",)
    if not in_tokens:
        return (*left_out, "avgInTokens", "avgOutTokens")
    return left_out if in_length else (*left_out, "avgLength", "arrivalCOV", "serviceCOV")


class _ModelTarget(NamedTuple):
    model: str
    target: Target


def _model_target(model: str, **targets: float) -> _ModelTarget:
    return _ModelTarget(model, Target(**targets))


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
    },
    left_out=_other_words,
)

_ALLOCATION_KEYS: dict[str, tuple[str, Kind[Any]]] = {
    "accelerator": ("accelerator", TEXT),
    "numReplicas": ("replicas", INTEGER),
    "maxBatch": ("max_batch_size", INTEGER),
    "cost": ("cost", NUMBER),
    "itlAverage": ("itl_ms", NUMBER),
    "waitAverage": ("wait_ms", NUMBER),
    "ttftAverage": ("ttft_ms", NUMBER),
    "load": ("load", _LOAD),
}


def _mix_of(part: Object[Allocation]) -> tuple[str, Kind[Any]]:
    return "mix", List("part of the mix", ("accelerator",), part, tuple, tuple)


def _one_accelerator(allocation: Allocation) -> Container[str]:
    return () if allocation.mix else ("mix",)


_PART = Object(Allocation, _ALLOCATION_KEYS)
_ALLOCATION = Object(
    Allocation, {**_ALLOCATION_KEYS, "mix": _mix_of(_PART)}, left_out=_one_accelerator
)


class _Told(NamedTuple):
    reason: Reason
    message: str


_MESSAGE: tuple[str, Kind[Any]] = ("message", TEXT)
_REASON_GIVEN = Object(
    _Told,
    {"reason": ("reason", Scalar(Reason.ALLOCATED, _read_reason, str)), "message": _MESSAGE},
)
_REFUSAL = Object(
    _Told,
    {"reason": ("reason", Scalar(Reason.NO_CAPACITY, _read_reason, str)), "message": _MESSAGE},
)


class _Percentiles(NamedTuple):
    p90: float
    p95: float
    p99: float


def _tail(wait: _Percentiles, ttft: _Percentiles) -> Tail:
    return Tail(*wait, *ttft)


_PERCENTILE = Object(_Percentiles, {key: (key, NUMBER) for key in _Percentiles._fields})
_PERCENTILES = Object(_tail, {"wait": ("wait", _PERCENTILE), "ttft": ("ttft", _PERCENTILE)})


def _write_tail(tail: Tail | None) -> object:
    if tail is None:
        return None
    wait = _Percentiles(tail.wait_p90, tail.wait_p95, tail.wait_p99)
    ttft = _Percentiles(tail.ttft_p90, tail.ttft_p95, tail.ttft_p99)
    return {"wait": _PERCENTILE.write(wait), "ttft": _PERCENTILE.write(ttft)}


_TAIL: tuple[str, Kind[Any]] = (
    "tail",
    Scalar(None, _PERCENTILES.read, _write_tail, _PERCENTILES.schema),
)
_ANSWER_KEYS = {**_ALLOCATION_KEYS, "percentiles": _TAIL}
_ANSWER = Object(
    Allocation,
    {**_ANSWER_KEYS, "mix": _mix_of(Object(Allocation, _ANSWER_KEYS, left_out=_not_predicted))},
    left_out=_not_predicted,
)

_LEVEL = Object(
    Level,
    {
        "priority": ("priority", INTEGER),
        "served": ("served", NUMBER),
        "bound": ("bound", NUMBER),
    },
)

_CERTIFICATE = Object(
    Certificate,
    {
        "solver": ("solver", TEXT),
        "status": ("status", Scalar(Status.FEASIBLE, _read_status, str)),
        "objective": ("objective", NUMBER),
        "bound": ("bound", optional(NUMBER)),
        "seconds": ("seconds", NUMBER),
        "levels": ("levels", List("level", ("priority",), _LEVEL, tuple, tuple)),
    },
)

_OPTION = Object(
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
            "maxBatchSize": ("max_batch_size", INTEGER),
            "atTokens": ("at_tokens", INTEGER),
        },
        left_out=_other_parameters,
    ),
    collect=_unique("model", "accelerator"),
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
        },
    ),
    collect=_mapping,
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
            "currentAlloc": ("current", _ALLOCATION),
        },
    ),
    collect=_unique("name"),
    spread=tuple,
)

_CAPACITY = List(
    "capacity",
    ("type",),
    Object(_CardCount, {"type": ("type", TEXT), "count": ("cards", INTEGER)}),
    collect=_mapping,
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
    },
)

_SECTIONS: dict[str, tuple[str, Kind[Any]]] = {
    "acceleratorData": ("accelerators", Section("accelerators", _ACCELERATORS)),
    "modelData": ("profiles", Section("models", _PROFILES)),
    "serviceClassData": ("classes", Section("serviceClasses", _CLASSES)),
    "serverData": ("servers", Section("servers", _SERVERS)),
    "capacityData": ("capacity", Section("count", _CAPACITY)),
    "optimizerData": ("options", Section("optimizer", _OPTIONS)),
}

_SYSTEM = Object(System, _SECTIONS)

_BODY = Section("system", _SYSTEM)
