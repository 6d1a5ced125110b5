"""Whether replicas fit on nodes, against a search over all placements."""

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer import placement
from inferno_optimizer.placement import Demand, Node, most_cards, unplaced
from tests.unit.optimizer.packing import fit

nodes_of_any_size = st.lists(st.integers(0, 9), max_size=4)


def plan(free: list[int], sizes: list[int]) -> tuple[list[Node], list[Demand]]:
    """Nodes of one type, and a server for each size."""
    counts = sorted(Counter(sizes).items())
    demands = [Demand((f"s{size}", "A"), "T", size, count) for size, count in counts]
    return [Node("T", cards) for cards in free], demands


@given(nodes_of_any_size, st.lists(st.sampled_from([1, 2, 4, 8]), max_size=7))
def test_sizes_that_divide_each_other_are_placed_whenever_that_is_possible(
    free: list[int], sizes: list[int]
) -> None:
    nodes, demands = plan(free, sizes)

    assert (not unplaced(nodes, demands)) == fit(tuple(free), tuple(sizes))


@given(nodes_of_any_size, st.lists(st.integers(1, 5), max_size=6))
def test_what_is_placed_fits_with_any_sizes(free: list[int], sizes: list[int]) -> None:
    nodes, demands = plan(free, sizes)
    missing = {int(server[1:]): count for (server, _), count in unplaced(nodes, demands).items()}
    placed = Counter(sizes) - Counter(missing)

    assert fit(tuple(free), tuple(placed.elements()))
    assert all(sizes.count(size) >= count for size, count in missing.items())


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), st.integers(1, 3), st.data())
def test_replicas_that_run_stay_where_they_are(
    cards: list[int], size: int, data: st.DataObject
) -> None:
    running = [data.draw(st.integers(0, count // size)) for count in cards]
    nodes = [
        Node("T", count, {("s", "A"): each * size})
        for count, each in zip(cards, running, strict=True)
    ]
    wanted = data.draw(st.integers(0, sum(running)))

    assert unplaced(nodes, [Demand(("s", "A"), "T", size, wanted)]) == {}


def test_a_large_replica_finds_no_node_between_those_that_stay() -> None:
    nodes = [Node("T", 8, {("small", "A"): 4}) for _ in range(2)]
    demands = [Demand(("large", "A"), "T", 8, 1), Demand(("small", "A"), "T", 4, 2)]

    assert unplaced(nodes, demands) == {("large", "A"): 1}
    assert unplaced([*nodes, Node("T", 8)], demands) == {}


def test_cards_of_replicas_that_end_are_free_again() -> None:
    nodes = [Node("T", 8, {("gone", "A"): 8})]

    assert unplaced(nodes, [Demand(("new", "A"), "T", 8, 1)]) == {}


def test_less_important_servers_are_left_out_first() -> None:
    demands = [Demand((name, "A"), "T", 2, 2) for name in ("first", "second", "third")]

    assert unplaced([Node("T", 6)], demands) == {("second", "A"): 1, ("third", "A"): 2}


def test_each_type_has_its_own_nodes() -> None:
    nodes = [Node("T", 8), Node("U", 2), Node("U", 3)]

    assert unplaced(nodes, [Demand(("s", "A"), "U", 4, 1)]) == {("s", "A"): 1}
    assert most_cards(nodes) == {"T": 8, "U": 3}


def lines_run(call: Callable[[], object]) -> int:
    """Lines of the module that a call runs, however fast the machine is."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal lines
        if frame.f_code.co_filename != placement.__file__:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]  # a local trace function returns itself
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("scale", [1, 4])
def test_the_work_grows_with_the_servers_and_nodes_and_not_with_their_product(scale: int) -> None:
    servers, machines = 2500 * scale, 500 * scale
    keys = [(f"s{number}", "A") for number in range(servers)]
    nodes = [Node("T", 8, {keys[number]: 2, keys[-number - 1]: 1}) for number in range(machines)]
    demands = [Demand(key, "T", 1 << (place % 4), 1) for place, key in enumerate(keys)]

    assert lines_run(lambda: unplaced(nodes, demands)) < 25 * (servers + machines)
