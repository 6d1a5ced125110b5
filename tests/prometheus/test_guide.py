"""What the guides to measuring and savings show is what a real Prometheus answers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.processes import Processes
from tests.engines.prometheus import Prometheus
from tests.measured import answering, commands, printed
from tests.reference.shown import Shown

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


@pytest.fixture(scope="module")
def prometheus(
    processes: Processes, prometheus_program: Path, promtool: Path
) -> Iterator[Prometheus]:
    """It knows the replicas of the guides."""
    with answering(processes, (prometheus_program, promtool)) as server:
        yield server


def words(text: str) -> str:
    """A text without its numbers, and with columns of any width."""
    return re.sub(r" +", " ", NUMBER.sub("#", text)).strip()


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("command", commands(), ids=str)
def test_the_guide_shows_what_is_printed_but_for_the_seconds_that_pass(
    command: Shown, prometheus: Prometheus
) -> None:
    output = printed(command, prometheus)

    assert words(output) == words(command.output), "make it anew: python -m tests.measured"
    shown = [float(number) for number in NUMBER.findall(command.output)]
    now = [float(number) for number in NUMBER.findall(output)]
    assert now == pytest.approx(shown, rel=0.2, abs=3)
