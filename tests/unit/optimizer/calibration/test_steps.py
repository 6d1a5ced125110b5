"""Parameters of steps: found from runs, and estimated from the data sheets of cards and models."""

import random
from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.calibration.architecture import (
    Architecture,
    LatentAttention,
    LinearAttention,
)
from inferno_optimizer.calibration.roofline import (
    PRECISIONS,
    CardFigures,
    Efficiency,
    Precision,
    Roofline,
)
from inferno_optimizer.calibration.steps import fit_steps
from inferno_optimizer.calibration.windows import Window
from inferno_optimizer.errors import InputError
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


# Times of steps from data sheets, and the parameters of a model: closed forms


H100 = CardFigures(80.0, 3350.0, 989.4, 1978.9, 450.0)
QWEN3_8B = Architecture(36, 4096, 151936, False, 32, 8, 128, dense_layers=36, dense_width=12288)
GEMMA = replace(QWEN3_8B, windowed_layers=30, window=1024)
EXPERTS = Architecture(
    48, 2048, 151936, False, 32, 4, 128, experts=128, active_experts=8, expert_width=768
)
PERFECT = Efficiency(1.0, 1.0, 0.0, 0.0, 0.0)


def perfect(model: Architecture = QWEN3_8B, cards: int = 1) -> Roofline:
    return Roofline(model, Precision(), H100, cards, PERFECT)


def step(roofline: Roofline, requests: float, context: float) -> float:
    return float(roofline.step_ms(np.array([requests]), context)[0])


def test_a_lone_request_takes_as_long_as_weights_and_cache_are_read() -> None:
    weights = 2 * (QWEN3_8B.parameters - 151936 * 4096)
    cache = 1000 * 36 * 2 * 8 * 128 * 2

    assert step(perfect(), 1, 1000) == pytest.approx((weights + cache) / 3350e6)


def test_a_large_batch_takes_as_long_as_the_card_multiplies() -> None:
    work = 2 * 4096 * (QWEN3_8B.parameters - 151936 * 4096)

    assert step(perfect(), 4096, 1e-9) == pytest.approx(work / 989.4e9)


def test_a_token_of_a_prompt_is_multiplied_with_all_weights_and_half_of_the_prompt() -> None:
    layers = QWEN3_8B.parameters - 2 * 151936 * 4096
    attention = 36 * 4 * 32 * 128 * 500

    assert perfect().prompt_token_ms(1000) == pytest.approx((2 * layers + attention) / 989.4e9)


def test_cards_share_the_weights_and_the_work_but_not_a_latent_cache() -> None:
    latent = replace(QWEN3_8B, latent=LatentAttention(1536, 512, 128, 64, 128))
    one, four = perfect(latent), perfect(latent, cards=4)

    cached = step(one, 64, 2000) - step(one, 64, 0)
    assert step(four, 64, 2000) - step(four, 64, 0) == pytest.approx(cached)
    assert step(four, 1, 0) == pytest.approx(step(one, 1, 0) / 4)


def test_a_step_reads_and_writes_the_state_of_linear_attention_at_any_length() -> None:
    linear = LinearAttention(27, 16, 128, 32, 128, kernel=4, state_bytes=2)
    model = replace(QWEN3_8B, linear=linear)
    one, four = perfect(model), perfect(model, cards=4)

    for replica, cards in ((one, 1), (four, 4)):
        state = linear.kept_bytes(cards)
        cache = 9 * 2 * 128 * (8 / cards) * 2
        assert replica.cached_bytes(1000) == pytest.approx(state + 1000 * cache)
        moved = step(replica, 64, 1000) - step(replica, 32, 1000)
        assert moved == pytest.approx(32 * (2 * state + 1000 * cache) / 3350e6)


@pytest.mark.parametrize(("dtype", "reported"), [("bf16", 377024), ("fp8", 373 * 1152)])
def test_the_room_for_the_cache_is_what_an_engine_reports(dtype: str, reported: int) -> None:
    """The cache of vLLM 0.30.0 in tokens; with FP8 of 373 requests: silybench-data, derived."""
    found = Roofline(QWEN3_8B, PRECISIONS[dtype], H100).max_tokens(1152)

    assert found == pytest.approx(reported, rel=0.02)


def test_layers_with_a_window_keep_no_more_than_the_window() -> None:
    whole, part = perfect(QWEN3_8B), perfect(GEMMA)

    assert part.max_tokens(1024) == whole.max_tokens(1024)
    assert part.max_tokens(1e9) == pytest.approx(6 * whole.max_tokens(1e9), rel=0.001)


