"""Policies that plan all servers together, as the operator does with the optimizer.

The operator does what rules with `corrects` say; the others show what each of its parts is worth.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.calibration.calibrate import Evidence, calibrate
from inferno_optimizer.calibration.windows import Window, batch_at_poisson_arrivals, retained
from inferno_optimizer.capacity import cards_to_hand_out
from inferno_optimizer.correction import Correction, waiting_time
from inferno_optimizer.forecast import ConformalBound, spread_over
from inferno_optimizer.noise import MOVED, BoolArray, differs, followed, significant_rate
from inferno_optimizer.replay.account import ENOUGH
from inferno_optimizer.replay.fleet import (
    ReplayFleet,
    SizedFleet,
    build_fleet,
    build_load,
    scale_profile,
)
from inferno_optimizer.replay.policy import RecentMeans, RecentValues, Seen, Setting
from inferno_optimizer.sizing.candidates import Candidates, candidates_of
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.moves import outgrows
from inferno_optimizer.sizing.pairs import build_pairs, sorted_types
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.sizing.rates import Sizing
from inferno_optimizer.solvers import solve
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment
from inferno_optimizer.surplus import LARGEST_CUT, kept_replicas, payback_s
from inferno_optimizer.system import (
    Allocation,
    DecodeParameters,
    Options,
    PerformanceProfile,
    PrefillDecodeParameters,
    Role,
    StepParameters,
)
from inferno_optimizer.units import MS_PER_SECOND
from inferno_optimizer.way_down import HALF, StepDown, WayDown, choose_weights

INTERVAL_S = 600.0
"""Time between two calibrations [s]."""

TYPED_ERROR = 0.2
"""Error of the times of profiles without measurements, the default of the operator.

