"""The whole loop in motion: engines behind the pods of Deployments, and loads that move.

Each ready pod of a server that moves has a simulated engine of its accelerator, which a real
Prometheus scrapes. A pod that ends drains: it serves the requests that it has. What was sent and
which requests kept their targets is known from the simulation.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient, CoreV1Api
from kubernetes.client.exceptions import ApiException

from tests.cluster.background import Background, client_of
from tests.cluster.kubelet import Kubelet
from tests.cluster.scene import Scene
from tests.controlplane.deployments import deployment
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Server, Settings
from tests.engines.prometheus import Prometheus, Target
from tests.engines.workload import Uniform, Workload
from tests.unit.operator import objects

Manifest = dict[str, Any]
Rate = Callable[[float], float]
"""Requests/s after so many seconds."""

TICK_S = 0.5
SPREAD = 0.2
TTFT_MS, ITL_MS = 500.0, 20.0
PERCENTILE = 95

ENGINES: Mapping[str, Engine] = {
    "L40S": Engine(alpha=14.0, beta=0.25, gamma=2.0, delta=0.0001, max_batch_size=12),
    "A100": Engine(alpha=8.0, beta=0.12, gamma=1.0, delta=0.00005, max_batch_size=24),
    "H100": Engine(alpha=5.0, beta=0.08, gamma=0.7, delta=0.00003, max_batch_size=32),
    "MI300X": Engine(alpha=6.0, beta=0.07, gamma=0.8, delta=0.00004, max_batch_size=32),
}
COSTS = {"L40S": 12.0, "A100": 30.0, "H100": 60.0, "MI300X": 55.0}
"""Of a card [cents/hour]."""

LENGTHS = Workload(Uniform(50, 150), Uniform(100, 300))
MEAN_TOKENS = (100, 200)
"""Of prompts and of answers."""

MODEL = "llama"


@dataclass(frozen=True, slots=True)
class PodTimes:
    """The longest time until a pod is ready, and until it has ended [s]."""

    cold_start_s: float = 30.0
    ending_s: float = 5.0


USUAL_TIMES = PodTimes()


@dataclass(frozen=True, slots=True)
class Mover:
    """A server and its load.

    Attributes
    ----------
    name
        Of the Server; its Deployments are called NAME-ACCELERATOR.
    rate
        Its load.
    accelerators
        Those for which it has a Deployment.
    running
        Replicas of the first of them at the beginning.
    engine
        What its replicas really are; None: as the Model says.
    """

    name: str
    rate: Rate
    accelerators: tuple[str, ...]
    running: int
    engine: Engine | None = None


def moved(before: float, after: float, start: float, seconds: float = 0.0) -> Rate:
    """Return a load that goes from one rate to another within some seconds."""

    def rate(elapsed: float) -> float:
        share = (elapsed - start) / seconds if seconds else math.inf * (elapsed - start or 1)
        return before + (after - before) * min(max(share, 0.0), 1.0)

    return rate


def manifests(movers: list[Mover], cards: Mapping[str, int], interval: int) -> Iterator[Manifest]:
    """Yield all objects of a namespace with these servers; loads are measured."""
    for name, cost in COSTS.items():
        spec = {"name": name, "type": name, "cost": cost}
        yield objects.manifest("Accelerator", spec, name=name.lower())
    data = [
        {
            "acc": name,
            "accCount": 1,
            "maxBatchSize": engine.max_batch_size,
            "atTokens": 200,
            "decodeParms": {"alpha": engine.alpha, "beta": engine.beta},
            "prefillParms": {"gamma": engine.gamma, "delta": engine.delta},
        }
        for name, engine in ENGINES.items()
    ]
    yield objects.manifest("Model", {"name": MODEL, "data": data}, name=MODEL)
    for priority, name in enumerate(("Premium", "Free"), start=1):
        target = {
            "model": MODEL,
            "slo-itl": ITL_MS,
            "slo-ttft": TTFT_MS,
            "slo-ttft-percentile": PERCENTILE,
        }
        spec = {"name": name, "priority": priority, "data": [target]}
        yield objects.manifest("ServiceClass", spec, name=name.lower())
    counts = [{"type": name, "count": count} for name, count in cards.items()]
    yield objects.manifest("Capacity", {"count": counts}, name="cards")
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    for number, mover in enumerate(movers):
        yield from _server(mover, "Free" if number % 2 else "Premium")
    spec = {
        "interval": interval,
        "data": {"optimizer": {"unlimited": False, "milpSolver": True}},
    }
    yield objects.manifest("Optimizer", spec, name="inferno")


def _server(mover: Mover, service_class: str) -> Iterator[Manifest]:
    for accelerator in mover.accelerators:
        replicas = mover.running if accelerator == mover.accelerators[0] else 0
        yield deployment(f"{mover.name}-{accelerator.lower()}", replicas)
    workloads = [
        {"accelerator": accelerator, "name": f"{mover.name}-{accelerator.lower()}"}
        for accelerator in mover.accelerators
    ]
    spec = {
        "name": mover.name,
        "class": service_class,
        "model": MODEL,
        "measure": {"source": "vLLM", "labels": {"namespace": "prod", "model_name": mover.name}},
        "workloads": workloads,
    }
    yield objects.manifest("Server", spec, name=mover.name)


@dataclass(slots=True)
class Seen:
    """What was seen of one server while it ran.

    Attributes
    ----------
    placements
        Replicas that were asked for by accelerator, after each change, with the time [s].
    measured
        Time [s] and arrival rate [requests/s] of each measurement.
    idle_s
        Seconds without any replica that serves, after the first one did.
    first
        When the first one did [s].
    pod_seconds
        Time that pods were there by accelerator, also those that started and ended [s].
    pods
        Names of the pods that there were.
    """

    placements: list[tuple[float, Mapping[str, int]]] = field(default_factory=list)
    measured: dict[float, float] = field(default_factory=dict)
    idle_s: float = 0.0
    first: float = math.inf
    pod_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    pods: set[str] = field(default_factory=set)

    def changes(self, start: float, end: float) -> int:
        """Count the changes of replicas between two times [s]."""
        return sum(start <= time < end for time, _ in self.placements[1:])


class Motion(Background):
    """Runs an engine in each ready pod, moves the loads, and notes what the operator does.

    Parameters
    ----------
    api
        A client of the cluster.
    scene
        The namespace of the servers.
    fleet, prometheus
        The engines, and what scrapes them.
    movers
        The servers.
    others
        What Prometheus scrapes besides.
    """

    def __init__(
        self,
        api: ApiClient,
        scene: Scene,
        fleet: Fleet,
        prometheus: Prometheus,
        movers: list[Mover],
        others: Sequence[Target] = (),
    ) -> None:
        super().__init__()
        self._core = CoreV1Api(api)
        self._scene = scene
        self._fleet = fleet
        self.prometheus = prometheus
        self._movers = movers
        self._others = others
        self.began = math.inf
        """When the loads began to move [s], on the clock of the fleet."""
        self._looked = fleet.now
        self.seen = {mover.name: Seen() for mover in movers}
        self.undiscovered: frozenset[str] = frozenset()
        """Names of pods that serve, and that Prometheus does not scrape."""
        self._engines = {mover.name: mover.engine for mover in movers if mover.engine}
        self.servers: dict[str, Server] = {
            mover.name: fleet.add(mover.name, _settings(mover.name), 0, 0.0) for mover in movers
        }

    @property
    def elapsed(self) -> float:
        """Seconds since the loads began to move; minus infinity before."""
        return self._fleet.now - self.began

    def begin(self) -> None:
        """Let the loads begin to move now; what was changed before is no part of what was seen."""
        self.began = self._fleet.now
        for seen in self.seen.values():
            seen.placements = [(0.0, replicas) for _, replicas in seen.placements[-1:]]

    def work(self) -> None:
        """Work until stopped."""
        while not self._stopped.wait(TICK_S):
            self._tick()

    def environment(self, measure_s: float) -> Mapping[str, str]:
        """Variables of an operator that measures these servers every so many seconds."""
        return {
            "INFERNO_PROMETHEUS_URL": self.prometheus.url,
            "INFERNO_MEASURE_INTERVAL": str(measure_s),
        }

    def time_of(self, moment: datetime) -> float:
        """The time of the fleet at a moment [s]."""
        return moment.timestamp() - self._fleet.began

    def all_serve(self) -> bool:
        """Whether each server has a replica that serves."""
        return all(_serving(server) for server in self.servers.values())

    def all_have_served(self, seconds: float) -> bool:
        """Whether all servers have served for so long, such as a first rate needs."""
        return self._fleet.now > max(seen.first for seen in self.seen.values()) + seconds

    def all_decided(self) -> bool:
        """Whether each server has a decision."""
        return all(seen.placements for seen in self.seen.values())

    def all_measured(self) -> bool:
        """Whether each server is measured over whole windows: then it may get fewer replicas."""
        servers = self._scene.servers().values()
        measured = [server.get("status", {}).get("measured", {}) for server in servers]
        return all(found.get("quality") == "Fresh" for found in measured)

    def true_rates(self, name: str, time: float, windows: tuple[float, ...]) -> list[float]:
        """Return the true arrival rates of windows that end at a time of the fleet.

        Nothing arrived before the first replica served.
        """
        server, first = self.servers[name], self.seen[name].first
        return [server.truth(max(time - w, first), time).arrival_rate for w in windows]

    def lose(self, names: Iterable[str]) -> None:
        """Let Prometheus discover these pods no more, and all others."""
        self.undiscovered = frozenset(names)
        self._discover()

    def _discover(self) -> None:
        targets = (t for t in self._fleet.targets() if t.labels["pod"] not in self.undiscovered)
        self.prometheus.set_targets([*targets, *self._others])

    def _tick(self) -> None:
        for mover in self._movers:
            self.servers[mover.name].set_rate(mover.rate(max(self.elapsed, 0.0)))
        found: list[Any] = self._core.list_namespaced_pod(self._scene.namespace).items
        pods = [pod for pod in found if _owner_of(pod)[0] in self.servers]
        if self._follow({pod.metadata.name: pod for pod in pods}):
            self._discover()
        for name, server in self.servers.items():
            seen = self.seen[name]
            if _serving(server):
                seen.first = min(seen.first, self._fleet.now)
            elif seen.first < math.inf:
                seen.idle_s += TICK_S
        self._note()
        self._count(pods)

    def _count(self, pods: list[Any]) -> None:
        """Count the time of the pods since the last look."""
        now = self._fleet.now
        for pod in pods:
            owner, accelerator = _owner_of(pod)
            self.seen[owner].pod_seconds[accelerator.upper()] += now - self._looked
            self.seen[owner].pods.add(pod.metadata.name)
        self._looked = now

    def _follow(self, pods: Mapping[str, Any]) -> bool:
        """Run what runs in the cluster; whether the targets of Prometheus change."""
        changed = False
        for server in self.servers.values():
            for name in [name for name in server.pods if name not in pods]:
                server.remove(name)
                changed = True
        for name, pod in pods.items():
            owner, accelerator = _owner_of(pod)
            server = self.servers[owner]
            if pod.metadata.deletion_timestamp is not None:
                if name in server.pods and not server.pods[name].drains:
                    server.drain(name)
            elif name not in server.pods and pod.status.phase == "Running":
                server.start(name, self._engines.get(owner) or ENGINES[accelerator.upper()])
                changed = True
        return changed

    def _note(self) -> None:
        for name, manifest in self._scene.servers().items():
            seen = self.seen[name]
            replicas = _replicas(manifest)
            if replicas and (not seen.placements or seen.placements[-1][1] != replicas):
                seen.placements.append((self.elapsed, replicas))
            measured = manifest.get("status", {}).get("measured", {})
            if measured.get("arrivalRate") is not None:
                moment = self.time_of(datetime.fromisoformat(measured["time"]))
                seen.measured[moment] = measured["arrivalRate"] / 60


def _owner_of(pod: Any) -> tuple[str, str]:  # noqa: ANN401 - nobody typed the client
    """Return the server of a pod, and its accelerator in small letters."""
    owner, _, accelerator = pod.metadata.labels["app"].rpartition("-")
    return owner, accelerator


def _serving(server: Server) -> bool:
    return any(pod.replica is not None and not pod.drains for pod in server.pods.values())


def _replicas(manifest: Manifest) -> Mapping[str, int]:
    """Replicas of a decision by accelerator."""
    desired = manifest["spec"].get("desiredAlloc") or {}
    parts = desired.get("mix") or [desired]
    return {p["accelerator"]: p["numReplicas"] for p in parts if p.get("numReplicas")}


def _settings(name: str) -> Settings:
    return Settings(ENGINES["A100"], LENGTHS, name, labels={"namespace": "prod"})


@contextmanager
def moving(
    scene: Scene,
    prometheus_program: Path,
    movers: list[Mover],
    *,
    scrape_s: float,
    pods: PodTimes = USUAL_TIMES,
    others: Sequence[Target] = (),
) -> Iterator[Motion]:
    """Run pods, engines and a Prometheus, and move the loads, until the block ends."""
    plane = scene.control_plane
    name = f"prometheus-{scene.namespace}"
    with (
        Fleet(seed=1) as fleet,
        Prometheus(
            plane.processes, prometheus_program, name=name, scrape_interval_s=scrape_s
        ) as prometheus,
        client_of(plane.kubeconfig) as seen,
        client_of(plane.kubeconfig) as changed,
    ):
        kubelet = Kubelet(changed, scene.namespace, pods.cold_start_s, pods.ending_s, SPREAD)
        motion = Motion(seen, scene, fleet, prometheus, movers, others)
        with motion:
            kubelet.start()
            try:
                yield motion
            finally:
                with suppress(ApiException):
                    kubelet.stop()
