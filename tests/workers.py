"""Which tests run on the same worker, those that share what takes long to make, and when."""

from collections import Counter
from collections.abc import Iterable, Mapping
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


class Length(IntEnum):
    """How long a test takes, as its marks say."""

    MINUTES = 0
    SLOW = 1
    SHORT = 2


class Turn(IntEnum):
    """When a group is given to a worker: the longest first, so that all workers end together."""

    DEPLOYMENT = 0
    MINUTES = 1
    SLOW = 2
    OTHERS = 3


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives a worker a group of tests at a time, in the order in which they were collected.

    One half of the workers begins with groups that wait most of the time, the other half with
    those that compute, so that at each moment there is something to compute beside what waits.
    """

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # it would give the groups with most tests first

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        first = next_group(self.workqueue, self.nodes.index(node))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def next_group(groups: Iterable[str], worker: int) -> str:
    """The group that a worker is to begin with.

    Parameters
    ----------
    groups
        Those that nobody has begun, in order; at least one.
    worker
        Its number among the workers. Even ones take what waits as long as there is any.
    """
    left = list(groups)
    waiting = worker % 2 == 0
    return next((group for group in left if waits(group) == waiting), left[0])


def waits(group: str) -> bool:
    """Whether the tests of a group wait most of the time, for a control plane or a Prometheus."""
    path = PurePath(_file(group))
    return path.is_relative_to(CLUSTER) or path.is_relative_to(PROMETHEUS)


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


def places(lengths: Mapping[str, Length]) -> dict[str, tuple[int, int]]:
    """Keys that sort tests in the order in which workers begin their groups.

    Groups whose turn is the same come by their number of tests, the largest first. A group begins
    with its longest tests.

    Parameters
    ----------
    lengths
        How long each test takes, by its name.
    """
    sizes = Counter(map(group_of, lengths))
    return {
        test: (turn_of(test, length), -sizes[group_of(test)]) for test, length in lengths.items()
    }


def turn_of(nodeid: str, length: Length) -> Turn:
    """When the group of a test is to begin because of this test."""
    return _turn_of_file(_file(nodeid), length)


@cache
def _turn_of_file(file: str, length: Length) -> Turn:
    path = PurePath(file)
    if path.is_relative_to(DEPLOYMENT):
        return Turn.DEPLOYMENT
    if length is Length.MINUTES:
        return Turn.MINUTES
    slow = length is Length.SLOW or path.is_relative_to(PROMETHEUS)
    return Turn.SLOW if slow else Turn.OTHERS


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
