"""Two operators, one works: killed, paused or asked to end, in the middle of a run."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.forgetful import ForgetfulProxy
from tests.cluster.scene import Manifest, Scene
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.waiting import wait_until

ELECTION = {"INFERNO_LEADER_ELECTION": "true"}
SERVERS = 200
OF_THE_SAMPLE = 2
IN_THE_MIDDLE = 30
"""Changes of Servers after which a run is disturbed."""

WRITES = 100
"""Of a leader, after which the others hang."""

pytestmark = pytest.mark.usefixtures("crds_installed")


class Elected(Scene):
    """A namespace with many Servers, and what is seen of its operators."""

    def apply_servers(self, arrival_rate: int) -> None:
        self.apply(*(server(f"server-{i:03}", arrival_rate + i) for i in range(SERVERS)))

    def request_and_wait_for_the_middle(self, leader: str) -> None:
        """Ask for an optimization; return while results are written, one of which has an event."""
        with self._watching_servers() as lines:
            for _ in range(SERVERS + OF_THE_SAMPLE):  # what is there
                next(lines)
            self.request("inferno")
            for _ in range(IN_THE_MIDDLE):
                next(lines)
        wait_until(self.told, lambda told: leader in told, "a decision that is told")

    def written(self) -> list[Manifest]:
        """All Servers, with who wrote on them."""
        shown = self.kubectl("get", "servers", "--output", "json", "--show-managed-fields")
        items: list[Manifest] = json.loads(shown)["items"]
        return items

    def unwritten(self) -> int:
        return sum("conditions" not in s.get("status", {}) for s in self.servers().values())

    def told(self) -> dict[str, list[datetime]]:
        """When each operator told of a decision, by its identity."""
        told: dict[str, list[datetime]] = {}
        for item in self.items("events.events.k8s.io"):
            told.setdefault(item["reportingInstance"], []).append(moment(item["eventTime"]))
        return told

    def lease(self) -> Manifest:
        spec: Manifest = self.get("lease", "inferno-operator")["spec"]
        return spec

    def holder(self) -> str:
        return str(self.lease().get("holderIdentity", ""))

    def wait_for_another(self, leader: str) -> None:
        """Wait until somebody else leads."""
        wait_until(self.holder, lambda holder: holder not in ("", leader), "the other one leads")

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
def scene(control_plane: ControlPlane, namespace: str) -> Elected:
    scene = Elected(control_plane, namespace)
    scene.apply_sample("small")
    return scene


@contextmanager
def held_in_the_middle(
    scene: Elected, operator: StartOperator, folder: Path
) -> Iterator[tuple[OperatorProcess, str]]:
    """The first of two operators, which leads and whose writes hang in the middle of a run."""
    scene.apply_servers(10)
    with ForgetfulProxy(scene.control_plane.kubeconfig) as proxy:
        kubeconfig = proxy.write_kubeconfig(folder / "kubeconfig")
        first = operator(kubeconfig=kubeconfig, environment=ELECTION)
        leader = scene.holder()
        operator(environment=ELECTION)
        proxy.writes = WRITES
        scene.request("inferno")
        wait_until(lambda: proxy.hanging, bool, "a write that hangs")
        wait_until(scene.told, lambda told: leader in told, "a decision that is told")
        yield first, leader


def test_the_leader_is_killed_and_the_other_one_finishes(
    scene: Elected, operator: StartOperator, tmp_path: Path
) -> None:
    with held_in_the_middle(scene, operator, tmp_path) as (first, leader):
        first.kill()
        killed = datetime.now(UTC)
    assert 0 < scene.unwritten() < SERVERS

    scene.wait_until_done("inferno")

    taken = moment(scene.lease()["acquireTime"])
    assert all(item["spec"]["desiredAlloc"]["numReplicas"] > 0 for item in scene.servers().values())
    told = scene.told()
    assert set(told) == {leader, scene.holder()}
    assert max(told[leader]) <= killed < taken <= min(told[scene.holder()])
    times = writes_of_ours(scene.written())
    assert all(time <= killed or time >= second(taken) for time in times)
    assert min(times) <= killed < max(times)


@pytest.mark.extended
def test_a_leader_that_was_paused_writes_nothing_when_it_wakes_up(
    scene: Elected, operator: StartOperator
) -> None:
    scene.apply_servers(10)
    first = operator(environment=ELECTION)
    leader = scene.holder()
    operator(environment=ELECTION)
    scene.request_and_wait_for_the_middle(leader)
    os.kill(first.pid, signal.SIGSTOP)
    paused = datetime.now(UTC)
    scene.apply_servers(500)  # what the first one has decided is wrong now
    scene.wait_until_done("inferno")
    before = scene.versions("servers")

    os.kill(first.pid, signal.SIGCONT)
    code = wait_until(lambda: first.exit_code, lambda c: c is not None, "the first one ended")

    assert code == 1
    assert "this operator exits" in first.log.splitlines()[-1]
    assert scene.versions("servers") == before
    assert max(scene.told()[leader]) <= paused


def test_only_the_leader_works_and_asked_to_end_it_hands_over_at_once(
    scene: Elected, operator: StartOperator
) -> None:
    with scene.changes("coordination.k8s.io", "v1", "leases") as leases:
        first = operator(environment=ELECTION)
        leader = scene.holder()
        other = operator(environment=ELECTION)
        scene.optimize()
        wait_until(lambda: "inferno_servers" in series(first), bool, "the leader tells what it did")
        assert (leads(first), leads(other)) == (1, 0)
        assert "inferno_servers" not in series(other)
        for process, probe in product((first, other), ("healthz", "readyz")):
            assert httpx.get(f"{process.health_url}/{probe}").text == "ok"

        os.kill(first.pid, signal.SIGTERM)
        scene.wait_for_another(leader)
        assert wait_until(lambda: first.exit_code, lambda c: c is not None, "an end") == 0

        holders = wait_until(
            lambda: [lease["spec"].get("holderIdentity", "") for _, lease in leases.states],
            lambda seen: seen[-1:] == [scene.holder()],
            "the new leader",
        )
    assert "the lease is released" in first.log
    # Nobody waited until the lease ended: the other one took what was released.
    assert list(dict.fromkeys(holders)) == [leader, "", scene.holder()]
    scene.optimize()


@pytest.mark.extended
def test_a_leader_that_is_asked_to_end_in_the_middle_of_a_run_writes_nothing_later(
    scene: Elected, operator: StartOperator, tmp_path: Path
) -> None:
    with held_in_the_middle(scene, operator, tmp_path) as (first, leader):
        os.kill(first.pid, signal.SIGTERM)
        scene.wait_for_another(leader)
        assert wait_until(lambda: first.exit_code, lambda c: c is not None, "an end") == 0

    scene.wait_until_done("inferno")
    told, taken = scene.told(), moment(scene.lease()["acquireTime"])
    assert max(told[leader]) < taken <= min(told[scene.holder()])


def test_what_an_optimization_brought_can_be_scraped_until_its_object_is_gone(
    scene: Elected, operator: StartOperator
) -> None:
    process = operator()
    scene.optimize()
    wait_until(lambda: "inferno_servers" in series(process), bool, "it is told")

    told = series(process)

    where = ("namespace", scene.namespace)
    premium = frozenset({where, ("server", "Premium-granite-13b"), ("accelerator", "G2")})
    assert told["inferno_server_desired_replicas"][premium] == 2
    assert told["inferno_cost_cents_per_hour"] == {frozenset({where}): 75}
    assert told["inferno_leader"] == {frozenset(): 1}
    assert not scene.items("leases")  # which only leader election needs
    scene.kubectl("delete", "optimizer", "inferno")
    wait_until(
        lambda: series(process),
        lambda now: "inferno_servers" not in now and "inferno_optimizations_total" not in now,
        "the series gone",
    )


def test_an_operator_that_waits_for_its_next_try_ends_when_asked(
    scene: Elected, operator: StartOperator
) -> None:
    nobody = {"INFERNO_HOST": "127.0.0.1", "INFERNO_PORT": "1"}
    process = operator(namespace=None, environment=nobody)
    scene.request("inferno")
    scene.wait_for_condition("inferno", "Unavailable")

    assert process.stop() == 0
