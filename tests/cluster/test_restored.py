"""etcd is restored from an older copy while the operator runs."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.scene import Scene, environment_of
from tests.conftest import ROOT, new_namespace
from tests.controlplane import ControlPlane
from tests.controlplane.deployments import deployment
from tests.controlplane.waiting import wait_until
from tests.unit.operator import objects

COPY = "etcd-copy"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own: nobody else may lose what is written meanwhile."""
    with ControlPlane() as plane:
        plane.install_crds(ROOT / "crds")
        yield plane


def stop_all(plane: ControlPlane) -> Path:
    """End the API server, then etcd; where etcd has its data."""
    plane.stop_api_server()
    plane.processes.stop("etcd", signal.SIGTERM)
    return plane.folder / "etcd-data"


def start_all(plane: ControlPlane) -> None:
    plane.start_etcd()
    plane.start_api_server()


def replicas(scene: Scene, name: str) -> int:
    server = scene.get("server", name)
    decided: int = server["spec"].get("desiredAlloc", {}).get("numReplicas", -1)
    return decided


def test_the_operator_goes_on_from_what_was_restored(plane: ControlPlane) -> None:
    """Stateful it watches all kinds: also those that it lists for a request otherwise."""
    with new_namespace(plane, "restored") as namespace:
        scene, optimizer = Scene(plane, namespace), objects.optimizer()
        optimizer["spec"]["interval"] = 1
        scene.apply(
            objects.accelerator("A"),
            objects.model("M"),
            objects.service_class(),
            objects.capacity(100),
            objects.server(
                "s",
                spec={
                    "currentAlloc": objects.running(2, 2),
                    "workloads": [{"accelerator": "A", "name": "engine"}],
                },
            ),
            deployment("engine"),
            optimizer,
        )
        process = scene.start_operator("operator", **environment_of("stateful-local"))

        def load(wanted: int) -> None:
            patch = {"spec": {"currentAlloc": {"load": objects.running(2, wanted)["load"]}}}
            scene.patch("server", "s", patch)
            wait_until(lambda: replicas(scene, "s"), lambda n: n == wanted, f"{wanted} replicas")
            scaled = {"engine": wanted}
            wait_until(scene.replicas, lambda found: found == scaled, f"{wanted} in the Deployment")

        load(3)
        data = stop_all(plane)
        shutil.copytree(data, plane.folder / COPY)
        start_all(plane)
        for wanted in (4, 5):
            load(wanted)
        scene.apply(objects.server("late", spec={"currentAlloc": objects.running(2, 2)}))
        wait_until(lambda: replicas(scene, "late"), lambda n: n == 2, "the decision")

        shutil.rmtree(stop_all(plane))
        shutil.move(plane.folder / COPY, data)
        start_all(plane)

        assert [*scene.servers()] == ["s"]
        load(9)  # more than ever: without pods nothing is reduced
        scene.apply(objects.server("late", spec={"currentAlloc": objects.running(2, 4)}))
        wait_until(lambda: replicas(scene, "late"), lambda n: n == 4, "the decision")
        assert "ForeignWriter" not in json.dumps(scene.servers()["s"]["status"])
        assert "went back from version" in process.log
        process.check_running()
