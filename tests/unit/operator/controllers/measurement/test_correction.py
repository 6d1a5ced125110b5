"""Plans for more than the load where what runs should be enough and is not, in virtual time."""

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from inferno_operator.controllers.measurement.correction import add_correction, judge_correction
from inferno_operator.controllers.measurement.load import add_planned_load
from inferno_operator.controllers.measurement.status import report_measurement
from inferno_operator.resources import LoadCorrection, Measured, Model, Server, Target
from inferno_operator.resources.objects import Event, Manifest
from inferno_operator.resources.observation import Observation, is_of
from inferno_optimizer.correction import MISSED, MOST
from tests.unit.operator import objects
from tests.unit.operator.objects import require

CYCLE_S, LONG_S = 30, 300
TARGET = Target(model="M", slo_itl=25.0)
RATE, PLANNED = 600.0, 3
"""Arrivals [requests/min], and the replicas that the Model wants for them."""

MEASURE = {"source": "vLLM", "labels": {"model_name": "m"}}

Latency = Callable[[int], float]
"""The inter-token latency with so many replicas [ms]."""


def shared(slower: float) -> Latency:
    """A step of 10 ms and .5 ms for each request; the Model has it at the target as planned."""
    return lambda replicas: slower * (10.0 + 15.0 * PLANNED / replicas)


def allocation(replicas: int, rate: float = RATE, **fields: object) -> Manifest:
    load = {"arrivalRate": rate, "avgInTokens": 100, "avgOutTokens": 50, **fields}
    return {"accelerator": "A", "numReplicas": replicas, "load": load}


def served(
    spec: Manifest, *conditions: Manifest, measured: Measured | None = None
) -> Observation[Server]:
    """A measured Server whose decision is carried out; it reads what is written."""
    usual = (
        objects.condition("Allocated", "Allocated"),
        objects.condition("Actuated", "Actuated"),
    )
    given = {item["type"] for item in conditions}
    known = [*conditions, *(item for item in usual if item["type"] not in given)]
    status = {"conditions": known, "measured": measured.to_json() if measured else None}
    whole = objects.server("S", spec={"measure": MEASURE, **spec})
    found = objects.observed({**whole, "status": status})
    assert is_of(found, Server)
    assert found.resource is not None, found.problem
    return found


def measurement(seconds: float, itl_ms: float, **fields: object) -> Measured:
    numbers: dict[str, Any] = {
        "time": objects.NOW + timedelta(seconds=seconds),
        "quality": "Fresh",
        "arrival_rate": RATE,
        "avg_in_tokens": 100.0,
        "avg_out_tokens": 50.0,
        "itl_average": itl_ms,
        "misses_targets": ("slo-itl",) if itl_ms > (TARGET.slo_itl or 0) else (),
        **fields,
    }
    return Measured.model_validate(numbers)


def believed(model: dict[str, Any]) -> Model:
    """The Model as the operator reads it."""
    found = objects.observed(model).resource
    assert isinstance(found, Model)
    return found


BELIEVED = believed(objects.model())


