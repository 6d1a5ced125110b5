"""The whole path from a request to what is written, undisturbed and disturbed."""

import asyncio
import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from inferno_operator.controllers.measurement.load import set_last_good_load
from inferno_operator.controllers.planning.reconcile import reconcile
from inferno_operator.resources import Server
from inferno_operator.resources.conditions import WAITING
from inferno_operator.resources.objects import Key, Kind, Manifest
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.finalizers import FINALIZER
from inferno_operator.runtime.ports import Listing, StaleError
from inferno_operator.runtime.work_queue import Backoff, ReconcileResult, WorkQueue
from inferno_optimizer.errors import InfernoError, SolverError, UnavailableError, UnsupportedError
from inferno_optimizer.placement import Node
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System
from tests.controlplane.waiting import PATIENCE_S
from tests.fakes import FakeCluster, FakeOptimizer
from tests.unit.operator.controllers.planning.scene import (
    INFERNO,
    TypedLoads,
    cluster_of,
    context_of,
)
from tests.unit.operator.objects import (
    LATER,
    NOW,
    accelerator,
    born,
    capacity,
    is_cleared,
    manifest,
    model,
    optimizer,
    performance,
    running,
    server,
    system,
)

SCENE = system(4)
FIRST_WRITE = 9
"""Number of the call after the Optimizer is read, the others are listed, it is written, five kinds
are listed, and it is read again."""

AT_ONCE = Backoff(0.0, 0.0)
TWO_SERVERS = (server("S", wanted=2), server("T", wanted=1))


class Interrupted(FakeOptimizer):
    """Something happens while it solves, the first time."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__()
        self._happens = [happens]

    async def optimize(self, system: System) -> Solution:
        solution = await super().optimize(system)
        if self._happens:
            self._happens.pop()()
        return solution


class Unreliable(FakeCluster):
    """Fails once, at the call of this number (from 0); counts the calls."""

    def __init__(self, failing: int | None = None) -> None:
        super().__init__()
        self.calls = 0
        self._failing = failing

    def _count(self) -> None:
        if self.calls == self._failing:
            self.failures.append(UnavailableError("connection refused"))
        self.calls += 1

    async def get(self, kind: Kind, key: Key) -> Manifest:
        self._count()
        return await super().get(kind, key)

    async def list(self, kind: Kind, namespace: str) -> Listing:
        self._count()
        return await super().list(kind, namespace)

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        self._count()
        return await super().apply(kind, manifest, manager, force=force)


class Watched(FakeCluster):
    """Every write on an Optimizer comes back as an event, as from a watch."""

    queue: WorkQueue[Key]

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        written = await super().apply(kind, manifest, manager, force=force)
        self._notify(kind, Key.of(written))
        return written

    async def merge(self, kind: Kind, manifest: Manifest, manager: str) -> None:
        await super().merge(kind, manifest, manager)
        self._notify(kind, Key.of(manifest))

    def _notify(self, kind: Kind, key: Key) -> None:
        if kind.kind == "Optimizer":
            self.queue.add(key, self.objects[kind.kind, key]["metadata"]["generation"])


def filled(cluster: FakeCluster, *manifests: Manifest) -> FakeCluster:
    for item in manifests:
        cluster.add(item)
    return cluster


def scene(*manifests: Manifest) -> FakeCluster:
    """A cluster with a request for two servers and enough cards, and more objects."""
    return cluster_of(*SCENE, *TWO_SERVERS, optimizer(), *manifests)


async def reconciled(
    cluster: FakeCluster,
    solver: FakeOptimizer | None = None,
    now: datetime = NOW,
    key: Key = INFERNO,
    **others: Any,  # noqa: ANN401 - of a Context
) -> ReconcileResult:
    return await reconcile(key, context_of(cluster, solver, lambda: now, **others))


async def until_settled(cluster: FakeCluster, solver: FakeOptimizer | None = None) -> int:
    """Reconcile as often as it takes, and once more for the change of our own; the failures."""
    for failures in range(5):
        if not (await reconciled(cluster, solver)).failed:
            await reconciled(cluster, solver)
            return failures
    pytest.fail("still failing")


def find(cluster: FakeCluster, kind: str, name: str) -> dict[str, Any]:
    return cluster.objects[kind, Key("default", name)]


def desired(cluster: FakeCluster, name: str) -> tuple[str, int, float]:
    allocation = find(cluster, "Server", name)["spec"]["desiredAlloc"]
    return allocation["accelerator"], allocation["numReplicas"], allocation["cost"]


def condition(cluster: FakeCluster, kind: str, name: str, type_: str) -> tuple[str, str, str]:
    conditions = find(cluster, kind, name)["status"]["conditions"]
    (found,) = (item for item in conditions if item["type"] == type_)
    return found["status"], found["reason"], found["message"]


def optimized(cluster: FakeCluster) -> tuple[str, str, str]:
    return condition(cluster, "Optimizer", "inferno", "Optimized")


def change(cluster: FakeCluster, **spec: object) -> None:
    """Change the Optimizer's spec as its user would."""
    old = find(cluster, "Optimizer", "inferno")
    cluster.add({**old, "spec": {**old["spec"], **spec}})


