"""Runs that begin slower than they go on."""

import csv
from pathlib import Path

import numpy as np
import pytest

from inferno_optimizer.calibration.warm_up import warm_up_share
from inferno_optimizer.sizing.queueing import FloatArray

RECORDED = Path(__file__).parents[3] / "data/h100-qwen3-4b/captures.csv"


def recorded(clients: str) -> FloatArray:
    """Times between tokens in a run on a GPU with so many clients [ms]; each step makes theirs."""
    with RECORDED.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["clients"] == clients]
    return np.repeat([float(row["step_ms"]) for row in rows], int(clients))


def share(gaps: FloatArray) -> float:
    """Of a run with these gaps, one after the other."""
    return warm_up_share(np.cumsum(gaps), gaps)


def test_graphs_that_a_gpu_engine_made_in_a_run_are_seen() -> None:
    """In the first 7 of 15.5 s; a run with 18 clients made two."""
    many = recorded("48")

    assert share(many) == pytest.approx(many.mean() / many[len(many) // 2 :].mean() - 1, abs=0.01)
    assert share(many) > 0.03
    assert share(recorded("18")) == 0.0


def gaps_of_mixed_steps(chance: np.random.Generator, number: int) -> FloatArray:
    """Decode steps, each tenth of which computes a prompt of random length."""
    prompts = (chance.random(number) < 0.1) * chance.uniform(10.0, 30.0, number)
    return 10.0 + prompts + chance.normal(0.0, 0.3, number)


@pytest.mark.parametrize("number", [1000, 3000])
def test_chance_is_no_warm_up(number: int) -> None:
    chance = np.random.default_rng(number)
    runs = 2000

    found = sum(share(gaps_of_mixed_steps(chance, number)) > 0 for _ in range(runs))

    assert found <= 0.02 * runs


@pytest.mark.parametrize("slow", [0.1, 0.25, 0.5])
def test_a_slow_beginning_is_what_it_adds(slow: float) -> None:
    chance = np.random.default_rng(1)
    gaps = gaps_of_mixed_steps(chance, 2000)
    gaps[: round(slow * len(gaps))] *= 1.5

    order = chance.permutation(len(gaps))
    found = warm_up_share(np.cumsum(gaps)[order], gaps[order])

    assert found == pytest.approx(0.5 * slow, rel=0.25)


def test_an_engine_that_becomes_slower_does_not_warm_up() -> None:
    assert share(np.linspace(10.0, 20.0, 2000)) == 0.0


@pytest.mark.parametrize("number", [0, 1, 999])
def test_few_tokens_tell_nothing(number: int) -> None:
    assert share(np.linspace(20.0, 10.0, number)) == 0.0
