"""Loads of the past: pieces that Prometheus allows, gaps, and the file that keeps them."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from inferno_operator.cli.offline.traces import read_trace, write_trace
from inferno_operator.cli.past import build_past_trace, parse_span, read_past_loads
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.past import PastLoad, Span
from inferno_operator.engines.series_groups import PART
from inferno_operator.resources import Server, parse
from inferno_operator.runtime.prometheus import (
    MOST_POINTS,
    OversizedError,
    PrometheusPast,
    RangeResult,
    Series,
)
from inferno_optimizer.errors import InputError
from inferno_optimizer.replay.trace import Trace
from tests.unit.operator import objects

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
MINUTE = 60.0
NAN = math.nan
SCRAPES = "count_over_time"

Value = Callable[[float], float | None]
"""What a series has at a Unix time [s]."""


class Recorded(PrometheusPast):
    """Answers with functions of time; refuses what takes too many steps.

    Attributes
    ----------
    asked
        The expressions, and the steps of each piece.
    """

    def __init__(self, most: int = MOST_POINTS, **parts: Value) -> None:
        self.most, self.parts = most, parts
        self.asked: list[tuple[str, int]] = []

    async def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> RangeResult:
        steps = round((end - start) / step) + 1
        self.asked.append((expression, steps))
        assert steps <= MOST_POINTS
        if steps > self.most:
            raise OversizedError("the answer is larger than 8 MiB")
        times = [start + number * step for number in range(steps)]
        if SCRAPES in expression:
            return RangeResult((Series({}, tuple(times), (20.0,) * steps),))
        known = ("avgInTokens", "avgOutTokens") if "prompt_tokens" in expression else ("0",)
        return RangeResult(tuple(self._series(part, times) for part in known))

    def _series(self, part: str, times: list[float]) -> Series:
        value = self.parts["rate" if part == "0" else part]
        known = [(time, found) for time in times if (found := value(time)) is not None]
        labels = {"model_name": "granite", PART: part}
        return Series(labels, tuple(t for t, _ in known), tuple(v for _, v in known))


def measured(name: str = "chat") -> Server:
    measure = {"source": "vLLM", "labels": {"model_name": "granite"}}
    server = parse(objects.server(name, spec={"measure": measure}))
    assert isinstance(server, Server)
    return server


def span(steps: int) -> Span:
    return Span(0.0, steps * MINUTE, MINUTE)


async def read(prometheus: PrometheusPast, steps: int) -> PastLoad:
    loads, remarks = await read_past_loads(
        [measured()], prometheus, read_built_in_sources(), span(steps), lambda _: None
    )
    assert remarks == []
    return loads["chat"]


def recorded(most: int = MOST_POINTS) -> Recorded:
    return Recorded(
        most, rate=lambda time: time, avgInTokens=lambda _: 500.0, avgOutTokens=lambda _: 200.0
    )


async def test_a_step_has_the_numbers_of_the_window_that_ends_with_it() -> None:
    load = await read(recorded(), 5)

    assert load.rate.tolist() == [60.0, 120.0, 180.0, 240.0, 300.0]
    assert set(load.input_tokens) == {500.0}
    assert set(load.output_tokens) == {200.0}


async def test_no_piece_has_more_steps_than_prometheus_evaluates() -> None:
    prometheus = recorded()

    load = await read(prometheus, 3 * MOST_POINTS)

    assert np.array_equal(load.rate, MINUTE * np.arange(1, 3 * MOST_POINTS + 1))
    assert max(steps for _, steps in prometheus.asked) <= MOST_POINTS


async def test_a_piece_that_is_too_large_is_asked_for_in_halves() -> None:
    prometheus = recorded(most=100)

    load = await read(prometheus, 1000)

    assert np.array_equal(load.rate, MINUTE * np.arange(1, 1001))


async def test_a_prometheus_that_refuses_also_little_is_an_error() -> None:
    with pytest.raises(OversizedError):
        await read(recorded(most=10), 1000)


async def test_servers_without_a_measurement_are_nothing_to_read() -> None:
    other = parse(objects.server("other"))
    assert isinstance(other, Server)

    with pytest.raises(InputError, match=r"no Server has spec\.measure"):
        await read_past_loads([other], recorded(), read_built_in_sources(), span(5), lambda _: None)


def loads(*rate: float, tokens: float = 100.0) -> dict[str, PastLoad]:
    lengths = np.full(len(rate), tokens)
    return {"chat": PastLoad(np.array(rate), lengths, lengths)}


def test_gaps_are_told_and_filled_with_the_load_before() -> None:
    trace, notes = build_past_trace(loads(NAN, 1.0, NAN, NAN, 2.0, NAN), span(6))

    assert trace.rate[:, 0].tolist() == [0.0, 1.0, 1.0, 1.0, 2.0, 0.0]
    assert notes == [
        "chat: nothing from 1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z: no requests",
        (
            "chat: nothing from 1970-01-01T00:02:00Z to 1970-01-01T00:04:00Z: the load before it"
            " is taken"
        ),
        "chat: nothing from 1970-01-01T00:05:00Z to 1970-01-01T00:06:00Z: no requests",
    ]


def test_of_many_gaps_the_first_are_told() -> None:
    _, notes = build_past_trace(loads(1.0, *([NAN, 1.0] * 20)), span(41))

    assert len(notes) == 9
    assert notes[-1] == "chat: and 12 more gaps"


def test_servers_without_numbers_or_lengths_are_left_out_and_told() -> None:
    known = loads(1.0, 2.0)
    nothing = {"gone": loads(NAN, NAN)["chat"], "mute": loads(1.0, 1.0, tokens=NAN)["chat"]}
    trace, notes = build_past_trace(known | nothing, span(2))

    assert trace.clients == ("chat",)
    assert notes == [
        "gone: left out: nothing from 1970-01-01T00:00:00Z to 1970-01-01T00:02:00Z",
        "mute: left out: the lengths of its requests are not known",
    ]
    with pytest.raises(InputError, match="nothing to replay: gone: left out"):
        build_past_trace(nothing, span(2))


@pytest.mark.parametrize("name", ["kept.csv", "kept.csv.gz"])
def test_what_is_kept_is_read_again_as_it_was(name: str, tmp_path: Path) -> None:
    trace, _ = build_past_trace(loads(0.1, 1 / 3, NAN, 2.0), span(4))
    file = str(tmp_path / name)

    write_trace(file, trace, 1.7e9)

    again = read_trace(file)
    assert (again.clients, again.step_s) == (trace.clients, trace.step_s)
    for column in ("rate", "input_tokens", "output_tokens"):
        assert np.array_equal(getattr(again, column), getattr(trace, column))


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    trace: Trace = build_past_trace(loads(1.0, 1.0), span(2))[0]

    with pytest.raises(InputError, match="No such file or directory"):
        write_trace(str(tmp_path / "no" / "file.csv"), trace, 0.0)


@pytest.mark.parametrize(
    ("begin", "end", "hours"),
    [
        ("2026-11-22", "2026-11-23", 24),
        ("2026-11-22T18:00+01:00", "2026-11-22T18:00", 1),
        ("7d", "", 168),
        ("3h", "90m", 1.5),
        ("1h", "2027-01-01", 1),
    ],
)
def test_times_are_those_of_a_calendar_or_ago(begin: str, end: str, hours: float) -> None:
    found = parse_span(begin, end, MINUTE, NOW)

    assert found.steps == hours * 60


@pytest.mark.parametrize(
    ("begin", "end", "message"),
    [
        ("yesterday", "", "--from yesterday: give a time such as"),
        ("1h", "noon", "--to noon: give a time such as"),
        ("1h", "2h", "--from 1h: less than two steps of 60 s until --to 2h"),
        ("30s", "", "--from 30s: less than two steps of 60 s until now"),
    ],
)
def test_times_that_make_no_sense_are_refused(begin: str, end: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_span(begin, end, MINUTE, NOW)
