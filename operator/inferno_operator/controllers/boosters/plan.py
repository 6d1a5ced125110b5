"""What to do about a booster: the children that are, against those that should be; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inferno_operator.controllers.boosters.advice import advice
from inferno_operator.controllers.boosters.booster import Booster
from inferno_operator.controllers.boosters.convert.children import Converted, convert_backends
from inferno_operator.controllers.boosters.convert.context import Place, Problem
from inferno_operator.controllers.boosters.convert.routing import with_best_targets
from inferno_operator.controllers.boosters.differences import is_applied
from inferno_operator.controllers.boosters.retention import is_foreign, kept
from inferno_operator.controllers.boosters.validation import problems
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Kind, Manifest, Reference


@dataclass(frozen=True, slots=True)
class Apply:
    """Write a child; `new` if it is not there."""

    kind: Kind
    manifest: Manifest
    new: bool


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a child that is not wanted any more."""

    reference: Reference


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write, in order, what to take away then, and what stands in the way."""

    applies: tuple[Apply, ...] = ()
    idles: tuple[Apply, ...] = ()
    """Servings that are to have no replica: once the route leads elsewhere."""
    deletes: tuple[Delete, ...] = ()
    problems: tuple[Problem, ...] = ()
    invalid: tuple[Problem, ...] = ()
    """What should be put right in the booster, whether or not it stands in the way."""
    remarks: tuple[str, ...] = ()
    """What is not as asked for and cannot be, though nothing failed."""


Json = dict[str, Any]


def plan(booster: Booster, present: Iterable[Manifest], dialect: Dialect) -> Plan:
    """Compare what is with what should be.

    Parameters
    ----------
    booster
        What should be.
    present
        Objects of its namespace: those it owns, and any others of the names that it needs.
    dialect
        In which API groups.
    """
    there = {_place(child): child for child in present}
    bad, advised = problems(booster), advice(booster, dialect)
    if any(not problem.backend for problem in bad):
        return Plan(problems=bad, invalid=(*bad, *advised))
    converted = _converted(booster, there, dialect, {problem.backend for problem in bad})
    bad += converted.problems
    ours, foreign = _sorted_out(booster, converted.children, there)
    held = {problem.backend for problem in bad}
    wanted, remarks = _wanted(booster, ours, there, dialect, held)
    applies, idles = _applies(with_best_targets(wanted, there, dialect), there, dialect)
    places = {_place(child) for child in converted.children}
    deletes = _superfluous(booster, there, places, held, dialect)
    return Plan(applies, idles, deletes, (*bad, *foreign), (*bad, *advised), remarks)


def _sorted_out(
    booster: Booster, children: Iterable[Json], there: Mapping[Place, Manifest]
) -> tuple[list[Json], list[Problem]]:
    """The children that we may write, and those whose names others have."""
    ours: list[Json] = []
    foreign: list[Problem] = []
    for child in children:
        current = there.get(_place(child))
        if current is not None and is_foreign(booster, current):
            foreign.append(_foreign(current))
        else:
            ours.append(child)
    return ours, foreign


def _wanted(
    booster: Booster,
    children: Iterable[Json],
    there: Mapping[Place, Manifest],
    dialect: Dialect,
    held: set[str],
) -> tuple[list[Json], tuple[str, ...]]:
    """The children as they can be, and remarks on what cannot be as asked for."""
    wanted: list[Json] = []
    remarks: list[str] = []
    for child in children:
        changed, remark = kept(booster, child, there.get(_place(child)), dialect, held)
        wanted.append(changed)
        remarks += remark
    return wanted, tuple(remarks)


def _applies(
    wanted: Iterable[Json], there: Mapping[Place, Manifest], dialect: Dialect
) -> tuple[tuple[Apply, ...], tuple[Apply, ...]]:
    """What differs from what is there; apart from it the servings without replicas from now on."""
    kinds = {kind.kind: kind for kind in dialect.children}
    applies: list[Apply] = []
    idles: list[Apply] = []
    for child in wanted:
        current = there.get(_place(child))
        if current is None or not (is_going(current) or is_applied(child, current)):
            action = Apply(kinds[child["kind"]], child, new=current is None)
            is_idled = not action.new and child["spec"].get("replicas") == 0
            (idles if is_idled else applies).append(action)
    return tuple(applies), tuple(idles)


def is_going(child: Manifest) -> bool:
    """Whether a child is about to be deleted; it is made anew once it is gone."""
    return child["metadata"].get("deletionTimestamp") is not None


def _place(child: Manifest) -> Place:
    return child["kind"], child["metadata"]["name"]


def _converted(
    booster: Booster, there: Mapping[Place, Manifest], dialect: Dialect, bad: set[str]
) -> Converted:
    good = [backend for backend in booster.spec.backends if backend.name not in bad]
    taken = {place for place, child in there.items() if is_foreign(booster, child)}
    standing = {
        backend.name
        for backend in booster.spec.backends
        if (dialect.server.kind, booster.child_name(backend)) in there.keys() - taken
    }
    return convert_backends(booster, good, dialect, standing=standing, taken=taken)


def _foreign(current: Manifest) -> Problem:
    place = " ".join(_place(current))
    return Problem(place, "is there already and belongs to somebody else; delete or rename it")


def _superfluous(
    booster: Booster,
    there: Mapping[Place, Manifest],
    wanted: set[Place],
    held: set[str],
    dialect: Dialect,
) -> tuple[Delete, ...]:
    """Children of ours that nothing wants; a binding goes before its policy."""
    label = dialect.label("backend-name")
    deletes = (
        Delete(Reference.of(kind, child))
        for kind in reversed(dialect.children)
        for (of_kind, name), child in there.items()
        if of_kind == kind.kind
        and (of_kind, name) not in wanted
        and not is_foreign(booster, child)
        and not is_going(child)
        and (child["metadata"].get("labels") or {}).get(label) not in held
    )
    return tuple(deletes)
