"""Where objects in files say what may be meant otherwise; the plan is made nevertheless."""

from collections.abc import Iterable, Iterator, Mapping

from inferno_optimizer.caveats import priority_warning
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import System
from inferno_optimizer.validation import Problem

Origins = Mapping[tuple[str, str], str]
"""The places of the objects in files, by their kind and name in `Problem`."""


def doubts(system: System, dangling: Iterable[Problem], origins: Origins) -> Iterator[str]:
    """Yield a line for each doubt, with file and line, object and field.

    Parameters
    ----------
    system
        What the files say.
    dangling
        Its problems that are no reason to refuse it.
    origins
        Where the objects are; of others nothing is said.
    """
    catalogue = Catalogue(system)
    for problem in dangling:
        if origin := origins.get((problem.kind, problem.name)):
            yield f"{origin}: {problem}"
    for of, text in (*_running(catalogue), *_classes(catalogue)):
        if origin := origins.get(of):
            yield f"{origin}: {of[0]} {of[1]!r}: {text}"


def _running(catalogue: Catalogue) -> Iterator[tuple[tuple[str, str], str]]:
    """Servers that run on an accelerator that does not exist."""
    for server in catalogue.system.servers:
        for part in server.current.parts:
            if part.replicas > 0 and (told := catalogue.strange_accelerators.get(part.accelerator)):
                yield ("server", server.name), f"currentAlloc.accelerator: {told}"


def _classes(catalogue: Catalogue) -> Iterator[tuple[tuple[str, str], str]]:
    """Classes without targets for the model of a server, or with a strange priority."""
    served = dict.fromkeys((s.service_class, s.model) for s in catalogue.system.servers)
    for service_class in catalogue.system.classes:
        of = ("service class", service_class.name)
        if warning := priority_warning(service_class.priority):
            yield of, warning
        for name, model in served:
            is_promised = model in service_class.targets
            if name == service_class.name and model in catalogue.profiles and not is_promised:
                yield of, f"data: {catalogue.without_target(service_class, model)}"
