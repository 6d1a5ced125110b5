"""Which tests are given to the same worker, and when."""

import pytest

from tests.workers import group_of, places

CRDS = "tests/cluster/test_model_booster_crds.py"
OVERLAYS = "tests/cluster/deployment/test_deployment.py"


@pytest.mark.parametrize(
    ("test", "group"),
    [
        ("tests/unit/test_a.py::TestB::test_c[d::e]", "tests/unit/test_a.py"),
        ("tests/cluster/test_a.py::test_b[c]", "tests/cluster/test_a.py::test_b[c]"),
        ("tests/cluster/deployment/test_a.py::test_b", "tests/cluster/deployment"),
        (f"{OVERLAYS}::test_a[b]", OVERLAYS),
        ("tests/cluster/deployment/test_rbac.py::test_a[b]", OVERLAYS),
        ("tests/cluster/deployment/test_image.py::test_a", OVERLAYS),
        (f"{CRDS}::TestRecordings::test_a", CRDS),
    ],
)
def test_tests_that_share_what_takes_long_to_make_stay_together(test: str, group: str) -> None:
    assert group_of(test) == group


def test_what_takes_long_begins_first_and_small_files_fill_the_end() -> None:
    slow = {
        "tests/unit/test_small.py::test_a": False,
        "tests/unit/test_large.py::test_a": False,
        "tests/unit/test_large.py::test_b": False,
        "tests/unit/test_slow.py::test_a": False,
        "tests/unit/test_slow.py::test_b": True,
        "tests/prometheus/test_a.py::test_b": False,
        "tests/cluster/test_a.py::test_b": False,
        "tests/cluster/test_a.py::test_c": True,
        "tests/cluster/deployment/test_a.py::test_b": False,
        f"{OVERLAYS}::test_a": False,
        f"{OVERLAYS}::test_b": False,
    }

    place = places(slow)

    groups = dict.fromkeys(map(group_of, sorted(slow, key=place.__getitem__)))
    assert list(groups) == [
        OVERLAYS,
        "tests/cluster/deployment",
        "tests/unit/test_slow.py",
        "tests/prometheus/test_a.py",
        "tests/cluster/test_a.py::test_c",
        "tests/cluster/test_a.py::test_b",
        "tests/unit/test_large.py",
        "tests/unit/test_small.py",
    ]
