"""A server goes from replicas that do both to prefill and decode apart, with operators killed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from inferno_operator.resources.dialects import KTHENA
from tests.cluster.apart import CARDS, LOOSE, TIGHT, documents, server, sizes, targets
from tests.cluster.kubelet import Rule, Witness, running_pods
from tests.cluster.role_pods import (
    Role,
    objects_of,
    of_disaggregated_set,
    of_leader_worker_set,
    of_serving,
    running_roles,
)
from tests.cluster.scene import ACCOUNT, Scene, condition
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.deployments import deployment
from tests.controlplane.waiting import wait_until
from tests.tiers import extended

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures(
    "crds_installed", "deployment_controllers", "boosters_installed", "groups_installed"
)

TOGETHER, PREFILL, DECODE = "both-h100", "prefill-l40s", "decode-h100"

KINDS: Mapping[str, tuple[Callable[[str, int], Role], int]] = {
    "LeaderWorkerSets": (of_leader_worker_set, 2),
    "scalers of a DisaggregatedSet": (of_disaggregated_set, 2),
    "one ModelServing of several pods": (of_serving(KTHENA), 2),
}
"""What runs the roles, and pods of each replica; each pod has a card.

Servings of one pod are tested with their boosters.
"""

SEVERAL_PODS = "one ModelServing of several pods"
"""The kind that goes apart and back beside Deployments."""


@dataclass(frozen=True, slots=True)
class Runs:
    """What runs the roles of a server.

    Attributes
    ----------
    workloads
        The workloads of both roles.
    manifests
        The objects.
    pods
        Pods of a replica.
    """

    workloads: Sequence[Manifest]
    manifests: Sequence[Manifest]
    pods: int = 1


def cards_for(runs: Runs) -> Mapping[str, int]:
    return {name: count * runs.pods for name, count in CARDS.items()}


def manifests(itl: int, runs: Runs) -> Iterator[Manifest]:
    """The sample, where each pod of a replica has a card."""
    workloads = [{"accelerator": "H100", "name": TOGETHER}, *runs.workloads]
    for found in documents(itl, cards_for(runs), workloads=workloads):
        if found["kind"] == "Model":
            for data in found["spec"]["data"]:
                data["accCount"] *= runs.pods
        yield found


@pytest.fixture(params=["Deployments", *extended(*KINDS)])
def runs(
    request: pytest.FixtureRequest, control_plane: ControlPlane, scene: Scene
) -> Iterator[Runs]:
    """What runs the roles, with somebody who creates their pods."""
    places = ("L40S", "Prefill", PREFILL), ("H100", "Decode", DECODE)
    if request.param not in KINDS:
        workloads = [{"accelerator": a, "role": role, "name": name} for a, role, name in places]
        yield Runs(workloads, [deployment(name) for _, _, name in places])
        return
    role_of, pods = KINDS[request.param]
    roles = [role_of(name, pods) for _, _, name in places]
    workloads = [role.workload(a, name) for role, (a, name, _) in zip(roles, places, strict=True)]
    with running_roles(control_plane.kubeconfig, scene.namespace, roles):
        yield Runs(workloads, list(objects_of(roles)), pods)


@pytest.fixture
def witness(control_plane: ControlPlane, scene: Scene, runs: Runs) -> Iterator[Witness]:
    """Pods start and end in the test's namespace, and somebody counts their cards."""
    with running_pods(control_plane.kubeconfig, scene.namespace, cards_for(runs)) as witness:
        yield witness


