"""Which tests run on the same worker, those that share what takes long to make, and when."""

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling

CLUSTER = PurePath("tests/cluster")
DEPLOYMENT = CLUSTER / "deployment"
PROMETHEUS = PurePath("tests/prometheus")
TOGETHER = (
    tuple(DEPLOYMENT / f"test_{name}.py" for name in ("deployment", "image", "monitoring", "rbac")),
    (DEPLOYMENT,),
    (CLUSTER / "test_autoscalers.py",),
    (CLUSTER / "test_decisions.py",),
    (CLUSTER / "test_kthena_releases.py",),
    (CLUSTER / "test_measurement.py",),
    (CLUSTER / "test_model_booster_crds.py",),
)
"""Tests of a cluster that share more than its control plane: a second one, a Prometheus, answers.

The first group that has a test is its own, and has the name of its first path. What takes an
image is with the overlays, so that one worker makes it; the other deployments need none.
"""


class Turn(IntEnum):
    """When a group is given to a worker: the longest first, so that all workers end together.

    What computes all the time comes early, beside the deployments, which wait a lot. A test with a
    real Prometheus waits too, and one of them may be all that there is in its file.
    """

    DEPLOYMENT = 0
    SLOW = 1
    SLOW_ON_CLUSTER = 2
    ON_CLUSTER = 3
    OTHERS = 4


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives a worker a group of tests at a time, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # it would give the groups with most tests first

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """Name of the group that a test belongs to; its own where it may run anywhere.

    A file is a group, for its tests share fixtures and what they have computed.
    """
    return _group_of_file(_file(nodeid)) or nodeid


@cache  # there are thousands of tests in hundreds of files, and each worker sorts all of them
def _group_of_file(file: str) -> str | None:
    """The group of all tests of a file; None where each is its own."""
    path = PurePath(file)
    for group in TOGETHER:
        if any(path.is_relative_to(member) for member in group):
            return str(group[0])
    return None if path.is_relative_to(CLUSTER) else file


def places(slow: Mapping[str, bool]) -> dict[str, tuple[int, int]]:
    """Keys that sort tests in the order in which workers begin their groups.

    Groups whose turn is the same come by their number of tests, the largest first. A group begins
    with its slow tests.

    Parameters
    ----------
    slow
        Whether a test is slow, by its name.
    """
    sizes = Counter(map(group_of, slow))
    return {
        test: (turn_of(test, slow=is_slow), -sizes[group_of(test)])
        for test, is_slow in slow.items()
    }


def turn_of(nodeid: str, *, slow: bool) -> Turn:
    """When the group of a test is to begin because of this test."""
    return _turn_of_file(_file(nodeid), slow=slow)


@cache
def _turn_of_file(file: str, *, slow: bool) -> Turn:
    path = PurePath(file)
    if path.is_relative_to(DEPLOYMENT):
        return Turn.DEPLOYMENT
    if path.is_relative_to(CLUSTER):
        return Turn.SLOW_ON_CLUSTER if slow else Turn.ON_CLUSTER
    return Turn.SLOW if slow or path.is_relative_to(PROMETHEUS) else Turn.OTHERS


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
