"""Each test belongs to one of two commands, and CI runs both."""

import re

from tests.conftest import ROOT
from tests.tiers import sampled


def test_each_fourth_of_many_values_stays_in_make_test() -> None:
    values = sampled("abcdefgh")

    assert [value for value in values if isinstance(value, str)] == ["a", "e"]
    assert len(values) == 8


def test_ci_runs_two_commands_that_have_all_tests_between_them() -> None:
    makefile = (ROOT / "Makefile").read_text()

    chosen = {
        name: re.findall(
            rf"^{name}: (?:.*\n\t)*?\$\(PYTEST\) -m (.*) --durations", makefile, re.MULTILINE
        )
        for name in ("test", "extended-test")
    }

    assert chosen == {"test": ['"not extended"'], "extended-test": ["extended"]}
    assert {f"make {name}" for name in chosen} <= set((ROOT / ".ci/run").read_text().splitlines())
