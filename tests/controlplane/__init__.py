"""A real Kubernetes control plane for tests and the demo: etcd, kube-apiserver, kubectl."""

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.errors import ControlPlaneError

__all__ = ["ControlPlane", "ControlPlaneError"]
