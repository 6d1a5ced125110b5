"""A namespace with a sample in it, and the four ways to run an operator there."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.waiting import wait_until
from tests.rest_optimizer import RestOptimizer

Manifest = dict[str, Any]

ASK = {"spec": {"optimize": True}}

FINALIZER = "inferno.platform.ai/finalizer"

MODES = ("stateless-local", "stateless-remote", "stateful-local", "stateful-remote")


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run: the operator's environment, and the remote optimizer where there is one."""

    environment: Mapping[str, str]
    rest: RestOptimizer | None
    holds: bool = False
    """Whether objects carry our finalizer."""


@contextmanager
def mode_called(name: str) -> Iterator[Mode]:
    """A way to run, with its optimizer at work."""
    environment = {"INFERNO_STATELESS": str(name.startswith("stateless"))}
    if name.endswith("local"):
        yield Mode(environment, None)
        return
    with RestOptimizer() as rest:
        address = {"INFERNO_HOST": "127.0.0.1", "INFERNO_PORT": str(rest.port)}
        yield Mode({**environment, **address}, rest, holds=name == "stateful-remote")


def in_mode(operator: StartOperator, mode: Mode) -> StartOperator:
    """Start operators that run in one way."""

    def start(
        *,
        environment: Mapping[str, str] | None = None,
        **where: Any,  # noqa: ANN401 - handed on
    ) -> OperatorProcess:
        return operator(environment={**mode.environment, **(environment or {})}, **where)

    return start


class Scene:
    """A namespace, and what a test asks of it."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.control_plane = control_plane
        self.namespace = namespace

    def apply_sample(self, name: str) -> None:
        folder = ROOT / "samples" / name
        self.control_plane.kubectl("apply", "--namespace", self.namespace, "--kustomize", folder)

    def apply(self, *manifests: Manifest) -> None:
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        self.control_plane.kubectl(
            "apply", "--namespace", self.namespace, "-f", "-", input=document
        )

    def request(self, optimizer: str) -> None:
        self.control_plane.patch("optimizer", optimizer, ASK, self.namespace)

    def optimizer(self, name: str) -> Manifest:
        return self.control_plane.get("optimizer", name, self.namespace)

    def wait_until_done(self, optimizer: str) -> Manifest:
        def done(manifest: Manifest) -> bool:
            return not manifest["spec"]["optimize"] and manifest["status"]["done"]

        return self.control_plane.wait_for("optimizer", optimizer, done, self.namespace, 60.0)

    def wait_until_failed(self, optimizer: str) -> Manifest:
        def failed(manifest: Manifest) -> bool:
            return condition(manifest, "Optimized").get("status") == "False"

        return self.control_plane.wait_for("optimizer", optimizer, failed, self.namespace, 60.0)

    def wait_until_held(self, mode: Mode) -> None:
        """Wait until every object has the finalizer that it has in this mode, if it has one."""

        def held(finalizers: Mapping[str, list[str]]) -> bool:
            return all(
                names == ([FINALIZER] if mode.holds and not place.startswith("Optimizer/") else [])
                for place, names in finalizers.items()
            )

        wait_until(self.finalizers, held, "finalizers as they should be", 60.0)

    def wait_for_condition(self, optimizer: str, reason: str) -> Manifest:
        def told(manifest: Manifest) -> bool:
            return condition(manifest, "Optimized").get("reason") == reason

        return self.control_plane.wait_for("optimizer", optimizer, told, self.namespace, 60.0)

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
