"""Steps that were simulated one by one, with cached prompts and drafts, are found again."""

from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.calibration.steps import fit_steps
from inferno_optimizer.calibration.windows import Window
from tests.tiers import extended

ALPHA, KAPPA, DELTA = 9.0, 5e-5, 0.02
STEPS = 8000


def run(
    clients: int, computed: int, cached: int, outputs: int, accepted: float, overhead: int = 0
) -> Window:
    """Clients who ask again at once, for answers of varied lengths.

    A request waits for the step that has just begun. Of three
    drafts a step accepts each by chance, after the one before. A request costs as much as
    `overhead` tokens besides its own.
    """
    chance = np.random.default_rng(clients)
    low, high = outputs // 2, outputs + outputs // 2
    done, ends = np.ones(clients), chance.integers(low, high, clients).astype(np.float64)
    waits, asked = np.zeros(clients, dtype=np.bool_), np.zeros(clients)
    drafts = (chance.random((STEPS, clients, 3)) < accepted).cumprod(axis=2).sum(axis=2)
    now = first = between = tokens = prompts = steps = 0.0
    for possible in 1.0 + drafts:
        fresh, decodes = (done == 0) & ~waits, done > 0
        decoding, fresh_ones = np.count_nonzero(decodes), np.count_nonzero(fresh)
        # those that do not decode have no token yet
        context = (computed + cached + overhead) * decoding + done.sum()
        step = ALPHA + KAPPA * context + DELTA * computed * fresh_ones
        now += step
        made = np.minimum(possible, ends - done) * decodes
        between, steps = between + step * decoding, steps + decoding
        tokens, done = tokens + made.sum(), done + made + fresh
        if fresh_ones:
            first, prompts = first + (now - asked)[fresh].sum(), prompts + fresh_ones
        ended = done >= ends
        waits = ended & (clients > 1)
        if ended.any():
            asked[ended], done[ended] = now, 0.0
            ends[ended] = chance.integers(low, high, np.count_nonzero(ended))
    return Window(
        end=0.0,
        itl_ms=between / tokens,
        intervals=steps,
        batch=float(clients),
        prefill_ms=first / prompts,
        prefills=prompts,
        input_tokens=float(computed),
        output_tokens=float(outputs),
        cached_tokens=float(cached),
        tokens_per_step=tokens / steps,
    )


@pytest.mark.parametrize(
    ("cached", "accepted"),
    [
        pytest.param(1500, 0.0, id="most of a prompt is cached", marks=pytest.mark.extended),
        pytest.param(0, 0.7, id="drafts are accepted", marks=pytest.mark.extended),
        pytest.param(1500, 0.7, id="both"),
    ],
)
def test_the_parameters_of_simulated_steps_are_found_within_5_percent(
    cached: int, accepted: float
) -> None:
    shapes = [(1000, 128), (100, 256)]
    runs = [
        run(clients, computed, cached, outputs, accepted)
        for clients in (1, 4, 16, 48)
        for computed, outputs in shapes
    ]

    found = fit_steps(runs, 0.0)

    assert found is not None
    fitted = found.parameters
    assert fitted.alpha == pytest.approx(ALPHA, rel=0.05)
    assert fitted.kappa == pytest.approx(KAPPA, rel=0.05)
    assert fitted.delta == pytest.approx(DELTA, rel=0.05)
    assert fitted.max_input_tokens >= 1000 + cached


@pytest.mark.parametrize("overhead", [200, *extended(800)])
def test_one_bad_run_does_not_decide_what_a_request_costs_besides_its_tokens(overhead: int) -> None:
    shapes = [(500, 128), (2000, 64), (100, 256)]
    runs = [
        run(clients, computed, 0, outputs, 0.0, overhead)
        for computed, outputs in shapes
        for clients in (1, 4, 16, 48)
    ]
    place = next(i for i, one in enumerate(runs) if one.batch == 48 and one.input_tokens == 2000)
    bad = runs[place]
    runs[place] = replace(bad, prefill_ms=4 * bad.prefill_ms, itl_ms=1.5 * bad.itl_ms)

    found = fit_steps(runs, 0.0)

    assert found is not None
    assert found.ttft[place] > 2
    assert found.parameters.overhead == pytest.approx(overhead, abs=96)
    assert found.parameters.kappa == pytest.approx(KAPPA, rel=0.12)
    assert found.parameters.delta == pytest.approx(DELTA, rel=0.05)
