"""Which windows are used, and which are remembered."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

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
