"""From zero and back: a Server wakes beside a solve that is held, and when its operator ends."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient, CustomObjectsApi

from inferno_operator.resources.base import GROUP, VERSION
from tests.cluster.background import Follower, client_of
from tests.cluster.motion import Motion, Mover, PodTimes, manifests, moving
from tests.cluster.scene import Scene
from tests.conftest import StartOperator
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.day.objects import queries
from tests.engines.gateway import Gateway
from tests.rest_optimizer import RestOptimizer

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("crds_installed", "deployment_controllers")

NAME = "chat"
ACCELERATORS = ("L40S", "A100")
CARDS = {"L40S": 4, "A100": 4}
POD_TIMES = PodTimes(cold_start_s=2.0, ending_s=1.0)
INTERVAL_S, MEASURE_S = 3, 2
LEAST_IMPORTANT = 100


def sleeper_manifests() -> Iterator[Manifest]:
    """Yield all objects of a namespace with a Server that may sleep; it is measured at once."""
    for manifest in manifests([Mover(NAME, _silence, ACCELERATORS, 1)], CARDS, INTERVAL_S):
        spec = manifest.get("spec", {})
        if manifest["kind"] == "ServiceClass":  # for the most important one a cold start is dear
            spec["priority"] = LEAST_IMPORTANT
        if manifest["kind"] == "Server":
            spec["startupSeconds"] = round(POD_TIMES.cold_start_s)
            spec["scaleDown"] = {"windowSeconds": 2 * INTERVAL_S}
            demand = {"source": "EPP", "labels": {"inference_pool": NAME}}
            spec["measure"] = {"source": "Custom", "queries": queries(NAME), "demand": demand}
        yield manifest


def _silence(_: float) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, and when it was seen [s]."""

    time: float
    accelerator: str
    replicas: int


class Decisions(Follower):
    """Follows the Server; `seen` has each decision that differs from the one before."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        lists = CustomObjectsApi(api).list_namespaced_custom_object
        super().__init__(lists, GROUP, VERSION, namespace, "servers")
        self.seen: list[Decided] = []

    def take(self, manifest: Manifest) -> None:
        """Take the Server after a change."""
        desired = manifest["spec"].get("desiredAlloc")
        if desired is None:
            return
        now = Decided(time.monotonic(), desired["accelerator"], desired["numReplicas"])
        if not self.seen or self.seen[-1].replicas != now.replicas:
            self.seen.append(now)


@dataclass
class Sleeper:
    """A Server behind a gateway that keeps its requests, and what is decided for it."""

    scene: Scene
    motion: Motion
    gateway: Gateway
    decisions: Decisions
    rest: RestOptimizer
    last_request: float = field(default=0.0)

    @property
    def replicas(self) -> int | None:
        """The replicas of the last decision."""
        seen = self.decisions.seen
        return seen[-1].replicas if seen else None

    def wait_for_replicas(self, count: int, within: float) -> Decided:
        wait_until(lambda: self.replicas, lambda n: n == count, f"{count} replicas", within)
        return self.decisions.seen[-1]

    def hold_a_solve(self) -> None:
        """Wait until a solve has begun that will have no end."""
        self.rest.gate.clear()
        wait_until(self.rest.held.is_set, bool, "a solve")

    def request(self) -> float:
        """Let requests wait at the gateway; returns since when [s]."""
        self.gateway.waiting = 3
        return time.monotonic()

    def serve(self) -> None:
        """Wait until the replica serves; then it gets the requests that wait."""
        wait_until(self.motion.all_serve, bool, "a replica that serves")
        self.gateway.waiting = 0
        self.last_request = time.monotonic()

    def is_seen(self) -> bool:
        """Whether the operator knows that no request waits."""
        status = self.scene.servers()[NAME].get("status", {})
        found: bool = status.get("measured", {}).get("demand", {}).get("requests") == 0
        return found


@contextmanager
def sleeping(scene: Scene, prometheus_program: Path) -> Iterator[tuple[Sleeper, dict[str, str]]]:
    """Run a Server that sleeps, and what is around it; with the environment of operators."""
    with (
        RestOptimizer() as rest,
        Gateway(NAME) as gateway,
        moving(
            scene,
            prometheus_program,
            [Mover(NAME, _silence, ACCELERATORS, 1)],
            scrape_s=1.0,
            pods=POD_TIMES,
            others=[gateway.target],
        ) as motion,
    ):
        scene.apply(*sleeper_manifests())
        wait_until(motion.all_serve, bool, "a replica that serves")
        environment = {
            **motion.environment(MEASURE_S),
            "INFERNO_LEADER_ELECTION": "true",
            "INFERNO_HOST": "127.0.0.1",
            "INFERNO_PORT": str(rest.port),
        }
        with (
            client_of(scene.control_plane.kubeconfig) as api,
            Decisions(api, scene.namespace) as decisions,
        ):
            yield Sleeper(scene, motion, gateway, decisions, rest), environment


def leader_of(scene: Scene) -> str:
    lease = scene.get("lease", "inferno-operator")
    return str(lease["spec"].get("holderIdentity", ""))


def wait_for_another_leader(scene: Scene, before: str) -> None:
    wait_until(lambda: leader_of(scene), lambda h: h not in ("", before), "another leader")


@pytest.mark.minutes
@pytest.mark.extended
def test_a_server_wakes_once_beside_a_held_solve_whose_operator_is_killed(
    scene: Scene, operator: StartOperator, prometheus_program: Path
) -> None:
    with sleeping(scene, prometheus_program) as (sleeper, environment):
        first = operator(environment=environment)
        leader = leader_of(scene)
        operator(environment=environment)
        sleeper.wait_for_replicas(0, PATIENCE_S)
        wait_until(sleeper.is_seen, bool, "a Server that sleeps")

        sleeper.hold_a_solve()
        asked = sleeper.request()
        woke = sleeper.wait_for_replicas(1, PATIENCE_S)
        assert sleeper.rest.at_once == 1  # it woke beside the solve, not after it
        first.kill()
        wait_for_another_leader(scene, leader)
        sleeper.rest.gate.set()
        sleeper.serve()
        slept = sleeper.wait_for_replicas(0, PATIENCE_S)

        seen = sleeper.decisions.seen
        print(f"\nwoke after {woke.time - asked:.1f} s", *seen, sep="\n")
        assert [each.replicas for each in seen] == [1, 0, 1, 0]
        assert {each.accelerator for each in seen if each.replicas} == {seen[0].accelerator}
        assert slept.time > sleeper.last_request
