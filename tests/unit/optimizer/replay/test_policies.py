"""What the policies want, step by step, and what a replay makes of it."""

from dataclasses import fields, replace

import numpy as np
import pytest

from inferno_operator.cli.replay import find_policy
from inferno_operator.controllers.measurement.lookahead import LoadHistory
from inferno_optimizer.replay.fleet import SizedFleet, build_fleet
from inferno_optimizer.replay.planning import Planner, PlanningRules
from inferno_optimizer.replay.plant import LeadTime, StepResult
from inferno_optimizer.replay.policies import find_best_homes, find_floor
from inferno_optimizer.replay.policy import (
    Decide,
    NamedPolicy,
    OwnWindows,
    Policy,
    RecentMeans,
    Seen,
    Setting,
)
from inferno_optimizer.replay.replay import Scenario, replay
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.system import Accelerator, DecodeParameters, PerformanceProfile, Target
from tests.tiers import extended
from tests.unit.optimizer.replay.fleets import (
    BATCH,
    INPUT,
    OUTPUT,
    fleet,
    load,
    plant,
    system,
    trace,
)

BIG, SMALL = 0, 1
BOUNDED = ["hpa", "keda-slo", "inferno", "inferno-reactive", "static-peak"]


def scenario(rates: FloatArray, servers: int = 1, lead_s: float = 120.0) -> Scenario:
    of = fleet(servers)
    clients = [server.name for server in of.servers]
    return Scenario(of, of, trace(rates.tolist(), clients=clients), LeadTime(lead_s))


def wave(hours: int = 2) -> FloatArray:
    """Between 2 and 10 requests/s, twice in the time."""
    time = np.linspace(0, 4 * np.pi, hours * 60)
    return 6.0 - 4.0 * np.cos(time)


@pytest.mark.parametrize("name", BOUNDED)
def test_nothing_costs_less_than_the_bound_at_an_equal_attainment(name: str) -> None:
    shown, policy = scenario(wave()), find_policy(name)
    bound = replay(shown, find_policy("clairvoyant"), shown.fleet.home)

    account = replay(shown, policy, shown.fleet.home)

    assert account.total_cost > bound.total_cost or account.attainment < bound.attainment
    assert bound.attainment > 0.95


@pytest.mark.parametrize("name", [*BOUNDED, "clairvoyant"])
def test_a_replay_is_the_same_each_time(name: str) -> None:
    shown, policy = scenario(wave(1), servers=2), find_policy(name)

    accounts = [replay(shown, policy, shown.fleet.home) for _ in range(2)]

    assert accounts[0].cost.tolist() == accounts[1].cost.tolist()
    assert accounts[0].within.tolist() == accounts[1].within.tolist()


def test_the_cost_is_that_of_replicas_and_hours() -> None:
    shown = scenario(np.full(120, 1.0))

    account = replay(shown, NamedPolicy("always", always(3)), shown.fleet.home)

    assert account.replicas.tolist() == [pytest.approx(3.0, rel=0.02)]
    assert account.total_cost == pytest.approx(3 * 20.0 * 2, rel=0.02)
    assert account.card_hours == {"B": 0.0, "S": pytest.approx(6.0, rel=0.02)}


def test_replicas_serve_a_lead_time_after_they_are_paid_for() -> None:
    shown = scenario(np.full(10, 1.0), lead_s=180.0)

    history = replay(shown, NamedPolicy("always", always(7)), shown.fleet.home).history

    assert history.replicas[:, 0].tolist() == [1] + [7] * 9
    assert history.ready[:, 0].tolist() == [1] * 4 + [7] * 6  # three steps for which nothing comes


def always(count: int) -> Policy:
    def decide(_: Seen) -> IntArray:
        return np.array([count])

    return lambda _: decide


def test_the_floor_is_the_sum_of_the_cheapest_replicas_of_each_step() -> None:
    rates = wave(1)
    shown = scenario(rates)
    sized = SizedFleet(shown.fleet).at(load(1.0).lengths).max_rate[0]
    costs = np.ceil(rates[:, None] / sized) * [40.0, 20.0]

    floor = find_floor(shown.fleet, shown.trace)

    assert floor.cost.sum() == pytest.approx(costs.min(axis=1).sum() / 60)


