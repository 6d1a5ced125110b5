"""The objects of files -> a System; any invalid object is an error.

In a cluster the operator still optimizes the other objects; at a command line the user can
correct the file.
"""
# ruff: noqa: PLC0415 - SystemData does not need the pydantic models of the custom resources

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from inferno_operator.cli.offline.documents import Document
from inferno_operator.cli.offline.doubts import doubts, doubts_of_data, place_of, refused_names
from inferno_operator.cli.offline.manifests import count_others, read_documents
from inferno_optimizer.errors import InputError, InvalidObjectsError, UnsupportedError
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Reason
from inferno_optimizer.suggestions import alternatives, cut
from inferno_optimizer.system import System
from inferno_optimizer.validation import UNMATCHED, Problem
from inferno_optimizer.wire.codec import decode_system, ignored_keys, is_system

if TYPE_CHECKING:
    from inferno_operator.resources import Load, Measure, Resource
    from inferno_operator.resources.parsing import ManifestError

Read = TypeVar("Read")

DANGLING = UNMATCHED | {
    Reason.UNKNOWN_CLASS,
    Reason.UNKNOWN_MODEL,
    Reason.UNKNOWN_ACCELERATOR,
}
"""Problems that are no reason to refuse: the plan tells what follows from them."""

UNKNOWN_SHOWN = 8
"""How many of the unknown fields a refusal tells."""

NO_OPTIMIZER = (
    "there is no Optimizer, so the plan is made without the exact solver (greedily) and with"
    " saturationPolicy Hold; add an Optimizer to choose"
)

NO_SERVER = "there is no Server, so there is nothing to decide"

OnUnknown = Callable[[Sequence[str]], None]
"""Is told of unknown fields, a line each with file, object, field and what is like it."""

Remark = Callable[[Sequence[str]], None]
"""Is told, in a line each, what was assumed because the files do not say it."""


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
    """Return the system that files describe; see `system_of`.

    Parameters
    ----------
    paths
        Files, folders, kustomizations, or `-` for standard input: custom resources, or one
        document (or folder) of SystemData in the form of the REST API.
    on_unknown, remark, doubt
        As of `system_of`.
    namespace
        As of `read_documents`.
    """
    return system_of(read_documents(paths, namespace), on_unknown, remark, doubt=doubt)


def system_of(
    documents: Sequence[Document],
    on_unknown: OnUnknown = refuse_unknown,
    remark: Remark = _ignore,
    loads: "Mapping[str, Load]" = MappingProxyType({}),
    doubt: Remark = _ignore,
) -> System:
    """Return the system that documents describe.

    Parameters
    ----------
    documents
        Custom resources, or one document of SystemData.
    on_unknown
        Called with the unknown fields. Metadata and status are not checked.
    remark
        Called with what was assumed, such as the options without an Optimizer.
    loads
        By spec.name, of Servers that have none.
    doubt
        Called with what may be meant otherwise, such as the name of a class that does not exist.

    Raises
    ------
    InputError
        A file cannot be read, an object has an unknown kind in the API group of the operator, or
        a field is unknown or has an invalid value; the text names the file, or the object and
        the field.
    UnsupportedError
        The system needs a feature that this version does not support.
    """
    system_data = [document for document in documents if is_system(document.content)]
    if not system_data:
        return _system_of_manifests(documents, on_unknown, remark, loads, doubt)
    if len(documents) > 1:
        others = [document for document in documents if document is not system_data[0]]
        raise InputError(
            f"{system_data[0].origin}: SystemData stands alone, but there is {others[0].origin} too"
        )
    return _system_of_data(system_data[0], on_unknown, doubt)


def _system_of_data(document: Document, on_unknown: OnUnknown, doubt: Remark) -> System:
    unknown, nulls = (
        [f"{document.origin}: {key}" for key in keys] for keys in ignored_keys(document.content)
    )
    on_unknown(unknown)
    with _located(document):
        catalogue = Catalogue(decode_system(document.content))
    _refuse_invalid(catalogue.all_problems, lambda _: document.origin)
    dangling = [problem for problem in catalogue.all_problems if problem.reason in DANGLING]
    doubt([*nulls, *doubts_of_data(catalogue, dangling, document.origin)])
    return catalogue.system


def read_resources(
    paths: Iterable[str], on_unknown: OnUnknown = refuse_unknown
) -> "list[Resource]":
    """Return the custom resources in the files, of which there is one at least.

    See `read_system`.
    """
    documents = read_documents(paths)
    resources = resources_of(documents, on_unknown)
    if not resources:
        raise InputError(f"nothing to read: {_nothing_of_ours(documents)}")
    return resources


def resources_of(
    documents: Iterable[Document], on_unknown: OnUnknown = refuse_unknown
) -> "list[Resource]":
    """Return the custom resources among documents; see `system_of`."""
    return [resource for resource, _ in _resources(documents, on_unknown)]


