"""What another optimizer is asked: without what nobody can decide, in the words that it knows."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count

from inferno_optimizer.capacity import capacity_use, cards_to_hand_out, held_cost
from inferno_optimizer.decisions import size_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision, MarginalValue, Solution
from inferno_optimizer.system import SaturationPolicy, Server, System
from inferno_optimizer.wire.plausibility import Sizes

SUBSTITUTE = SaturationPolicy.PRIORITY_EXHAUSTIVE
"""The policy that the original gets instead of `Hold`, which it does not know."""

_Use = tuple[str, tuple[str, ...]]
"""A model, and the names of those of its accelerators that a server may use."""


@dataclass(frozen=True, slots=True)
class Screening:
    """A system without the servers that no plan can serve, and the decisions for these servers.

    `asked` is the complete system, `system` is the reduced one.
    """

    asked: System
    system: System
    decisions: tuple[Decision, ...]

    def complete(self, solution: Solution) -> Solution:
        """Add the decisions and held cards of the removed servers to a solution of `system`."""
        decided = {d.server: d for d in (*self.decisions, *solution.decisions)}
        decisions = tuple(decided[server.name] for server in self.asked.servers)
        used = {use.type: use.used for use in solution.capacity}
        marginal = {
            use.type: MarginalValue(use.price, use.gain, use.estimated) for use in solution.capacity
        }
        capacity = capacity_use(Catalogue(self.asked), decisions, used, marginal)
        return replace(
            solution,
            decisions=decisions,
            capacity=capacity,
            held_cost=held_cost(self.asked, decisions),
        )


def screen(system: System) -> Screening:
    """Remove servers that no plan can serve, and objects with invalid numbers or unknown names.

    Other optimizers fail on them. The original does not terminate on performance data that
    are all 0 or on a load of 1e30 requests/min, and crashes on a server of an unknown model;
    optimizer-light serves no server at all if a target of one server is unattainable. If the
    options say so, the cards of the removed servers are subtracted from the capacity, so that
    the other optimizer does not use them.
    """
    catalogue = Catalogue(system)
    _, decisions = size_servers(catalogue, system.servers, rates=False)
    left_out = {decision.server for decision in decisions}
    usable = {position for positions in catalogue.profiles.values() for position in positions}
    classes = []
    for c in system.classes:
        problems = catalogue.problems.get(("service class", c.name), ())
        senseless = {problem.part for problem in problems}
        targets = {m: target for m, target in c.targets.items() if m not in senseless}
        classes.append(replace(c, targets=targets, priority=c.effective_priority))
    rest = replace(
        system,
        accelerators=tuple(
            a for a in system.accelerators if ("accelerator", a.name) not in catalogue.problems
        ),
        profiles=tuple(p for i, p in enumerate(system.profiles) if i in usable),
        classes=tuple(classes),
        servers=tuple(s for s in system.servers if s.name not in left_out),
        capacity=dict(sorted(cards_to_hand_out(catalogue, decisions).items())),
        held={},
        held_cost=0.0,
    )
    return Screening(system, rest, tuple(decisions))


def reword(system: System) -> System:
    """State a system in the words of the original optimizer.

    The original decides a server on any accelerator of its model. A server that may not use all
    of them gets a copy of its model that has only the others. The answers name no models. It does
    not know that moves have to pay for themselves, nor what replicas must carry beside the load.
    """
    system = convert_least_rates(system.with_least_replicas())
    options = system.options
    if options.saturation_policy is SaturationPolicy.HOLD:
        options = replace(options, saturation_policy=SUBSTITUTE)
    catalogue = Catalogue(system)
    uses = {server.name: _list_usable(server, catalogue) for server in system.servers}
    copies = _name_copies(uses.values(), catalogue)
    profiles = [
        replace(profile, model=name)
        for (model, accelerators), name in copies.items()
        for profile in system.profiles
        if profile.model == model and profile.accelerator in accelerators
    ]
    classes = []
    for c in system.classes:
        of_copies = {name: c.targets[m] for (m, _), name in copies.items() if m in c.targets}
        classes.append(replace(c, targets={**c.targets, **of_copies}))
    return replace(
        system,
        options=options,
        profiles=(*system.profiles, *profiles),
        classes=tuple(classes),
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


def convert_least_rates(system: System) -> System:
    """The system in which a least rate is a minimum of replicas: as many as carry it now."""
    held = tuple(server for server in system.servers if server.least_rate)
    if not held:
        return system
    sizes = Sizes.of(replace(system, servers=held), is_ours=True)
    fewest = {}
    for server in held:
        share, running = sizes.share(server.name, server.current), server.current.replicas
        # All that run, where it is not known what they carry.
        fewest[server.name] = min(math.ceil(running / share), running) if share > 0 else running
    return replace(
        system,
        servers=tuple(
            replace(s, least_rate=0.0, min_replicas=max(s.min_replicas, fewest.get(s.name, 0)))
            for s in system.servers
        ),
    )


def _list_usable(server: Server, catalogue: Catalogue) -> _Use:
    """What a server may use if nothing pins it: the original knows pins."""
    free = replace(server, keep_accelerator=False)
    profiles = (catalogue.system.profiles[i] for i in catalogue.profiles[server.model])
    allowed = (p.accelerator for p in profiles if not catalogue.exclusion(free, p))
    return server.model, tuple(allowed)


def _name_copies(uses: Iterable[_Use], catalogue: Catalogue) -> Mapping[_Use, str]:
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
