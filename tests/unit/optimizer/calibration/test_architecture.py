"""Parameters of a model, counted from the shapes of its matrices, and the experts that are met."""

import random

import pytest

from inferno_optimizer.calibration.architecture import Architecture, LatentAttention

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
