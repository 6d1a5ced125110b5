"""Policies that plan all servers together, as the operator does with the optimizer."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from inferno_optimizer.forecast import ConformalBound
from inferno_optimizer.replay.plans import NONE, FleetPlans
from inferno_optimizer.replay.policy import Policy, Seen, Setting
from inferno_optimizer.replay.recent import RecentValues
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.surplus import LARGEST_CUT, PAYBACK_S, kept_replicas
from inferno_optimizer.system import Options

NOISE = 4.0
"""Standard deviations of a Poisson count by which a load must change to count."""

MOST_NOISE = 0.5
"""Relative change of a load that counts, however few requests there are."""


@dataclass(frozen=True, slots=True)
class PlanningRules:
    """How the operator plans; times in seconds.

    Attributes
    ----------
    ahead
        Whether the load is looked ahead for, by `forecast`, chance does not count, and reductions
        wait.
    exact
        Whether the options of the fleet choose the solver; else it is the greedy one.
    interval_s
        Between two plans.
    short_s, long_s
        Load and lengths are means over the long time; the load is that over the short one where it
        differs by more than chance explains.
    moved
        Relative change of a load from which there is a new plan, if chance does not explain it.
    catch_up_s
        In which a backlog is to be worked off.
    window_s
        Reductions go to the most that was planned in this time, or in two lead times.
    largest_cut
        Share of the replicas that a reduction takes at most; at least one replica.
    pay_back_s
        For this time a server that has changed its accelerator pays for another change.
    """

    ahead: bool = True
    exact: bool = False
    interval_s: float = 30.0
    short_s: float = 60.0
    long_s: float = 300.0
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
        # What has no replica cannot be measured, so the operator plans at least one.
        self._plans = FleetPlans(setting.fleet, _options(setting.fleet.system.options, rules), 1)
        self._short_s = max(rules.short_s, setting.step_s)
        self._measured = RecentValues(self._short_s, setting.step_s)
        self._lengths = RecentValues(rules.long_s, setting.step_s)
        self._usual = RecentValues(rules.long_s, setting.step_s)
        window = max(rules.window_s, 2 * setting.lead_s)
        self._wanted = RecentValues(window if rules.ahead else 0.0, interval)
        servers = len(setting.fleet.servers)
        self._bound = ConformalBound(servers, setting.lead_s + interval, setting.step_s)
        priorities = [case.priority for case in setting.fleet.cases]
        self._by_priority = np.argsort(priorities, kind="stable")
        self._due_s = 0.0
        self._interval_s = interval
        self._load = np.zeros((3, servers))
        self._plan = np.zeros(setting.fleet.shape, dtype=np.int64)
        self._moved_s = np.full(servers, -np.inf)
        self._place = np.full(servers, NONE)

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas of each server on each accelerator."""
        self._measured.add(seen.load.rate)
        self._usual.add(seen.load.rate)
        self._lengths.add(seen.load.lengths)
        self._bound.add(seen.load.rate)
        if seen.time_s < self._due_s:
            return seen.present
        self._due_s = seen.time_s + self._interval_s
        load = np.vstack((self._planned_load(seen), self._lengths.mean()))
        load = followed(self._load, load, self._chance(load[0]))
        if (load != self._load).any():
            self._load = load
            self._plan = self._optimized(seen)
        return self._carefully(seen)

    def _planned_load(self, seen: Seen) -> FloatArray:
        """What is measured or will be after a lead time, and what waits [requests/s]."""
        rate = self._arrivals()
        usual = rate * self._patience_s() + seen.ready.sum(axis=1)
        backlog = np.maximum(seen.served.waiting - usual, 0.0)
        ahead = rate * self._bound.ratio if self._rules.ahead else rate
        planned: FloatArray = ahead + backlog / self._rules.catch_up_s
        return planned

    def _arrivals(self) -> FloatArray:
        """The mean rate of a long time; of a short one where it differs, and not by chance."""
        newest, usual = self._measured.mean(), self._usual.mean()
        if not self._rules.ahead:
            return newest
        chance = NOISE * np.sqrt(usual / self._short_s)
        arrivals: FloatArray = np.where(np.abs(newest - usual) > chance, newest, usual)
        return arrivals

    def _chance(self, rate: FloatArray) -> FloatArray:
        """The relative change of a load that does not count: a small one, or by chance."""
        if not self._rules.ahead:
            return np.full_like(rate, self._rules.moved)
        requests = np.maximum(rate, self._load[0]) * self._rules.long_s
        by_chance = NOISE / np.sqrt(np.maximum(requests, 1.0))
        share: FloatArray = np.clip(by_chance, self._rules.moved, MOST_NOISE)
        return share

    def _patience_s(self) -> FloatArray:
        """Time that a target lets a request wait [s]; 1 s without such a target."""
        fleet = self._setting.fleet
        limit = np.minimum(fleet.ttft_limit, fleet.wait_limit) / 1000.0
        return np.where(np.isfinite(limit), limit, 1.0)

    def _optimized(self, seen: Seen) -> IntArray:
        """The plan of the optimizer for this load, from what is there."""
        paid = seen.time_s - self._moved_s >= self._rules.pay_back_s
        destination = np.where(paid | (not self._rules.ahead), NONE, self._place)
        plan = self._plans.plan(self._load[0], self._load[1:], seen.present, destination)
        self._note_moves(plan, seen)
        return plan

    def _note_moves(self, plan: IntArray, seen: Seen) -> None:
        """A server moves when a plan has another accelerator for it than the one before."""
        before = np.where(self._place == NONE, seen.present.argmax(axis=1), self._place)
        place = np.where(plan.any(axis=1), plan.argmax(axis=1), before)
        self._moved_s[place != before] = seen.time_s
        self._place = place

    def _carefully(self, seen: Seen) -> IntArray:
        """The plan; but reductions wait for the window, and are cut into steps."""
        self._wanted.add(self._plan.astype(np.float64))
        stays = (self._plan > 0) & (seen.present > 0)
        highest = self._wanted.highest().astype(np.int64)
        kept = kept_replicas(seen.present, highest, self._rules.largest_cut)
        more = np.where(stays, np.maximum(kept - self._plan, 0), 0)
        return self._plan + self._on_cards_left(more)

    def _on_cards_left(self, more: IntArray) -> IntArray:
        """As many more replicas as the plan leaves cards for, of the important servers first."""
        fleet = self._setting.fleet
        free = fleet.capacity - fleet.used_cards(self._plan).astype(np.int64)
        if fleet.system.options.unlimited or (fleet.used_cards(more) <= free).all():
            return more
        given = np.zeros_like(more)
        for server in self._by_priority:
            for place in np.flatnonzero(more[server]):
                kind, cards = fleet.card_type[place], fleet.cards[server, place]
                given[server, place] = min(more[server, place], max(free[kind], 0) // cards)
                free[kind] -= given[server, place] * cards
        return given


def followed(last: FloatArray, newest: FloatArray, share: FloatArray) -> FloatArray:
    """The newest loads, of shape (numbers, servers); the last ones that differ by no more.

    The first number is the rate. One is seen to have fallen when chance makes it small, so it
    falls to the most that it may be: else it would rise again.
    """
    moved = (np.abs(newest - last) > share * np.maximum(newest, last)).any(axis=0)
    fallen = np.minimum(newest[0] * (1.0 + share), last[0])
    rate = np.where(newest[0] < last[0], fallen, newest[0])
    load: FloatArray = np.where(moved, np.vstack((rate, newest[1:])), last)
    return load


def _options(own: Options, rules: PlanningRules) -> Options:
    """The options of a fleet, or with the greedy solver."""
    if rules.exact:
        return own
    return Options(
        unlimited=own.unlimited,
        saturation_policy=own.saturation_policy,
        delayed_best_effort=own.delayed_best_effort,
    )
