"""The objects of files -> a System; any invalid object is an error.

In a cluster the operator still optimizes the other objects; at a command line the user can
correct the file. What may be meant otherwise is told, and planned nevertheless.
"""
# ruff: noqa: PLC0415 - SystemData does not need the pydantic models of the custom resources

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from inferno_operator.cli.offline.documents import Document
from inferno_operator.cli.offline.manifests import count_others, object_name, read_documents
from inferno_operator.runtime.texts import join_names
from inferno_optimizer.caveats import (
    IMPLAUSIBLE,
    cost_problem,
    find_reversed_priorities,
    implausible_loads,
    implausible_numbers,
    priority_problem,
)
from inferno_optimizer.errors import InputError, InvalidObjectsError, UnsupportedError
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Reason
from inferno_optimizer.suggestions import alternatives, cut
from inferno_optimizer.system import System
from inferno_optimizer.validation import UNKNOWN_TYPE, UNMATCHED, Problem
from inferno_optimizer.wire.codec import decode_system, ignored_keys, is_system

if TYPE_CHECKING:
    from inferno_operator.resources import Load, Measure, Resource
    from inferno_operator.resources.parsing import ManifestError

Read = TypeVar("Read")

# Problems that are no reason to refuse: the plan tells what follows from them.
DANGLING = UNMATCHED | {
    Reason.UNKNOWN_CLASS,
    Reason.UNKNOWN_MODEL,
    Reason.UNKNOWN_ACCELERATOR,
}

UNKNOWN_SHOWN = 8  # how many of the unknown fields a refusal tells
NO_OPTIMIZER = (
    "there is no Optimizer, so the plan is made without the exact solver (greedily) and with"
    " saturationPolicy Hold; add an Optimizer to choose"
)

NO_SERVER = "there is no Server, so there is nothing to decide"

# Is told of unknown fields, a line each with file, object, field and what is like it.
OnUnknown = Callable[[Sequence[str]], None]

# Is told, in a line each, what was assumed because the files do not say it.
Remark = Callable[[Sequence[str]], None]


def _ignore(remarks: Sequence[str]) -> None:
    """Do nothing."""


def refuse_unknown(fields: Sequence[str]) -> None:
    """Refuse files with unknown fields; a misspelt field would silently have no effect."""
    if fields:
        left_out = len(fields) - UNKNOWN_SHOWN
        more = f" (and {left_out} more)" if left_out > 0 else ""
        raise InputError(f"{'; '.join(fields[:UNKNOWN_SHOWN])}{more}; to ignore it: --lenient")


def read_system(
    paths: Iterable[str],
    on_unknown: OnUnknown = refuse_unknown,
    remark: Remark = _ignore,
    doubt: Remark = _ignore,
    namespace: str = "",
) -> System:
    """Return the system that files describe; see `parse_system`.

    `paths`: Files, folders, kustomizations, or `-` for standard input: custom resources, or one
    document (or folder) of SystemData in the form of the REST API; `on_unknown`, `remark`,
    `doubt`: as of `parse_system`; `namespace`: as of `read_documents`.
    """
    return parse_system(read_documents(paths, namespace), on_unknown, remark, doubt=doubt)


def parse_system(
    documents: Sequence[Document],
    on_unknown: OnUnknown = refuse_unknown,
    remark: Remark = _ignore,
    loads: "Mapping[str, Load]" = MappingProxyType({}),
    doubt: Remark = _ignore,
) -> System:
    """Return the system that documents describe.

    `documents`: custom resources, or one document of SystemData; `on_unknown`: called with the
    unknown fields. Metadata and status are not checked; `remark`: called with what was assumed,
    such as the options without an Optimizer; `loads`: by spec.name, of Servers that have none;
    `doubt`: called with what may be meant otherwise, such as the name of a class that does not
    exist. Raises InputError if a file cannot be read, an object has an unknown kind in the API
    group of the operator, or a field is unknown or has an invalid value; the text names the
    file, or the object and the field; UnsupportedError if the system needs a feature that this
    version does not support.
    """
    system_data = [document for document in documents if is_system(document.content)]
    if not system_data:
        return _parse_manifests(documents, on_unknown, remark, loads, doubt)
    if len(documents) > 1:
        others = [document for document in documents if document is not system_data[0]]
        raise InputError(
            f"{system_data[0].origin}: SystemData stands alone, but there is {others[0].origin} too"
        )
    return _parse_system_data(system_data[0], on_unknown, doubt)


