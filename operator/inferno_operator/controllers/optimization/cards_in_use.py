"""Accelerators whose cards were changed while replicas run on them; pure.

The cards of a replica that runs do not become others because a spec says so. If what runs does not
fit into the capacity with the new type or number, that is a mistake, of which no other Server may
lose a replica: plans count the cards as before until it fits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from inferno_operator.resources import Accelerator
from inferno_optimizer import system as core
from inferno_optimizer.capacity import cards_of_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import System
from inferno_optimizer.validation import Problem

CARDS_CHANGED = "CardsChanged"
"""The reason of an Accelerator whose change is not taken."""


def still_counted(
    system: System, resources: Iterable[Accelerator], left_out: Iterable[core.Server]
) -> Mapping[str, core.Accelerator]:
    """Return the accelerators that are to be counted as before, by name.

    Parameters
    ----------
    system
        The system with all accelerators as their specs have them now.
    resources
        Its accelerators, with what they were counted as.
    left_out
        Servers that run and are not of the system.
    """
    before = dict(_changed(system, resources))
    if not before or system.options.unlimited:
        return {}
    servers, catalogue = (*system.servers, *left_out), Catalogue(system)
    runs_on = {part.accelerator for s in servers for part in s.current.parts if part.replicas > 0}
    used = cards_of_servers(catalogue, servers)
    types = {a.type for a in system.accelerators if a.name in before.keys() & runs_on}
    return before if any(used[t] > system.capacity[t] for t in types) else {}


def _changed(
    system: System, resources: Iterable[Accelerator]
) -> Iterator[tuple[str, core.Accelerator]]:
    """Yield the accelerators with other cards than before, of types that both have a count."""
    now = {accelerator.name: accelerator for accelerator in system.accelerators}
    for resource in resources:
        status, accelerator = resource.status, now[resource.spec.name]
        before = replace(accelerator, type=status.type, multiplicity=status.multiplicity)
        if before != accelerator and {before.type, accelerator.type} <= system.capacity.keys():
            yield accelerator.name, before


def with_cards(system: System, counted: Mapping[str, core.Accelerator]) -> System:
    """Return the system with other accelerators in place of those of the same name."""
    return replace(system, accelerators=tuple(counted.get(a.name, a) for a in system.accelerators))


def problems_of(system: System, counted: Mapping[str, core.Accelerator]) -> Iterator[Problem]:
    """Yield a problem for each accelerator of the system that is counted as before."""
    for accelerator in system.accelerators:
        before = counted.get(accelerator.name)
        if before is not None:
            message = (
                f"it was {_cards(before)} and is {_cards(accelerator)} now, and what runs does not"
                f" fit into the Capacity then: plans count it as before; set it back, or correct"
                f" the Capacity"
            )
            yield Problem("accelerator", accelerator.name, "type", message, CARDS_CHANGED)


def _cards(accelerator: core.Accelerator) -> str:
    return f"{accelerator.multiplicity} x {accelerator.type}"
