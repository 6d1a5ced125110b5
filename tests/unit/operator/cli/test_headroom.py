"""What is left of targets; percentiles are those of exponential distributions."""

from datetime import UTC, datetime

import pytest
from scipy.stats import expon

from inferno_operator.cli.headroom import Headroom, headrooms, measured_headrooms
from inferno_operator.resources import Allocation, Measured, Percentiles, Target

RUNNING = Allocation(
    accelerator="A", num_replicas=1, itl_average=20, wait_average=100, ttft_average=130
)


def shares(target: Target, running: Allocation | None = RUNNING) -> dict[str, float]:
    return {item.latency: round(item.share, 4) for item in headrooms(running, target)}


def test_a_mean_latency_takes_its_share_of_the_target() -> None:
    target = Target.model_validate({"model": "M", "slo-itl": 80, "slo-ttft": 100})

    assert shares(target) == {"itl": 0.75, "ttft": -0.3}


def test_measured_percentiles_of_inter_token_latencies_take_their_share_of_the_target() -> None:
    measured = Measured(
        time=datetime(2026, 1, 1, tzinfo=UTC),
        quality="Fresh",
        itl_average=20,
        itl_of_requests=Percentiles(p50=19, p95=30, p99=40),
    )
    target = Target(model="M", slo_itl=50, slo_itl_percentile=95)

    assert measured_headrooms(measured, target) == (Headroom("itl", 30, 50),)


@pytest.mark.parametrize("percentile", [None, 90.0, 99.0])
def test_waits_are_compared_at_the_percentile_of_their_target(percentile: float | None) -> None:
    target = Target.model_validate(
        {"model": "M", "slo-ttw": 1000, "slo-ttw-percentile": percentile}
    )

    waited = expon(scale=100).ppf((percentile or 95) / 100)
    assert shares(target) == {"wait": round(1 - waited / 1000, 4)}


def test_only_the_wait_in_a_time_to_first_token_has_a_tail() -> None:
    target = Target.model_validate({"model": "M", "slo-ttft": 500, "slo-ttft-percentile": 99})

    (found,) = headrooms(RUNNING, target)

    assert found.value_ms == pytest.approx(30 + expon(scale=100).ppf(0.99))


@pytest.mark.parametrize(
    "running",
    [
        None,
        Allocation(accelerator="", num_replicas=0, itl_average=20),
        Allocation(accelerator="A", num_replicas=1),
    ],
)
def test_without_measurements_nothing_is_told(running: Allocation | None) -> None:
    target = Target.model_validate({"model": "M", "slo-itl": 80, "slo-ttw": 1000, "slo-ttft": 100})

    assert shares(target, running) == {}


def test_without_targets_nothing_is_told() -> None:
    assert headrooms(RUNNING, None) == ()
    assert shares(Target(model="M", slo_itl=0)) == {}