def _parse_system_data(document: Document, on_unknown: OnUnknown, doubt: Remark) -> System:
    unknown, nulls = (
        [f"{document.origin}: {key}" for key in keys] for keys in ignored_keys(document.content)
    )
    on_unknown(unknown)
    with _add_place_to_errors(document):
        catalogue = Catalogue(decode_system(document.content))
    _refuse_invalid(catalogue.all_problems, lambda _: document.origin)
    dangling = [problem for problem in catalogue.all_problems if problem.reason in DANGLING]
    doubt([*nulls, *list_data_doubts(catalogue, dangling, document.origin)])
    return catalogue.system


def read_resources(
    paths: Iterable[str], on_unknown: OnUnknown = refuse_unknown
) -> "list[Resource]":
    """Return the custom resources in the files, of which there is one at least.

    See `read_system`.
    """
    documents = read_documents(paths)
    resources = parse_resources(documents, on_unknown)
    if not resources:
        raise InputError(f"nothing to read: {_explain_nothing(documents)}")
    return resources


def parse_resources(
    documents: Iterable[Document], on_unknown: OnUnknown = refuse_unknown
) -> "list[Resource]":
    """Return the custom resources among documents; see `parse_system`."""
    return [resource for resource, _ in _parse_each(documents, on_unknown)]


def list_measures(documents: "Sequence[Document]") -> "dict[str, Measure]":
    """Return where the Servers among documents are measured, by spec.name."""
    from inferno_operator.resources import Server
    from inferno_operator.resources.observation import only

    if any(is_system(document.content) for document in documents):
        return {}
    servers = only(Server, parse_resources(documents, _ignore))
    return {s.spec.name: s.spec.measure for s in servers if s.spec.measure}


def _parse_each(
    documents: Iterable[Document], on_unknown: OnUnknown
) -> "list[tuple[Resource, Document]]":
    """Return the custom resources among documents, each with its document."""
    from inferno_operator.resources import parse
    from inferno_operator.resources.parsing import unknown_fields

    ours = [document for document in documents if not _is_of_others(document)]
    unknown = _read_each(ours, lambda found: unknown_fields(_require_manifest(found)))
    on_unknown(_list_fields(zip(ours, unknown, strict=True)))
    parsed = list(
        zip(_read_each(ours, lambda found: parse(_require_manifest(found))), ours, strict=True)
    )
    _refuse_repeated(parsed)
    return parsed


def _read_each(documents: Iterable[Document], read: Callable[[Document], Read]) -> list[Read]:
    """Return what each document has; refuse all in which it cannot be read."""
    results: list[Read] = []
    errors: list[InputError] = []
    for document in documents:
        try:
            with _add_place_to_errors(document, ["kind"]):
                results.append(read(document))
        except InputError as error:
            errors.append(error)
    _refuse(errors)
    return results


def _refuse(errors: Sequence[InputError]) -> None:
    """Refuse what has errors; one that more than a few objects have is told once, with a count."""
    causes: dict[tuple[str, str], list[InputError]] = {}
    for error in errors:
        _, thing, problem = (*str(error).split(": ", 2), "", "")[:3]
        cause = thing.partition(" ")[0], NUMBERS_AND_NAMES.sub("", problem)
        causes.setdefault(cause, []).append(error)
    told: list[InputError] = []
    for first, *more in causes.values():
        if len(more) >= OTHERS_SHOWN:
            told.append(InputError(f"{first}; and so in {len(more)} more objects"))
        else:
            told += (first, *more)
    if len(told) > 1:
        raise InvalidObjectsError(told)
    for error in told:
        raise error


