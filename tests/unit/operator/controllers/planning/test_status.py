"""What an Optimizer says about its request, over the life of many of them."""

import json
from dataclasses import replace

import pytest

from inferno_operator.controllers.planning import status as report
from inferno_operator.controllers.planning.updates import Update
from inferno_operator.resources.objects import EVENTS
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import SolverError, UnavailableError
from inferno_optimizer.solution import (
    CapacityUse,
    Certificate,
    Decision,
    Gain,
    Level,
    Reason,
    Solution,
    SolverStatus,
)
from inferno_optimizer.system import Allocation
from tests.unit.operator.objects import NOW, Manifest, observed, optimizer

SOLUTION = Solution(
    decisions=(
        Decision("chat", Reason.ALLOCATED, "2 x A", Allocation("A", 2, cost=20.12345678)),
        Decision("code", Reason.BEST_EFFORT, "1 of 3", Allocation("A", 1, cost=10)),
        Decision("draw", Reason.NO_CAPACITY, "too few"),
    ),
    certificate=Certificate(
        "highs", SolverStatus.OPTIMAL, 25.00000049, 20.0, 0.123456789, (Level(1, 90.0, 100.0),)
    ),
    capacity=(CapacityUse("T", 3, 4), CapacityUse("U", 0, 8, gain=Gain(2, 30.123456789))),
)


def status_of(update: Update) -> Manifest:
    """The status that an update writes, as it comes back from the API server."""
    status: Manifest = json.loads(json.dumps(update.status_at(update.generation, NOW)))
    return status


def said(update: Update) -> dict[str, tuple[str, str, str]]:
    return {v.type: (v.status, v.reason, v.message) for v in update.verdicts}


def at(generation: int, *, optimize: bool = True, status: Manifest | None = None) -> Observation:
    subject = optimizer(optimize=optimize, generation=generation)
    return observed(subject if status is None else {**subject, "status": status})


def test_a_result_says_what_came_out_and_how_good_it_is() -> None:
    status = status_of(report.report_result(at(5), SOLUTION, NOW))

    assert status["done"] is True
    assert status["active"] is True
    assert status["observedGeneration"] == 5
    assert status["lastOptimization"] == {
        "time": "2026-03-01T12:00:00Z",
        "requestedGeneration": 5,
        "servers": 3,
        "allocated": 2,
        "cost": 30.123457,
        "certificate": {
            "solver": "highs",
            "status": "Optimal",
            "objective": 25.0,
            "bound": 20.0,
            "gap": 0.2,
            "seconds": 0.123457,
            "levels": [{"priority": 1, "served": 90.0, "bound": 100.0}],
        },
        "unserved": [{"server": "draw", "reason": "NoCapacity", "message": "too few"}],
        "capacity": [
            {"type": "T", "used": 3, "available": 4},
            {
                "type": "U",
                "used": 0,
                "available": 8,
                "gain": {"priority": 2, "load": 30.123457},
            },
        ],
    }


def test_a_result_without_a_bound_claims_none() -> None:
    solution = Solution((), Certificate("greedy", SolverStatus.FEASIBLE, 0.0, None, 0.0), ())

    certificate = status_of(report.report_result(at(1), solution, NOW))["lastOptimization"]

    told = certificate["certificate"]
    assert told.keys() == {"solver", "status", "objective", "seconds", "levels"}
    assert told["levels"] == []


def test_a_step_of_the_solver_that_failed_is_told() -> None:
    failed = replace(SOLUTION.certificate, failures=("value: ValueError: no good",))
    update = report.report_result(at(1), replace(SOLUTION, certificate=failed), NOW)

    told = status_of(update)["lastOptimization"]["certificate"]
    assert told["failures"] == ["value: ValueError: no good"]
    assert said(update)["Optimized"][2].endswith(
        "draw: NoCapacity; the solver failed at value: ValueError: no good"
    )


def test_where_capacity_was_ignored_no_cards_count_as_available() -> None:
    subject = optimizer(parameters={"unlimited": True})

    last = status_of(report.report_result(observed(subject), SOLUTION, NOW))["lastOptimization"]

    assert all("available" not in use for use in last["capacity"])


def test_the_message_of_a_result_names_who_is_unserved() -> None:
    status, reason, message = said(report.report_result(at(1), SOLUTION, NOW))["Optimized"]

    assert (status, reason) == ("True", "Optimized")
    assert message == ("2 of 3 servers have an allocation, 30.1235 cents/hour; draw: NoCapacity")


@pytest.mark.parametrize(("unserved", "named"), [(1, 1), (100, 100), (101, 100), (10_000, 100)])
def test_a_status_names_at_most_a_hundred_unserved_servers(unserved: int, named: int) -> None:
    decisions = tuple(Decision(f"s{n}", Reason.NO_CAPACITY, "m") for n in range(unserved))
    solution = Solution(decisions, SOLUTION.certificate, ())

    update = report.report_result(at(1), solution, NOW)

    last = status_of(update)["lastOptimization"]
    assert len(last["unserved"]) == named
    assert (last["servers"], last["allocated"]) == (unserved, 0)
    if unserved > 1:
        assert said(update)["Optimized"][2].endswith(f"s0: NoCapacity and {unserved - 1} more")


def test_a_failure_of_an_older_request_is_over_when_there_is_a_new_one() -> None:
    before = status_of(report.report_failure(at(3), UnavailableError("no answer")))

    assert said(report.report_start(at(4, status=before)))["Optimized"][1] == "Optimizing"


def news(count: int) -> list[Update]:
    """As many updates that each have one event."""
    return [report.report_failure(at(1), SolverError("no luck"))] * count


def test_each_of_a_few_objects_tells_its_own_news() -> None:
    assert report.summarize_events(at(1), news(EVENTS)) == ()


def test_the_news_of_very_many_objects_are_told_by_the_optimizer() -> None:
    (event,) = report.summarize_events(at(1), news(EVENTS + 1))

    assert event.about == at(1).reference
    assert (event.type, event.reason) == ("Warning", "SolverFailed")
    assert event.message == "501 objects; see their conditions"
