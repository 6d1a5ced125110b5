"""When the controller runs, and when it may write."""

import pytest

from inferno_operator.adapters.http.metrics import Metrics
from inferno_operator.controllers.boosters.fakes import FakeBoosters
from inferno_operator.controllers.boosters.guard import GuardedBoosters
from inferno_operator.resources.dialects import DIALECTS, KTHENA
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.fakes import FakeCluster
from inferno_operator.runtime.leader_election import LeadershipLostError
from inferno_operator.runtime.write_guard import GuardedCluster
from inferno_operator.settings import Settings
from inferno_optimizer.errors import InputError
from tests.unit.operator.controllers.boosters.making import manifest


def guarded(cluster: FakeBoosters, seconds: float) -> GuardedBoosters:
    guard = GuardedCluster(FakeCluster(), lambda: seconds, Metrics(), lambda: 0.0)
    return GuardedBoosters(cluster, guard)


@pytest.mark.parametrize("value", [None, "", "off"])
def test_the_controller_is_off_unless_asked_for(value: str | None) -> None:
    environment = {} if value is None else {"INFERNO_MODEL_BOOSTER": value}

    assert Settings.from_environment(environment).model_booster is None


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_is_asked_for_by_name(name: str) -> None:
    settings = Settings.from_environment({"INFERNO_MODEL_BOOSTER": name})

    assert settings.model_booster == DIALECTS[name]


def test_an_unknown_dialect_is_named() -> None:
    with pytest.raises(InputError, match="INFERNO_MODEL_BOOSTER: 'other' is none of off, kthena"):
        Settings.from_environment({"INFERNO_MODEL_BOOSTER": "other"})


async def test_who_does_not_lead_writes_nothing() -> None:
    cluster = FakeBoosters()
    follower = guarded(cluster, 0.0)

    with pytest.raises(LeadershipLostError):
        await follower.apply(KTHENA.booster, manifest())
    with pytest.raises(LeadershipLostError):
        await follower.delete(KTHENA.booster, Key("ns", "m"), "uid")
    assert cluster.writes == []


async def test_who_leads_writes() -> None:
    cluster = FakeBoosters()

    await guarded(cluster, 10.0).apply(KTHENA.booster, manifest())

    assert cluster.writes == ["apply ModelBooster m"]
