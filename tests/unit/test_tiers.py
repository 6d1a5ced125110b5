"""Each test belongs to one of two commands, and CI runs both."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.conftest import ROOT
from tests.examples import load_profile, several
from tests.tiers import sampled


@pytest.fixture
def _profile_afterwards() -> Iterator[None]:
    """What a test loads is not what others take."""
    name = settings.get_current_profile_name()
    yield
    settings.load_profile(name)


def test_each_eighth_of_many_values_stays_in_make_test() -> None:
    values = sampled("abcdefghijklmnop")

    assert [value for value in values if isinstance(value, str)] == ["a", "i"]
    assert len(values) == 16


@pytest.mark.usefixtures("_profile_afterwards")
@pytest.mark.parametrize(
    ("profile", "asked", "usual"), [("tests", 5, 12), ("extended", 40, 100), ("soak", 800, 2000)]
)
def test_make_test_tries_an_eighth_of_the_examples_of_a_property(
    profile: str, asked: int, usual: int
) -> None:
    load_profile(profile)

    assert several(40).max_examples == asked
    assert settings().max_examples == usual
    assert settings().deadline is several(40).deadline is None


def test_ci_runs_two_commands_that_have_all_tests_between_them() -> None:
    makefile = (ROOT / "Makefile").read_text()

    chosen = {
        name: re.findall(
            rf"^{name}: (?:.*\n\t)*?\$\(PYTEST\) -m (.*) --durations", makefile, re.MULTILINE
        )
        for name in ("test", "extended-test")
    }

    assert chosen == {
        "test": ['"not extended"'],
        "extended-test": ['"extended or hypothesis" --all-examples'],
    }
    assert {f"make {name}" for name in chosen} <= set((ROOT / ".ci/run").read_text().splitlines())