def written(cluster: FakeCluster, kind: str) -> list[str]:
    writes = (write.split() for write in cluster.writes)
    return [name for _, written_kind, name in writes if written_kind == kind]


def state(cluster: FakeCluster) -> dict[Any, Any]:
    """What the objects say, without versions and times of the solver."""
    objects = copy.deepcopy(cluster.objects)
    for stored in objects.values():
        del stored["metadata"]["resourceVersion"]
        last = stored.get("status", {}).get("lastOptimization", {})
        last.get("certificate", {}).pop("seconds", None)
    return objects


async def test_a_request_becomes_an_allocation_of_every_server() -> None:
    cluster = scene()

    outcome = await reconciled(cluster)

    assert outcome is ReconcileResult.SETTLED
    assert desired(cluster, "s") == ("A", 2, 20)
    assert desired(cluster, "t") == ("A", 1, 10)
    assert condition(cluster, "Server", "s", "Allocated") == ("True", "Allocated", "2 x A")
    assert find(cluster, "Optimizer", "inferno")["spec"]["optimize"] is False
    status = find(cluster, "Optimizer", "inferno")["status"]
    assert status["done"] is True
    assert status["lastOptimization"]["servers"] == 2
    assert status["lastOptimization"]["allocated"] == 2
    assert status["lastOptimization"]["cost"] == 30
    assert status["lastOptimization"]["capacity"] == [{"type": "T", "used": 3, "available": 4}]
    assert optimized(cluster)[:2] == ("True", "Optimized")


async def test_every_object_says_that_it_was_understood() -> None:
    cluster = scene()

    await until_settled(cluster)

    for (kind, _), stored in cluster.objects.items():
        ready = {c["type"]: c["status"] for c in stored["status"]["conditions"]}["Ready"]
        assert (kind, ready) == (kind, "True")
        assert stored["status"]["active"] is True
        assert stored["status"]["observedGeneration"] == stored["metadata"]["generation"]


async def test_the_request_is_cleared_after_everything_else_is_written() -> None:
    cluster = scene()

    await reconciled(cluster)

    on_others = [i for i, write in enumerate(cluster.writes) if " Optimizer " not in write]
    assert cluster.writes[0] == "status Optimizer inferno"  # being worked on
    done_and_cleared = ["status Optimizer inferno", "merge Optimizer inferno"]
    assert cluster.writes[max(on_others) + 1 :] == done_and_cleared


async def test_nothing_but_the_desired_allocation_changes_in_a_spec() -> None:
    cluster = scene()
    before = copy.deepcopy(cluster.objects)

    await until_settled(cluster)

    ours = {"Server": "desiredAlloc", "Optimizer": "optimize"}
    for (kind, key), stored in cluster.objects.items():
        without_ours = {**before[kind, key]["spec"], **stored["spec"]}
        without_ours.pop(ours.get(kind, ""), None)
        assert without_ours.items() <= before[kind, key]["spec"].items()


async def test_an_optimizer_that_asks_for_nothing_writes_on_nobody_else() -> None:
    cluster = cluster_of(*SCENE, *TWO_SERVERS, optimizer(optimize=False))
    solver = FakeOptimizer()

    outcome = await reconciled(cluster, solver)

    assert outcome is ReconcileResult.SETTLED
    assert cluster.writes == ["status Optimizer inferno"]
    assert optimized(cluster)[:2] == ("Unknown", "NotRequested")
    assert optimized(cluster)[2] == f"{WAITING}, or set spec.optimize to true"
    assert condition(cluster, "Optimizer", "inferno", "Ready") == ("True", "Valid", WAITING)
    (event,) = cluster.events
    assert (event.type, event.reason) == ("Normal", "NotRequested")
    assert event.message == optimized(cluster)[2]
    status = find(cluster, "Optimizer", "inferno")["status"]
    assert (status["done"], "lastOptimization" in status) == (False, False)
    assert not solver.systems


async def settled() -> FakeCluster:
    """A cluster whose request was carried out; later writes and events are counted anew."""
    cluster = scene()
    await until_settled(cluster)
    cluster.writes.clear()
    cluster.events.clear()
    return cluster


