"""JSON keys of allocations: what runs, and what is decided with its predictions."""

from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from inferno_optimizer.explain.options import Option
from inferno_optimizer.system import PAIR, Allocation, Generation, Load, Tail
from inferno_optimizer.wire.fields import (
    INTEGER,
    NUMBER,
    ORIGIN,
    TEXT,
    FieldKind,
    List,
    Object,
    Scalar,
    optional,
    without_origin,
)


def _unused_keys(load: Load) -> Container[str]:
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
        "throughput": ("throughput", NUMBER),
        "avgInTokens": ("input_tokens", INTEGER),
        "avgOutTokens": ("output_tokens", INTEGER),
        "cachedTokens": ("cached_tokens", INTEGER),
        "tokensPerStep": ("tokens_per_step", NUMBER),
    },
    left_out=_unused_keys,
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

_ROLE_KEYS = ("accelerator", "numReplicas", "coldReplicas", "maxBatch", "cost")

_CURRENT_KEYS = {**_ALLOCATION_KEYS, "coldReplicas": ("cold_replicas", INTEGER)}


class _Apart(NamedTuple):
    prefill: Allocation | None
    decode: Allocation | None


def _mix_of(part: Object[Allocation]) -> tuple[str, FieldKind[Any]]:
    return "mix", List("part of the mix", ("accelerator",), part, tuple, tuple)


def _roles_of(part: Object[Allocation]) -> tuple[str, FieldKind[Any]]:
    """The parts of an allocation by role, as an object with both of them."""
    both = Object(_Apart, {name: (name, optional(part)) for name in _Apart._fields})

    def read(value: object) -> tuple[Allocation, ...]:
        by_role = zip(PAIR, both.read(value), strict=True)
        return tuple(replace(part, role=role) for role, part in by_role if part is not None)

    def write(roles: Iterable[Allocation]) -> object:
        return {str(role.role).lower(): part.write(role) for role in roles}

    return "roles", Scalar((), read, write, both.schema, both.ignored)


def _all_warm(allocation: Allocation) -> tuple[str, ...]:
    return () if allocation.cold_replicas else ("coldReplicas",)


def _one_accelerator(allocation: Allocation) -> Container[str]:
    parts = (name for name in ("mix", "roles") if not getattr(allocation, name))
    return (*_all_warm(allocation), *parts)


_PART = Object(Allocation, _CURRENT_KEYS, left_out=_all_warm)

_ROLE = Object(Allocation, {key: _CURRENT_KEYS[key] for key in _ROLE_KEYS}, left_out=_all_warm)

ALLOCATION = Object(
    Allocation,
    {**_CURRENT_KEYS, "mix": _mix_of(_PART), "roles": _roles_of(_ROLE)},
    left_out=_one_accelerator,
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


TAIL: tuple[str, FieldKind[Any]] = (
    "tail",
    Scalar(None, _PERCENTILES.read, _write_tail, _PERCENTILES.schema),
)


def not_predicted(prediction: Allocation | Option) -> Container[str]:
    """Keys that are not written: the delay that the generation does not predict, and empty keys."""
    first = prediction.generation is Generation.DECODE
    left_out = ["ttftAverage" if first else "waitAverage"]
    if prediction.tail is None:
        left_out.append("percentiles")
    if isinstance(prediction, Allocation):
        left_out += [name for name in ("mix", "roles") if not getattr(prediction, name)]
    return [*left_out, *without_origin(prediction)]


_ANSWER_KEYS = {**_ALLOCATION_KEYS, "percentiles": TAIL, **ORIGIN}

ANSWER = Object(
    Allocation,
    {
        **_ANSWER_KEYS,
        "mix": _mix_of(Object(Allocation, _ANSWER_KEYS, left_out=not_predicted)),
        "roles": _roles_of(_ROLE),
    },
    left_out=not_predicted,
)
