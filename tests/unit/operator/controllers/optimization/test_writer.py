"""Writes of decisions: at the version that was read, and repeated only while this one leads."""

import pytest

from inferno_operator.controllers.optimization.writer import apply_fields
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, Reference, kind_of
from inferno_operator.runtime.fakes import FakeCluster
from inferno_operator.runtime.leader_election import LeadershipLostError
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.write_guard import GuardedCluster
from tests.unit.operator.objects import server

SERVER = kind_of(Server)
DESIRED = {"desiredAlloc": {"accelerator": "A", "numReplicas": 2}}


class Scene:
    """A Server that changed after it was read, and the seconds for which we may write."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.allowed = [60.0]
        self.guarded = GuardedCluster(self.cluster, self._remaining, Observer(), lambda: 0.0)
        key = self.cluster.add(server())
        self.reference = Reference.of(SERVER, self.cluster.objects["Server", key])
        self.cluster.add({**server(), "metadata": {**server()["metadata"], "labels": {"a": "b"}}})

    def _remaining(self) -> float:
        return self.allowed.pop(0) if len(self.allowed) > 1 else self.allowed[0]

    def desired(self) -> object:
        stored = self.cluster.objects["Server", Key("default", "s")]
        return stored["spec"].get("desiredAlloc")


async def test_a_write_of_an_old_version_is_repeated_with_the_newest() -> None:
    scene = Scene()

    await apply_fields(scene.guarded, scene.reference, spec=DESIRED)

    assert scene.desired() == DESIRED["desiredAlloc"]


async def test_a_write_that_is_sent_after_another_operator_leads_changes_nothing() -> None:
    scene = Scene()
    scene.allowed = [60.0, 60.0, 0.0]  # allowed when it is sent, but not when it is repeated

    with pytest.raises(LeadershipLostError):
        await apply_fields(scene.guarded, scene.reference, spec=DESIRED)

    assert scene.desired() is None
