"""Which tests run on the same worker: those that share what takes long to make."""

from pathlib import PurePath

from xdist.scheduler import LoadScopeScheduling

CLUSTER = PurePath("tests/cluster")
TOGETHER = (CLUSTER / "deployment", CLUSTER / "test_model_booster_crds.py")
"""Tests of a cluster that share a second control plane; others share no more than the first."""


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives a worker a group of tests at a time, the largest groups first."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """Name of the group that a test belongs to; its own where it may run anywhere.

    A file is a group, for its tests share fixtures and what they have computed.
    """
    path = PurePath(nodeid.partition("::")[0])
    for group in TOGETHER:
        if path.is_relative_to(group):
            return str(group)
    return nodeid if path.is_relative_to(CLUSTER) else str(path)