async def test_what_is_settled_stays_untouched() -> None:
    cluster = await settled()

    outcome = await reconciled(cluster, now=LATER)

    assert outcome is ReconcileResult.SETTLED
    assert not cluster.writes
    assert not cluster.events


async def test_asking_again_with_nothing_changed_writes_the_optimizer_only() -> None:
    cluster = await settled()
    change(cluster, optimize=True)

    await until_settled(cluster)

    assert {write.split()[1] for write in cluster.writes} == {"Optimizer"}
    assert not cluster.events


async def test_only_servers_that_differ_are_written() -> None:
    cluster = await settled()
    busier = find(cluster, "Server", "t")
    cluster.add({**busier, "spec": {**busier["spec"], "currentAlloc": running(0, 2)}})
    change(cluster, optimize=True)

    await until_settled(cluster)

    assert set(written(cluster, "Server")) == {"t"}
    assert desired(cluster, "t") == ("A", 2, 20)


async def test_an_empty_namespace_is_optimized_in_no_time() -> None:
    cluster = cluster_of(optimizer())

    outcome = await reconciled(cluster)

    assert outcome is ReconcileResult.SETTLED
    assert find(cluster, "Optimizer", "inferno")["spec"]["optimize"] is False
    assert find(cluster, "Optimizer", "inferno")["status"]["lastOptimization"]["servers"] == 0
    assert optimized(cluster)[2] == "0 of 0 servers have an allocation, 0 cents/hour"


async def test_an_optimizer_sees_its_own_namespace_only() -> None:
    cluster = scene()
    cluster.add(server("Foreign", wanted=4), namespace="other")

    await reconciled(cluster)

    foreign = cluster.objects["Server", Key("other", "foreign")]
    assert "desiredAlloc" not in foreign["spec"]
    assert find(cluster, "Optimizer", "inferno")["status"]["lastOptimization"]["servers"] == 2


async def test_an_optimizer_that_is_not_there_is_nothing_to_do() -> None:
    assert await reconciled(FakeCluster()) is ReconcileResult.SETTLED


async def test_an_optimizer_without_a_spec_says_so_and_waits_for_one() -> None:
    cluster = cluster_of(manifest("Optimizer", None, name="inferno"))

    outcome = await reconciled(cluster)

    status = find(cluster, "Optimizer", "inferno")["status"]
    assert outcome is ReconcileResult.SETTLED
    assert optimized(cluster) == ("False", "InvalidSpec", "spec is missing")
    assert condition(cluster, "Optimizer", "inferno", "Ready") == optimized(cluster)
    assert (status["active"], status["done"]) == (False, False)
    assert {event.message for event in cluster.events} == {"spec is missing"}

    cluster.add({**optimizer(optimize=False), "status": status})
    await reconciled(cluster)

    assert condition(cluster, "Optimizer", "inferno", "Ready")[0] == "True"
    assert optimized(cluster)[:2] == ("Unknown", "NotRequested")


@pytest.mark.parametrize(
    ("trouble", "named"),
    [
        pytest.param(server("S", name="younger", creationTimestamp=born(9)), "younger", id="twin"),
        pytest.param(manifest("Server", None, name="empty"), "empty", id="no spec"),
        pytest.param(server("lost", spec={"class": "gone"}), "lost", id="unknown class"),
        pytest.param(model("N", [performance("gone")]), "gone", id="unknown accelerator"),
    ],
)
async def test_what_is_wrong_with_an_object_is_told_on_the_optimizer_too(
    trouble: Manifest, named: str
) -> None:
    cluster = cluster_of(*SCENE, optimizer(), trouble)
    cluster.add(server("S", wanted=2, creationTimestamp=born(1)))

    await until_settled(cluster)

    assert desired(cluster, "s") == ("A", 2, 20)
    assert named in str(find(cluster, "Optimizer", "inferno")["status"])


async def test_the_decision_for_a_server_stands_when_its_class_is_gone() -> None:
    cluster = scene()
    await until_settled(cluster)
    cluster.events.clear()
    lost = find(cluster, "Server", "t")
    cluster.add({**lost, "spec": {**lost["spec"], "class": "gone"}})
    change(cluster, optimize=True)

    await until_settled(cluster)

    assert desired(cluster, "t") == ("A", 1, 10)
    assert condition(cluster, "Server", "t", "Allocated")[:2] == ("False", "UnknownClass")
    assert [(e.type, e.reason, e.about.key.name) for e in cluster.events] == [
        ("Warning", "UnknownClass", "t")
    ]
    assert desired(cluster, "s") == ("A", 2, 20)


