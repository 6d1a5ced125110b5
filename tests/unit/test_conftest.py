"""What a failed test shows of its operators."""

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
from tests.conftest import operator, pytest_runtest_makereport
"""

LAST_TEST = """
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.controlplane.processes import Processes


@pytest.fixture(scope="session")
def control_plane():
    with Processes() as processes:
        yield SimpleNamespace(processes=processes, kubeconfig=Path("missing"))


@pytest.fixture
def namespace(control_plane):
    yield "n"
    raise RuntimeError("the namespace stays")


def test_last(operator):
    operator(environment={"INFERNO_MEASURE_INTERVAL": "often"})
"""


def test_a_last_test_whose_end_fails_too_shows_both_failures_and_the_log_in_each(
    pytester: pytest.Pytester,
) -> None:
    """The folder of the logs goes with the session, before the end of the test is reported."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(LAST_TEST)

    result = pytester.runpytest_inprocess("-p", "no:asyncio")

    result.assert_outcomes(failed=1, errors=1)
    text = result.stdout.str()
    assert "the operator ended with status" in text
    assert "RuntimeError: the namespace stays" in text
    assert text.count("log of operator-n-1") == text.count("INFERNO_MEASURE_INTERVAL: ") == 2
