"""Policies that plan all servers together, as the operator does with the optimizer."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from inferno_optimizer.forecast import ConformalBound
from inferno_optimizer.optimize import optimize
from inferno_optimizer.replay.fleet import with_loads
from inferno_optimizer.replay.hindsight import matrix_of
from inferno_optimizer.replay.policy import Policy, Seen, Setting
from inferno_optimizer.replay.recent import RecentValues
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.surplus import LARGEST_CUT, PAYBACK_S, kept_replicas
from inferno_optimizer.system import Allocation, Options, Server, System

NONE = -1
"""The accelerator of a server that has no replica."""


@dataclass(frozen=True, slots=True)
class PlanningRules:
    """How the operator plans; times in seconds.

    Attributes
    ----------
    ahead
        Whether the load is looked ahead for, by `forecast`; and reductions wait.
    exact
        Whether the options of the fleet choose the solver; else it is the greedy one.
    interval_s
        Between two plans; the load is the mean over this time.
    lengths_s
        The lengths of requests are means over this time.
    moved
        Relative change of a load from which there is a new plan.
    catch_up_s
        In which a backlog is to be worked off.
    window_s
        Reductions go to the most that was planned in this time, or in two lead times.
    largest_cut
        Share of the replicas that a reduction takes at most; at least one replica.
    pay_back_s
        A server that has changed its accelerator keeps it for this time.
    """

    ahead: bool = True
    exact: bool = False
    interval_s: float = 30.0
    lengths_s: float = 300.0
    moved: float = 0.05
    catch_up_s: float = 60.0
    window_s: float = 300.0
    largest_cut: float = LARGEST_CUT
    pay_back_s: float = PAYBACK_S


def planner(rules: PlanningRules) -> Policy:
    """The policy with these rules."""
    return partial(Planner, rules)


class Planner:
    """Measure, look ahead, optimize, and carry out with care."""

    def __init__(self, rules: PlanningRules, setting: Setting) -> None:
        self._rules, self._setting = rules, setting
        interval = max(rules.interval_s, setting.step_s)
        self._system = _system(setting.fleet.system, rules)
        self._measured = RecentValues(interval, setting.step_s)
        self._lengths = RecentValues(rules.lengths_s, setting.step_s)
        window = max(rules.window_s, 2 * setting.lead_s)
        self._plans = RecentValues(window if rules.ahead else 0.0, interval)
        servers = len(setting.fleet.servers)
        self._bound = ConformalBound(servers, setting.lead_s + interval, setting.step_s)
        self._due_s = 0.0
        self._interval_s = interval
        self._load = np.zeros(servers)
        self._plan = np.zeros(setting.fleet.shape, dtype=np.int64)
        self._moved_s = np.full(servers, -np.inf)
        self._place = np.full(servers, NONE)

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas of each server on each accelerator."""
        self._measured.add(seen.load.rate)
        self._lengths.add(seen.load.lengths)
        self._bound.add(seen.load.rate)
        self._note_moves(seen)
        if seen.time_s < self._due_s:
            return seen.present
        self._due_s = seen.time_s + self._interval_s
        load = self._planned_load(seen)
        if (np.abs(load - self._load) > self._rules.moved * self._load).any():
            self._load = load
            self._plan = self._optimized(seen)
        return self._carefully(seen)

    def _note_moves(self, seen: Seen) -> None:
        place = np.where(seen.ready.any(axis=1), seen.ready.argmax(axis=1), NONE)
        moved = (place != self._place) & (self._place != NONE)
        self._moved_s[moved] = seen.time_s
        self._place = place

    def _planned_load(self, seen: Seen) -> FloatArray:
        """What is measured or will be after a lead time, and what waits [requests/s]."""
        rate = self._measured.mean()
        usual = rate * self._patience_s() + seen.ready.sum(axis=1)
        backlog = np.maximum(seen.served.waiting - usual, 0.0)
        ahead = rate * self._bound.ratio if self._rules.ahead else rate
        planned: FloatArray = ahead + backlog / self._rules.catch_up_s
        return planned

    def _patience_s(self) -> FloatArray:
        """Time that a target lets a request wait [s]; 1 s without such a target."""
        fleet = self._setting.fleet
        limit = np.minimum(fleet.ttft_limit, fleet.wait_limit) / 1000.0
        return np.where(np.isfinite(limit), limit, 1.0)

    def _optimized(self, seen: Seen) -> IntArray:
        """The plan of the optimizer for this load, from what is there."""
        system = with_loads(self._system, self._load, self._lengths.mean())
        servers = tuple(
            self._as_it_is(server, row, seen) for row, server in enumerate(system.servers)
        )
        allocations = optimize(replace(system, servers=servers)).allocations
        return matrix_of(self._setting.fleet, allocations)

    def _as_it_is(self, server: Server, row: int, seen: Seen) -> Server:
        """A server with what it has; for a while, a server that has moved may not move again."""
        fleet, present = self._setting.fleet, seen.present[row]
        fewest = max(server.min_replicas, 1)  # what has no replica cannot be measured
        place = int(present.argmax())
        if not present[place]:
            return replace(server, current=Allocation(load=server.load), min_replicas=fewest)
        current = Allocation(
            accelerator=fleet.accelerators[place],
            replicas=int(present[place]),
            cost=float(present[place] * fleet.unit_cost[row, place]),
            load=server.load,
        )
        kept = self._rules.ahead and seen.time_s - self._moved_s[row] < self._rules.pay_back_s
        pinned = kept or server.keep_accelerator
        return replace(server, current=current, keep_accelerator=pinned, min_replicas=fewest)

    def _carefully(self, seen: Seen) -> IntArray:
        """The plan; but reductions wait for the window, and are cut into steps."""
        self._plans.add(self._plan.astype(np.float64))
        stays = (self._plan > 0) & (seen.present > 0)
        highest = self._plans.highest().astype(np.int64)
        kept = kept_replicas(seen.present, highest, self._rules.largest_cut)
        reduced = np.maximum(self._plan, kept)
        return np.where(stays, reduced, self._plan)


def _system(system: System, rules: PlanningRules) -> System:
    options = system.options
    greedy = Options(
        unlimited=options.unlimited,
        saturation_policy=options.saturation_policy,
        delayed_best_effort=options.delayed_best_effort,
    )
    return system if rules.exact else replace(system, options=greedy)
