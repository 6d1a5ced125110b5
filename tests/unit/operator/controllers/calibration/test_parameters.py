"""What the status of a Model tells of its parameters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from inferno_operator.controllers.calibration.parameters import (
    add_prefill_batch,
    calibrate_models,
    find_largest_batch,
    find_prior,
)
from inferno_operator.resources import (
    CalibratedData,
    HardlyKnownParameter,
    Model,
    PerformanceData,
    parse,
)
from inferno_optimizer.calibration.windows import Window
from inferno_optimizer.system import PrefillDecodeParameters
from tests.unit.operator import objects
from tests.unit.operator.controllers.calibration.seen import (
    ALPHA,
    BETA,
    DELTA,
    GAMMA,
    NOW,
    PAIR,
    slower_lately,
    spread,
    steady,
    window,
)
from tests.unit.operator.objects import require
from tests.unit.optimizer.calibration.engine import MixedEngine, windows

TYPED: Mapping[str, object] = {
    "decodeParms": {"alpha": 10, "beta": 0.1},
    "prefillParms": {"gamma": 5, "delta": 0.001},
}


def model(fields: Mapping[str, object] = TYPED, before: Iterable[CalibratedData] = ()) -> Model:
    data = {**objects.performance("A", **fields), "maxBatchSize": 32, "atTokens": 201}
    manifest = objects.model("M", [data], namespace="default")
    manifest["status"] = {"calibration": [row.to_json() for row in before]}
    resource = parse(manifest)
    assert isinstance(resource, Model)
    return resource


def rows(windows: list[Window], of: Model | None = None) -> tuple[CalibratedData, ...]:
    return calibrate_models({PAIR: windows}, {("default", "M"): of or model()}, NOW)["default", "M"]


def data(**fields: object) -> PerformanceData:
    return model(fields or TYPED).spec.data[0]


def test_the_parameters_of_the_engine_are_told_with_their_errors() -> None:
    (row,) = rows(spread())

    assert (row.acc, row.reason, row.rows, row.time) == ("A", "Calibrated", 60, NOW)
    assert row.decode is not None
    assert row.prefill is not None
    assert (row.decode.alpha, row.decode.beta) == pytest.approx((ALPHA, BETA), rel=0.01)
    assert (row.prefill.gamma, row.prefill.delta) == pytest.approx((GAMMA, DELTA), rel=0.05)
    assert row.decode.alpha_error < 0.05 * ALPHA
    assert (row.least_batch, row.most_batch) == (2, 31)
    assert row.rejected == ()


def test_what_sizing_takes_is_above_what_is_expected() -> None:
    (row,) = rows(spread())

    for batch in (1, 16, 32):
        expected = require(row.expected).alpha + require(row.expected).beta * batch
        assert require(row.decode_parms).alpha + require(row.decode_parms).beta * batch > expected


def test_a_change_of_the_engine_is_told() -> None:
    (row,) = rows(slower_lately())

    assert row.reason == "Shifted"
    assert row.shift == pytest.approx(0.3, abs=0.1)


STEPS: Mapping[str, object] = {"stepParms": {"alpha": 9, "kappa": 0.002, "delta": 0.03}}


def mixed(
    count: int = 36,
    inputs: Sequence[int] = range(256, 769, 32),
    outputs: Sequence[int] = range(100, 301, 20),
) -> list[Window]:
    """Windows of a replica that computes prompts in its decode steps, the newest last."""
    engine = MixedEngine(8.0, 0.001, 0.0, 0.03, tuple(inputs), tuple(outputs))
    rates = [0.5 + 1.5 * (7 * number % count) / 5 for number in range(count)]
    seen = windows(engine, rates)
    start = NOW.timestamp() - seen[-1].end
    return [replace(w, end=w.end + start) for w in seen]


@pytest.mark.parametrize("fields", [TYPED, STEPS])
def test_steps_are_told_where_they_fit_better(fields: Mapping[str, object]) -> None:
    (row,) = rows(mixed(), model(fields))

    assert row.reason in ("Calibrated", "Extrapolating")
    assert row.message.startswith("stepParms fit better: windows are ")
    assert row.step_parms is not None
    assert row.step_parms.alpha == pytest.approx(8.0, rel=0.1)
    assert row.step_parms.delta == pytest.approx(0.03, rel=0.2)
    assert row.step_parms.ahead == pytest.approx(0, abs=0.1)


def test_parameters_that_the_windows_hardly_tell_are_named_with_the_lengths_that_hold() -> None:
    random = np.random.default_rng(2)
    noisy = [
        replace(window, itl_ms=window.itl_ms * random.uniform(0.8, 1.2))
        for window in mixed(inputs=(512,), outputs=(128,))
    ]

    (known,), (doubtful,) = rows(mixed(), model(STEPS)), rows(noisy, model(STEPS))

    assert (known.hardly_known, "hardly known" in known.message) == ((), False)
    (extra,) = doubtful.hardly_known
    assert extra.name == "u"  # the engine has none, and noise looks like a little
    assert extra.error > 0.5
    assert 0.05 < extra.share < 0.1
    assert "; u hardly known, so plans hold for 256 to 1024 input and" in doubtful.message


def test_typed_steps_stay_where_lines_fit_better() -> None:
    (row,) = rows(spread(), model(STEPS))

    assert row.step_parms is None
    assert row.message.endswith(
        "; the configured stepParms stay, as lines hold only for the lengths measured"
    )


@pytest.mark.parametrize("steps", [False, True])
def test_parameters_stay_after_a_refusal_as_they_were(steps: bool) -> None:
    doubt = HardlyKnownParameter(name="kappa", error=0.8, share=0.13)
    (found,) = rows(mixed(), model(STEPS)) if steps else rows(spread())
    before = found.model_copy(update={"hardly_known": (doubt,)})

    (refused,) = rows(steady(), model(STEPS if steps else TYPED, [before]))
    (unknown,) = rows(steady())

    assert refused.reason == "NoSpread"
    for name in ("decode_parms", "prefill_parms", "step_parms", "hardly_known"):
        assert getattr(refused, name) == getattr(before, name)
    assert (unknown.decode_parms, unknown.prefill_parms) == (None, None)


def test_a_single_window_shows_no_line() -> None:
    (row,) = rows([window(1, 5)])

    assert (row.reason, row.rows, row.decode) == ("NotEnoughData", 1, None)


def test_windows_of_unknown_models_are_left_out() -> None:
    assert calibrate_models({PAIR: spread()}, {}, NOW) == {}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (TYPED, PrefillDecodeParameters(10, 0.1, 5, 0.001)),
        ({"alpha": 10, "beta": 0.1}, PrefillDecodeParameters(10, 0.1, 0, 0)),
        ({"perfParms": {"alpha": 1, "beta": 2, "gamma": 3}}, None),
    ],
)
def test_what_is_typed_is_what_is_believed(
    fields: dict[str, object], expected: PrefillDecodeParameters | None
) -> None:
    assert find_prior(data(**fields)) == expected


def test_the_largest_batch_is_that_of_sizing() -> None:
    windows = [window(1, 5)]

    assert find_largest_batch(data(), windows) == 32  # 32 requests of 201 tokens, as they are
    assert find_largest_batch(data(alpha=10, beta=1), windows) == 9  # of 701, input and output
    assert find_largest_batch(data(**TYPED, maxNumSeqs=20), windows) == 20
    assert find_largest_batch(data(**TYPED, maxTokens=7010), windows) == 10
    assert find_largest_batch(None, windows) == 0


def test_a_window_that_follows_another_of_its_replica_knows_the_batch_of_its_prefills() -> None:
    known = [replace(window(2, 5), replica="a"), replace(window(9, 5), replica="b")]
    new = [replace(window(1, 10), replica=name) for name in "abc"]

    found = add_prefill_batch(new, known)

    assert 5 < found[0].prefill_batch < 10
    assert all(isnan(other.prefill_batch) for other in found[1:])
