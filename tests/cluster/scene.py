"""A namespace with a sample in it, and the four ways to run an operator there."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.cluster.background import Changes, client_of
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.rest.serving import Served, copied
from tests.tiers import extended
from tests.unit.operator import objects

Manifest = dict[str, Any]

FINALIZER = "inferno.platform.ai/finalizer"

MODES = ("stateless-local", "stateless-remote", "stateful-local", "stateful-remote")

EVERY = (MODES[0], *extended(*MODES[1:3]), MODES[3])
"""All modes: decisions and deletions are tested in each, all else in one or two."""

in_every_mode = pytest.mark.parametrize("mode", EVERY, indirect=True)
in_opposite_modes = pytest.mark.parametrize("mode", [*extended(MODES[0]), MODES[3]], indirect=True)

ACCOUNT: Manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
"""Pods need it, and no controller of the tests makes it."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run: the operator's environment, and the remote optimizer where there is one."""

    name: str
    environment: Mapping[str, str]
    optimizer: Served | None = None

    @property
    def holds(self) -> bool:
        """Whether objects carry our finalizer."""
        return self.name == "stateful-remote"

    @property
    def told(self) -> list[str]:
        """Servers of which the optimizer was told."""
        assert self.optimizer is not None
        with self.optimizer.client() as client:
            servers = client.get("/getServers").raise_for_status().json()["servers"]
        return [server["name"] for server in servers or ()]


@contextmanager
def mode_called(name: str, processes: Processes) -> Iterator[Mode]:
    """A way to run, with its optimizer at work."""
    if name.endswith("local"):
        yield Mode(name, environment_of(name))
        return
    stateful = ["--stateful"] if name.startswith("stateful") else []
    with copied(processes, *stateful) as optimizer:
        yield Mode(name, environment_of(name, optimizer.url), optimizer)


def environment_of(name: str, url: str = "") -> Mapping[str, str]:
    """The operator's environment in a way to run; the URL is that of its optimizer."""
    where = urlsplit(url)
    address = {"INFERNO_HOST": str(where.hostname), "INFERNO_PORT": str(where.port)} if url else {}
    return {"INFERNO_STATELESS": str(name.startswith("stateless")), **address}


def in_mode(operator: StartOperator, variables: Mapping[str, str]) -> StartOperator:
    """Start operators with the environment of a way to run."""

    def start(
        *,
        environment: Mapping[str, str] | None = None,
        **where: Any,  # noqa: ANN401 - handed on
    ) -> OperatorProcess:
        return operator(environment={**variables, **(environment or {})}, **where)

    return start


