"""Which windows are used and remembered, and runs that begin slower than they go on."""

import csv
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest

from inferno_optimizer.calibration.warm_up import warm_up_share
from inferno_optimizer.calibration.windows import (
    LIVE,
    NEWEST,
    PER_BIN,
    Rejection,
    Window,
    WindowTable,
    lagged,
    rejections,
    retained,
)
from inferno_optimizer.sizing.queueing import FloatArray

GOOD = Window(
    end=600.0,
    itl_ms=10.0,
    intervals=5000,
    batch=8.0,
    prefill_ms=30.0,
    prefills=60,
    input_tokens=512,
    output_tokens=200,
    kv_usage=0.4,
    batch_cov=0.3,
    age_s=900.0,
    served=400.0,
    shape="a",
)


def rejected(window: Window) -> Rejection | None:
    """Why a window is rejected beside a good, newer one."""
    table = WindowTable.of([[replace(GOOD, end=700.0), window]])
    number = int(rejections(table, LIVE)[0, 0])
    return None if number < 0 else list(Rejection)[number]


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (GOOD, None),
        (replace(GOOD, itl_ms=nan), Rejection.INVALID),
        (replace(GOOD, itl_ms=0.0), Rejection.INVALID),
        (replace(GOOD, prefill_ms=inf), Rejection.INVALID),
        (replace(GOOD, output_tokens=1.0), Rejection.INVALID),
        (replace(GOOD, shape="b"), Rejection.OTHER_SHAPE),
        (replace(GOOD, age_s=60.0), Rejection.COLD),
        (replace(GOOD, served=19.0), Rejection.COLD),
        (replace(GOOD, restarts=1.0), Rejection.RESTARTED),
        (replace(GOOD, preemptions=1.0), Rejection.PREEMPTED),
        (replace(GOOD, kv_usage=0.97), Rejection.CACHE_FULL),
        (replace(GOOD, kv_usage=nan), None),
        (replace(GOOD, batch_cov=0.9), Rejection.UNSTEADY),
        (replace(GOOD, batch_cov=nan), None),
        (replace(GOOD, batch=2.0, batch_cov=1.0), None),  # as random arrivals have it
        (replace(GOOD, intervals=499), Rejection.FEW_TOKENS),
        (replace(GOOD, prefills=9), Rejection.FEW_PREFILLS),
    ],
)
def test_a_window_is_rejected_for_its_reason(window: Window, reason: Rejection | None) -> None:
    assert rejected(window) == reason


def test_groups_may_have_different_lengths_and_any_order() -> None:
    late, early = replace(GOOD, end=900.0, batch=3.0), replace(GOOD, end=300.0, batch=5.0)

    table = WindowTable.of([[late, early], [], [GOOD]])

    assert table.present.tolist() == [[True, True], [False, False], [True, False]]
    assert table.batch[0].tolist() == [5.0, 3.0]
    assert np.isnan(table.batch[1]).all()


def test_the_newest_windows_are_remembered_and_some_at_each_batch() -> None:
    rare = [replace(GOOD, end=float(i), batch=64.0) for i in range(50)]
    usual = [replace(GOOD, end=100.0 + i, batch=8.0) for i in range(500)]

    kept = retained([*rare, *usual])

    assert kept == [*rare[-PER_BIN:], *usual[-NEWEST:]]


def test_a_quiet_night_does_not_displace_the_day() -> None:
    day = [replace(GOOD, end=float(i)) for i in range(100)]
    night = [replace(GOOD, end=100.0 + i, batch=nan, itl_ms=nan, prefills=0) for i in range(500)]

    assert retained([*day, *night]) == [*day, *night[-PER_BIN:]]


@pytest.mark.parametrize(
    ("service_s", "batch"),
    [
        (0.0, 11.0),  # all prefills were in this window
        (30.0, (5 * 6 + 10 * 11) / 15),  # half of the time, with half as many requests before
        (60.0, 6.0),
        (600.0, 6.0),
    ],
)
def test_prefills_of_requests_that_end_now_were_in_the_window_before(
    service_s: float, batch: float
) -> None:
    before = replace(GOOD, end=540.0, batch=6.0)
    now = replace(GOOD, batch=11.0, itl_ms=10.0, output_tokens=1 + 100 * service_s)

    assert lagged(now, before).prefill_batch == pytest.approx(batch)


def test_without_a_batch_of_their_own_prefills_have_that_of_the_decode_steps() -> None:
    known, unknown = replace(GOOD, prefill_batch=5.0), GOOD

    assert WindowTable.of([[known, unknown]]).batch_of_prefills().tolist() == [[5.0, GOOD.batch]]


@pytest.mark.parametrize(
    "now", [replace(GOOD, batch=nan), replace(GOOD, batch=inf), replace(GOOD, itl_ms=nan)]
)
def test_what_is_unknown_leaves_the_batch_of_prefills_unknown(now: Window) -> None:
    before = replace(GOOD, end=540.0)

    assert np.isnan(lagged(now, before).prefill_batch)


# Runs that begin slower than they go on


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
