"""Policies that plan all servers together, as the operator does with the optimizer.

The operator does what rules with `corrects` say; the others show what each of its parts is worth.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from inferno_optimizer.correction import Correction, waiting_time
from inferno_optimizer.forecast import ConformalBound, spread_over
from inferno_optimizer.noise import MOVED, BoolArray, differs, followed, significant_rate
from inferno_optimizer.replay.account import ENOUGH
from inferno_optimizer.replay.calibrated import CalibratedFleet
from inferno_optimizer.replay.fleet import ReplayFleet
from inferno_optimizer.replay.plans import NONE, FleetPlans
from inferno_optimizer.replay.policy import Policy, Seen, Setting
from inferno_optimizer.replay.recent import RecentMeans, RecentValues
from inferno_optimizer.sizing.moves import outgrows
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.surplus import LARGEST_CUT, kept_replicas, payback_s
from inferno_optimizer.system import Options, Role
from inferno_optimizer.way_down import HALF, StepDown, WayDown, strengths


@dataclass(frozen=True, slots=True)
class PlanningRules:
    """How the operator plans; times in seconds.

    Attributes
    ----------
    ahead
        Whether plans are for the load that `forecast` expects; then changes by chance do not count,
        and reductions wait.
    calibrates
        Whether it plans with what its replicas did, as with `calibrate: Use`; else with the Models.
    corrects
        Whether plans are for more load where replicas that should be enough miss targets.
    exact
        Whether the options of the fleet choose the solver; else it is the greedy one.
    interval_s
        Between two plans.
    short_s, long_s
        Load and lengths are means over the long time; the load is that over the short one where it
        is significantly larger, or without `ahead`. Servers may have
        others.
    catch_up_s
        In which a backlog is to be worked off.
    window_s
        Reductions go to the most that was planned in this time, or in two lead times.
    largest_cut
        Share of the replicas that a reduction takes at most; at least one replica.
    way_down
        How many of the replicas that serve may go within a window.
    """

    ahead: bool = True
    calibrates: bool = False
    corrects: bool = True
    exact: bool = False
    interval_s: float = 30.0
    short_s: float = 60.0
    long_s: float = 300.0
    catch_up_s: float = 60.0
    window_s: float = 300.0
    largest_cut: float = LARGEST_CUT
    way_down: WayDown = HALF


def planner(rules: PlanningRules) -> Policy:
    """The policy with these rules."""
    return partial(Planner, rules)


class Planner:
    """Measure, look ahead, optimize, and carry out with care."""

    def __init__(self, rules: PlanningRules, setting: Setting) -> None:
        self._rules, self._setting = rules, setting
        interval = max(rules.interval_s, setting.step_s)
        self._calibrated = CalibratedFleet(setting) if rules.calibrates else None
        self._spread = spread_over(payback_s(setting.lead_s)) if rules.ahead else 0.0
        self._plans = self._plans_of(self._calibrated.fleet if self._calibrated else setting.fleet)
        short_s, self._long_s = _windows(rules, setting)
        self._short_s = np.maximum(short_s, setting.step_s)
        self._measured = RecentMeans(self._short_s, setting.step_s)
        self._lengths = RecentMeans(self._long_s, setting.step_s)
        self._usual = RecentMeans(self._long_s, setting.step_s)
        window = max(rules.window_s, 2 * setting.lead_s)
        self._wanted = RecentValues(window if rules.ahead else 0.0, interval)
        servers = len(setting.fleet.servers)
        self._bound = ConformalBound(servers, setting.lead_s + interval, setting.step_s)
        priorities = [case.priority for case in setting.fleet.cases]
        self._by_priority = np.argsort(priorities, kind="stable")
        self._correction = Correction.none(servers)
        self._due_s = 0.0
        self._interval_s = interval
        self._load, self._learned = np.zeros((3, servers)), False
        self._plan = np.zeros(setting.fleet.shape, dtype=np.int64)
        self._moved_s, self._moved_for = np.full(servers, -np.inf), np.zeros(servers)
        self._place = np.full(servers, NONE)
        self._ready = RecentValues(rules.way_down.window_s, setting.step_s)
        self._served: list[tuple[StepDown[int], ...]] = [()] * servers

    def __call__(self, seen: Seen) -> IntArray:
        """Replicas of each server on each accelerator."""
        self._measured.add(seen.load.rate)
        self._usual.add(seen.load.rate)
        self._lengths.add(seen.load.lengths)
        self._bound.add(self._arrivals())
        self._learn(seen)
        self._note_reductions(seen)
        if seen.time_s < self._due_s:
            return seen.present
        self._due_s = seen.time_s + self._interval_s
        load = self._planned_load(seen)
        if self._learned or (load != self._load).any():
            self._load, self._learned = load, False
            self._plan = self._optimized(seen)
        return self._slowly(self._carefully(seen), seen)

    def _learn(self, seen: Seen) -> None:
        """Take note of what replicas do; plan anew where another performance is believed in."""
        if self._rules.corrects:
            self._correct(seen)
        if self._calibrated is not None and self._calibrated.add(seen):
            self._plans, self._learned = self._plans_of(self._calibrated.fleet), True

    def _correct(self, seen: Seen) -> None:
        """Plan for more, or less, than the load where latencies are not as the plan has them."""
        before, serving = self._correction, seen.ready.sum(axis=1)
        self._correction = before.step(
            seen.time_s,
            _ratios_to_targets(self._setting.fleet, seen),
            serving,
            self._should_be_enough(seen),
            waiting_time(self._arrivals(), np.maximum(self._long_s, self._rules.catch_up_s)),
        )
        self._learned |= bool((self._correction.factor != before.factor).any())

    def _should_be_enough(self, seen: Seen) -> BoolArray:
        """Whether the plan is carried out and, by the Models, enough for what arrives and waits.

        These requests are no more, and no longer, than those that the plan is for.
        """
        rate = self._arrivals()
        serves = (seen.ready == seen.present).all(axis=1)
        planned = seen.ready.sum(axis=1) >= self._plan.sum(axis=1)
        served = rate + self._backlog(seen, rate) / self._rules.catch_up_s
        most = self._load * (1.0 + MOVED)
        covered = (np.vstack((served, self._lengths.mean())) <= most).all(axis=0)
        asked: BoolArray = (rate > 0) & serves & planned & covered
        if not asked.any():
            return asked
        able = self._plans.highest_rate(self._load[1:], seen.ready)
        return np.asarray(asked & (served * self._correction.factor <= able))

    def _plans_of(self, fleet: ReplayFleet) -> FleetPlans:
        """Plans at least one replica of each: what has none cannot be measured."""
        return FleetPlans(fleet, _options(fleet.system.options, self._rules), 1, self._spread)

    def _planned_load(self, seen: Seen) -> FloatArray:
        """What is measured or will be after a lead time, and what waits; rates in requests/s."""
        rate = self._arrivals()
        ahead = rate * np.maximum(self._bound.ratio(rate), 1.0) if self._rules.ahead else rate
        planned = ahead + self._backlog(seen, rate) / self._rules.catch_up_s
        return self._followed(np.vstack((planned, self._lengths.mean())))

    def _backlog(self, seen: Seen, rate: FloatArray) -> FloatArray:
        """The requests that wait beyond what a healthy queue holds."""
        usual = rate * self._patience_s() + seen.ready.sum(axis=1)
        beyond: FloatArray = np.maximum(seen.served.waiting - usual, 0.0)
        return beyond

    def _arrivals(self) -> FloatArray:
        """The rate as the operator measures it; without looking ahead, that of a short time."""
        newest = self._measured.mean()
        if not self._rules.ahead:
            return newest
        return significant_rate(self._usual.mean(), self._long_s, [(newest, self._short_s)])

    def _followed(self, load: FloatArray) -> FloatArray:
        """The loads that plans are made for: the last ones where these differ by little."""
        if self._rules.ahead:
            return followed(self._load, load, self._long_s)
        return np.where(differs(self._load, load, MOVED).any(axis=0), load, self._load)

    def _patience_s(self) -> FloatArray:
        """Time that a target lets a request wait [s]; 1 s without such a target."""
        fleet = self._setting.fleet
        limit = np.minimum(fleet.ttft_limit, fleet.wait_limit) / 1000.0
        return np.where(np.isfinite(limit), limit, 1.0)

    def _optimized(self, seen: Seen) -> IntArray:
        """The plan of the optimizer for this load, from what is there."""
        rate = self._load[0] * self._correction.factor
        destination = np.where(self._may_move(rate, seen.time_s), NONE, self._place)
        plan = self._plans.plan(rate, self._load[1:], seen.present, destination)
        self._note_moves(plan, rate, seen)
        return plan

    def _may_move(self, rate: FloatArray, time_s: float) -> BoolArray:
        """Whether servers have paid for their last move, or outgrow the loads it was judged by."""
        paid = time_s - self._moved_s >= payback_s(self._setting.lead_s)
        free = paid | outgrows(rate, self._moved_for, self._spread)
        return np.asarray(free | (not self._rules.ahead))

    def _note_moves(self, plan: IntArray, rate: FloatArray, seen: Seen) -> None:
        """A server moves when a plan has another accelerator for it than the one before."""
        before = np.where(self._place == NONE, seen.present.argmax(axis=1), self._place)
        place = np.where(plan.any(axis=1), plan.argmax(axis=1), before)
        moves = place != before
        self._moved_s[moves], self._moved_for[moves] = seen.time_s, rate[moves]
        self._place = place

    def _carefully(self, seen: Seen) -> IntArray:
        """The plan; but reductions wait for the window, and are cut into steps.

        There are none of a server that misses a target.
        """
        self._wanted.add(self._plan.astype(np.float64))
        stays = (self._plan > 0) & (seen.present > 0)
        highest = self._wanted.highest().astype(np.int64)
        kept = kept_replicas(seen.present, highest, self._rules.largest_cut)
        kept = np.where(_misses_targets(seen)[:, None], seen.present, kept)
        more = np.where(stays, np.maximum(kept - self._plan, 0), 0)
        return self._plan + self._on_cards_left(more)

    def _note_reductions(self, seen: Seen) -> None:
        """Remember what served before replicas went."""
        ready = seen.ready.astype(np.float64)
        before = self._ready.newest() if self._due_s else ready
        standing = self._ready.lowest() if self._due_s else ready
        for server in np.flatnonzero((ready < before).any(axis=1)).tolist():
            served = np.where(ready < before, before, np.minimum(standing, before))[server]
            went = StepDown(seen.time_s, _by_place(served))
            known = self._rules.way_down.recent(self._served[server], seen.time_s)
            self._served[server] = (*known, went)
        self._ready.add(ready)

    def _slowly(self, wanted: IntArray, seen: Seen) -> IntArray:
        """The wanted replicas, with those that may not go yet: see `way_down`.

        Those may whose cards a more important server lacks.
        """
        losing = np.flatnonzero((wanted < seen.ready).any(axis=1))
        if not losing.size:
            return wanted
        kept, fleet = wanted.copy(), self._setting.fleet
        rates, standing = self._plans.rates(self._lengths.mean()), self._ready.lowest()
        lacking = np.maximum(wanted - seen.present, 0)
        free = (fleet.capacity - fleet.used_cards(seen.present)).clip(0)
        priority = np.array([case.priority for case in fleet.cases])
        for server in losing.tolist():
            above = np.where(priority[:, None] < priority[server], lacking, 0)
            needed = fleet.used_cards(above) - free
            leaves = wanted[server] < seen.ready[server]
            served = np.where(leaves, seen.ready[server], standing[server])
            recent = self._rules.way_down.recent(self._served[server], seen.time_s)
            before: list[Mapping[int, int]] = [_by_place(served)]
            before += [r.replicas for r in recent]
            weights = strengths(
                dict.fromkeys(np.flatnonzero(seen.ready[server]).tolist(), Role.BOTH),
                dict(enumerate(rates[server].tolist())),
                {
                    *np.flatnonzero(standing[server]).tolist(),
                    *(p for r in recent for p in r.replicas),
                },
            )
            after = _by_place(seen.ready[server])
            for place in np.flatnonzero(leaves).tolist():
                runs, cards = int(seen.ready[server, place]), int(fleet.cards[server, place])
                urgent = max(float(needed[fleet.card_type[place]]), 0.0) / max(cards, 1)
                for count in range(int(wanted[server, place]), runs + 1):
                    after[place] = count
                    is_urgent = runs - count <= np.ceil(urgent)
                    if is_urgent or self._rules.way_down.permits(after, before, weights):
                        break
                kept[server, place] = count
        return kept

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


def _by_place(replicas: IntArray | FloatArray) -> dict[int, int]:
    return {place: int(replicas[place]) for place in np.flatnonzero(replicas).tolist()}


def _windows(rules: PlanningRules, setting: Setting) -> tuple[FloatArray, FloatArray]:
    """The short and the long window of each server [s]."""
    usual = np.full((2, len(setting.fleet.servers)), [[rules.short_s], [rules.long_s]])
    if setting.windows is not None:
        own = np.stack((setting.windows.short_s, setting.windows.long_s))
        usual = np.where(np.isnan(own), usual, own)
    return usual[0], usual[1]


def _misses_targets(seen: Seen) -> BoolArray:
    """Whether servers miss a target now, as their latencies show."""
    served = seen.served
    within = (served.delay_within >= ENOUGH) & (served.itl_within >= ENOUGH)
    return np.asarray(~within & (seen.load.rate > 0))


def _ratios_to_targets(fleet: ReplayFleet, seen: Seen) -> FloatArray:
    """The largest ratio of a latency to its target.

    That of a percentile of the delay follows from the share beyond the target, as if waits were
    exponential.
    """
    beyond = np.clip(1.0 - seen.served.delay_within, 1e-9, 0.99)
    delay = np.log(1.0 - ENOUGH) / np.log(beyond)
    ratios: FloatArray = np.maximum(seen.served.itl_ms / fleet.itl_limit, delay)
    return ratios


def _options(own: Options, rules: PlanningRules) -> Options:
    """The options of a fleet, or with the greedy solver."""
    if rules.exact:
        return own
    return Options(
        unlimited=own.unlimited,
        saturation_policy=own.saturation_policy,
        delayed_best_effort=own.delayed_best_effort,
        no_swaps=own.no_swaps,
    )
