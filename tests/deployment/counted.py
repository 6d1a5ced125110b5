"""A Capacity whose cards are counted from a node, where the manifests grant the rights."""

from typing import Any

from tests.cluster.scene import Scene, condition
from tests.controlplane import ControlPlane
from tests.deployment.rights import Right

Manifest = dict[str, Any]

NAMESPACE = "counted"
NODE = "counted-node"
GROUP = "inferno.platform.ai/v1alpha1"
NODES = Right("", "nodes", "list")
"""The right without which there is nothing to do here."""


class CountedNode:
    """A namespace with a Capacity and an Accelerator, and a node with its cards.

    Parameters
    ----------
    control_plane
        Where they are applied.
    """

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._scene = Scene(control_plane, NAMESPACE)

    def apply(self) -> None:
        """Apply them."""
        self._control_plane.create_namespace(NAMESPACE)
        accelerator = {"name": "H100", "type": "H100", "cost": 1}
        self._scene.apply(
            _ours("Accelerator", accelerator), _ours("Capacity", {"fromNodes": True}), _node()
        )

    def wait_until_counted(self) -> None:
        """Wait until the cards of the node are told."""

        def is_counted(capacity: Manifest) -> bool:
            return condition(capacity, "Counted").get("reason") == "Counted"

        self._control_plane.wait_for("capacity", "h100", is_counted, NAMESPACE)

    @property
    def left(self) -> list[Manifest]:
        """What would stay."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        return [_node(), namespace]


def _ours(kind: str, spec: Manifest) -> Manifest:
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "h100"}, "spec": spec}


def _node() -> Manifest:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}
