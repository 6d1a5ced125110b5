"""A measured Server loses replicas only when fewer were enough for some time."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.planning.conversions import build_desired
from inferno_operator.controllers.planning.memory import Memory, find_calmed_servers
from inferno_operator.resources import Server, ServerStatus
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import Allocation, Load, Role, System
from inferno_optimizer.system import Server as CoreServer
from tests.unit.operator import objects
from tests.unit.operator.objects import NOW, observed, server
from tests.unit.optimizer.systems import accelerators, system_of

SPREAD = 0.2


def system(rate: float = 60.0) -> System:
    """A server whose load wanders [requests/min]."""
    current = Allocation(load=Load(rate))
    return System(servers=(CoreServer("S", "C", "M", current, load_spread=SPREAD),))


SYSTEM = system()
MEASURED = {"source": "vLLM", "labels": {"model_name": "m"}}


def subject(
    standing: int = 8,
    accelerator: str = "A",
    rate: float = 60.0,
    **spec: Any,  # noqa: ANN401
) -> Server:
    load = {"arrivalRate": rate, "avgLength": 1}
    desired = {"accelerator": accelerator, "numReplicas": standing, "load": load}
    fields = {"measure": MEASURED, "desiredAlloc": desired, **spec}
    resource = observed(server(spec=fields)).resource
    assert isinstance(resource, Server)
    return resource


def plan(replicas: int, accelerator: str = "A") -> Solution:
    """A plan with these replicas for the server."""
    allocation = Allocation(accelerator=accelerator, replicas=replicas)
    nothing = optimize(system_of((), accelerators(A=1.0)))
    decision = Decision("S", Reason.ALLOCATED, "", allocation)
    return Solution((decision,), nothing.certificate, ())


def memory_of(server: Server, now: datetime = NOW) -> Memory:
    """What an operator knows that has just started."""
    memory = Memory()
    memory.note_servers([server], now)
    return memory


class Operator:
    """Plans again and again, and writes what it decides."""

    def __init__(self, standing: int = 8, **spec: Any) -> None:  # noqa: ANN401
        self.standing = standing
        self._spec = spec
        self.accelerator = "A"
        self.destination = ""
        self._rate = 60.0
        self._memory = Memory()
        self._status: dict[str, datetime] = {}

    def restart(self) -> None:
        """Forget what only the process knew."""
        self._memory = Memory()

    def plans(self, seconds: float, wanted: int, accelerator: str = "A", rate: float = 60.0) -> int:
        """Return the fewest replicas after a plan that wants so many for a load."""
        now = NOW + timedelta(seconds=seconds)
        servers = [
            s.model_copy(update={"status": ServerStatus(moved=self._status.get(s.metadata.uid))})
            for s in [subject(self.standing, self.accelerator, self._rate, **self._spec)]
        ]
        memory, newest = self._memory, plan(wanted, accelerator)
        memory.note_servers(servers, now)
        (self.destination,) = (
            s.destination for s in memory.set_destinations(system(rate), servers).servers
        )
        self._status |= memory.find_moves(servers, newest, now)
        memory.note_plan(servers, newest, now)
        self.standing = max(memory.count_fewest_replicas(servers)["S"], wanted)
        self.accelerator, self._rate = accelerator, rate
        return self.standing


def test_what_a_plan_of_the_window_wanted_is_kept() -> None:
    operator = Operator()

    assert operator.plans(0, 8) == 8
    assert operator.plans(30, 5) == 8
    assert operator.plans(299, 3) == 8


def test_after_the_window_a_quarter_goes_with_each_plan() -> None:
    operator = Operator()
    operator.plans(0, 8)

    found = [operator.plans(30 * step, 2) for step in range(1, 16)]

    assert found == [8] * 9 + [6, 5, 4, 3, 2, 2]


def test_more_replicas_wait_for_nothing() -> None:
    assert Operator(standing=2).plans(0, 9) == 9


def test_an_operator_that_just_started_waits_for_the_whole_window() -> None:
    operator = Operator(standing=4)

    assert [operator.plans(time, 1) for time in (0, 150, 299, 300)] == [4, 4, 4, 3]


def test_what_runs_of_a_server_without_a_decision_waits_for_the_whole_window_too() -> None:
    """As of one that is renamed, or that the operator has just been given."""
    runs = {"accelerator": "A", "numReplicas": 8}
    operator = Operator(standing=8, desiredAlloc=None, currentAlloc=runs)

    assert [operator.plans(time, 1) for time in (0, 150, 299, 300)] == [8, 8, 8, 6]
    assert operator.plans(330, 2, accelerator="B") == 2


def test_the_window_is_two_lead_times_unless_a_person_says_otherwise() -> None:
    slow, quick = Operator(startupSeconds=400), Operator(scaleDown={"windowSeconds": 0})

    assert [slow.plans(time, 1) for time in (0, 799, 800)] == [8, 8, 6]
    assert [quick.plans(time, 1) for time in (0, 1, 2)] == [6, 5, 4]


def test_a_clock_that_is_set_back_keeps_nothing_for_long() -> None:
    operator = Operator()
    operator.plans(0, 8)

    assert operator.plans(-3600, 1) == 6


def test_a_move_to_another_accelerator_keeps_nothing() -> None:
    operator = Operator()
    operator.plans(0, 8)

    assert operator.plans(30, 3, accelerator="B") == 3


def apart(prefill: int, decode: int) -> objects.Manifest:
    """A decision for prefill on B and decode on A."""
    roles = {
        "prefill": {"accelerator": "B", "numReplicas": prefill},
        "decode": {"accelerator": "A", "numReplicas": decode},
    }
    return {"accelerator": "A", "numReplicas": prefill + decode, "roles": roles}


def plan_apart(prefill: int, decode: int) -> Solution:
    """A plan with prefill on B and decode on A."""
    parts = (
        Allocation("B", prefill, role=Role.PREFILL),
        Allocation("A", decode, role=Role.DECODE),
    )
    (decision,) = plan(prefill + decode).decisions
    allocation = Allocation("A", prefill + decode, roles=parts)
    return replace(plan(0), decisions=(replace(decision, allocation=allocation),))


def after(before: objects.Manifest, newest: Solution) -> tuple[int, str]:
    """The fewest replicas after a plan, and where the Server is to stay once it stands."""
    server = subject(desiredAlloc=before)
    memory = memory_of(server)
    moved = memory.find_moves([server], newest, NOW).get(server.metadata.uid)
    memory.note_plan([server], newest, NOW)
    fewest = memory.count_fewest_replicas([server])["S"]
    stands = subject(desiredAlloc=build_desired(newest.decisions[0].allocation)).model_copy(
        update={"status": ServerStatus(moved=moved)}
    )
    settled = memory_of(stands).set_destinations(SYSTEM, [stands])
    return fewest, settled.servers[0].destination


def test_replicas_of_both_roles_are_none_that_do_both() -> None:
    together = {"accelerator": "A", "numReplicas": 4}

    assert after(apart(8, 3), plan(8)) == (0, "A")
    assert after(together, plan_apart(2, 1)) == (0, "B prefill + A decode")
    assert after(apart(8, 3), plan_apart(7, 3)) == (11, "")  # it goes nowhere


def test_the_lead_time_of_both_roles_is_the_longer_one() -> None:
    seconds = {"A": 30, "B prefill": 200, "A decode": 90}
    status = ServerStatus.model_validate(
        {"leadTimes": [{"accelerator": a, "seconds": s, "pods": 1} for a, s in seconds.items()]}
    )

    together, both = (
        each.model_copy(update={"status": status})
        for each in (subject(), subject(desiredAlloc=apart(8, 3)))
    )

    assert (together.lead_seconds, both.lead_seconds) == (30, 200)


@pytest.mark.parametrize(("lead", "stays"), [(360, 3600), (120, 1200), (30, 300)])
def test_a_server_that_moves_stays_until_a_tenth_saved_has_paid_for_what_ran_twice(
    lead: int, stays: int
) -> None:
    operator = Operator(startupSeconds=lead)

    found = []
    for time, accelerator in ((0, "A"), (30, "B"), (60, "B"), (stays + 59, "B"), (stays + 60, "B")):
        operator.plans(time, 3, accelerator)
        found.append(operator.destination)

    assert found == ["", "", "B", "B", ""]


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "measured"])
def test_a_first_pod_that_was_ready_at_once_does_not_end_a_move(*, typed: bool) -> None:
    """Its time is 0 in whole seconds, and the other replicas still start where it was decided."""
    runs = {"accelerator": "A", "numReplicas": 10, "load": {"arrivalRate": 60, "avgLength": 1}}
    load: dict[str, Any] = {"measure": None, "currentAlloc": runs} if typed else {}
    at_once = ServerStatus.model_validate(
        {"leadTimes": [{"accelerator": "B", "seconds": 0, "pods": 1}], "moved": NOW}
    )
    moves_to_b = subject(2, "B", **load).model_copy(update={"status": at_once})

    found = []
    for seconds in (2, 59, 60):
        memory = memory_of(moves_to_b, NOW + timedelta(seconds=seconds))
        found += [s.destination for s in memory.set_destinations(SYSTEM, [moves_to_b]).servers]

    assert found == ["B", "B", ""]


def test_an_operator_that_just_started_knows_of_the_last_move() -> None:
    operator = Operator(startupSeconds=360)

    found = []
    for time, accelerator in ((0, "A"), (30, "B"), (60, "B"), (3629, "B"), (3630, "B")):
        operator.restart()
        operator.plans(time, 3, accelerator)
        found.append(operator.destination)

    assert found == ["", "", "B", "B", ""]


@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "restarts"])
def test_a_server_that_outgrows_the_loads_of_its_move_may_move_at_once(*, restarts: bool) -> None:
    """The largest of ten loads is 1.6 standard deviations above that of the move."""
    operator = Operator()

    found = []
    for time, accelerator, rate in (
        (0, "A", 60.0),
        (30, "B", 30.0),
        (60, "B", 40.0),
        (90, "B", 42.0),
        (120, "B", 5.0),
    ):
        if restarts and time == 60:
            operator.restart()
        operator.plans(time, 3, accelerator, rate)
        found.append(operator.destination)

    assert found == ["", "", "B", "", "B"]


def test_a_server_that_grows_while_it_wakes_wakes_where_it_was_to() -> None:
    asleep = subject(0, "A", 1.0).model_copy(update={"status": ServerStatus(last_accelerator="A")})

    (woken,) = memory_of(asleep).set_destinations(system(600.0), [asleep]).servers

    assert woken.destination == asleep.wakes_on


def test_a_server_that_sleeps_does_not_move() -> None:
    operator = Operator()

    for time, accelerator in ((0, "A"), (30, ""), (60, ""), (90, "B"), (120, "B")):
        operator.plans(time, 1, accelerator)

    assert operator.destination == ""


def test_a_plan_that_is_not_carried_out_is_no_move() -> None:
    operator = Operator()
    for time in (0, 30, 60):
        operator.plans(time, 3, "B")
        operator.accelerator = "A"

    assert operator.destination == ""


def test_only_calm_servers_wait() -> None:
    typed = observed(server()).resource

    assert find_calmed_servers([typed, subject()] if typed else []) == [subject()]


@given(st.lists(st.tuples(st.floats(0, 400), st.integers(1, 30)), min_size=1, max_size=40))
def test_never_fewer_than_a_plan_of_the_window_wanted(moves: list[tuple[float, int]]) -> None:
    """And never more than stood before, unless the plan wants it."""
    operator, time, plans = Operator(standing=10), 0.0, [(0.0, 10)]
    for passed, wanted in moves:
        time, before = time + passed, operator.standing
        plans.append((time, wanted))
        found = operator.plans(time, wanted)

        recent = [count for moment, count in plans if time - moment < 299.999]
        assert found >= min(max(recent), before)
        assert found <= max(before, wanted)
        assert found >= min(before, 0.75 * before - 1)


def test_numbers_stay_for_a_minute_whichever_way_the_clock_is_set() -> None:
    memory, second = Memory(), timedelta(seconds=1)
    memory.note_written(["a"], NOW - 59 * second)
    memory.note_written(["b"], NOW - 60 * second)
    memory.note_written(["c"], NOW + 3600 * second)

    assert memory.find_recently_written(NOW) == {"a"}
    assert memory.find_recently_written(NOW + second) == set()
