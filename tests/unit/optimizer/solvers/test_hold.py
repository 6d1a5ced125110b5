"""The saturation policy `Hold`: what runs stays, unless a more important server gets the cards."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.solvers.assignment import KeptReplicas, share_kept
from inferno_optimizer.solvers.running import lots_of
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    Options,
    Role,
    SaturationPolicy,
    System,
    Target,
)
from tests.tiers import extended
from tests.unit.optimizer.systems import Demand, accelerators, outcome, system_of

HOLD = Options(saturation_policy=SaturationPolicy.HOLD)
SOLVERS = {"greedy": HOLD, "exact": replace(HOLD, milp=True)}
by_each_solver = pytest.mark.parametrize("options", SOLVERS.values(), ids=SOLVERS.keys())
GREEDY_FIRST = [HOLD, *extended(SOLVERS["exact"])]
"""For a hundred random systems, which take the exact solver seconds."""

ALSO_MIXES = {**SOLVERS, "mixes": replace(HOLD, milp=True, heterogeneous=True)}
also_with_mixes = pytest.mark.parametrize("options", ALSO_MIXES.values(), ids=ALSO_MIXES.keys())
DELAYED = {name: replace(options, delayed_best_effort=True) for name, options in SOLVERS.items()}
at_once_or_delayed = pytest.mark.parametrize(
    "options",
    [*SOLVERS.values(), *DELAYED.values()],
    ids=[*SOLVERS, *(f"{s} delayed" for s in DELAYED)],
)


def runs(accelerator: str, replicas: int, price: float = 10) -> Allocation:
    """What a server runs now."""
    return Allocation(accelerator, replicas, cost=price * replicas)


def scarce(options: Options, cards: int, *demands: Demand) -> System:
    """Servers that all want cards of one type."""
    return system_of(demands, accelerators(X=10), {"X": cards}, options)


def replicas(system: System) -> dict[str, int]:
    return {name: count for name, (_, count) in outcome(system).items()}


@at_once_or_delayed
def test_a_server_that_needs_more_than_there_is_takes_all_there_is(options: Options) -> None:
    needs_five = Demand("premium", {"X": 5}, current=runs("X", 3))

    assert replicas(scarce(options, 4, needs_five)) == {"premium": 4}


@at_once_or_delayed
@pytest.mark.parametrize("second_priority", [1, 2])
def test_a_second_server_that_wants_the_cards_takes_none_that_run(
    options: Options, second_priority: int
) -> None:
    needs_five = Demand("first", {"X": 5}, current=runs("X", 3))
    needs_four = Demand("second", {"X": 4}, priority=second_priority, load=900)

    found = replicas(scarce(options, 4, needs_five, needs_four))

    assert found["first"] >= 3
    assert sum(found.values()) == 4


@at_once_or_delayed
def test_equal_servers_that_run_keep_what_runs_each(options: Options) -> None:
    demands = [Demand(name, {"X": 5}, current=runs("X", 2)) for name in ("a", "b")]

    found = replicas(scarce(options, 5, *demands))

    assert sorted(found.values()) == [2, 3]


@also_with_mixes
def test_of_two_equal_servers_none_is_stopped_when_half_of_their_cards_go(
    options: Options,
) -> None:
    demands = [Demand(name, {"X": 2}, current=runs("X", 2)) for name in ("a", "b")]

    assert replicas(scarce(options, 2, *demands)) == {"a": 1, "b": 1}


@also_with_mixes
def test_no_server_is_stopped_for_an_equal_one_that_runs_a_mix(options: Options) -> None:
    mix = mix_of(("X", 2, 0), ("Y", 1, 0))
    several = Demand("a", {"X": 4, "Y": 2}, load=1000, current=mix)
    one = Demand("b", {"X": 1}, current=runs("X", 1))
    system = system_of([several, one], accelerators(X=10, Y=10), {"X": 2, "Y": 1}, options)
    equal = [replace(several, name="c"), several, replace(one, name="d"), one]

    solution = optimize(system)

    assert placement(solution, "a") == "1 x X + 1 x Y"
    assert placement(solution, "b") == "1 x X"
    found = optimize(system_of(equal, accelerators(X=10, Y=10), {"X": 4, "Y": 1}, options))
    assert {demand.name for demand in equal} == found.allocations.keys()


@pytest.mark.parametrize("options", [*GREEDY_FIRST, *extended(ALSO_MIXES["mixes"])], ids=ALSO_MIXES)
def test_no_server_is_stopped_for_an_equal_one_with_several_replicas(options: Options) -> None:
    random = Random(1)  # noqa: S311 - a repeatable choice, not a secret
    for _ in range(100):
        needs = [random.randint(1, 5) for _ in range(random.randint(2, 4))]
        demands = [
            Demand(
                f"s{place}",
                {"X": need},
                priority=random.randint(1, 2),
                load=random.choice((60, 300, 900)),
                current=runs("X", random.randint(1, need)),
            )
            for place, need in enumerate(needs)
        ]
        fewer = random.randint(1, max(1, sum(d.current.replicas for d in demands) - 1))

        found = replicas(scarce(options, fewer, *demands))

        assert sum(found.values()) <= fewer
        for stopped in (d for d in demands if not found.get(d.name)):
            equal = [d.name for d in demands if d.priority == stopped.priority]
            assert max(found.get(name, 0) for name in equal) <= 1, (demands, found)


@pytest.mark.parametrize(("load", "held"), [(900, {"pair"}), (100, {"one", "other"})])
def test_the_exact_solver_holds_the_most_load_not_the_most_servers(
    load: float, held: set[str]
) -> None:
    units = [Accelerator("X", "X", 10), Accelerator("2xX", "X", 20, 2)]
    demands = [
        Demand("one", {"X": 1}, load=60, current=runs("X", 1)),
        Demand("other", {"X": 1}, load=60, current=runs("X", 1)),
        Demand("pair", {"2xX": 1}, load=load, current=runs("2xX", 1, 20)),
    ]

    found = replicas(system_of(demands, units, {"X": 2}, SOLVERS["exact"]))

    assert {name for name, count in found.items() if count} == held


@by_each_solver
def test_a_more_important_server_gets_the_cards_of_one_that_runs(options: Options) -> None:
    low = Demand("low", {"X": 4}, priority=2, current=runs("X", 4))
    high = Demand("high", {"X": 3}, priority=1)

    assert replicas(scarce(options, 5, low, high)) == {"low": 2, "high": 3}


@by_each_solver
def test_what_the_load_no_longer_takes_is_given_to_others(options: Options) -> None:
    calm = Demand("calm", {"X": 2}, current=runs("X", 6))
    busy = Demand("busy", {"X": 4}, priority=2)

    assert replicas(scarce(options, 6, calm, busy)) == {"calm": 2, "busy": 4}


@by_each_solver
def test_a_server_moves_where_all_that_it_takes_fits(options: Options) -> None:
    moves = Demand("a", {"X": 5, "Y": 3}, current=runs("X", 3))
    system = system_of([moves], accelerators(X=10, Y=30), {"X": 4, "Y": 3}, options)

    assert outcome(system) == {"a": ("Y", 3)}


@by_each_solver
def test_a_server_moves_where_a_larger_part_of_it_is_served(options: Options) -> None:
    moves = Demand("a", {"X": 5, "Y": 4}, current=runs("X", 1))
    system = system_of([moves], accelerators(X=10, Y=30), {"X": 1, "Y": 3}, options)

    assert outcome(system) == {"a": ("Y", 3)}


def decision_of(solution: Solution) -> tuple[Reason, str]:
    (decision,) = solution.decisions
    return decision.reason, decision.message


@by_each_solver
def test_a_server_that_holds_what_runs_says_so_and_what_to_do(options: Options) -> None:
    holds = Demand("a", {"X": 5}, current=runs("X", 4))

    reason, message = decision_of(optimize(scarce(options, 4, holds)))

    assert reason is Reason.BEST_EFFORT
    assert message.startswith("gets 4 of the 5 x X it needs: not enough cards of X")
    assert "so it keeps what runs; add cards or lower the load" in message


def on_slow_cards(options: Options, capacity: dict[str, int]) -> System:
    """Runs on X, which misses its target now, and takes 3 of Y."""
    demand = Demand("a", {"Y": 3}, current=runs("X", 2), target=Target(itl_ms=1e6))
    slow = replace(demand.profiles[0], accelerator="X")
    slow = replace(slow, parameters=replace(slow.parameters, alpha=1e9))
    system = system_of([demand], accelerators(X=10, Y=30), capacity, options)
    return replace(system, profiles=(*system.profiles, slow))


@by_each_solver
def test_what_runs_on_an_accelerator_that_misses_the_targets_stays_until_all_else_fits(
    options: Options,
) -> None:
    short, enough = ({"X": 2, "Y": cards} for cards in (2, 3))

    assert outcome(on_slow_cards(options, short)) == {"a": ("X", 2)}
    assert outcome(on_slow_cards(options, enough)) == {"a": ("Y", 3)}
    reason, message = decision_of(optimize(on_slow_cards(options, short)))
    assert reason is Reason.BEST_EFFORT
    assert message.startswith("2 x X: it keeps what runs")
    assert "3 x Y (cards of Y: 3, left 2)" in message


@by_each_solver
def test_what_runs_without_performance_data_takes_its_cards_from_no_one_important(
    options: Options,
) -> None:
    runs_on_x = Demand("low", {"Y": 3}, priority=2, current=runs("X", 2))
    wants_x = Demand("high", {"X": 3})
    equal = replace(wants_x, name="equal", priority=2)
    units, capacity = accelerators(X=10, Y=30), {"X": 4, "Y": 1}

    beside_high = outcome(system_of([runs_on_x, wants_x], units, capacity, options))
    beside_equal = outcome(system_of([runs_on_x, equal], units, capacity, options))

    assert beside_high == {"low": ("X", 1), "high": ("X", 3)}
    assert beside_equal == {"low": ("X", 2), "equal": ("X", 2)}


@by_each_solver
def test_a_mix_that_runs_stays_until_all_that_is_needed_fits(options: Options) -> None:
    mix = Allocation(
        "X", 3, cost=50, mix=(Allocation("X", 2, cost=20), Allocation("Y", 1, cost=30))
    )
    demand = Demand("a", {"X": 5, "Y": 4}, current=mix)
    system = system_of([demand], accelerators(X=10, Y=30), {"X": 3, "Y": 2}, options)

    (kept,) = optimize(system).decisions

    assert kept.allocation is not None
    assert kept.allocation.placement == "2 x X + 1 x Y"
    assert kept.reason is Reason.BEST_EFFORT


@by_each_solver
@pytest.mark.parametrize(
    ("y", "placement"),
    [(2, "2 x X + 2 x Y"), (4, "4 x Y"), (6, "6 x Y")],
)
def test_a_mix_that_runs_moves_where_more_of_the_load_is_served(
    options: Options, y: int, placement: str
) -> None:
    parts = Allocation("X", 2, cost=20), Allocation("Y", 2, cost=60)
    demand = Demand("a", {"X": 12, "Y": 6}, current=Allocation("X", 4, cost=80, mix=parts))
    system = system_of([demand], accelerators(X=10, Y=30), {"X": 5, "Y": y}, options)

    (decision,) = optimize(system).decisions

    # The mix carries 2/12 + 2/6 = 1/2 of what is needed: more than 5 x X or 2 x Y.
    assert decision.allocation is not None
    assert decision.allocation.placement == placement


@by_each_solver
def test_cards_of_what_is_kept_count_as_used(options: Options) -> None:
    solution = optimize(on_slow_cards(options, {"X": 2, "Y": 2}))

    assert {use.type: use.used for use in solution.capacity} == {"X": 2, "Y": 0}


@by_each_solver
def test_cards_that_a_server_leaves_go_to_one_that_ran_on_them_before_others(
    options: Options,
) -> None:
    demands = (
        Demand("a", {"X": 1, "Y": 1}, current=runs("X", 1), load=900),
        Demand("b", {"X": 2}, current=runs("X", 1), load=60),
        Demand("c", {"X": 1}, priority=2),
    )
    system = system_of(demands, accelerators(X=100, Y=1), {"X": 1, "Y": 1}, options)

    assert outcome(system) == {"a": ("Y", 1), "b": ("X", 1), "c": ("", 0)}


def mix_of(*parts: tuple[str, int, int], price: float = 10) -> Allocation:
    """What a server runs on several accelerators: name, ready replicas, and those that start."""
    placed = [
        replace(runs(name, ready + starting, price), cold_replicas=starting)
        for name, ready, starting in parts
    ]
    replicas, cost = sum(p.replicas for p in placed), sum(p.cost for p in placed)
    return Allocation(placed[0].accelerator, replicas, cost=cost, mix=tuple(placed))


def placement(solution: Solution, name: str) -> str:
    """Replicas and accelerators of a server in a plan."""
    found = solution.allocations.get(name)
    return found.placement if found else ""


@by_each_solver
@pytest.mark.parametrize(
    ("mix", "kept"),
    [
        (mix_of(("B", 2, 0), ("A", 1, 3)), "2 x B + 3 x A"),
        (mix_of(("A", 1, 3), ("B", 2, 0)), "3 x A + 2 x B"),
        (mix_of(("A", 0, 4), ("B", 2, 0)), "3 x A + 2 x B"),
        (mix_of(("A", 4, 0), ("B", 0, 2)), "4 x A + 1 x B"),
        (mix_of(("A", 4, 0), ("B", 2, 0)), "4 x A + 1 x B"),
    ],
)
def test_a_half_done_move_holds_no_more_than_the_need_and_gives_up_what_starts(
    options: Options, mix: Allocation, kept: str
) -> None:
    moves = Demand("moves", {"A": 5, "B": 5}, current=mix)
    waits = Demand("waits", {"A": 2, "B": 2}, priority=2)
    units = accelerators(A=10, B=10)

    solution = optimize(system_of([moves, waits], units, {"A": 4, "B": 2}, options))

    assert placement(solution, "moves") == kept
    assert solution.allocations["waits"].replicas == 1
    assert sum(use.used for use in solution.capacity) == 6


def in_motion(random: Random) -> tuple[list[Demand], dict[str, int]]:
    """Servers whose moves are half done, and at least the cards that these take."""
    demands, capacity = [], Counter(A=random.randint(0, 1), B=random.randint(0, 1))
    for place in range(random.randint(1, 3)):
        needs = {name: random.randint(2, 8) for name in "AB"}
        parts = [
            (name, random.randint(0, 3), random.randint(0, 3)) for name in random.sample("AB", 2)
        ]
        parts = [part if part[1] + part[2] else (part[0], 1, 0) for part in parts]
        capacity.update({name: ready + starting for name, ready, starting in parts})
        priority, load = random.randint(1, 2), random.choice((60, 300, 900))
        demands.append(Demand(f"s{place}", needs, priority, load, mix_of(*parts)))
    return demands, capacity


def share(demand: Demand, parts: Mapping[str, int]) -> Fraction:
    """Share of its need that replicas by accelerator carry, at most 1."""
    carried = (Fraction(count, demand.needs[name]) for name, count in parts.items())
    return min(sum(carried, Fraction(0)), Fraction(1))


def planned(solution: Solution, name: str) -> dict[str, int]:
    """Replicas of a server by accelerator."""
    found = solution.allocations.get(name)
    return {part.accelerator: part.replicas for part in found.parts} if found else {}


def all_of(demand: Demand) -> dict[str, int]:
    """What runs of a server by accelerator, with what starts."""
    return {part.accelerator: part.replicas for part in demand.current.mix}


def ready(demand: Demand) -> dict[str, int]:
    """What serves now, by accelerator."""
    return {part.accelerator: part.warm_replicas for part in demand.current.mix}


def reaches(demands: list[Demand], solution: Solution) -> list[float]:
    """Load that is held and load that is served on one accelerator, class by class."""
    return loads_of(demands, [planned(solution, demand.name) for demand in demands])


def loads_of(demands: list[Demand], plan: Sequence[Mapping[str, int]]) -> list[float]:
    """The same of replicas by accelerator, of each server."""
    loads = []
    for priority in (1, 2):
        held = served = 0.0
        for demand, parts in zip(demands, plan, strict=True):
            if demand.priority == priority:
                held += demand.load * min(share(demand, parts), share(demand, all_of(demand)))
                served += demand.load * share(demand, parts) if len(parts) == 1 else 0
        loads += [held, served]
    return loads


def as_solved(options: Options) -> Iterator[tuple[list[Demand], Solution]]:
    """Moves that are half done, each with its plan."""
    random = Random(1)  # noqa: S311 - a repeatable choice, not a secret
    for _ in range(100):
        demands, capacity = in_motion(random)
        units = accelerators(A=10, B=10)
        yield demands, optimize(system_of(demands, units, capacity, options))


@pytest.mark.parametrize("options", GREEDY_FIRST, ids=SOLVERS)
def test_no_replica_of_a_half_done_move_is_held_beyond_the_need(options: Options) -> None:
    for demands, solution in as_solved(options):
        for demand in demands:
            plan = planned(solution, demand.name)
            less = (plan | {name: count - 1} for name, count in plan.items())
            assert all(share(demand, fewer) < 1 for fewer in less), (demands, plan)


@by_each_solver
def test_what_serves_stays_unless_a_more_important_server_takes_more_cards(
    options: Options,
) -> None:
    for demands, solution in as_solved(options):
        for demand in demands:
            plan, serving = planned(solution, demand.name), ready(demand)
            above = (d for d in demands if d.priority < demand.priority)
            if any(planned(solution, d.name).items() - all_of(d).items() for d in above):
                continue  # it may have taken the cards
            stays = {name: min(count, serving[name]) for name, count in plan.items()}
            kept = stays if len(plan) > 1 else plan
            assert share(demand, kept) >= share(demand, serving), (demands, plan)


@pytest.mark.extended
def test_the_exact_solver_holds_and_serves_no_less_of_half_done_moves() -> None:
    solved = (as_solved(options) for options in SOLVERS.values())
    for (demands, greedy), (_, exact) in zip(*solved, strict=True):
        assert reaches(demands, exact) >= reaches(demands, greedy), demands


def broken_up(random: Random) -> tuple[list[Demand], dict[str, int]]:
    """Two moves that are half done and carry no more than the need, and too few cards.

    Of equal servers none is stopped for another, whoever holds the most: these are not equal.
    """
    demands, runs = [], Counter[str]()
    for place in range(2):
        parts = {name: random.randint(1, 4) for name in random.sample("AB", 2)}
        needs = {name: random.randint(2 * count, 9) for name, count in parts.items()}
        runs.update(parts)
        load = random.choice((60, 300, 900))
        current = mix_of(*((name, count, 0) for name, count in parts.items()))
        demands.append(Demand(f"s{place}", needs, place + 1, load, current))
    return demands, {name: random.randint(0, count) for name, count in runs.items()}


def options_of(demand: Demand) -> Iterator[dict[str, int]]:
    """What a server may have: a part of all that it takes, or of what runs on each accelerator."""
    for name, need in demand.needs.items():
        yield from ({name: count} for count in range(1, need + 1))
    mine = all_of(demand)
    for counts in product(*(range(count + 1) for count in mine.values())):
        if counts.count(0) != 1:
            yield dict(zip(mine, counts, strict=True))


def most_reached(demands: list[Demand], capacity: Mapping[str, int]) -> list[float]:
    """The best loads, class by class, of any plan that fits."""
    plans = (
        plan
        for plan in product(*map(options_of, demands))
        if all(sum(part.get(name, 0) for part in plan) <= capacity[name] for name in capacity)
    )
    return max(loads_of(demands, plan) for plan in plans)


@pytest.mark.extended
@pytest.mark.slow
def test_the_exact_solver_gives_up_parts_of_a_mix_where_that_holds_the_most() -> None:
    random = Random(2)  # noqa: S311 - a repeatable choice, not a secret
    for _ in range(60):
        demands, capacity = broken_up(random)
        units = accelerators(A=10, B=10)

        solution = optimize(system_of(demands, units, capacity, SOLVERS["exact"]))

        best = most_reached(demands, capacity)
        assert reaches(demands, solution) == pytest.approx(best), (demands, capacity)


def test_a_pair_carries_what_the_smaller_of_its_halves_does() -> None:
    prefill = KeptReplicas(type=0, cards=1, replicas=4, share=1 / 4, cost=1, role=Role.PREFILL)
    decode = KeptReplicas(type=0, cards=1, replicas=3, share=1 / 3, cost=1, role=Role.DECODE)

    shares = {
        tuple(part.replicas for part in lot.parts): share_kept(lot.parts)
        for lot in lots_of((prefill, decode))
    }

    halves = product(range(1, 5), range(1, 4))
    assert shares == pytest.approx({(p, d): min(p / 4, d / 3) for p, d in halves})
    assert next(iter(shares)) == (4, 3)


def test_of_many_replicas_of_a_mix_some_numbers_are_tried() -> None:
    parts = tuple(KeptReplicas(place, 1, 50, share=1 / 100, cost=1) for place in range(2))

    lots = [tuple(part.replicas for part in lot.parts) for lot in lots_of(parts)]

    assert len(lots) <= 256
    assert lots[0] == (50, 50)
    assert {(50, 0), (0, 50)} <= {*lots}


@by_each_solver
def test_equal_servers_on_several_accelerators_hold_one_replica_each(options: Options) -> None:
    heavy = Demand("heavy", {"X": 3}, load=300, current=mix_of(("X", 2, 0), ("Y", 1, 0)))
    light = Demand("light", {"X": 3}, current=mix_of(("X", 1, 0), ("Y", 1, 0)))
    system = system_of([heavy, light], accelerators(X=10, Y=10), {"X": 2, "Y": 0}, options)

    assert outcome(system) == {"heavy": ("X", 1), "light": ("X", 1)}
