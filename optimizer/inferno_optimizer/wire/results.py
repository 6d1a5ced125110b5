"""JSON keys of results beside allocations: reasons, certificates, gains, options of a server."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import starmap
from typing import NamedTuple

from inferno_optimizer.explain.options import Option
from inferno_optimizer.solution import Certificate, CurvePoint, Gain, Level, Reason, SolverStatus
from inferno_optimizer.wire.allocations import TAIL, not_predicted
from inferno_optimizer.wire.fields import (
    INTEGER,
    NUMBER,
    ORIGIN,
    TEXT,
    TEXTS,
    List,
    Object,
    choice,
    optional,
)


class _Explanation(NamedTuple):
    reason: Reason
    message: str


def _explanation(otherwise: Reason) -> Object[_Explanation]:
    """A reason and a message, with the reason that counts if none is given."""
    reason = choice(otherwise, Reason, "a reason")
    return Object(_Explanation, {"reason": ("reason", reason), "message": ("message", TEXT)})


REASON_GIVEN = _explanation(Reason.ALLOCATED)
REFUSAL = _explanation(Reason.NO_CAPACITY)


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
        "status": ("status", choice(SolverStatus.FEASIBLE, SolverStatus, "a status")),
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
        "percentiles": TAIL,
        **ORIGIN,
    },
    left_out=not_predicted,
)
