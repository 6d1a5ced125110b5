"""Decisions reach Deployments, all Servers together, within the cards and without a gap."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import pytest
from kubernetes import config
from kubernetes.client import CoreV1Api, CustomObjectsApi, V1Eviction, V1ObjectMeta

from inferno_operator.resources import API_VERSION, GROUP, VERSION
from inferno_optimizer.solution import IDLE
from tests.cluster.background import unless_gone
from tests.cluster.kubelet import Witness, running_pods
from tests.cluster.scene import ACCOUNT, Scene, accelerator, condition, counted
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.deployments import deployment
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.waiting import wait_until
from tests.tiers import extended
from tests.unit.operator import objects

Manifest = dict[str, Any]
Plan = Mapping[str, Mapping[str, int]]

pytestmark = pytest.mark.usefixtures("crds_installed", "deployment_controllers")

APPLY = "application/apply-patch+yaml"
KINDS = "servers,deployments,pods"
PLAN_S = 120.0
QUIET_S = 3.0
NOTICE_S = 3.0
ELECTION = {"INFERNO_LEADER_ELECTION": "true"}
SETTLED = frozenset({"Actuated", "NoRoom", "Blocked"})
CARDS = {"A": 40, "B": 40, "C": 20}
FEW_CARDS = {"A": 12, "B": 12, "C": 6}
"""Of short courses: each card has a pod that starts and ends, which takes most of the time."""

CARDS_OF_A_SERVER = 2.5
"""As many on average, so that pools are full."""


class Fleet:
    """Servers on Deployments, one for each accelerator, and decisions for them."""

    def __init__(self, scene: Scene, cards: Mapping[str, int]) -> None:
        self.scene = scene
        self.cards = cards
        self.control_plane = scene.control_plane
        kubeconfig = str(self.control_plane.kubeconfig)
        self._api = config.new_client_from_config(kubeconfig)  # type: ignore[no-untyped-call]  # nobody typed it
        self._objects = CustomObjectsApi(self._api)
        self._core = CoreV1Api(self._api)

    def create(self, servers: int, window: int = 1) -> list[str]:
        """Create so many Servers without replicas, which lose half in a window; their names."""
        names = [f"s{number:02}" for number in range(servers)]
        self.scene.apply(
            *map(accelerator, self.cards),
            objects.model("M", [objects.performance(name) for name in self.cards]),
            objects.service_class(),
            objects.guarded({"window": window}),
            counted(**self.cards),
            ACCOUNT,
            *(self._server(name) for name in names),
            *(deployment(f"{name}-{a.lower()}") for name in names for a in self.cards),
        )
        return names

    def _server(self, name: str) -> Manifest:
        workloads = [{"accelerator": a, "name": f"{name}-{a.lower()}"} for a in self.cards]
        return objects.server(name, wanted=1, spec={"workloads": workloads})

    def decide(self, plan: Plan, loads: Mapping[str, int]) -> None:
        """Write a plan on the Servers, and loads that take so many replicas."""
        for name, replicas in plan.items():
            mix = [{"accelerator": a, "numReplicas": n} for a, n in replicas.items() if n]
            nothing: Manifest = {"accelerator": "", "numReplicas": 0}
            whole: Manifest = {**nothing, **(mix[0] if mix else {}), "mix": mix}
            load = {"arrivalRate": 60 * loads[name] - 30 if loads[name] else 0, "avgLength": 1}
            standing = {"name": name, "class": "C", "model": "M"}
            self._patch(name, {"spec": {"currentAlloc": {"load": load}}})
            written = self._apply(name, {"spec": {**standing, "desiredAlloc": whole}})
            told = {
                "type": "Allocated",
                "status": "True",
                "reason": "Allocated",
                "message": "" if mix else IDLE,
                "observedGeneration": written["metadata"]["generation"],
                "lastTransitionTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            }
            self._apply(name, {"status": {"conditions": [told]}})

    def _patch(self, name: str, body: Manifest) -> None:
        self._objects.patch_namespaced_custom_object(
            *self._path(name), body, _content_type="application/merge-patch+json"
        )

    def _apply(self, name: str, fields: Manifest) -> Manifest:
        header: Manifest = {
            "apiVersion": API_VERSION,
            "kind": "Server",
            "metadata": {"name": name},
        }
        patch = (
            self._objects.patch_namespaced_custom_object_status
            if "status" in fields
            else self._objects.patch_namespaced_custom_object
        )
        body: Manifest = {**header, **fields}
        answer: Any = patch(
            *self._path(name),
            body,
            field_manager="inferno-operator",
            force=True,
            _content_type=APPLY,
        )
        written: Manifest = answer
        return written

    def _path(self, name: str) -> tuple[str, str, str, str, str]:
        return GROUP, VERSION, self.scene.namespace, "servers", name

    def reasons(self) -> dict[str, str]:
        """Why each Server is as it is."""
        servers = self.scene.items("servers")
        return {s["metadata"]["name"]: condition(s, "Actuated").get("reason", "") for s in servers}

    def is_known(self) -> bool:
        """Whether each Server was judged as it is now, with its load and its decision."""
        servers = self.scene.items("servers")
        return all(
            condition(server, "Actuated").get("observedGeneration")
            == server["metadata"]["generation"]
            for server in servers
        )

    def messages(self) -> dict[str, str]:
        """What the Servers say that have not arrived."""
        servers = self.scene.items("servers")
        told = {s["metadata"]["name"]: condition(s, "Actuated") for s in servers}
        return {n: c["message"] for n, c in told.items() if c.get("reason") != "Actuated"}

    def wait_until_reduced(self) -> None:
        """Wait until the pods have gone that Deployments had too many now; each for itself."""

        def too_many() -> set[str]:
            found = self.scene.items("deployments")
            return {d["metadata"]["name"] for d in found if _has_too_many(d)}

        waited_for = too_many()

        def left() -> set[str]:
            waited_for.intersection_update(too_many())
            return waited_for

        wait_until(left, lambda names: not names, "pods that go")

    def has(self, deployment: str, least: int) -> bool:
        """Whether a Deployment is to have so many replicas at least."""
        return self.scene.replicas()[deployment] >= least

    def evict_one(self) -> None:
        """Evict a pod, as `kubectl drain` asks for it."""
        pods = (pod["metadata"] for pod in self.scene.items("pods"))
        name = next(pod["name"] for pod in pods if "deletionTimestamp" not in pod)
        with unless_gone():
            body = V1Eviction(metadata=V1ObjectMeta(name=name))
            self._core.create_namespaced_pod_eviction(name, self.scene.namespace, body)

    def is_done(self, plan: Plan) -> bool:
        """Whether exactly the wanted replicas exist, and are ready."""
        found = self.scene.items("deployments")
        now = {d["metadata"]["name"]: _counts(d) for d in found}
        return all(
            now[f"{name}-{a.lower()}"] == {replicas.get(a, 0)}
            for name, replicas in plan.items()
            for a in self.cards
        )


def _has_too_many(deployment: Manifest) -> bool:
    """Whether pods are there that are not asked for, or the controller has not looked yet."""
    status = deployment.get("status", {})
    is_seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return not is_seen or status.get("replicas", 0) > deployment["spec"]["replicas"]


def _counts(deployment: Manifest) -> set[int]:
    status = deployment.get("status", {})
    ready, exist = status.get("readyReplicas", 0), status.get("replicas", 0)
    return {deployment["spec"]["replicas"], ready, exist}


def random_plan(names: list[str], cards: Mapping[str, int], chance: Random) -> dict[str, Any]:
    """Hand all cards out at random, to one or two accelerators for each server."""
    left = dict(cards)
    plan: dict[str, dict[str, int]] = {name: {} for name in names}
    liked = {name: chance.sample(sorted(cards), 2) for name in names}
    order = names * 4
    chance.shuffle(order)
    for name in order:
        accelerator = liked[name][0] if chance.random() < 0.8 else liked[name][1]
        if left[accelerator]:
            left[accelerator] -= 1
            plan[name][accelerator] = plan[name].get(accelerator, 0) + 1
    return plan


def end_of(plan: Plan, fleet: Fleet, witness: Witness) -> set[str]:
    """What Servers say when a plan is done, or when nothing moves any more."""

    def told() -> dict[str, str]:
        witness.pause()
        return {} if fleet.is_done(plan) else fleet.messages()

    def is_end(found: dict[str, str]) -> bool:
        events = witness.events
        reasons = set(fleet.reasons().values())
        if not found or not reasons & {"NoRoom", "Blocked"}:
            return not found and reasons == {"Actuated"}
        if not reasons <= SETTLED:  # nothing moves either until another leader takes over
            return False
        witness.pause(QUIET_S)
        return witness.events == events

    wait_until(told, is_end, "an end of the plan", PLAN_S)
    return set(fleet.reasons().values())


@pytest.fixture
def fleet(scene: Scene) -> Fleet:
    """Servers in the test's namespace."""
    return Fleet(scene, CARDS)