def _refuse_repeated(found: "Sequence[tuple[Resource, Document]]") -> None:
    """Refuse an object that is given twice, such as by a file that is named twice."""
    origins: dict[tuple[str, str, str], str] = {}
    for resource, document in found:
        name, origin = resource.metadata.name, document.origin
        first = origins.get(key := (resource.kind, resource.metadata.namespace, name))
        if name and first is not None:
            advice = "name the file once" if first == origin else f"it is at {first}, too"
            raise InputError(f"{origin}: {resource.kind} {name} is given twice: {advice}")
        origins[key] = origin


def _parse_manifests(
    documents: Sequence[Document],
    on_unknown: OnUnknown,
    remark: Remark,
    loads: "Mapping[str, Load]",
    doubt: Remark,
) -> System:
    from inferno_operator.controllers.planning.snapshot import build_system
    from inferno_operator.resources import Optimizer
    from inferno_operator.resources.caveats import caveats

    parsed = _parse_each(documents, on_unknown)
    if not parsed:
        raise InputError(f"nothing to optimize: {_explain_nothing(documents)}")
    optimizers = [(r.metadata.name, d.origin) for r, d in parsed if isinstance(r, Optimizer)]
    _refuse_namespaces(parsed)
    _refuse_several("Optimizers", optimizers)
    resources = [_set_missing_load(each, loads) for each, _ in parsed]
    snapshot = build_system(resources)
    origins = _find_origins(parsed)
    problems = [*(problem for _, problem in snapshot.excluded), *snapshot.problems]
    _refuse_invalid(problems, lambda problem: find_place(problem, origins))
    dangling = [problem for problem in problems if problem.reason in DANGLING]
    doubtful = [
        *dangling,
        *(found for each in resources for found in caveats(each)),
        *_find_empty_models(resources),
    ]
    found = list_doubts(Catalogue(snapshot.system), doubtful, origins)
    doubt(
        [
            *_list_empty_fields(document for _, document in parsed),
            *found,
            *list_refused_names(parsed),
        ]
    )
    if not snapshot.system.servers:
        remark([NO_SERVER])
    elif not optimizers:
        remark([NO_OPTIMIZER])
    return snapshot.system


def _find_origins(parsed: "Iterable[tuple[Resource, Document]]") -> dict[tuple[str, str], Document]:
    """Where each object stands, and each count of cards; by kind and name, as problems say them."""
    from inferno_operator.controllers.planning.snapshot import KINDS, Named
    from inferno_operator.resources import Capacity

    origins: dict[tuple[str, str], Document] = {}
    for resource, document in parsed:
        if isinstance(resource, Named):
            origins[KINDS[resource.kind], resource.spec.name] = document
        if isinstance(resource, Capacity):
            origins |= {("capacity", count.type): document for count in resource.spec.count}
    return origins


def _set_missing_load(resource: "Resource", loads: "Mapping[str, Load]") -> "Resource":
    """A Server without a load with that of its name; all others as they are."""
    from inferno_operator.controllers.measurement.load import set_load
    from inferno_operator.resources import Server

    if not isinstance(resource, Server) or resource.spec.name not in loads:
        return resource
    current = resource.spec.current_alloc
    has_load = current is not None and current.load is not None
    return resource if has_load else set_load(resource, loads[resource.spec.name])


def _explain_nothing(documents: Sequence[Document]) -> str:
    if not documents:
        return "there is no object"
    advice = "give Servers, and the Models, Accelerators and classes that they name"
    return f"{count_others(documents)}; {advice}"