def cycles(
    latency: Latency,
    minutes: int,
    measured: Measured | None = None,
    start: int = PLANNED,
    model: Model | None = BELIEVED,
) -> Iterator[tuple[Server, Measured]]:
    """Measurements of a Server that gets at once what its load takes, and begins anew each time.

    What is known from before is what was read from the API server.
    """
    replicas, rate = (
        start,
        RATE * (measured.correction.factor if measured and measured.correction else 1),
    )
    begin = (measured.time - objects.NOW).total_seconds() if measured else 0.0
    for cycle in range(1, minutes * 60 // CYCLE_S + 1):
        spec = {"desiredAlloc": allocation(replicas, rate), "currentAlloc": allocation(replicas)}
        found = served(spec, measured=measured).resource
        assert isinstance(found, Server)
        before = found.status.measured
        newest = measurement(begin + cycle * CYCLE_S, latency(replicas))
        newest = add_correction(newest, found, before, TARGET, model)
        measured = add_planned_load(newest, found, before, TARGET, newest.time)
        rate = require(measured.load).arrival_rate
        replicas = math.ceil(PLANNED * rate / RATE - 1e-6)
        yield found, measured


def factors(found: Iterator[tuple[Server, Measured]]) -> list[float]:
    return [m.correction.factor if m.correction else 1.0 for _, m in found]


@pytest.mark.parametrize("slower", [1.2, 1.5])
def test_slower_replicas_get_as_many_as_keep_the_target_and_no_more(slower: float) -> None:
    latency = shared(slower)
    fewest = next(
        (n for n in range(1, 2 * PLANNED + 1) if latency(n) <= MISSED * 25.0), 2 * PLANNED
    )

    *_, (server, last) = cycles(latency, 240)

    assert require(server.spec.current_alloc).num_replicas == fewest
    assert require(last.load).arrival_rate == pytest.approx(RATE * require(last.correction).factor)


def test_replicas_as_the_model_says_are_planned_for_as_they_are() -> None:
    assert all(measured.correction is None for _, measured in cycles(shared(1.0), 600))


def test_a_rise_waits_for_the_long_window() -> None:
    found = factors(cycles(shared(1.5), 11))

    assert found[: LONG_S // CYCLE_S] == [1.0] * (LONG_S // CYCLE_S)
    assert found[LONG_S // CYCLE_S] == pytest.approx(1 + 1 / PLANNED)


def test_room_brings_plans_back_to_the_load() -> None:
    *_, (_, risen) = cycles(shared(1.5), 30)

    *_, (server, last) = cycles(lambda _: 12.0, 300, risen, start=PLANNED + 2)

    assert last.correction is None
    assert require(last.load).arrival_rate == RATE
    assert judge_correction(server, last) is None


def test_other_data_of_the_model_end_the_correction_at_once() -> None:
    *_, (_, risen) = cycles(shared(1.5), 30)
    mended = believed(objects.model("M", [objects.performance("A", alpha=15.0, beta=0.5)]))

    (_, first), (server, second) = list(cycles(shared(1.0), 1, risen, model=mended))

    assert risen.correction is not None
    assert (first.correction, second.correction) == (None, None)
    assert second.load is not None
    assert second.load.arrival_rate == RATE
    assert judge_correction(server, second) is None


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(BELIEVED, None, id="nobody can read the Model now"),
        pytest.param(None, BELIEVED, id="it was not known before"),
    ],
)
def test_a_model_of_which_nothing_is_known_ends_no_correction(
    before: Model | None, now: Model | None
) -> None:
    *_, (_, risen) = cycles(shared(1.5), 30, model=before)

    *_, (_, after) = cycles(shared(1.5), 2, risen, start=PLANNED + 2, model=now)

    assert require(after.correction).factor == require(risen.correction).factor


def test_calibrated_parameters_in_place_of_typed_ones_are_other_data() -> None:
    uses = objects.model()
    uses["spec"]["calibrate"] = "Use"
    row = {"acc": "A", "reason": "Calibrated", "alpha": 15.0, "time": objects.born(0)}
    calibrated = believed({**uses, "status": {"calibration": [row]}})
    *_, (_, risen) = cycles(shared(1.5), 30, model=believed(uses))

    *_, (_, last) = cycles(shared(1.0), 1, risen, model=calibrated)

    assert last.correction is None


def test_more_replicas_that_do_not_help_are_not_followed_by_others() -> None:
    *_, (server, last) = cycles(lambda _: 40.0, 240)

    assert last.correction is not None
    assert last.correction.factor == pytest.approx(4 / 3 * 5 / 4)
    told = judge_correction(server, last)
    assert told is not None
    assert (told.holds, told.reason) == (True, "NoImprovement")
    assert "slo-itl missed, and more replicas do not help: planned for 1.67 times" in told.message


def test_the_factor_ends_at_the_limit_and_says_so() -> None:
    *_, (server, last) = cycles(lambda n: 200.0 / n, 240)

    assert require(last.correction).factor == MOST
    told = judge_correction(server, last)
    assert require(told).message == (
        "slo-itl missed with 6 replicas that should be enough: planned for 2 times the load, and"
        " no more; calibrate Model 'M'"
    )


def after_a_miss(
    spec: Manifest, *conditions: Manifest, before: Measured | None = None, **fields: object
) -> Measured:
    """What is known after a miss for ten minutes, of a Server of which something else is so."""
    measured = before
    for cycle in range(1, 20):
        found = served(spec, *conditions, measured=measured).resource
        assert isinstance(found, Server)
        newest = measurement(cycle * CYCLE_S, 40.0, **fields)
        newest = add_correction(newest, found, measured, TARGET, None)
        measured = add_planned_load(newest, found, measured, TARGET, newest.time)
    assert measured is not None
    return measured


SETTLED = {"desiredAlloc": allocation(3), "currentAlloc": allocation(3)}


def test_a_miss_that_nothing_else_explains_makes_plans_for_more() -> None:
    assert after_a_miss(SETTLED).correction is not None


def test_a_queue_that_stays_although_the_plan_is_for_it_makes_plans_for_more() -> None:
    spec = {**SETTLED, "desiredAlloc": allocation(3, 1.15 * RATE)}

    assert after_a_miss(spec, waiting=60.0).correction is not None
    assert after_a_miss(spec, waiting=240.0).correction is None  # the next plan is for it


def test_a_miss_does_not_count_before_a_queue_could_have_been_served() -> None:
    patient = {**SETTLED, "measure": {**MEASURE, "catchUpSeconds": 900}}

    found = after_a_miss(patient).correction

    assert require(found).factor == 1


def test_a_miss_of_few_requests_may_be_chance_and_must_last_for_more_of_them() -> None:
    rare = {"desiredAlloc": allocation(3, 6.0), "currentAlloc": allocation(3, 6.0)}

    found = after_a_miss(rare, arrival_rate=6.0).correction  # 60 requests

    assert require(found).factor == 1


def test_a_plan_that_waits_for_a_person_does_not_grow_meanwhile() -> None:
    risen = measurement(0, 40.0, correction=correction(1.25, ratio_before=10.0))

    found = after_a_miss(SETTLED, before=risen).correction

    assert require(found).factor == 1.25


@pytest.mark.parametrize(
    ("spec", "conditions", "fields"),
    [
        pytest.param(SETTLED, (), {"quality": "Partial"}, id="not all replicas report"),
        pytest.param(SETTLED, (), {"quality": "Stale"}, id="old numbers"),
        pytest.param(SETTLED, (), {"waiting": 1000.0}, id="backlog"),
        pytest.param(SETTLED, (), {"arrival_rate": 660.0}, id="more arrives"),
        pytest.param(SETTLED, (), {"avg_in_tokens": 120.0}, id="longer prompts"),
        pytest.param(SETTLED, (), {"avg_out_tokens": 60.0}, id="longer answers"),
        pytest.param(
            {**SETTLED, "desiredAlloc": allocation(3, cachedTokens=60)}, (), {}, id="empty caches"
        ),
        pytest.param(
            {**SETTLED, "desiredAlloc": allocation(3, tokensPerStep=2.0)}, (), {}, id="no drafts"
        ),
        pytest.param(
            SETTLED, (("Allocated", "BestEffort", "True"),), {}, id="too few cards for the target"
        ),
        pytest.param(SETTLED, (("Actuated", "Moving", "Unknown"),), {}, id="replicas start or end"),
        pytest.param(SETTLED, (("Actuated", "NoRoom", "False"),), {}, id="no card is free"),
        pytest.param(
            {**SETTLED, "currentAlloc": allocation(2)}, (), {}, id="fewer run than are decided"
        ),
        pytest.param(
            {**SETTLED, "currentAlloc": {**allocation(3), "coldReplicas": 1}}, (), {}, id="cold"
        ),
        pytest.param({"currentAlloc": allocation(3)}, (), {}, id="no decision"),
        pytest.param(SETTLED, (), {"itl_average": None}, id="latency not known"),
    ],
)
def test_a_miss_that_something_explains_changes_no_plan(
    spec: Manifest, conditions: tuple[tuple[str, str, str], ...], fields: dict[str, Any]
) -> None:
    told = [objects.condition(type_, reason, status=status) for type_, reason, status in conditions]

    assert after_a_miss(spec, *told, **fields).correction is None


def test_what_was_corrected_stays_while_nothing_is_measured() -> None:
    *_, (_, risen) = cycles(shared(1.5), 30)
    server = served(SETTLED, measured=risen).resource
    assert isinstance(server, Server)
    stale = risen.model_copy(update={"quality": "Stale", "misses_targets": ()})

    newest = add_correction(stale, server, risen, TARGET, None)
    found = add_planned_load(newest, server, risen, TARGET, risen.time)

    assert require(newest.correction).factor == require(risen.correction).factor
    assert found.load == risen.load


def test_an_operator_that_was_away_for_long_begins_to_wait_anew() -> None:
    *_, (_, missed) = cycles(shared(1.5), 5)
    server = served(SETTLED, measured=missed).resource
    assert isinstance(server, Server)
    later = measurement(4 * 3600, 37.5)

    found = add_correction(later, server, missed, TARGET, None).correction

    assert require(found).factor == 1
    assert require(found).missed_since == later.time


def correction(factor: float, **fields: object) -> LoadCorrection:
    return LoadCorrection.model_validate({"factor": factor, "missed_since": objects.NOW, **fields})


def written(
    before: LoadCorrection | None, after: LoadCorrection | None, *told: Manifest
) -> tuple[Manifest, list[Event]] | None:
    """The status that is written 30 s after a write, and its events."""
    known = measurement(0, 40.0, correction=before)
    measured = objects.condition("Measured", "Fresh")
    observation = served(SETTLED, measured, *told, measured=known)
    newest = measurement(CYCLE_S, 40.0, correction=after)
    assert observation.resource is not None
    change = report_measurement(observation, observation.resource, newest, newest.time)
    return None if change is None else (change.status or {}, list(change.news))


def corrected(status: Manifest) -> list[tuple[str, str]]:
    conditions = ((c["type"], c["reason"]) for c in status["conditions"])
    return [(kind, reason) for kind, reason in conditions if kind != "Measured"]


def test_a_correction_that_begins_is_written_at_once_with_a_condition_and_an_event() -> None:
    found = written(correction(1.0), correction(1.25))

    assert found is not None
    status, (event,) = found
    assert corrected(status) == [("Corrected", "TargetsMissed")]
    assert status["measured"]["correction"]["factor"] == 1.25
    assert (event.type, event.reason) == ("Warning", "TargetsMissed")
    assert event.message == (
        "slo-itl missed with 3 replicas that should be enough: planned for 1.25 times the load;"
        " calibrate Model 'M'"
    )


def test_a_correction_that_grows_keeps_its_condition_without_an_event() -> None:
    told = objects.condition("Corrected", "TargetsMissed")

    found = written(correction(1.25), correction(1.5), told)

    assert found is not None
    status, events = found
    assert corrected(status) == [("Corrected", "TargetsMissed")]
    assert events == []


def test_a_correction_that_does_not_help_is_another_event() -> None:
    told = objects.condition("Corrected", "TargetsMissed")

    found = written(correction(1.5, vain=1), correction(1.5, vain=2), told)

    assert found is not None
    status, (event,) = found
    assert corrected(status) == [("Corrected", "NoImprovement")]
    assert (event.type, event.reason) == ("Warning", "NoImprovement")


def test_a_correction_that_ends_takes_its_condition_with_it() -> None:
    told = objects.condition("Corrected", "TargetsMissed")

    found = written(correction(1.01), None, told)

    assert found is not None
    status, (event,) = found
    assert corrected(status) == []
    assert "correction" not in status["measured"]
    assert (event.type, event.reason) == ("Normal", "TargetsKept")


def test_a_correction_that_falls_a_little_is_not_written() -> None:
    told = objects.condition("Corrected", "TargetsMissed")

    assert written(correction(1.25), correction(1.249), told) is None


def test_a_status_reads_the_correction_that_it_was_written_with() -> None:
    since = datetime.fromisoformat("2026-01-01T00:00:30+00:00")
    known = LoadCorrection(
        factor=1.234567, kept_since=since, ratio_before=1.4, vain=1, parameters="d"
    )
    server = served(SETTLED, measured=measurement(0, 40.0, correction=known)).resource

    assert isinstance(server, Server)
    assert require(server.status.measured).correction == known
