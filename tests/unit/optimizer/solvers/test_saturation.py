"""How the cards that are left are shared out, on systems worked out by hand.

All fail in the order in which they are tried: by priority, then the largest value first.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import Accelerator, Options, SaturationPolicy
from tests.unit.optimizer.oracles import birth_death
from tests.unit.optimizer.systems import Demand, accelerators, outcome, system_of

ROOT = Path(__file__).parents[4]
NONE = SaturationPolicy.NONE
EXHAUSTIVE = SaturationPolicy.PRIORITY_EXHAUSTIVE
BY_PRIORITY = SaturationPolicy.PRIORITY_ROUND_ROBIN
ROUND_ROBIN = SaturationPolicy.ROUND_ROBIN


def replicas(
    demands: list[Demand], cards: int, policy: SaturationPolicy, *, delayed: bool = False
) -> dict[str, int]:
    """Replicas of each server where all want cards of one type."""
    options = Options(saturation_policy=policy, delayed_best_effort=delayed)
    plan = outcome(system_of(demands, accelerators(X=10), {"X": cards}, options))
    return {name: count for name, (_, count) in plan.items()}


@pytest.mark.parametrize(
    ("policy", "shares"),
    [
        (NONE, {"a": 0, "b": 0, "c": 4}),
        (EXHAUSTIVE, {"a": 0, "b": 1, "c": 4}),
        (BY_PRIORITY, {"a": 0, "b": 1, "c": 4}),
        (ROUND_ROBIN, {"a": 0, "b": 1, "c": 4}),
    ],
)
def test_what_fits_entirely_goes_before_any_share(
    policy: SaturationPolicy, shares: dict[str, int]
) -> None:
    demands = [Demand("a", {"X": 6}), Demand("b", {"X": 7}), Demand("c", {"X": 4})]

    assert replicas(demands, 5, policy) == shares


def two_and_a_lower_one(cards: int) -> list[Demand]:
    """Servers that want 6 and 7 cards, and one of a less important class that wants so many."""
    return [Demand("low", {"X": cards}, priority=2), Demand("a", {"X": 6}), Demand("b", {"X": 7})]


@pytest.mark.parametrize(
    ("policy", "shares"),
    [
        (NONE, {"a": 0, "b": 0, "low": 0}),
        (EXHAUSTIVE, {"a": 0, "b": 5, "low": 0}),
        (BY_PRIORITY, {"a": 2, "b": 3, "low": 0}),
        (ROUND_ROBIN, {"a": 2, "b": 2, "low": 1}),
    ],
)
def test_all_shares_are_handed_out_at_the_end_when_delayed(
    policy: SaturationPolicy, shares: dict[str, int]
) -> None:
    assert replicas(two_and_a_lower_one(8), 5, policy, delayed=True) == shares


@pytest.mark.parametrize(
    ("policy", "shares"),
    [
        (NONE, {"a": 0, "b": 0, "low": 4}),
        (EXHAUSTIVE, {"a": 0, "b": 5, "low": 0}),
        (BY_PRIORITY, {"a": 2, "b": 3, "low": 0}),
        (ROUND_ROBIN, {"a": 2, "b": 3, "low": 0}),
    ],
)
def test_undelayed_shares_of_an_important_class_come_before_whole_plans_of_lower_ones(
    policy: SaturationPolicy, shares: dict[str, int]
) -> None:
    assert replicas(two_and_a_lower_one(4), 5, policy) == shares


@pytest.mark.parametrize(
    ("policy", "shares"),
    [
        (EXHAUSTIVE, {"a": 0, "b": 1, "low": 4}),
        (BY_PRIORITY, {"a": 0, "b": 1, "low": 4}),
        (ROUND_ROBIN, {"a": 0, "b": 1, "low": 4}),
    ],
)
def test_delayed_shares_come_after_whole_plans_of_lower_classes(
    policy: SaturationPolicy, shares: dict[str, int]
) -> None:
    assert replicas(two_and_a_lower_one(4), 5, policy, delayed=True) == shares


@pytest.mark.parametrize("policy", [BY_PRIORITY, ROUND_ROBIN])
@pytest.mark.parametrize(("cards", "shares"), [(1, [1, 0, 0]), (3, [1, 1, 1]), (7, [3, 2, 2])])
def test_in_turn_nobody_gets_a_second_replica_before_all_have_one(
    cards: int, shares: list[int], policy: SaturationPolicy
) -> None:
    demands = [Demand(name, {"X": 8}) for name in "abc"]

    assert list(replicas(demands, cards, policy).values()) == shares


def two_types(policy: SaturationPolicy, capacity: dict[str, int]) -> dict[str, tuple[str, int]]:
    """Two servers that want X first, then Y; values of a: 66, 77, of b: 55, 66; a fails first."""
    demands = [Demand("a", {"X": 6, "Y": 7}), Demand("b", {"X": 5, "Y": 6})]
    options = Options(saturation_policy=policy)
    return outcome(system_of(demands, accelerators(X=10, Y=10), capacity, options))


@pytest.mark.parametrize("policy", [EXHAUSTIVE, BY_PRIORITY, ROUND_ROBIN])
def test_a_share_is_of_the_best_candidate_of_which_one_replica_fits(
    policy: SaturationPolicy,
) -> None:
    assert two_types(policy, {"X": 1, "Y": 3}) == {"a": ("X", 1), "b": ("Y", 3)}


def test_exhaustive_takes_all_of_one_type_and_no_mix() -> None:
    assert two_types(EXHAUSTIVE, {"X": 4, "Y": 3}) == {"a": ("X", 4), "b": ("Y", 3)}


@pytest.mark.parametrize("policy", [BY_PRIORITY, ROUND_ROBIN])
def test_round_robin_stays_with_its_first_pick_when_that_is_used_up(
    policy: SaturationPolicy,
) -> None:
    assert two_types(policy, {"X": 3, "Y": 3}) == {"a": ("X", 2), "b": ("X", 1)}


@pytest.mark.parametrize("policy", [EXHAUSTIVE, BY_PRIORITY, ROUND_ROBIN])
def test_a_replica_of_many_cards_is_skipped_where_only_a_few_are_left(
    policy: SaturationPolicy,
) -> None:
    demand = Demand("a", {"4xX": 2, "Y": 9})
    units = [Accelerator("4xX", "X", 10, 4), Accelerator("Y", "Y", 10)]
    options = Options(saturation_policy=policy)

    assert outcome(system_of([demand], units, {"X": 3, "Y": 2}, options)) == {"a": ("Y", 2)}
    assert outcome(system_of([demand], units, {"X": 7, "Y": 2}, options)) == {"a": ("4xX", 1)}


def test_a_share_costs_by_its_replicas_tells_true_latencies_and_is_no_part_of_the_objective() -> (
    None
):
    demand = Demand("a", {"X": 8})
    options = Options(saturation_policy=EXHAUSTIVE)
    alpha = demand.profiles[0].parameters.alpha
    queue = birth_death(60 / 60_000 / 3, [alpha], 10)

    solution = optimize(system_of([demand], accelerators(X=10), {"X": 3}, options))

    share = solution.allocations["a"]
    assert (share.replicas, share.cost) == pytest.approx((3, 30))
    assert (share.itl_ms, share.wait_ms) == pytest.approx((queue.service_ms, queue.wait_ms))
    assert solution.certificate.objective == 0
    assert solution.decisions[0].reason is Reason.BEST_EFFORT
    assert solution.decisions[0].message.startswith("gets 3 of the 8 x X it needs")


HUGE = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from tests.unit.optimizer.solvers.test_saturation import Demand, SaturationPolicy, replicas
demands = [Demand(name, {"X": 2_000_000_000}, load=2e9) for name in "abc"]
print(*replicas(demands, 1_500_000_001, SaturationPolicy("%s")).values())
"""


@pytest.mark.parametrize("policy", [BY_PRIORITY, ROUND_ROBIN])
def test_shares_of_a_huge_capacity_are_found_at_once(policy: SaturationPolicy) -> None:
    """One replica after the other takes minutes of processor time, and one ends the process."""
    done = subprocess.run(
        [sys.executable, "-c", HUGE % policy],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout.split() == ["500000001", "500000000", "500000000"]
