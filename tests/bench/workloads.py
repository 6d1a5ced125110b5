"""How long the numbers of replicas of a plan take to reach the Deployments."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from tests.bench.cluster import DECISION_S, NAMESPACE, WRITERS, Bench, client_of
from tests.bench.library import SEED, SOLVERS, Numbers
from tests.bench.manifests import manifests
from tests.controlplane import ControlPlane
from tests.controlplane.deployments import deployment
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.processes import ROOT
from tests.controlplane.waiting import wait_until
from tests.demo import start_operator
from tests.generate import JsonObject, fleet

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