@pytest.fixture
def witness(control_plane: ControlPlane, fleet: Fleet) -> Iterator[Witness]:
    """Pods start and end in the test's namespace, and somebody looks."""
    where = control_plane.kubeconfig, fleet.scene.namespace
    with running_pods(*where, fleet.cards) as witness:
        yield witness


Operators = list[OperatorProcess]
Disturb = Callable[[Operators, StartOperator], None]


def nothing(operators: Operators, start: StartOperator) -> None:
    """Leave the operators alone."""


def kill(operators: Operators, start: StartOperator) -> None:
    operators.pop().kill()
    operators.append(start())


def change_leader(operators: Operators, start: StartOperator) -> None:
    """Kill the operator that started first, and with it most times the leader; start another."""
    operators.pop(0).kill()
    operators.append(start(environment=ELECTION))


@dataclass(frozen=True)
class Course:
    """How many plans follow each other, and how often and how the operators are disturbed."""

    plans: int
    disturb: Disturb = nothing
    times: int = 0
    operators: int = 1

    def moments(self, chance: Random) -> Counter[int]:
        """How often to disturb, by number of the plan."""
        return Counter(chance.randrange(self.plans) for _ in range(self.times))

    def start(self, start: StartOperator) -> Operators:
        """Start the operators; several elect one of them."""
        environment = ELECTION if self.operators > 1 else None
        return [start(environment=environment) for _ in range(self.operators)]


