"""The file of results of a study: each is there as a whole line, whatever happens."""

from pathlib import Path
from typing import cast

import pytest

from inferno_operator.cli.study import StudyRun, open_results, read_results
from inferno_optimizer.errors import InputError
from inferno_optimizer.replay.replay import Scenario
from tests.full_disk import room_for

NO_SCENARIO = cast("Scenario", None)
"""Nothing is replayed here."""


def run(key: str) -> StudyRun:
    return StudyRun("fleet", "trace", "setting", "hpa", key, NO_SCENARIO)


def costs(file: Path) -> dict[str, float]:
    """The results of a file by their keys."""
    return {key: result["cost"] for key, result in read_results(file).items()}


def test_a_full_disk_keeps_what_is_done(tmp_path: Path) -> None:
    file = tmp_path / "study.jsonl"
    add = open_results(file)
    add(run("first"), {"cost": 1.0})
    size = file.stat().st_size

    with room_for(size + 10), pytest.raises(InputError) as refused:
        add(run("second"), {"cost": 2.0})
    assert costs(file) == {"first": 1.0}
    add(run("third"), {"cost": 3.0})

    assert str(refused.value) == f"{file}: File too large"
    assert file.stat().st_size == 2 * size
    assert costs(file) == {"first": 1.0, "third": 3.0}


def test_a_line_that_was_cut_short_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "study.jsonl"
    open_results(file)(run("first"), {"cost": 1.0})
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:20])

    open_results(file)

    assert file.read_bytes() == whole


def test_a_file_that_cannot_be_written_is_named_before_anything_is_replayed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory"):
        open_results(tmp_path / "missing" / "study.jsonl")
