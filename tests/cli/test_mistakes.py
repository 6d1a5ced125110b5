"""Typical mistakes in a fleet of one's own are told in one line: place, object, field, advice."""

import re
from pathlib import Path

import pytest

from tests.mistakes import MISTAKES, Mistake, messages

PLACE = re.compile(r"(inferno|warning): [a-z]+\.yaml:\d+(:\d+)?: ")


def test_there_are_forty_at_least_and_each_is_another() -> None:
    changes = {(mistake.file, mistake.before, mistake.after) for mistake in MISTAKES}

    assert len(changes) == len(MISTAKES) >= 40


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_a_mistake_is_one_line_with_its_place(mistake: Mistake, tmp_path: Path) -> None:
    lines = messages(mistake, tmp_path / "fleet")

    (line,) = lines
    assert PLACE.match(line), line
    for word in mistake.told:
        assert word in line
