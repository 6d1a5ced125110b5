"""Contents of a stateful optimizer, and the requests that change them; pure functions.

Contents are compared as the optimizer stores them: numbers rounded to 32 bits, and lists in
any order.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import unquote

from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import decode_system, encode_system
from inferno_optimizer.wire.fields import LARGEST_NUMBER

ItemName = tuple[str, ...]
Contents = Mapping[str, Mapping[ItemName, Any]]
"""The items of each section of a system, by their names; the model names are under `MODELS`."""

READS = ("getAccelerators", "getCapacities", "getModels", "getServiceClasses", "getServers")
"""Paths of the requests that read all contents of an optimizer; of models only the names."""


class _Section(NamedTuple):
    name: str
    items: str
    identity: ItemName
    set: str
    remove: str


SECTIONS = (
    _Section("acceleratorData", "accelerators", ("name",), "setAccelerators", "removeAccelerator"),
    _Section("capacityData", "count", ("type",), "setCapacities", "removeCapacity"),
    _Section("modelData", "models", ("name", "acc"), "setModels", "removeModelAcceleratorPerf"),
    _Section(
        "serviceClassData", "serviceClasses", ("name",), "setServiceClasses", "removeServiceClass"
    ),
    _Section("serverData", "servers", ("name",), "setServers", "removeServer"),
)

MODELS = "models"
"""Key of the model names: a model remains when its last performance data are removed."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A request: a POST with a body, or a GET if the body is None; it may be sent twice."""

    path: tuple[str, ...]
    body: Mapping[str, Any] | None = None


def contents(system: System) -> Contents:
    """The contents of an optimizer that holds exactly this system."""
    in_order = [replace(c, targets=dict(sorted(c.targets.items()))) for c in system.classes]
    document = _rounded(encode_system(replace(system, classes=tuple(in_order)))["system"])
    sections = {
        section.name: {
            tuple(item[key] for key in section.identity): item
            for item in document[section.name][section.items]
        }
        for section in SECTIONS
    }
    return {**sections, MODELS: _by_name(profile.model for profile in system.profiles)}


def contents_told(answers: Mapping[str, object], profiles: Iterable[object]) -> Contents:
    """The contents of an optimizer, from its responses.

    Parameters
    ----------
    answers
        The responses to `READS`, by path.
    profiles
        The response to `getModel` for each model.

    Raises
    ------
    InputError
        A response is invalid; the message names the object and the field.
    """
    data = [data for answer in profiles for data in _items(answer, "models")]
    system = {
        "acceleratorData": {"accelerators": answers["getAccelerators"]},
        "capacityData": answers["getCapacities"],
        "modelData": {"models": data},
        "serviceClassData": answers["getServiceClasses"],
        "serverData": answers["getServers"],
    }
    stored = contents(decode_system({"system": system}))
    return {**stored, MODELS: _by_name(map(str, _items(answers, "getModels")))}


def operations(held: Contents, wanted: Contents) -> tuple[Operation, ...]:
    """The requests, in order, that change the held contents to the wanted ones.

    Servers are added last and removed first, so that the objects they refer to always exist.
    """
    removals = [(section.name, section.remove) for section in reversed(SECTIONS)]
    removals.append((MODELS, "removeModel"))
    goes = [
        Operation((remove, *name))
        for what, remove in removals
        for name in sorted(held[what].keys() - wanted[what].keys())
    ]
    comes = [op for section in SECTIONS for op in _changes(section, held, wanted)]
    return (*comes, *goes)


def _changes(section: _Section, held: Contents, wanted: Contents) -> Iterator[Operation]:
    before = held[section.name]
    changed = [item for name, item in wanted[section.name].items() if before.get(name) != item]
    if changed:
        yield Operation((section.set,), {section.items: changed})


def escaped(document: object) -> Any:  # noqa: ANN401 - JSON of any shape
    """The document with all names escaped, so that they can be used in a URL path.

    The optimizer stores the escaped names. It decodes a path before it splits it at slashes, so
    that URL encoding alone would not protect a slash in a name.
    """
    return _mapped(document, _escape)


def unescaped(document: object) -> Any:  # noqa: ANN401 - JSON of any shape
    """The document with the original names: reverts `escaped`."""
    return _mapped(document, unquote)


def _escape(name: str) -> str:
    if name in (".", ".."):  # relative path segments
        return name.replace(".", "%2E")
    return name.replace("%", "%25").replace("/", "%2F")


def _mapped(document: object, change: Callable[[str], str]) -> object:
    """The document with a function applied to each string and each key."""
    if isinstance(document, str):
        return change(document)
    if isinstance(document, Mapping):
        return {change(str(key)): _mapped(value, change) for key, value in document.items()}
    if isinstance(document, list):
        return [_mapped(item, change) for item in document]
    return document


def _rounded(document: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    """The document with its floating-point numbers rounded to 32 bits."""
    if isinstance(document, float):
        within = max(min(document, LARGEST_NUMBER), -LARGEST_NUMBER)
        return struct.unpack("f", struct.pack("f", within))[0]
    if isinstance(document, Mapping):
        return {key: _rounded(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_rounded(item) for item in document]
    return document


def _by_name(names: Iterable[str]) -> Mapping[ItemName, None]:
    return {(name,): None for name in names}


def _items(document: object, key: str) -> list[object]:
    part = document.get(key) if isinstance(document, Mapping) else None
    return part if isinstance(part, list) else []
