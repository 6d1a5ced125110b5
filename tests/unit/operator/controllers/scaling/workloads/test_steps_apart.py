"""Servers that go from replicas that do both to prefill and decode apart, and back."""

from dataclasses import replace
from random import Random

import pytest

from inferno_operator.controllers.scaling.steps import ReplicaTarget, ServerTargets, next_steps
from inferno_optimizer.system import Role
from tests.tiers import sampled
from tests.unit.operator.controllers.scaling.workloads.pods import Scene, Server, Workload


def server(load: float, together: int = 0, prefill: int = 0, decode: int = 0) -> Server:
    """A server whose replicas do both, or prefill and decode, all on cards of one type."""
    return Server(
        1,
        {
            "A": Workload(10.0, wanted=together),
            "A prefill": Workload(20.0, wanted=prefill, role=Role.PREFILL),
            "A decode": Workload(10.0, wanted=decode, role=Role.DECODE),
        },
        load,
    )


def replan(of: Server, together: int = 0, prefill: int = 0, decode: int = 0) -> None:
    for workload, wanted in zip(of.workloads.values(), (together, prefill, decode), strict=True):
        workload.wanted = wanted


@pytest.mark.parametrize("seed", sampled(range(40)))
@pytest.mark.parametrize("deadly", [0.0, 0.5])
@pytest.mark.parametrize("most", [9, 12, 20])
def test_a_move_of_both_roles_keeps_the_load_and_the_cards_whenever_the_operator_is_killed(
    seed: int, deadly: float, most: int
) -> None:
    chance = Random(seed)  # noqa: S311 - the same events each time
    moving = server(load=36, together=4)
    scene = Scene({"s": moving, "t": server(load=9, together=1)}, {"A": most}, seed, deadly)
    scene.start()
    for plan in ((0, 2, 4), (4, 0, 0), (0, 2, 5), (0, 3, 4)):
        replan(moving, *plan)
        scene.run(chance.randint(3, 9) if chance.random() < 0.3 else 100_000)
    scene.run()

    assert scene.broken == []
    assert moving.is_done
    assert moving.carried >= moving.load


def test_replicas_that_do_both_stay_until_both_roles_are_ready() -> None:
    def targets(prefill: int, decode: int) -> ServerTargets:
        found = (
            ReplicaTarget("A", "A", 1, 0, 2, 2, 2, rate=10.0),
            ReplicaTarget("B prefill", "B", 1, 1, 1, 1, prefill, rate=20.0, role=Role.PREFILL),
            ReplicaTarget("C decode", "C", 1, 2, 2, 2, decode, rate=10.0, role=Role.DECODE),
        )
        return ServerTargets("s", 1, 20.0, found)

    capacity = {"A": 2, "B": 1, "C": 2}

    assert next_steps([targets(1, 0)], capacity).replicas == {}
    assert next_steps([targets(0, 2)], capacity).replicas == {}
    assert next_steps([targets(1, 2)], capacity).replicas == {("s", "A"): 0}


def test_one_role_is_not_reduced_below_what_the_other_needs_of_it() -> None:
    found = (
        ReplicaTarget("B prefill", "B", 1, 1, 2, 2, 2, rate=20.0, role=Role.PREFILL),
        ReplicaTarget("C decode", "C", 1, 3, 3, 3, 3, rate=10.0, role=Role.DECODE),
    )

    assert next_steps([ServerTargets("s", 1, 20.0, found)], {"B": 2, "C": 3}).replicas == {
        ("s", "B prefill"): 1
    }
    assert next_steps([ServerTargets("s", 1, 30.0, found)], {"B": 2, "C": 3}).replicas == {}


def without_load(*targets: ReplicaTarget) -> ServerTargets:
    return ServerTargets("s", 1, 0.0, targets)


LAST = ReplicaTarget("A prefill", "A", 1, 0, 1, 1, 1, rate=20.0, role=Role.PREFILL)
NEXT = ReplicaTarget("B prefill", "A", 1, 1, 0, rate=20.0, role=Role.PREFILL)
DECODE = ReplicaTarget("C decode", "C", 1, 1, 1, 1, 1, rate=10.0, role=Role.DECODE)


def test_the_last_replica_of_a_role_stays_without_load_until_another_is_ready() -> None:
    moving = without_load(LAST, NEXT, DECODE)

    assert next_steps([moving], {"A": 1, "C": 1}).replicas == {}
    assert next_steps([moving], {"A": 2, "C": 1}).replicas == {("s", "B prefill"): 1}


def test_both_roles_go_when_replicas_that_do_both_are_ready() -> None:
    together = ReplicaTarget("A", "A", 1, 1, 1, 1, 1, rate=10.0)
    leaving = without_load(together, LAST, replace(DECODE, wanted=0))

    steps = next_steps([leaving], {"A": 2, "C": 1}).replicas

    assert steps == {("s", "A prefill"): 0, ("s", "C decode"): 0}