COURSES = {
    "undisturbed": Course(2),
    "killed": Course(1, kill, 3),
    "two-replicas": Course(1, change_leader, 1, operators=2),
}
SOAK_COURSES = {
    "undisturbed": Course(30),
    "killed": Course(30, kill, 10),
    "two-replicas": Course(30, change_leader, 10, operators=2),
}


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "name",
    [
        "killed",
        *extended("two-replicas"),
        pytest.param(
            "undisturbed", marks=pytest.mark.soak("an operator that is killed shows more")
        ),
    ],
)
def test_random_plans_on_full_pools_never_exceed_the_cards_and_never_drop_a_load(
    operator: StartOperator, scene: Scene, name: str, *, soak: bool
) -> None:
    course = (SOAK_COURSES if soak else COURSES)[name]
    fleet = Fleet(scene, CARDS if soak else FEW_CARDS)
    with running_pods(scene.control_plane.kubeconfig, scene.namespace, fleet.cards) as witness:
        ends = follow(course, fleet, witness, operator)
    print(f"{name}: {witness.events} events, plans with each reason: {dict(ends)}")
    assert witness.broken == []
    assert witness.events > sum(fleet.cards.values()) * course.plans


def follow(course: Course, fleet: Fleet, witness: Witness, operator: StartOperator) -> Counter[str]:
    """Decide random plans in turn; how many of them ended with each reason."""
    chance = Random(course.plans)  # noqa: S311 - the same plans each run
    names = fleet.create(servers=int(sum(fleet.cards.values()) / CARDS_OF_A_SERVER))
    operators = course.start(operator)
    moments = course.moments(chance)
    ends: Counter[str] = Counter()
    known = dict.fromkeys(names, 0)
    for number in range(course.plans):
        plan = random_plan(names, fleet.cards, chance)
        loads = {n: max(sum(r.values()) - chance.randint(0, 2), 0) for n, r in plan.items()}
        serving = witness.serving()
        witness.need({name: min(known[name], loads[name], serving[name]) for name in names})
        fleet.decide(plan, loads)
        wait_until(fleet.is_known, bool, "loads that are known")  # none is kept for others
        fleet.wait_until_reduced()
        witness.need(loads)
        known = loads
        for _ in range(moments[number]):
            witness.pause(chance.uniform(0.2, 2.0))
            course.disturb(operators, operator)
        ends.update(reasons := end_of(plan, fleet, witness))
        assert reasons <= SETTLED
    return ends


