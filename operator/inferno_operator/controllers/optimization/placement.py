"""Solve a system so that the replicas fit on nodes, each with all its cards on one node.

A solver counts cards by type. If its plan does not fit on the nodes, it solves again with less:
without replicas that are larger than any node, and with fewer cards of the types that are left
in pieces too small.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inferno_operator.controllers.optimization.ports import Optimizer
from inferno_operator.resources import Resource, Server
from inferno_optimizer.placement import Demand, Key, Node, most_cards, unplaced
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Allocation, Decision, PerformanceProfile, Solution, System
from inferno_optimizer.system import Server as CoreServer

ROUNDS = 4
"""Most times that a system is solved."""

ONE_POD = frozenset({"Deployment", "ReplicaSet", "StatefulSet"})
"""Kinds of workloads whose replicas are one pod, so that their cards are on one node."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A solution, and what of it fits on no node, or was left out for that; one line each."""

    solution: Solution
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes that servers may use.

    Parameters
    ----------
    nodes
        The nodes; none if they are not counted.
    spanning
        Servers and accelerators whose replicas are several pods, on one node or several.
    """

    nodes: Sequence[Node] = ()
    spanning: frozenset[Key] = field(default_factory=frozenset)


def spanning(resources: Iterable[Resource]) -> frozenset[Key]:
    """Return the servers and accelerators whose replicas may be several pods."""
    return frozenset(
        key for resource in resources if isinstance(resource, Server) for key in _spanning(resource)
    )


def _spanning(server: Server) -> Iterator[Key]:
    for workload in server.spec.workloads:
        if workload.kind not in ONE_POD:
            yield server.spec.name, workload.accelerator
    if server.spec.model_booster is not None:
        for backend in server.spec.model_booster.backends:
            yield server.spec.name, backend.accelerator


async def solve_on_nodes(system: System, where: Nodes, optimizer: Optimizer) -> Placed:
    """Solve a system, again with less while replicas find no node.

    Parameters
    ----------
    system
        What to solve.
    where
        The nodes; without nodes, or without limits, the first solution is the answer.
    optimizer
        What solves.
    """
    solution = await optimizer.optimize(system)
    if not where.nodes or system.options.unlimited:
        return Placed(solution)
    fit = _Fit(system, where)
    missing = fit.missing(solution)
    for _ in range(ROUNDS - 1):
        if not missing:
            break
        fit.cut(solution, missing)
        solution = await optimizer.optimize(fit.system)
        missing = fit.missing(solution)
    return Placed(fit.explained(solution), tuple(fit.problems(missing)))


class _Fit:
    """A system that gets less from round to round, so that its plan fits on the nodes."""

    def __init__(self, system: System, where: Nodes) -> None:
        self.system = system
        self._catalogue = Catalogue(system)
        self._where = where
        self._nodes = [_without_strangers(node, system) for node in where.nodes]
        self._largest = most_cards(self._nodes)
        self._too_large: set[tuple[str, str]] = set()
        """Models and accelerators whose replicas are larger than any node."""
        self._left_out: Counter[str] = Counter()
        """Cards by type that the solver does not get."""

    def missing(self, solution: Solution) -> Mapping[Key, int]:
        """Return the replicas of a solution that find no node."""
        return unplaced(self._nodes, list(self._demands(solution)))

    def _demands(self, solution: Solution) -> Iterator[Demand]:
        """Yield what is to run, the most important servers first; undecided ones stay."""
        servers = {server.name: server for server in self.system.servers}
        decided = sorted(solution.decisions, key=lambda d: self._rank(d, servers[d.server]))
        for decision in decided:
            server = servers[decision.server]
            stays = server.current if not decision.reason.decided else Allocation()
            for part in (decision.allocation or stays).parts:
                if part.replicas > 0 and part.accelerator in self._catalogue.accelerators:
                    yield self._demand(server, part)

    def _rank(self, decision: Decision, server: CoreServer) -> tuple[bool, int]:
        found = self._catalogue.classes.get(server.service_class)
        return decision.reason.decided, found.effective_priority if found else 0

    def _demand(self, server: CoreServer, part: Allocation) -> Demand:
        key = server.name, part.accelerator
        card_type, cards = self._replica(server.model, part.accelerator)
        if key in self._where.spanning:
            return Demand(key, card_type, 1, part.replicas * cards)
        return Demand(key, card_type, cards, part.replicas)

    def _replica(self, model: str, accelerator: str) -> tuple[str, int]:
        """Return the type and the number of the cards of a replica."""
        found = self._catalogue.system.accelerators[self._catalogue.accelerators[accelerator]]
        count = self._catalogue.accelerators_per_replica(model, accelerator)
        return found.type, count * max(found.multiplicity, 1)

    def cut(self, solution: Solution, missing: Mapping[Key, int]) -> None:
        """Take from the system what made replicas find no node."""
        models = {server.name: server.model for server in self.system.servers}
        lacking: Counter[str] = Counter()
        for (server, accelerator), count in missing.items():
            card_type, cards = self._replica(models[server], accelerator)
            if (server, accelerator) in self._where.spanning:
                lacking[card_type] += count
            elif cards > self._largest.get(card_type, 0):
                self._too_large.add((models[server], accelerator))
            else:
                lacking[card_type] += count * cards
        placed = Counter(self.system.held)
        for demand in self._demands(solution):
            placed[demand.type] += demand.replicas * demand.cards
        capacity = dict(self.system.capacity)
        for card_type, count in lacking.items():
            before = capacity.get(card_type, 0)
            capacity[card_type] = min(max(placed[card_type] - count, 0), before)
            self._left_out[card_type] += before - capacity[card_type]
        profiles = tuple(filter(self._fits, self.system.profiles))
        self.system = replace(self.system, capacity=capacity, profiles=profiles)

    def _fits(self, profile: PerformanceProfile) -> bool:
        return (profile.model, profile.accelerator) not in self._too_large

    def explained(self, solution: Solution) -> Solution:
        """Return a solution whose decisions name the nodes where these are the obstacle."""
        models = {server.name: server.model for server in self.system.servers}
        why: dict[str, str] = {}
        for model, accelerator in sorted(self._too_large):
            card_type, cards = self._replica(model, accelerator)
            why[model] = (
                f"a replica on {accelerator} takes {cards} x {card_type} on one node, and the"
                f" largest has {self._largest.get(card_type, 0)}"
            )
        decisions = tuple(
            replace(decision, message=f"{why[models[decision.server]]}; {decision.message}")
            if decision.allocation is None and models[decision.server] in why
            else decision
            for decision in solution.decisions
        )
        return replace(solution, decisions=decisions)

    def problems(self, missing: Mapping[Key, int]) -> Iterator[str]:
        """Yield what fits on no node, and which cards were left out for that."""
        for (server, accelerator), count in sorted(missing.items()):
            yield f"server {server}: {count} replicas on {accelerator} fit on no node"
        for card_type, count in sorted(self._left_out.items()):
            yield f"{count} x {card_type} are not used: they are in pieces too small on the nodes"


def _without_strangers(node: Node, system: System) -> Node:
    """Return a node without the cards of servers that are not part of the system: they stay."""
    names = {server.name for server in system.servers}
    strangers = sum(count for (server, _), count in node.held.items() if server not in names)
    return replace(node, cards=max(node.cards - strangers, 0))
