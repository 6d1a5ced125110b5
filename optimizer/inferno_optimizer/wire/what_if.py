"""A System and changes -> the System that would be, for questions of the kind "what if".

A change is made in the document that the codec writes, so that fields are called as they are
there and nowhere else; what comes out is read and checked like any other document.
"""

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.changes import EVERY, Change
from inferno_optimizer.system import SaturationPolicy, System
from inferno_optimizer.validation import find_problems
from inferno_optimizer.wire.codec import decode_system, encode_system

JsonObject = dict[str, Any]

NAMES_SHOWN = 16
"""How many of the names that are known a message shows."""

LIKENESS = 0.5
"""How much a name has to be like what was asked for to be suggested, of 1."""


class _Collection(NamedTuple):
    """Where the document has the objects of a kind, and the key that tells them apart."""

    section: str
    items: str
    identity: str
    noun: str


_COLLECTIONS = {
    "accelerator": _Collection("acceleratorData", "accelerators", "name", "accelerator"),
    "capacity": _Collection("capacityData", "count", "type", "type of card"),
    "class": _Collection("serviceClassData", "serviceClasses", "name", "service class"),
    "server": _Collection("serverData", "servers", "name", "server"),
}
_PART_IDENTITY = "model"
"""What tells the targets of a class apart, the only list inside an object."""

_MIX = "mix"

_BEFORE_LOAD = "currentAlloc."


class _Place(NamedTuple):
    """A key of an object in the document."""

    item: JsonObject
    key: str


def apply_changes(system: System, changes: Iterable[Change]) -> System:
    """Make the changes, one after the other; the system itself stays as it is.

    Raises
    ------
    InputError
        A change names what is not there, or its value does not fit or makes no sense; the
        text names the change and, for names, what is known.
    """
    for change in changes:
        system = _changed(system, change)
    return system


def _changed(system: System, change: Change) -> System:
    document = encode_system(system)["system"]
    names = _names(system)
    for item, key in _places(document, change, names):
        item[key] = change.applied_to(item[key])
        if isinstance(item[key], str) and key in names:
            _check_name(change, key, item[key], names[key])
    try:
        changed = decode_system(document)
    except InputError as error:
        raise change.error(str(error)) from error
    _refuse_new_problems(system, changed, change)
    options = replace(changed.options, time_limit=system.options.time_limit)
    return replace(changed, options=options, held=system.held)  # no part of the document


def _names(system: System) -> Mapping[str, Sequence[str]]:
    """The words that a field of text may hold, by its key."""
    return {
        "accelerator": [a.name for a in system.accelerators],
        "class": [c.name for c in system.classes],
        "model": list(dict.fromkeys(p.model for p in system.profiles)),
        "saturationPolicy": [str(policy) for policy in SaturationPolicy],
        "type": list(dict.fromkeys((*system.capacity, *(a.type for a in system.accelerators)))),
    }


def _places(
    document: JsonObject, change: Change, names: Mapping[str, Sequence[str]]
) -> Sequence[_Place]:
    """Where the document has what a change names; several places where it says `*`."""
    if change.kind == "optimizer":
        options = _fields(document["optimizerData"]["optimizer"])
        field = ".".join(segment.text for segment in change.path[1:])
        _check_name(change, "option", field, list(options))
        return options[field]
    _check_name(change, "kind of object", change.kind, [*_COLLECTIONS, "optimizer"])
    collection = _COLLECTIONS[change.kind]
    items = document[collection.section][collection.items]
    if change.kind == "capacity":
        return _counts(items, change, names["type"])
    return _named_places(items, collection, change)


def _counts(items: list[JsonObject], change: Change, types: Sequence[str]) -> Sequence[_Place]:
    """The cards of a type, 0 where it is not listed yet; the name says all, there is no field."""
    card_type = next((name for name, field in change.splits() if not field), "")
    if change.every and card_type == EVERY:
        return [_Place(item, "count") for item in items]
    _check_name(change, "type of card", card_type, types)
    if all(item["type"] != card_type for item in items):
        items.append({"type": card_type, "count": 0})
    return [_Place(item, "count") for item in items if item["type"] == card_type]


def _named_places(
    items: Sequence[JsonObject], collection: _Collection, change: Change
) -> Sequence[_Place]:
    """The field of the object with the longest name that leaves one of its fields; or of all."""
    fields = {item[collection.identity]: _fields(item, collection.identity) for item in items}
    readings = _readings(change, list(fields))
    if not readings:
        name = _intended_name(change, fields)
        raise _unknown(change, collection.noun, name, list(fields))
    found = [places for name, field in readings if (places := fields[name].get(field))]
    if not found:
        name, field = readings[0]
        raise _unknown(change, f"field of {collection.noun} {name!r}", field, list(fields[name]))
    return list(chain.from_iterable(found)) if change.every else found[0]


def _readings(change: Change, names: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Known names with the field that each would leave; the longest first, or all of them."""
    splits = [(name, _short(field)) for name, field in change.splits()]
    if change.every:
        return [(name, splits[-1][1]) for name in names]
    known = frozenset(names)
    return [(name, field) for name, field in splits if name in known]


def _intended_name(change: Change, fields: Mapping[str, Mapping[str, object]]) -> str:
    """The part of a path that would be the name, as what follows it is a field of some object."""
    known = {field for of_one in fields.values() for field in of_one}
    splits = [(name, _short(field)) for name, field in change.splits()] or [("", "")]
    return next((name for name, field in splits if field in known), splits[-1][0])


def _fields(item: JsonObject, identity: str = "") -> dict[str, list[_Place]]:
    """The places below an object by the dotted names of their fields.

    Parts of a list go by their names, and all together by `*`.
    """
    found: defaultdict[str, list[_Place]] = defaultdict(list)
    for key, value in item.items():
        if isinstance(value, dict):
            for field, places in _fields(value).items():
                found[_short(f"{key}.{field}")] += places
        elif key == _MIX:
            continue  # what runs now is one allocation or several, as a whole
        elif isinstance(value, list):
            for part in value:
                for field, places in _fields(part, _PART_IDENTITY).items():
                    found[f"{part[_PART_IDENTITY]}.{field}"] += places
                    found[f"{EVERY}.{field}"] += places
        elif key != identity:
            found[key].append(_Place(item, key))
    return dict(found)


def _short(field: str) -> str:
    """A field as changes name it: the load of a server goes without the word before it."""
    return field.removeprefix(_BEFORE_LOAD) if field.startswith(f"{_BEFORE_LOAD}load.") else field


def _refuse_new_problems(before: System, after: System, change: Change) -> None:
    """Refuse a value that makes no sense; what was wrong before is no fault of the change."""
    known = frozenset(find_problems(before))
    for problem in find_problems(after):
        if problem not in known:
            raise change.error(str(problem))


def _check_name(change: Change, noun: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise _unknown(change, noun, name, known)


def _unknown(change: Change, noun: str, name: str, known: Sequence[str]) -> InputError:
    """An error that names what is like it, and what there is."""
    near = " or ".join(difflib.get_close_matches(name, known, n=2, cutoff=LIKENESS))
    hint = f"; did you mean {near}?" if near else ""
    more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
    shown = ", ".join(known[:NAMES_SHOWN]) or "none"
    return change.error(f"no {noun} is named {name!r}{hint} (known: {shown}{more})")
