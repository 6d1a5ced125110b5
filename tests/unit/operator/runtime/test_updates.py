"""Updates are written at the version that was read, and repeated only while this one leads."""

import pytest

from inferno_operator.resources import Server
from inferno_operator.resources.objects import Event, Key, Reference, kind_of
from inferno_operator.runtime.leader_election import LeadershipLostError
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import FieldManager
from inferno_operator.runtime.updates import CONCURRENT_WRITES, FieldUpdate, Writer
from inferno_operator.runtime.write_guard import GuardedCluster
from inferno_optimizer.errors import UnavailableError
from tests.fakes import FakeCluster
from tests.unit.operator.objects import NOW, server

SERVER = kind_of(Server)
DESIRED = {"desiredAlloc": {"accelerator": "A", "numReplicas": 2}}


class Scene:
    """A Server that changed after it was read, and the seconds for which we may write."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.allowed = [60.0]
        guarded = GuardedCluster(self.cluster, self._remaining, Observer(), lambda: 0.0)
        self.writer = Writer(guarded, FieldManager.DECISIONS, lambda: NOW)
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

    await scene.writer.apply(scene.reference, spec=DESIRED)

    assert scene.desired() == DESIRED["desiredAlloc"]


async def test_a_write_that_is_sent_after_another_operator_leads_changes_nothing() -> None:
    scene = Scene()
    scene.allowed = [60.0, 60.0, 0.0]  # allowed when it is sent, but not when it is repeated

    with pytest.raises(LeadershipLostError):
        await scene.writer.apply(scene.reference, spec=DESIRED)

    assert scene.desired() is None


async def test_the_spec_is_written_first_and_events_last() -> None:
    scene = Scene()
    event = Event(scene.reference, "Normal", "Measured", "as told")
    update = FieldUpdate(scene.reference, {"active": True}, DESIRED, (event,))

    written = await scene.writer.write(update)

    assert scene.cluster.writes == ["apply Server s", "status Server s"]
    assert scene.cluster.events == [event]
    assert written is not None
    assert written["status"]["active"] is True


@pytest.mark.parametrize("recreated", [False, True], ids=["deleted", "of another uid"])
async def test_an_object_that_is_gone_does_not_keep_others_from_being_written(
    recreated: bool,
) -> None:
    scene = Scene()
    other = scene.cluster.add(server("T"))
    reference = Reference.of(SERVER, scene.cluster.objects["Server", other])
    scene.cluster.remove(SERVER, scene.reference.key)
    if recreated:
        scene.cluster.add({**server(), "metadata": {**server()["metadata"], "uid": "another"}})
    updates = [FieldUpdate(each, {"active": True}) for each in (scene.reference, reference)]

    await scene.writer.write_all(updates)

    assert scene.cluster.writes == ["status Server t"]


async def test_the_first_failure_is_raised_after_all_are_tried() -> None:
    scene = Scene()
    keys = [scene.cluster.add(server(f"S{number}")) for number in range(CONCURRENT_WRITES + 1)]
    references = [Reference.of(SERVER, scene.cluster.objects["Server", key]) for key in keys]
    scene.cluster.failures = [UnavailableError("away")]

    with pytest.raises(UnavailableError, match="away"):
        await scene.writer.write_all(FieldUpdate(each, {"active": True}) for each in references)

    assert len(scene.cluster.writes) == CONCURRENT_WRITES


async def test_specs_are_written_before_statuses_and_no_status_after_a_spec_that_failed() -> None:
    scene = Scene()
    names = [f"s{number}" for number in range(2 * CONCURRENT_WRITES)]
    keys = [scene.cluster.add(server(name)) for name in names]
    references = [Reference.of(SERVER, scene.cluster.objects["Server", key]) for key in keys]
    scene.cluster.failures = [UnavailableError("away")]

    with pytest.raises(UnavailableError, match="away"):
        await scene.writer.write_all(
            FieldUpdate(each, {"active": True}, DESIRED) for each in references
        )

    assert scene.cluster.writes == [
        f"{part} Server {name}" for part in ("apply", "status") for name in names[1:]
    ]