FAILURES: list[InfernoError] = [
    UnavailableError("optimizer: connection refused"),
    UnsupportedError("not yet"),
    SolverError("ended with status 7"),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: error.reason)
async def test_a_failing_solver_keeps_the_request_says_why_and_clears_nothing(
    error: InfernoError,
) -> None:
    cluster, solver = scene(), FakeOptimizer()
    await until_settled(cluster, solver)
    before = state(cluster)
    change(cluster, optimize=True)
    cluster.events.clear()
    solver.failures = [error]

    outcome = await reconciled(cluster, solver)

    after = state(cluster)
    inferno = after.pop(("Optimizer", INFERNO))
    last = before.pop(("Optimizer", INFERNO))["status"]["lastOptimization"]
    assert outcome is ReconcileResult.FAILED
    assert after == before
    assert inferno["spec"]["optimize"] is True
    assert inferno["status"]["done"] is False
    assert inferno["status"]["lastOptimization"] == last
    assert optimized(cluster) == ("False", error.reason, str(error))
    assert [(e.type, e.reason, e.message) for e in cluster.events] == [
        ("Warning", error.reason, str(error))
    ]


async def test_a_failure_that_repeats_is_told_once() -> None:
    cluster, solver = scene(), FakeOptimizer()
    solver.failures = [UnavailableError("connection refused") for _ in range(3)]
    await reconciled(cluster, solver)
    before = state(cluster), list(cluster.writes), list(cluster.events)

    for _ in range(2):
        assert await reconciled(cluster, solver, LATER) is ReconcileResult.FAILED

    assert before == (state(cluster), cluster.writes, cluster.events)


async def test_a_request_that_failed_succeeds_later() -> None:
    cluster, solver = scene(), FakeOptimizer()
    solver.failures = [UnavailableError("connection refused")]
    await reconciled(cluster, solver)

    outcome = await reconciled(cluster, solver, LATER)

    assert outcome is ReconcileResult.SETTLED
    assert optimized(cluster)[:2] == ("True", "Optimized")
    assert find(cluster, "Optimizer", "inferno")["spec"]["optimize"] is False
    assert desired(cluster, "s") == ("A", 2, 20)


async def calls_of_a_request() -> int:
    cluster = Unreliable()
    filled(cluster, *SCENE, *TWO_SERVERS, optimizer())
    await reconciled(cluster)
    return cluster.calls


async def test_an_api_server_that_fails_anywhere_is_made_up_for_by_repeating() -> None:
    undisturbed = scene()
    await until_settled(undisturbed)
    calls = await calls_of_a_request()
    assert calls > 15  # the reads, and a spec or status of each of the seven objects

    for position in range(calls):
        cluster = filled(Unreliable(position), *SCENE, *TWO_SERVERS, optimizer())

        first = await reconciled(cluster)

        assert (position, first) == (position, ReconcileResult.FAILED)
        assert find(cluster, "Optimizer", "inferno")["spec"]["optimize"] is True
        assert await until_settled(cluster) == 0
        assert (position, state(cluster)) == (position, state(undisturbed))


async def test_an_api_server_that_fails_for_long_is_made_up_for_by_repeating() -> None:
    undisturbed = scene()
    await until_settled(undisturbed)

    for length in range(1, 60):
        cluster = scene()
        cluster.failures = [UnavailableError("connection refused") for _ in range(length)]
        while cluster.failures:
            assert await reconciled(cluster) is ReconcileResult.FAILED
        await until_settled(cluster)

        assert (length, state(cluster)) == (length, state(undisturbed))


async def test_a_failed_write_keeps_no_other_object_waiting() -> None:
    for position in range(FIRST_WRITE, await calls_of_a_request()):
        cluster = filled(Unreliable(position), *SCENE, *TWO_SERVERS, optimizer())

        await reconciled(cluster)

        unsaid = [key for key, item in cluster.objects.items() if "status" not in item]
        assert len(unsaid) <= 1


async def test_why_the_api_server_failed_is_told() -> None:
    cluster = filled(Unreliable(FIRST_WRITE), *SCENE, *TWO_SERVERS, optimizer())

    await reconciled(cluster)

    assert optimized(cluster) == ("False", "Unavailable", "connection refused")


async def test_a_spec_that_changes_during_the_solve_is_not_lost() -> None:
    cluster = scene()
    parameters = {
        "optimizer": {**find(cluster, "Optimizer", "inferno")["spec"]["data"]["optimizer"]}
    }
    parameters["optimizer"]["unlimited"] = True
    solver = Interrupted(lambda: change(cluster, data=parameters))

    first = await reconciled(cluster, solver)
    still_asked = find(cluster, "Optimizer", "inferno")["spec"]["optimize"]
    failures = await until_settled(cluster, solver)

    assert (first, still_asked, failures) == (ReconcileResult.FAILED, True, 0)
    assert [system.options.unlimited for system in solver.systems] == [False, True]
    status = find(cluster, "Optimizer", "inferno")["status"]
    assert status["lastOptimization"]["requestedGeneration"] == 2
    assert status["done"] is True


