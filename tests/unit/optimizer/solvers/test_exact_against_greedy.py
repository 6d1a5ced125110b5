"""Fifty fleets with too few cards: what the exact solver makes better, and never worse."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.solvers import exact
from inferno_optimizer.solvers.assignment import SolverResult
from inferno_optimizer.solvers.exact import FoundPlan, solve_exact
from inferno_optimizer.solvers.greedy import solve_greedy
from inferno_optimizer.solvers.loads import is_better
from inferno_optimizer.solvers.params import DEFAULTS, SolveParams
from inferno_optimizer.system import Allocation, Options, SaturationPolicy, System
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet
from tests.tiers import sampled
from tests.unit.optimizer.enumeration import served
from tests.unit.optimizer.systems import Demand, accelerators, outcome, system_of

ROUNDING = 1e-9


def tight_fleet(seed: int) -> System:
    return decode_system(fleet(20, 8, seed, demand=2.0))


def solved_exactly(system: System) -> System:
    return replace(system, options=Options(milp=True))


@pytest.mark.parametrize("seed", sampled(range(50)))
def test_no_class_pays_for_another_and_the_same_service_is_no_worth_less(seed: int) -> None:
    system = tight_fleet(seed)

    greedy, best = optimize(system), optimize(solved_exactly(system))

    more, less = served(system, best), served(system, greedy)
    assert more >= less
    if more == less:
        worst = greedy.certificate.objective
        assert best.certificate.objective <= worst + ROUNDING * max(1.0, abs(worst))


def with_nothing_running(system: System) -> System:
    """Nobody moves, so that value and cost are in proportion."""
    servers = (replace(s, current=Allocation(load=s.load)) for s in system.servers)
    return replace(system, servers=tuple(servers))


@pytest.mark.parametrize("seed", sampled(range(50, 65)))
def test_the_same_service_from_nothing_never_costs_more(seed: int) -> None:
    system = with_nothing_running(tight_fleet(seed))

    greedy, best = optimize(system), optimize(solved_exactly(system))

    more, less = served(system, best), served(system, greedy)
    assert more >= less
    if more == less:
        assert best.cost <= greedy.cost * (1 + ROUNDING)


def solve_with_work(system: System, work: float) -> tuple[Candidates, SolverResult, SolverResult]:
    """The table, and the answers of the greedy solver, and of the exact one with so much work."""
    catalogue = Catalogue(system)
    cases = [case for case in map(catalogue.case, system.servers) if isinstance(case, Case)]
    candidates = build_candidates(catalogue, cases)
    cards = np.array([system.capacity.get(name, 0) for name in candidates.types])
    params = replace(
        DEFAULTS,
        work_per_row=1e3,
        least_work_per_second=work / system.options.time_limit,
        prices_share=0.0,
    )
    best = solve_exact(candidates, cards, lambda: 0.0, 0.0, params)
    return candidates, solve_greedy(candidates, cards, params), best


@pytest.mark.parametrize(
    ("tolerance", "params"),
    [(None, DEFAULTS), (0.0, replace(DEFAULTS, small=0)), (1e-6, replace(DEFAULTS, small=0))],
    ids=["small", "nothing", "wanted"],
)
def test_no_load_is_given_up_for_a_cheaper_plan_while_nothing_is_proven(
    monkeypatch: pytest.MonkeyPatch, tolerance: float | None, params: SolveParams
) -> None:
    # Greedy lets `large` have V, so that `little`, 2e-4 of the load, gets nothing.
    demands = [
        Demand("large", {"V": 1, "W": 1}, load=5000),
        Demand("little", {"V": 1, "X": 2}, load=1),
    ]
    options = Options(milp=True, priority_tolerance=tolerance)
    cards = {"V": 1, "W": 1, "X": 1}
    system = system_of(demands, accelerators(V=7, W=50, X=10), cards, options)

    def unproven(*given: Any) -> FoundPlan:  # noqa: ANN401 - as the search gets it
        return replace(search(*given), least_value=-math.inf)

    search = exact._search_plan  # noqa: SLF001 - a small system is proven at once
    monkeypatch.setattr(exact, "_search_plan", unproven)
    plan = optimize(system, params=params)

    assert outcome(replace(system, options=Options())) == {"large": ("V", 1), "little": ("", 0)}
    assert {n: a.accelerator for n, a in plan.allocations.items()} == {"large": "W", "little": "V"}


@pytest.mark.parametrize("heterogeneous", [False, True])
def test_the_same_service_costs_no_more_with_any_work(*, heterogeneous: bool) -> None:
    options = Options(milp=True, heterogeneous=heterogeneous)
    system = replace(decode_system(fleet(40, 12, 3, demand=0.8)), options=options)
    for work in (0.001, 0.01, 0.03, 0.1, 0.3):
        candidates, greedy, best = solve_with_work(system, work)

        assert not is_better(candidates, greedy.assignment, best.assignment)
        if not is_better(candidates, best.assignment, greedy.assignment, exactly=True):
            worst = greedy.assignment.objective(candidates)
            assert best.assignment.objective(candidates) <= worst + ROUNDING * abs(worst), work


def test_with_little_work_mixes_take_nothing_from_single_rows() -> None:
    options = Options(milp=True, saturation_policy=SaturationPolicy.PRIORITY_EXHAUSTIVE)
    system = replace(decode_system(fleet(200, 20, 1, demand=2.0)), options=options)
    mixed = replace(system, options=replace(options, heterogeneous=True))
    for work in (0.2, 0.4):
        candidates, greedy, single = solve_with_work(system, work)
        _, _, several = solve_with_work(mixed, work)

        assert is_better(candidates, single.assignment, greedy.assignment)
        assert not is_better(candidates, single.assignment, several.assignment), work


def test_with_hold_mixes_that_fit_together_are_all_kept() -> None:
    options = Options(milp=True, saturation_policy=SaturationPolicy.HOLD)
    system = replace(decode_system(fleet(40, 10, 0, demand=0.8)), options=options)
    mixed = replace(system, options=replace(options, heterogeneous=True))

    candidates, _, single = solve_with_work(system, 0.4)
    _, _, several = solve_with_work(mixed, 0.4)

    assert several.assignment.mixes
    assert is_better(candidates, several.assignment, single.assignment)
