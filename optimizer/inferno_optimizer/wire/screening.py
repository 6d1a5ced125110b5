"""What another optimizer is asked: only what can be decided, for others may break on the rest."""

from dataclasses import dataclass, replace

from inferno_optimizer.capacity import capacity_use, cards_to_hand_out
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.system import Decision, ServiceClass, Solution, System


@dataclass(frozen=True, slots=True)
class Screening:
    """A system without what makes no sense, and the decisions that follow from that.

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
        prices = {use.type: use.price for use in solution.capacity if use.price is not None}
        capacity = capacity_use(Catalogue(self.asked), decisions, used, prices)
        return replace(solution, decisions=decisions, capacity=capacity)


def screen(system: System) -> Screening:
    """Leave out what has senseless numbers or unknown names.

    The original never ends on performance data that are all 0, and breaks on a server of an
    unknown model. Cards that servers hold for which there is no decision are taken off the
    capacity if the options say so.
    """
    catalogue = Catalogue(system)
    outcomes = {server.name: catalogue.case(server) for server in system.servers}
    decisions = tuple(o for o in outcomes.values() if isinstance(o, Decision))
    usable = {position for positions in catalogue.profiles.values() for position in positions}
    rest = replace(
        system,
        accelerators=tuple(
            a for a in system.accelerators if ("accelerator", a.name) not in catalogue.problems
        ),
        profiles=tuple(p for i, p in enumerate(system.profiles) if i in usable),
        classes=tuple(_usable_part(c, catalogue) for c in system.classes),
        servers=tuple(s for s in system.servers if isinstance(outcomes[s.name], Case)),
        capacity=dict(sorted(cards_to_hand_out(catalogue, decisions).items())),
        held={},
    )
    return Screening(system, rest, decisions)


def _usable_part(service_class: ServiceClass, catalogue: Catalogue) -> ServiceClass:
    problems = catalogue.problems.get(("service class", service_class.name), ())
    senseless = {problem.part for problem in problems}
    targets = {m: t for m, t in service_class.targets.items() if m not in senseless}
    return replace(service_class, targets=targets, priority=service_class.effective_priority)
