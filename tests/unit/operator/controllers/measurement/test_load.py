"""The load that an optimization gets: the newest, and never less without evidence."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.measurement.load import (
    IDLE,
    add_planned_load,
    apply_measurement,
    find_load,
    has_jumped,
    has_load_moved,
    set_load,
    set_scheduled_replicas,
)
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.resources import Load, Measure, Measured, MeasuredReplicas, Server, Target
from inferno_operator.resources.objects import Manifest
from inferno_optimizer.optimize import optimize
from tests.unit.operator.objects import (
    NOW,
    accelerator,
    capacity,
    model,
    observed,
    require,
    server,
    service_class,
)

QUALITIES = ("Fresh", "Idle", "Partial", "Stale", "Missing", "Refused")
TYPED = {"arrivalRate": 50, "avgLength": 300}
STANDING = {"arrivalRate": 100, "avgInTokens": 400, "avgOutTokens": 80}


def subject(typed: dict[str, Any] | None = None, standing: dict[str, Any] | None = None) -> Server:
    """A measured Server, with the load that a person gave and that of its decision."""
    place = {"accelerator": "A", "numReplicas": 2}
    spec: dict[str, Any] = {"measure": {"source": "vLLM", "labels": {"model_name": "m"}}}
    spec["currentAlloc"] = {**place, "load": typed} if typed else None
    spec["desiredAlloc"] = {**place, "load": standing} if standing else None
    resource = observed(server(spec=spec)).resource
    assert isinstance(resource, Server)
    return resource


def measurement(quality: str, rate: float | None = 20.0, **fields: float | None) -> Measured:
    numbers = {"arrival_rate": rate, "avg_in_tokens": 600.4, "avg_out_tokens": 200.6, **fields}
    known = {name: value for name, value in numbers.items() if value is not None}
    return Measured.model_validate(
        {"time": datetime(2026, 1, 1, tzinfo=UTC), "quality": quality, **known}
    )


@pytest.mark.parametrize("quality", QUALITIES)
def test_numbers_of_any_quality_raise_the_load_and_only_fresh_ones_lower_it(quality: str) -> None:
    lowers = quality in ("Fresh", "Idle")
    found = find_load(subject(TYPED, STANDING), measurement(quality))
    more = find_load(subject(TYPED, STANDING), measurement(quality, 500))

    rate, tokens = (20, 201) if lowers else (100, 300)  # what a person gave is longer
    assert found == Load(arrival_rate=rate, avg_in_tokens=600, avg_out_tokens=tokens)
    assert require(more).arrival_rate == 500


NO_LENGTHS: dict[str, float | None] = {"avg_in_tokens": None, "avg_out_tokens": None}


@pytest.mark.parametrize(
    ("of", "measured", "load"),
    [
        (subject(TYPED), None, Load(arrival_rate=50, avg_length=300)),  # was never measured
        (subject(), None, None),
        (subject(), measurement("Missing", None, **NO_LENGTHS), None),
        (
            subject(TYPED, STANDING),
            measurement("Fresh", **NO_LENGTHS),
            Load(arrival_rate=20, avg_length=300),
        ),
        (subject(), measurement("Idle", 0.0, **NO_LENGTHS), IDLE),  # never served a request
    ],
)
def test_what_is_not_measured_is_as_somebody_gave_it(
    of: Server, measured: Measured | None, load: Load | None
) -> None:
    assert find_load(of, measured) == load


@given(
    quality=st.sampled_from(QUALITIES),
    rate=st.none() | st.floats(0, 1e6),
    typed=st.none() | st.integers(0, 10**6),
    standing=st.none() | st.integers(0, 10**6),
)
def test_what_is_not_fresh_never_goes_below_the_standing_decision(
    quality: str, rate: float | None, typed: int | None, standing: int | None
) -> None:
    server_of = subject(
        None if typed is None else {**TYPED, "arrivalRate": typed},
        None if standing is None else {**STANDING, "arrivalRate": standing},
    )

    found = find_load(server_of, measurement(quality, rate))

    if found is not None and standing is not None and quality not in ("Fresh", "Idle"):
        assert found.arrival_rate >= standing


def test_a_load_replaces_that_of_the_server_and_nothing_else() -> None:
    before, newest = subject(TYPED, STANDING), Load(arrival_rate=7, avg_out_tokens=3)

    after, empty = (set_load(each, newest).spec.current_alloc for each in (before, subject()))

    assert (require(after).load, require(after).num_replicas) == (newest, 2)
    assert (require(empty).load, require(empty).accelerator) == (newest, "")
    assert set_load(before, newest).spec.desired_alloc == before.spec.desired_alloc


UNSURE = ("Partial", "Stale", "Missing", "Refused")
LENGTHS = {"avg_in_tokens": 800.0, "avg_out_tokens": 300.0}


def after(
    *newest: Measured, of: Server | None = None, target: Target | None = None
) -> tuple[Measured, Server]:
    """What is known after some measurements, and the Server that an optimization gets."""
    known: Measured | None = None
    server_of = of or subject()
    for each in newest:
        known = add_planned_load(each, server_of, known, target, each.time)
    assert known is not None
    return known, apply_measurement(server_of, known)


def running(replicas: int, decided: int = 0, **spec: object) -> Server:
    """A Server with replicas on an accelerator A, and a decision, which may be cleared."""
    none = {"arrivalRate": 0, "avgLength": 0}
    fields = {
        "measure": {"source": "vLLM", "labels": {"model_name": "m"}},
        "currentAlloc": {"accelerator": "A" if replicas else "", "numReplicas": replicas},
        "desiredAlloc": {
            "accelerator": "A" if decided else "",
            "numReplicas": decided,
            "load": STANDING if decided else none,
        },
        **spec,
    }
    resource = observed(server(spec=fields)).resource
    assert isinstance(resource, Server)
    return resource


@given(
    quality=st.sampled_from(UNSURE),
    rate=st.none() | st.floats(0, 1e6),
    tokens=st.tuples(st.none() | st.integers(0, 5000), st.none() | st.integers(0, 5000)),
)
def test_neither_rate_nor_lengths_shrink_without_evidence(
    quality: str, rate: float | None, tokens: tuple[int | None, int | None]
) -> None:
    unsure = measurement(quality, rate, avg_in_tokens=tokens[0], avg_out_tokens=tokens[1])

    found, _ = after(measurement("Fresh", 600, **LENGTHS), unsure)

    assert found.load is not None
    assert found.load.arrival_rate >= 600
    assert (found.load.avg_in_tokens or 0) >= 800
    assert (found.load.avg_out_tokens or 0) >= 300


def test_the_last_valid_load_stays_when_the_decision_is_cleared() -> None:
    """A mistyped model clears the decision and its load; four replicas run."""
    fresh = measurement("Fresh", 600, **LENGTHS)
    partial = measurement("Partial", 200, avg_in_tokens=None, avg_out_tokens=None)

    found, given = after(fresh, partial, of=running(4))

    assert found.load == Load(arrival_rate=600, avg_in_tokens=800, avg_out_tokens=300)
    assert (given.spec.min_num_replicas, given.spec.keep_accelerator) == (4, True)


def test_what_runs_is_the_least_of_a_first_plan_on_a_young_prometheus() -> None:
    young = measurement("Partial", 1340, **LENGTHS)

    _, given = after(young, of=running(9))

    assert given.spec.current_alloc is not None
    assert given.spec.current_alloc.load is not None
    assert (given.spec.min_num_replicas, given.spec.keep_accelerator) == (9, True)


def test_replicas_that_report_are_the_least_where_nobody_says_what_runs() -> None:
    young = measurement("Partial", 1340, **LENGTHS).model_copy(
        update={"replicas": MeasuredReplicas(ready=7, reporting=7)}
    )

    _, given = after(young, of=running(0))

    assert given.spec.min_num_replicas == 7


def test_without_any_load_there_is_no_decision() -> None:
    young = measurement("Partial", None, avg_in_tokens=None, avg_out_tokens=None)
    server_of = running(4)

    _, given = after(young, of=server_of)

    assert given is server_of


def test_a_decision_that_is_carried_out_is_not_held_up() -> None:
    _, given = after(
        measurement("Fresh", 600, **LENGTHS), measurement("Stale", 600), of=running(6, decided=4)
    )

    assert (given.spec.min_num_replicas, given.spec.keep_accelerator) == (4, False)


def test_a_server_that_misses_a_target_gets_no_fewer_replicas() -> None:
    late = measurement("Fresh", 300, **LENGTHS).model_copy(update={"misses_targets": ("slo-ttft",)})

    found, given = after(measurement("Fresh", 600, **LENGTHS), late, of=running(6, decided=4))

    assert require(found.load).arrival_rate == 600
    assert given.spec.min_num_replicas == 6


def test_evidence_lowers_load_and_replicas() -> None:
    found, given = after(
        measurement("Fresh", 600, **LENGTHS), measurement("Fresh", 300), of=running(6, decided=6)
    )

    most = 300 * (1 + 4 / np.sqrt(1500))  # of 1,500 requests in five minutes
    assert found.load is not None
    assert found.load.arrival_rate == pytest.approx(most)
    assert (found.load.avg_in_tokens, found.load.avg_out_tokens) == (600, 201)
    assert given.spec.min_num_replicas == 0


def test_noise_does_not_change_the_load() -> None:
    found, _ = after(measurement("Fresh", 600), *(measurement("Fresh", r) for r in (629, 572)))

    assert require(found.load).arrival_rate == 600


@pytest.mark.parametrize("rate", [0.3, 1.0, 3.0, 10.0])
def test_poisson_noise_of_a_constant_load_hardly_moves_it(rate: float) -> None:
    """Ten hours, measured every 10 s over 300 s; a load that moves may move replicas."""
    counts = np.random.default_rng(1).poisson(10 * rate, 3600)
    rates = 60 * np.convolve(counts, np.ones(30), "valid") / 300
    loads: list[float] = []
    known: Measured | None = None
    server_of = subject()

    for each in rates:
        known = add_planned_load(measurement("Fresh", each), server_of, known, None, NOW)
        loads.append(require(known.load).arrival_rate)

    assert sum(old != new for old, new in pairwise(loads)) <= 30  # three in an hour


def test_a_longer_window_tells_smaller_changes_from_chance() -> None:
    windows = {"shortSeconds": 60, "longSeconds": 3600}
    measure = {"source": "vLLM", "labels": {"model_name": "m"}, "windows": windows}
    changes = measurement("Fresh", 600), measurement("Fresh", 660)  # 10 %; chance: 7 % of 300 s

    few, _ = after(measurement("Fresh", 60), measurement("Fresh", 66))
    many, _ = after(
        measurement("Fresh", 60), measurement("Fresh", 66), of=running(1, measure=measure)
    )
    both = [after(*changes, of=of)[0] for of in (subject(), running(1, measure=measure))]

    assert require(few.load).arrival_rate == 60
    assert require(many.load).arrival_rate == 66
    assert [found.load and found.load.arrival_rate for found in both] == [660, 660]


def test_a_load_that_doubles_or_ends_is_more_than_noise_however_small_it_is() -> None:
    few = measurement("Fresh", 0.4)  # two requests in the long window

    grown, _ = after(few, measurement("Fresh", 1.0))
    ended, _ = after(few, measurement("Idle", 0.0))

    assert (require(grown.load).arrival_rate, require(ended.load).arrival_rate) == (1.0, 0.0)


def test_a_backlog_that_was_served_is_no_load_while_a_target_is_still_missed() -> None:
    """The percentile of the last five minutes still has the requests that waited."""
    late = {"misses_targets": ("slo-ttft",)}
    overloaded = measurement("Fresh", 600, waiting=3557.0).model_copy(update=late)
    served = measurement("Fresh", 590, waiting=1.0).model_copy(update=late)

    found, _ = after(overloaded, served, served)

    assert require(found.load).arrival_rate == pytest.approx(600)


def test_a_backlog_stays_in_the_load_while_it_is_not_known_how_many_wait() -> None:
    overloaded = measurement("Fresh", 600, waiting=3557.0)

    known, _ = after(overloaded)
    found, _ = after(overloaded, measurement("Partial", 590, waiting=1.0))

    assert found.load == known.load


@pytest.mark.parametrize(
    ("waiting", "seconds", "target", "backlog", "rate"),
    [
        (3557.0, 60, {"slo_ttft": 500}, 3550.0, 600 + 3550),  # 10/s x 0.5 s + 2 replicas are 7
        (3557.0, 600, {"slo_ttft": 500}, 3550.0, 600 + 355),
        (3557.0, 60, {"slo_ttw": 100, "slo_ttft": 500}, 3554.0, 600 + 3554),
        (3557.0, 60, {}, 3545.0, 600 + 3545),  # without a target, a second
        (7.0, 60, {"slo_ttft": 500}, 0.0, 600),
        (None, 60, {}, None, 600),
    ],
)
def test_what_waits_beyond_a_healthy_queue_is_to_be_served_in_the_time_to_catch_up(
    waiting: float | None,
    seconds: int,
    target: dict[str, float],
    backlog: float | None,
    rate: float,
) -> None:
    measure = {"source": "vLLM", "labels": {"model_name": "m"}, "catchUpSeconds": seconds}
    newest = measurement("Fresh", 600, waiting=waiting).model_copy(
        update={"replicas": MeasuredReplicas(ready=2, reporting=2)}
    )

    found, _ = after(newest, of=running(2, measure=measure), target=Target(model="m", **target))

    assert found.arrival_rate == 600
    assert found.backlog == backlog
    assert require(found.load).arrival_rate == pytest.approx(rate)


def test_a_server_of_which_nothing_runs_and_nothing_is_known_begins_with_an_idle_load() -> None:
    workload = {"accelerator": "A", "apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}
    missing = measurement("Missing", None, avg_in_tokens=None, avg_out_tokens=None)

    _, given = after(missing, of=running(0, workloads=[workload]))

    assert require(given.spec.current_alloc).load == IDLE


def test_a_server_whose_first_replicas_start_is_not_decided_before_it_is_measured() -> None:
    missing = measurement("Missing", None, avg_in_tokens=None, avg_out_tokens=None)
    starting = running(0, workloads=[{"accelerator": "A", "name": "a"}])
    current = starting.spec.current_alloc
    current = require(current).model_copy(update={"accelerator": "A", "starting_replicas": 4})
    spec = starting.spec.model_copy(update={"current_alloc": current})

    _, given = after(missing, of=starting.model_copy(update={"spec": spec}))

    assert require(given.spec.current_alloc).load is None


def test_without_evidence_that_fewer_are_enough_replicas_that_start_stay() -> None:
    growing = running(2, 5)
    current = growing.spec.current_alloc
    current = require(current).model_copy(update={"starting_replicas": 3})
    spec = growing.spec.model_copy(update={"current_alloc": current})

    _, given = after(measurement("Partial", 1), of=growing.model_copy(update={"spec": spec}))

    assert given.spec.min_num_replicas == 5


@pytest.mark.parametrize(
    ("rate", "tokens"), [(0.1, 200.0), (0.0, None)], ids=["little is known", "next to nothing is"]
)
def test_a_first_plan_on_a_young_prometheus_takes_nothing_away(
    rate: float, tokens: float | None
) -> None:
    """Nine replicas run; what is measured takes one."""
    young = measurement("Partial", rate, avg_in_tokens=tokens, avg_out_tokens=tokens)
    _, given = after(young, of=running(9))
    others = [observed(item).resource for item in (accelerator(), model(), service_class())]
    cards = observed(capacity(100)).resource

    found = build_system([item for item in (*others, cards, given) if item is not None])
    decisions = optimize(found.system).decisions

    assert [d.allocation.replicas for d in decisions if d.allocation] == [9] * len(decisions)
    assert len(decisions) + len(found.excluded) == 1


EVERY_MORNING = {"start": "0 9 * * 1-5", "duration": "2h", "timezone": "Europe/Berlin"}


def at(hour: int, minute: int = 0) -> datetime:
    """A time of Thursday, 2026-01-01; in Berlin it is one hour later."""
    return datetime(2026, 1, 1, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("time", "rate", "fewest"),
    [
        (at(7, 57), 20, 0),
        (at(7, 58), 600, 5),  # new replicas take two minutes
        (at(8), 600, 5),
        (at(9, 59), 600, 5),
        (at(10), 20, 0),
    ],
)
def test_what_somebody_knows_beforehand_is_planned_for_in_time(
    time: datetime, rate: float, fewest: int
) -> None:
    resource = scheduled({**EVERY_MORNING, "minArrivalRate": 600, "minNumReplicas": 5})

    found = add_planned_load(measurement("Fresh"), resource, None, None, time)

    assert require(found.load).arrival_rate == rate
    assert found.arrival_rate == 20
    assert set_scheduled_replicas(resource, time).spec.min_num_replicas == fewest


def test_a_larger_load_is_planned_for_as_it_is() -> None:
    resource = scheduled({**EVERY_MORNING, "minArrivalRate": 600})

    found = add_planned_load(measurement("Fresh", 900.0), resource, None, None, at(8))

    assert require(found.load).arrival_rate == 900


def test_the_largest_number_of_several_windows_counts() -> None:
    windows = [{**EVERY_MORNING, "minNumReplicas": n} for n in (3, 7, 2)]

    found = set_scheduled_replicas(scheduled(*windows, minNumReplicas=4), at(8))

    assert found.spec.min_num_replicas == 7


def scheduled(*windows: Manifest, **fields: object) -> Server:
    spec = {"measure": {"source": "vLLM", "labels": {"model_name": "m"}}, "schedule": [*windows]}
    resource = observed(server(spec={**spec, **fields, "currentAlloc": None})).resource
    assert isinstance(resource, Server)
    return resource


PARTS = {
    "cached tokens": ("cachedTokens", 300, "avg_computed_tokens", 240.2, 359),  # never more
    "tokens of a step": ("tokensPerStep", 2.5, "tokens_per_step", 2.5, 2.5),
}


@pytest.mark.parametrize(("alias", "planned", "name", "told", "found"), PARTS.values(), ids=PARTS)
def test_the_load_has_what_is_measured_of_caches_and_drafts_and_loses_it_when_it_is_not(
    alias: str, planned: float, name: str, told: float, found: float
) -> None:
    measured = find_load(subject(), measurement("Fresh", **{name: told}))
    unknown = find_load(subject(standing={**STANDING, alias: planned}), measurement("Fresh"))

    assert require(measured).to_json()[alias] == found
    assert alias not in require(unknown).to_json()


@pytest.mark.parametrize(
    ("alias", "planned", "name", "now", "found"),
    [
        ("cachedTokens", 300, "avg_computed_tokens", 500.0, 100),
        ("cachedTokens", 300, "avg_computed_tokens", 100.0, 300),
        ("cachedTokens", 300, "avg_computed_tokens", None, None),
        ("tokensPerStep", 2.5, "tokens_per_step", 3.0, 2.5),
        ("tokensPerStep", 2.5, "tokens_per_step", 1.5, 1.5),
        ("tokensPerStep", 2.5, "tokens_per_step", None, None),
    ],
)
def test_without_evidence_caches_and_drafts_help_no_more_than_in_the_last_load(
    alias: str, planned: float, name: str, now: float | None, found: float | None
) -> None:
    standing = {**STANDING, alias: planned}

    load = find_load(subject(standing=standing), measurement("Partial", **{name: now}))

    assert require(load).to_json().get(alias) == found


@pytest.mark.parametrize(
    ("part", "moved", "same"),
    [("cached_tokens", (600, None), 1190), ("tokens_per_step", (1.5, None), 2.52)],
)
def test_a_load_moves_with_the_tokens_that_are_computed_and_those_of_a_step(
    part: str, moved: tuple[float | None, ...], same: float
) -> None:
    load = Load(
        arrival_rate=9000,
        avg_in_tokens=2000,
        avg_out_tokens=100,
        cached_tokens=1200,
        tokens_per_step=2.5,
    )

    for each in moved:
        assert has_load_moved(load, load.model_copy(update={part: each}))
    assert not has_load_moved(load, load.model_copy(update={part: same}))


@pytest.mark.parametrize(("long", "is_seen"), [(60, False), (300, False), (3600, True)])
def test_a_jump_is_what_chance_does_not_explain_in_the_window_of_the_server(
    long: int, is_seen: bool
) -> None:
    """Of n requests five standard deviations are 5 / sqrt(n): 29 % in 300 s at 1/s."""
    windows = {"shortSeconds": 60, "longSeconds": long}
    measure = Measure.model_validate({"source": "vLLM", "labels": {"m": "a"}, "windows": windows})
    before, now = (Load(arrival_rate=rate, avg_out_tokens=10) for rate in (45.0, 60.0))

    assert has_jumped(before, now, measure) is is_seen
