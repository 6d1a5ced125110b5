"""Workloads of every kind that the manifests let the operator scale."""

from typing import Any

from tests.cluster.scene import Scene
from tests.conftest import ROOT
from tests.controlplane.waiting import wait_until

Manifest = dict[str, Any]

DEFINITIONS = ROOT / "tests" / "data" / "workloads"
KINDS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "DisaggregatedSetRoleScaler": "disaggregatedset.x-k8s.io/v1",
}
ONLY_REPLICAS = {"LeaderWorkerSet", "DisaggregatedSetRoleScaler"}
"""Kinds of which the definitions of the tests have the number of replicas only."""

SELECTORS = {"LeaderWorkerSet": "hpaPodSelector", "DisaggregatedSetRoleScaler": "selector"}
"""Kinds whose own controller writes the selector of their pods into their status, and where."""

ACCELERATOR = "G2"
REPLICAS = 2


class Workloads:
    """A workload of each kind in the namespace of the sample `small`, each with its Server.

    Parameters
    ----------
    scene
        The namespace.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def apply(self) -> None:
        """Apply them; nobody makes pods of them."""
        self._scene.apply(*map(_workload, KINDS))
        for kind, field in SELECTORS.items():
            status = {"status": {field: f"app={_name(kind)}"}}
            self._scene.patch(kind, _name(kind), status, "status")
        self._scene.apply(*map(_server, KINDS))

    def wait_until_scaled(self) -> None:
        """Wait until each has the replicas that were decided."""

        def replicas() -> list[int]:
            found = (self._scene.get(kind, _name(kind)) for kind in KINDS)
            return [manifest["spec"]["replicas"] for manifest in found]

        wait_until(replicas, lambda found: set(found) == {REPLICAS}, "scaled workloads")


def _name(kind: str) -> str:
    return f"scaled-{kind.lower()}"


def _workload(kind: str) -> Manifest:
    """A workload whose selector is read from its scale subresource, as it is more than labels."""
    header = {"apiVersion": KINDS[kind], "kind": kind, "metadata": {"name": _name(kind)}}
    labels = {"app": _name(kind)}
    pod = {"spec": {"containers": [{"name": "engine", "image": "engine:1"}]}}
    template = {**pod, "metadata": {"labels": labels}}
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": [_name(kind)]}]}
    more = {"selector": selector, "template": template, "serviceName": "engine"}
    more = {} if kind in ONLY_REPLICAS else more
    if kind == "Deployment":
        del more["serviceName"]
    return {**header, "spec": {"replicas": 0, **more}}


def _server(kind: str) -> Manifest:
    workload = {"apiVersion": KINDS[kind], "kind": kind, "name": _name(kind)}
    return server_that_grows(_name(kind), workloads=[{"accelerator": ACCELERATOR, **workload}])


def server_that_grows(name: str, **places: object) -> Manifest:
    """A Server of the sample's model that is to have more replicas than there are."""
    load = {"arrivalRate": 10, "avgLength": 512}
    return {
        "apiVersion": "inferno.platform.ai/v1alpha1",
        "kind": "Server",
        "metadata": {"name": name},
        "spec": {
            "name": name,
            "class": "Free",
            "model": "granite-13b",
            "minNumReplicas": REPLICAS,
            "currentAlloc": {"accelerator": "", "numReplicas": 0, "load": load},
            **places,
        },
    }
