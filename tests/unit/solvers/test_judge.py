"""When a plan is better than another one."""

import pytest

from tests.solvers.judge import Plan, compare

BEFORE = Plan((0.95, 0.5), 1000.0)


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (Plan((0.96, 0.1), 2000.0), "better"),
        (Plan((0.94, 0.9), 500.0), "worse"),
        (Plan((0.9495, 0.6), 1000.0), "better"),
        (Plan((0.9505, 0.4995), 990.0), "better"),
        (Plan((0.9505, 0.4995), 1002.0), "worse"),
        (Plan((0.9505, 0.4995), 1000.5), "equal"),
    ],
)
def test_the_first_class_that_differs_decides_and_then_the_cost(after: Plan, verdict: str) -> None:
    assert compare(BEFORE, after) == verdict


def test_of_several_runs_the_median_counts() -> None:
    plans = [Plan((share,), cost) for share, cost in ((0.1, 3.0), (0.9, 1.0), (0.8, 2.0))]

    assert Plan.between(plans) == Plan([0.8], 2.0)