class Scene:
    """A namespace, and what a test asks of it."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.control_plane = control_plane
        self.namespace = namespace

    def apply_sample(self, name: str) -> None:
        self.apply(*objects_of_sample(name))

    def apply(self, *manifests: Manifest) -> None:
        self.control_plane.api.apply(manifests, self.namespace)

    def kubectl(self, *arguments: str | Path) -> str:
        return self.control_plane.kubectl(*arguments, "--namespace", self.namespace).stdout

    def get(self, kind: str, name: str) -> Manifest:
        return self.control_plane.get(kind, name, self.namespace)

    def items(self, kinds: str) -> list[Manifest]:
        return self.control_plane.items(kinds, self.namespace)

    def patch(
        self, kind: str, name: str, patch: Manifest, subresource: str | None = None
    ) -> Manifest:
        return self.control_plane.patch(kind, name, patch, self.namespace, subresource)

    def start_operator(
        self, name: str, kubeconfig: Path | None = None, /, **environment: str
    ) -> OperatorProcess:
        """Start an operator that is ready; the fixture `operator` has those of the usual plane."""
        plane = self.control_plane
        process = OperatorProcess(
            plane.processes,
            name,
            kubeconfig or plane.kubeconfig,
            self.namespace,
            environment,
            command=None,
        )
        process.wait_until_ready()
        return process

    @contextmanager
    def changes(self, group: str, version: str, plural: str) -> Iterator[Changes]:
        """Keep each state of the objects of a kind until the block ends."""
        with (
            client_of(self.control_plane.kubeconfig) as api,
            Changes(api, group, version, self.namespace, plural) as changes,
        ):
            yield changes

    def request(self, optimizer: str) -> None:
        self.patch("optimizer", optimizer, {"spec": {"optimize": True}})

    def optimize(self, optimizer: str = "inferno") -> Manifest:
        """Ask for an optimization; the Optimizer when it is done."""
        self.request(optimizer)
        return self.wait_until_done(optimizer)

    def optimizer(self, name: str) -> Manifest:
        return self.get("optimizer", name)

    def wait_until_done(self, optimizer: str) -> Manifest:
        def done(manifest: Manifest) -> bool:
            return not manifest["spec"]["optimize"] and manifest["status"]["done"]

        return self.control_plane.wait_for("optimizer", optimizer, done, self.namespace)

    def wait_until_failed(self, optimizer: str, timeout: float = PATIENCE_S) -> Manifest:
        def failed(manifest: Manifest) -> bool:
            return condition(manifest, "Optimized").get("status") == "False"

        return self.control_plane.wait_for("optimizer", optimizer, failed, self.namespace, timeout)

    def wait_until_held(self, mode: Mode) -> None:
        """Wait until every object has the finalizer that it has in this mode, if it has one."""

        def held(finalizers: Mapping[str, list[str]]) -> bool:
            return all(
                names == ([FINALIZER] if mode.holds and not place.startswith("Optimizer/") else [])
                for place, names in finalizers.items()
            )

        wait_until(self.finalizers, held, "finalizers as they should be")

    def wait_for_condition(self, optimizer: str, reason: str) -> Manifest:
        def told(manifest: Manifest) -> bool:
            return condition(manifest, "Optimized").get("reason") == reason

        return self.control_plane.wait_for("optimizer", optimizer, told, self.namespace)

    def wait_for_actuated(self, reason: str, text: str = "", server: str = "s") -> Manifest:
        """Wait until a Server says why it is, or isn't, actuated; returns the Server."""

        def told(manifest: Manifest) -> bool:
            found = condition(manifest, "Actuated")
            return found.get("reason") == reason and text in found["message"]

        return self.control_plane.wait_for("server", server, told, self.namespace)

    def replicas(self, kind: str = "deployments") -> dict[str, int]:
        """What the objects of a kind ask for, by name."""
        return {item["metadata"]["name"]: item["spec"]["replicas"] for item in self.items(kind)}

    def versions(self, kinds: str) -> dict[str, str]:
        """The version of each object of some kinds: what is written changes it."""
        found = ((i["kind"], i["metadata"]) for i in self.items(kinds))
        return {f"{kind}/{data['name']}": data["resourceVersion"] for kind, data in found}

    def wait_for_words(self, server: str, type_: str, words: str) -> None:
        """Wait until a condition of a Server has these words."""

        def told(manifest: Manifest) -> bool:
            return words in condition(manifest, type_).get("message", "")

        self.control_plane.wait_for("server", server, told, self.namespace)

    def servers(self) -> dict[str, Manifest]:
        items = self.control_plane.items("servers", self.namespace)
        return {item["metadata"]["name"]: item for item in items}

    def events(self, reason: str) -> list[Manifest]:
        items = self.control_plane.items("events.events.k8s.io", self.namespace)
        return [item for item in items if item["reason"] == reason]

    def finalizers(self) -> dict[str, list[str]]:
        """Finalizers of every object of ours."""
        items = self.control_plane.items("inferno", self.namespace)
        return {
            f"{item['kind']}/{item['metadata']['name']}": item["metadata"].get("finalizers", [])
            for item in items
        }


@cache
def objects_of_sample(name: str) -> tuple[Manifest, ...]:
    """The objects of a sample, which has no more in its kustomization than their files."""
    folder = ROOT / "samples" / name
    files = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    texts = [(folder / file).read_text() for file in files]
    return tuple(item for text in texts for item in yaml.safe_load_all(text))


def accelerator(name: str, cost: float = 10) -> Manifest:
    """One card of a type that is called as the accelerator."""
    spec = {"name": name, "type": name, "cost": cost}
    return objects.manifest("Accelerator", spec, name=name.lower())


def counted(**counts: int) -> Manifest:
    """So many cards of each type."""
    items = [{"type": name, "count": count} for name, count in counts.items()]
    return objects.manifest("Capacity", {"count": items}, name="cards")


def condition(manifest: Manifest, type_: str) -> Manifest:
    conditions = manifest.get("status", {}).get("conditions", [])
    return next((item for item in conditions if item["type"] == type_), {})


def decided(server: Manifest) -> tuple[str, int, float, int]:
    desired = server["spec"]["desiredAlloc"]
    return desired["accelerator"], desired["numReplicas"], desired["cost"], desired["maxBatch"]


def many_servers(count: int) -> list[Manifest]:
    return [
        {
            "apiVersion": "inferno.platform.ai/v1alpha1",
            "kind": "Server",
            "metadata": {"name": f"server-{i:03}"},
            "spec": {
                "name": f"server-{i:03}",
                "class": "Premium" if i % 2 else "Free",
                "model": "granite-13b",
                "currentAlloc": {
                    "accelerator": "",
                    "numReplicas": 0,
                    "load": {"arrivalRate": 10 + i, "avgLength": 512},
                },
            },
        }
        for i in range(count)
    ]
