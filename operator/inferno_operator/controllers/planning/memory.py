"""Calm plans: reductions wait until fewer is enough for some time, and moves pay for themselves.

Plans follow measured loads, which fall and rise again. So a measured Server keeps the most
replicas that any plan of its window gave it on its accelerator, as long as nobody else gets their
cards. And a Server that moves to another accelerator stays there for a while, unless it is not
served there or outgrows the loads by which the move was judged; one with a load entered by
hand, until it has arrived. `Memory` is all that an operator knows from earlier plans.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from inferno_operator.controllers.planning.conversions import list_placements
from inferno_operator.resources import Resource, Server, ServerAllocation
from inferno_operator.resources.observation import only
from inferno_optimizer import system as core
from inferno_optimizer.sizing.moves import outgrows
from inferno_optimizer.solution import Solution
from inferno_optimizer.surplus import kept_replicas, payback_s
from inferno_optimizer.system import System

QUIET = timedelta(minutes=1)
"""How long numbers stay as they are written."""


@dataclass(frozen=True, slots=True)
class PastPlan:
    """The replicas that the targets of a Server took in a plan, where, and when."""

    time: datetime
    place: str
    replicas: int


@dataclass(frozen=True, slots=True)
class RecentPlans:
    """The plans of a Server within its window, the oldest first, and its last move.

    `place` is that of the decision that stands, see `ServerAllocation.place`; `move_time` when that
    became another one, as far as is known; `move_rate` the load for which it did [requests/min],
    after a start of the operator that of the standing decision, 0 if unknown.
    """

    plans: Sequence[PastPlan] = ()
    place: str = ""
    move_time: datetime | None = None
    move_rate: float = 0.0


@dataclass(slots=True)
class Memory:
    """What an operator knows of a namespace from its earlier plans; lost when it ends.

    By uid of the Servers: their plans, when their numbers were written last, and which got their
    first replica, until an optimization has read that. `urgent_optimizers` do not wait for their
    interval.
    """

    plans: dict[str, RecentPlans] = field(default_factory=dict)
    write_times: dict[str, datetime] = field(default_factory=dict)
    woken_servers: set[str] = field(default_factory=set)
    urgent_optimizers: set[str] = field(default_factory=set)

    def note_servers(self, servers: Iterable[Server], now: datetime) -> None:
        """Note where Servers are before a plan, and forget what is too old to matter.

        Of a Server of which nothing is known, the standing decision counts as a plan of now, or
        what runs without one: an operator that has just started does not know since when less is
        enough. When it has moved is in its status.
        """
        known = self.plans
        self.plans = {
            s.metadata.uid: _update_recent(known.get(s.metadata.uid), s, now) for s in servers
        }

    def set_destinations(self, system: System, servers: Iterable[Server]) -> System:
        """Return the system with the destinations of Servers that must not be turned elsewhere now.

        They have not paid for their last move yet and have not outgrown it, or they wake.
        """
        by_name = {server.spec.name: server for server in servers}
        placed = []
        for planned in system.servers:
            server, destination = by_name.get(planned.name), ""
            if server is not None:
                recent = self.plans[server.metadata.uid]
                destination = _find_destination(server, recent, planned)
            placed.append(replace(planned, destination=destination) if destination else planned)
        return replace(system, servers=tuple(placed))

    def note_plan(self, servers: Iterable[Server], solution: Solution, now: datetime) -> None:
        """Note what a plan gives to Servers."""
        allocations = solution.allocations
        for server in servers:
            uid, newest = server.metadata.uid, allocations.get(server.spec.name)
            if newest is not None:
                plan, known = PastPlan(now, newest.place, newest.replicas), self.plans[uid]
                self.plans[uid] = replace(known, plans=(*known.plans, plan))

    def count_fewest_replicas(self, servers: Iterable[Server]) -> dict[str, int]:
        """Return the fewest replicas of each Server on the accelerator of its newest plan."""
        return {
            server.spec.name: _count_fewest(server, self.plans[server.metadata.uid].plans)
            for server in servers
            if self.plans[server.metadata.uid].plans
        }

    def find_moves(
        self, servers: Iterable[Server], solution: Solution, now: datetime
    ) -> dict[str, datetime]:
        """Return when Servers have moved last by uid, if a plan is carried out now."""
        allocations, times = solution.allocations, {}
        for server in servers:
            before, newest = self.plans[server.metadata.uid], allocations.get(server.spec.name)
            moves = newest is not None and _is_move(before.place, newest.place)
            time = now if moves else before.move_time
            if time is not None:
                times[server.metadata.uid] = time
        return times

    def find_recently_written(self, now: datetime) -> frozenset[str]:
        """Return the uids of Servers whose numbers stay, whichever way the clock was set."""
        self.write_times = {u: t for u, t in self.write_times.items() if abs(now - t) < QUIET}
        return frozenset(self.write_times)

    def note_written(self, uids: Iterable[str], now: datetime) -> None:
        """Note whose numbers were written now."""
        self.write_times.update(dict.fromkeys(uids, now))


def find_calmed_servers(resources: Iterable[Resource]) -> list[Server]:
    """Return the Servers whose plans are to be calm: with measured loads, or replicas that move."""
    return [s for s in only(Server, resources) if s.spec.measure or s.names_workloads]


def _find_destination(server: Server, recent: RecentPlans, planned: core.Server) -> str:
    if recent.move_time is None:
        return server.wakes_on if server.spec.measure else ""
    if server.spec.measure is None and _has_arrived(server):
        return ""  # a load that is entered by hand does not turn by itself
    is_outgrown = outgrows(planned.load.arrival_rate, recent.move_rate, planned.load_spread)
    return "" if is_outgrown else recent.place


def _has_arrived(server: Server) -> bool:
    decided, runs = server.spec.desired_alloc, server.spec.current_alloc
    return _list_places(decided) == _list_places(runs)


def _list_places(whole: ServerAllocation | None) -> set[str]:
    """The accelerators that have replicas, or those of both roles."""
    if whole is not None and whole.roles is not None:
        return {whole.place}
    return {placement.accelerator for placement in list_placements(whole)}


def _is_move(before: str, after: str) -> bool:
    """Whether something runs before and after it, on another accelerator or in other roles."""
    return bool(before and after) and before != after


def _update_recent(recent: RecentPlans | None, server: Server, now: datetime) -> RecentPlans:
    standing, window = _find_desired_or_current(server), timedelta(seconds=server.window_seconds)
    payback = timedelta(seconds=payback_s(server.lead_seconds))
    place = standing.place if standing and standing.num_replicas else ""
    if recent is None:
        plans = (PastPlan(now, place, standing.num_replicas),) if standing else ()
        recent = RecentPlans(plans, place, server.status.moved, _rate_of(standing))
    move_time, move_rate = recent.move_time, recent.move_rate
    if _is_move(recent.place, place):
        move_time, move_rate = now, _rate_of(standing)
    is_paid = move_time is None or abs(now - move_time) >= payback
    return RecentPlans(
        tuple(plan for plan in recent.plans if abs(now - plan.time) < window),
        place,
        None if is_paid else move_time,
        move_rate,
    )


def _rate_of(allocation: ServerAllocation | None) -> float:
    return allocation.load.arrival_rate if allocation and allocation.load else 0.0


def _count_fewest(server: Server, plans: Sequence[PastPlan]) -> int:
    standing, newest = _find_desired_or_current(server), plans[-1]
    if server.spec.measure is None:  # what is entered by hand counts at once
        return 0
    if standing is None or standing.mix or standing.place != newest.place:
        return 0
    most = max(plan.replicas for plan in plans if plan.place == newest.place)
    return int(kept_replicas(standing.num_replicas, most))


def _find_desired_or_current(server: Server) -> ServerAllocation | None:
    return server.spec.desired_alloc or server.spec.current_alloc
