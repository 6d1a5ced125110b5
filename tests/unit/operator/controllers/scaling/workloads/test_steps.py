"""The order of steps over all servers, against simulated pods in virtual time."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.scaling.steps import (
    ReplicaTarget,
    ServerTargets,
    State,
    next_steps,
)
from tests.examples import several
from tests.unit.operator.controllers.scaling.workloads.pods import (
    CARDS,
    Scene,
    Server,
    Workload,
)

FULL = {"A": 40, "B": 40, "C": 20}


def server(load: float = 0.0, priority: int = 1, **wanted: int) -> Server:
    """A server on these accelerators; each replica carries 10 requests/min."""
    return Server(priority, {name: Workload(10.0, wanted=n) for name, n in wanted.items()}, load)


def replan(scene: Scene, plan: Mapping[str, Mapping[str, int]]) -> None:
    for name, wanted in plan.items():
        for accelerator, workload in scene.servers[name].workloads.items():
            workload.wanted = wanted.get(accelerator, 0)


def random_server(chance: Random) -> Server:
    accelerators = chance.sample(sorted(CARDS), chance.randint(1, 4))
    rates = 5.0, 10.0, 14.0, 40.0
    workloads = {
        a: Workload(chance.choice(rates), ordinal=chance.random() < 0.5) for a in accelerators
    }
    return Server(chance.randint(1, 3), workloads)


def plan_at_random(scene: Scene, chance: Random) -> None:
    """Give the cards to the servers at random, until the pools are full, and new loads."""
    left = dict(scene.capacity)
    servers = list(scene.servers.values())
    for each in servers:
        for workload in each.workloads.values():
            workload.wanted = 0
    chance.shuffle(servers)
    for _ in range(4):
        for each in servers:
            accelerator = chance.choice(sorted(each.workloads))
            if left[accelerator[0]] >= CARDS[accelerator]:
                left[accelerator[0]] -= CARDS[accelerator]
                each.workloads[accelerator].wanted += 1
    for each in servers:
        planned = sum(w.rate * w.wanted for w in each.workloads.values())
        each.load = planned * chance.uniform(0.2, 1.0)


def run_at_random(seed: int, servers: int, plans: int, deadly: float) -> Scene:
    """Carry out one random plan after the other; none may end without a reason."""
    chance = Random(seed)  # noqa: S311 - the same plans each time
    scene = Scene({f"s{i:02}": random_server(chance) for i in range(servers)}, FULL, seed, deadly)
    plan_at_random(scene, chance)
    scene.start()
    for _ in range(plans):
        for _ in range(chance.randint(0, 2)):  # plans that the next one replaces on the way
            plan_at_random(scene, chance)
            scene.run(chance.randint(1, 2 * servers))
        plan_at_random(scene, chance)
        scene.run()
        unexplained = [
            name
            for name, each in scene.servers.items()
            if not each.is_done and scene.state(name) != State.BLOCKED
        ]
        done_but_blocked = [
            name
            for name, each in scene.servers.items()
            if each.is_done and scene.state(name) != State.STEADY
        ]
        assert (unexplained, done_but_blocked, scene.broken) == ([], [], [])
    return scene


@pytest.mark.extended
@pytest.mark.parametrize("deadly", [0.0, 0.3])
def test_thirty_plans_for_forty_servers_on_full_pools_never_exceed_the_cards_or_drop_load(
    deadly: float,
) -> None:
    scene = run_at_random(seed=1, servers=40, plans=30, deadly=deadly)

    assert scene.writes > 1000


@several(40)
@given(st.integers(0, 10**9), st.integers(2, 12), st.sampled_from([0.0, 0.5]))
def test_random_plans_keep_the_cards_and_the_loads_and_end(
    seed: int, servers: int, deadly: float
) -> None:
    scene = run_at_random(seed, servers, plans=3, deadly=deadly)

    assert scene.broken == []


def test_two_servers_that_swap_full_pools_finish_by_themselves() -> None:
    scene = Scene(
        {"s": server(load=25, A=4, B=0), "t": server(load=25, A=0, B=4)}, {"A": 4, "B": 4}
    )
    scene.start()
    replan(scene, {"s": {"B": 4}, "t": {"A": 4}})

    scene.run()

    assert all(each.is_done for each in scene.servers.values())
    assert scene.broken == []


def test_a_server_that_can_do_without_lends_a_card_for_a_swap_and_gets_it_back() -> None:
    scene = Scene(
        {
            "s": server(load=20, A=2, B=0),
            "t": server(load=20, A=0, B=2),
            "u": server(load=5, A=2),
        },
        {"A": 4, "B": 2},
    )
    scene.start()
    replan(scene, {"s": {"B": 2}, "t": {"A": 2}, "u": {"A": 2}})

    scene.run()

    assert all(each.is_done for each in scene.servers.values())
    assert scene.broken == []


def test_the_last_replica_of_an_idle_server_is_not_lent() -> None:
    swap = [targets(20, A=(0, 2, 2), B=(2, 0, 0)), targets(20, name="t", A=(2, 0, 0), B=(0, 2, 2))]
    idle, spare = (targets(0, name="u", A=(n, n, n)) for n in (1, 2))

    assert next_steps([*swap, idle], {"A": 3, "B": 2}).replicas == {}
    assert next_steps([*swap, spare], {"A": 4, "B": 2}).replicas == {("u", "A"): 1}


@pytest.mark.parametrize(("lender", "lends"), [("a", {}), ("z", {("z", "B"): 1})])
def test_a_server_that_would_take_the_card_back_first_lends_none(
    lender: str, lends: Mapping[tuple[str, str], int]
) -> None:
    """Such a server lost a replica and got it back, again and again."""
    lending = targets(30, name=lender, B=(2, 2, 2), B2=(1, 0, 0), C=(0, 2, 2))
    waiting = targets(20, name="b", A=(0, 1, 1), B=(2, 1, 1))
    other = targets(30, name="c", A4=(1, 0, 0), B=(0, 3, 3))

    steps = next_steps([lending, waiting, other], {"A": 4, "B": 6, "C": 2})

    assert steps.replicas == lends


def test_a_swap_that_nobody_can_begin_is_blocked_and_says_which_cards_are_missing() -> None:
    scene = Scene(
        {"s": server(load=20, A=2, B=0), "t": server(load=20, A=0, B=2)}, {"A": 2, "B": 2}
    )
    scene.start()
    replan(scene, {"s": {"B": 2}, "t": {"A": 2}})

    scene.run()

    assert {n: (p.state, p.missing) for n, p in scene.progress.items()} == {
        "s": (State.BLOCKED, {"B": 2}),
        "t": (State.BLOCKED, {"A": 2}),
    }
    assert scene.writes == 0


def test_a_switch_gets_all_new_replicas_before_it_loses_an_old_one() -> None:
    first = next_steps([targets(A=(0, 3, 3), B=(2, 0, 0))], {"A": 3, "B": 2})
    starting = next_steps([targets(A=(0, 3, 3), B=(2, 2, 1))], {"A": 3, "B": 2})
    ready = next_steps([targets(A=(0, 3, 3), B=(2, 2, 2))], {"A": 3, "B": 2})

    assert first.replicas == {("s", "B"): 2}
    assert starting.replicas == {}
    assert ready.replicas == {("s", "A"): 0}


def targets(
    load: float = 5.0, *, name: str = "s", priority: int = 1, **counts: tuple[int, int, int]
) -> ServerTargets:
    """A server with wanted, written and ready replicas; all written ones exist."""
    found = tuple(
        ReplicaTarget(a, a[0], CARDS[a], wanted, spec, spec, ready, rate=10.0)
        for a, (wanted, spec, ready) in counts.items()
    )
    return ServerTargets(name, priority, load, found)


def test_the_cards_go_to_the_most_important_class_and_then_by_name() -> None:
    servers = [
        targets(name="a", priority=2, A=(2, 0, 0)),
        targets(name="c", priority=1, A=(2, 0, 0)),
        targets(name="b", priority=1, A=(2, 0, 0)),
    ]

    steps = next_steps(servers, {"A": 3})

    assert steps.replicas == {("b", "A"): 2, ("c", "A"): 1}
    assert steps.progress["a"].state == State.BLOCKED
    assert steps.progress["a"].missing == {"A": 2}


def test_a_reduction_that_the_present_load_forbids_is_not_made() -> None:
    steps = next_steps([targets(load=35, A=(2, 5, 5))], {"A": 5})

    assert steps.replicas == {("s", "A"): 4}


def test_best_effort_gives_the_cards_up_although_the_load_needs_them() -> None:
    plain = targets(load=35, A=(2, 4, 4))
    best_effort = ServerTargets("s", 1, 35, plain.targets, is_best_effort=True)

    assert next_steps([best_effort], {"A": 4}).replicas == {("s", "A"): 2}


def test_replicas_of_unknown_speed_stay_until_the_others_carry_the_load() -> None:
    old = ReplicaTarget("A", "A", 1, wanted=0, spec=2, live=2, ready=2)
    new = ReplicaTarget("B", "B", 1, wanted=2, spec=2, live=2, ready=1, rate=10.0)

    assert next_steps([ServerTargets("s", 1, 20, (old, new))], FULL).replicas == {}


def test_pods_that_find_no_node_are_given_up_before_anything_that_runs() -> None:
    stuck = ReplicaTarget("A", "A", 1, wanted=5, spec=5, live=5, ready=3, unscheduled=2, rate=10.0)

    steps = next_steps([ServerTargets("s", 1, 50, (stuck,))], FULL)

    assert steps.replicas == {("s", "A"): 3}


def test_pods_that_were_given_up_and_still_exist_are_not_given_up_twice() -> None:
    stuck = ReplicaTarget("A", "A", 1, wanted=5, spec=3, live=5, ready=3, unscheduled=2, rate=10.0)

    assert next_steps([ServerTargets("s", 1, 50, (stuck,))], FULL).replicas == {}


def test_nothing_is_added_while_a_server_pauses() -> None:
    waits = ReplicaTarget("A", "A", 1, wanted=5, spec=3, live=3, ready=3, rate=10.0)

    steps = next_steps([ServerTargets("s", 1, 50, (waits,), is_paused=True)], FULL)

    assert (steps.replicas, steps.progress["s"].state) == ({}, State.BLOCKED)


def test_the_cards_of_servers_that_others_scale_count_as_used() -> None:
    others = ServerTargets(
        "o",
        1,
        0,
        (ReplicaTarget("A", "A", 1, wanted=3, spec=2, live=2, ready=2),),
        is_writable=False,
    )

    steps = next_steps([others, targets(A=(4, 0, 0))], {"A": 4})

    assert steps.replicas == {("s", "A"): 1}
    assert set(steps.progress) == {"s"}
