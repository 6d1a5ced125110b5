"""What each server would need on each accelerator, against the rules in plain arithmetic."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.explain.options import Option, explain
from inferno_optimizer.optimize import optimize
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.solution import Decision, Reason
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    SaturationPolicy,
    Server,
    System,
    Target,
    TokenBudgetParameters,
)
from inferno_optimizer.wire.codec import (
    encode_explanation,
    encode_solution,
)
from tests.unit.optimizer import oracles
from tests.unit.optimizer.systems import NOTHING, Demand, accelerators, one_server, system_of

G2 = PerformanceProfile("llm", "G2", DecodeParameters(17.15, 0.34), 38, 512)
A100 = PerformanceProfile("llm", "A100", DecodeParameters(20.58, 0.41), 32, 512)
UNITS = (Accelerator("A100", "A100", 40), Accelerator("G2", "G2", 25))
TARGET = Target(itl_ms=40, wait_ms=500)


def server(rate: float = 60, tokens: int = 512, current: Allocation = NOTHING) -> Server:
    return Server("chat", "Premium", "llm", replace(current, load=Load(rate, tokens)))


def system(served: Server, target: Target = TARGET) -> System:
    return one_server(served, A100, G2, target=target, units=UNITS)


def options(served: Server, target: Target = TARGET) -> dict[str, Option]:
    """The options of a server, by accelerator."""
    return {option.accelerator: option for option in explain(system(served, target), "chat")}


def decision(of: System) -> Decision:
    return optimize(of).decisions[0]


def test_only_the_row_that_runs_now_leaves_a_server_as_it_is() -> None:
    demand = Demand("a", {"X": 1, "Y": 1, "Z": 1}, current=Allocation("X", 1, cost=11))
    catalogue = Catalogue(system_of([demand], accelerators(X=11, Y=9, Z=5)).by_name())
    case = catalogue.case(catalogue.system.servers[0])
    assert isinstance(case, Case)

    found = build_candidates(catalogue, [case])

    assert found.value.tolist() == pytest.approx([0.0, 0.0, -4.4])
    assert found.stays.tolist() == [True, False, False]


@given(
    needed=st.integers(1, 500),
    cost=st.floats(0, 1e4),
    current=st.builds(
        Allocation,
        accelerator=st.sampled_from(["", "X", "Y", "gone"]),
        replicas=st.integers(0, 500),
        cost=st.floats(0, 1e5),
    ),
)
def test_any_value_is_that_of_the_rule(needed: int, cost: float, current: Allocation) -> None:
    demand = Demand("a", {"X": needed}, current=current)

    option = explain(system_of([demand], accelerators(X=cost, Y=1)), "a")[0]

    assert option.replicas == needed
    assert option.value == pytest.approx(oracles.value(current, "X", needed, cost * needed))


@pytest.mark.parametrize(("fewest", "replicas"), [(0, 2), (1, 2), (2, 2), (3, 3), (100, 100)])
def test_there_are_never_fewer_replicas_than_asked_for(fewest: int, replicas: int) -> None:
    option = options(replace(server(rate=120), min_replicas=fewest))["G2"]

    assert (option.replicas, option.cost) == (replicas, 25 * replicas)


@pytest.mark.parametrize(
    ("tokens", "batch"),
    [(512, 38), (511, 38), (256, 76), (513, 37), (9728, 2), (9729, 1), (10**7, 1)],
)
def test_the_batch_shrinks_as_requests_grow(tokens: int, batch: int) -> None:
    found = options(server(tokens=tokens), Target())

    assert found["G2"].max_batch_size == batch


def test_a_servers_own_batch_counts_as_it_is() -> None:
    found = options(replace(server(tokens=2048), max_batch_size=64))

    assert [option.max_batch_size for option in found.values()] == [64, 64]


def test_a_kept_accelerator_is_the_only_option() -> None:
    found = options(replace(server(current=Allocation("A100", 1)), keep_accelerator=True))

    assert [name for name, option in found.items() if not option.reason] == ["A100"]
    assert "keepAccelerator" in found["G2"].reason


def test_nothing_is_kept_where_nothing_runs() -> None:
    found = options(replace(server(), keep_accelerator=True))

    assert [option.reason for option in found.values()] == ["", ""]


@pytest.mark.parametrize(
    ("runs", "target", "reason"),
    [
        ("H100", TARGET, Reason.NO_PERFORMANCE_DATA),
        ("A100", Target(itl_ms=19), Reason.UNATTAINABLE_SLO),  # it is too slow
    ],
)
def test_a_kept_accelerator_without_data_or_too_slow_leaves_no_option(
    runs: str, target: Target, reason: Reason
) -> None:
    kept = replace(server(current=Allocation(runs, 1)), keep_accelerator=True)

    outcome = decision(system(kept, target))

    assert (outcome.reason, outcome.allocation) == (reason, None)
    assert ("keepAccelerator" in outcome.message) == (runs == "H100")


@pytest.mark.parametrize(
    ("count", "multiplicity", "cost", "cards"),
    [(1, 1, 30, 3), (2, 1, 60, 6), (1, 4, 30, 12), (2, 4, 60, 24)],
)
def test_several_accelerators_for_a_replica_cost_and_several_cards_in_one_do_not(
    count: int, multiplicity: int, cost: float, cards: int
) -> None:
    demand = Demand("a", {"X": 3}, accelerators_per_replica=count)

    option = explain(system_of([demand], [Accelerator("X", "x", 10, multiplicity)]), "a")[0]

    assert (option.replicas, option.type, option.cost, option.cards) == (3, "x", cost, cards)


@pytest.mark.parametrize("idle", [server(rate=0), server(tokens=0), server(rate=0, tokens=0)])
@pytest.mark.parametrize("fewest", [0, 1, 3])
def test_an_idle_server_keeps_its_floor_with_an_unscaled_batch(idle: Server, fewest: int) -> None:
    option = options(replace(idle, min_replicas=fewest))["G2"]

    assert (option.replicas, option.max_batch_size) == (fewest, 38)
    assert (option.cost, option.value) == pytest.approx((25 * fewest, 27.5 * fewest))
    assert (option.itl_ms, option.wait_ms) == pytest.approx((17.49, 0))
    assert options(replace(idle, max_batch_size=5))["G2"].max_batch_size == 5
    assert json.dumps(encode_explanation(explain(system(idle), "chat")), allow_nan=False)
    given = decision(system(idle)).allocation  # without a floor
    assert given is not None
    assert (given.accelerator, given.replicas, given.cost) == ("G2", 0, 0)


@pytest.mark.parametrize("target", [Target(itl_ms=1), Target(wait_ms=1e-9), Target(0, 0, 1e6)])
def test_an_idle_server_is_allocated_whatever_its_targets(target: Target) -> None:
    outcome = decision(system(replace(server(rate=0), min_replicas=2), target))

    assert outcome.reason is Reason.ALLOCATED
    assert outcome.allocation is not None
    assert (outcome.allocation.accelerator, outcome.allocation.replicas) == ("G2", 2)


@pytest.mark.parametrize("target", [Target(itl_ms=20), Target(itl_ms=20, wait_ms=500)])
def test_an_idle_server_waits_where_its_first_request_keeps_the_targets(target: Target) -> None:
    """A lone token takes 20.99 ms on the A100, which is cheaper here, and 17.49 ms on the G2."""
    idle = replace(server(rate=0), min_replicas=1)
    cheaper = (Accelerator("A100", "A100", 10), UNITS[1])

    asked = one_server(idle, A100, G2, target=target, units=cheaper)
    outcome = decision(asked)

    assert outcome.allocation is not None
    assert outcome.allocation.accelerator == "G2"
    (refused,) = (each.reason for each in explain(asked, "chat") if each.accelerator == "A100")
    assert refused == "cannot meet slo-itl: 20.99 ms at best, target 20 ms"


def test_an_idle_server_waits_where_its_first_prompt_keeps_the_target() -> None:
    load = Load(0, input_tokens=1000, output_tokens=100)
    idle = Server("chat", "Premium", "llm", Allocation(load=load), min_replicas=1)
    slow, fast = (
        PerformanceProfile("llm", name, PrefillDecodeParameters(10.0, 0.1, 5.0, delta), 32, 512)
        for name, delta in (("A100", 0.5), ("G2", 0.05))
    )
    cheaper = (Accelerator("A100", "A100", 10), UNITS[1])

    outcome = decision(one_server(idle, slow, fast, target=Target(ttft_ms=200), units=cheaper))

    assert outcome.allocation is not None
    assert outcome.allocation.accelerator == "G2"


@given(replicas=st.integers(1, 100_000), load=st.floats(1e-3, 1e6))
def test_a_load_that_fills_its_replicas_exactly_needs_no_further_one(
    replicas: int, load: float
) -> None:
    demand = Demand("a", {"X": replicas}, load=load)

    option = explain(system_of([demand], accelerators(X=1)), "a")[0]

    assert option.replicas == replicas


@pytest.mark.parametrize("replicas", [1, 3, 1000])
def test_a_load_a_little_above_that_needs_one_more(replicas: int) -> None:
    demand = Demand("a", {"X": replicas})
    busier = replace(demand.server, current=Allocation(load=Load(60 * (1 + 1e-6), 1)))
    made = replace(system_of([demand], accelerators(X=1)), servers=(busier,))

    assert explain(made, "a")[0].replicas == replicas + 1


@pytest.mark.parametrize(
    ("rate", "tps", "served"), [(600, 1, 600), (60, 5000, 5000 * 60 / 512), (600, 5120, 600)]
)
def test_a_throughput_target_counts_where_it_is_above_the_load(
    rate: float, tps: float, served: float
) -> None:
    option = options(server(rate=rate), Target(tokens_per_second=tps))["G2"]

    assert option.replicas == math.ceil(served / option.max_rate)


@pytest.mark.parametrize("solver", [Options(), Options(unlimited=True), Options(milp=True)])
@pytest.mark.parametrize(
    ("rate", "tps", "word"),
    [*((rate, 0.0, "arrival rate") for rate in (1e15, 1e30, 1e308)), (60, 1e30, "slo-tps")],
)
def test_an_absurd_load_or_target_is_an_invalid_spec_and_no_plan(
    rate: float, tps: float, word: str, solver: Options
) -> None:
    asked = system(server(rate=rate), Target(tokens_per_second=tps))

    outcome = decision(replace(asked, options=solver, capacity={"G2": 5}))

    assert (outcome.reason, outcome.allocation) == (Reason.INVALID_SPEC, None)
    assert word in outcome.message
    assert "correct" in outcome.message


@pytest.mark.parametrize("solver", [Options(), Options(milp=True)])
@pytest.mark.parametrize("policy", [SaturationPolicy.NONE, SaturationPolicy.PRIORITY_EXHAUSTIVE])
@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(replace(G2, accelerator_count=2**32), id="2^64 cards"),
        pytest.param(replace(G2, accelerator_count=2**31), id="2^63 cards"),
        pytest.param(replace(G2, accelerator_count=2**30), id="2^62 cards"),
        pytest.param(replace(G2, parameters=DecodeParameters(1e306, 0)), id="slower than time"),
    ],
)
def test_numbers_beyond_every_machine_lead_to_no_plan(
    profile: PerformanceProfile, policy: SaturationPolicy, solver: Options
) -> None:
    units = [Accelerator("G2", "G2", 25, 2**32)]
    solver = replace(solver, saturation_policy=policy)
    made = one_server(server(rate=6000), profile, units=units, capacity={"G2": 5}, options=solver)

    solution = optimize(made)

    assert solution.allocations == {}
    assert [use.used for use in solution.capacity] == [0]


@pytest.mark.parametrize("solver", [Options(), Options(milp=True)])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_an_absurd_floor_never_exceeds_the_capacity(count: int, solver: Options) -> None:
    profile = replace(G2, accelerator_count=count)
    greedy = replace(server(), min_replicas=2**62)

    solution = optimize(one_server(greedy, profile, options=solver, capacity={"G2": 5}))

    assert solution.allocations == {}


@pytest.mark.parametrize("solver", [Options(), Options(unlimited=True), Options(milp=True)])
def test_absurd_costs_stay_numbers(solver: Options) -> None:
    units = [Accelerator("G2", "G2", 1e308)]
    made = one_server(server(rate=6000), G2, units=units, options=solver, capacity={"G2": 10**6})

    solution = optimize(made)

    assert json.dumps(encode_solution(solution), allow_nan=False)


IN_AND_OUT = Load(60, input_tokens=1500, output_tokens=100)
GENERATIONS = (
    DecodeParameters(17.15, 0.34),
    PrefillDecodeParameters(17.15, 0.34, 50, 0.01),
    TokenBudgetParameters(6, 0.05, 0.0005),
)


def bounded(
    load: Load,
    parameters: PerformanceParameters = GENERATIONS[0],
    batch: int = 0,
    max_tokens: int = 0,
    max_sequences: int = 0,
) -> System:
    """A server on data of 384 requests at 512 tokens, with bounds."""
    profile = PerformanceProfile(
        "llm", "G2", parameters, 384, 512, max_tokens=max_tokens, max_sequences=max_sequences
    )
    served = Server("chat", "Premium", "llm", Allocation(load=load), max_batch_size=batch)
    return one_server(served, profile)


def batch_of(of: System) -> int:
    (found,) = optimize(of).allocations.values()
    return found.max_batch_size


SHORT = Load(60, 512)


@pytest.mark.parametrize(
    ("asked", "batch"),
    [
        *((bounded(IN_AND_OUT, each, max_tokens=200_000), 125) for each in GENERATIONS),
        *((bounded(IN_AND_OUT, each, max_sequences=64), 64) for each in GENERATIONS),
        (bounded(Load(0, 512), max_sequences=64, max_tokens=1), 64),  # idle
        (bounded(SHORT, max_tokens=10**9, max_sequences=10**6), 384),  # the tighter one counts
        (bounded(SHORT, max_tokens=51200, max_sequences=99), 99),
        (bounded(SHORT, max_tokens=51200, max_sequences=101), 100),
        (bounded(SHORT, batch=256, max_tokens=51200), 100),  # for that of the server, too
        (bounded(SHORT, batch=256, max_sequences=30), 30),
    ],
)
def test_memory_and_sequences_bound_the_batch(asked: System, batch: int) -> None:
    assert batch_of(asked) == batch
    assert decision(asked).warnings == () or asked.servers[0].load == SHORT


def test_where_no_request_fits_into_the_memory_is_no_option() -> None:
    short = bounded(IN_AND_OUT, max_tokens=1599)
    exact = bounded(IN_AND_OUT, max_tokens=1600)

    made = decision(short)

    assert batch_of(exact) == 1
    assert made.reason is Reason.NO_PERFORMANCE_DATA
    assert "G2: a request keeps 1600 tokens, more than its maxTokens 1599" in made.message


def test_an_accelerator_that_no_request_fits_on_is_left_out_of_several() -> None:
    small = PerformanceProfile("llm", "G2", GENERATIONS[0], 384, 512, max_tokens=1599)
    served = Server("chat", "Premium", "llm", Allocation(load=IN_AND_OUT))
    found = {o.accelerator: o for o in explain(one_server(served, A100, small), "chat")}

    assert found["A100"].reason == ""
    assert found["G2"].reason == "a request keeps 1600 tokens, more than its maxTokens 1599"
