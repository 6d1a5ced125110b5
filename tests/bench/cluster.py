"""Measurements of the operator on a real control plane."""

import os
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch

from tests.bench.library import SEED, SOLVERS, Numbers
from tests.bench.manifests import API_VERSION, OPTIMIZER, PLURALS, manifests
from tests.controlplane import ControlPlane
from tests.controlplane.deployments import deployment
from tests.controlplane.errors import WaitTimeoutError
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.processes import ROOT
from tests.controlplane.waiting import wait_until
from tests.demo import start_operator
from tests.generate import JsonObject, fleet

NAMESPACE = "bench"
GROUP, VERSION = API_VERSION.split("/")
WRITERS = 8
DECISION_S = 300.0
IDLE_S = 60.0
CALM_S = 3.0
WRITES = frozenset({"APPLY", "DELETE", "PATCH", "POST", "PUT"})
WRITTEN = frozenset(PLURALS.values()) - {PLURALS["Optimizer"]} | {"deployments", "plans"}


def operator(*, servers: int, accelerators: int = 20, solver: str = "greedy") -> Numbers:
    """From `optimize: true` until every Server is written; the same again; and at rest."""
    document = fleet(servers, accelerators, SEED, 1.5)
    document["system"]["optimizerData"] = {"optimizer": SOLVERS[solver]}
    with ControlPlane() as control_plane:
        control_plane.install_crds(ROOT / "crds")
        control_plane.create_namespace(NAMESPACE)
        bench = Bench(control_plane)
        bench.create(manifests(document))
        process = start_operator(control_plane, namespace=NAMESPACE)
        process.wait_until_ready()
        first = bench.seconds_to_decide(process)
        undecided = bench.undecided_servers()
        bench.wait_until_calm()  # the Plan is done when its Servers have been looked at
        before = bench.writes()
        again = bench.seconds_to_decide(process)
        repeated = bench.writes() - before
        return {
            "seconds": first,
            "undecided": undecided,
            "again_seconds": again,
            "again_writes": repeated,
            "mib": peak_mib(process.pid),
            **bench.at_rest(process.pid),
        }


def client_of(control_plane: ControlPlane) -> client.CustomObjectsApi:
    """A client that costs little."""
    path = str(control_plane.kubeconfig)
    api = config.new_client_from_config(path)  # type: ignore[no-untyped-call]  # not ours
    return client.CustomObjectsApi(api)


class Bench:
    """The control plane, through a client that costs little."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._api = client_of(control_plane)

    def create(self, objects: Iterable[JsonObject]) -> None:
        """Create all of them, several at a time."""

        def create_one(manifest: JsonObject) -> None:
            self._api.create_namespaced_custom_object(
                GROUP, VERSION, NAMESPACE, PLURALS[manifest["kind"]], manifest
            )

        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(create_one, objects))

    def seconds_to_decide(self, process: OperatorProcess) -> float:
        """Ask for an optimization; the operator sets the request back after its last write.

        The Optimizer is watched: to ask ten times a second took as much of a busy machine as a
        fifth of all that the API server did meanwhile.
        """
        kind = (GROUP, VERSION, NAMESPACE, PLURALS["Optimizer"])
        start = time.perf_counter()
        asked: Any = self._api.patch_namespaced_custom_object(
            *kind, OPTIMIZER, {"spec": {"optimize": True}}
        )
        watched: Any = watch.Watch  # the client has no types
        changes = watched().stream(
            self._api.list_namespaced_custom_object,
            *kind,
            field_selector=f"metadata.name={OPTIMIZER}",
            resource_version=asked["metadata"]["resourceVersion"],
            timeout_seconds=int(DECISION_S),
        )
        for change in changes:
            if not change["object"]["spec"]["optimize"]:
                return time.perf_counter() - start
        process.check_running()
        raise WaitTimeoutError(f"the decisions written: not within {DECISION_S:g} s")

    def undecided_servers(self) -> int:
        """Servers that were written nothing to."""
        return sum(not item.get("status", {}).get("conditions") for item in self._servers())

    def servers_with_replicas(self) -> int:
        decided = (item["spec"].get("desiredAlloc", {}) for item in self._servers())
        return sum(allocation.get("numReplicas", 0) > 0 for allocation in decided)

    def _servers(self) -> list[JsonObject]:
        found: Any = self._api.list_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, PLURALS["Server"]
        )
        items: list[JsonObject] = found["items"]
        return items

    def wait_until_reported(self, process: OperatorProcess) -> None:
        """Wait until every Server has a condition, and nobody writes any more.

        The list of all Servers takes as long as several writes, so it is rarely read.
        """
        self.wait_until_calm()
        while self.undecided_servers():
            process.check_running()
            self.wait_until_calm()

    def wait_until_calm(self) -> None:
        """Wait until nobody writes to our objects for a while."""
        before = -1
        while (now := self.writes()) != before:
            before = now
            time.sleep(CALM_S)

    def writes(self) -> int:
        """Writes to our objects but the Optimizer's that the API server has counted."""
        return sum(
            count
            for (verb, resource, _), count in self._control_plane.requests().items()
            if verb in WRITES and resource.partition("/")[0] in WRITTEN
        )

    def at_rest(self, pid: int) -> Numbers:
        """What the operator does while nothing changes; this takes a while on purpose."""
        writes, start = self.writes(), cpu_seconds(pid)
        time.sleep(IDLE_S)
        share = (cpu_seconds(pid) - start) / IDLE_S
        return {
            "idle_writes": self.writes() - writes,
            "idle_cpu_percent": 100 * share,
            "idle_mib": _resident_mib(pid),
        }


