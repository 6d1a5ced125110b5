"""Removes from a system what cannot be decided, because other optimizers may fail on it."""

from dataclasses import dataclass, replace

from inferno_optimizer.capacity import capacity_use, cards_to_hand_out, held_cost
from inferno_optimizer.decisions import size_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision, MarginalValue, Solution
from inferno_optimizer.system import ServiceClass, System


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
    rest = replace(
        system,
        accelerators=tuple(
            a for a in system.accelerators if ("accelerator", a.name) not in catalogue.problems
        ),
        profiles=tuple(p for i, p in enumerate(system.profiles) if i in usable),
        classes=tuple(_usable_part(c, catalogue) for c in system.classes),
        servers=tuple(s for s in system.servers if s.name not in left_out),
        capacity=dict(sorted(cards_to_hand_out(catalogue, decisions).items())),
        held={},
        held_cost=0.0,
    )
    return Screening(system, rest, tuple(decisions))


def _usable_part(service_class: ServiceClass, catalogue: Catalogue) -> ServiceClass:
    problems = catalogue.problems.get(("service class", service_class.name), ())
    senseless = {problem.part for problem in problems}
    targets = {m: t for m, t in service_class.targets.items() if m not in senseless}
    return replace(service_class, targets=targets, priority=service_class.effective_priority)
