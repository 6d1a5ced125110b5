"""Typical mistakes in a fleet of one's own are told in one line: place, object, field, advice."""

import re
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mistakes import MISTAKES, SAMPLE, Mistake, messages

ELSEWHERE = {
    "model of a target unknown": "the line of the targets: one of them is missing",
    "the name left out": "the line above what is missing",
    "the class left out": "the line above what is missing",
    "performance data of an accelerator twice": "the line of the first of them",
    "target of a model twice": "the line of the first of them",
    "an object twice": "the line of the object, after a head",
    "a colon without a space": "where the parser sees it",
    "indented too little": "where the parser sees it",
    "a bracket left open": "where the parser sees it",
    "a field of the object with a typing error": "the second of the lines that are changed",
}
"""Mistakes of which another line is told than the one that was changed."""

PLACE = re.compile(r"(inferno|warning): [a-z]+\.yaml:\d+(:\d+)?: ")


def test_there_are_forty_at_least_and_each_is_another() -> None:
    changes = {(mistake.file, mistake.before, mistake.after) for mistake in MISTAKES}

    assert len(changes) == len(MISTAKES) >= 40


class MadeMistake(NamedTuple):
    """A mistake, the folder in which it is made, and what is said of it."""

    mistake: Mistake
    folder: Path
    lines: list[str]


@pytest.fixture(scope="module", params=MISTAKES, ids=lambda mistake: mistake.what)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MadeMistake:
    """Each mistake, made once for all tests."""
    folder = tmp_path_factory.mktemp("mistake") / "fleet"
    return MadeMistake(request.param, folder, messages(request.param, folder))


def test_a_mistake_is_one_line_with_its_place(made: MadeMistake) -> None:
    (line,) = made.lines
    assert PLACE.match(line), line
    for word in made.mistake.told:
        assert word in line


def test_the_line_is_the_one_that_was_changed(made: MadeMistake) -> None:
    mistake, folder, (line,) = made
    right, wrong = ((place / mistake.file).read_text().splitlines() for place in (SAMPLE, folder))
    pairs = enumerate(zip_longest(right, wrong), start=1)
    changed = next(number for number, (before, after) in pairs if before != after)

    assert (f" {mistake.file}:{changed}:" in line) == (mistake.what not in ELSEWHERE), line
