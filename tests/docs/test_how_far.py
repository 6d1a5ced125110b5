"""The page of predictions beside measurements."""

from pathlib import Path

import pytest

from tests.h100.bands import band, bands, settings
from tests.h100.page import PAGE, page
from tests.h100.simulation import Arrival, StepTimes, serve


def test_the_page_shows_what_is_predicted_now() -> None:
    assert (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8") == page()


STEPS = StepTimes((10.0, 1.0, 0.0, 0.001), (12.0, 2.0, 0.1, 0.002))


def test_a_lone_request_has_the_steps_that_it_needs() -> None:
    """Its prompt in two steps, as the budget has 2048 tokens; then 2 more tokens."""
    lone = Arrival(5.0, inputs=3000, outputs=3)

    serve(STEPS, 8, [lone])

    first, second = 12.0 + 2.0 + 204.8, 12.0 + 2.0 + 95.2 + 0.002 * 2048
    decodes = 2 * (10.0 + 1.0) + 0.001 * (3000 + 3001)
    assert lone.first == pytest.approx(5.0 + first + second)
    assert lone.last == pytest.approx(lone.first + decodes)


def test_a_request_waits_for_the_step_that_runs_and_the_one_that_is_decided() -> None:
    times = StepTimes((10.0, 0.0, 0.0, 0.0), (10.0, 0.0, 0.0, 0.0))
    early, late = Arrival(0.0, 1, 50), Arrival(25.0, 1, 2)

    serve(times, 8, [early, late])

    assert late.first == 50.0  # the step that runs ends at 30, the next at 40


def test_a_place_is_free_a_step_after_the_last_token() -> None:
    times = StepTimes((10.0, 0.0, 0.0, 0.0), (10.0, 0.0, 0.0, 0.0))
    one, other = Arrival(0.0, 1, 3), Arrival(0.0, 1, 3)

    serve(times, 1, [one, other])

    assert (one.last, other.first) == (30.0, 50.0)


def test_cached_tokens_are_kept_and_not_computed() -> None:
    times = StepTimes((10.0, 0.0, 0.0, 1.0), (0.0, 0.0, 1.0, 0.0))
    request = Arrival(0.0, inputs=100, outputs=2, cached=60)

    serve(times, 1, [request])

    assert (request.first, request.last) == (40.0, 40.0 + 10.0 + 100.0)


@pytest.mark.extended
def test_the_bands_of_the_page_are_those_of_the_steps() -> None:
    (setting,) = (s for s in settings() if s.run.name == "o-h512-k128-n64-r4")

    assert band(setting) == bands()[setting.run.name]
