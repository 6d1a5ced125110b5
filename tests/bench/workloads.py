"""How long the numbers of replicas of a plan take to reach the Deployments."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from kubernetes import client, config, watch

from tests.bench.cluster import DECISION_S, GROUP, NAMESPACE, VERSION, WRITERS, Bench
from tests.bench.library import SEED, SOLVERS, Numbers
from tests.bench.manifests import manifests
from tests.controlplane import ControlPlane
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.processes import ROOT
from tests.controlplane.waiting import wait_until
from tests.generate import JsonObject, fleet


def workloads(*, servers: int, accelerators: int = 2) -> Numbers:
    """From the first decision that is written to the last number of replicas of a Deployment.

    Each Server has a Deployment for each accelerator, and nothing runs yet. Nobody makes pods:
    what is measured is the operator.
    """
    document = fleet(servers, accelerators, SEED, 1.0)
    document["system"]["optimizerData"] = {"optimizer": SOLVERS["unlimited"]}
    names = [item["name"] for item in document["system"]["acceleratorData"]["accelerators"]]
    with ControlPlane() as control_plane:
        control_plane.install_crds(ROOT / "crds")
        control_plane.create_namespace(NAMESPACE)
        bench = Bench(control_plane)
        objects = list(_with_workloads(manifests(document), names))
        _create_deployments(control_plane, objects)
        bench.create(objects)
        process = OperatorProcess(
            control_plane.processes, "operator", control_plane.kubeconfig, NAMESPACE
        )
        process.wait_until_ready()
        wait_until(bench.undecided_servers, lambda count: count == 0, "a first look", DECISION_S)
        with (
            _Changes(control_plane, (GROUP, VERSION, "servers"), "desiredAlloc") as decided,
            _Changes(control_plane, ("apps", "v1", "deployments"), "replicas") as scaled,
        ):
            bench.seconds_to_decide(process)
            bench.wait_until_calm()
        first, last = min(decided.times.values()), max(decided.times.values())
        return {
            "seconds": max(scaled.times.values()) - first,
            "decision_seconds": last - first,
            "unscaled": len(decided.times) - len(scaled.times),
            **bench.at_rest(process.pid),
        }


def _with_workloads(objects: Iterator[JsonObject], accelerators: list[str]) -> Iterator[JsonObject]:
    """The objects, and a workload on each accelerator for each Server."""
    for item in objects:
        if item["kind"] == "Server":
            name = item["metadata"]["name"]
            item["spec"]["workloads"] = [
                {"accelerator": accelerator, "name": f"{name}-{number}"}
                for number, accelerator in enumerate(accelerators)
            ]
        yield item


def _create_deployments(control_plane: ControlPlane, objects: list[JsonObject]) -> None:
    """Create the Deployments that Servers name, without replicas."""
    api = client.CustomObjectsApi(_connection(control_plane))
    wanted = [
        workload["name"]
        for item in objects
        if item["kind"] == "Server"
        for workload in item["spec"]["workloads"]
    ]

    def create(name: str) -> None:
        api.create_namespaced_custom_object(
            "apps", "v1", NAMESPACE, "deployments", _deployment(name)
        )

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(create, wanted))


def _deployment(name: str) -> JsonObject:
    labels = {"app": name}
    container = {"name": "engine", "image": "example.com/engine"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def _connection(control_plane: ControlPlane) -> Any:  # noqa: ANN401 - the client has no types
    path = str(control_plane.kubeconfig)
    return config.new_client_from_config(path)  # type: ignore[no-untyped-call]  # nobody typed it


class _Changes(threading.Thread):
    """A context in which the first change of each object is noted, by its name [s].

    Parameters
    ----------
    control_plane
        Where to look.
    place
        Group, version and plural of the kind.
    field
        A field of the spec; changes count as soon as it has a number of replicas.
    """

    def __init__(
        self, control_plane: ControlPlane, place: tuple[str, str, str], field: str
    ) -> None:
        super().__init__(daemon=True)
        self._objects = client.CustomObjectsApi(_connection(control_plane))
        self._path = (place[0], place[1], NAMESPACE, place[2])
        self._field = field
        self._stopped = threading.Event()
        self.times: dict[str, float] = {}

    def __enter__(self) -> Self:
        listing: Any = self._objects.list_namespaced_custom_object(*self._path, limit=1)
        self._version = listing["metadata"]["resourceVersion"]
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        """Look until stopped."""
        changes = watch.Watch()  # type: ignore[no-untyped-call]  # nobody typed it
        while not self._stopped.is_set():
            for event in changes.stream(  # type: ignore[no-untyped-call]  # nor this
                self._objects.list_namespaced_custom_object,
                *self._path,
                resource_version=changes.resource_version or self._version,
                timeout_seconds=1,
            ):
                value = event["object"]["spec"].get(self._field)
                replicas = value["numReplicas"] if isinstance(value, dict) else value
                if replicas:
                    name = event["object"]["metadata"]["name"]
                    self.times.setdefault(name, time.perf_counter())
