"""Recorded conversations with the original: the same answers, but for what is listed."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.controlplane.processes import Processes
from tests.rest.replay import read_conversation, replayed
from tests.rest.serving import copied
from tests.tiers import sampled

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT.parent / "shared" / "conformance" / "rest"
DIFFERENCES = ROOT / "docs" / "rest-differences.md"

STEPS = re.compile(r"\b(s[fl]-\d\d): (\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*)")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.shared,
    pytest.mark.skipif(not RECORDINGS.is_dir(), reason="no recordings beside the project"),
]


@cache
def listed() -> dict[str, set[int]]:
    """Steps that differ on purpose, by conversation."""
    steps: dict[str, set[int]] = {}
    for conversation, ranges in STEPS.findall(DIFFERENCES.read_text()):
        for first, _, last in (part.partition("-") for part in ranges.split(", ")):
            steps.setdefault(conversation, set()).update(range(int(first), int(last or first) + 1))
    return steps


@pytest.mark.parametrize(
    "path", sampled(sorted(RECORDINGS.glob("*.jsonl"))), ids=lambda path: path.stem
)
def test_a_conversation_goes_as_recorded_but_for_what_is_listed(
    path: Path, processes: Processes
) -> None:
    head, steps = read_conversation(path)
    mode = ["--stateful"] if head["mode"] == "stateful" else []
    with copied(processes, *mode) as server, server.client() as client:
        differences = {step: what for step, what in replayed(client, steps) if what}

    on_purpose = listed().get(path.stem[:5], set())
    assert {step: differences[step] for step in differences.keys() - on_purpose} == {}
    assert on_purpose - differences.keys() == set()
    _listening, *complaints = server.log.read_text().splitlines()
    assert complaints == []


def test_all_recordings_are_there() -> None:
    assert len(list(RECORDINGS.glob("*.jsonl"))) == 31
