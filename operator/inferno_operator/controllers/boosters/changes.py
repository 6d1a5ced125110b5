"""Compare the children that a booster has with those that it should have; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inferno_operator.controllers.boosters.booster import Booster
from inferno_operator.controllers.boosters.children import (
    Converted,
    convert_backends,
    with_best_targets,
)
from inferno_operator.controllers.boosters.conversion import BoosterProblem, ChildPlace
from inferno_operator.controllers.boosters.retention import (
    Decider,
    find_deciders,
    is_foreign,
    with_preserved_fields,
)
from inferno_operator.controllers.boosters.validation import advice, problems
from inferno_operator.resources import Server
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Kind, Manifest, Reference


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply a child; `new` if it does not exist."""

    kind: Kind
    manifest: Manifest
    new: bool


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a child that is not wanted any more."""

    reference: Reference


@dataclass(frozen=True, slots=True)
class ChildWrites:
    """Writes, in order, deletions after them, and problems."""

    applies: tuple[Apply, ...] = ()
    scale_downs: tuple[Apply, ...] = ()
    """Servings to scale to zero, after `applies` removed them from the route."""
    deletes: tuple[Delete, ...] = ()
    problems: tuple[BoosterProblem, ...] = ()
    """Problems because of which a child is not created or updated."""
    invalid: tuple[BoosterProblem, ...] = ()
    """All invalid fields of the booster, including those without effect on the children."""
    remarks: tuple[str, ...] = ()
    """Fields that cannot be changed as requested, although no write failed."""


Json = dict[str, Any]


def decide(
    booster: Booster,
    present: Iterable[Manifest],
    dialect: Dialect,
    servers: Iterable[Server] = (),
) -> ChildWrites:
    """Plan the writes for a booster.

    Parameters
    ----------
    booster
        The booster.
    present
        The objects that it owns, and other objects with the names of its children.
    dialect
        The dialect of the booster.
    servers
        The Servers of its namespace.
    """
    existing = {_place(child): child for child in present}
    bad, advised = problems(booster), advice(booster, dialect)
    if any(not problem.backend for problem in bad):
        return ChildWrites(problems=bad, invalid=(*bad, *advised))
    converted = _converted(booster, existing, dialect, {problem.backend for problem in bad})
    bad += converted.problems
    writable, foreign = _sorted_out(booster, converted.children, existing)
    held = {problem.backend for problem in bad}
    deciders = find_deciders(booster, servers, dialect)
    wanted, remarks = _wanted(booster, writable, existing, dialect, held, deciders)
    applies, scale_downs = _applies(with_best_targets(wanted, existing, dialect), existing, dialect)
    places = {_place(child) for child in converted.children}
    deletes = _superfluous(booster, existing, places, held, dialect)
    return ChildWrites(applies, scale_downs, deletes, (*bad, *foreign), (*bad, *advised), remarks)


def _sorted_out(
    booster: Booster, children: Iterable[Json], existing: Mapping[ChildPlace, Manifest]
) -> tuple[list[Json], list[BoosterProblem]]:
    """Return the children that may be written, and a problem for each name in use."""
    writable: list[Json] = []
    foreign: list[BoosterProblem] = []
    for child in children:
        current = existing.get(_place(child))
        if current is not None and is_foreign(booster, current):
            foreign.append(_foreign(current))
        else:
            writable.append(child)
    return writable, foreign


def _wanted(
    booster: Booster,
    children: Iterable[Json],
    existing: Mapping[ChildPlace, Manifest],
    dialect: Dialect,
    held: set[str],
    deciders: Mapping[str, Decider],
) -> tuple[list[Json], tuple[str, ...]]:
    """Return the children to write, and remarks on fields that cannot be as requested."""
    wanted: list[Json] = []
    remarks: list[str] = []
    for child in children:
        current = existing.get(_place(child))
        changed, remark = with_preserved_fields(booster, child, current, dialect, held, deciders)
        wanted.append(changed)
        remarks += remark
    return wanted, tuple(remarks)


def _applies(
    wanted: Iterable[Json], existing: Mapping[ChildPlace, Manifest], dialect: Dialect
) -> tuple[tuple[Apply, ...], tuple[Apply, ...]]:
    """Return the children that differ from the existing ones; apart, those to scale to zero."""
    kinds = {kind.kind: kind for kind in dialect.children}
    applies: list[Apply] = []
    scale_downs: list[Apply] = []
    for child in wanted:
        current = existing.get(_place(child))
        if current is None or not (is_terminating(current) or is_applied(child, current)):
            action = Apply(kinds[child["kind"]], child, new=current is None)
            is_idled = not action.new and child["spec"].get("replicas") == 0
            (scale_downs if is_idled else applies).append(action)
    return tuple(applies), tuple(scale_downs)


def is_terminating(child: Manifest) -> bool:
    """Whether a child is being deleted; it is created again after that."""
    return child["metadata"].get("deletionTimestamp") is not None


def _place(child: Manifest) -> ChildPlace:
    return child["kind"], child["metadata"]["name"]


def _converted(
    booster: Booster, existing: Mapping[ChildPlace, Manifest], dialect: Dialect, bad: set[str]
) -> Converted:
    good = [backend for backend in booster.spec.backends if backend.name not in bad]
    taken = {place for place, child in existing.items() if is_foreign(booster, child)}
    standing = {
        backend.name
        for backend in booster.spec.backends
        if (dialect.server.kind, booster.child_name(backend)) in existing.keys() - taken
    }
    return convert_backends(booster, good, dialect, standing=standing, taken=taken)


def _foreign(current: Manifest) -> BoosterProblem:
    place = " ".join(_place(current))
    return BoosterProblem(place, "already exists and has another owner; delete or rename it")


def _superfluous(
    booster: Booster,
    existing: Mapping[ChildPlace, Manifest],
    wanted: set[ChildPlace],
    held: set[str],
    dialect: Dialect,
) -> tuple[Delete, ...]:
    """Return the deletions of children that are not wanted; bindings before their policies."""
    label = dialect.label("backend-name")
    deletes = (
        Delete(Reference.of(kind, child))
        for kind in reversed(dialect.children)
        for (of_kind, name), child in existing.items()
        if of_kind == kind.kind
        and (of_kind, name) not in wanted
        and not is_foreign(booster, child)
        and not is_terminating(child)
        and (child["metadata"].get("labels") or {}).get(label) not in held
    )
    return tuple(deletes)


def holds(wanted: object, current: object) -> bool:
    """Whether a value has all wanted fields; fields added by others or the API are ignored.

    Lists are compared item by item, so an added item is a difference.
    """
    if isinstance(wanted, Mapping):
        return isinstance(current, Mapping) and all(
            key in current and holds(value, current[key]) for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(current, list | tuple)
            and len(wanted) == len(current)
            and all(map(holds, wanted, current))
        )
    return wanted == current


def is_applied(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Whether an object has the labels, the owner and the spec of a manifest.

    A field that was removed from the manifest changes its revision label.
    """
    wanted_metadata, metadata = wanted["metadata"], current["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return (
        holds(wanted_metadata["labels"], metadata.get("labels"))
        and any(holds(wanted_metadata["ownerReferences"][0], owner) for owner in owners)
        and holds(wanted["spec"], current.get("spec"))
    )