def delete_optimizer(cluster: FakeCluster) -> None:
    metadata = find(cluster, "Optimizer", "inferno")["metadata"]
    cluster.add(optimizer(**{**metadata, "deletionTimestamp": f"{NOW:%FT%TZ}"}))


@pytest.mark.parametrize(
    "happens",
    [partial(change, mode="Approve"), partial(change, optimize=False), delete_optimizer],
    ids=["another mode", "withdrawn", "deleted"],
)
async def test_what_was_decided_is_not_written_after_the_optimizer_changed(
    happens: Callable[[FakeCluster], None],
) -> None:
    cluster = scene()

    await reconciled(cluster, Interrupted(lambda: happens(cluster)))

    assert optimized(cluster)[:2] == ("Unknown", "Optimizing")
    assert all("desiredAlloc" not in find(cluster, "Server", name)["spec"] for name in "st")


async def test_a_request_withdrawn_during_the_solve_stays_withdrawn() -> None:
    cluster = scene()
    solver = Interrupted(lambda: change(cluster, optimize=False))

    await reconciled(cluster, solver)
    await until_settled(cluster, solver)

    assert len(solver.systems) == 1
    assert optimized(cluster)[:2] == ("Unknown", "NotRequested")
    inferno = find(cluster, "Optimizer", "inferno")
    assert (inferno["spec"]["optimize"], inferno["status"]["done"]) == (False, False)


async def test_a_change_right_before_the_request_is_cleared_is_not_lost() -> None:
    class Edited(FakeCluster):
        edited = False

        async def merge(self, kind: Kind, manifest: Manifest, manager: str) -> None:
            if not self.edited:
                self.edited = True
                change(self, interval=60)
            await super().merge(kind, manifest, manager)

    cluster, solver = Edited(), FakeOptimizer()
    filled(cluster, *SCENE, *TWO_SERVERS, optimizer())

    first = await reconciled(cluster, solver)
    await until_settled(cluster, solver)

    assert first is ReconcileResult.FAILED
    assert len(solver.systems) == 2
    last = find(cluster, "Optimizer", "inferno")["status"]["lastOptimization"]
    assert last["requestedGeneration"] == 2


async def test_an_optimizer_deleted_during_the_solve_is_let_go() -> None:
    cluster = scene()
    solver = Interrupted(lambda: cluster.objects.pop(("Optimizer", INFERNO)))

    outcome = await reconciled(cluster, solver)

    assert outcome is ReconcileResult.SETTLED
    assert ("Optimizer", INFERNO) not in cluster.objects


@pytest.mark.parametrize("kind_and_name", [("Server", "s"), ("Accelerator", "a"), ("Model", "m")])
async def test_an_object_deleted_during_the_solve_holds_nobody_up(
    kind_and_name: tuple[str, str],
) -> None:
    kind, name = kind_and_name
    cluster = scene()
    solver = Interrupted(lambda: cluster.objects.pop((kind, Key("default", name))))

    outcome = await reconciled(cluster, solver)

    assert outcome is ReconcileResult.SETTLED
    assert (kind, Key("default", name)) not in cluster.objects
    assert desired(cluster, "t") == ("A", 1, 10)
    assert find(cluster, "Optimizer", "inferno")["spec"]["optimize"] is False


async def test_a_server_that_changed_during_the_solve_keeps_the_change() -> None:
    cluster = scene()

    def edit() -> None:
        old = find(cluster, "Server", "s")
        cluster.add({**old, "spec": {**old["spec"], "minNumReplicas": 3}})

    await reconciled(cluster, Interrupted(edit))

    stored = find(cluster, "Server", "s")
    assert stored["spec"]["minNumReplicas"] == 3
    assert desired(cluster, "s") == ("A", 2, 20)
    assert stored["status"]["observedGeneration"] < stored["metadata"]["generation"]


async def test_a_conflict_starts_over_without_being_told() -> None:
    cluster, solver = scene(), FakeOptimizer()
    solver.failures = [StaleError("it changed")]

    outcome = await reconciled(cluster, solver)

    assert outcome is ReconcileResult.FAILED
    assert optimized(cluster)[:2] == ("Unknown", "Optimizing")
    assert not cluster.events


