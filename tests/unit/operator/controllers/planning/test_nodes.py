"""Plans that fit on nodes, not only into the number of cards."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.planning.nodes import Nodes, find_spanning, solve_on_nodes
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.resources import parse
from inferno_optimizer.placement import Node, ServerAccelerator
from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.system import SaturationPolicy, System
from tests.examples import several
from tests.fakes import FakeOptimizer
from tests.unit.operator.objects import (
    Manifest,
    accelerator,
    capacity,
    model,
    optimizer,
    performance,
    running,
    server,
    service_class,
)
from tests.unit.optimizer.packing import fit


def system(cards: int, *servers: Manifest, **sizes: int) -> System:
    """A system with a model for each server; `sizes` are the cards of a replica by server.

    A server gets all that it needs, or nothing.
    """
    all_or_nothing = optimizer(parameters={"saturationPolicy": "None"})
    objects = [accelerator(), capacity(cards), all_or_nothing, *servers]
    targets = []
    for name, size in sizes.items():
        objects.append(model(name.upper(), [{**performance(), "accCount": size}]))
        targets.append({"model": name.upper()})
    standing = service_class()
    objects.append({**standing, "spec": {**standing["spec"], "data": targets}})
    return build_system([parse(item) for item in objects]).system


def wants(name: str, replicas: int) -> Manifest:
    return server(name, wanted=replicas, spec={"model": name.upper()})


def placed(solution: Solution) -> Mapping[str, int]:
    return {name: allocation.replicas for name, allocation in solution.allocations.items()}


def nodes(*cards: int) -> Nodes:
    return Nodes([Node("T", count) for count in cards])


async def test_a_plan_that_fits_is_solved_once() -> None:
    solver = FakeOptimizer()
    found = await solve_on_nodes(system(8, wants("a", 2), a=4), nodes(4, 4), solver)

    assert placed(found.solution) == {"a": 2}
    assert found.problems == ()
    assert len(solver.systems) == 1


async def test_a_replica_that_is_larger_than_any_node_leaves_the_cards_to_others() -> None:
    both = system(8, wants("a", 1), wants("b", 2), a=8, b=4)
    found = await solve_on_nodes(both, nodes(4, 4), FakeOptimizer())
    (left_out,) = found.solution.unserved

    assert placed(found.solution) == {"b": 2}
    assert left_out.message.startswith(
        "a replica on A takes 8 x T on one node, and the largest has 4; "
    )


async def test_pieces_that_are_too_small_are_not_planned_with() -> None:
    one = system(12, wants("a", 3), a=4)
    found = await solve_on_nodes(one, nodes(6, 6), FakeOptimizer())

    assert found.solution.decisions[0].reason is Reason.NO_CAPACITY
    assert found.problems == ("4 x T are left out: replicas found no node for them",)


async def test_what_runs_on_the_nodes_stays_where_more_is_needed_than_fits() -> None:
    """2 of 3 replicas of 4 cards fit on two nodes of 6, and 2 run."""
    one = system(12, server("a", spec={"model": "A", "currentAlloc": running(2, 3)}), a=4)
    hold = replace(one.options, saturation_policy=SaturationPolicy.HOLD)
    found = await solve_on_nodes(replace(one, options=hold), nodes(6, 6), FakeOptimizer())

    assert placed(found.solution) == {"a": 2}


async def test_servers_whose_replicas_fit_lose_nothing_for_one_that_does_not_fit_anyway() -> None:
    held = [Node("T", 8, {(f"{name}-runs", "A"): 4}) for name in "xy"]
    running_now = [
        server(f"{name}-runs", spec={"model": "R", "currentAlloc": running(1, 1)}) for name in "xy"
    ]
    whole = system(24, wants("a", 1), *running_now, a=8, r=4)
    found = await solve_on_nodes(whole, Nodes([*held, Node("T", 7)]), FakeOptimizer())

    assert placed(found.solution).items() >= {"x-runs": 1, "y-runs": 1}.items()
    assert found.problems[:1] == ("server a: 1 replicas on A fit on no node",)


async def test_what_runs_and_cannot_be_decided_keeps_its_place() -> None:
    standing = server("b", spec={"class": "gone", "currentAlloc": running(1, 1), "model": "B"})
    both = system(8, wants("a", 1), standing, a=4, b=2)
    free = [Node("T", 5, {("b", "A"): 2}), Node("T", 3)]
    found = await solve_on_nodes(both, Nodes(free), FakeOptimizer())

    assert "a" not in placed(found.solution)


async def test_what_runs_and_is_not_in_the_system_keeps_its_place() -> None:
    one = system(8, wants("a", 1), a=4)
    free = [Node("T", 5, {("no load yet", "A"): 2}), Node("T", 3)]
    found = await solve_on_nodes(one, Nodes(free), FakeOptimizer())

    assert placed(found.solution) == {}


async def test_without_limits_nodes_do_not_matter() -> None:
    objects = [accelerator(), model(), service_class(), server(wanted=2)]
    asked = optimizer(parameters={"unlimited": True})
    unlimited = build_system([parse(item) for item in [*objects, asked]]).system
    found = await solve_on_nodes(unlimited, nodes(1), FakeOptimizer())

    assert placed(found.solution) == {"S": 2}


@several(40)
@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 2)), max_size=3),
)
def test_a_plan_fits_on_the_nodes_or_it_is_told_that_it_does_not(
    cards: list[int], wanted: list[tuple[int, int]]
) -> None:
    sizes = dict(zip("abc", (size for size, _ in wanted), strict=False))
    servers = [wants(name, count) for name, (_, count) in zip("abc", wanted, strict=False)]
    whole = system(sum(cards), *servers, **sizes)
    found = asyncio.run(solve_on_nodes(whole, nodes(*cards), FakeOptimizer()))
    replicas = [sizes[name] for name, count in placed(found.solution).items() for _ in range(count)]
    is_told = any("fit on no node" in problem for problem in found.problems)

    assert fit(tuple(cards), tuple(replicas)) != is_told


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        ({"workloads": [{"accelerator": "A", "name": "d"}]}, set()),
        (
            {"workloads": [{"accelerator": "A", "kind": "LeaderWorkerSet", "name": "l"}]},
            {("S", "A")},
        ),
        (
            {"modelBooster": {"name": "m", "backends": [{"name": "b", "accelerator": "A"}]}},
            {("S", "A")},
        ),
    ],
)
def test_replicas_of_several_pods_may_span_nodes(
    spec: Manifest, keys: set[ServerAccelerator]
) -> None:
    assert find_spanning([parse(server(spec=spec))]) == keys


async def test_a_replica_that_spans_nodes_takes_cards_of_several() -> None:
    one = system(8, wants("a", 1), a=8)
    where = Nodes([Node("T", 4), Node("T", 4)], frozenset({("a", "A")}))

    assert placed((await solve_on_nodes(one, where, FakeOptimizer())).solution) == {"a": 1}