@pytest.mark.usefixtures("witness")
@pytest.mark.parametrize(
    ("by_hand", "who"), [(1, "'kubectl'"), (0, "an unknown writer")], ids=["to-one", "to-none"]
)
def test_a_number_set_by_hand_is_told_and_not_fought_over(
    operator: StartOperator, fleet: Fleet, by_hand: int, who: str
) -> None:
    """The API server names nobody once the number was 0."""
    fleet.create(servers=1)
    operator()
    plan: Plan = {"s00": {"A": 2}}
    fleet.decide(plan, {"s00": 1})
    wait_until(partial(fleet.is_done, plan), bool, "the replicas")
    fleet.scene.kubectl("scale", "deployment/s00-a", f"--replicas={by_hand}")
    wait_until(fleet.reasons, lambda told: told == {"s00": "ForeignWriter"}, "the writer")
    server = fleet.scene.get("server", "s00")

    assert who in condition(server, "Actuated")["message"]
    assert fleet.scene.replicas()["s00-a"] == by_hand


@pytest.mark.extended
@pytest.mark.usefixtures("witness")
def test_numbers_set_by_hand_while_a_plan_is_written_stay(
    operator: StartOperator, fleet: Fleet
) -> None:
    """Whoever writes first: the operator's write is refused, or it is older."""
    names = fleet.create(servers=10)
    operator()
    fleet.decide({name: {"A": 2} for name in names}, dict.fromkeys(names, 1))
    actuated = dict.fromkeys(names, "Actuated")
    wait_until(fleet.reasons, lambda told: told == actuated, "two replicas each")
    deployments = [f"deployment/{name}-a" for name in names]
    by_hand = threading.Thread(
        target=fleet.scene.kubectl, args=("scale", *deployments, "--replicas=1")
    )

    by_hand.start()
    fleet.decide({name: {"A": 3} for name in names}, dict.fromkeys(names, 1))
    by_hand.join()

    foreign = dict.fromkeys(names, "ForeignWriter")
    wait_until(fleet.reasons, lambda told: told == foreign, "the writer")
    assert {fleet.scene.replicas()[f"{name}-a"] for name in names} == {1}


FULL: Plan = {"s00": {"A": 3}, "s01": {"B": 3}}
SWAPPED: Plan = {"s00": {"B": 3}, "s01": {"A": 3}}
SWAP_LOADS = {"s00": 2, "s01": 2}


