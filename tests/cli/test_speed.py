"""How long the program takes from start to end, its bare start-up set aside."""

import json
import time
from pathlib import Path

import pytest

from tests.cli.program import inferno
from tests.generate import fleet


def seconds_of(*arguments: str | Path) -> float:
    """Elapsed time of the quickest of five runs: the one that others disturbed least."""
    return min(_elapsed(*arguments) for _ in range(5))


def _elapsed(*arguments: str | Path) -> float:
    start = time.perf_counter()
    result = inferno(*arguments)
    seconds = time.perf_counter() - start
    assert result.returncode == 0, result.stderr
    return seconds


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_thousand_servers_on_twenty_accelerators_take_less_than_a_second(
    output: str, tmp_path: Path
) -> None:
    system = tmp_path / "system.json"
    system.write_text(json.dumps(fleet(1_000, 20, seed=1, demand=1.0)))

    start_up = seconds_of("--version")

    assert seconds_of("optimize", system, "-o", output) - start_up < 1.0