def cpu_seconds(pid: int) -> float:
    """Time that a process spent on a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _clock_ticks()


def _clock_ticks() -> int:
    return os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """The most that a process ever held."""
    return _mib(pid, "VmHWM")


def _resident_mib(pid: int) -> float:
    """What the operator and the process that solves hold."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(_mib(process, "VmRSS") for process in (pid, *map(int, children)))


def _mib(pid: int, what: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{what}:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


SCALED = re.compile(r"^(\S+ \S+) INFO .*: scaled from 0 to \d+ replicas$", re.MULTILINE)
"""The line of the log about a number of replicas that is written."""


def workloads(*, servers: int, accelerators: int = 2) -> Numbers:
    """From the last decision to the last number of replicas, and from `optimize: true` to it.

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
        process = start_operator(control_plane, namespace=NAMESPACE)
        process.wait_until_ready()
        bench.wait_until_reported(process)
        asked = datetime.now().astimezone()
        decided = bench.seconds_to_decide(process)
        wanted = bench.servers_with_replicas()
        scaled = _scaled(process, wanted)
        whole = (max(scaled) - asked).total_seconds()
        bench.wait_until_calm()
        return {
            "seconds": max(whole - decided, 0.0),
            "whole_seconds": whole,
            "unscaled": wanted - len(scaled),
            **bench.at_rest(process.pid),
        }


def _scaled(process: OperatorProcess, wanted: int) -> list[datetime]:
    """Wait until so many numbers of replicas are written, and return when each was.

    A busy machine may write nothing for seconds, and the last numbers after that.
    """

    def times() -> list[datetime]:
        process.check_running()
        return _times_of_scales(process.log_path)

    return wait_until(times, lambda all_: len(all_) >= wanted, "replicas written", DECISION_S)


def _times_of_scales(log: Path) -> list[datetime]:
    """Return when the operator wrote a number of replicas, as it logs."""
    return [
        datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").astimezone()
        for found in SCALED.finditer(log.read_text())
    ]


def _with_workloads(objects: Iterator[JsonObject], accelerators: list[str]) -> Iterator[JsonObject]:
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
    api = client_of(control_plane)
    wanted = [
        workload["name"]
        for item in objects
        if item["kind"] == "Server"
        for workload in item["spec"]["workloads"]
    ]

    def create(name: str) -> None:
        api.create_namespaced_custom_object(
            "apps", "v1", NAMESPACE, "deployments", deployment(name)
        )

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(create, wanted))
