"""The parameters for sizing lie above what they are derived from."""

import numpy as np
import pytest

from inferno_optimizer.calibration.confidence import GroupRequests, Line, Z, chords
from inferno_optimizer.calibration.fit import interference_ms

NONE = np.zeros((1, 2, 2))
UNCERTAIN = np.array([[[0.04, -0.001], [-0.001, 0.0001]]])


def line(intercept: float, slope: float, covariance: np.ndarray = NONE) -> Line:
    return Line(np.array([intercept]), np.array([slope]), covariance)


def requests(largest: float, inputs: float = 512.0, outputs: float = 200.0) -> GroupRequests:
    return GroupRequests(*(np.array([value]) for value in (largest, inputs, outputs, 1.0)))


def test_without_prefills_and_uncertainty_the_chord_is_the_line() -> None:
    found = chords(line(8, 0.1), line(0, 0), requests(64), 0.0)

    assert (found.alpha[0], found.beta[0]) == pytest.approx((8, 0.1))


@pytest.mark.parametrize("largest", [2.0, 16.0, 64.0, 256.0])
def test_no_latency_up_to_the_largest_batch_is_above_the_chord(largest: float) -> None:
    decode, prefill = line(8, 0.1, UNCERTAIN), line(20, 0.0008, UNCERTAIN * 1e-6)
    found = chords(decode, prefill, requests(largest), Z)
    batch = np.linspace(1, largest, 50)

    for n in batch:
        prefill_ms = prefill.upper(np.array([512 * (n + 1)]), Z)
        itl = decode.upper(np.array([n]), Z) + interference_ms(n, prefill_ms, np.array([200.0]))
        assert found.alpha[0] + found.beta[0] * n >= itl[0] - 1e-9
        first = prefill.upper(np.array([512 * n]), Z)[0]
        assert found.gamma[0] + found.delta[0] * 512 * n >= first - 1e-9


def test_parameters_for_sizing_are_never_negative() -> None:
    found = chords(line(1, 0.1), line(200, 0.01), requests(100, outputs=10.0), Z)

    assert found.alpha[0] == 0
    assert found.beta[0] * 100 == pytest.approx(11 + 99 * (200 + 0.01 * 512 * 101) / 9)


def test_uncertainty_widens_the_lines() -> None:
    certain, uncertain = (
        chords(line(8, 0.1, covariance), line(20, 0.0008), requests(64), Z)
        for covariance in (NONE, UNCERTAIN)
    )

    error = np.sqrt(0.04 - 2 * 64 * 0.001 + 64**2 * 0.0001)
    difference = (
        uncertain.alpha[0] + 64 * uncertain.beta[0] - (certain.alpha[0] + 64 * certain.beta[0])
    )

    assert difference == pytest.approx(Z * error)
