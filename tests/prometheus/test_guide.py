"""What the guides to measuring and replays show is what a real Prometheus answers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.controlplane.processes import Processes
from tests.engines.prometheus import Prometheus
from tests.measured import NUMBER, answering, commands, printed, shorten, words
from tests.reference.shown import Shown


@pytest.fixture(scope="module")
def prometheus(
    processes: Processes, prometheus_program: Path, promtool: Path
) -> Iterator[Prometheus]:
    """It knows the replicas of the guides."""
    with answering(processes, (prometheus_program, promtool)) as server:
        yield server


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("command", commands(), ids=str)
def test_the_guide_shows_what_is_printed_but_for_the_seconds_that_pass(
    command: Shown, prometheus: Prometheus
) -> None:
    output = printed(command, prometheus)

    page = replace(command, output=words(command.output))
    assert page.fits(words(output)), "make it anew: python -m tests.measured"
    shown = [float(number) for number in NUMBER.findall(command.output)]
    now = [float(number) for number in NUMBER.findall(shorten(output, command.output))]
    assert now == pytest.approx(shown, rel=0.2, abs=3)
