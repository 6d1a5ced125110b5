"""Numbers of a replay that nobody means are refused by the option that has them."""

import pytest

from tests.cli.program import ROOT, inferno

REPLAY = ("replay", ROOT / "samples/episode", "--trace", ROOT / "samples/traces/slo-aware.csv")


OPTIONS = ("--step", "--scale", "--lead-time", "--lead-time-cov", "--seed", "--jobs")
SENSELESS = [(option, value) for option in OPTIONS for value in ("-1", "1e30", "nan", "some")]


@pytest.mark.parametrize(
    ("option", "value"), [*SENSELESS, ("--hours", "-1"), ("--hours", "nan"), ("--hours", "some")]
)
def test_a_senseless_number_is_refused_with_its_option(option: str, value: str) -> None:
    done = inferno(*REPLAY, option, value)

    assert done.returncode == 2
    assert f"'{option}'".encode() in done.stderr
    assert b"Traceback" not in done.stderr
