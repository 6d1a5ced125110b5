"""What the API server is asked for each Server, so that it does not become more."""

import json
from collections import Counter

import pytest

from inferno_operator.runtime.ports import FieldManager
from tests.cluster.scene import Manifest, Scene, condition, many_servers
from tests.conftest import StartOperator
from tests.controlplane.deployments import deployment
from tests.controlplane.waiting import wait_until

pytestmark = pytest.mark.usefixtures("crds_installed")

SERVERS = 50
ACCELERATORS = ("A100", "G2")
ROOM = {"spec": {"count": [{"type": name, "count": 999} for name in ACCELERATORS]}}

Requests = Counter[tuple[str, str, str]]


def test_a_decision_is_two_writes_of_each_server_and_none_if_nothing_changes(
    scene: Scene, operator: StartOperator
) -> None:
    scene.apply_sample("small")
    scene.apply(*many_servers(SERVERS))
    operator()
    count = len(scene.servers())

    first, again = requests_to_optimize(scene), requests_to_optimize(scene)

    # The API server counts an apply as such only if its content type names no character set.
    assert first == {("PATCH", "servers", "200"): count, ("PATCH", "servers/status", "200"): count}
    assert again == {}


@pytest.mark.extended
def test_replicas_of_workloads_are_two_writes_more(scene: Scene, operator: StartOperator) -> None:
    scene.apply_sample("small")
    scene.patch("capacity", "capacity", ROOM)
    servers = many_servers(SERVERS)
    for server in servers:
        deploy(scene, server)
    scene.apply(*servers)
    before = scene.control_plane.requests()
    operator()
    wait_until_actuated(scene, "Held")
    looked = scene.control_plane.requests() - before

    asked = requests_to_optimize(scene, "Moving")

    assert looked["GET", "deployments/scale", "200"] == 0  # the watch tells it
    assert asked["PATCH", "deployments/scale", "200"] == SERVERS
    assert 4 * SERVERS <= asked.total() < 5 * SERVERS  # two Servers have no workloads


def test_the_owner_of_a_decision_is_kept_in_one_entry(
    scene: Scene, operator: StartOperator
) -> None:
    scene.apply_sample("small")
    operator()

    requests_to_optimize(scene)

    for fields in owned_fields(scene):
        conditions = fields["f:status"]["f:conditions"]
        assert fields["f:spec"] == {"f:desiredAlloc": {}}
        assert list(conditions.values()) == [{}, {}]  # Allocated and Ready


def owned_fields(scene: Scene) -> list[Manifest]:
    """Return the fields that the operator owns of each Server, in the terms of `managedFields`."""
    command = ("get", "servers", "--namespace", scene.namespace, "--output=json")
    servers = json.loads(scene.control_plane.kubectl(*command, "--show-managed-fields").stdout)
    return [
        {
            part: fields
            for entry in server["metadata"]["managedFields"]
            if entry["manager"] == FieldManager.DECISIONS
            for part, fields in entry["fieldsV1"].items()
        }
        for server in servers["items"]
    ]


def deploy(scene: Scene, server: Manifest) -> None:
    """Create a Deployment on each accelerator for a Server, and name them in it."""
    name = server["metadata"]["name"]
    places = {accelerator: f"{name}-{accelerator.lower()}" for accelerator in ACCELERATORS}
    scene.control_plane.api.create(map(deployment, places.values()), scene.namespace)
    server["spec"]["workloads"] = [
        {"accelerator": accelerator, "name": name} for accelerator, name in places.items()
    ]


def wait_until_actuated(scene: Scene, reason: str) -> None:
    """Wait until all Servers with workloads have this reason in the condition Actuated."""

    def reasons() -> list[str]:
        told = (condition(server, "Actuated") for server in scene.servers().values())
        return [found["reason"] for found in told if found]

    wait_until(reasons, lambda told: told == [reason] * SERVERS, f"all {reason}")


def requests_to_optimize(scene: Scene, actuated: str = "") -> Requests:
    """Return the requests about single Servers and Deployments until all is written."""
    before = scene.control_plane.requests()
    scene.request("inferno")
    scene.wait_until_done("inferno")
    if actuated:
        wait_until_actuated(scene, actuated)
    asked = scene.control_plane.requests() - before
    return Counter(
        {
            (verb, resource, code): count
            for (verb, resource, code), count in asked.items()
            if resource.startswith(("servers", "deployments")) and verb not in ("LIST", "WATCH")
        }
    )
