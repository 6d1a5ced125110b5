"""Policies that know the whole load beforehand, and what an ideal autoscaler would cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.optimize import optimize
from inferno_optimizer.replay.fleet import ReplayFleet, set_loads, size_epochs
from inferno_optimizer.replay.policy import Seen, Setting
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.system import Allocation
from inferno_optimizer.units import SECONDS_PER_HOUR


class StaticPeak:
    """The replicas at home for the largest load of the trace, all the time.

    A server whose targets are out of reach at home has the replicas that carry its rate.
    """

    def __init__(self, setting: Setting) -> None:
        servers = np.arange(len(setting.home))
        self._wanted = setting.fleet.least.copy()
        for steps, sized in size_epochs(setting.fleet, setting.trace):
            highest = setting.trace.rate[steps].max(axis=0)
            needed = sized.replicas_carrying(highest)
            self._wanted = np.maximum(self._wanted, needed[servers, setting.home])

    def __call__(self, _: Seen) -> IntArray:
        """Replicas at home."""
        return self._wanted


class Clairvoyant:
    """The cheapest replicas that meet the targets in the next step, which it knows.

    Each server is on the accelerator that is the cheapest for its load. Where there are too few
    cards for that, it is the plan of the optimizer for this load.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._place, self._count = find_cheapest(setting.fleet, setting.trace)
        self._planned = np.zeros(setting.fleet.shape, dtype=np.int64)
        self._planned_for = np.zeros(len(setting.home))

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas of each server on each accelerator."""
        fleet, trace = self._setting.fleet, self._setting.trace
        step = min(round(seen.time_s / trace.step_s), trace.steps - 1)
        wanted = fleet.at_home(self._count[step], self._place[step])
        if (fleet.used_cards(wanted) <= fleet.capacity).all():
            return wanted
        if (trace.rate[step] != self._planned_for).any():
            self._planned, self._planned_for = plan_step(fleet, trace, step), trace.rate[step]
        return self._planned


def find_cheapest(fleet: ReplayFleet, trace: Trace) -> tuple[IntArray, IntArray]:
    """Accelerator and replicas of least cost in each step, as if there were cards without end.

    Arrays have the shape (steps, servers).
    """
    place = np.zeros(trace.rate.shape, dtype=np.int64)
    count = np.zeros(trace.rate.shape, dtype=np.int64)
    servers = np.arange(len(fleet.servers))
    for step, (needed, cost) in enumerate(_price_steps(fleet, trace)):
        place[step] = cost.argmin(axis=1)
        count[step] = np.maximum(needed[servers, place[step]], 0)
    return place, count


def find_best_homes(fleet: ReplayFleet, trace: Trace) -> IntArray:
    """The accelerator of each server that alone would cost least over a trace.

    Whoever plans this by hand counts the cards: important servers choose first, among the types
    that have cards left for most of their peak.
    """
    cost, peak = np.zeros(fleet.shape), np.zeros(fleet.shape, dtype=np.int64)
    for needed, step_cost in _price_steps(fleet, trace):
        cost += step_cost
        peak = np.maximum(peak, needed)
    home: IntArray = cost.argmin(axis=1)
    if fleet.system.options.unlimited:
        return home
    free = fleet.capacity.copy()
    for server in np.argsort([case.priority for case in fleet.cases], kind="stable"):
        room = free[fleet.card_type] // np.maximum(fleet.cards[server], 1)
        share = np.minimum(room / np.maximum(peak[server], 1), 1.0)
        share = np.where(np.isfinite(cost[server]), share, -1.0)
        home[server] = np.where(share == share.max(), cost[server], np.inf).argmin()
        kind, cards = fleet.card_type[home[server]], fleet.cards[server, home[server]]
        free[kind] -= cards * min(peak[server, home[server]], room[home[server]])
    return home


def _price_steps(fleet: ReplayFleet, trace: Trace) -> Iterator[tuple[IntArray, FloatArray]]:
    """Replicas that meet the targets in each step, and their cost [cents/hour]."""
    for steps, sized in size_epochs(fleet, trace):
        able = sized.max_rate > 0
        for step in range(steps.start, steps.stop):
            needed = sized.replicas_for(trace.rate[step])
            yield needed, np.where(able, needed * fleet.unit_cost, np.inf)


def plan_step(fleet: ReplayFleet, trace: Trace, step: int) -> IntArray:
    """The replicas of the optimizer's plan for the load of a step, from nothing."""
    system = set_loads(fleet.system, trace.rate[step], trace.lengths[step])
    servers = tuple(
        replace(server, current=Allocation(load=server.load)) for server in system.servers
    )
    return build_allocation_matrix(fleet, optimize(replace(system, servers=servers)).allocations)


