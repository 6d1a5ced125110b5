"""Which tests are given to the same worker."""

import pytest

from tests.workers import group_of

CRDS = "tests/cluster/test_model_booster_crds.py"


@pytest.mark.parametrize(
    ("test", "group"),
    [
        ("tests/unit/test_a.py::TestB::test_c[d::e]", "tests/unit/test_a.py"),
        ("tests/cluster/test_a.py::test_b[c]", "tests/cluster/test_a.py::test_b[c]"),
        ("tests/cluster/deployment/test_a.py::test_b", "tests/cluster/deployment"),
        (f"{CRDS}::TestRecordings::test_a", CRDS),
    ],
)
def test_tests_that_share_what_takes_long_to_make_stay_together(test: str, group: str) -> None:
    assert group_of(test) == group