def test_both_roles_move_together_with_the_operator_killed_in_between(
    scene: Scene, operator: StartOperator, witness: Witness, runs: Runs
) -> None:
    chance = Random(1)  # noqa: S311 - the same moments each run
    scene.apply(
        ACCOUNT,
        deployment(TOGETHER),
        *runs.manifests,
        *manifests(LOOSE, runs),
    )
    running = operator()
    wait_until(lambda: server(scene), _has_arrived, "replicas that do both")
    scene.wait_until_done("apart")  # else what is asked for next is taken for the same
    together = server(scene)["spec"]["currentAlloc"]["numReplicas"]

    gaps, kills = [], 0
    scene.patch("serviceclass", "premium", {"spec": {"data": targets(TIGHT)}})
    scene.request("apart")
    least = wait_until(
        lambda: sizes(server(scene)["spec"].get("desiredAlloc", {})), bool, "a decision apart"
    )

    def look() -> bool:
        serving = witness.serving()
        apart = all(serving[role] >= least[role] for role in least)
        if serving["both"] < together and not apart:
            gaps.append(dict(serving))
        return apart and not serving["both"] and _has_arrived(server(scene))

    for _ in range(4):
        witness.pause(chance.uniform(0.1, 0.9))
        look()
        running.kill()
        running, kills = operator(), kills + 1
    wait_until(look, bool, "both roles")

    assert gaps == []
    assert witness.broken == []
    assert kills == 4
    current = wait_until(lambda: sizes(server(scene)["spec"]["currentAlloc"]), bool, "what runs")
    assert current == least
    assert server(scene)["spec"]["currentAlloc"]["numReplicas"] == sum(least.values())


def enough(decisions: Sequence[Manifest]) -> Rule:
    """Whether what is ready carries the load that decisions are for, as a sum of their shares."""
    whole = next(each["numReplicas"] for each in decisions if "roles" not in each)
    wanted = next(sizes(each) for each in decisions if "roles" in each)

    def carries(ready: Mapping[str, int]) -> bool:
        apart: float = min(ready.get(role, 0) / size for role, size in wanted.items())
        return bool(ready.get("both", 0) / whole + apart >= 1)

    return carries


def half_of(sample: Iterator[Manifest]) -> Iterator[Manifest]:
    for each in sample:
        if each["kind"] == "Server":
            each["spec"]["currentAlloc"]["load"]["arrivalRate"] /= 2
        yield each


@pytest.mark.extended
@pytest.mark.parametrize("runs", ["Deployments", SEVERAL_PODS], indirect=True)
def test_a_server_goes_apart_and_back_while_its_load_doubles(
    scene: Scene, operator: StartOperator, witness: Witness, runs: Runs
) -> None:
    def decided(itl: int, *, apart: bool, times: int = 1) -> Manifest:
        """The decision for a target of the inter-token latency, and so much more load."""
        scene.wait_until_done("apart")
        load = {**server(scene)["spec"]["currentAlloc"]["load"]}
        load["arrivalRate"] *= times
        scene.patch("server", "documents", {"spec": {"currentAlloc": {"load": load}}})
        scene.patch("serviceclass", "premium", {"spec": {"data": targets(itl)}})
        scene.optimize("apart")
        found: Manifest = server(scene)["spec"]["desiredAlloc"]
        assert ("roles" in found) == apart
        return found

    def arrived(whole: Manifest) -> None:
        wanted = {"both": 0, "prefill": 0, "decode": 0}
        wanted |= sizes(whole) or {"both": whole["numReplicas"]}
        wait_until(
            witness.serving,
            lambda now: {name: now[name] for name in wanted} == wanted,
            f"{wanted} and no others",
        )
        wait_until(lambda: server(scene), _has_arrived, "the condition")

    scene.apply(
        ACCOUNT,
        deployment(TOGETHER),
        *runs.manifests,
        *half_of(manifests(LOOSE, runs)),
    )
    running = operator()
    few = decided(LOOSE, apart=False)
    arrived(few)

    few_apart = decided(TIGHT, apart=True)
    witness.keep(enough([few, few_apart]))
    many_apart = decided(TIGHT, apart=True, times=2)  # in the middle of the move
    running.kill()
    running = operator()
    arrived(many_apart)

    many = decided(LOOSE, apart=False)
    witness.keep(enough([many, many_apart]))
    running.kill()
    operator()
    arrived(many)

    assert witness.broken == []
    assert few["numReplicas"] < many["numReplicas"]
    assert sizes(few_apart)["prefill"] < sizes(many_apart)["prefill"]
    assert "roles" not in server(scene)["spec"]["currentAlloc"]


def _has_arrived(server: Manifest) -> bool:
    reason = condition(server, "Actuated").get("reason")
    return reason == "Actuated" and server["spec"].get("desiredAlloc", {}).get("numReplicas", 0) > 0
