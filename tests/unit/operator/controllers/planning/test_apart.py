"""Prefill and decode apart, from objects to a System and from a decision to a Server."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import yaml

from inferno_operator.cli.offline.system import read_system
from inferno_operator.controllers.planning.conversions import build_desired, cards_of
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.planning.updates import find_spec_change, is_same_placement
from inferno_operator.controllers.scaling.decision import read_decision
from inferno_operator.resources import Server, parse
from inferno_operator.resources.observation import observe
from inferno_optimizer.errors import InputError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Allocation, Role, System, Transfer
from inferno_optimizer.wire.codec import (
    decode_solution,
    decode_system,
    encode_solution,
    encode_system,
)
from tests.controlplane.processes import ROOT

PARTS = (
    Allocation("L40S", 2, max_batch_size=8, cost=180, role=Role.PREFILL),
    Allocation("H100", 3, max_batch_size=64, cost=900, role=Role.DECODE),
)
APART = Allocation("H100", 5, max_batch_size=64, cost=1080, roles=PARTS)

MANIFEST = """
apiVersion: inferno.platform.ai/v1alpha1
kind: Server
metadata: {name: chat, namespace: default, uid: u, resourceVersion: "1", generation: 1}
spec:
  name: chat
  class: Premium
  model: qwen3-8b
  workloads:
  - {accelerator: H100, name: chat}
  - {accelerator: H100, role: Decode, name: chat-decode}
  - {accelerator: L40S, role: Prefill, name: chat-prefill}
  currentAlloc:
    accelerator: H100
    numReplicas: 5
    roles:
      prefill: {accelerator: L40S, numReplicas: 2}
      decode: {accelerator: H100, numReplicas: 3}
    load: {arrivalRate: 600, avgInTokens: 8000, avgOutTokens: 256}
