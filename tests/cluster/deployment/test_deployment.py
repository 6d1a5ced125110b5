"""Each overlay on a real API server, its pods run as the image runs them."""

from typing import TYPE_CHECKING

from tests.cluster.scene import condition

if TYPE_CHECKING:
    from tests.cluster.deployment.conftest import Deployed

UNSERVED = {"unknown-model", "unattainable-slo", "no-capacity"}
"""Of the sample `troubles`."""


def test_it_applies_without_a_warning(deployed: "Deployed") -> None:
    assert not deployed.warnings


def test_its_pods_may_run_where_none_has_privileges(deployed: "Deployed") -> None:
    assert deployed.refusals
    assert not any(deployed.refusals.values())


def test_every_server_of_the_samples_is_decided_upon(deployed: "Deployed") -> None:
    servers = {name: s for servers in deployed.servers.values() for name, s in servers.items()}

    verdicts = {name: condition(server, "Allocated") for name, server in servers.items()}

    assert len(verdicts) >= 2
    assert {name for name, verdict in verdicts.items() if verdict["status"] != "True"} <= UNSERVED


def test_one_of_two_pods_leads(deployed: "Deployed") -> None:
    assert deployed.leaders == 1


def test_finalizers_that_other_ways_to_run_left_are_gone(deployed: "Deployed") -> None:
    left = [names for objects in deployed.finalizers.values() for names in objects.values()]

    assert left
    assert not any(left)


def test_objects_survive_when_it_is_applied_again(deployed: "Deployed") -> None:
    assert deployed.survived


def test_nothing_is_left_behind(deployed: "Deployed") -> None:
    assert not deployed.left_behind