def _is_of_others(document: Document) -> bool:
    """Return whether a document is of a foreign kind, such as a Namespace or a ModelBooster.

    One of our kinds in an unknown API group is a mistake, and is refused later.
    """
    from inferno_operator.resources import GROUP, SYSTEM_RESOURCES
    from inferno_operator.resources.dialects import DIALECTS

    content = document.content
    if not isinstance(content, Mapping) or not isinstance(content.get("apiVersion"), str):
        return False
    group, kind = content["apiVersion"].rpartition("/")[0], content.get("kind")
    boosters = [(dialect.booster.group, dialect.booster.kind) for dialect in DIALECTS.values()]
    ours = [resource.kind for resource in SYSTEM_RESOURCES]
    return group != GROUP and (kind not in ours or (group, kind) in boosters)


def _list_fields(found: "Iterable[tuple[Document, Sequence[ManifestError]]]") -> list[str]:
    by_place: dict[tuple[str, str, str], list[tuple[Document, ManifestError]]] = {}
    for document, fields in found:
        for field in fields:
            equal = (field.kind, re.sub(r"\[\d+\]", "", field.path), field.problem)
            by_place.setdefault(equal, []).append((document, field))
    return [
        f"{document.place(field.steps)}: {field}"
        + (f"; and so in {len(more)} more places" if more else "")
        for (document, field), *more in by_place.values()
    ]


def _list_empty_fields(documents: Iterable[Document]) -> list[str]:
    """Fields without a value; an equal one of several objects of a kind is told once."""
    from inferno_operator.resources.parsing import empty_fields

    return _list_fields(
        (document, empty_fields(_require_manifest(document))) for document in documents
    )


def _require_manifest(document: Document) -> Mapping[str, object]:
    from inferno_operator.resources import SYSTEM_RESOURCES

    content = document.content
    if not isinstance(content, Mapping) or not content.get("kind"):
        whys: dict[type, str] = {dict: "it has no kind", list: "it is a list"}
        why = whys.get(type(content), "it is text")
        raise InputError(
            f"neither a Kubernetes object ({why}) nor SystemData; `inferno sample` prints a fleet"
        )
    kinds = [resource.kind for resource in SYSTEM_RESOURCES]
    if content["kind"] not in kinds:
        kind = str(content["kind"])
        raise InputError(f"no kind is named {cut(kind)!r}{alternatives(kind, kinds)}")
    return content


