"""No card of a pool is handed out twice."""

from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.capacity.counts import divide_cards, grant_cards

percents = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 100), min_size=1)


@given(st.integers(0, 500), percents)
def test_the_parts_never_exceed_the_pool(cards: int, parts: dict[str, int]) -> None:
    divided = divide_cards(cards, parts)
    whole = max(sum(parts.values()), 100)

    assert sum(divided.values()) <= cards
    assert all(abs(divided[name] - cards * parts[name] / whole) < 1 for name in parts)


@given(st.integers(0, 500), st.integers(1, 99))
def test_parts_that_sum_up_to_100_leave_no_card(cards: int, percent: int) -> None:
    assert sum(divide_cards(cards, {"a": percent, "b": 100 - percent}).values()) == cards


@given(st.integers(0, 100), st.lists(st.tuples(percents, st.sets(st.sampled_from("abcd")))))
def test_the_pool_is_never_exceeded_whichever_writes_are_lost(
    cards: int, rounds: list[tuple[dict[str, int], set[str]]]
) -> None:
    told = dict.fromkeys("abcd", 0)
    for parts, lost in rounds:
        told = {name: count if name in parts else 0 for name, count in told.items()}
        divided, held = divide_cards(cards, parts), {name: told[name] for name in parts}
        for name in sorted(parts):
            count = grant_cards(cards, divided, held, name)
            held[name] = max(held[name], count)
            if name not in lost:
                told[name] = count

        assert sum(told.values()) <= cards


@given(st.lists(st.tuples(st.integers(0, 100), percents), min_size=1))
def test_a_pool_that_shrinks_is_given_back_and_one_that_grows_is_not_exceeded(
    rounds: list[tuple[int, dict[str, int]]],
) -> None:
    told = dict.fromkeys("abcd", 0)
    for cards, parts in rounds:
        most = max(cards, sum(told.values()))
        told = {name: count if name in parts else 0 for name, count in told.items()}
        divided, held = divide_cards(cards, parts), {name: told[name] for name in parts}
        for name in sorted(parts):
            told[name] = grant_cards(cards, divided, held, name)
            held[name] = max(held[name], told[name])

            assert sum(told.values()) <= most
        assert sum(told.values()) <= cards


def test_a_namespace_waits_for_what_others_still_use() -> None:
    parts = divide_cards(12, {"a": 50, "b": 50})

    assert parts == {"a": 6, "b": 6}
    assert grant_cards(12, parts, {"a": 10, "b": 2}, "b") == 2
    assert grant_cards(12, parts, {"a": 10, "b": 2}, "a") == 6
