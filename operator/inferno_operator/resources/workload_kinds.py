"""What is special about kinds of workloads: a row for each kind that behaves in its own way."""

from collections.abc import Mapping
from dataclasses import dataclass

from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.workload import Workload

WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """How objects of a kind behave; the defaults are right for every kind that is not listed.

    With `is_one_pod` a replica is one pod, so that its cards are on one node; with
    `loses_unready_first` a reduction removes pods that are not ready before those that are.
    `leader_label` is the label by which the selector of the scale subresource selects only the
    first pod of each replica, and `first_pods` the terms that do so where it selects all pods.
    `instead` is what to name in place of a kind that has no scale subresource.
    """

    is_one_pod: bool = False
    loses_unready_first: bool = False
    leader_label: str = ""
    first_pods: str = ""
    instead: str = "an object that has one, such as a Deployment"

    @property
    def publishes_selector(self) -> bool:
        """Whether the controller of the kind writes the selector of the pods after the creation."""
        return bool(self.leader_label or self.first_pods)


WORKLOAD_KINDS: Mapping[str, WorkloadKind] = {
    "Deployment": WorkloadKind(is_one_pod=True, loses_unready_first=True),
    "ReplicaSet": WorkloadKind(is_one_pod=True, loses_unready_first=True),
    "StatefulSet": WorkloadKind(is_one_pod=True),
    "LeaderWorkerSet": WorkloadKind(leader_label=WORKER_INDEX),
    "DisaggregatedSetRoleScaler": WorkloadKind(first_pods=f"{WORKER_INDEX}=0,"),
    **{
        dialect.serving.kind: WorkloadKind(leader_label=dialect.pod_label("entry"))
        for dialect in DIALECTS.values()
    },
    "InferenceService": WorkloadKind(instead="the Deployment that it owns"),
    "LLMInferenceService": WorkloadKind(instead="the Deployment or LeaderWorkerSet that it owns"),
    "Model": WorkloadKind(instead="spec.modelBooster in place of workloads"),
    "ModelBooster": WorkloadKind(
        instead="spec.modelBooster in place of workloads, or the ModelServing that it owns"
    ),
    "RayCluster": WorkloadKind(instead="a Deployment or LeaderWorkerSet that runs the model"),
    "RayService": WorkloadKind(instead="a Deployment or LeaderWorkerSet that runs the model"),
}

LEADER_LABELS = frozenset(filter(None, (kind.leader_label for kind in WORKLOAD_KINDS.values())))
"""Labels by which selectors of scale subresources select only the first pod of each replica."""

_USUAL = WorkloadKind()


def kind_of_workload(workload: Workload) -> WorkloadKind:
    """Return how the kind of a workload behaves."""
    return WORKLOAD_KINDS.get(workload.kind, _USUAL)