@contextmanager
def _add_place_to_errors(document: Document, field: Sequence[str] = ()) -> Iterator[None]:
    """Put the place of an error in a document before its message: of `field` if it names none."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{document.place(error.steps or field)}: {error}") from error
    except UnsupportedError as error:
        raise UnsupportedError(f"{document.origin}: {error}") from error


def _refuse_namespaces(parsed: "Sequence[tuple[Resource, Document]]") -> None:
    """Refuse objects of several namespaces; "" stands for the one that is called default."""
    if {resource.metadata.namespace for resource, _ in parsed} != {"", "default"}:
        named = [(r.metadata.namespace or "none", d.origin) for r, d in parsed]
        _refuse_several("namespaces", named, "; choose one: --namespace")


def _refuse_several(what: str, named: Iterable[tuple[str, str]], advice: str = "") -> None:
    first: dict[str, str] = {}
    for name, origin in named:
        if name:
            first.setdefault(name, origin)
    if len(first) > 1:
        given = ", ".join(f"{cut(name)} ({origin})" for name, origin in first.items())
        raise InputError(f"several {what}, where one system has one: {given}{advice}")


def _refuse_invalid(problems: Sequence[Problem], place: Callable[[Problem], str]) -> None:
    """Refuse invalid objects; a server with an unknown name is not refused, but unserved.

    `place` tells the file, and the line if it is known.
    """
    invalid = [problem for problem in problems if problem.reason not in DANGLING]
    _refuse([InputError(": ".join(filter(None, (place(each), str(each))))) for each in invalid])


# What differs between equal errors of several objects.
NUMBERS_AND_NAMES = re.compile(r"'[^']*'|[-+]?\d[\d.e+-]*")

# Names of objects, but for two dots or a dot and a hyphen side by side.
OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")

OTHERS_SHOWN = 3  # most objects that a line names beside its own, or that have lines of their own

# The objects in files, by their kind and name in `Problem`.
Origins = Mapping[tuple[str, str], Document]


def find_place(problem: Problem, origins: Origins) -> str:
    """Return the file and the line of the field of a problem; "" if its object is in no file."""
    document = origins.get((problem.kind, problem.name))
    if document is None:
        return ""
    lists = {"model": ("data", problem.part), "service class": ("data", problem.part)}
    within = lists.get(problem.kind, ()) if problem.part else ()
    if problem.kind == "capacity":
        within = "count", problem.name
    return document.place(("spec", *within, *problem.field.split(".")))


def list_doubts(
    catalogue: Catalogue, doubtful: Iterable[Problem], origins: Origins
) -> Iterator[str]:
    """Yield a line for each doubt, with file and line, object and field.

    `catalogue`: what the files say; `doubtful`: its problems that are no reason to refuse it,
    and numbers that are hardly meant; `origins`: where the objects are; of others the place is
    left out.
    """
    found = [
        *doubtful,
        *_find_unknown_running(catalogue),
        *_find_classes_without_target(catalogue),
        *find_reversed_priorities(catalogue.system),
    ]
    place = partial(find_place, origins=origins)
    strange = [problem for problem in found if problem.reason != IMPLAUSIBLE]
    yield from _list_strange(catalogue.system, strange, place)
    yield from _list_implausible(catalogue, found, place)


def list_data_doubts(
    catalogue: Catalogue, doubtful: Iterable[Problem], origin: str
) -> Iterator[str]:
    """Yield a line for each doubt about a document of SystemData; see `list_doubts`."""
    system = catalogue.system
    priorities = (priority_problem(c.name, c.priority) for c in system.classes)
    strange = [*doubtful, *filter(None, priorities), *find_reversed_priorities(system)]
    yield from _list_strange(system, strange, lambda _: origin)
    costs = (cost_problem(a.name, a.cost, a.multiplicity) for a in system.accelerators)
    yield from _list_implausible(catalogue, filter(None, costs), lambda _: origin)


def _list_strange(
    system: System, problems: Iterable[Problem], place: Callable[[Problem], str]
) -> Iterator[str]:
    """Yield a line for each problem; where there is no object of a kind, one for all its names."""
    problems = list(_leave_out_consequences(problems))
    parts = [profile.accelerator for profile in system.profiles]
    parts += [role.accelerator for role in system.roles]
    running = [part.accelerator for server in system.servers for part in server.current.parts]
    types = [problem.name for problem in problems if problem.reason == Reason.UNKNOWN_CAPACITY]
    kinds = {
        Reason.UNKNOWN_CLASS: (system.classes, "class", [s.service_class for s in system.servers]),
        Reason.UNKNOWN_MODEL: (parts, "model", [server.model for server in system.servers]),
        Reason.UNKNOWN_ACCELERATOR: (system.accelerators, "accelerator", [*parts, *running]),
        Reason.UNKNOWN_CAPACITY: (system.capacity, "capacity", types),
    }
    absent = {reason: named for reason, (given, *named) in kinds.items() if not given}
    for reason, (kind, names) in absent.items():
        if first := next((each for each in problems if each.reason == reason), None):
            wanted = join_names(sorted({*filter(None, names)}), OTHERS_SHOWN)
            yield ": ".join(filter(None, (place(first), f"there is no {kind}: add {wanted}")))
    yield from _list_lines((each for each in problems if each.reason not in absent), place)


def _leave_out_consequences(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield problems, but none of what is misspelt or empty where it is defined."""
    problems = list(problems)
    marks: dict[str, list[str]] = {
        Reason.UNKNOWN_CAPACITY: [f" {p.name}?" for p in problems if p.reason == UNKNOWN_TYPE],
        Reason.UNKNOWN_MODEL: [
            f" {cut(p.name)!r}" for p in problems if p.kind == "model" and p.field == "data"
        ],
    }
    for problem in problems:
        if not any(mark in problem.message for mark in marks.get(problem.reason, ())):
            yield problem


