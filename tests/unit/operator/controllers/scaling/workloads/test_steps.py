"""The order of steps over all servers, against simulated pods in virtual time."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.scaling.status import judge_progress
from inferno_operator.controllers.scaling.steps import (
    ReplicaTarget,
    ServerTargets,
    State,
    next_steps,
)
from inferno_optimizer.system import Role
from tests.examples import several
from tests.tiers import sampled
from tests.unit.operator import objects
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


def on(
    place: str,
    wanted: int,
    asked: int,
    ready: int | None = None,
    rate: float | None = 10.0,
    **more: Any,  # noqa: ANN401 - fields of a target
) -> ReplicaTarget:
    """Replicas on an accelerator, maybe in a role; all that are asked for exist, and serve."""
    name, _, role = place.partition(" ")
    fields = {"card_type": name[0], "cards": CARDS.get(name, 1), "live": asked, **more}
    fields["ready"] = asked if ready is None else ready
    fields["role"] = Role(role.title() or "Both")
    return ReplicaTarget(accelerator=place, wanted=wanted, spec=asked, rate=rate, **fields)


def of(
    *targets: ReplicaTarget,
    name: str = "s",
    priority: int = 1,
    load: float = 5.0,
    **more: Any,  # noqa: ANN401 - fields of a server
) -> ServerTargets:
    return ServerTargets(name, priority, load, targets, **more)


def switching(ready: int, asked: int = 2) -> list[ServerTargets]:
    return [of(on("A", 0, 3), on("B", 2, asked, ready))]


def swapping(*others: ServerTargets) -> list[ServerTargets]:
    """Two servers that wait for each other's cards, beside others."""
    first = of(on("A", 0, 2), on("B", 2, 0), load=20)
    return [first, of(on("A", 2, 0), on("B", 0, 2), load=20, name="t"), *others]


def lending(lender: str) -> list[ServerTargets]:
    """A server that could lend a card, and would take it back first if it comes first by name."""
    return [
        of(on("B", 2, 2), on("B2", 1, 0), on("C", 0, 2), load=30, name=lender),
        of(on("A", 0, 1), on("B", 2, 1), load=20, name="b"),
        of(on("A4", 1, 0), on("B", 0, 3), load=30, name="c"),
    ]


def apart(prefill: int, decode: int) -> list[ServerTargets]:
    """A server that moves to both roles, of which so many replicas are ready."""
    roles = on("B prefill", 1, 1, prefill, 20.0), on("C decode", 2, 2, decode)
    return [of(on("A", 0, 2), *roles, load=20)]


def halved(prefill: int, decode: int) -> list[ServerTargets]:
    return [of(on("A prefill", prefill, 8), on("A decode", decode, 8, rate=None), load=0)]


def important(priority: int = 1) -> list[ServerTargets]:
    """A server that waits for cards of another one with priority 2, which is to give up 7."""
    waiting = of(on("A", 5, 0), name="t", priority=priority, load=1)
    return [waiting, of(on("A", 1, 8), priority=2, load=1)]


OLD = on("A", 0, 10, standing=10)
SHARES = on("B prefill", 1, 2, rate=20.0), on("C decode", 3, 3)
LAST, DECODE = on("A prefill", 0, 1, rate=20.0), on("C decode", 1, 1)
MOVING = of(LAST, on("B prefill", 1, 0, rate=20.0, card_type="A"), DECODE, load=0)
PRIORITIES = [
    of(on("A", 2, 0), name=name, priority=n) for name, n in (("a", 2), ("c", 1), ("b", 1))
]

