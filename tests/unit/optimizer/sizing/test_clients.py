"""The rate of clients that wait for their answers, against closed forms; and what it costs."""

import numpy as np
import pytest

from inferno_optimizer.sizing.clients import POINTS, client_rates
from inferno_optimizer.sizing.queueing import FloatArray
from tests.unit.optimizer.sizing.test_step_model import wild

OTHERS = np.array([1.0, 3.0, 15.0, 127.0])


@pytest.mark.parametrize("prompt_ms", [0.0, 0.01, 3.0, 400.0])
def test_the_rate_of_clients_whose_prompts_stop_all_others_is_that_of_the_closed_form(
    prompt_ms: float,
) -> None:
    """S = 1000 / (1 - x w), so that x = n / (1000 + n w)."""
    computed: list[FloatArray] = []

    def stay_ms(rate: FloatArray) -> FloatArray:
        computed.append(rate)
        return 1000.0 / (1.0 - rate * prompt_ms)

    pole = np.full(4, 1.0 / max(prompt_ms, 1e-100))
    rates, known = client_rates(stay_ms, OTHERS, np.full(4, 1000.0), pole)

    assert known.all()
    assert rates == pytest.approx(OTHERS / (1000.0 + OTHERS * prompt_ms), rel=1e-14)
    assert len(computed) == POINTS


def test_clients_whose_stay_jumps_where_they_meet_are_not_known() -> None:
    def stay_ms(rate: FloatArray) -> FloatArray:
        return np.where(rate > 0.01, 200.0, 50.0)

    _, known = client_rates(stay_ms, np.ones(1), np.full(1, 50.0), np.full(1, 1.0))

    assert not known.any()


def test_a_full_batch_is_as_many_clients_as_it_has_places() -> None:
    model = wild(400)
    batch = model.batch.astype(np.float64)

    stay = model.full_stay_ms(batch)

    rate = (batch - 1.0) / stay
    some = (batch > 1) & (rate < 0.9 / np.maximum(model.prefill_ms, 1e-100))
    assert some.sum() > 200
    assert model.stay_of_clients_ms(batch, rate)[some] == pytest.approx(stay[some], rel=1e-8)
