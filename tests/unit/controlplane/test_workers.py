"""Which tests are given to the same worker, and when."""

import pytest

from tests.workers import Length, group_of, next_group, places, waits

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
    lengths = {
        "tests/unit/test_small.py::test_a": Length.SHORT,
        "tests/unit/test_large.py::test_a": Length.SHORT,
        "tests/unit/test_large.py::test_b": Length.SHORT,
        "tests/unit/test_slow.py::test_a": Length.SHORT,
        "tests/unit/test_slow.py::test_b": Length.SLOW,
        "tests/unit/test_longest.py::test_a": Length.SHORT,
        "tests/unit/test_longest.py::test_b": Length.MINUTES,
        "tests/prometheus/test_a.py::test_b": Length.SHORT,
        "tests/cluster/test_a.py::test_b": Length.SHORT,
        "tests/cluster/test_a.py::test_c": Length.SLOW,
        "tests/cluster/test_a.py::test_d": Length.MINUTES,
        "tests/cluster/deployment/test_a.py::test_b": Length.SHORT,
        f"{OVERLAYS}::test_a": Length.SHORT,
        f"{OVERLAYS}::test_b": Length.SHORT,
    }

    place = places(lengths)

    groups = list(dict.fromkeys(map(group_of, sorted(lengths, key=place.__getitem__))))
    assert [group for group in groups if waits(group)] == [
        OVERLAYS,
        "tests/cluster/deployment",
        "tests/cluster/test_a.py::test_d",
        "tests/prometheus/test_a.py",
        "tests/cluster/test_a.py::test_c",
        "tests/cluster/test_a.py::test_b",
    ]
    assert [group for group in groups if not waits(group)] == [
        "tests/unit/test_longest.py",
        "tests/unit/test_slow.py",
        "tests/unit/test_large.py",
        "tests/unit/test_small.py",
    ]


def test_every_second_worker_computes_beside_those_that_wait_and_all_help_at_the_end() -> None:
    left = [OVERLAYS, CRDS, "tests/unit/test_a.py", "tests/docs/test_b.py"]

    begun = []
    for worker in (0, 1, 2, 3):
        begun.append(next_group(left, worker))
        left.remove(begun[-1])

    assert begun == [OVERLAYS, "tests/unit/test_a.py", CRDS, "tests/docs/test_b.py"]
    assert next_group([CRDS], 1) == CRDS
    assert next_group(["tests/unit/test_a.py"], 2) == "tests/unit/test_a.py"