def build_allocation_matrix(fleet: ReplayFleet, allocations: Mapping[str, Allocation]) -> IntArray:
    """Allocations by name of server as a matrix of replicas."""
    places = {name: place for place, name in enumerate(fleet.accelerators)}
    matrix = np.zeros(fleet.shape, dtype=np.int64)
    for row, server in enumerate(fleet.servers):
        allocation = allocations.get(server.name)
        for part in allocation.parts if allocation else ():
            if part.replicas > 0:
                matrix[row, places[part.accelerator]] = part.replicas
    return matrix


@dataclass(frozen=True, slots=True)
class FloorOfTrace:
    """The least cost that meets all targets in each step of a trace, without any lead time.

    Attributes
    ----------
    servers, types
        Names, in the order of the arrays.
    hours
        Length of the trace.
    cost
        Least cost of each server [cents]. No limit of cards is counted, so that no plan with one
        accelerator for each server costs less.
    replicas, most_replicas
        Their mean and their largest number.
    accelerators
        For each server, the accelerators with their shares of the time, the largest first.
    cards, most_cards
        Mean and largest number of cards by type that this takes.
    capacity
        Cards by type that there are.
    """

    servers: tuple[str, ...]
    types: tuple[str, ...]
    hours: float
    cost: FloatArray
    replicas: FloatArray
    most_replicas: FloatArray
    accelerators: tuple[tuple[tuple[str, float], ...], ...]
    cards: FloatArray
    most_cards: FloatArray
    capacity: FloatArray


def find_floor(fleet: ReplayFleet, trace: Trace) -> FloorOfTrace:
    """The floor of a fleet under a load."""
    place, count = find_cheapest(fleet, trace)
    hours = trace.seconds / SECONDS_PER_HOUR
    servers = np.arange(len(fleet.servers))
    cost = fleet.unit_cost[servers, place] * count
    cards = np.zeros((trace.steps, len(fleet.types)))
    used = fleet.cards[servers, place] * count
    for kind in range(len(fleet.types)):
        cards[:, kind] = np.where(fleet.card_type[place] == kind, used, 0).sum(axis=1)
    return FloorOfTrace(
        servers=tuple(server.name for server in fleet.servers),
        types=fleet.types,
        hours=hours,
        cost=cost.sum(axis=0) * trace.step_s / SECONDS_PER_HOUR,
        replicas=count.mean(axis=0),
        most_replicas=count.max(axis=0).astype(np.float64),
        accelerators=tuple(
            _share_times(fleet, *column) for column in zip(place.T, count.T, strict=True)
        ),
        cards=cards.mean(axis=0),
        most_cards=cards.max(axis=0),
        capacity=fleet.capacity.astype(np.float64),
    )


def _share_times(
    fleet: ReplayFleet, place: FloatArray, count: FloatArray
) -> tuple[tuple[str, float], ...]:
    """Accelerators of a server with their shares of the time, the largest first."""
    used = np.bincount(place[count > 0].astype(np.int64), minlength=len(fleet.accelerators))
    order = np.argsort(-used, kind="stable")
    return tuple((fleet.accelerators[i], used[i] / len(place)) for i in order if used[i])