def measures_of(documents: "Sequence[Document]") -> "dict[str, Measure]":
    """Return where the Servers among documents are measured, by spec.name."""
    from inferno_operator.resources import Server
    from inferno_operator.resources.observation import only

    if any(is_system(document.content) for document in documents):
        return {}
    servers = only(Server, resources_of(documents, _ignore))
    return {s.spec.name: s.spec.measure for s in servers if s.spec.measure}


def _resources(
    documents: Iterable[Document], on_unknown: OnUnknown
) -> "list[tuple[Resource, Document]]":
    """Return the custom resources among documents, each with its document."""
    from inferno_operator.resources import parse
    from inferno_operator.resources.parsing import unknown_fields

    ours = [document for document in documents if not _is_of_others(document)]
    unknown = _read_each(ours, lambda found: unknown_fields(_manifest(found)))
    on_unknown(_lines_of_fields(zip(ours, unknown, strict=True)))
    parsed = list(zip(_read_each(ours, lambda found: parse(_manifest(found))), ours, strict=True))
    _refuse_repeated(parsed)
    return parsed


def _read_each(documents: Iterable[Document], read: Callable[[Document], Read]) -> list[Read]:
    """Return what each document has; refuse all in which it cannot be read."""
    results: list[Read] = []
    errors: list[InputError] = []
    for document in documents:
        try:
            with _located(document, ["kind"]):
                results.append(read(document))
        except InputError as error:
            errors.append(error)
    _refuse(errors)
    return results


def _refuse(errors: Sequence[InputError]) -> None:
    """Raise what is wrong, if anything is."""
    if len(errors) > 1:
        raise InvalidObjectsError(errors)
    for error in errors:
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


def _system_of_manifests(
    documents: Sequence[Document],
    on_unknown: OnUnknown,
    remark: Remark,
    loads: "Mapping[str, Load]",
    doubt: Remark,
) -> System:
    from inferno_operator.controllers.planning.snapshot import build_system
    from inferno_operator.resources import Optimizer
    from inferno_operator.resources.caveats import caveats

    parsed = _resources(documents, on_unknown)
    if not parsed:
        raise InputError(f"nothing to optimize: {_nothing_of_ours(documents)}")
    optimizers = [(r.metadata.name, d.origin) for r, d in parsed if isinstance(r, Optimizer)]
    _refuse_namespaces(parsed)
    _refuse_several("Optimizers", optimizers)
    resources = [_with_load(each, loads) for each, _ in parsed]
    snapshot = build_system(resources)
    origins = _origins(parsed)
    problems = [*(problem for _, problem in snapshot.excluded), *snapshot.problems]
    _refuse_invalid(problems, lambda problem: place_of(problem, origins))
    dangling = [problem for problem in problems if problem.reason in DANGLING]
    doubtful = [*dangling, *(found for each in resources for found in caveats(each))]
    found = doubts(Catalogue(snapshot.system), doubtful, origins)
    doubt([*_empty_lines(document for _, document in parsed), *found, *refused_names(parsed)])
    if not snapshot.system.servers:
        remark([NO_SERVER])
    elif not optimizers:
        remark([NO_OPTIMIZER])
    return snapshot.system


def _origins(parsed: "Iterable[tuple[Resource, Document]]") -> dict[tuple[str, str], Document]:
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


def _with_load(resource: "Resource", loads: "Mapping[str, Load]") -> "Resource":
    """A Server without a load with that of its name; all others as they are."""
    from inferno_operator.controllers.measurement.load import set_load
    from inferno_operator.resources import Server

    if not isinstance(resource, Server) or resource.spec.name not in loads:
        return resource
    current = resource.spec.current_alloc
    has_load = current is not None and current.load is not None
    return resource if has_load else set_load(resource, loads[resource.spec.name])


def _nothing_of_ours(documents: Sequence[Document]) -> str:
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


def _lines_of_fields(found: "Iterable[tuple[Document, Sequence[ManifestError]]]") -> list[str]:
    """Fields of all objects; an equal one of several objects of a kind is told once."""
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


def _empty_lines(documents: Iterable[Document]) -> list[str]:
    """Fields without a value; an equal one of several objects of a kind is told once."""
    from inferno_operator.resources.parsing import empty_fields

    return _lines_of_fields((document, empty_fields(_manifest(document))) for document in documents)


def _manifest(document: Document) -> Mapping[str, object]:
    """Return the object in a document; refuse it if it is not of one of our kinds."""
    from inferno_operator.resources import SYSTEM_RESOURCES

    content = document.content
    if not isinstance(content, Mapping) or not content.get("kind"):
        raise InputError("neither a Kubernetes object (it has no kind) nor SystemData")
    kinds = [resource.kind for resource in SYSTEM_RESOURCES]
    if content["kind"] not in kinds:
        kind = str(content["kind"])
        raise InputError(f"no kind is named {cut(kind)!r}{alternatives(kind, kinds)}")
    return content


@contextmanager
def _located(document: Document, field: Sequence[str] = ()) -> Iterator[None]:
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
    """Refuse more than one of some names, and tell the first place of each."""
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
