"""The load that an optimization gets: the newest, and never less without evidence."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.measurement.load import load, with_load
from inferno_operator.resources import Load, Measured, Server
from tests.unit.operator.objects import observed, server

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


@pytest.mark.parametrize(
    ("quality", "rate"), [(q, 20 if q in ("Fresh", "Idle") else 100) for q in QUALITIES]
)
def test_only_fresh_numbers_lower_the_load(quality: str, rate: float) -> None:
    found = load(subject(TYPED, STANDING), measurement(quality))

    assert found == Load(arrival_rate=rate, avg_in_tokens=600, avg_out_tokens=201)


@pytest.mark.parametrize("quality", QUALITIES)
def test_numbers_of_any_quality_raise_the_load(quality: str) -> None:
    found = load(subject(TYPED, STANDING), measurement(quality, 500))

    assert found is not None
    assert found.arrival_rate == 500


def test_a_server_that_was_never_measured_has_the_load_that_a_person_gave() -> None:
    assert load(subject(TYPED), None) == Load(arrival_rate=50, avg_length=300)


def test_a_server_without_any_load_has_none() -> None:
    assert load(subject(), None) is None
    assert (
        load(
            subject(),
            Measured.model_validate(
                {"time": datetime(2026, 1, 1, tzinfo=UTC), "quality": "Missing"}
            ),
        )
        is None
    )


def test_lengths_that_are_not_measured_are_those_of_the_last_load() -> None:
    newest = measurement("Fresh", avg_in_tokens=None, avg_out_tokens=None)

    found = load(subject(TYPED, STANDING), newest)

    assert found == Load(arrival_rate=20, avg_length=300)


def test_a_server_that_never_served_a_request_is_idle_without_lengths() -> None:
    newest = measurement("Idle", 0.0, avg_in_tokens=None, avg_out_tokens=None)

    found = load(subject(), newest)

    assert found is not None
    assert found.arrival_rate == 0


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

    found = load(server_of, measurement(quality, rate))

    if found is not None and standing is not None and quality not in ("Fresh", "Idle"):
        assert found.arrival_rate >= standing


def test_a_load_replaces_that_of_the_server_and_nothing_else() -> None:
    before = subject(TYPED, STANDING)
    newest = Load(arrival_rate=7, avg_out_tokens=3)

    after = with_load(before, newest)

    assert after.spec.current_alloc is not None
    assert after.spec.current_alloc.load == newest
    assert after.spec.current_alloc.num_replicas == 2
    assert after.spec.desired_alloc == before.spec.desired_alloc


def test_a_server_without_a_current_allocation_gets_one_with_the_load() -> None:
    after = with_load(subject(), Load(arrival_rate=7, avg_out_tokens=3))

    assert after.spec.current_alloc is not None
    assert after.spec.current_alloc.accelerator == ""