@contextmanager
def full_pools_that_swap(scene: Scene, operator: StartOperator) -> Iterator[tuple[Fleet, Witness]]:
    """Two servers that run on all cards of a type each, once they are to exchange them."""
    fleet = Fleet(scene, {"A": 3, "B": 3})
    fleet.create(servers=2)
    operator()
    with running_pods(scene.control_plane.kubeconfig, scene.namespace, fleet.cards) as witness:
        fleet.decide(FULL, SWAP_LOADS)
        wait_until(partial(fleet.is_done, FULL), bool, "the first plan")
        witness.need(SWAP_LOADS)
        fleet.decide(SWAPPED, SWAP_LOADS)
        yield fleet, witness


@pytest.mark.minutes
@pytest.mark.extended
def test_evictions_in_a_swap_of_full_pools_end_in_the_plan(
    scene: Scene, operator: StartOperator
) -> None:
    """The API server grants them; the pods are replaced, and start anew."""
    with full_pools_that_swap(scene, operator) as (fleet, witness):
        for moved in (1, 2, 3):
            wait_until(partial(fleet.has, "s00-b", moved), bool, "a step")
            witness.need({})
            fleet.evict_one()
            witness.pause(NOTICE_S / 3)  # what is on its way was decided before
            fleet.wait_until_reduced()
            witness.need(SWAP_LOADS)
        wait_until(partial(fleet.is_done, SWAPPED), bool, "the swap")

    assert witness.broken == []


@pytest.mark.extended
def test_a_server_that_is_made_anew_in_another_namespace_starts_there_and_leaves_what_ran(
    scene: Scene, other: Scene, operator: StartOperator
) -> None:
    here, there = Fleet(scene, {"A": 4, "B": 4}), Fleet(other, {"A": 4, "B": 4})
    kubeconfig = scene.control_plane.kubeconfig
    here.create(servers=2)
    operator(namespace=None)
    with (
        running_pods(kubeconfig, scene.namespace, here.cards) as seen_here,
        running_pods(kubeconfig, other.namespace, there.cards) as seen_there,
    ):
        first: Plan = {"s00": {"A": 2}, "s01": {"B": 1}}
        here.decide(first, {"s00": 2, "s01": 1})
        wait_until(partial(here.is_done, first), bool, "what runs here")
        seen_here.need({"s00": 2, "s01": 1})
        scene.kubectl("delete", "server", "s00")
        there.create(servers=1)
        then: Plan = {"s00": {"B": 3}}
        there.decide(then, {"s00": 3})
        wait_until(partial(there.is_done, then), bool, "what runs there")
        scene.kubectl("scale", "deployment/s00-a", "--replicas=3")
        left: Plan = {"s00": {"A": 3}, "s01": {"B": 1}}
        wait_until(partial(here.is_done, left), bool, "what a person asked for")
        seen_here.pause(NOTICE_S)

        assert here.is_done(left)
        assert (here.reasons(), there.reasons()) == ({"s01": "Actuated"}, {"s00": "Actuated"})
        assert seen_here.broken + seen_there.broken == []


def test_nothing_is_written_while_nothing_changes(
    operator: StartOperator, fleet: Fleet, witness: Witness
) -> None:
    fleet.create(servers=2)
    operator()
    plan = {"s00": {"A": 1}, "s01": {"B": 2}}
    fleet.decide(plan, {"s00": 1, "s01": 1})
    wait_until(lambda: set(fleet.reasons().values()), lambda told: told == {"Actuated"}, "")
    wait_until(lambda: _unfinished(fleet), lambda names: not names, "rollouts end")

    def rests() -> bool:
        before = fleet.scene.versions(KINDS)
        witness.pause(5.0)
        return fleet.scene.versions(KINDS) == before

    wait_until(rests, bool, "five seconds without a write")


def _unfinished(fleet: Fleet) -> list[str]:
    """Deployments whose status the cluster itself has yet to write: pods are ready before that."""
    return [
        deployment["metadata"]["name"]
        for deployment in fleet.scene.items("deployments")
        if deployment["status"].get("observedGeneration") != deployment["metadata"]["generation"]
        or deployment["status"].get("availableReplicas", 0) != deployment["spec"]["replicas"]
    ]
