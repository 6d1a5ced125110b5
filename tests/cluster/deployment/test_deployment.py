"""Each overlay on a real API server; in a life, its pods run as the image runs them."""

import pytest

from tests.cluster.scene import condition
from tests.deployment.lives import LASTING, LIVES, RUNS, Deployed
from tests.deployment.rendering import OVERLAYS, Manifest
from tests.tiers import extended

UNSERVED = {"unknown-model", "unattainable-slo", "no-capacity"}
"""Of the sample `troubles`."""

lived = pytest.mark.parametrize("deployed", extended(*LIVES), indirect=True)
ran = pytest.mark.parametrize("deployed", extended(*RUNS), indirect=True)


def test_there_is_a_life_or_a_run_for_each_overlay() -> None:
    assert sorted([*LIVES, *RUNS]) == sorted(folder.name for folder in OVERLAYS.iterdir())


def test_it_applies_without_a_warning(deployed: Deployed) -> None:
    assert not deployed.warnings


def test_its_pods_may_run_where_none_has_privileges(deployed: Deployed) -> None:
    assert deployed.refusals
    assert not any(deployed.refusals.values())


def test_every_server_of_the_samples_is_decided_upon(deployed: Deployed) -> None:
    servers = {name: s for servers in deployed.servers.values() for name, s in servers.items()}

    verdicts = {name: condition(server, "Allocated") for name, server in servers.items()}

    assert len(verdicts) >= 2
    assert {name for name, verdict in verdicts.items() if verdict["status"] != "True"} <= UNSERVED


def test_finalizers_that_other_ways_to_run_left_are_gone(deployed: Deployed) -> None:
    left = [names for objects in deployed.finalizers.values() for names in objects.values()]

    assert left
    assert not any(left)


@lived
def test_one_of_two_pods_leads(deployed: Deployed) -> None:
    assert deployed.life is not None
    assert deployed.life.leaders == 1


@lived
def test_objects_survive_when_it_is_applied_again(deployed: Deployed) -> None:
    assert deployed.life is not None
    assert deployed.life.survived


@ran
def test_definitions_are_those_of_a_life_so_that_objects_survive_here_too(
    deployed: Deployed, rendered_lives: dict[str, list[Manifest]]
) -> None:
    for manifests in rendered_lives.values():
        assert lasting(deployed.manifests) == lasting(manifests)


def lasting(manifests: list[Manifest]) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in LASTING]


def test_nothing_is_left_behind(deployed: Deployed) -> None:
    assert not deployed.left_behind