"""


@pytest.fixture
def system() -> System:
    """The sample."""
    return read_system([str(ROOT / "samples/apart")])


def test_data_with_a_role_are_no_data_of_replicas_that_do_both(system: System) -> None:
    assert [profile.accelerator for profile in system.profiles] == ["H100"]
    assert [(role.accelerator, role.role) for role in system.roles] == [
        ("H100", Role.PREFILL),
        ("H100", Role.DECODE),
        ("L40S", Role.PREFILL),
    ]
    assert system.roles[0].transfer == Transfer(5.0, 0.002)


def test_a_role_needs_parameters_of_steps() -> None:
    data = {"acc": "H100", "role": "Decode", "accCount": 1, "alpha": 1, "beta": 1}
    spec = {"name": "m", "data": [{**data, "maxBatchSize": 1, "atTokens": 1}]}
    body = {"apiVersion": "inferno.platform.ai/v1alpha1", "kind": "Model", "spec": spec}

    with pytest.raises(InputError, match="a role needs stepParms"):
        parse({**body, "metadata": {"name": "m"}})


def test_a_server_may_be_apart_where_it_names_workloads_of_both_roles() -> None:
    server = build_system([parse(yaml.safe_load(MANIFEST))]).system.servers[0]

    assert server.accelerators == ("H100",)
    assert server.prefill_accelerators == ("L40S",)
    assert server.decode_accelerators == ("H100",)
    assert [(part.accelerator, part.replicas, part.role) for part in server.current.roles] == [
        ("L40S", 2, Role.PREFILL),
        ("H100", 3, Role.DECODE),
    ]


def test_cold_prefill_replicas_reach_the_optimizer_over_the_wire_too() -> None:
    manifest = yaml.safe_load(MANIFEST)
    manifest["spec"]["currentAlloc"]["roles"]["prefill"]["coldReplicas"] = 1
    system = build_system([parse(manifest)]).system

    for found in (system, decode_system(json.loads(json.dumps(encode_system(system))))):
        prefill, decode = found.servers[0].current.roles
        assert (prefill.warm_replicas, decode.warm_replicas) == (1, 3)


def test_replicas_of_a_role_that_start_are_of_the_plan_cold_and_paid_for(system: System) -> None:
    manifest = yaml.safe_load(MANIFEST)
    manifest["spec"]["currentAlloc"]["roles"]["prefill"]["startingReplicas"] = 1
    sample = yaml.safe_load_all((ROOT / "samples/apart/fleet.yaml").read_text())
    others = [item for item in sample if item["kind"] not in ("Server", "Optimizer")]
    prices = {a.name: a.cost for a in system.accelerators}

    (found,) = build_system([parse(item) for item in (*others, manifest)]).system.servers

    prefill, decode = found.current.roles
    assert (prefill.replicas, prefill.cold_replicas, decode.replicas) == (3, 1, 3)
    assert found.current.replicas == 6
    assert found.current.cost == 3 * prices["L40S"] + 3 * prices["H100"]


def test_a_system_and_its_solution_come_back_from_json(system: System) -> None:
    solution = optimize(system)
    again = decode_system(json.loads(json.dumps(encode_system(system))))
    answer = decode_solution(json.loads(json.dumps(encode_solution(solution))), system)

    assert again.roles == system.roles
    for server, allocation in solution.allocations.items():
        told = answer.allocations[server]
        assert told.placement == allocation.placement
        assert told.cost == allocation.cost
        assert "prefill" in told.placement


def test_a_system_without_roles_says_nothing_of_them() -> None:
    document = json.dumps(encode_system(read_system([str(ROOT / "samples/small")])))

    assert "role" not in document


def test_both_roles_are_written_and_a_change_of_one_is_a_move() -> None:
    written = build_desired(APART)
    fewer = {**written["roles"]["prefill"], "numReplicas": 1}
    other = {**written, "roles": {**written["roles"], "prefill": fewer}}

    assert written["roles"] == {
        "prefill": {"accelerator": "L40S", "numReplicas": 2, "maxBatch": 8, "cost": 180},
        "decode": {"accelerator": "H100", "numReplicas": 3, "maxBatch": 64, "cost": 900},
    }
    assert is_same_placement(written, written)
    assert not is_same_placement(written, other)


def test_a_decision_together_replaces_one_apart() -> None:
    manifest = yaml.safe_load(MANIFEST)
    manifest["spec"]["desiredAlloc"] = build_desired(APART)
    together = {k: v for k, v in build_desired(APART).items() if k != "roles"}

    server = parse(manifest)
    assert isinstance(server, Server)

    assert find_spec_change(server, build_desired(APART)) is None
    assert find_spec_change(server, together) == {"desiredAlloc": together}


def test_a_decision_apart_wants_replicas_of_both_roles() -> None:
    manifest = yaml.safe_load(MANIFEST)
    manifest["spec"]["desiredAlloc"] = build_desired(APART)
    time = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
    told: dict[str, object] = {"type": "Allocated", "status": "True", "reason": "Allocated"}
    told |= {"message": "x", "lastTransitionTime": time, "observedGeneration": 1}
    manifest["status"] = {"conditions": [told]}

    server = observe(Server, manifest).resource
    assert isinstance(server, Server)
    found = read_decision(server)

    assert found.replicas == {"L40S prefill": 2, "H100 decode": 3}


@pytest.mark.parametrize("goal", ["H100", "L40S prefill + H100 decode"])
def test_a_server_that_has_just_moved_stays_together_or_apart(system: System, goal: str) -> None:
    """What is cheaper elsewhere is no reason; the sample is cheaper apart, and then together."""
    (server,) = (each for each in system.servers if each.name == "documents")
    loose = {
        name: replace(target, itl_ms=0.0) for name, target in system.classes[0].targets.items()
    }
    classes = (replace(system.classes[0], targets=loose), *system.classes[1:])
    cheaper_together = goal != "H100"
    asked = replace(
        system, servers=(server,), classes=classes if cheaper_together else system.classes
    )
    settled = replace(asked, servers=(replace(server, destination=goal),))

    free, held = (optimize(each).allocations["documents"].place for each in (asked, settled))

    assert (free != goal, held) == (True, goal)


def test_each_role_has_its_own_number_of_cards(system: System) -> None:
    several = tuple(replace(role, accelerator_count=3) for role in system.roles)
    server = parse(yaml.safe_load(MANIFEST))
    assert isinstance(server, Server)
    apart = server.spec.current_alloc
    together = apart and apart.model_copy(update={"roles": None})

    catalogue = Catalogue(replace(system, roles=several))

    assert cards_of(apart, server, catalogue) == {"L40S": 2 * 3, "H100": 3 * 3}
    assert cards_of(together, server, catalogue) == {"H100": 5}