CASES: dict[str, tuple[list[ServerTargets], dict[str, int], dict[str, int]]] = {
    "the last replica of an idle server is not lent": (
        swapping(of(on("A", 1, 1), name="u", load=0)),
        {"A": 3, "B": 2},
        {},
    ),
    "a replica of a server that can do without is lent": (
        swapping(of(on("A", 2, 2), name="u", load=0)),
        {"A": 4, "B": 2},
        {"u A": 1},
    ),
    # Such a server lost a replica and got it back, again and again.
    "who would take the card back first lends none": (
        lending("a"),
        {"A": 4, "B": 6, "C": 2},
        {},
    ),
    "who gets the card back later lends it": (
        lending("z"),
        {"A": 4, "B": 6, "C": 2},
        {"z B": 1},
    ),
    "a switch gets all new replicas first": (switching(0, 0), {"A": 3, "B": 2}, {"s B": 2}),
    "a switch waits while new replicas start": (switching(1), {"A": 3, "B": 2}, {}),
    "a switch ends when the new replicas serve": (switching(2), {"A": 3, "B": 2}, {"s A": 0}),
    "cards go to the most important class, then by name": (
        PRIORITIES,
        {"A": 3},
        {"b A": 2, "c A": 1},
    ),
    "the present load forbids a reduction": ([of(on("A", 2, 5), load=35)], {"A": 5}, {"s A": 4}),
    "best effort gives cards up although the load needs them": (
        [of(on("A", 2, 4), load=35, is_best_effort=True)],
        {"A": 4},
        {"s A": 2},
    ),
    "replicas of unknown speed stay until the others carry the load": (
        [of(on("A", 0, 2, rate=None), on("B", 2, 2, 1), load=20)],
        FULL,
        {},
    ),
    "pods that find no node are given up before anything that runs": (
        [of(on("A", 5, 5, 3, unscheduled=2), load=50)],
        FULL,
        {"s A": 3},
    ),
    "pods that still exist are not given up twice": (
        [of(on("A", 5, 3, 3, live=5, unscheduled=2), load=50)],
        FULL,
        {},
    ),
    "nothing is added while a server pauses": (
        [of(on("A", 5, 3), load=50, is_paused=True)],
        FULL,
        {},
    ),
    "a more important server gets the cards that it needs at once": (
        important(),
        {"A": 8},
        {"s A": 3},
    ),
    "a more important server takes free cards first": (
        important(),
        {"A": 9},
        {"s A": 4, "t A": 1},
    ),
    "a more important server takes none where enough are free": (
        important(),
        {"A": 20},
        {"s A": 4, "t A": 5},
    ),
    "a server that is as important waits": (important(2), {"A": 8}, {"s A": 4}),
    "a server that is less important waits": (important(3), {"A": 8}, {"s A": 4}),
    "a reduction is made": ([of(on("A", 1, 2), load=1)], {"A": 8}, {"s A": 1}),
    "a reduction waits for the window": (
        [of(on("A", 1, 2), load=1, served=({"A": 4},))],
        {"A": 8},
        {},
    ),
    "a move waits until its new replicas serve": (
        [of(OLD, on("H", 4, 4, 3, 25.0), load=90)],
        {"A": 20, "H": 9},
        {},
    ),
    "a move that keeps the strength is no reduction": (
        [of(OLD, on("H", 4, 4, rate=25.0, standing=4), load=90)],
        {"A": 20, "H": 9},
        {"s A": 0},
    ),
    "a move to far less goes in steps: 30 and 25 are half of 100": (
        [of(OLD, on("H", 1, 1, rate=25.0), load=20)],
        {"A": 20, "H": 9},
        {"s A": 3},
    ),
    "strong replicas that failed count as what they carried": (
        [
            of(
                on("A", 0, 12, standing=12),
                on("B", 6, 6, 0, 60.0),
                served=({"A": 12, "B": 6},),
            )
        ],
        {"A": 20, "B": 9},
        {},
    ),
    "a move is as fast beside a weak place that stays": (
        [of(on("A", 0, 6, standing=6), on("H", 6, 6), on("L", 1, 1, rate=0.5, standing=1))],
        {"A": 6, "H": 6, "L": 1},
        {"s A": 0},
    ),
    "old replicas stay until the new ones carry the measured load": (
        [of(on("A", 0, 10), on("H", 4, 4, rate=25.0), load=120)],
        {"A": 20, "H": 9},
        {"s A": 2},
    ),
    "a mix keeps half of what all its replicas carry": (
        [of(OLD, on("H", 4, 4, standing=4), load=1)],
        {"A": 20, "H": 9},
        {"s A": 3},
    ),
    "prefill keeps half of its replicas": (halved(1, 8), {"A": 20}, {"s A prefill": 4}),
    "decode keeps half of its replicas": (halved(8, 1), {"A": 20}, {"s A decode": 4}),
    "each role keeps half of its replicas": (
        halved(1, 1),
        {"A": 20},
        {"s A prefill": 4, "s A decode": 4},
    ),
    "whole replicas wait for decode": (apart(1, 0), {"A": 2, "B": 1, "C": 2}, {}),
    "whole replicas wait for prefill": (apart(0, 2), {"A": 2, "B": 1, "C": 2}, {}),
    "whole replicas go when both roles are ready": (
        apart(1, 2),
        {"A": 2, "B": 1, "C": 2},
        {"s A": 0},
    ),
    "a role is reduced to what the other needs of it": (
        [of(*SHARES, load=20)],
        {"B": 2, "C": 3},
        {"s B prefill": 1},
    ),
    "a role is not reduced below that": ([of(*SHARES, load=30)], {"B": 2, "C": 3}, {}),
    "the last replica of a role stays without load": ([MOVING], {"A": 1, "C": 1}, {}),
    "another replica of the role comes first": ([MOVING], {"A": 2, "C": 1}, {"s B prefill": 1}),
    "both roles go when whole replicas are ready": (
        [of(on("A", 1, 1), LAST, on("C decode", 0, 1), load=0)],
        {"A": 2, "C": 1},
        {"s A prefill": 0, "s C decode": 0},
    ),
}
"""Servers and cards, and the numbers of replicas that are written."""