Without one, an accelerator would seem faster because nobody measured it.
"""

CHANGED = 0.02
"""Relative change of a parameter that makes a plan."""


class CalibratedFleet:
    """The fleet as a planner believes it: the parameters that fit what its replicas did.

    Each server whose replicas serve on one accelerator is a window of calibration in each step.
    As in the operator, a refused calibration changes nothing, and targets are checked with the
    upper confidence of 90 %.
    """

    def __init__(self, setting: Setting) -> None:
        self._typed, self._step_s = setting.fleet, setting.step_s
        self._windows: defaultdict[tuple[str, str], list[Window]] = defaultdict(list)
        self._found: dict[tuple[str, str], PrefillDecodeParameters] = {}
        self._due_s = INTERVAL_S
        self.fleet = self._build_believed_fleet()

    def add(self, seen: Seen) -> bool:
        """Take note of a step; whether another fleet is believed in now."""
        for pair, window in list_calibration_windows(self._typed, seen, self._step_s):
            self._windows[pair].append(window)
        if seen.time_s < self._due_s:
            return False
        self._due_s = seen.time_s + INTERVAL_S
        pairs = sorted(self._windows)
        for pair in pairs:
            self._windows[pair] = retained(self._windows[pair])
        profiles = {(p.model, p.accelerator): p for p in self._typed.system.profiles}
        evidence = [Evidence(self._windows[pair], _find_prior(profiles[pair])) for pair in pairs]
        results = zip(pairs, calibrate(evidence, seen.time_s), strict=True)
        found = self._found | {pair: each.upper for pair, each in results if each.reason.usable}
        if not any(_differ(self._found.get(pair), fitted) for pair, fitted in found.items()):
            return False
        self._found = found
        self.fleet = self._build_believed_fleet()
        return True

    def _build_believed_fleet(self) -> ReplayFleet:
        """The fleet with the parameters that were found, and with an error of all others."""
        system = self._typed.system
        profiles = (
            _apply_parameters(profile, self._found.get((profile.model, profile.accelerator)))
            for profile in system.profiles
        )
        return build_fleet(replace(system, profiles=tuple(profiles)))[0]


def _apply_parameters(
    profile: PerformanceProfile, found: PrefillDecodeParameters | None
) -> PerformanceProfile:
    """A profile with what was found; lines do not replace steps, which hold for more lengths."""
    if found is None or isinstance(profile.parameters, StepParameters):
        return scale_profile(profile, 1.0 + TYPED_ERROR)
    if isinstance(profile.parameters, DecodeParameters):
        return replace(profile, parameters=DecodeParameters(found.alpha, found.beta))
    return replace(profile, parameters=found)


def _find_prior(profile: PerformanceProfile) -> PrefillDecodeParameters | None:
    """The configured parameters, where they are lines."""
    match profile.parameters:
        case DecodeParameters(alpha, beta):
            return PrefillDecodeParameters(alpha, beta, 0.0, 0.0)
        case PrefillDecodeParameters() as typed:
            return typed
        case _:
            return None


def list_calibration_windows(
    fleet: ReplayFleet, seen: Seen, step_s: float
) -> Iterator[tuple[tuple[str, str], Window]]:
    """What a replica of each server did in a step, with its model and accelerator.

    Servers that serve on several accelerators are left out: one latency tells nothing of each.
    """
    served, load = seen.served, seen.load
    for row in np.flatnonzero((seen.ready > 0).sum(axis=1) == 1).tolist():
        place = int(seen.ready[row].argmax())
        replicas = float(seen.ready[row, place])
        prompt, answer = load.lengths[:, row].tolist()
        prefills = float(load.rate[row]) * step_s / replicas
        yield (
            (fleet.servers[row].model, fleet.accelerators[place]),
            Window(
                end=seen.time_s,
                itl_ms=float(served.itl_ms[row]),
                intervals=prefills * max(answer - 1.0, 0.0),
                batch=batch_at_poisson_arrivals(float(served.running[row]) / replicas),
                prefill_ms=float(served.ttft_ms[row] - served.wait_ms[row]),
                prefills=prefills,
                input_tokens=max(prompt, 1.0),
                output_tokens=answer,
                replica=fleet.servers[row].name,
            ),
        )


def _differ(before: PrefillDecodeParameters | None, now: PrefillDecodeParameters) -> bool:
    """Whether parameters have changed noticeably."""
    if before is None:
        return True
    old, new = (np.array([p.alpha, p.beta, p.gamma, p.delta]) for p in (before, now))
    return bool((np.abs(new - old) > CHANGED * np.maximum(np.abs(old), np.abs(new))).any())


NONE = -1
"""The accelerator of a server that has no replica, or no destination."""


class FleetPlans:
    """Plans of a fleet with a solver, each from what there is, of at least `fewest` replicas.

    `load_spread` is that of each server.
    """

    def __init__(
        self, fleet: ReplayFleet, options: Options, fewest: int, load_spread: float = 0.0
    ) -> None:
        system = replace(fleet.system, options=options)
        self._fleet, self._catalogue = fleet, Catalogue(system)
        self._cases = [
            replace(
                case,
                server=replace(
                    case.server,
                    min_replicas=max(case.server.min_replicas, fewest),
                    load_spread=load_spread,
                ),
            )
            for case in fleet.cases
        ]
        self._known: list[tuple[float, ...]] = [()] * len(self._cases)
        self._pairs = build_pairs(self._catalogue, self._cases, sorted_types(system))
        cards = cards_to_hand_out(self._catalogue, [])
        self._cards = np.array([cards[kind] for kind in fleet.types], dtype=np.int64)
        self._sized = SizedFleet(fleet)

    def plan(
        self, rate: FloatArray, lengths: FloatArray, present: IntArray, destination: IntArray
    ) -> IntArray:
        """Replicas of each server on each accelerator, for a load from what is `present`.

        `rate` is in requests/s, `lengths` has the shape (2, servers). `destination` is the
        accelerator of each server that has just moved there; -1 of others.
        """
        place = present.argmax(axis=1)
        count = present[np.arange(len(place)), place]
        columns = (rate, *lengths, place, count, destination)
        for row, now in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            if now != self._known[row]:
                self._known[row] = now
                self._cases[row] = self._build_case(row, *now)
        candidates = self._build_candidates(rate, lengths)
        served = np.bincount(candidates.pairs.case[candidates.usable], minlength=len(present)) > 0
        stays = np.where(served[:, None], 0, present)
        left = np.maximum(self._cards - self._fleet.used_cards(stays).astype(np.int64), 0)
        answer = solve(candidates, left, time.perf_counter, time.perf_counter())
        return stays + self._build_assignment_matrix(candidates, answer.assignment)

    def find_rates(self, lengths: FloatArray) -> FloatArray:
        """What one replica carries within its targets on each accelerator [requests/s].

        0 where it keeps none, or takes no request; lengths have the shape (2, servers).
        """
        able: FloatArray = self._sized.at(lengths).max_rate
        return able

    def sum_rates(self, lengths: FloatArray, replicas: IntArray) -> FloatArray:
        """The rate up to which the replicas of each server keep their targets [requests/s].

        Lengths have the shape (2, servers), replicas (servers, accelerators).
        """
        able = np.where(replicas > 0, self.find_rates(lengths), 0.0)
        rates: FloatArray = (replicas * able).sum(axis=1)
        return rates

    def _build_case(
        self, row: int, rate: float, prompt: float, answer: float, place: int, count: int, goal: int
    ) -> Case:
        """A case with its load, what it has, and where it has just moved to."""
        case, names = self._cases[row], self._fleet.accelerators
        current = Allocation(load=build_load(case.server.load, rate, prompt, answer))
        if count:
            cost = float(count * self._fleet.unit_cost[row, place])
            current = replace(current, accelerator=names[place], replicas=count, cost=cost)
        destination = names[goal] if goal != NONE else ""
        return replace(case, server=replace(case.server, current=current, destination=destination))

    def _build_candidates(self, rate: FloatArray, lengths: FloatArray) -> Candidates:
        pairs, sized = self._pairs, self._sized.at(lengths)
        demand = sized.demand(rate)[pairs.case, pairs.accelerator] / MS_PER_SECOND
        able = sized.max_rate[pairs.case, pairs.accelerator] / MS_PER_SECOND
        nothing = np.zeros(len(demand))
        rates = np.where((demand > 0) | (able <= 0), able, np.inf)
        sizing = Sizing(rates, nothing, nothing, nothing)
        pairs = replace(pairs, demand=demand)
        return candidates_of(self._catalogue, self._cases, pairs, sizing)

    def _build_assignment_matrix(self, candidates: Candidates, assignment: Assignment) -> IntArray:
        matrix, accelerator = np.zeros(self._fleet.shape, dtype=np.int64), self._pairs.accelerator
        chosen = np.flatnonzero(assignment.rows != NO_ROW)
        rows = assignment.rows[chosen]
        matrix[chosen, accelerator[rows]] = assignment.replicas[chosen]
        for case, mix in assignment.mixes.items():
            matrix[case, accelerator[[*mix.rows]]] = mix.replicas
        for case, parts in assignment.kept.items():
            place = self._fleet.accelerators.index(
                candidates.cases[case].server.current.accelerator
            )
            matrix[case, place] = sum(part.replicas for part in parts)
        return matrix


@dataclass(frozen=True, slots=True)
class PlanningRules:
    """How the operator plans; times in seconds.

    With `ahead`, plans are for the load that `forecast` expects, changes by chance do not count,
    and reductions wait. It `calibrates` as with `calibrate: Use`, else it plans with the Models; it
    `corrects` where replicas that should be enough miss targets, and plans for more load. The
    options of the fleet choose an `exact` solver; else it is the greedy one. It plans every
    `interval_s`. Load and lengths are means over `long_s`; the load is that over `short_s` where it
    is significantly larger, or without `ahead`; servers may have others. A backlog is to be worked
    off in `catch_up_s`. Reductions go to the most that was planned in `window_s`, or in two lead
    times, and take a share of `largest_cut` at most, or one replica; `way_down` says how many of
    the replicas that serve may go within a window.
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