def test_the_hpa_keeps_the_most_of_five_minutes() -> None:
    rates = np.concatenate((np.full(20, 8.0), np.full(20, 1.0)))
    shown = scenario(rates)

    replicas = replay(shown, find_policy("hpa"), shown.fleet.home).history.replicas[:, 0]

    assert replicas[20 + 4] == replicas[19]
    assert replicas[-1] < replicas[19]


def test_keda_grows_by_at_most_four_or_double_a_minute_and_falls_by_one_in_two() -> None:
    rates = np.concatenate((np.full(60, 1.0), np.full(60, 20.0), np.full(240, 0.2)))
    of = fleet()
    shown = Scenario(of, of, trace(rates.tolist(), step_s=15.0), LeadTime(60.0))

    replicas = replay(shown, find_policy("keda-slo"), of.home).history.replicas[:, 0]
    grown, fallen = replicas[4:] - replicas[:-4], replicas[:-8] - replicas[8:]

    assert replicas.max() > 5
    assert (grown <= np.maximum(replicas[:-4], 4)).all()
    assert fallen.max() == 1


def test_keda_counts_what_already_starts() -> None:
    of = fleet()
    setting = Setting(of, 60.0, 120.0, of.home, trace([8.0]))
    served = plant(of, 0).serve(load(8.0))
    grown = []
    for ready in (4, 1):
        decide = find_policy("keda-slo").make(setting)
        present, serving = of.at_home(np.array([4])), of.at_home(np.array([ready]))
        grown.append(int(decide(Seen(60.0, load(8.0), served, present, serving)).sum()))

    assert grown[0] == 8
    assert grown[1] == 4


def test_policies_may_see_random_counts_while_the_load_stays_as_it_is() -> None:
    shown, seen = replace(scenario(np.full(2000, 2.0)), poisson=True), list[float]()

    def watch(_: Setting) -> Decide:
        def decide(now: Seen) -> IntArray:
            seen.append(float(now.load.rate[0]))
            return np.array([1])

        return decide

    account = replay(shown, NamedPolicy("watch", watch), shown.fleet.home)

    assert np.mean(seen) == pytest.approx(2.0, abs=4 * np.sqrt(2.0 / (60 * 2000)))
    assert np.var(seen) == pytest.approx(2.0 / 60, rel=0.2)
    assert account.requests.tolist() == [2.0 * 60 * 2000]


def test_inferno_plans_no_reduction_within_its_window() -> None:
    rates = np.tile(np.repeat([8.0, 2.0], 3), 20)
    shown = scenario(rates)

    replicas = replay(shown, find_policy("inferno"), shown.fleet.home).history.replicas[:, 0]

    assert len(set(replicas[30:].tolist())) == 1


def test_each_server_is_measured_over_its_own_windows() -> None:
    values = np.random.default_rng(0).random((20, 3))
    windows = np.array([60.0, 300.0, 600.0])
    recent = RecentMeans(windows, 60.0)

    for value in values:
        recent.add(value)

    lasts = (1, 5, 10)
    expected = [values[-last:, column].mean() for column, last in enumerate(lasts)]
    assert recent.mean().tolist() == pytest.approx(expected)


def test_a_server_with_longer_windows_is_reduced_later() -> None:
    rates = np.concatenate((np.full(60, 8.0), np.full(60, 1.0)))
    shown = scenario(rates, servers=2)
    usual = np.array([np.nan, np.nan])
    own = replace(shown, windows=OwnWindows(usual, np.array([np.nan, 1800.0])))

    both, each = (replay(s, find_policy("inferno"), s.fleet.home).history for s in (shown, own))
    fell = [np.argmax(h.replicas[61:] < h.replicas[59], axis=0).tolist() for h in (both, each)]

    assert fell[0][0] == fell[0][1] == fell[1][0]
    assert fell[1][1] > fell[1][0] + 5