async def test_done_is_true_only_for_the_generation_that_it_belongs_to() -> None:
    cluster, solver = scene(), FakeOptimizer()

    def seen() -> tuple[int, bool, int]:
        inferno = find(cluster, "Optimizer", "inferno")
        status = inferno["status"]
        assert status["observedGeneration"] == inferno["metadata"]["generation"]
        return (
            inferno["metadata"]["generation"],
            status["done"],
            status["lastOptimization"]["requestedGeneration"],
        )

    await until_settled(cluster, solver)
    assert seen() == (2, True, 1)

    change(cluster, interval=60)
    await reconciled(cluster, solver)
    assert seen() == (3, False, 1)

    change(cluster, optimize=True)
    solver.failures = [UnavailableError("connection refused")]
    await reconciled(cluster, solver)
    assert seen() == (4, False, 1)

    await until_settled(cluster, solver)
    assert seen() == (5, True, 4)


async def test_of_several_optimizers_each_is_served_with_its_own_parameters() -> None:
    cluster, solver = scene(optimizer("other", parameters={"unlimited": True})), FakeOptimizer()

    await reconciled(cluster, solver)
    await reconciled(cluster, solver, key=Key("default", "other"))

    assert [system.options.unlimited for system in solver.systems] == [False, True]
    assert not find(cluster, "Optimizer", "inferno")["spec"]["optimize"]
    assert not find(cluster, "Optimizer", "other")["spec"]["optimize"]


async def all_work_done() -> None:
    """Wait until no task but the test's own is left; raises what ended one of them."""
    own = asyncio.current_task()
    async with asyncio.timeout(PATIENCE_S):
        while others := [task for task in asyncio.all_tasks() if task is not own]:
            await asyncio.gather(*others)


def working_on(
    cluster: FakeCluster, solver: FakeOptimizer, backoff: Backoff = AT_ONCE
) -> WorkQueue[Key]:
    return WorkQueue(partial(reconcile, context=context_of(cluster, solver)), backoff)


async def test_our_own_writes_come_back_as_events_and_start_nothing() -> None:
    cluster, solver = Watched(), FakeOptimizer()
    filled(cluster, *SCENE, *TWO_SERVERS, optimizer())
    cluster.queue = working_on(cluster, solver)

    cluster.queue.add(INFERNO, 1)
    await all_work_done()

    assert len(solver.systems) == 1
    status = find(cluster, "Optimizer", "inferno")["status"]
    assert (status["observedGeneration"], status["done"]) == (2, True)


async def test_failures_end_by_themselves_when_their_cause_does() -> None:
    cluster, solver = Watched(), FakeOptimizer()
    filled(cluster, *SCENE, *TWO_SERVERS, optimizer())
    cluster.queue = working_on(cluster, solver)
    solver.failures = [UnavailableError("connection refused") for _ in range(4)]
    cluster.failures = [UnavailableError("connection refused") for _ in range(4)]

    cluster.queue.add(INFERNO, 1)
    await all_work_done()

    assert optimized(cluster)[:2] == ("True", "Optimized")
    assert desired(cluster, "s") == ("A", 2, 20)


