"""JSON keys of a system: accelerators, models, classes, servers, capacity and options."""

from itertools import starmap
from typing import Any, NamedTuple

from inferno_optimizer.system import (
    DEFAULT_CLASS,
    Accelerator,
    Options,
    SaturationPolicy,
    Server,
    ServiceClass,
    System,
    Target,
)
from inferno_optimizer.wire.allocations import ALLOCATION
from inferno_optimizer.wire.fields import (
    FLAG,
    INTEGER,
    NUMBER,
    SHARE,
    TEXT,
    TEXTS,
    FieldKind,
    List,
    Object,
    Scalar,
    Section,
    last_of_each,
    optional,
    read_integer,
    read_text,
)
from inferno_optimizer.wire.profiles import PROFILES, ROLES

_POLICIES = {str(policy): policy for policy in SaturationPolicy}


def _read_policy(value: object) -> SaturationPolicy:
    """Read a saturation policy; unknown text means no policy, as in the original."""
    return _POLICIES.get(read_text(value), SaturationPolicy.NONE)


_POLICY = Scalar(SaturationPolicy.NONE, _read_policy, str)

_CARDS = Scalar(1, read_integer, int)

_CLASS_NAME = Scalar(DEFAULT_CLASS, lambda value: read_text(value) or DEFAULT_CLASS, str)


class _ModelTarget(NamedTuple):
    model: str
    target: Target


def _model_target(model: str, **targets: float) -> _ModelTarget:
    return _ModelTarget(model, Target(**targets))


class _CardCount(NamedTuple):
    type: str
    cards: int


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
    collect=last_of_each("name"),
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
            "minReplicas": ("min_replicas", INTEGER),
            "modelTargets": ("targets", _TARGETS),
        },
    ),
    collect=last_of_each("name"),
    spread=tuple,
)

_ADDED: dict[str, tuple[str, FieldKind[Any]]] = {
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
    },
    left_out=lambda server: [key for key, (name, _) in _ADDED.items() if not getattr(server, name)],
    unused=("desiredAlloc",),
)

_SERVERS = List("server", ("name",), SERVER, collect=last_of_each("name"), spread=tuple)

_CAPACITY = List(
    "capacity",
    ("type",),
    Object(_CardCount, {"type": ("type", TEXT), "count": ("cards", INTEGER)}),
    collect=dict,
    spread=lambda capacity: starmap(_CardCount, capacity.items()),
)

OPTIONS = Object(
    Options,
    {
        "unlimited": ("unlimited", FLAG),
        "heterogeneous": ("heterogeneous", FLAG),
        "milpSolver": ("milp", FLAG),
        "saturationPolicy": ("saturation_policy", _POLICY),
        "delayedBestEffort": ("delayed_best_effort", FLAG),
        "holdUndecided": ("hold_undecided", FLAG),
        "noSwaps": ("no_swaps", FLAG),
        "priorityTolerance": ("priority_tolerance", optional(SHARE)),
        "trace": ("trace", FLAG),
    },
    left_out=lambda options: () if options.trace else ("trace",),
    unused=("useCplex",),
)

SECTIONS: dict[str, tuple[str, FieldKind[Any]]] = {
    "acceleratorData": ("accelerators", Section("accelerators", _ACCELERATORS)),
    "modelData": ("profiles", Section("models", PROFILES)),
    "roleData": ("roles", Section("roles", ROLES)),
    "serviceClassData": ("classes", Section("serviceClasses", _CLASSES)),
    "serverData": ("servers", Section("servers", _SERVERS)),
    "capacityData": ("capacity", Section("count", _CAPACITY)),
    "optimizerData": ("options", Section("optimizer", OPTIONS)),
}

SYSTEM = Object(System, SECTIONS, left_out=lambda system: () if system.roles else ("roleData",))

BODY = Section("system", SYSTEM)
