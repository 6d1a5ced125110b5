"""Two operators, one works: killed, paused, cut off or asked to end, in the middle of a run."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.scene import objects_of_sample
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.waiting import wait_until
from tests.tiers import extended

Manifest = dict[str, Any]

ELECTION = {"INFERNO_LEADER_ELECTION": "true"}
ASK = {"spec": {"optimize": True}}
SERVERS = 200
OF_THE_SAMPLE = 2
IN_THE_MIDDLE = 30
"""Changes of Servers after which a run is disturbed."""


IN_FLIGHT = timedelta(seconds=2)
"""What had been sent to the API server is written still, though its sender is dead."""

pytestmark = pytest.mark.usefixtures("crds_installed")


class Scene:
    """A namespace with many Servers, and what is seen of it."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.control_plane = control_plane
        self.namespace = namespace
        control_plane.api.apply(objects_of_sample("small"), namespace)

    def apply_servers(self, arrival_rate: int) -> None:
        items = [server(f"server-{i:03}", arrival_rate + i) for i in range(SERVERS)]
        self.control_plane.api.apply(items, self.namespace)

    def request(self) -> None:
        self.control_plane.patch("optimizer", "inferno", ASK, self.namespace)

    def request_and_wait_for_the_middle(self, leader: str) -> None:
        """Ask for an optimization; return while results are written, one of which has an event."""
        with self._watching_servers() as lines:
            for _ in range(SERVERS + OF_THE_SAMPLE):  # what is there
                next(lines)
            self.request()
            for _ in range(IN_THE_MIDDLE):
                next(lines)
        wait_until(self.events, lambda told: leader in told, "a decision that is told")

    def wait_until_done(self) -> None:
        def done(optimizer: Manifest) -> bool:
            return not optimizer["spec"]["optimize"] and optimizer["status"]["done"]

        self.control_plane.wait_for("optimizer", "inferno", done, self.namespace)

    def wait_for_reason(self, reason: str) -> None:
        def told(optimizer: Manifest) -> bool:
            conditions = optimizer.get("status", {}).get("conditions", [])
            return any(condition["reason"] == reason for condition in conditions)

        self.control_plane.wait_for("optimizer", "inferno", told, self.namespace)

    def servers(self) -> list[Manifest]:
        """All of them, with who wrote on them."""
        arguments = ("get", "servers", "--output", "json", "--show-managed-fields")
        shown = self.control_plane.kubectl(*arguments, "--namespace", self.namespace).stdout
        items: list[Manifest] = json.loads(shown)["items"]
        return items

    def versions(self) -> dict[str, str]:
        metadata = [server["metadata"] for server in self.servers()]
        return {item["name"]: item["resourceVersion"] for item in metadata}

    def unwritten(self) -> int:
        return sum("conditions" not in server.get("status", {}) for server in self.servers())

    def events(self) -> dict[str, list[datetime]]:
        """When each operator told of a decision, by its identity."""
        told: dict[str, list[datetime]] = {}
        for item in self.control_plane.items("events.events.k8s.io", self.namespace):
            told.setdefault(item["reportingInstance"], []).append(moment(item["eventTime"]))
        return told

    def lease(self) -> Manifest:
        spec: Manifest = self.control_plane.get("lease", "inferno-operator", self.namespace)["spec"]
        return spec

    def holder(self) -> str:
        return str(self.lease().get("holderIdentity", ""))

    @contextmanager
    def _watching_servers(self) -> Iterator[Iterator[str]]:
        """Lines of `kubectl get servers --watch`, one for each state of a Server."""
        command = [
            *(str(self.control_plane.kubectl_program), "get", "servers", "--watch"),
            *("--output", "name", "--namespace", self.namespace),
            *("--kubeconfig", str(self.control_plane.kubeconfig)),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield iter(process.stdout)
            process.terminate()


def server(name: str, arrival_rate: int) -> Manifest:
    load = {"arrivalRate": arrival_rate, "avgLength": 512}
    current = {"accelerator": "", "numReplicas": 0, "load": load}
    spec = {"name": name, "class": "Free", "model": "granite-13b", "currentAlloc": current}
    header = {"apiVersion": "inferno.platform.ai/v1alpha1", "kind": "Server"}
    return {**header, "metadata": {"name": name}, "spec": spec}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def second(time: datetime) -> datetime:
    """That in which it lies: managed fields tell no more."""
    return time.replace(microsecond=0)


def writes_of_ours(servers: list[Manifest]) -> list[datetime]:
    """When operators wrote on Servers last."""
    return [
        moment(entry["time"])
        for item in servers
        for entry in item["metadata"]["managedFields"]
        if entry["manager"] == "inferno-operator"
    ]


def series(process: OperatorProcess) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """What a scraper gets: values by name and labels."""
    page = httpx.get(f"{process.health_url}/metrics").raise_for_status().text
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def leads(process: OperatorProcess) -> float:
    return series(process)["inferno_leader"][frozenset()]


@pytest.fixture
def scene(control_plane: ControlPlane, namespace: str) -> Scene:
    return Scene(control_plane, namespace)


def send_to_a_leader_that_writes(
    number: signal.Signals, scene: Scene, operator: StartOperator
) -> tuple[OperatorProcess, str, datetime]:
    """Send a signal to the first of two operators, which leads; also its name, and when."""
    scene.apply_servers(10)
    first = operator(environment=ELECTION)
    leader = scene.holder()
    operator(environment=ELECTION)
    scene.request_and_wait_for_the_middle(leader)
    os.kill(first.pid, number)
    sent = datetime.now(UTC)
    assert 0 < scene.unwritten() < SERVERS
    return first, leader, sent


def test_the_leader_is_killed_and_the_other_one_finishes(
    scene: Scene, operator: StartOperator
) -> None:
    _, leader, killed = send_to_a_leader_that_writes(signal.SIGKILL, scene, operator)

    scene.wait_until_done()

    taken = moment(scene.lease()["acquireTime"])
    assert all(item["spec"]["desiredAlloc"]["numReplicas"] > 0 for item in scene.servers())
    told = scene.events()
    assert set(told) == {leader, scene.holder()}
    assert max(told[leader]) <= killed < taken <= min(told[scene.holder()])
    times = writes_of_ours(scene.servers())
    assert all(time <= killed + IN_FLIGHT or time >= second(taken) for time in times)
    assert min(times) <= killed < max(times)


@pytest.mark.extended
def test_a_leader_that_was_paused_writes_nothing_when_it_wakes_up(
    scene: Scene, operator: StartOperator
) -> None:
    first, leader, paused = send_to_a_leader_that_writes(signal.SIGSTOP, scene, operator)
    scene.apply_servers(500)  # what the first one has decided is wrong now
    scene.wait_until_done()
    before = scene.versions()

    os.kill(first.pid, signal.SIGCONT)
    code = wait_until(lambda: first.exit_code, lambda c: c is not None, "the first one ended")

    assert code == 1
    assert "this operator exits" in first.log.splitlines()[-1]
    assert scene.versions() == before
    assert max(scene.events()[leader]) <= paused


@pytest.mark.extended
def test_a_leader_that_loses_the_api_server_ends_and_says_why(
    scene: Scene, operator: StartOperator
) -> None:
    first = operator(environment=ELECTION)
    second_one = operator(environment=ELECTION)
    leader = scene.holder()
    scene.control_plane.stop_api_server()
    try:
        code = wait_until(lambda: first.exit_code, lambda c: c is not None, "the leader ended")
    finally:
        scene.control_plane.start_api_server()

    assert code == 1
    line = first.log.splitlines()[-1]
    assert line == "inferno: the lease was not renewed in time; this operator exits"
    wait_until(scene.holder, lambda h: h not in ("", leader), "the other one leads")
    scene.request()
    scene.wait_until_done()
    assert leads(second_one) == 1


@pytest.mark.parametrize(
    "working", [False, *extended(True)], ids=["idle", "in the middle of a run"]
)
def test_a_leader_that_is_asked_to_end_hands_over_at_once(
    scene: Scene, operator: StartOperator, working: bool
) -> None:
    if working:
        scene.apply_servers(10)
    first = operator(environment=ELECTION)
    leader = scene.holder()
    operator(environment=ELECTION)
    if working:
        scene.request_and_wait_for_the_middle(leader)
    renewed = moment(scene.lease()["renewTime"])

    os.kill(first.pid, signal.SIGTERM)
    wait_until(scene.holder, lambda h: h not in ("", leader), "the other one leads")
    lease = scene.lease()

    expiry = renewed + timedelta(seconds=lease["leaseDurationSeconds"])
    assert moment(lease["acquireTime"]) < expiry  # so nobody waited for it
    assert wait_until(lambda: first.exit_code, lambda c: c is not None, "an end") == 0
    assert "the lease is released" in first.log
    if not working:
        scene.request()
    scene.wait_until_done()
    if working:
        told, taken = scene.events(), moment(scene.lease()["acquireTime"])
        assert max(told[leader]) < taken <= min(told[scene.holder()])


def test_only_the_leader_works_and_both_are_ready(scene: Scene, operator: StartOperator) -> None:
    first, second_one = (operator(environment=ELECTION) for _ in range(2))
    scene.request()
    scene.wait_until_done()
    wait_until(lambda: "inferno_servers" in series(first), bool, "the leader tells what it did")

    assert (leads(first), leads(second_one)) == (1, 0)
    assert "inferno_servers" not in series(second_one)
    for process in (first, second_one):
        for probe in ("healthz", "readyz"):
            assert httpx.get(f"{process.health_url}/{probe}").text == "ok"


def test_what_an_optimization_brought_can_be_scraped_until_its_object_is_gone(
    scene: Scene, operator: StartOperator
) -> None:
    process = operator()
    scene.request()
    scene.wait_until_done()
    wait_until(lambda: "inferno_servers" in series(process), bool, "it is told")

    told = series(process)

    where = ("namespace", scene.namespace)
    premium = frozenset({where, ("server", "Premium-granite-13b"), ("accelerator", "G2")})
    assert told["inferno_server_desired_replicas"][premium] == 2
    assert told["inferno_cost_cents_per_hour"] == {frozenset({where}): 75}
    assert told["inferno_leader"] == {frozenset(): 1}
    scene.control_plane.kubectl("delete", "optimizer", "inferno", "--namespace", scene.namespace)
    wait_until(
        lambda: series(process),
        lambda now: "inferno_servers" not in now and "inferno_optimizations_total" not in now,
        "the series gone",
    )


def test_a_lease_is_needed_only_for_leader_election(scene: Scene, operator: StartOperator) -> None:
    operator()
    scene.request()
    scene.wait_until_done()

    assert not scene.control_plane.items("leases", scene.namespace)


def test_an_operator_that_waits_for_its_next_try_ends_when_asked(
    scene: Scene, operator: StartOperator
) -> None:
    nobody = {"INFERNO_HOST": "127.0.0.1", "INFERNO_PORT": "1"}
    process = operator(namespace=None, environment=nobody)
    scene.request()
    scene.wait_for_reason("Unavailable")

    assert process.stop() == 0
