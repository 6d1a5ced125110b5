"""An error in a step of a search costs that step, and never the plan."""

import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution
from inferno_optimizer.solvers import exact
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment
from inferno_optimizer.solvers.exact import Failures, FoundPlan
from inferno_optimizer.system import Options, SaturationPolicy, System
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet
from tests.tiers import extended, sampled
from tests.unit.optimizer.enumeration import served

TICK = 0.01
"""Seconds between two readings of the clock."""

READINGS_BEFORE = 6
"""Sizing and the start of the solver read the clock so often."""


class OutOfOrderError(Exception):
    """What a broken clock raises."""


def broken() -> NoReturn:
    raise OutOfOrderError("dial\nis stuck")


def clock_that_fails_once(reading: int) -> Callable[[], float]:
    """Seconds pass with every reading; one of the readings is an error."""
    readings = itertools.count(1)

    def clock() -> float:
        now = next(readings)
        return broken() if now == reading else TICK * now

    return clock


def tight(servers: int, options: Options) -> System:
    return replace(decode_system(fleet(servers, 8, seed=1, demand=2.0)), options=options)


def test_a_step_without_an_error_returns_what_its_work_does() -> None:
    failures = Failures()

    assert failures.attempt("step", lambda: 7) == 7
    assert failures.texts == ()


def test_an_error_is_kept_in_one_line_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures()

    with caplog.at_level(logging.WARNING):
        assert failures.attempt("proof", broken) is None

    assert failures.texts == ("proof: OutOfOrderError: dial is stuck",)
    (record,) = caplog.records
    assert "proof" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is OutOfOrderError


def test_who_interrupts_a_step_is_obeyed() -> None:
    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Failures().attempt("proof", interrupted)


@pytest.mark.parametrize("reading", sampled([*range(READINGS_BEFORE + 1, 14), 20]))
@pytest.mark.parametrize("heterogeneous", [False, True], ids=["single", "mixes"])
@pytest.mark.parametrize("servers", [15, *extended(80)])
def test_an_error_at_any_time_of_the_search_leaves_a_plan_no_worse_than_greedy(
    servers: int, reading: int, *, heterogeneous: bool
) -> None:
    system = tight(servers, Options(milp=True, heterogeneous=heterogeneous, time_limit=0.6))
    greedy = optimize(replace(system, options=Options()))

    solution = optimize(system, clock=clock_that_fails_once(reading))

    assert all(use.used <= use.available for use in solution.capacity)
    assert served(system, solution)[0] >= 0.999 * served(system, greedy)[0]
    tells_the_error(solution)


def tells_the_error(solution: Solution) -> None:
    """The certificate has the type and the text of the error, and claims nothing unproven."""
    certificate = solution.certificate
    if certificate.failures:  # a search that ended before has read the clock less often
        (text,) = certificate.failures
        assert text.endswith("OutOfOrderError: dial is stuck")
    assert certificate.bound is None or certificate.bound <= certificate.objective
    assert all(level.bound >= level.served for level in certificate.levels)


def test_a_search_that_fails_before_its_first_step_leaves_the_plan_of_the_greedy_solver() -> None:
    system = tight(40, Options(milp=True, trace=True))  # the first plan is recorded, with the time
    greedy = optimize(replace(system, options=Options()))

    solution = optimize(system, clock=clock_that_fails_once(READINGS_BEFORE + 1))

    assert solution.certificate.failures == ("search: OutOfOrderError: dial is stuck",)
    assert solution.certificate.bound is None
    assert solution.allocations == greedy.allocations


@pytest.mark.parametrize("out_of_time", [False, True])
def test_a_search_that_ends_with_less_than_greedy_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, *, out_of_time: bool
) -> None:
    system = tight(20, Options(saturation_policy=SaturationPolicy.HOLD))
    greedy = optimize(system)

    def poor(*given: Any) -> FoundPlan:  # noqa: ANN401 - as the search gets it
        plan = search(*given)
        rows = np.full_like(plan.assignment.rows, NO_ROW)
        nothing = Assignment(rows, np.zeros_like(rows))
        unserved = dict.fromkeys(plan.served, 0.0)
        return replace(plan, assignment=nothing, served=unserved, out_of_time=out_of_time)

    search = exact._search_plan  # noqa: SLF001 - nothing else makes a search end with less
    monkeypatch.setattr(exact, "_search_plan", poor)
    plan = optimize(replace(system, options=replace(system.options, milp=True)))

    assert served(system, plan) == served(system, greedy)
