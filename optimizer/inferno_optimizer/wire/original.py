"""Rewords a system for the original optimizer, which knows fewer rules than ours."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count

from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import (
    PerformanceProfile,
    SaturationPolicy,
    Server,
    ServiceClass,
    System,
)

SUBSTITUTE = SaturationPolicy.PRIORITY_EXHAUSTIVE
"""The policy that the original gets instead of `Hold`, which it does not know."""

_Use = tuple[str, tuple[str, ...]]
"""A model, and the names of those of its accelerators that a server may use."""


def reworded(system: System) -> System:
    """State a system in the words of the original optimizer.

    The original decides a server on any accelerator of its model. A server that may not use all
    of them gets a copy of its model that has only the others. The answers name no models. It does
    not know that moves have to pay for themselves.
    """
    options = system.options
    if options.saturation_policy is SaturationPolicy.HOLD:
        options = replace(options, saturation_policy=SUBSTITUTE)
    catalogue = Catalogue(system)
    uses = {server.name: _use(server, catalogue) for server in system.servers}
    copies = _names_of_copies(uses.values(), catalogue)
    return replace(
        system,
        options=options,
        profiles=(*system.profiles, *_profiles(system, copies)),
        classes=tuple(_with_targets(c, copies) for c in system.classes),
        servers=tuple(
            replace(
                server,
                model=copies.get(uses[server.name], server.model),
                destination="",
                load_spread=0.0,
            )
            for server in system.servers
        ),
    )


def _use(server: Server, catalogue: Catalogue) -> _Use:
    """What a server may use if nothing pins it: the original knows pins."""
    free = replace(server, keep_accelerator=False)
    profiles = (catalogue.system.profiles[i] for i in catalogue.profiles[server.model])
    allowed = (p.accelerator for p in profiles if not catalogue.exclusion(free, p))
    return server.model, tuple(allowed)


def _names_of_copies(uses: Iterable[_Use], catalogue: Catalogue) -> Mapping[_Use, str]:
    """New names for the models of which not all accelerators may be used."""
    taken = set(catalogue.profiles)
    copies: dict[_Use, str] = {}
    for model, accelerators in uses:
        is_part = len(accelerators) < len(catalogue.profiles[model])
        if is_part and (model, accelerators) not in copies:
            name = next(name for n in count(1) if (name := f"{model}-{n}") not in taken)
            copies[model, accelerators] = name
            taken.add(name)
    return copies


def _profiles(system: System, copies: Mapping[_Use, str]) -> Iterator[PerformanceProfile]:
    for (model, accelerators), name in copies.items():
        for profile in system.profiles:
            if profile.model == model and profile.accelerator in accelerators:
                yield replace(profile, model=name)


def _with_targets(service_class: ServiceClass, copies: Mapping[_Use, str]) -> ServiceClass:
    targets = service_class.targets
    more = {name: targets[model] for (model, _), name in copies.items() if model in targets}
    return replace(service_class, targets={**targets, **more})
