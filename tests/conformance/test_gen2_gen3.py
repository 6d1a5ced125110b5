"""Answers of the second and the third generation: optimizer v0.6.0 and optimizer-light 0.7.8.

A few servers of the project's own are always compared; the full recordings lie beside the
project and are replayed where they are.
"""

import pytest

from inferno_optimizer.system import PrefillDecodeParameters, TokenBudgetParameters
from tests.conformance.later import (
    SHARED,
    Recorded,
    assert_same_answer,
    read_facts,
    read_recordings,
)

FACTS = [
    *read_facts("gen2", PrefillDecodeParameters),
    *read_facts("gen3", TokenBudgetParameters),
]
RECORDINGS = {generation: read_recordings(generation) for generation in ("gen2", "gen3")}


@pytest.mark.parametrize("recorded", FACTS)
def test_a_known_server_gets_the_known_answer(recorded: Recorded) -> None:
    assert_same_answer(recorded)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no recordings beside the project")
@pytest.mark.parametrize("recorded", [*RECORDINGS["gen2"], *RECORDINGS["gen3"]])
def test_a_recording_is_answered_in_the_same_way(recorded: Recorded) -> None:
    assert_same_answer(recorded)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no recordings beside the project")
@pytest.mark.parametrize("generation", RECORDINGS)
def test_all_recordings_are_there(generation: str) -> None:
    assert len(RECORDINGS[generation]) == 60
