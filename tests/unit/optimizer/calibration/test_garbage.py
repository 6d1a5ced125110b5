"""Whatever an engine reports, a calibration ends, and its numbers are finite."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from inferno_optimizer.calibration.calibrate import Evidence, calibrate
from inferno_optimizer.calibration.windows import Requirements, Window
from inferno_optimizer.system import PrefillDecodeParameters

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


@settings(max_examples=200, deadline=None)
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
