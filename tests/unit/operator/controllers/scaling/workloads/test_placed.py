"""The replicas that run for a Server, from its workloads and those that it names no more."""

from inferno_operator.controllers.scaling.decision import PlacedReplicas, WantedReplicas
from inferno_operator.controllers.scaling.pods import PodCounts
from inferno_operator.controllers.scaling.scaled_server import (
    ObservedWorkload,
    ScaledServer,
)
from inferno_operator.resources import Workload
from inferno_optimizer.system import Role
from tests.unit.operator import objects


def workload(name: str, accelerator: str, role: str, ready: int, starting: int) -> ObservedWorkload:
    named = Workload.model_validate({"name": name, "accelerator": accelerator, "role": role})
    return ObservedWorkload(named, pods=PodCounts(ready=ready, starting=starting))


def placed(*found: ObservedWorkload, left: ObservedWorkload) -> list[PlacedReplicas]:
    observation = objects.observed_server(objects.server())
    assert observation.resource
    wanted = WantedReplicas(None, "nothing is decided")
    scaled = ScaledServer(observation, observation.resource, wanted, found, (left,))
    return [*scaled.list_placed({"A prefill": 1})]


def test_the_replicas_of_a_renamed_workload_count_with_those_of_its_successor() -> None:
    prefill, decode = workload("p", "A", "Prefill", 2, 0), workload("d", "B", "Decode", 1, 1)

    assert placed(prefill, decode, left=workload("old", "A", "Prefill", 3, 1)) == [
        PlacedReplicas("B", 1, cold=0, starting=1, role=Role.DECODE),
        PlacedReplicas("A", 5, cold=1, starting=1, role=Role.PREFILL),
    ]


def test_while_replicas_that_do_both_are_left_they_are_what_runs() -> None:
    prefill, decode = workload("p", "A", "Prefill", 2, 0), workload("d", "B", "Decode", 1, 1)

    assert placed(prefill, decode, left=workload("old", "C", "Both", 0, 1)) == [
        PlacedReplicas("C", 0, starting=1)
    ]