@pytest.mark.parametrize(
    ("model", "most"),
    [(QWEN3_8B, 0.01), (GEMMA, 0.01), (EXPERTS, 0.3)],
    ids=["dense", "window", "experts"],
)
def test_the_line_is_close_to_the_steps_of_all_batches(model: Architecture, most: float) -> None:
    roofline = Roofline(model, Precision(), H100)
    found = roofline.parameters(1024, 256, 128)
    sizes = np.unique(np.rint(np.geomspace(1, 128, num=50)))

    line = found.alpha + found.kappa * (1152 + found.overhead) * sizes
    off = np.abs(line / roofline.step_ms(sizes, 1152) - 1)
    assert np.median(off) < most
    assert found.alpha > 0


def test_parameters_hold_for_the_lengths_around_those_asked_for() -> None:
    found = Roofline(QWEN3_8B, Precision(), H100).parameters(1000, 200, 64)

    assert (found.min_input_tokens, found.max_input_tokens) == (500, 2000)
    assert (found.min_output_tokens, found.max_output_tokens) == (100, 400)


def test_a_card_without_eight_bit_math_computes_with_sixteen() -> None:
    slow = replace(H100, fast_flops=None)
    fast, same = (Roofline(QWEN3_8B, PRECISIONS["fp8"], card) for card in (H100, slow))

    assert same.prompt_token_ms(512) > 1.9 * fast.prompt_token_ms(512)


def test_weights_that_do_not_fit_are_refused_with_the_number_of_cards() -> None:
    large = replace(QWEN3_8B, layers=400, dense_layers=400)

    with pytest.raises(InputError, match=r"weights take 157 GB, and 72 GB can be used: .* 3 cards"):
        Roofline(large, Precision(), H100).max_tokens(1000)


# Parameters of a model, counted from the shapes of its matrices, and the experts that are met


DENSE = Architecture(
    2, 8, 32, tied=False, heads=4, kv_heads=2, head_dim=2, dense_layers=2, dense_width=16
)
LATENT = LatentAttention(query_rank=3, kv_rank=5, nope_dim=2, rope_dim=1, value_dim=4)


def matrices(*shapes: tuple[int, int]) -> int:
    return sum(rows * columns for rows, columns in shapes)


def test_a_dense_model_has_the_parameters_of_its_matrices() -> None:
    attention = matrices((8, 8), (8, 4), (8, 4), (8, 8))  # queries, keys, values, output
    network = matrices((8, 16), (8, 16), (16, 8))  # gate, up, down
    embeddings = matrices((32, 8), (32, 8))

    assert DENSE.parameters == 2 * (attention + network) + embeddings
    assert DENSE.active == DENSE.parameters - 32 * 8


def test_latent_attention_has_the_parameters_of_its_matrices() -> None:
    model = Architecture(1, 8, 0, tied=True, heads=4, kv_heads=4, head_dim=3, latent=LATENT)
    down = matrices((8, 3), (8, 5 + 1))
    up = matrices((3, 4 * 3), (5, 4 * (2 + 4)), (4 * 4, 8))

    assert model.attention == down + up
    assert model.cached(1) == model.cached(4) == 5 + 1


def test_a_mixture_of_experts_multiplies_a_token_with_the_chosen_ones_only() -> None:
    model = Architecture(
        3, 8, 0, True, 1, 1, 1, dense_layers=1, dense_width=4, experts=6, active_experts=2,
        expert_width=5, shared_width=7,
    )  # fmt: skip

    assert model.parameters - model.active == 2 * 4 * matrices((8, 5), (8, 5), (5, 8))


@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_experts_that_are_met_are_those_of_random_choices(tokens: int) -> None:
    model = Architecture(1, 1, 0, True, 1, 1, 1, experts=16, active_experts=3, expert_width=1)
    chance = random.Random(1)  # noqa: S311 - a simulation

    def met() -> int:
        return len({e for _ in range(tokens) for e in chance.sample(range(16), 3)})

    mean = sum(met() for _ in range(4000)) / 4000
    assert model.experts_met(tokens) == pytest.approx(mean, rel=0.02)


@pytest.mark.parametrize(("cards", "numbers"), [(1, 8), (2, 4), (4, 4)])
def test_each_card_keeps_at_least_one_head_of_the_cache(cards: int, numbers: int) -> None:
    assert DENSE.cached(cards) == numbers
