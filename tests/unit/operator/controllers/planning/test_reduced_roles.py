"""Prefill and decode apart: what a plan takes away is told by role, and either one is vital."""

import pytest

from inferno_operator.controllers.planning.conversions import cards_of, cards_of_placements
from inferno_operator.controllers.planning.proposal import (
    StoredDecision,
    build_proposal,
    compute_totals,
)
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.planning.status import find_hold
from inferno_operator.controllers.planning.updates import build_server_update
from inferno_operator.resources import Optimizer, Placement, PlanTotals, Server, parse
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision, Reason
from inferno_optimizer.system import Allocation, Role
from tests.unit.operator import objects
from tests.unit.operator.controllers.planning.test_proposal import optimization_of
from tests.unit.operator.objects import Manifest

LOAD = {"arrivalRate": 1200, "avgInTokens": 1000, "avgOutTokens": 100}

PAIR = (("A", Role.PREFILL, 5), ("B", Role.DECODE, 8))


def pair(*parts: tuple[str, Role, int]) -> Allocation:
    """Replicas of both roles."""
    roles = tuple(Allocation(accelerator=acc, replicas=n, role=role) for acc, role, n in parts)
    return Allocation(parts[-1][0], sum(n for _, _, n in parts), roles=roles)


def running_apart(prefill: int, decode: int, decode_on: str = "B") -> Manifest:
    """What runs, as a Server has it."""
    runs = {
        "prefill": {"accelerator": "A", "numReplicas": prefill},
        "decode": {"accelerator": decode_on, "numReplicas": decode},
    }
    total = {"accelerator": decode_on, "numReplicas": prefill + decode}
    return {**total, "roles": runs, "load": LOAD}


def server_apart(current: Manifest, name: str = "S") -> Manifest:
    """A Server with workloads of both roles on both accelerators, and of whole replicas on A."""
    low = name.lower()
    workloads = [
        {"accelerator": acc, "role": role, "name": f"{low}-{acc}-{role}".lower()}
        for acc, role in (
            ("A", "Prefill"),
            ("B", "Prefill"),
            ("A", "Decode"),
            ("B", "Decode"),
            ("A", "Both"),
        )
    ]
    return objects.server(name, spec={"workloads": workloads, "currentAlloc": current})


def steps(acc: str, role: str, milliseconds: float) -> Manifest:
    """What a role does in a step of so many milliseconds, and little more for its tokens."""
    times = {"alpha": milliseconds, "kappa": 0, "delta": milliseconds / 1000}
    size = {"maxBatchSize": 8, "atTokens": 256}
    return {"acc": acc, "role": role, "accCount": 1, "stepParms": times, **size}


def model() -> Manifest:
    """Steps of both roles on both accelerators, and of whole replicas on A."""
    data = [
        steps(acc, role, ms)
        for acc in "AB"
        for role, ms in (("Prefill", 100.0), ("Decode", 30.0), ("Both", 30.0))
    ]
    return objects.model(data=data)


def totals(current: Manifest, *after: tuple[str, Role, int], whole: int = 0) -> PlanTotals:
    """A Plan in numbers that decides the replicas of both roles, or so many whole ones on A."""
    manifests = (
        *(objects.accelerator("A"), objects.accelerator("B"), objects.service_class()),
        *(model(), objects.capacity(100), server_apart(current)),
    )
    decided = Allocation("A", whole) if whole else pair(*after)
    decision = Decision("S", Reason.ALLOCATED, "", decided)
    observation = objects.observed_server(manifests[-1])
    update = build_server_update(observation, decision)
    assert observation.resource is not None
    server = observation.resource
    stored = StoredDecision.of(server, update, server.spec.current_alloc)
    resources = [parse(manifest) for manifest in manifests]
    return compute_totals([stored], resources, Catalogue(build_system(resources).system), ())


@pytest.mark.parametrize(
    ("after", "taken"),
    [((5, 8), 0), ((1, 8), 4), ((5, 2), 6), ((4, 6), 3), ((1, 20), 0), ((6, 9), 0)],
    ids=str,
)
def test_replicas_of_both_roles_are_counted_but_where_one_gets_more(
    after: tuple[int, int], taken: int
) -> None:
    found = totals(
        running_apart(5, 8), ("A", Role.PREFILL, after[0]), ("B", Role.DECODE, after[1])
    ).reduction

    assert found is not None
    assert (found.replicas, found.replicas_taken) == (13, taken)


@pytest.mark.parametrize("left", [(0, 8), (5, 0)], ids=str)
def test_the_last_replica_of_a_role_is_the_last_one_of_the_server(left: tuple[int, int]) -> None:
    """Three quarters or more of all replicas stay, and nothing is served."""
    found = totals(running_apart(5, 8), ("A", Role.PREFILL, left[0]), ("B", Role.DECODE, left[1]))
    optimizer = parse(objects.optimizer())
    assert isinstance(optimizer, Optimizer)
    assert found.reduction is not None

    assert (found.reduction.emptied, found.reduction.load_lost) == (("s",), 1200)
    hold = find_hold(optimizer, found, objects.NOW)
    assert hold is not None
    assert hold.reason == "BeyondGuard"


def test_whole_replicas_in_place_of_a_pair_are_a_move() -> None:
    """On A alone before and after: it is a move, although no accelerator changes."""
    found = totals(running_apart(5, 8, decode_on="A"), whole=13).reduction

    assert found is not None
    assert (found.replicas, found.replicas_taken) == (13, 0)


def test_a_step_tells_the_replicas_of_each_role() -> None:
    """The sum on A is the same: without roles nothing would change."""
    current = running_apart(1, 12, decode_on="A")
    manifests = objects.accelerator("A"), objects.accelerator("B"), model(), server_apart(current)
    found = build_proposal(optimization_of(manifests, 100))

    assert found is not None
    before, after = found.steps["s"].before, found.steps["s"].after
    assert [(p.place, p.replicas) for p in before] == [("A decode", 12), ("A prefill", 1)]
    assert {p.role for p in after} in ({"Prefill", "Decode"}, {"Both"})


def test_the_cards_of_a_step_are_those_of_its_roles() -> None:
    server = parse(server_apart(running_apart(5, 8)))
    assert isinstance(server, Server)
    heavy = [{**steps("A", "Prefill", 100.0), "accCount": 4}, steps("B", "Decode", 30.0)]
    resources = [parse(m) for m in (*map(objects.accelerator, "AB"), objects.model(data=heavy))]
    catalogue = Catalogue(build_system([*resources, server]).system)
    placed = [Placement(accelerator=acc, replicas=n, role=role.value) for acc, role, n in PAIR]

    assert cards_of_placements(placed, server, catalogue) == {"T": 5 * 4 + 8}
    assert cards_of(server.spec.current_alloc, server, catalogue) == {"T": 5 * 4 + 8}