class Refusing(FakeOptimizer):
    """Refuses until the loop's clock has come to a time [s]."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until
        self.refusals = 0

    async def optimize(self, system: System) -> Solution:
        if asyncio.get_running_loop().time() < self._until:
            self.refusals += 1
            raise UnavailableError("connection refused")
        return await super().optimize(system)


async def test_an_optimizer_that_refuses_for_a_minute_is_asked_again_until_it_answers() -> None:
    began = asyncio.get_running_loop().time()
    cluster, solver = Watched(), Refusing(until=began + 60)
    filled(cluster, *SCENE, *TWO_SERVERS, optimizer())
    cluster.queue = working_on(cluster, solver, Backoff())

    cluster.queue.add(INFERNO, 1)
    await asyncio.sleep(59)
    untouched = [name for name in ("s", "t") if "status" not in find(cluster, "Server", name)]
    told, events = optimized(cluster), len(cluster.events)
    await asyncio.sleep(32)

    assert untouched == ["s", "t"]
    assert (told[:2], events) == (("False", "Unavailable"), 1)
    assert solver.refusals == 7  # after 0, 0.5, 1.5, 3.5, 7.5, 15.5 and 31.5 s
    assert optimized(cluster)[:2] == ("True", "Optimized")
    assert desired(cluster, "s") == ("A", 2, 20)


class Slow(FakeOptimizer):
    """Lets everybody else work while it solves; knows how many solves ran at once."""

    def __init__(self) -> None:
        super().__init__()
        self._running = 0
        self.most_at_once = 0

    async def optimize(self, system: System) -> Solution:
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        for _ in range(100):
            await asyncio.sleep(0)
        self._running -= 1
        return await super().optimize(system)


async def run_at_once(cluster: FakeCluster, keys: Iterable[Key]) -> Slow:
    solver = Slow()
    queue = working_on(cluster, solver)
    for key in keys:
        queue.add(key, 1)
    await all_work_done()
    return solver


async def test_requests_in_one_namespace_run_one_after_the_other() -> None:
    cluster = scene(optimizer("other", parameters={"unlimited": True}))

    solver = await run_at_once(cluster, [INFERNO, Key("default", "other")])

    assert len(solver.systems) == 2
    assert solver.most_at_once == 1


async def test_requests_in_different_namespaces_need_not_wait_for_each_other() -> None:
    cluster = FakeCluster()
    keys = [cluster.add(optimizer(), namespace) for namespace in ("one", "two")]

    solver = await run_at_once(cluster, keys)

    assert solver.most_at_once == 2


async def test_many_servers_are_written_once_each() -> None:
    servers = [server(f"s{n}", wanted=1) for n in range(200)]
    cluster = cluster_of(*SCENE, capacity(200, "more"), *servers, optimizer())

    await reconciled(cluster)

    counts = {
        name: len(list(group))
        for name, group in itertools.groupby(sorted(written(cluster, "Server")))
    }
    assert counts == {f"s{n}": 2 for n in range(200)}  # spec and status


async def test_an_optimizer_whose_definition_is_being_deleted_stays_and_says_so() -> None:
    held = optimizer(deletionTimestamp=NOW.isoformat(), finalizers=[FINALIZER])
    cluster = cluster_of(held)
    cluster.terminating = {"optimizers"}

    assert await reconciled(cluster) is ReconcileResult.FAILED

    assert optimized(cluster)[:2] == ("False", "DefinitionTerminating")
    assert find(cluster, "Optimizer", "inferno")["metadata"]["finalizers"] == [FINALIZER]

    cluster.terminating.clear()
    assert await reconciled(cluster) is ReconcileResult.SETTLED
    assert ("Optimizer", INFERNO) not in cluster.objects


async def test_no_plan_is_made_before_the_cards_are_counted() -> None:
    counting = manifest("Capacity", {"fromNodes": True}, name="cards")
    cluster = scene(counting)
    outcome = await reconciled(cluster)

    assert outcome is ReconcileResult.FAILED
    assert optimized(cluster)[:2] == ("False", "Unavailable")
    assert "Capacity 'cards' is not counted yet" in optimized(cluster)[2]
    assert "desiredAlloc" not in find(cluster, "Server", "s")["spec"]


class Counted:
    """A node with two cards of type T."""

    async def nodes(self, namespace: str) -> Sequence[Node]:
        assert namespace == "default"
        return [Node("T", 2)]


async def test_replicas_that_find_no_node_are_told_on_the_optimizer() -> None:
    cluster = scene()
    await reconciled(cluster, machines=Counted())

    assert desired(cluster, "s") == ("A", 2, 20)
    assert "1 x T are left out: replicas found no node" in optimized(cluster)[2]


class LastGood(TypedLoads):
    """Servers have the load of their status, as long as nothing newer is measured."""

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        return [
            replace(o, resource=set_last_good_load(o.resource))
            if isinstance(o.resource, Server)
            else o
            for o in observations
        ]


def short_of_cards(**measured: object) -> FakeCluster:
    """A server that runs 3 and needs 5 of 4 cards, and what was measured of it last."""
    subject = server("S", spec={"currentAlloc": running(3, 5)})
    if measured:
        told = {"time": "2026-03-01T11:00:00Z", **measured}
        subject["spec"]["measure"] = {"source": "vLLM", "labels": {"model_name": "m"}}
        subject["status"] = {"measured": told}
    return cluster_of(*SCENE, subject)


STALE = {"quality": "Stale", "arrivalRate": 270, "avgInTokens": 0, "avgOutTokens": 1}
GREEDY, EXACT = {"milpSolver": False}, {"milpSolver": True}


@pytest.mark.parametrize("measured", [{}, STALE], ids=["typed", "stale"])
@pytest.mark.parametrize("parameters", [GREEDY, EXACT], ids=["greedy", "exact"])
async def test_a_server_for_which_cards_are_short_is_never_given_less_than_runs(
    parameters: dict[str, Any], measured: Manifest
) -> None:
    """It runs 3, and its targets take 5 of 4 cards: what fits is 4, and never 0."""
    cluster = short_of_cards(**measured)
    seen = []

    for _ in range(3):
        cluster.add(optimizer(parameters=parameters))
        assert not (await reconciled(cluster, loads=LastGood())).failed
        seen.append(desired(cluster, "s"))

    assert seen == [("A", 4, 40)] * 3
    assert condition(cluster, "Server", "s", "Allocated")[:2] == ("True", "BestEffort")


async def test_a_policy_of_none_that_is_written_gives_all_or_nothing() -> None:
    cluster = short_of_cards()
    cluster.add(optimizer(parameters={"saturationPolicy": "None"}))

    await reconciled(cluster)

    assert is_cleared(find(cluster, "Server", "s")["spec"]["desiredAlloc"])
    assert condition(cluster, "Server", "s", "Allocated")[:2] == ("False", "NoCapacity")


async def test_what_is_held_counts_in_the_cost_of_the_optimizer() -> None:
    """2 A for 20 keep running under an unknown class, 1 A for 10 is decided, 1 is unmeasured."""
    held = server("S", spec={"class": "gone", "currentAlloc": running(2, 2)})
    unmeasured = server("U", spec={"currentAlloc": running(1, 1)})
    del unmeasured["spec"]["currentAlloc"]["load"]
    cluster = cluster_of(*SCENE, held, server("T", wanted=1), unmeasured, optimizer())

    await reconciled(cluster)

    last = find(cluster, "Optimizer", "inferno")["status"]["lastOptimization"]
    assert (last["cost"], last["allocated"]) == (40, 1)
    assert "1 of 2 servers have an allocation, 40 cents/hour" in optimized(cluster)[2]


def measured_scene(*others: Manifest, cards: int = 8) -> FakeCluster:
    """A measured Server that runs 4 replicas as decided, and has load for one."""
    subject = server("S", spec={"currentAlloc": running(4, 1)})
    subject["spec"]["measure"] = {"source": "vLLM", "labels": {"model_name": "m"}}
    subject["spec"]["desiredAlloc"] = {"accelerator": "A", "numReplicas": 4}
    return cluster_of(*system(cards), subject, *others)


async def plans_after(cluster: FakeCluster, *seconds: int) -> list[int]:
    """Replicas of the measured Server after plans of one operator at these times."""
    time = NOW
    context = context_of(cluster, now=lambda: time)
    found = []
    for passed in seconds:
        time = NOW + timedelta(seconds=passed)
        cluster.add(optimizer())
        await reconcile(INFERNO, context)
        found.append(desired(cluster, "s")[1])
    return found


async def test_a_measured_server_loses_replicas_after_the_window_and_one_by_one() -> None:
    cluster = measured_scene()

    assert await plans_after(cluster, 0, 150, 299) == [4, 4, 4]
    assert (
        condition(cluster, "Server", "s", "Allocated")[2]
        == "4 x A (1 needed now; the others are removed if this lasts)"
    )
    assert await plans_after(measured_scene(), 0, 300, 330, 360, 390) == [4, 3, 2, 1, 1]


async def test_what_waits_to_be_reduced_takes_no_card_from_anybody() -> None:
    cluster = measured_scene(server("T", wanted=6), cards=8)

    assert await plans_after(cluster, 0) == [2]
    assert desired(cluster, "t") == ("A", 6, 60)


async def test_what_waits_to_be_reduced_fits_on_the_nodes() -> None:
    """Only two cards are on a node, so a plan with four replicas is none."""
    cluster = measured_scene()
    cluster.add(optimizer())

    await reconciled(cluster, machines=Counted())

    assert desired(cluster, "s") == ("A", 1, 10)


async def test_a_restart_while_a_load_falls_gives_no_replica_back_that_was_taken() -> None:
    """And it takes none before fewer were enough for a whole window, as far as it can know."""
    cluster = measured_scene()

    before = await plans_after(cluster, 0, 300, 330)
    after = await plans_after(cluster, 331, 360, 629, 631, 660)

    assert before == [4, 3, 2]
    assert after == [2, 2, 2, 1, 1]


async def test_a_restart_moves_no_server_back_that_has_moved_only_just() -> None:
    both = model(data=[performance(), performance("B")])
    cluster = filled(measured_scene(), both, accelerator("B", cost=1))

    await plans_after(cluster, 0)
    moved = desired(cluster, "s")[0]
    spec = find(cluster, "Server", "s")["spec"]
    cluster.add(server("S", spec={**spec, "currentAlloc": {**running(1, 1, "B"), "cost": 100}}))
    filled(cluster, accelerator("B", cost=100))
    places = []
    for passed in (30, 60, 1199, 1201):
        await plans_after(cluster, passed)
        places.append(desired(cluster, "s")[0])

    assert moved == "B"
    assert places == ["B", "B", "B", "A"]