def test_what_waits_to_be_reduced_takes_no_cards_from_others() -> None:
    of, _ = build_fleet(replace(system(2), capacity={"B": 0, "S": 5}))
    high, low = np.full(30, 7.0), np.full(30, 1.0)
    rate = np.stack((np.append(high, low), np.append(low, high)), axis=1)
    load_of_both = replace(trace([1.0] * 60, clients=["s0", "s1"]), rate=rate)
    needed = SizedFleet(of).at(load(1.0, 2).lengths).replicas_for(rate[-1])[:, 1]

    shown = Scenario(of, of, load_of_both, LeadTime(60.0))
    replicas = replay(shown, find_policy("inferno"), of.home).history.replicas

    assert 2 * needed[1] > 5 >= needed.sum()  # both high do not fit
    assert replicas[30 + 2, 1] >= needed[1]


def test_a_change_of_lengths_alone_makes_a_plan() -> None:
    of, steps = fleet(), np.ones((60, 1))
    longer = replace(
        trace([6.0] * 60), output_tokens=np.where(steps.cumsum(axis=0) > 30, 512.0, 256.0)
    )

    shown = Scenario(of, of, longer, LeadTime(60.0))
    replicas = replay(shown, find_policy("inferno"), of.home).history.replicas[:, 0]

    assert replicas[-1] > replicas[29]


def test_a_constant_load_changes_no_plan_after_the_first_hours() -> None:
    shown = scenario(np.full(24 * 60, 5.0))

    account = replay(shown, find_policy("inferno"), shown.fleet.home)

    assert len(np.unique(account.history.replicas[150:])) == 1
    assert account.moves.sum() <= 1


@pytest.mark.parametrize("rate", [5.0, *extended(1.0, 20.0, 50.0)])
def test_chance_changes_no_plan_of_a_day_after_the_first_hours(rate: float) -> None:
    counts = np.random.default_rng(1).poisson(rate * 60, 24 * 60)
    shown = scenario(counts / 60)

    replicas = replay(shown, find_policy("inferno"), shown.fleet.home).history.replicas[:, 0]

    assert len(np.unique(replicas[150:])) == 1
    assert np.count_nonzero(np.diff(replicas[5:])) <= 1  # when there is a history to look ahead by


@pytest.mark.parametrize("rate", [2.0, *extended(1.0, 5.0)])
def test_the_chance_of_a_minute_is_not_taken_for_growth(rate: float) -> None:
    """Plans are made for means of five minutes, and so is the growth of the operator."""
    counts = np.random.default_rng(1).poisson(60.0 * rate, 24 * 60)
    history = LoadHistory()
    for minute, mean in enumerate(np.convolve(counts, np.full(5, 0.2), "valid")):
        history.add(60.0 * minute, mean)
    long_answers = np.full((len(counts), 1), 1024.0)
    shown = scenario(counts / 60)
    shown = replace(shown, trace=replace(shown.trace, output_tokens=long_answers))
    sized = SizedFleet(shown.fleet).at(np.array([[INPUT], [1024.0]]))

    replicas = replay(shown, find_policy("inferno"), shown.fleet.home).history.replicas[-1, 0]

    growth = history.growth(rate, 120.0 + 60.0) or 0.0
    assert replicas <= np.ceil(growth * rate / sized.max_rate[0, 1])


def places(*loads: tuple[int, float]) -> list[int]:
    """Where `inferno` has a server minute by minute, under loads of so many minutes and requests/s.

    A large replica costs 30 cents/hour and serves 6.7 requests/s; a small one costs 20 and serves
    3.2. Replicas start in two minutes, so that a move has paid after twenty.
    """
    accelerators = (Accelerator("Big", "B", 30.0), Accelerator("Small", "S", 20.0))
    of, _ = build_fleet(replace(system(), accelerators=accelerators))
    rates = np.repeat([rate for _, rate in loads], [minutes for minutes, _ in loads])
    shown = Scenario(of, of, trace(rates.tolist()), LeadTime(120.0))
    found: list[int] = replay(shown, find_policy("inferno"), of.home).history.place[:, 0].tolist()
    return found


