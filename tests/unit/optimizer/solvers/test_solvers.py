"""What holds for every solver and any system."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import Accelerator, Allocation, Options, SaturationPolicy, System
from tests.examples import several
from tests.unit.optimizer.systems import REPLICA_SHARE, Demand, system_of

UNITS = (
    Accelerator("V", "v", 7),
    Accelerator("2xV", "v", 13, 2),
    Accelerator("W", "w", 20),
    Accelerator("3xW", "w", 70, 3),
)
NAMES = [unit.name for unit in UNITS]


def demands(names: list[str]) -> st.SearchStrategy[list[Demand]]:
    """A demand for each name."""
    one = {
        name: st.builds(
            Demand,
            name=st.just(name),
            needs=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 12), min_size=1),
            priority=st.integers(0, 4),
            load=st.floats(0.5, 5000),
            current=st.builds(
                Allocation,
                accelerator=st.sampled_from(["", *NAMES]),
                replicas=st.integers(0, 12),
                cost=st.floats(0, 500),
            ),
            min_replicas=st.sampled_from([0, 0, 0, 2, 15]),
            accelerators_per_replica=st.sampled_from([1, 1, 2]),
        )
        for name in names
    }
    return st.tuples(*one.values()).map(list)


OPTIONS = st.builds(
    Options,
    milp=st.booleans(),
    saturation_policy=st.sampled_from(SaturationPolicy),
    delayed_best_effort=st.booleans(),
    hold_undecided=st.booleans(),
    no_swaps=st.booleans(),
)

SYSTEMS = st.builds(
    system_of,
    st.integers(0, 8).flatmap(lambda count: demands([f"s{i}" for i in range(count)])),
    st.just(UNITS),
    st.dictionaries(st.sampled_from(["v", "w", "unused"]), st.integers(-3, 60)),
    OPTIONS,
)


@pytest.mark.slow
@several(100)
@given(system=SYSTEMS)
def test_every_server_gets_one_decision_that_its_numbers_agree_with(system: System) -> None:
    solution = optimize(system)

    assert [d.server for d in solution.decisions] == [s.name for s in system.servers]
    for decision in solution.decisions:
        gets_cards = decision.reason in (Reason.ALLOCATED, Reason.BEST_EFFORT)
        assert (decision.allocation is not None) == gets_cards
        assert decision.message
    served = [d.allocation.cost for d in solution.decisions if d.allocation]
    assert solution.cost == pytest.approx(sum(served) + solution.held_cost)


@pytest.mark.slow
@several(100)
@given(system=SYSTEMS)
def test_replicas_are_all_that_the_load_takes_or_a_share_of_them(system: System) -> None:
    needed = {
        (p.model, p.accelerator): round(
            p.parameters.alpha * load_of(system, p.model) / REPLICA_SHARE
        )
        for p in system.profiles
    }

    solution = optimize(system)

    for server, decision in zip(system.servers, solution.decisions, strict=True):
        if decision.allocation is None:
            continue
        if (server.model, decision.allocation.accelerator) not in needed:
            assert system.options.saturation_policy is SaturationPolicy.HOLD
            assert decision.allocation.accelerator == server.current.accelerator
            assert 0 < decision.allocation.replicas <= server.current.replicas
            continue
        wanted = max(needed[server.model, decision.allocation.accelerator], server.min_replicas)
        if decision.reason is Reason.ALLOCATED:
            assert decision.allocation.replicas == wanted
        else:
            assert 0 < decision.allocation.replicas < wanted


def load_of(system: System, name: str) -> float:
    return next(s.load.arrival_rate for s in system.servers if s.name == name)
