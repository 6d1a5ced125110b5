"""Traces in files: what is read, and the line of what is wrong."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from inferno_operator.cli.offline.traces import read_trace
from inferno_optimizer.errors import InputError

HEADER = "client,start_s,rate_per_s,input_mean,output_mean\n"
GOOD = f"{HEADER}a,0,1.5,10,20\na,60,0,,\na,120,2,12,22\nb,0,0,,\nb,60,1,5,6\nb,120,0,,\n"

BAD = {
    "negative": (
        f"{HEADER}a,0,1,1,1\na,60,-2,1,1\n",
        "{path}:3: rate_per_s: must be a number of at least 0, not '-2'",
    ),
    "no-date": (
        "client,start,rate_per_s,input_mean,output_mean\na,8 o'clock,1,1,1\n",
        "{path}:2: start: must be a date and time such as 2026-11-29T08:00:00Z, not",
    ),
    "dates-back": (
        (
            "client,timestamp,rate_per_s,input_mean,output_mean\n"
            "a,2026-11-29T08:01:00Z,1,1,1\na,2026-11-29T08:00:00Z,1,1,1\n"
        ),
        "{path}:3: timestamp: time goes back for client 'a', from 2026-11-29T08:01:00+00:00 to",
    ),
    "dates-of-requests-back": (
        "arrival,input_tokens,output_tokens\n2026-11-29T08:01:00Z,1,1\n2026-11-29T08:00:00Z,1,1\n",
        "{path}:3: arrival: time goes back, from 2026-11-29T08:01:00+00:00",
    ),
    "negative-per-minute": (
        "client,start_s,rate_per_min,input_mean,output_mean\na,0,-1,1,1\n",
        "{path}:2: rate_per_min: must be a number of at least 0, not '-1'",
    ),
    "no-number": (
        f"{HEADER}a,0,1,x,1\n",
        "{path}:2: input_mean: must be a number of at least 0, not 'x'",
    ),
    "infinite": (f"{HEADER}a,0,inf,1,1\n", "{path}:2: rate_per_s: must be a number of at least 0"),
    "huge-rate": (
        f"{HEADER}a,0,1e300,1,1\n",
        "{path}:2: rate_per_s: must be at most 2147483647, not '1e300'",
    ),
    "huge-length": (
        f"{HEADER}a,0,1,99999999999999999999,1\n",
        "{path}:2: input_mean: must be at most 2147483647, not '99999999999999999999'",
    ),
    "a-long-text": (f"{HEADER}a,0,{'9' * 400},1,1\n", "{path}:2: rate_per_s: must be a number of"),
    "years-of-requests": (
        "arrival_s,input_tokens,output_tokens\n0,1,1\n1700000000,1,1\n",
        "{path}:3: arrival_s: 1.7e+09 is more than 1000000 minutes after the first request",
    ),
    "no-client": (f"{HEADER},0,1,1,1\n", "{path}:2: client: is empty"),
    "short-line": (f"{HEADER}a,0\n", "{path}:2: rate_per_s: must be a number of at least 0"),
    "twice": (
        f"{HEADER}a,0,1,1,1\na,0,1,1,1\n",
        "{path}:3: start_s: time goes back for client 'a', from 0 to 0",
    ),
    "shorter-client": (
        f"{HEADER}a,0,1,1,1\na,60,1,1,1\nb,0,1,1,1\n",
        "{path}:4: start_s: client 'b' has 0 here, where client 'a' has 60 ({path}:3)",
    ),
    "requests-back": (
        "arrival_s,input_tokens,output_tokens\n5,1,1\n4,1,1\n",
        "{path}:3: arrival_s: time goes back, from 5 to 4",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_trace_is_refused_with_file_and_line(name: str, tmp_path: Path) -> None:
    text, message = BAD[name]
    file = tmp_path / f"{name}.csv"
    file.write_text(text)

    with pytest.raises(InputError) as refusal:
        read_trace(str(file))

    assert str(refusal.value).startswith(message.replace("{path}", str(file)))
    assert "\n" not in str(refusal.value)


def test_steps_of_several_clients_are_columns(tmp_path: Path) -> None:
    file = tmp_path / "good.csv"
    file.write_text(GOOD)

    trace = read_trace(str(file))

    assert (trace.clients, trace.step_s) == (("a", "b"), 60.0)
    assert trace.rate.T.tolist() == [[1.5, 0.0, 2.0], [0.0, 1.0, 0.0]]
    assert trace.input_tokens.T.tolist() == [[10.0, 10.0, 12.0], [5.0, 5.0, 5.0]]


@pytest.mark.parametrize(
    ("header", "steps"),
    [
        ("client,start_s,rate_per_min,input_mean,output_mean", [("0", "90"), ("60", "120")]),
        ("client,start_s,rate_per_h,input_mean,output_mean", [("0", "5400"), ("60", "7200")]),
        (
            "client,start,rate_per_s,input_mean,output_mean",
            [("2026-11-29T23:59:30Z", "1.5"), ("2026-11-30T00:00:30", "2")],
        ),
        (
            "client,timestamp,rate_per_min,input_mean,output_mean",
            [("2026-11-29 09:00+01:00", "90"), ("2026-11-29 09:01+01:00", "120")],
        ),
    ],
)
def test_times_may_be_dates_and_rates_per_minute_or_hour(
    header: str, steps: list[tuple[str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("\n".join([header, *(f"a,{time},{rate},10,20" for time, rate in steps)]))

    trace = read_trace(str(file), _refuse_remarks)

    assert trace.step_s == 60.0
    assert trace.rate[:, 0] == pytest.approx([1.5, 2.0])


@pytest.mark.parametrize("column", ["arrival", "timestamp"])
def test_requests_may_come_at_dates(column: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    times = ("2026-11-29T08:00:01.5Z", "2026-11-29T08:00:40Z", "2026-11-29T08:01:00Z")
    lines = "".join(f"{time},10,20\n" for time in times)
    file.write_text(f"{column},input_tokens,output_tokens\n{lines}")

    trace = read_trace(str(file), _refuse_remarks)

    assert trace.rate[:, 0] * 60 == pytest.approx([2, 1])


def _refuse_remarks(remarks: Sequence[str]) -> None:
    assert list(remarks) == []


def test_a_compressed_file_is_read_as_a_plain_one(tmp_path: Path) -> None:
    file = tmp_path / "good.csv.gz"
    file.write_bytes(gzip.compress(GOOD.encode()))

    assert read_trace(str(file)).steps == 3


def test_half_a_compressed_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "half.csv.gz"
    file.write_bytes(gzip.compress(GOOD.encode())[:40])

    with pytest.raises(InputError, match=r"half\.csv\.gz: not a whole gzip file"):
        read_trace(str(file))


def test_single_requests_are_counted_in_minutes(tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    file.write_text("arrival_s,input_tokens,output_tokens\n0,10,1\n59.9,20,3\n130,5,5\n")

    trace = read_trace(str(file))

    assert (trace.clients, trace.step_s) == (("all",), 60.0)
    assert np.array_equal(trace.rate[:, 0] * 60, [2, 0, 1])
    assert trace.input_tokens[:, 0].tolist() == [15.0, 15.0, 5.0]


def test_times_of_a_calendar_begin_with_the_first_request(tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    file.write_text("arrival_s,input_tokens,output_tokens\n1700000000,10,1\n1700000130,5,5\n")

    assert np.array_equal(read_trace(str(file)).rate[:, 0] * 60, [1, 0, 1])


def test_columns_and_requests_without_an_effect_are_told(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("arrival_s,clinet,input_tokens,output_tokens\n0,a,5,7\n1,b,5,0\n70,a,5,7\n")
    told: list[str] = []
    trace = read_trace(str(file), told.extend)

    assert trace.clients == ("all",)
    assert told == [
        f"{file}:1: column 'clinet' is not used; did you mean client?",
        f"{file}:3: no output tokens: counts as no load (1 of 3 lines)",
    ]


def test_a_good_trace_needs_no_remark(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(GOOD)
    told: list[str] = []
    read_trace(str(file), told.extend)

    assert told == []