def test_a_server_that_outgrows_the_loads_of_its_move_moves_before_that_has_paid() -> None:
    """It goes to a small replica for little; a large load comes seven minutes after that."""
    found = places((40, 5.0), (10, 1.0), (30, 12.0))
    left = found.index(SMALL, 40)

    assert left < 50
    assert found.index(BIG, left) < left + 10


def test_a_move_is_as_fast_beside_a_weak_place_that_stays() -> None:
    """What has just come counts as what goes, not as the weakest of all."""
    step_s, quiet = 30.0, StepResult(**{each.name: np.zeros(1) for each in fields(StepResult)})
    times = {"A": (20.0, 0.4), "H": (20.0, 0.4), "L": (60.0, 10.0)}
    of = replace(
        system(),
        accelerators=tuple(Accelerator(name, name, 20.0) for name in times),
        profiles=tuple(
            PerformanceProfile("m", name, DecodeParameters(*found), BATCH, OUTPUT)
            for name, found in times.items()
        ),
        capacity=dict.fromkeys(times, 10),
    )
    before, both, after = (np.array([counts]) for counts in ([6, 0, 1], [6, 6, 1], [0, 6, 1]))

    class Decided(Planner):
        """A planner for which the decision is made."""

        def _delay_reductions(self, seen: Seen) -> IntArray:
            return before if seen.time_s < 600.0 else after

    setting = Setting(
        build_fleet(of)[0], step_s, 120.0, np.zeros(1, dtype=np.int64), trace([1.0], step_s)
    )
    planner = Decided(PlanningRules(), setting)
    for time_s in np.arange(0.0, 600.0, step_s).tolist():
        planner(Seen(time_s, load(1.0), quiet, before, before))

    assert planner(Seen(600.0, load(1.0), quiet, both, both)).tolist() == after.tolist()


def test_a_policy_may_choose_accelerators() -> None:
    shown = scenario(np.full(10, 1.0))

    account = replay(shown, NamedPolicy("big", on_the_big_one), shown.fleet.home)

    assert account.moves.tolist() == [1]


def on_the_big_one(_: Setting) -> Decide:
    def decide(_: Seen) -> IntArray:
        return np.array([[1, 0]])

    return decide


def test_the_best_cards_go_to_important_servers_first_as_far_as_they_last() -> None:
    base = system(2)
    cheap = replace(base.accelerators[BIG], cost=30.0)
    classes = (replace(base.classes[0], name="Free", priority=2), base.classes[0])
    servers = (replace(base.servers[0], service_class="Free"), base.servers[1])
    changed = replace(
        base, accelerators=(cheap, base.accelerators[SMALL]), classes=classes, servers=servers
    )
    enough, _ = build_fleet(changed)
    load_of_both = trace([5.0], clients=["s0", "s1"])
    peak = SizedFleet(enough).at(load_of_both.lengths[0]).replicas_for(load_of_both.rate[0])
    scarce, _ = build_fleet(replace(changed, capacity={"B": int(peak[1, BIG]), "S": 100}))

    assert find_best_homes(enough, load_of_both).tolist() == [BIG, BIG]
    assert find_best_homes(scarce, load_of_both).tolist() == [SMALL, BIG]


@pytest.mark.parametrize("name", ["static-peak", "hpa"])
def test_who_stays_where_targets_are_out_of_reach_still_carries_its_load(name: str) -> None:
    base = system()
    hard = replace(base.classes[0], targets={"m": Target(itl_ms=15.0)})
    home, _ = build_fleet(replace(base, classes=(hard,)))
    load_of_one = trace([4.0] * 60)
    most = SizedFleet(home).at(load_of_one.lengths[0]).full_rate[0, SMALL]

    account = replay(
        Scenario(home, home, load_of_one, LeadTime(120.0)), find_policy(name), home.home
    )

    assert account.attainment == 0.0
    assert 4.0 / most < account.history.ready[30:, 0].mean() < 2 * np.ceil(4.0 / most)
