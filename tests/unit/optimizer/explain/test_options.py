"""Every option of one server and the curve of its replica agree with what optimization does."""

from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.load_curve import BEYOND, POINTS, LoadCurve, load_curve
from inferno_optimizer.explain.options import Option, explain, with_choice
from inferno_optimizer.explain.rates import rates
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceProfile,
    Server,
    System,
    Target,
)
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet
from tests.unit.optimizer.systems import Demand, accelerators, one_server, system_of


def busy_fleet() -> System:
    return replace(decode_system(fleet(24, 20, seed=8, demand=1)), options=Options(unlimited=True))


def test_the_first_option_is_what_an_unlimited_plan_takes() -> None:
    system = busy_fleet()

    solution = optimize(system)

    assert {d.reason for d in solution.decisions} >= {Reason.ALLOCATED}
    for name, allocation in solution.allocations.items():
        best = explain(system, name)[0]
        assert (best.accelerator, best.replicas, best.max_batch_size) == (
            allocation.accelerator,
            allocation.replicas,
            allocation.max_batch_size,
        )
        assert (best.cost, best.itl_ms, best.wait_ms) == pytest.approx(
            (allocation.cost, allocation.itl_ms, allocation.wait_ms), rel=1e-9, abs=1e-12
        )


def test_a_server_out_of_reach_has_a_reason_on_every_accelerator() -> None:
    system = busy_fleet()
    strict = tuple(
        replace(c, targets={model: Target(itl_ms=1e-6) for model in c.targets})
        for c in system.classes
    )
    system = replace(system, classes=strict)

    for decision in optimize(system).decisions:
        options = explain(system, decision.server)
        assert decision.reason is Reason.UNATTAINABLE_SLO
        assert all(option.reason for option in options)
        assert len(options) == 20


def test_options_come_by_value_and_those_that_are_out_by_name_at_the_end() -> None:
    demand = Demand("a", {"X": 3, "Y": 1, "Z": 1}, current=Allocation("Z", 1, cost=9))
    profiles = [*demand.profiles, PerformanceProfile("a", "B", DecodeParameters(1, 1), 1, 1)]
    profiles += [PerformanceProfile("a", "A", DecodeParameters(0, 0), 1, 1)]
    system = system_of([demand], accelerators(X=10, Y=12, Z=9, A=1))

    options = explain(replace(system, profiles=tuple(profiles)), "a")

    assert [(option.accelerator, bool(option.reason)) for option in options] == [
        ("Z", False),
        ("Y", False),
        ("X", False),
        ("A", True),
        ("B", True),
    ]


def test_an_option_tells_all_its_numbers() -> None:
    demand = Demand("a", {"2xX": 3}, load=90, accelerators_per_replica=2)

    option = explain(system_of([demand], [Accelerator("2xX", "X", 10, 2)]), "a")[0]

    assert (option.type, option.replicas, option.cards, option.cost) == ("X", 3, 12, 60)
    assert (option.value, option.max_rate) == pytest.approx((66, 30))


def test_one_that_is_out_has_no_numbers_but_says_what_is_asked_and_what_can_be_had() -> None:
    profile = PerformanceProfile("llm", "G2", DecodeParameters(17.15, 0.34), 1, 512)
    server = Server("chat", "Premium", "llm", Allocation(load=Load(60, 512)))

    option = explain(one_server(server, profile, target=Target(17, 20)), "chat")[0]

    assert option == Option("G2", "G2", max_batch_size=1, reason=option.reason)
    assert "slo-itl: 17.49 ms at best, target 17 ms" in option.reason
    assert "slo-ttw: 26.85 ms at best, target 20 ms" in option.reason


def test_a_percentile_that_is_out_of_reach_is_told_by_the_field_that_asks_for_it() -> None:
    profile = PerformanceProfile("llm", "G2", DecodeParameters(17.15, 0.34), 1, 512)
    server = Server("chat", "Premium", "llm", Allocation(load=Load(60, 512)))
    target = Target(ttft_ms=17, ttft_percentile=90)

    option = explain(one_server(server, profile, target=target), "chat")[0]

    assert option.reason == "cannot meet slo-ttft: 17.49 ms at best, target 17 ms"


@pytest.mark.parametrize(
    ("parameters", "accelerator", "words"),
    [
        (DecodeParameters(0, 0), "X", ("alpha", "beta", "not measured")),
        (DecodeParameters(-1, 1), "X", ("alpha", "-1")),
        (DecodeParameters(1, 1), "gone", ("no accelerator", "'gone'")),
        (DecodeParameters(1, 1), "dear", ("cost", "-7")),
    ],
)
def test_a_profile_that_cannot_be_used_says_why(
    parameters: DecodeParameters, accelerator: str, words: tuple[str, ...]
) -> None:
    demand = Demand("a", {"Y": 1})
    odd = PerformanceProfile("a", accelerator, parameters, 8, 512)
    system = system_of([demand], accelerators(X=1, Y=1, dear=-7))

    options = explain(replace(system, profiles=(odd, *system.profiles)), "a")

    assert [option.accelerator for option in options] == ["Y", accelerator]
    assert [word for word in words if word not in options[1].reason] == []


def test_an_unknown_server_is_named() -> None:
    with pytest.raises(InputError, match="no server is named 'b'"):
        explain(system_of([Demand("a", {"X": 1})], accelerators(X=1)), "b")


def test_a_server_that_cannot_be_sized_gets_the_words_of_its_decision() -> None:
    system = replace(system_of([Demand("a", {"X": 1})], accelerators(X=1)), classes=())
    decision = optimize(system).decisions[0]

    with pytest.raises(InputError) as error:
        explain(system, "a")

    assert str(error.value) == f"server 'a': UnknownClass: {decision.message}"