class Planner:
    """Measure, look ahead, optimize, and carry out with care."""

    def __init__(self, rules: PlanningRules, setting: Setting) -> None:
        self._rules, self._setting = rules, setting
        interval = max(rules.interval_s, setting.step_s)
        self._calibrated = CalibratedFleet(setting) if rules.calibrates else None
        self._spread = spread_over(payback_s(setting.lead_s)) if rules.ahead else 0.0
        self._plans = self._make_plans(
            self._calibrated.fleet if self._calibrated else setting.fleet
        )
        servers = len(setting.fleet.servers)
        windows = np.full((2, servers), [[rules.short_s], [rules.long_s]])
        if setting.windows is not None:
            own = np.stack((setting.windows.short_s, setting.windows.long_s))
            windows = np.where(np.isnan(own), windows, own)
        self._short_s, self._long_s = np.maximum(windows[0], setting.step_s), windows[1]
        self._measured = RecentMeans(self._short_s, setting.step_s)
        self._lengths = RecentMeans(self._long_s, setting.step_s)
        self._usual = RecentMeans(self._long_s, setting.step_s)
        window = max(rules.window_s, 2 * setting.lead_s)
        self._wanted = RecentValues(window if rules.ahead else 0.0, interval)
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
        self._bound.add(self._measure_rate())
        if self._rules.corrects:
            self._correct(seen)
        if self._calibrated is not None and self._calibrated.add(seen):
            self._plans, self._learned = self._make_plans(self._calibrated.fleet), True
        self._note_reductions(seen)
        if seen.time_s < self._due_s:
            return seen.present
        self._due_s = seen.time_s + self._interval_s
        load = self._find_load(seen)
        if self._learned or (load != self._load).any():
            self._load, self._learned = load, False
            rate = self._load[0] * self._correction.factor
            destination = np.where(self._may_move(rate, seen.time_s), NONE, self._place)
            self._plan = self._plans.plan(rate, self._load[1:], seen.present, destination)
            self._note_moves(rate, seen)
        return self._limit_reductions(self._delay_reductions(seen), seen)

    def _correct(self, seen: Seen) -> None:
        """Plan for more, or less, than the load where latencies are not as the plan has them."""
        before, serving = self._correction, seen.ready.sum(axis=1)
        self._correction = before.step(
            seen.time_s,
            _compute_ratios(self._setting.fleet, seen),
            serving,
            self._is_enough(seen),
            waiting_time(self._measure_rate(), np.maximum(self._long_s, self._rules.catch_up_s)),
        )
        self._learned |= bool((self._correction.factor != before.factor).any())

    def _is_enough(self, seen: Seen) -> BoolArray:
        """Whether the plan is carried out and, by the Models, enough for what arrives and waits.

        These requests are no more, and no longer, than those that the plan is for.
        """
        rate = self._measure_rate()
        serves = (seen.ready == seen.present).all(axis=1)
        planned = seen.ready.sum(axis=1) >= self._plan.sum(axis=1)
        served = rate + self._count_backlog(seen, rate) / self._rules.catch_up_s
        most = self._load * (1.0 + MOVED)
        covered = (np.vstack((served, self._lengths.mean())) <= most).all(axis=0)
        asked: BoolArray = (rate > 0) & serves & planned & covered
        if not asked.any():
            return asked
        able = self._plans.sum_rates(self._load[1:], seen.ready)
        return np.asarray(asked & (served * self._correction.factor <= able))

    def _make_plans(self, fleet: ReplayFleet) -> FleetPlans:
        """Plans of at least one replica of each: what has none cannot be measured."""
        own = fleet.system.options
        greedy = Options(
            unlimited=own.unlimited,
            saturation_policy=own.saturation_policy,
            delayed_best_effort=own.delayed_best_effort,
            no_swaps=own.no_swaps,
        )
        return FleetPlans(fleet, own if self._rules.exact else greedy, 1, self._spread)

    def _find_load(self, seen: Seen) -> FloatArray:
        """What is measured or will be after a lead time, and what waits; rates in requests/s."""
        rate = self._measure_rate()
        ahead = rate * np.maximum(self._bound.ratio(rate), 1.0) if self._rules.ahead else rate
        planned = ahead + self._count_backlog(seen, rate) / self._rules.catch_up_s
        load = np.vstack((planned, self._lengths.mean()))
        if self._rules.ahead:
            return followed(self._load, load, self._long_s)
        return np.where(differs(self._load, load, MOVED).any(axis=0), load, self._load)

    def _count_backlog(self, seen: Seen, rate: FloatArray) -> FloatArray:
        """The requests that wait beyond what a healthy queue holds."""
        fleet = self._setting.fleet
        limit_s = np.minimum(fleet.ttft_limit, fleet.wait_limit) / MS_PER_SECOND
        patience_s = np.where(np.isfinite(limit_s), limit_s, 1.0)  # a target lets one wait
        usual = rate * patience_s + seen.ready.sum(axis=1)
        beyond: FloatArray = np.maximum(seen.served.waiting - usual, 0.0)
        return beyond

    def _measure_rate(self) -> FloatArray:
        """The rate as the operator measures it; without looking ahead, that of a short time."""
        newest = self._measured.mean()
        if not self._rules.ahead:
            return newest
        return significant_rate(self._usual.mean(), self._long_s, [(newest, self._short_s)])

    def _may_move(self, rate: FloatArray, time_s: float) -> BoolArray:
        """Whether servers have paid for their last move, or outgrow the loads it was judged by."""
        paid = time_s - self._moved_s >= payback_s(self._setting.lead_s)
        free = paid | outgrows(rate, self._moved_for, self._spread)
        return np.asarray(free | (not self._rules.ahead))

    def _note_moves(self, rate: FloatArray, seen: Seen) -> None:
        """A server moves when a plan has another accelerator for it than the one before."""
        plan = self._plan
        before = np.where(self._place == NONE, seen.present.argmax(axis=1), self._place)
        place = np.where(plan.any(axis=1), plan.argmax(axis=1), before)
        moves = place != before
        self._moved_s[moves], self._moved_for[moves] = seen.time_s, rate[moves]
        self._place = place

    def _delay_reductions(self, seen: Seen) -> IntArray:
        """The plan; but reductions wait for the window, and are cut into steps.

        There are none of a server that misses a target.
        """
        self._wanted.add(self._plan.astype(np.float64))
        stays = (self._plan > 0) & (seen.present > 0)
        highest = self._wanted.highest().astype(np.int64)
        kept = kept_replicas(seen.present, highest, self._rules.largest_cut)
        within = (seen.served.delay_within >= ENOUGH) & (seen.served.itl_within >= ENOUGH)
        misses = ~within & (seen.load.rate > 0)
        kept = np.where(misses[:, None], seen.present, kept)
        more = np.where(stays, np.maximum(kept - self._plan, 0), 0)
        return self._plan + self._give_cards_left(more)

    def _note_reductions(self, seen: Seen) -> None:
        """Remember what served before replicas went."""
        ready = seen.ready.astype(np.float64)
        before = self._ready.newest() if self._due_s else ready
        standing = self._ready.lowest() if self._due_s else ready
        for server in np.flatnonzero((ready < before).any(axis=1)).tolist():
            served = np.where(ready < before, before, np.minimum(standing, before))[server]
            went = StepDown(seen.time_s, _map_places(served))
            known = self._rules.way_down.select_recent(self._served[server], seen.time_s)
            self._served[server] = (*known, went)
        self._ready.add(ready)

    def _limit_reductions(self, wanted: IntArray, seen: Seen) -> IntArray:
        """The wanted replicas, with those that may not go yet: see `way_down`.

        Those may whose cards a more important server lacks.
        """
        losing = np.flatnonzero((wanted < seen.ready).any(axis=1))
        if not losing.size:
            return wanted
        kept, fleet = wanted.copy(), self._setting.fleet
        rates, standing = self._plans.find_rates(self._lengths.mean()), self._ready.lowest()
        lacking = np.maximum(wanted - seen.present, 0)
        free = (fleet.capacity - fleet.used_cards(seen.present)).clip(0)
        priority = np.array([case.priority for case in fleet.cases])
        for server in losing.tolist():
            above = np.where(priority[:, None] < priority[server], lacking, 0)
            needed = fleet.used_cards(above) - free
            leaves = wanted[server] < seen.ready[server]
            served = np.where(leaves, seen.ready[server], standing[server])
            recent = self._rules.way_down.select_recent(self._served[server], seen.time_s)
            before: list[Mapping[int, int]] = [_map_places(served)]
            before += [r.replicas for r in recent]
            weights = choose_weights(
                dict.fromkeys(np.flatnonzero(seen.ready[server]).tolist(), Role.BOTH),
                dict(enumerate(rates[server].tolist())),
            )
            after = _map_places(seen.ready[server])
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

    def _give_cards_left(self, more: IntArray) -> IntArray:
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


def _map_places(replicas: IntArray | FloatArray) -> dict[int, int]:
    return {place: int(replicas[place]) for place in np.flatnonzero(replicas).tolist()}


def _compute_ratios(fleet: ReplayFleet, seen: Seen) -> FloatArray:
    """The largest ratio of a latency to its target.

    That of a percentile of the delay follows from the share beyond the target, as if waits were
    exponential.
    """
    beyond = np.clip(1.0 - seen.served.delay_within, 1e-9, 0.99)
    delay = np.log(1.0 - ENOUGH) / np.log(beyond)
    ratios: FloatArray = np.maximum(seen.served.itl_ms / fleet.itl_limit, delay)
    return ratios
