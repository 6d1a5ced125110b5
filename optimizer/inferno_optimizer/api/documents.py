"""Documents of the wire as they are read, kept and shown: every key of the first generation.

A document is a dict that nobody changes. Keys of later generations are there where they
were sent; unlike a System it has also what no optimization needs, as clients read it back.
"""

from collections.abc import Mapping
from typing import Any

from inferno_optimizer.wire.fields import (
    FLAG,
    INTEGER,
    SHARE,
    TEXT,
    Kind,
    List,
    Object,
    Scalar,
    expected,
    optional,
    read_number,
    within,
)

Document = Mapping[str, Any]

Keys = Mapping[str, Kind[Any]]

LARGEST_NUMBER = 3.4028234663852886e38
"""What 32 bits hold, in which the original keeps numbers."""


def _read_single(value: object) -> float:
    number = read_number(value)
    if abs(number) > LARGEST_NUMBER:
        raise expected(f"a number up to {LARGEST_NUMBER:.4g}", value)
    return number


NUMBER = Scalar(0.0, _read_single, float, within("number", LARGEST_NUMBER))


def _document(keys: Keys, later: Keys | None = None) -> Object[Document]:
    """Read objects into dicts; keys of `later` generations are left out when absent."""
    kinds = {**keys, **{key: optional(kind) for key, kind in (later or {}).items()}}

    def make(**values: object) -> Document:
        return {key: value for key, value in values.items() if key in keys or value is not None}

    return Object(make, {key: (key, kind) for key, kind in kinds.items()})


def _list(noun: str, identity: tuple[str, ...], item: Object[Document]) -> Kind[Any]:
    """Read a list; an absent one is None, and shown as null."""
    return optional(List(noun, identity, item, collect=list, spread=iter))


ACCELERATOR = _document(
    {
        "name": TEXT,
        "type": TEXT,
        "multiplicity": INTEGER,
        "memSize": INTEGER,
        "memBW": INTEGER,
        "power": _document(
            {"idle": INTEGER, "full": INTEGER, "midPower": INTEGER, "midUtil": NUMBER}
        ),
        "cost": NUMBER,
    }
)
ACCELERATORS = _document({"accelerators": _list("accelerator", ("name",), ACCELERATOR)})

CAPACITY = _document({"type": TEXT, "count": INTEGER})
CAPACITIES = _document({"count": _list("capacity", ("type",), CAPACITY)})

PERFORMANCE = _document(
    {
        "name": TEXT,
        "acc": TEXT,
        "accCount": INTEGER,
        "alpha": NUMBER,
        "beta": NUMBER,
        "maxBatchSize": INTEGER,
        "atTokens": INTEGER,
    },
    later={
        "decodeParms": _document({"alpha": NUMBER, "beta": NUMBER}),
        "prefillParms": _document({"gamma": NUMBER, "delta": NUMBER}),
        "perfParms": _document({"alpha": NUMBER, "beta": NUMBER, "gamma": NUMBER}),
    },
)
MODELS = _document({"models": _list("performance data", ("name", "acc"), PERFORMANCE)})

_TARGETS: Keys = {"model": TEXT, "slo-itl": NUMBER, "slo-ttw": NUMBER, "slo-tps": NUMBER}
_LATER_TARGETS: Keys = {
    "slo-ttft": NUMBER,
    "slo-ttw-percentile": NUMBER,
    "slo-ttft-percentile": NUMBER,
}
TARGET = _document(_TARGETS, _LATER_TARGETS)
SERVICE_CLASS = _document(
    {
        "name": TEXT,
        "priority": INTEGER,
        "modelTargets": _list("target of model", ("model",), TARGET),
    }
)
SERVICE_CLASSES = _document({"serviceClasses": _list("class", ("name",), SERVICE_CLASS)})
CLASS_WITH_TARGET = _document({"name": TEXT, "priority": INTEGER, **_TARGETS}, _LATER_TARGETS)
"""A class with one target beside its name, as the original's controller sends it."""

LOAD = _document(
    {"arrivalRate": NUMBER, "avgLength": INTEGER, "arrivalCOV": NUMBER, "serviceCOV": NUMBER},
    later={"throughput": NUMBER, "avgInTokens": INTEGER, "avgOutTokens": INTEGER},
)
_ALLOCATION: Keys = {
    "accelerator": TEXT,
    "numReplicas": INTEGER,
    "maxBatch": INTEGER,
    "cost": NUMBER,
    "itlAverage": NUMBER,
    "waitAverage": NUMBER,
    "load": LOAD,
}
_LATER: Keys = {"ttftAverage": NUMBER}
_MIX = _list("part of the mix", ("accelerator",), _document(_ALLOCATION, later=_LATER))
ALLOCATION = _document(_ALLOCATION, later={**_LATER, "mix": _MIX})
SERVER = _document(
    {
        "name": TEXT,
        "class": TEXT,
        "model": TEXT,
        "keepAccelerator": FLAG,
        "minNumReplicas": INTEGER,
        "maxBatchSize": INTEGER,
        "currentAlloc": ALLOCATION,
        "desiredAlloc": ALLOCATION,
    },
    later={"maxQueueSize": INTEGER},
)
SERVERS = _document({"servers": _list("server", ("name",), SERVER)})

OPTIONS = _document(
    {
        "unlimited": FLAG,
        "heterogeneous": FLAG,
        "milpSolver": FLAG,
        "useCplex": FLAG,
        "delayedBestEffort": FLAG,
        "saturationPolicy": TEXT,
    },
    later={"holdUndecided": FLAG, "priorityTolerance": SHARE},
)

SYSTEM = _document(
    {
        "acceleratorData": ACCELERATORS,
        "capacityData": CAPACITIES,
        "modelData": MODELS,
        "serviceClassData": SERVICE_CLASSES,
        "serverData": SERVERS,
        "optimizerData": _document({"optimizer": OPTIONS}),
    }
)
BODY = _document({"system": SYSTEM})