def test_a_plan_marks_what_it_chose_for_a_server_without_a_load() -> None:
    system = system_of([Demand("a", {"X": 1, "Y": 1})], accelerators(X=1, Y=5))
    idle = replace(system.servers[0], current=Allocation(load=Load(0.0, 0)))
    system = replace(system, servers=(idle,))
    solution = optimize(system)
    options = with_choice(explain(system, "a"), system, solution, "a")

    assert solution.allocations["a"].replicas == 0
    assert sum(option.chosen == 0 for option in options) == 1
    assert [option.lost for option in options if option.chosen is None] == ["higher score"]


ORDER = {"first": 1, "second": 2}


def test_a_plan_marks_its_choice_and_says_why_cheaper_ones_lost() -> None:
    """X is the cheapest for both, and has the cards of one."""
    demands = [Demand(name, {"X": 2, "Y": 2}, priority) for name, priority in ORDER.items()]
    system = system_of(demands, accelerators(X=1, Y=5), {"X": 2, "Y": 9})
    solution = optimize(system)

    shown = {
        name: [
            (o.accelerator, o.chosen, o.lost)
            for o in with_choice(explain(system, name), system, solution, name)
        ]
        for name in ("first", "second")
    }

    assert shown["first"] == [("X", 2, ""), ("Y", None, "higher score")]
    (cheaper, chosen) = shown["second"]
    assert cheaper[:2] == ("X", None)
    assert cheaper[2].startswith("needs 2 cards of X, 0 left; they serve first (")
    assert chosen == ("Y", 2, "")


# What one replica carries, in agreement with the options of each server


def test_the_rates_are_those_of_the_options() -> None:
    system = replace(decode_system(fleet(20, 8, seed=8, demand=1)), options=Options(unlimited=True))

    found = rates(system)

    for server in system.servers:
        for option in explain(system, server.name):
            rate = found.replica.get((server.name, option.accelerator), 0.0)
            assert rate == pytest.approx(option.max_rate)
            if option.replicas:
                assert (option.replicas - 1) * rate <= found.demand[server.name]
                assert option.replicas * rate >= found.demand[server.name] * (1 - 1e-9)


# The curve of a replica, in agreement with what optimization predicts of a plan


@pytest.fixture(scope="module")
def carried_out() -> System:
    """A fleet that runs what an unlimited plan decides."""
    system = decode_system(fleet(15, 10, seed=8, demand=1))
    system = replace(system, options=Options(unlimited=True))
    planned = optimize(system).allocations
    servers = tuple(
        replace(s, current=replace(planned[s.name], load=s.current.load))
        for s in system.servers
        if s.name in planned
    )
    return replace(system, servers=servers)


def busy(system: System) -> list[Server]:
    return [s for s in system.servers if not s.load.idle and s.current.replicas > 0]


def curve_of(system: System, server: Server) -> LoadCurve:
    found = load_curve(system, server.name)
    assert found is not None
    return found


def test_at_the_load_of_a_replica_the_curve_has_what_the_plan_predicts(carried_out: System) -> None:
    system = carried_out
    assert len(busy(system)) > 5

    for server in busy(system):
        curve = curve_of(system, server)
        assert curve.accelerator == server.current.accelerator
        assert curve.itl_ms[curve.now] == pytest.approx(server.current.itl_ms)
        assert curve.wait_ms[curve.now] == pytest.approx(server.current.wait_ms, abs=1e-9)
        assert curve.rate <= curve.max_rate * (1 + 1e-9)
        best = next(o for o in explain(system, server.name) if o.accelerator == curve.accelerator)
        assert curve.max_rate == pytest.approx(best.max_rate)
        assert curve.rates[-1] == pytest.approx(curve.max_rate * BEYOND)


@pytest.mark.parametrize("place", [0, POINTS // 3, POINTS // 2])
def test_a_point_is_what_is_predicted_of_a_server_that_has_this_load(
    carried_out: System, place: int
) -> None:
    for server in busy(carried_out)[:4]:
        curve = curve_of(carried_out, server)
        rate = float(curve.rates[place])
        load = replace(server.current.load, arrival_rate=rate, throughput=0)
        alone = replace(server, min_replicas=1, current=replace(server.current, load=load))
        options = explain(replace(carried_out, servers=(alone,)), server.name)

        option = next(o for o in options if o.accelerator == curve.accelerator)
        assert (option.replicas, option.itl_ms, option.wait_ms) == pytest.approx(
            (1, curve.itl_ms[place], curve.wait_ms[place]), rel=1e-9, abs=1e-9
        )


def test_latencies_grow_with_the_load(carried_out: System) -> None:
    for server in busy(carried_out):
        curve = curve_of(carried_out, server)
        assert len(curve.rates) == POINTS
        assert (np.diff(curve.itl_ms) >= -1e-9).all()
        assert (np.diff(curve.wait_ms) >= -1e-9).all()
        assert curve.itl_ms[-1] + curve.wait_ms[-1] > curve.itl_ms[0] + curve.wait_ms[0]


@pytest.mark.parametrize(
    "current",
    [
        Allocation(),
        Allocation("no such accelerator", 1, load=Load(60, 100)),
        Allocation(mix=(Allocation("a", 1), Allocation("b", 1)), load=Load(60, 100)),
    ],
)
def test_a_server_without_a_replica_of_one_kind_has_no_curve(
    carried_out: System, current: Allocation
) -> None:
    system = carried_out
    server = replace(system.servers[0], current=current)

    assert load_curve(replace(system, servers=(server,)), server.name) is None
    assert load_curve(system, "no such server") is None
