"""How far ahead of measured loads plans are made: the growth that past loads show."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.measurement.lookahead import LoadHistory, Lookahead
from inferno_operator.resources import Ahead, Measured, Server
from inferno_operator.resources.objects import Key
from inferno_optimizer.forecast import MOST, first_ratio
from tests.unit.operator.objects import observed, server
from tests.unit.optimizer.oracles import growth_of

KEY = Key("default", "s")
START = datetime(2026, 1, 1, tzinfo=UTC)


def subject(**spec: Any) -> Server:  # noqa: ANN401 - fields of a spec
    resource = observed(server(spec=spec)).resource
    assert isinstance(resource, Server)
    return resource


def measurement(minute: float, rate: float | None, quality: str = "Fresh") -> Measured:
    numbers = {} if rate is None else {"arrival_rate": rate}
    time = START + timedelta(minutes=minute)
    return Measured.model_validate({"time": time, "quality": quality, **numbers})


def looked(rates: list[float], **spec: Any) -> Ahead:  # noqa: ANN401 - fields of a spec
    """What follows from a rate in each minute, measured every 30 s."""
    lookahead, resource = Lookahead(30.0), subject(**spec)
    found = [
        lookahead.look_ahead(KEY, resource, measurement(minute + half, rate), None)
        for minute, rate in enumerate(rates)
        for half in (0.0, 0.5)
    ]
    return found[-1]


def test_until_there_is_enough_history_the_growth_is_a_default() -> None:
    found = looked([100.0] * 100)

    assert found == Ahead(seconds=150, growth=round(first_ratio(150.0), 3), history_seconds=0)


@pytest.mark.parametrize(("startup", "growth"), [(10, 1.091), (120, 1.160), (870, 1.355)])
def test_without_history_loads_grow_more_in_longer_lead_times(startup: int, growth: float) -> None:
    assert looked([100.0], startupSeconds=startup).growth == growth


@pytest.mark.parametrize(
    ("rates", "growth"),
    [
        pytest.param([100.0] * 150, 1.0, id="constant"),
        pytest.param([1000.0 - minute for minute in range(200)], 1.0, id="falling"),
        pytest.param([100 * 1.01**n for n in range(140)] + [100.0] * 1500, 1.0, id="a day ago"),
        pytest.param([0.1, 0.1, 0.1, 5.0, 5.0, 5.0] * 40, MOST, id="limited"),
        pytest.param([0.0, 0.0, 0.0, 5.0, 5.0, 5.0] * 40, 1.0, id="from nothing"),
        pytest.param([0.0, 0.0, 0.0, 0.0, 0.0, 5.0] * 40, 1.0, id="silent for most of the time"),
    ],
)
def test_the_growth_is_what_the_last_day_has_shown_and_never_below_one(
    rates: list[float], growth: float
) -> None:
    found = looked(rates)

    assert found.growth == growth
    assert found.history_seconds == pytest.approx(min(len(rates), 1440) * 60, abs=600)


def test_the_growth_is_that_of_the_lead_time_and_a_cycle() -> None:
    rates = [100 * 1.01**minute for minute in range(300)]

    # 150 s are three steps of a minute; 600 s and 30 s are eleven.
    assert looked(rates).growth == pytest.approx(1.01**3, rel=1e-3)
    assert looked(rates, startupSeconds=600).growth == pytest.approx(1.01**11, rel=1e-3)


def test_an_operator_that_just_started_keeps_the_growth_that_was_found() -> None:
    lookahead, resource = Lookahead(30.0), subject()
    before = measurement(0, 100).model_copy(
        update={"ahead": Ahead(seconds=150, growth=1.6, history_seconds=86400)}
    )

    found = lookahead.look_ahead(KEY, resource, measurement(1, 100), before)

    assert found.growth == 1.6


def test_a_default_growth_is_not_kept_for_another_lead_time() -> None:
    slow, short = subject(startupSeconds=870), Ahead(seconds=150, growth=1.13, history_seconds=0)
    before = measurement(0, 100).model_copy(update={"ahead": short})

    found = Lookahead(30.0).look_ahead(KEY, slow, measurement(1, 100), before)

    assert found.growth == round(first_ratio(900.0), 3)


@pytest.mark.parametrize("quality", ["Partial", "Stale", "Missing", "Refused"])
def test_numbers_of_a_part_of_the_replicas_tell_no_growth(quality: str) -> None:
    lookahead, resource = Lookahead(30.0), subject()
    for minute in range(300):
        rate, state = (100.0, "Fresh") if minute % 3 else (10.0, quality)
        found = lookahead.look_ahead(KEY, resource, measurement(minute, rate, state), None)

    assert found.growth == 1.0


@given(
    rates=st.lists(st.none() | st.floats(1, 1000), min_size=130, max_size=400),
    ahead=st.integers(1, 5),
    rate=st.floats(0, 1200),
)
def test_the_growth_is_the_quantile_of_the_known_ratios_from_rates_nearby(
    rates: list[float | None], ahead: int, rate: float
) -> None:
    history = LoadHistory()
    for minute, each in enumerate(rates):
        if each is not None:
            history.add(60.0 * minute, each)
    known = [each for each in rates if each is not None]

    found = history.growth(rate, 60.0 * ahead)

    if len(known) < 120:
        assert found is None
        return
    kept = [None if each is None else 64 * float(np.float16(each / 64)) for each in rates]
    assert found == pytest.approx(growth_of(kept, ahead, rate, first_ratio(60.0 * ahead)), rel=1e-5)


def test_a_peak_is_expected_to_grow_less_than_a_lull() -> None:
    """Ten minutes of about 100 follow ten of about 400, again and again."""
    chance = np.random.default_rng(1).uniform(0.95, 1.05, 400)
    rates = [share * (100.0 if minute // 10 % 2 else 400.0) for minute, share in enumerate(chance)]

    assert looked([*rates, 100.0]).growth == pytest.approx(4.0, rel=0.1)
    assert looked([*rates, 400.0]).growth < 1.1


@given(st.lists(st.tuples(st.floats(-3e5, 3e5), st.floats(0, 100)), max_size=60))
def test_whatever_the_clock_does_a_history_stays_usable(moments: list[tuple[float, float]]) -> None:
    history = LoadHistory()
    for time, rate in moments:
        history.add(1e9 + time, rate)

    assert 0 <= history.seconds <= 86400
    for minute in range(1440):
        history.add(2e9 + 60 * minute, 7.0)
    assert history.growth(7.0, 150.0) == 1.0
