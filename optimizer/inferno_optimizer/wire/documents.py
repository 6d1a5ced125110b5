"""Documents of the wire: their JSON, and the fields that are read, kept and shown.

A document is a dict that nobody changes. It has every key of the first generation; keys of
later generations are there where they were sent. Unlike a System it also has what no
optimization needs, as clients read it back.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, NoReturn

from inferno_optimizer.errors import InputError
from inferno_optimizer.wire import objects
from inferno_optimizer.wire.fields import (
    FLAG,
    INTEGER,
    TEXT,
    FieldKind,
    List,
    Object,
    Scalar,
    expected,
    optional,
    read_number,
    value_of,
    within,
)

Document = Mapping[str, Any]

Keys = Mapping[str, FieldKind[Any]]

LARGEST_NUMBER = 3.4028234663852886e38
"""What 32 bits hold, in which the original keeps numbers."""

LONGEST_INTEGER = 400
"""Digits that are read; a number of so many is beyond the range of every field."""


def parse_json(text: bytes) -> object:
    """Parse a body; the whole of it, unlike the original, which drops what comes after.

    Raises
    ------
    InputError
        It is no JSON; the text tells where.
    """
    if not text.strip():
        raise InputError("the body is empty; send JSON")
    if text.startswith(BOM_UTF8):
        raise InputError("the body begins with a byte order mark (byte 0); send JSON without it")
    try:
        return _parse(text.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"the body is not UTF-8: byte {error.start}") from error
    except RecursionError as error:
        raise InputError("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise InputError(f"the body is not valid JSON: {error}") from error


def _parse(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError:
        raise
    except ValueError:  # int() refuses thousands of digits, without saying where they are
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_integer)


def _integer(digits: str) -> int:
    """Read an integer; no field takes one of more digits than are kept of it."""
    return int(digits[:LONGEST_INTEGER])


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"the body is not valid JSON: {name} is no number there")


def write_json(document: object) -> bytes:
    """Write JSON; in ASCII, as messages may show what UTF-8 cannot hold."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def _read_single(value: object) -> float:
    number = read_number(value)
    if abs(number) > LARGEST_NUMBER:
        raise expected(f"a number up to {LARGEST_NUMBER:.4g}", value)
    return number


NUMBER = Scalar(0.0, _read_single, float, within("number", LARGEST_NUMBER))


def _document(keys: Keys, later: Keys | None = None) -> Object[Document]:
    """Read objects into dicts; keys of `later` generations are left out when absent."""
    added = {key: optional(kind) for key, kind in (later or {}).items() if key not in keys}
    kinds = {**keys, **added}

    def make(**values: object) -> Document:
        return {key: value for key, value in values.items() if key in keys or value is not None}

    return Object(make, {key: (key, kind) for key, kind in kinds.items()})


def _list(noun: str, identity: tuple[str, ...], item: Object[Document]) -> FieldKind[Any]:
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

STEPS = _document(
    dict.fromkeys(("alpha", "kappa", "delta", "u", "ahead", "budget", "overhead"), NUMBER),
    later=dict.fromkeys(("minInTokens", "maxInTokens", "minOutTokens", "maxOutTokens"), INTEGER),
)
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
        "stepParms": STEPS,
        "maxTokens": INTEGER,
        "maxNumSeqs": INTEGER,
        "origin": TEXT,
        "errorPercent": NUMBER,
    },
)
MODELS = _document({"models": _list("performance data", ("name", "acc"), PERFORMANCE)})

ROLE = _document(
    {
        "name": TEXT,
        "acc": TEXT,
        "role": TEXT,
        "accCount": INTEGER,
        "stepParms": STEPS,
        "maxBatchSize": INTEGER,
        "atTokens": INTEGER,
    },
    later={
        "maxTokens": INTEGER,
        "maxNumSeqs": INTEGER,
        "origin": TEXT,
        "errorPercent": NUMBER,
        "transfer": _document({"perRequestMs": NUMBER, "perTokenMs": NUMBER}),
    },
)
ROLES = _document({"roles": _list("role data", ("name", "acc", "role"), ROLE)})

_TARGETS: Keys = {"model": TEXT, "slo-itl": NUMBER, "slo-ttw": NUMBER, "slo-tps": NUMBER}
_LATER_TARGETS: Keys = {
    "slo-ttft": NUMBER,
    "slo-ttw-percentile": NUMBER,
    "slo-ttft-percentile": NUMBER,
    "slo-itl-percentile": NUMBER,
}
TARGET = _document(_TARGETS, _LATER_TARGETS)
SERVICE_CLASS = _document(
    {
        "name": TEXT,
        "priority": INTEGER,
        "modelTargets": _list("target of model", ("model",), TARGET),
    },
    later={"minReplicas": INTEGER},
)
SERVICE_CLASSES = _document({"serviceClasses": _list("class", ("name",), SERVICE_CLASS)})
CLASS_WITH_TARGET = _document({"name": TEXT, "priority": INTEGER, **_TARGETS}, _LATER_TARGETS)
"""A class with one target beside its name, as the original's controller sends it."""

LOAD = _document(
    {"arrivalRate": NUMBER, "avgLength": INTEGER, "arrivalCOV": NUMBER, "serviceCOV": NUMBER},
    later={
        "throughput": NUMBER,
        "avgInTokens": INTEGER,
        "avgOutTokens": INTEGER,
        "cachedTokens": INTEGER,
        "tokensPerStep": NUMBER,
    },
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
_LATER: Keys = {"ttftAverage": NUMBER, "coldReplicas": INTEGER}
_MIX = _list("part of the mix", ("accelerator",), _document(_ALLOCATION, later=_LATER))
_ROLE = _document(
    {"accelerator": TEXT, "numReplicas": INTEGER, "maxBatch": INTEGER, "cost": NUMBER}
)
_ROLES = _document({"prefill": _ROLE, "decode": _ROLE})
ALLOCATION = _document(_ALLOCATION, later={**_LATER, "mix": _MIX, "roles": _ROLES})
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
    later=objects.SERVER.kinds,
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
    later=objects.OPTIONS.kinds,
)

SYSTEM = _document(
    {
        "acceleratorData": ACCELERATORS,
        "capacityData": CAPACITIES,
        "modelData": MODELS,
        "serviceClassData": SERVICE_CLASSES,
        "serverData": SERVERS,
        "optimizerData": _document({"optimizer": OPTIONS}),
    },
    later={"roleData": ROLES},
)
BODY = _document({"system": SYSTEM})


def system_of(body: object) -> Document:
    """Read the system in the body of optimizeOne, with its wrapper or without.

    Raises
    ------
    MisfitError
        Something has the wrong type.
    """
    if body is None:
        return SYSTEM.zero
    if value_of(body, "system") is None:
        return SYSTEM.read(body)
    wrapped: Document = BODY.read(body)["system"]
    return wrapped