@pytest.mark.parametrize("case", CASES)
def test_the_next_numbers_of_replicas(case: str) -> None:
    servers, capacity, numbers = CASES[case]

    steps = next_steps(servers, capacity)

    assert {f"{name} {place}": n for (name, place), n in steps.replicas.items()} == numbers


@pytest.mark.parametrize(("lacking", "left"), [(1, 2), (2, 4)])
def test_a_more_important_server_that_others_scale_gets_the_cards_too(
    lacking: int, left: int
) -> None:
    _, rest = important()

    assert next_steps([rest], {"A": 2}, {"A": lacking}).replicas == {("s", "A"): left}


@pytest.mark.parametrize(
    ("case", "server", "state", "missing"),
    [
        ("cards go to the most important class, then by name", "a", State.BLOCKED, {"A": 2}),
        ("nothing is added while a server pauses", "s", State.BLOCKED, {"A": 2}),
        ("a reduction waits for the window", "s", State.SHRINKING, {}),
    ],
)
def test_a_server_that_waits_says_what_for(
    case: str, server: str, state: State, missing: dict[str, int]
) -> None:
    servers, capacity, _ = CASES[case]

    progress = next_steps(servers, capacity).progress[server]

    assert (progress.state, progress.missing) == (state, missing)


def test_the_cards_of_servers_that_others_scale_count_as_used() -> None:
    others = of(on("A", 3, 2, rate=None), name="o", load=0, is_writable=False)

    steps = next_steps([others, of(on("A", 4, 0))], {"A": 4})

    assert steps.replicas == {("s", "A"): 1}
    assert set(steps.progress) == {"s"}


def test_a_move_within_a_type_of_card_waits_for_the_window_and_says_until_when() -> None:
    old, new = on("A", 0, 3, standing=3), on("A4", 2, 1, rate=45.0)
    server = of(old, new, load=40, served=({"A": 15},))
    able = of(on("A4", 2, 2, rate=45.0, standing=2), name="t", priority=2, load=1)  # to lend one

    steps = next_steps([server, able], {"A": 16})
    progress = steps.progress["s"]
    verdict = judge_progress(server, progress, "", next_reduction=objects.NOW)

    assert steps.replicas == {}
    assert (progress.state, dict(progress.slowed)) == (State.MOVING, {"A": (3, 3)})
    assert verdict.reason == "Moving"
    assert verdict.message == (
        f"3 x A (0 wanted) + 1 x A4 (2 wanted); more may go at {objects.NOW:%H:%M:%S} UTC:"
        " spec.guard.maxDecreasePercent is 50"
    )


def both_roles(load: float, together: int = 0, prefill: int = 0, decode: int = 0) -> Server:
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


@pytest.mark.parametrize("seed", sampled(range(40)))
@pytest.mark.parametrize("deadly", [0.0, 0.5])
@pytest.mark.parametrize("most", [9, 12, 20])
def test_a_move_of_both_roles_keeps_the_load_and_the_cards_whenever_the_operator_is_killed(
    seed: int, deadly: float, most: int
) -> None:
    chance = Random(seed)  # noqa: S311 - the same events each time
    moving, beside = both_roles(36, together=4), both_roles(9, together=1)
    scene = Scene({"s": moving, "t": beside}, {"A": most}, seed, deadly)
    scene.start()
    for plan in ((0, 2, 4), (4, 0, 0), (0, 2, 5), (0, 3, 4)):
        for workload, wanted in zip(moving.workloads.values(), plan, strict=True):
            workload.wanted = wanted
        scene.run(chance.randint(3, 9) if chance.random() < 0.3 else 100_000)
    scene.run()

    assert scene.broken == []
    assert moving.is_done
    assert moving.carried >= moving.load
