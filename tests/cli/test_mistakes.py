"""Typical mistakes of new users are told in one line: place, object, field, advice."""

from itertools import zip_longest
from pathlib import Path

import pytest

from tests.controlplane.processes import ROOT
from tests.mistakes import MISTAKES, Mistake, make_and_run

STATUS = {"inferno: ": 2, "Error: ": 2, "warning: ": 0}
"""The exit status after a line that begins so."""


def test_there_are_seventy_at_least_and_each_is_another() -> None:
    made = {(m.run, m.file, m.find, m.write, m.append, str(m.environment)) for m in MISTAKES}

    assert len(made) == len({mistake.what for mistake in MISTAKES}) == len(MISTAKES) >= 70


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_a_mistake_is_one_line_with_its_place(mistake: Mistake, tmp_path: Path) -> None:
    folder = tmp_path / "fleet"

    said = make_and_run(mistake, folder)

    (line,) = said.lines
    kind = next(kind for kind in STATUS if line.startswith(kind))
    assert said.status == STATUS[kind]
    for words in mistake.told:
        assert words in line
    if mistake.find:
        changed = _find_changed_line(mistake, folder)
        is_named = f" {mistake.file}:{changed}:" in line
        assert is_named == (not mistake.elsewhere), line


def _find_changed_line(mistake: Mistake, folder: Path) -> int:
    right, wrong = (
        (place / mistake.file).read_text().splitlines()
        for place in (ROOT / "samples" / mistake.sample, folder)
    )
    pairs = enumerate(zip_longest(right, wrong), start=1)
    return next(number for number, (before, after) in pairs if before != after)
