"""Whatever an engine reports, a calibration ends, and its numbers are finite."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from inferno_optimizer.calibration.calibrate import Evidence, calibrate
from inferno_optimizer.calibration.steps import fit_steps
from inferno_optimizer.calibration.windows import Requirements, Window
from inferno_optimizer.system import PrefillDecodeParameters
from tests.examples import several

USUAL = st.sampled_from([1.0, 5.0, 20.0, 200.0, 1e4])
ANYTHING = st.one_of(USUAL, st.floats())
NONE_ASKED = Requirements(
    rows=3,
    age_s=-math.inf,
    served=-math.inf,
    intervals=-math.inf,
    prefills=-math.inf,
    kv_usage=math.inf,
)


def windows(number: st.SearchStrategy[float]) -> st.SearchStrategy[Window]:
    return st.builds(
        Window,
        end=st.sampled_from([0.0, 60.0, 1e6]),
        itl_ms=number,
        intervals=number,
        batch=number,
        prefill_ms=number,
        prefills=number,
        input_tokens=number,
        output_tokens=number,
        kv_usage=number,
        batch_cov=number,
        age_s=number,
        served=number,
        shape=st.sampled_from(["", "a"]),
    )


@several(200)
@given(
    seen=st.one_of(st.lists(windows(USUAL), max_size=40), st.lists(windows(ANYTHING), max_size=9)),
    prior=st.sampled_from([None, PrefillDecodeParameters(8.0, 0.1, 20.0, 0.001)]),
    largest=st.sampled_from([0.0, 1.0, 64.0]),
    of_clients=st.booleans(),
)
def test_numbers_are_finite_and_not_negative(
    seen: list[Window],
    prior: PrefillDecodeParameters | None,
    largest: float,
    *,
    of_clients: bool,
) -> None:
    (result,) = calibrate([Evidence(seen, prior, largest, of_clients)], 1e6, NONE_ASKED)

    for parameters in (result.expected, result.upper):
        numbers = (parameters.alpha, parameters.beta, parameters.gamma, parameters.delta)
        assert all(math.isfinite(number) and number >= 0 for number in numbers)
    assert result.facts.rows + sum(result.rejected.values()) == len(seen)


TIMES = st.floats(0.01, 1e5)
RUNS = st.tuples(
    st.sampled_from([1, 2, 4, 8, 64]), st.floats(1, 1e5), st.floats(2, 1e4), TIMES, TIMES
)
NO_TIME_AT_ALL = [
    (1, 575.0, 122.3, 8.739, 30.696),
    (8, 2213.0, 66.4, 17.040, 118.701),
    (4, 123.2, 226.4, 9.162, 3.0917),
    (32, 125.7, 265.7, 10.789, 38.020),
]
"""Runs of a real engine, of which one has a tenth of its time to the first token."""


@several(200)
@given(st.lists(RUNS, min_size=4, max_size=9))
@example(NO_TIME_AT_ALL)
def test_steps_are_finite_whatever_clients_see(
    seen: list[tuple[int, float, float, float, float]],
) -> None:
    runs = [
        Window(0.0, itl, math.inf, clients, ttft, math.inf, inputs, outputs)
        for clients, inputs, outputs, itl, ttft in seen
    ]

    found = fit_steps(runs, 2048.0)

    if found is not None:
        best = found.parameters
        numbers = (best.alpha, best.kappa, best.delta, best.u, best.ahead)
        assert all(math.isfinite(number) and number >= 0 for number in numbers)
        assert all(map(math.isfinite, (found.doubt, *found.shares, *found.itl, *found.ttft)))