def _list_lines(problems: Iterable[Problem], place: Callable[[Problem], str]) -> Iterator[str]:
    equal: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems:
        equal.setdefault((problem.kind, problem.field, problem.message), []).append(problem)
    for first, *more in equal.values():
        yield ": ".join(filter(None, (place(first), f"{first}{_name_others(more)}")))


def _name_others(problems: Sequence[Problem]) -> str:
    """Return which objects have the same problem, to be said after it; "" if none has."""
    others = join_names([problem.name for problem in problems], OTHERS_SHOWN)
    return f"; the same of {others}" if others else ""


def _list_implausible(
    catalogue: Catalogue, found: Iterable[Problem], place: Callable[[Problem], str]
) -> Iterator[str]:
    """Yield a line for each cause of numbers that are absurd for their unit, with the first place.

    One cause, such as seconds for ms, makes many numbers wrong. What replicas carry is no measure
    where something is wrong with the performance of their model; `found` has that.
    """
    system, found = catalogue.system, list(found)
    absurd = [*(p for p in found if p.reason == IMPLAUSIBLE), *implausible_numbers(system)]
    doubted = {problem.name for problem in (*found, *absurd) if problem.kind == "model"}
    loads = implausible_loads(catalogue, [s for s in system.servers if s.model not in doubted])
    causes: dict[tuple[str, str], list[Problem]] = {}
    for problem in (*absurd, *loads):
        supposed = problem.message.partition(" if it is ")[2].partition(",")[0]
        causes.setdefault((problem.kind, supposed), []).append(problem)
    for first, *more in causes.values():
        yield f"{place(first)}: {first}{_name_others(more)}"


def list_refused_names(found: "Iterable[tuple[Resource, Document]]") -> Iterator[str]:
    """Yield a line for each object whose name no API server takes."""
    for resource, document in found:
        name = resource.metadata.name
        if not OBJECT_NAME.fullmatch(name):
            place = document.place(("metadata", "name"))
            advice = f"the API server refuses {name!r}; write {object_name(name)!r}"
            yield f"{place}: {resource.kind} {name}: metadata.name: {advice}"


def _find_unknown_running(catalogue: Catalogue) -> Iterator[Problem]:
    for server in catalogue.system.servers:
        for part in server.current.parts:
            if part.replicas > 0 and (
                doubt := catalogue.strange_accelerators.get(part.accelerator)
            ):
                field, reason = "currentAlloc.accelerator", Reason.UNKNOWN_ACCELERATOR
                yield Problem("server", server.name, field, doubt, reason)


def _find_empty_models(resources: "Iterable[Resource]") -> Iterator[Problem]:
    from inferno_operator.resources import Model
    from inferno_operator.resources.observation import only

    for model in only(Model, resources):
        if not model.spec.data:
            message = "is empty: give performance data, such as `inferno catalogue estimate` prints"
            yield Problem("model", model.spec.name, "data", message)


def _find_classes_without_target(catalogue: Catalogue) -> Iterator[Problem]:
    served = dict.fromkeys((s.service_class, s.model) for s in catalogue.system.servers)
    for service_class in catalogue.system.classes:
        kind, of = "service class", service_class.name
        for name, model in served:
            is_promised = model in service_class.targets
            if name == service_class.name and model in catalogue.profiles and not is_promised:
                yield Problem(kind, of, "data", catalogue.without_target(service_class, model))
