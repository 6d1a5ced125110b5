"""The policies by their names: a HorizontalPodAutoscaler for each server, and hindsight.

Those of hindsight know the whole load beforehand; the floor is what an ideal autoscaler would cost.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from inferno_optimizer.optimize import optimize
from inferno_optimizer.replay.fleet import (
    ReplayFleet,
    count_requests_held,
    set_loads,
    size_epochs,
)
from inferno_optimizer.replay.planning import Planner, PlanningRules
from inferno_optimizer.replay.policy import NamedPolicy, RecentValues, Seen, Setting
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.system import Allocation
from inferno_optimizer.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class BehaviourRules:
    """The behaviour of a HorizontalPodAutoscaler; times in seconds.

    It goes up to the least that was wanted within `up_s`, and down to the most within `down_s`. In
    `rise_s` at most `rise` replicas are added, or a share if that is more; in `fall_s` at most
    `fall` are taken away.
    """

    up_s: float = 0.0
    down_s: float = 300.0
    rise: float = 4.0
    rise_share: float = 1.0
    rise_s: float = 15.0
    fall: float = math.inf
    fall_s: float = 15.0


class Behaviour:
    """Follows what a formula wants for each server, at home."""

    def __init__(self, setting: Setting, rules: BehaviourRules) -> None:
        self._rules = rules
        self._least = np.maximum(setting.fleet.least, 1)
        step_s = setting.step_s
        self._up = RecentValues(rules.up_s, step_s)
        self._down = RecentValues(rules.down_s, step_s)
        self._before_rise = RecentValues(rules.rise_s, step_s)
        self._before_fall = RecentValues(rules.fall_s, step_s)

    def follow(self, wanted: FloatArray, present: FloatArray) -> IntArray:
        """The replicas after a step, from those that are wanted and those that there are."""
        for recent in (self._up, self._down):
            recent.add(wanted)
        for recent in (self._before_rise, self._before_fall):
            recent.add(present)
        before, rules = self._before_rise.oldest(), self._rules
        most = before + np.maximum(before * rules.rise_share, rules.rise)
        fewest = self._before_fall.highest() - rules.fall
        up = np.minimum(self._up.lowest(), most)
        down = np.maximum(self._down.highest(), fewest)
        followed = np.where(up > present, up, np.minimum(present, down))
        return np.maximum(followed, self._least).astype(np.int64)


def find_worst_ratio(fleet: ReplayFleet, seen: Seen) -> FloatArray:
    """The largest ratio of a latency to its target; 0 where nothing arrives.

    The P90 of TTFT and wait, and the mean ITL: tokens of all requests take about as long.
    """
    served = seen.served
    ratios = (
        _divide_by_limit(served.ttft_p90_ms, fleet.ttft_limit),
        _divide_by_limit(served.wait_p90_ms, fleet.wait_limit),
        _divide_by_limit(served.itl_ms, fleet.itl_limit),
    )
    return np.where(seen.load.rate > 0, np.max(ratios, axis=0), 0.0)


def _divide_by_limit(latency: FloatArray, limit: FloatArray) -> FloatArray:
    """The ratio of a latency to its limit; 0 without a limit."""
    return np.divide(latency, limit, out=np.zeros_like(latency), where=np.isfinite(limit))


class Hpa:
    """A HorizontalPodAutoscaler on the requests that run and wait, with its default behaviour.

    replicas = ceil(requests / target) outside of a tolerance of 10 %, and down to the largest
    number of the last 300 s. The target of a replica are the requests that it holds at the
    highest rate at which it meets its targets: the best that somebody who tunes it can find.
    """

    TOLERANCE = 0.1

    def __init__(self, setting: Setting) -> None:
        typical = setting.trace.lengths.mean(axis=0)
        held = count_requests_held(setting.fleet, typical)
        self._target = np.maximum(held[np.arange(len(held)), setting.home], 1.0)
        self._behaviour = Behaviour(setting, BehaviourRules())

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas at home."""
        present = seen.present.sum(axis=1).astype(np.float64)
        requests = seen.served.running + seen.served.waiting
        ratio = requests / (self._target * np.maximum(present, 1.0))
        inside = np.abs(ratio - 1.0) <= self.TOLERANCE
        wanted = np.where(inside, present, np.ceil(requests / self._target))
        return self._behaviour.follow(wanted, present)


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

    `cost` is the least of each server over `hours` [cents]; no limit of cards is counted, so that
    no plan with one accelerator for each server costs less. `replicas` and `most_replicas` are
    their mean and their largest number; `accelerators` are those of each server with their shares
    of the time, the largest first. `cards` and `most_cards` are the mean and the largest number of
    cards by type that this takes, and `capacity` those that there are.
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
    servers = np.arange(len(fleet.servers))
    cost = fleet.unit_cost[servers, place] * count
    used = fleet.cards[servers, place] * count
    cards = np.zeros((trace.steps, len(fleet.types)))
    for kind in range(len(fleet.types)):
        cards[:, kind] = np.where(fleet.card_type[place] == kind, used, 0).sum(axis=1)
    accelerators = []
    for own_place, own_count in zip(place.T, count.T, strict=True):
        times = np.bincount(own_place[own_count > 0], minlength=len(fleet.accelerators))
        order = np.argsort(-times, kind="stable")
        shares = ((fleet.accelerators[i], times[i] / trace.steps) for i in order if times[i])
        accelerators.append(tuple(shares))
    return FloorOfTrace(
        servers=tuple(server.name for server in fleet.servers),
        types=fleet.types,
        hours=trace.seconds / SECONDS_PER_HOUR,
        cost=cost.sum(axis=0) * trace.step_s / SECONDS_PER_HOUR,
        replicas=count.mean(axis=0),
        most_replicas=count.max(axis=0).astype(np.float64),
        accelerators=tuple(accelerators),
        cards=cards.mean(axis=0),
        most_cards=cards.max(axis=0),
        capacity=fleet.capacity.astype(np.float64),
    )


BOUND = NamedPolicy("clairvoyant", Clairvoyant, hindsight=True, percentiles=False)
"""What the others are measured against."""


def _name(name: str, rules: PlanningRules) -> NamedPolicy:
    return NamedPolicy(name, partial(Planner, rules), percentiles=False)


POLICIES: Mapping[str, NamedPolicy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            _name("inferno", PlanningRules()),
            _name("inferno-calibrated", PlanningRules(calibrates=True)),
            _name("inferno-exact", PlanningRules(exact=True)),
            _name("inferno-reactive", PlanningRules(ahead=False, short_s=30.0)),
            _name("inferno-uncorrected", PlanningRules(corrects=False)),
            NamedPolicy("hpa", Hpa, percentiles=False),
            NamedPolicy("static-peak", StaticPeak, hindsight=True, percentiles=False),
            BOUND,
        )
    }
)
