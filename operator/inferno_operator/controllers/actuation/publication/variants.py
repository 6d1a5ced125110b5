"""The names by which users of llm-d know workloads: those of their autoscalers; pure."""

from collections.abc import Iterable, Mapping

from inferno_operator.controllers.actuation.autoscalers import scaled_object_of, target_of
from inferno_operator.controllers.actuation.publication.published import Published
from inferno_operator.resources.objects import Manifest

MANAGED = "llm-d.ai/managed"
"""The annotation of autoscalers that scale by the wva_* metrics; KEDA copies it to its HPA."""

WorkloadTarget = tuple[str, str, str, str]
"""Namespace, API group, kind and name of a workload."""


def variants(autoscalers: Iterable[Manifest]) -> Mapping[WorkloadTarget, str]:
    """Return the name of the annotated autoscaler of each workload.

    That of an HPA that belongs to a ScaledObject is the name of the ScaledObject.
    """
    names = {}
    for autoscaler in autoscalers:
        metadata = autoscaler["metadata"]
        if metadata.get("annotations", {}).get(MANAGED) == "true":
            target = metadata["namespace"], *target_of(autoscaler)
            names[target] = scaled_object_of(autoscaler) or metadata["name"]
    return names


def variant(decision: Published, accelerator: str, known: Mapping[WorkloadTarget, str]) -> str:
    """Return the name of the workload on an accelerator: of its autoscaler, or its own.

    Without a workload it is the name of the Server.
    """
    workload = decision.workloads.get(accelerator)
    if workload is None:
        return decision.key.name
    group = workload.api_version.rpartition("/")[0]
    target = decision.key.namespace, group, workload.kind, workload.name
    return known.get(target, workload.name)
