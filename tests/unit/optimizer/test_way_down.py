"""How fast replicas may go: the rule, against counting all pairs of moments in a window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.system import Role
from inferno_optimizer.way_down import HALF, StepDown, WayDown, choose_weights

ONE = [{"A": 1.0}]


def least(rule: WayDown, served: list[int]) -> int:
    """The fewest replicas that may be left where so many served in the window."""
    return next(
        n
        for n in range(max(served) + 1)
        if rule.permits({"A": n}, [{"A": each} for each in served], ONE)
    )


@pytest.mark.parametrize(
    ("replicas", "fewest"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 4), (17, 9)]
)
def test_half_of_the_replicas_may_go_and_one_in_any_case(replicas: int, fewest: int) -> None:
    assert HALF.count_fewest(replicas) == fewest
    assert least(HALF, [replicas]) == fewest


def test_the_numbers_on_the_way_down_are_those_of_one_window_each() -> None:
    assert HALF.list_numbers_between([(17, 1)]) == [9, 5, 3, 2]
    assert (
        HALF.list_numbers_between([(2, 1)])
        == HALF.list_numbers_between([(4, 2)])
        == HALF.list_numbers_between([(1, 9)])
        == []
    )
    assert HALF.list_numbers_between([(5, 5), (8, 1)]) == [9, 7]


@pytest.mark.parametrize(("percent", "fewest"), [(0, 9), (10, 9), (25, 8), (50, 5), (99, 1)])
def test_the_share_is_rounded_so_that_no_more_goes(percent: int, fewest: int) -> None:
    rule = WayDown(percent / 100)

    assert (rule.count_fewest(10), least(rule, [10])) == (fewest, fewest)


def test_a_share_of_one_switches_the_rule_off() -> None:
    assert least(WayDown(1.0), [8, 100]) == 0


@given(st.lists(st.integers(0, 30), min_size=1, max_size=5), st.integers(0, 100))
def test_every_moment_of_the_window_counts(served: list[int], percent: int) -> None:
    rule = WayDown(percent / 100)

    assert least(rule, served) == max(map(rule.count_fewest, served))


def test_what_went_before_the_window_does_not_count_and_the_future_counts_as_now() -> None:
    known = [StepDown(100.0, {"A": 8}), StepDown(100.5, {"A": 4}), StepDown(900.0, {"A": 2})]

    recent = HALF.select_recent(known, 400.0)

    assert [(r.time_s, r.replicas) for r in recent] == [(100.5, {"A": 4}), (400.0, {"A": 2})]


def test_the_next_replicas_may_go_when_the_window_of_the_last_ones_is_over() -> None:
    recent = [StepDown(0.0, {"A": 8}), StepDown(100.0, {"A": 6})]

    assert HALF.next_s([{"A": 3}], {"A": 4}, recent, ONE) == 300.0
    assert HALF.next_s([{"A": 2}], {"A": 4}, recent, ONE) == 400.0
    assert HALF.next_s([{"A": 1}], {"A": 4}, recent, ONE) is None


def test_replicas_of_different_accelerators_count_by_what_they_carry() -> None:
    weights = choose_weights({"A": Role.BOTH, "H": Role.BOTH}, {"A": 10.0, "H": 25.0})

    assert HALF.permits({"H": 2}, [{"A": 10}], weights)
    assert not HALF.permits({"A": 2, "H": 1}, [{"A": 10}], weights)


def test_where_a_rate_is_unknown_replicas_count_one_each() -> None:
    weights = choose_weights({"A": Role.BOTH, "H": Role.BOTH}, {"A": 10.0, "H": None})

    assert HALF.permits({"H": 5}, [{"A": 10}], weights)
    assert not HALF.permits({"H": 4}, [{"A": 10}], weights)


def test_each_half_of_the_work_keeps_its_replicas() -> None:
    roles = {"A prefill": Role.PREFILL, "A decode": Role.DECODE, "B": Role.BOTH}
    weights = choose_weights(roles, dict.fromkeys(roles, 10.0))
    before = {"A prefill": 8, "A decode": 2}

    assert HALF.permits({"A prefill": 4, "A decode": 1}, [before], weights)
    assert not HALF.permits({"A prefill": 2, "A decode": 2}, [before], weights)
    assert HALF.permits({"B": 8}, [before], weights)


@given(
    st.lists(st.tuples(st.floats(0.1, 200.0), st.integers(0, 20)), max_size=40),
    st.integers(0, 99),
)
def test_nobody_loses_more_than_the_share_within_any_window(
    plans: list[tuple[float, int]], percent: int
) -> None:
    rule, now, serving = WayDown(percent / 100), 0.0, 10
    known: list[StepDown[str]] = []
    history = [(now, serving)]
    for seconds, wanted in plans:
        now += seconds
        served = [{"A": serving}, *(r.replicas for r in rule.select_recent(known, now))]
        after = max(wanted, least(rule, [each["A"] for each in served]))
        if after < serving:
            known.append(StepDown(now, {"A": serving}))
        serving = after
        history.append((now, serving))

    for place, (begin, before) in enumerate(history):
        until = history[place + 1][0] if place + 1 < len(history) else begin
        for time, after in history[place:]:
            if time - until < rule.window_s:
                assert after >= rule.count_fewest(before)
