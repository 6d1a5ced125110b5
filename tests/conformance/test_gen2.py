"""Second generation answers: those of the reference optimizer v0.6.0.

A few servers of the project's own are always compared; the full recordings lie beside the
project and are replayed where they are.
"""

import pytest

from inferno_optimizer.system import PrefillDecodeParameters
from tests.conformance.later import SHARED, Recorded, compare, read_facts, read_recordings

RECORDINGS = read_recordings("gen2")


@pytest.mark.parametrize("recorded", read_facts("gen2", PrefillDecodeParameters))
def test_a_known_server_gets_the_known_answer(recorded: Recorded) -> None:
    compare(recorded)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no recordings beside the project")
@pytest.mark.parametrize("recorded", RECORDINGS)
def test_a_recording_is_answered_in_the_same_way(recorded: Recorded) -> None:
    compare(recorded)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no recordings beside the project")
def test_all_recordings_are_there() -> None:
    assert len(RECORDINGS) == 60
