"""Finds what objects in files say that may be meant otherwise; it is planned nevertheless."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from inferno_operator.cli.offline.documents import Document
from inferno_operator.cli.offline.manifests import object_name
from inferno_operator.runtime.texts import listed
from inferno_optimizer.caveats import (
    IMPLAUSIBLE,
    cost_problem,
    implausible_loads,
    implausible_numbers,
    priority_problem,
)
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Reason
from inferno_optimizer.validation import UNKNOWN_TYPE, Problem

if TYPE_CHECKING:
    from inferno_operator.resources import Resource

OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""Names of objects, but for two dots or a dot and a hyphen side by side."""

OTHERS_SHOWN = 3
"""Most objects that a line names beside its own."""

Origins = Mapping[tuple[str, str], Document]
"""The objects in files, by their kind and name in `Problem`."""


def place_of(problem: Problem, origins: Origins) -> str:
    """Return the file and the line of the field of a problem; "" if its object is in no file."""
    document = origins.get((problem.kind, problem.name))
    if document is None:
        return ""
    lists = {"model": ("data", problem.part), "service class": ("data", problem.part)}
    within = lists.get(problem.kind, ()) if problem.part else ()
    if problem.kind == "capacity":
        within = "count", problem.name
    return document.place(("spec", *within, *problem.field.split(".")))


def doubts(catalogue: Catalogue, doubtful: Iterable[Problem], origins: Origins) -> Iterator[str]:
    """Yield a line for each doubt, with file and line, object and field.

    Parameters
    ----------
    catalogue
        What the files say.
    doubtful
        Its problems that are no reason to refuse it, and numbers that are hardly meant.
    origins
        Where the objects are; of others the place is left out.
    """
    found = [*doubtful, *_running(catalogue), *_classes(catalogue)]
    place = partial(place_of, origins=origins)
    yield from _lines(_causes(p for p in found if p.reason != IMPLAUSIBLE), place)
    absurd = [problem for problem in found if problem.reason == IMPLAUSIBLE]
    yield from _implausible(catalogue, absurd, place)


def doubts_of_data(catalogue: Catalogue, doubtful: Iterable[Problem], origin: str) -> Iterator[str]:
    """Yield a line for each doubt about a document of SystemData; see `doubts`."""
    system = catalogue.system
    priorities = (priority_problem(c.name, c.priority) for c in system.classes)
    yield from _lines(_causes([*doubtful, *filter(None, priorities)]), lambda _: origin)
    costs = (cost_problem(a.name, a.cost, a.multiplicity) for a in system.accelerators)
    yield from _implausible(catalogue, filter(None, costs), lambda _: origin)


def _causes(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield problems, but no missing count whose type is misspelt where it is counted."""
    problems = list(problems)
    misspelt = [problem.name for problem in problems if problem.reason == UNKNOWN_TYPE]
    for problem in problems:
        is_missing = problem.reason == Reason.UNKNOWN_CAPACITY
        if not (is_missing and any(f" {name}?" in problem.message for name in misspelt)):
            yield problem


def _lines(problems: Iterable[Problem], place: Callable[[Problem], str]) -> Iterator[str]:
    """Yield a line for each problem, one for all objects with an equal one."""
    equal: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems:
        equal.setdefault((problem.kind, problem.field, problem.message), []).append(problem)
    for first, *more in equal.values():
        yield ": ".join(filter(None, (place(first), f"{first}{_same(more)}")))


def _same(problems: Sequence[Problem]) -> str:
    """Return which objects have the same problem, to be said after it; "" if none has."""
    others = listed([problem.name for problem in problems], OTHERS_SHOWN)
    return f"; the same of {others}" if others else ""


def _implausible(
    catalogue: Catalogue, costs: Iterable[Problem], place: Callable[[Problem], str]
) -> Iterator[str]:
    """Yield a line for each cause of numbers that are absurd for their unit, with the first place.

    One cause, such as seconds for ms, makes many numbers wrong.
    """
    system = catalogue.system
    loads = implausible_loads(catalogue, system.servers)
    causes: dict[tuple[str, str], list[Problem]] = {}
    for problem in (*costs, *implausible_numbers(system), *loads):
        supposed = problem.message.partition(" if it is ")[2].partition(",")[0]
        causes.setdefault((problem.kind, supposed), []).append(problem)
    for first, *more in causes.values():
        yield f"{place(first)}: {first}{_same(more)}"


def refused_names(found: "Iterable[tuple[Resource, Document]]") -> Iterator[str]:
    """Yield a line for each object whose name no API server takes."""
    for resource, document in found:
        name = resource.metadata.name
        if not OBJECT_NAME.fullmatch(name):
            place = document.place(("metadata", "name"))
            advice = f"the API server refuses {name!r}; write {object_name(name)!r}"
            yield f"{place}: {resource.kind} {name}: metadata.name: {advice}"


def _running(catalogue: Catalogue) -> Iterator[Problem]:
    """Servers that run on an accelerator that does not exist."""
    for server in catalogue.system.servers:
        for part in server.current.parts:
            if part.replicas > 0 and (
                doubt := catalogue.strange_accelerators.get(part.accelerator)
            ):
                yield Problem("server", server.name, "currentAlloc.accelerator", doubt)


def _classes(catalogue: Catalogue) -> Iterator[Problem]:
    """Classes without targets for the model of a server."""
    served = dict.fromkeys((s.service_class, s.model) for s in catalogue.system.servers)
    for service_class in catalogue.system.classes:
        kind, of = "service class", service_class.name
        for name, model in served:
            is_promised = model in service_class.targets
            if name == service_class.name and model in catalogue.profiles and not is_promised:
                yield Problem(kind, of, "data", catalogue.without_target(service_class, model))
