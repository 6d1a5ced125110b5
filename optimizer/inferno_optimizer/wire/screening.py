"""What another optimizer is asked: only what can be decided, for others may break on the rest."""

from dataclasses import dataclass, replace

from inferno_optimizer.capacity import capacity_use, cards_to_hand_out
from inferno_optimizer.decisions import size_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Decision, MarginalValue, ServiceClass, Solution, System


@dataclass(frozen=True, slots=True)
class Screening:
    """A system without what no plan can serve, and the decisions for that.

    `asked` is the whole of it, `system` the rest.
    """

    asked: System
    system: System
    decisions: tuple[Decision, ...]

    def complete(self, solution: Solution) -> Solution:
        """The solution of the rest, with the servers that were left out and what they hold."""
        decided = {d.server: d for d in (*self.decisions, *solution.decisions)}
        decisions = tuple(decided[server.name] for server in self.asked.servers)
        used = {use.type: use.used for use in solution.capacity}
        marginal = {use.type: MarginalValue(use.price, use.gain) for use in solution.capacity}
        capacity = capacity_use(Catalogue(self.asked), decisions, used, marginal)
        return replace(solution, decisions=decisions, capacity=capacity)


def screen(system: System) -> Screening:
    """Leave out the servers that no plan can serve, senseless numbers and unknown names.

    Other optimizers do not survive them. The original never ends on performance data that
    are all 0 or on a load of 1e30 requests/min, and breaks on a server of an unknown model;
    optimizer-light serves nobody where a target of one server is out of reach. Cards that
    these servers hold are taken off the capacity if the options say so: others would hand
    them out.
    """
    catalogue = Catalogue(system)
    _, decisions = size_servers(catalogue, system.servers)
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
    )
    return Screening(system, rest, tuple(decisions))


def _usable_part(service_class: ServiceClass, catalogue: Catalogue) -> ServiceClass:
    problems = catalogue.problems.get(("service class", service_class.name), ())
    senseless = {problem.part for problem in problems}
    targets = {m: t for m, t in service_class.targets.items() if m not in senseless}
    return replace(service_class, targets=targets, priority=service_class.effective_priority)
