"""After a start, the loads of the last day are those that Prometheus has."""

import numpy as np
import pytest

from inferno_operator.controllers.measurement.lookahead import STEP_S, Lookahead, PastRates
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.series_groups import PART
from inferno_operator.resources import Measure
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.prometheus import PrometheusPast, RangeResult, Series
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.forecast import HISTORY_S

NOW = 1_800_000_030.0
HORIZON_S = 120.0


class Waves(PrometheusPast):
    """Knows loads that rise and fall by a half within an hour; fails about some servers."""

    def __init__(self, failing: str = "nobody") -> None:
        self._failing = failing

    async def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> RangeResult:
        if self._failing in expression:
            raise UnavailableError("http://p: no answer within 10 s")
        times = np.arange(start, end + step / 2, step)
        if "count_over_time" in expression:
            return RangeResult((Series({}, tuple(times), (20.0,) * len(times)),))
        if "tokens" in expression:
            return RangeResult(())
        assert "[300s]" in expression  # rates of a minute would seem to grow by chance
        labels = {"model_name": "m", PART: "0"}
        return RangeResult((Series(labels, tuple(times), tuple(_rates(times))),))


def _rates(times: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
    rates: list[float] = (10 + 5 * np.sin(2 * np.pi * times / 3600)).tolist()
    return rates


def measure(**labels: str) -> Measure:
    return Measure(source="vLLM", labels=labels)


async def filled(past: PrometheusPast, **measures: Measure) -> Lookahead:
    lookahead = Lookahead(30.0)
    keys = {Key("prod", name): found for name, found in measures.items()}
    await PastRates(past, read_built_in_sources(), lambda: NOW).fill(lookahead, keys)
    return lookahead


async def test_the_growth_is_that_of_an_operator_that_measured_all_day() -> None:
    measured = Lookahead(30.0)
    times = np.arange(NOW // STEP_S * STEP_S - HISTORY_S + 3 * STEP_S, NOW, STEP_S)
    measured.remember(Key("prod", "s"), dict(zip(times, 60 * np.array(_rates(times)), strict=True)))

    lookahead = await filled(Waves(), s=measure(model_name="m"))

    (found,), (known,) = lookahead.histories.values(), measured.histories.values()
    found_growth, known_growth = (each.growth(600.0, HORIZON_S) for each in (found, known))
    assert found_growth == pytest.approx(known_growth)
    assert found.mean == pytest.approx(600, rel=0.01)


async def test_a_past_that_cannot_be_read_leaves_that_of_others_alone() -> None:
    lookahead = await filled(
        Waves(failing="broken"), s=measure(model_name="m"), t=measure(pod="broken")
    )

    assert list(lookahead.histories) == [Key("prod", "s")]


async def test_what_is_measured_meanwhile_stays_and_what_is_too_old_is_left_out() -> None:
    lookahead, key = Lookahead(30.0), Key("prod", "s")
    lookahead.remember(key, {NOW: 300.0})
    lookahead.remember(key, {NOW - 2 * HISTORY_S: 1.0, NOW - 3600: 100.0})

    assert lookahead.mean_rate(key) == 200
