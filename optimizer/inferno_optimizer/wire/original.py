"""Rewords a system for the original optimizer, which knows fewer rules than ours."""

import math
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
from inferno_optimizer.wire.sizes import Sizes

SUBSTITUTE = SaturationPolicy.PRIORITY_EXHAUSTIVE
"""The policy that the original gets instead of `Hold`, which it does not know."""

_Use = tuple[str, tuple[str, ...]]
"""A model, and the names of those of its accelerators that a server may use."""


def reworded(system: System) -> System:
    """State a system in the words of the original optimizer.

    The original decides a server on any accelerator of its model. A server that may not use all
    of them gets a copy of its model that has only the others. The answers name no models. It does
    not know that moves have to pay for themselves, nor what replicas must carry beside the load.
    """
    system = in_numbers(system.with_least_replicas())
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


def in_numbers(system: System) -> System:
    """The system in which a least rate is a minimum of replicas: as many as carry it now."""
    held = tuple(server for server in system.servers if server.least_rate)
    if not held:
        return system
    sizes = Sizes.of(replace(system, servers=held), is_ours=True)
    fewest = {server.name: _least_number(server, sizes) for server in held}
    return replace(
        system,
        servers=tuple(
            replace(s, least_rate=0.0, min_replicas=max(s.min_replicas, fewest.get(s.name, 0)))
            for s in system.servers
        ),
    )


def _least_number(server: Server, sizes: Sizes) -> int:
    """How many of the replicas that run carry the least rate; all where that is not known."""
    share = sizes.share(server.name, server.current)
    running = server.current.replicas
    return min(math.ceil(running / share), running) if share > 0 else running


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
