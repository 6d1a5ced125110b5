"""Applies what-if changes to a System.

A change is applied to the JSON document of the system, so that changes use the field names of
the REST API; the changed document is read and checked like any other document.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.changes import EVERY, FieldChange
from inferno_optimizer.suggestions import alternatives, cut
from inferno_optimizer.system import Accelerator, SaturationPolicy, System
from inferno_optimizer.validation import UNMATCHED, find_problems
from inferno_optimizer.wire.codec import decode_system, encode_system

JsonObject = dict[str, Any]


class _Collection(NamedTuple):
    """Where the document has the objects of a kind, and the key that identifies an object."""

    section: str
    items: str
    identity: str
    noun: str


_COLLECTIONS = {
    "accelerator": _Collection("acceleratorData", "accelerators", "name", "accelerator"),
    "capacity": _Collection("capacityData", "count", "type", "type of card"),
    "class": _Collection("serviceClassData", "serviceClasses", "name", "service class"),
    "model": _Collection("modelData", "models", "name", "model"),
    "server": _Collection("serverData", "servers", "name", "server"),
}
_PARTS: Mapping[str, Sequence[str]] = {"modelTargets": ("model",), "models": ("acc", "name")}
"""Lists inside objects: the key that identifies an item, then other keys that are not fields."""

_NEEDED = ("type", "cost")
"""Fields that must be set to add an accelerator."""

_BEFORE_LOAD = "currentAlloc."


class _Slot(NamedTuple):
    """A key of an object in the document."""

    item: JsonObject
    key: str


class WhatIf(NamedTuple):
    """A changed system, and one line for each change that has no effect."""

    system: System
    idle: tuple[str, ...]


def apply_changes(system: System, changes: Iterable[FieldChange]) -> WhatIf:
    """Apply the changes one after the other; the given system is not modified.

    New accelerators are added first, so that any change may refer to them. Raises InputError if a
    change has an unknown name, or a value that has the wrong type or is invalid; the message has
    the change and, for an unknown name, the known ones.
    """
    system, changes = _add_new_accelerators(system, tuple(changes))
    idle = []
    for change in changes:
        document = encode_system(system)["system"]
        if not _edit(document, change, _list_names(system)):
            equal = f"the value is already {change.value}"
            idle.append(f"{change.text}: {equal if change.operator == '=' else 'changes nothing'}")
        system = _read_changed(document, system, change)
    return WhatIf(system, tuple(idle))


def _add_new_accelerators(
    system: System, changes: Sequence[FieldChange]
) -> tuple[System, Sequence[FieldChange]]:
    """Add the accelerators whose type and cost are set; also return the changes still to apply."""
    names = [accelerator.name for accelerator in system.accelerators]
    added: defaultdict[str, dict[str, FieldChange]] = defaultdict(dict)
    for change in changes:
        for name, field in _split_new_accelerator(change, names):
            added[name][field] = change
    for name, given in added.items():
        if missing := [field for field in _NEEDED if field not in given]:
            first = next(iter(given.values()))
            unknown = f"no accelerator is named {cut(name)!r}{alternatives(name, names)}"
            raise first.error(f"{unknown}; to add it, also set its {' and its '.join(missing)}")
    new = tuple(Accelerator(name, given["type"].value, 0.0) for name, given in added.items())
    types = [given["type"] for given in added.values()]
    others = [change for change in changes if change not in types]
    return replace(system, accelerators=(*system.accelerators, *new)), others


def _split_new_accelerator(change: FieldChange, known: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Possible names and fields, if a change sets a field of an accelerator that does not exist."""
    if change.kind != "accelerator" or change.operator != "=" or change.every:
        return []
    splits = list(change.splits())
    if any(name in known for name, _ in splits):
        return []
    return [split for split in splits if split[1] in (*_NEEDED, "multiplicity")]


def _edit(document: JsonObject, change: FieldChange, names: Mapping[str, Sequence[str]]) -> bool:
    """Apply a change to the document in place; return whether the document has changed."""
    records = document["modelData"]["models"]
    if copies := _copy_profiles(records, change, names["accelerator"]):
        different = any(copy not in records for copy in copies)
        records += copies
        return different
    places = _find_slots(document, change, names)
    old = [item[key] for item, key in places]
    for item, key in places:
        item[key] = change.applied_to(item[key])
        if isinstance(item[key], str) and key in names:
            _check_name(change, key, item[key], names[key])
    return old != [item[key] for item, key in places]


def _read_changed(document: JsonObject, before: System, change: FieldChange) -> System:
    """Read the system of a changed document; raise an error if the change makes it invalid.

    Counts of types that no accelerator has, and missing counts, are reported beside the plan.
    """
    try:
        changed = decode_system(document)
    except InputError as error:
        raise change.error(str(error)) from error
    known = frozenset(find_problems(before))
    for problem in find_problems(changed):
        if problem not in known and problem.reason not in UNMATCHED:
            raise change.error(str(problem))
    options = replace(changed.options, time_limit=before.options.time_limit)
    return replace(changed, options=options, held=before.held)  # not part of the document


