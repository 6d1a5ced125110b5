"""Solve a system so that the replicas fit on nodes, each with all its cards on one node.

A solver counts cards by type. If its plan does not fit on the nodes, it solves again with less:
without replicas that are larger than any node, and with fewer cards of the types that are left
in pieces too small. Fewer cards may cost other servers theirs, and not help: so of all plans, the
one is taken that serves most of the important servers on the nodes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inferno_operator.controllers.planning.ports import SystemOptimizer
from inferno_operator.resources import Resource, Server
from inferno_operator.resources.observation import only
from inferno_operator.resources.workload_kinds import kind_of_workload
from inferno_optimizer.placement import Demand, Node, ServerAccelerator, most_cards, unplaced
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import Allocation, System
from inferno_optimizer.system import Server as CoreServer

ROUNDS = 4
"""Most times that a system is solved."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A solution, and what of it fits on no node, or was left out for that; one line each."""

    solution: Solution
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes that servers may use; none if they are not counted.

    `spanning` has the servers and accelerators whose replicas are several pods, on one node or
    several.
    """

    nodes: Sequence[Node] = ()
    spanning: frozenset[ServerAccelerator] = field(default_factory=frozenset)


def find_spanning(resources: Iterable[Resource]) -> frozenset[ServerAccelerator]:
    """Return the servers and accelerators whose replicas may be several pods."""
    return frozenset(key for server in only(Server, resources) for key in _find_spanning_of(server))


def _find_spanning_of(server: Server) -> Iterator[ServerAccelerator]:
    for workload in server.spec.workloads:
        if not kind_of_workload(workload).is_one_pod:
            yield server.spec.name, workload.accelerator
    if server.spec.model_booster is not None:
        for backend in server.spec.model_booster.backends:
            yield server.spec.name, backend.accelerator


async def solve_on_nodes(system: System, where: Nodes, optimizer: SystemOptimizer) -> Placed:
    """Solve a system, again with less while replicas find no node.

    Without nodes, or without limits, the first solution is the answer.
    """
    solution = await optimizer.optimize(system)
    if not where.nodes or system.options.unlimited:
        return Placed(solution)
    fit = _Fit(system, where)
    attempts = [fit.attempt(solution)]
    while attempts[-1].missing and len(attempts) < ROUNDS:
        fit.cut(attempts[-1])
        attempts.append(fit.attempt(await optimizer.optimize(fit.system)))
    best = max(reversed(attempts), key=fit.rank)
    return Placed(fit.explain(best.solution), tuple(best.list_problems()))


def has_room_on_nodes(system: System, where: Nodes, solution: Solution) -> bool:
    """Whether all replicas of a solution find a node."""
    if not where.nodes or system.options.unlimited:
        return True
    return not _Fit(system, where).attempt(solution).missing


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A solution, its replicas that find no node, and cards by type that its solver did not get."""

    solution: Solution
    missing: Mapping[ServerAccelerator, int]
    left_out: Mapping[str, int]

    def list_problems(self) -> Iterator[str]:
        """Yield what fits on no node, and which cards were left out for that."""
        for (server, accelerator), count in sorted(self.missing.items()):
            yield f"server {server}: {count} replicas on {accelerator} fit on no node"
        for card_type, count in sorted(self.left_out.items()):
            yield f"{count} x {card_type} are left out: replicas found no node for them"


class _Fit:
    """A system that gets less from round to round, so that its plan fits on the nodes."""

    def __init__(self, system: System, where: Nodes) -> None:
        self.system = system
        self._catalogue = Catalogue(system)
        self._servers = {server.name: server for server in system.servers}
        self._where = where
        self._nodes = [_remove_strangers(node, system) for node in where.nodes]
        self._largest = most_cards(self._nodes)
        self._priorities = sorted({c.effective_priority for c in system.classes})
        self._too_large: set[tuple[str, str]] = set()
        """Models and accelerators whose replicas are larger than any node."""
        self._left_out: Counter[str] = Counter()
        """Cards by type that the solver does not get."""

    def attempt(self, solution: Solution) -> _Attempt:
        """Return a solution of the present system with its replicas that find no node."""
        missing = unplaced(self._nodes, list(self._demands(solution)))
        return _Attempt(solution, missing, dict(self._left_out))

    def rank(self, attempt: _Attempt) -> tuple[tuple[int, ...], int, float]:
        """Return what to have most of: servers on the nodes, by priority; then a low cost."""
        lacking = {server for server, _ in attempt.missing}
        served = Counter(
            self._priority(decision)
            for decision in attempt.solution.decisions
            if decision.reason is Reason.ALLOCATED and decision.server not in lacking
        )
        levels = tuple(served[priority] for priority in self._priorities)
        return levels, -sum(attempt.missing.values()), -attempt.solution.cost

    def _demands(self, solution: Solution) -> Iterator[Demand]:
        """Yield what is to run, the most important servers first; undecided ones stay."""
        in_order = sorted(solution.decisions, key=lambda d: (d.reason.decided, self._priority(d)))
        for decision in in_order:
            server = self._servers[decision.server]
            stays = server.current if not decision.reason.decided else Allocation()
            for part in (decision.allocation or stays).parts:
                if part.replicas > 0 and part.accelerator in self._catalogue.accelerators:
                    yield self._demand(server, part)

    def _priority(self, decision: Decision) -> int:
        return self._catalogue.priority(self._servers[decision.server].service_class)

    def _demand(self, server: CoreServer, part: Allocation) -> Demand:
        key = server.name, part.accelerator
        card_type, cards = self._catalogue.cards_per_replica(server.model, part.accelerator)
        if key in self._where.spanning:
            return Demand(key, card_type, 1, part.replicas * cards)
        return Demand(key, card_type, cards, part.replicas)

    def cut(self, attempt: _Attempt) -> None:
        """Take from the system what made replicas find no node."""
        placed = Counter(self.system.held)
        lacking: Counter[str] = Counter()
        for demand in self._demands(attempt.solution):
            placed[demand.type] += demand.replicas * demand.cards
            server, accelerator = demand.key
            if demand.key not in attempt.missing:
                continue
            if demand.cards > self._largest.get(demand.type, 0):
                self._too_large.add((self._servers[server].model, accelerator))
            else:
                lacking[demand.type] += attempt.missing[demand.key] * demand.cards
        capacity = dict(self.system.capacity)
        for card_type, count in lacking.items():
            capacity[card_type] = max(placed[card_type] - count, 0)
        self._left_out += lacking
        profiles = tuple(
            p for p in self.system.profiles if (p.model, p.accelerator) not in self._too_large
        )
        self.system = replace(self.system, capacity=capacity, profiles=profiles)

    def explain(self, solution: Solution) -> Solution:
        """Return a solution whose decisions name the nodes where these are the obstacle."""
        models = {name: server.model for name, server in self._servers.items()}
        why: dict[str, str] = {}
        for model, accelerator in sorted(self._too_large):
            card_type, cards = self._catalogue.cards_per_replica(model, accelerator)
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


def _remove_strangers(node: Node, system: System) -> Node:
    """Return a node without the cards of servers that are not part of the system: they stay."""
    names = {server.name for server in system.servers}
    strangers = sum(count for (server, _), count in node.held.items() if server not in names)
    return replace(node, cards=max(node.cards - strangers, 0))