def _copy_profiles(
    records: Sequence[JsonObject], change: FieldChange, accelerators: Sequence[str]
) -> list[JsonObject]:
    """Performance data copied from one accelerator to another, as in `model.llama.B200=H100`."""
    if change.kind != "model" or change.operator != "=" or change.value not in accelerators:
        return []
    readings = _split_by_names(change, list({record["name"]: None for record in records}))
    for _, target in readings[:1]:
        _check_name(change, "accelerator", target, accelerators)
    return [
        {**record, "acc": target}
        for name, target in readings
        for record in records
        if (record["name"], record["acc"]) == (name, change.value)
    ]


def _list_names(system: System) -> Mapping[str, Sequence[str]]:
    """The valid values of text fields, by key."""
    return {
        "accelerator": [a.name for a in system.accelerators],
        "class": [c.name for c in system.classes],
        "model": list(dict.fromkeys(p.model for p in system.profiles)),
        "saturationPolicy": [str(policy) for policy in SaturationPolicy],
        "type": list(dict.fromkeys((*system.capacity, *(a.type for a in system.accelerators)))),
    }


def _find_slots(
    document: JsonObject, change: FieldChange, names: Mapping[str, Sequence[str]]
) -> Sequence[_Slot]:
    """The places in the document that a change refers to; several if its name is `*`."""
    if change.kind == "optimizer":
        options = _list_fields(document["optimizerData"]["optimizer"])
        field = ".".join(segment.text for segment in change.path[1:])
        _check_name(change, "option", field, list(options))
        return options[field]
    _check_name(change, "kind of object", change.kind, [*_COLLECTIONS, "optimizer"])
    collection = _COLLECTIONS[change.kind]
    items = document[collection.section][collection.items]
    if change.kind == "capacity":
        return _find_counts(items, change, names["type"])
    if change.kind == "model":
        models: defaultdict[str, list[JsonObject]] = defaultdict(list)
        for record in items:  # the document has those of all models in one list
            models[record["name"]].append(record)
        items = [{"name": name, "models": records} for name, records in models.items()]
    return _find_named_slots(items, collection, change)


def _find_counts(
    items: list[JsonObject], change: FieldChange, types: Sequence[str]
) -> Sequence[_Slot]:
    """The counts of a card type; adds a count of 0 if the type is not listed yet."""
    card_type = next((name for name, field in change.splits() if not field), "")
    if change.every and card_type == EVERY:
        return [_Slot(item, "count") for item in items]
    _check_name(change, "type of card", card_type, types)
    if all(item["type"] != card_type for item in items):
        items.append({"type": card_type, "count": 0})
    return [_Slot(item, "count") for item in items if item["type"] == card_type]


def _find_named_slots(
    items: Sequence[JsonObject], collection: _Collection, change: FieldChange
) -> Sequence[_Slot]:
    """The places of a field: of the object with the longest matching name, or of all objects."""
    fields = {item[collection.identity]: _list_fields(item, collection.identity) for item in items}
    readings = _split_by_names(change, list(fields))
    if not readings:
        name = _guess_name(change, fields)
        raise _build_unknown_error(change, collection.noun, name, list(fields))
    readable = [places for name, field in readings if (places := fields[name].get(field))]
    if not readable:
        name, field = readings[0]
        raise _build_unknown_error(
            change, f"field of {collection.noun} {name!r}", field, list(fields[name])
        )
    return list(chain.from_iterable(readable)) if change.every else readable[0]


def _split_by_names(change: FieldChange, names: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Known names with the field that remains of the path; longest first, or all names for `*`."""
    splits = [(name, _shorten(field)) for name, field in change.splits()]
    if change.every:
        return [(name, splits[-1][1]) for name in names]
    known_names = frozenset(names)
    return [(name, field) for name, field in splits if name in known_names]


def _guess_name(change: FieldChange, fields: Mapping[str, Mapping[str, object]]) -> str:
    """The unknown name that a change refers to: the part of its path before a known field."""
    all_fields = {field for of_one in fields.values() for field in of_one}
    splits = [(name, _shorten(field)) for name, field in change.splits()] or [("", "")]
    return next((name for name, field in splits if field in all_fields), splits[-1][0])


def _list_fields(item: JsonObject, *identity: str) -> dict[str, list[_Slot]]:
    """The places inside an object, by the dotted names of their fields.

    Items of a list are found by their names, and all of them by `*`. Only the lists in `_PARTS`
    count: the mix of a current allocation cannot be changed.
    """
    fields: defaultdict[str, list[_Slot]] = defaultdict(list)
    for key, value in item.items():
        if isinstance(value, dict):
            for field, places in _list_fields(value).items():
                fields[_shorten(f"{key}.{field}")] += places
        elif isinstance(value, list):
            for part in value if key in _PARTS else ():
                for field, places in _list_fields(part, *_PARTS[key]).items():
                    fields[f"{part[_PARTS[key][0]]}.{field}"] += places
                    fields[f"{EVERY}.{field}"] += places
        elif key not in identity:
            fields[key].append(_Slot(item, key))
    return dict(fields)


def _shorten(field: str) -> str:
    """A field as changes name it: the load of a server without the prefix `currentAlloc.`."""
    return field.removeprefix(_BEFORE_LOAD) if field.startswith(f"{_BEFORE_LOAD}load.") else field


def _check_name(change: FieldChange, noun: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise _build_unknown_error(change, noun, name, known)


def _build_unknown_error(
    change: FieldChange, noun: str, name: str, known: Sequence[str]
) -> InputError:
    return change.error(f"no {noun} is named {cut(name)!r}{alternatives(name, known)}")
